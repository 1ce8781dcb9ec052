//! How long to wait after failures in a row, by name.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;

pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    /// Bounded by the number of APIServices.
    failures: Mutex<HashMap<String, u32>>,
}

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, failures: Mutex::default() }
    }

    /// One more failure: twice as long as after the last one.
    pub(crate) fn next(&self, name: &str) -> Duration {
        let mut failures = self.failures.lock();
        let count = failures.entry(name.to_owned()).or_default();
        let wait = self.min.saturating_mul(1 << (*count).min(16)).min(self.max);
        *count = count.saturating_add(1);
        wait
    }

    pub(crate) fn reset(&self, name: &str) {
        self.failures.lock().remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_further_and_further_apart() {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let waits: Vec<u128> = (0..6).map(|_| backoff.next("a").as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(backoff.next("b").as_millis(), 100);
        backoff.reset("a");
        assert_eq!(backoff.next("a").as_millis(), 100);
    }
}
