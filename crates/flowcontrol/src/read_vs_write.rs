//! Reads and writes of the whole server over time (`read_vs_write_current_requests`), and how many waited in the
//! last second (`apiserver_current_inqueue_requests`).

use std::sync::{Mutex, PoisonError};

use crate::metrics::Histogram;
use crate::priority_level::Clock;
use crate::seat_seconds::Nanos;
use crate::timing_histogram::TimingHistogram;

/// Numbers of waiting and executing requests. The only state that all levels share: each lock is held
/// for a few instructions.
pub(crate) struct ReadVsWrite {
    clock: Clock,
    /// Reads, then writes.
    waiting: [Gauge; 2],
    executing: [Gauge; 2],
}

struct Gauge(Mutex<State>);

struct State {
    requests: u32,
    limit: f64,
    since: Nanos,
    histogram: TimingHistogram,
    peaks: Peaks,
}

/// The most requests at once in the current second and in the one before.
#[derive(Default)]
struct Peaks {
    second: Nanos,
    current: u32,
    previous: u32,
}

impl Peaks {
    /// `before` and `after` are the requests before and after a change.
    fn update(&mut self, now: Nanos, before: u32, after: u32) {
        let second = now / NANOS_PER_SECOND;
        if second != self.second {
            self.previous = if second == self.second + 1 { self.current } else { before };
            self.current = before;
            self.second = second;
        }
        self.current = self.current.max(after);
    }

    fn highest(&self) -> u32 {
        self.current.max(self.previous)
    }
}

const NANOS_PER_SECOND: Nanos = 1_000_000_000;

const BOUNDS: &[f64] =
    &[0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];

impl Gauge {
    fn new(now: Nanos) -> Self {
        let histogram = TimingHistogram::new(BOUNDS);
        let peaks = Peaks::default();
        Self(Mutex::new(State { requests: 0, limit: 1.0, since: now, histogram, peaks }))
    }

    fn with<T>(&self, now: Nanos, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = now.saturating_sub(state.since);
        if elapsed > 0 {
            let ratio = f64::from(state.requests) / state.limit;
            state.histogram.add(ratio, elapsed);
            state.since = now;
        }
        let before = state.requests;
        let changed = change(&mut state);
        let after = state.requests;
        state.peaks.update(now, before, after);
        changed
    }
}

impl ReadVsWrite {
    pub(crate) fn new(clock: Clock) -> Self {
        let gauges = || [Gauge::new(clock.now()), Gauge::new(clock.now())];
        Self { clock, waiting: gauges(), executing: gauges() }
    }

    /// How many requests may wait and execute in all levels together.
    pub(crate) fn set_limits(&self, waiting: usize, executing: u32) {
        let now = self.clock.now();
        for gauge in &self.waiting {
            gauge.with(now, |state| state.limit = waiting.max(1) as f64);
        }
        for gauge in &self.executing {
            gauge.with(now, |state| state.limit = f64::from(executing.max(1)));
        }
    }

    pub(crate) fn enter(&self, mutating: bool, now: Nanos) {
        self.executing[usize::from(mutating)].with(now, |state| state.requests += 1);
    }

    pub(crate) fn leave(&self, mutating: bool, now: Nanos) {
        self.executing[usize::from(mutating)].with(now, |state| state.requests -= 1);
    }

    /// Counts a request as waiting until the guard is dropped.
    pub(crate) fn wait(&self, mutating: bool, now: Nanos) -> impl Drop + use<'_> {
        let gauge = &self.waiting[usize::from(mutating)];
        gauge.with(now, |state| state.requests += 1);
        Waiting { gauge, clock: self.clock }
    }

    /// `request_kind` and the most requests that waited at once in the last second.
    pub(crate) fn waiting_peaks(&self) -> [(&'static str, u32); 2] {
        let now = self.clock.now();
        let [reads, writes] = &self.waiting;
        let peak = |gauge: &Gauge| {
            gauge.with(now, |_| ());
            gauge.with(now, |state| state.peaks.highest())
        };
        [("readOnly", peak(reads)), ("mutating", peak(writes))]
    }

    /// `phase`, `request_kind` and histogram.
    pub(crate) fn snapshot(&self) -> Vec<(&'static str, &'static str, Histogram)> {
        let now = self.clock.now();
        let read = |gauge: &Gauge| gauge.with(now, |state| state.histogram.snapshot());
        let mut all = Vec::new();
        for (phase, gauges) in [("executing", &self.executing), ("waiting", &self.waiting)] {
            for (kind, gauge) in ["readOnly", "mutating"].into_iter().zip(gauges) {
                all.push((phase, kind, read(gauge)));
            }
        }
        all
    }
}

struct Waiting<'a> {
    gauge: &'a Gauge,
    clock: Clock,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.gauge.with(self.clock.now(), |state| state.requests -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_seen_for_the_rest_of_its_second_and_the_next() {
        let gauge = Gauge::new(0);
        let at = |tenths: Nanos| tenths * NANOS_PER_SECOND / 10;
        let peak = |tenths| {
            gauge.with(at(tenths), |_| ());
            gauge.with(at(tenths), |state| state.peaks.highest())
        };
        for tenths in 1..=3 {
            gauge.with(at(tenths), |state| state.requests += 1);
        }
        for tenths in 4..=5 {
            gauge.with(at(tenths), |state| state.requests -= 1);
        }
        // Three waited in the first second, one still does.
        for (tenths, expected) in [(9, 3), (15, 3), (25, 1), (99, 1)] {
            assert_eq!(peak(tenths), expected, "after {tenths} tenths of a second");
        }
        gauge.with(at(100), |state| state.requests -= 1);
        assert_eq!(peak(100), 1);
        assert_eq!(peak(130), 0);
    }
}
