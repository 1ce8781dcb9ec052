//! Histograms of a value over time: every nanosecond is an observation.

use crate::seat_seconds::Nanos;

/// Buckets by upper bound, and the nanoseconds that the value spent in each.
#[derive(Clone, Debug)]
pub(crate) struct TimingHistogram {
    bounds: &'static [f64],
    /// One more than `bounds`.
    nanos: Vec<u64>,
    sum: f64,
}

impl TimingHistogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, nanos: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// The value was constant for that long.
    pub(crate) fn add(&mut self, value: f64, elapsed: Nanos) {
        let at = self.bounds.iter().position(|&bound| value <= bound);
        self.nanos[at.unwrap_or(self.bounds.len())] += elapsed;
        self.sum += value * elapsed as f64;
    }

    pub(crate) fn snapshot(&self) -> crate::metrics::Histogram {
        crate::metrics::Histogram { bounds: self.bounds, counts: self.nanos.clone(), sum: self.sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_nanosecond_is_an_observation() {
        let mut histogram = TimingHistogram::new(&[0.0, 0.5, 1.0]);
        for (value, nanos) in [(0.0, 10), (0.25, 4), (0.5, 2), (3.0, 1)] {
            histogram.add(value, nanos);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.counts, [10, 6, 0, 1]);
        assert!((snapshot.sum - 5.0).abs() < 1e-9);
    }
}
