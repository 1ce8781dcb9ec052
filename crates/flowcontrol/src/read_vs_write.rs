//! Reads and writes of the whole server over time (`read_vs_write_current_requests`).

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
}

const BOUNDS: &[f64] =
    &[0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];

impl Gauge {
    fn new(now: Nanos) -> Self {
        let histogram = TimingHistogram::new(BOUNDS);
        Self(Mutex::new(State { requests: 0, limit: 1.0, since: now, histogram }))
    }

    fn with<T>(&self, now: Nanos, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = now.saturating_sub(state.since);
        if elapsed > 0 {
            let ratio = f64::from(state.requests) / state.limit;
            state.histogram.add(ratio, elapsed);
            state.since = now;
        }
        change(&mut state)
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
