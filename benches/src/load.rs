//! A closed loop: so many workers, each of which sends its next request when the last one is answered.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::client::Failure;

/// How much work, and how long at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) at_once: usize,
    pub(crate) count: usize,
    /// No operation is begun after this; those under way are finished and counted.
    pub(crate) cap: Duration,
}

/// What a loop saw from the outside.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) done: usize,
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    /// Of each successful operation, in no order.
    pub(crate) latencies: Latencies,
    pub(crate) failed: usize,
    pub(crate) first_failure: Option<Failure>,
}

/// Runs `operation(worker, number)` for the numbers `0..count`. It answers with the bytes received.
pub(crate) async fn closed_loop(
    plan: Plan,
    operation: impl AsyncFn(usize, usize) -> Result<u64, Failure>,
) -> Measured {
    let measured = RefCell::new(Measured::default());
    let next = Cell::new(0);
    let begun = Instant::now();
    let worker = async |worker: usize| {
        while next.get() < plan.count && begun.elapsed() < plan.cap {
            let number = next.get();
            next.set(number + 1);
            let sent = Instant::now();
            let outcome = operation(worker, number).await;
            measured.borrow_mut().note(sent.elapsed(), outcome);
        }
    };
    join_all((0..plan.at_once.min(plan.count)).map(worker)).await;
    let mut measured = measured.into_inner();
    measured.elapsed = begun.elapsed();
    measured
}

impl Measured {
    pub(crate) fn note(&mut self, latency: Duration, outcome: Result<u64, Failure>) {
        match outcome {
            Ok(bytes) => {
                self.done += 1;
                self.bytes += bytes;
                self.latencies.push(latency);
            }
            Err(failure) => {
                self.failed += 1;
                self.first_failure.get_or_insert(failure);
            }
        }
    }
}

/// Latencies in microseconds: half the memory of a `Duration`, and exact enough.
#[derive(Debug, Default, Clone)]
pub(crate) struct Latencies(Vec<u32>);

impl Latencies {
    pub(crate) fn push(&mut self, latency: Duration) {
        self.0.push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
    }

    /// The smallest latency that `share` of all do not exceed, in ms; `None` without any.
    pub(crate) fn quantile_ms(&mut self, share: f64) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        let index = ((self.0.len() as f64 * share).ceil() as usize).saturating_sub(1).min(last);
        let (_, value, _) = self.0.select_nth_unstable(index);
        Some(f64::from(*value) / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_nearest_rank() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile_ms(0.5), None);
        for ms in (1..=100).rev() {
            latencies.push(Duration::from_millis(ms));
        }
        for (share, expected) in [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            assert_eq!(latencies.quantile_ms(share), Some(expected), "{share}");
        }
    }

    #[tokio::test]
    async fn every_number_is_run_once_and_failures_are_not_fast_answers() {
        let seen = RefCell::new(Vec::new());
        let plan = Plan { at_once: 3, count: 10, cap: Duration::from_mins(1) };
        let measured = closed_loop(plan, async |_, number| {
            tokio::task::yield_now().await;
            seen.borrow_mut().push(number);
            let failure = || Failure { code: Some(500), message: format!("no {number}") };
            if number == 4 { Err(failure()) } else { Ok(7) }
        })
        .await;
        let mut seen = seen.into_inner();
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        assert_eq!((measured.done, measured.failed, measured.bytes), (9, 1, 63));
        assert_eq!(measured.first_failure.unwrap().message, "no 4");
    }

    #[tokio::test]
    async fn nothing_is_begun_after_the_cap() {
        let plan = Plan { at_once: 2, count: 1_000_000, cap: Duration::ZERO };
        let measured = closed_loop(plan, async |_, _| Ok(1)).await;
        assert_eq!(measured.done, 0);
    }
}
