//! Named points at which a debug build can be made to crash, so that tests see the state that a
//! crash leaves behind.
//!
//! `PINTLE_DIE_AT=log.written:3` aborts the process when it reaches that point for the third time:
//! nothing is flushed, answered or released. Release builds have no such points.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// All points, in the order in which a write reaches them. Tests go through all of them.
pub(crate) const POINTS: &[&str] = &[
    // A new segment is durable and not in use yet; the hint file of the previous one is written.
    "segment.created",
    "segment.hinted",
    // Space for a batch is allocated; the batch is written; it is synced.
    "log.allocated",
    "log.written",
    "log.synced",
    // Readers of the store see the batch, watches do not; watches are notified, the callers are
    // not.
    "publish.indexed",
    "publish.notified",
    // Readers of the cache see it, watchers do not; watchers are notified, readers that wait for
    // the revision are not.
    "cache.state",
    "cache.notified",
    // The compaction record is durable; no version is dropped yet.
    "compact.logged",
    // Live records of an old segment are copied; it has none left; its file is deleted, its hint
    // file is not.
    "reclaim.copied",
    "reclaim.emptied",
    "reclaim.deleted",
    // A snapshot file is written and not renamed yet.
    "backup.written",
    // During recovery, the end of the log is written again and not synced.
    "recover.rewritten",
];

macro_rules! failpoint {
    ($name:literal) => {
        if cfg!(debug_assertions) {
            $crate::failpoint::hit($name);
        }
    };
}
pub(crate) use failpoint;

/// Where to crash, and how often that point is still to be reached.
struct CrashPoint {
    at: &'static str,
    remaining: AtomicU64,
}

static CRASH_AT: LazyLock<Option<CrashPoint>> = LazyLock::new(|| {
    let text = std::env::var("PINTLE_DIE_AT").ok()?;
    Some(read(&text).unwrap_or_else(|| panic!("PINTLE_DIE_AT={text}: there is no such point")))
});

fn read(text: &str) -> Option<CrashPoint> {
    let (name, nth) = text.split_once(':').unwrap_or((text, "1"));
    let at = POINTS.iter().find(|point| **point == name)?;
    Some(CrashPoint { at, remaining: AtomicU64::new(nth.parse().ok()?) })
}

pub(crate) fn hit(name: &str) {
    debug_assert!(POINTS.contains(&name), "{name} is not in the list");
    if let Some(point) = &*CRASH_AT
        && point.at == name
        && point.remaining.fetch_sub(1, Ordering::Relaxed) == 1
    {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_point_has_an_optional_count() {
        let cases = [
            ("log.synced", Some(("log.synced", 1))),
            ("log.synced:7", Some(("log.synced", 7))),
            ("log.synced:x", None),
            ("log.sunk", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let found = read(text).map(|point| (point.at, point.remaining.into_inner()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
