//! Metrics of watch events.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts by size. Adding is two instructions, since it happens with every event of every watcher.
#[derive(Debug, Default)]
pub struct WatchMetrics {
    by_size: [AtomicU64; SIZES.len() + 1],
    bytes: AtomicU64,
}

/// The bucket bounds in bytes; as upstream.
pub const SIZES: [usize; 8] = [1024, 2048, 4096, 8192, 16384, 32768, 65536, 131_072];

impl WatchMetrics {
    pub(crate) fn sent(&self, bytes: usize) {
        let at = SIZES.partition_point(|&bound| bound < bytes);
        self.by_size[at].fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Cumulative events per bound of [`SIZES`], and all of them.
    pub fn cumulative(&self) -> [u64; SIZES.len() + 1] {
        let mut sum = 0;
        std::array::from_fn(|at| {
            sum += self.by_size[at].load(Ordering::Relaxed);
            sum
        })
    }

    /// Bytes of all events.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_by_the_bound_they_stay_within() {
        let watched = WatchMetrics::default();
        for bytes in [1, 1024, 1025, 131_072, 131_073] {
            watched.sent(bytes);
        }
        assert_eq!(watched.cumulative(), [2, 3, 3, 3, 3, 3, 3, 4, 5]);
        assert_eq!(watched.bytes(), 1 + 1024 + 1025 + 131_072 + 131_073);
    }
}
