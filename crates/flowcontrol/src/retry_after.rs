//! `Retry-After` of rejected requests: longer while many are rejected.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Seconds.
const RETRY_AFTER_MAX: u32 = 32;

/// The rejections of a priority level, by second.
#[derive(Debug)]
pub(crate) struct RetryAfter(Mutex<State>);

#[derive(Debug)]
struct State {
    retry_after: u32,
    /// The second of the latest increase.
    increased: Option<u64>,
    second: u64,
    rejected: u64,
    /// Earlier seconds with their rejections, [`RETRY_AFTER_MAX`] at most.
    history: VecDeque<(u64, u64)>,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self(Mutex::new(State {
            retry_after: 1,
            increased: None,
            second: 0,
            rejected: 0,
            history: VecDeque::new(),
        }))
    }
}

impl RetryAfter {
    /// Counts a rejection in this second; returns what its client should wait.
    pub(crate) fn record(&self, second: u64) -> u32 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if second > state.second {
            state.next_second(second);
        }
        state.rejected += 1;
        state.retry_after
    }
}

impl State {
    fn next_second(&mut self, second: u64) {
        if self.rejected > 0 {
            self.history.push_back((self.second, self.rejected));
        }
        while self.history.front().is_some_and(|(at, _)| second - at > u64::from(RETRY_AFTER_MAX)) {
            self.history.pop_front();
        }
        (self.second, self.rejected) = (second, 0);
        self.adjust();
    }

    /// Doubled if there were three rejections a second in the last `retry_after` seconds, and at most
    /// once in that time; one less if there was fewer than one a second. Queues take up bursts, so
    /// that any steady rejections are overload.
    fn adjust(&mut self) {
        let span = u64::from(self.retry_after);
        let recent = self.history.iter().filter(|(at, _)| self.second - at <= span);
        let rejected: u64 = recent.map(|(_, rejected)| rejected).sum();
        let may_increase = self.increased.is_none_or(|at| self.second - at >= span);
        if may_increase && rejected >= 3 * span {
            self.retry_after = (2 * self.retry_after).min(RETRY_AFTER_MAX);
            self.increased = Some(self.second);
        } else if rejected < span && self.retry_after > 1 {
            self.retry_after -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_wait_longer_while_many_are_rejected() {
        let retry = RetryAfter::default();
        let mut second = 0;
        let mut run = |seconds: u64, rejections: u64| {
            let mut retry_after = 0;
            for _ in 0..seconds {
                second += 1;
                for _ in 0..rejections {
                    retry_after = retry.record(second);
                }
            }
            retry_after
        };
        // Seconds, rejections in each, and the last client's Retry-After.
        let cases = [
            (1, 10, 1),
            (1, 10, 2),
            (1, 10, 2),
            (1, 10, 4),
            (4, 10, 8),
            (100, 10, 32),
            // Between one and three a second it stays.
            (50, 2, 32),
            (200, 1, 32),
        ];
        for (seconds, rejections, expected) in cases {
            assert_eq!(run(seconds, rejections), expected, "{seconds} x {rejections}");
        }
        // One rejection every ten seconds.
        for _ in 0..31 {
            run(9, 0);
            run(1, 1);
        }
        assert_eq!(run(1, 1), 1);
    }
}
