//! How many seats a priority level could have used: the input of lending and borrowing.

use crate::seat_seconds::Nanos;

/// Integrates the seat demand over the current adjustment period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Integrator {
    seconds: f64,
    /// Integral of the demand.
    first: f64,
    /// Integral of its square.
    second: f64,
    peak: u32,
}

impl Integrator {
    /// The demand was constant for that long.
    pub(crate) fn add(&mut self, demand: u32, elapsed: Nanos) {
        let (demand, seconds) = (f64::from(demand), elapsed as f64 / 1e9);
        self.seconds += seconds;
        self.first += demand * seconds;
        self.second += demand * demand * seconds;
    }

    /// The demand is this high, if only for a moment.
    pub(crate) fn note(&mut self, demand: u32) {
        self.peak = self.peak.max(demand);
    }

    /// Starts the next period with the present demand; returns the one that ended.
    pub(crate) fn reset(&mut self, demand: u32) -> Self {
        std::mem::replace(self, Self { peak: demand, ..Self::default() })
    }
}

/// Statistics of the seat demand over adjustment periods.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SeatDemand {
    pub(crate) average: f64,
    pub(crate) deviation: f64,
    pub(crate) high_watermark: u32,
    /// Follows a rise of `average + deviation` at once, and a fall slowly.
    pub(crate) smoothed: f64,
}

/// Per period of 10 seconds; halves in five minutes.
const SMOOTHING: f64 = 0.977;

impl SeatDemand {
    pub(crate) fn update(&mut self, period: &Integrator) {
        self.high_watermark = period.peak;
        if period.seconds <= 0.0 {
            return;
        }
        self.average = period.first / period.seconds;
        let variance = period.second / period.seconds - self.average * self.average;
        // Rounding can make it slightly negative.
        self.deviation = variance.max(0.0).sqrt();
        let envelope = self.average + self.deviation;
        let decayed = SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope;
        self.smoothed = envelope.max(decayed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn demand_rises_at_once_and_falls_slowly() {
        let mut demand = SeatDemand::default();
        let mut period = Integrator::default();
        period.note(30);
        period.add(10, 5 * SECOND);
        period.add(20, 5 * SECOND);
        demand.update(&period.reset(20));
        assert_eq!(
            demand,
            SeatDemand { average: 15.0, deviation: 5.0, high_watermark: 30, smoothed: 20.0 }
        );
        // 30 periods of 10 seconds without demand halve it.
        for _ in 0..30 {
            period.add(0, 10 * SECOND);
            demand.update(&period.reset(0));
        }
        assert!((demand.smoothed - 10.0).abs() < 0.1, "{demand:?}");
        assert_eq!(demand.high_watermark, 0);
    }

    #[test]
    fn a_period_without_length_changes_the_high_watermark_only() {
        let mut period = Integrator::default();
        let mut demand = SeatDemand { smoothed: 3.0, ..SeatDemand::default() };
        period.note(4);
        demand.update(&period.reset(2));
        assert_eq!(demand, SeatDemand { high_watermark: 4, smoothed: 3.0, ..demand });
        demand.update(&period.reset(0));
        assert_eq!(demand.high_watermark, 2, "what is demanded at the start of a period counts");
    }
}
