//! Named points at which a debug build can be made to die, so that tests see what a crash right there leaves behind.
//!
//! `PINTLE_DIE_AT=log.written:3` ends the process when it comes to that point for the third time: nothing is flushed,
//! answered or released. Release builds have no such points.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Every point there is, in the order in which a write passes them. Tests go through all of them.
pub(crate) const POINTS: &[&str] = &[
    // A new file of the log is durable and not in use; the table of contents of the one before is written.
    "segment.created",
    "segment.hinted",
    // There is room for a batch of writes; it is written; it is synced.
    "log.allocated",
    "log.written",
    "log.synced",
    // Readers of the store see it, watches do not; watches were told, the callers were not.
    "publish.indexed",
    "publish.notified",
    // Readers of the cache see it, watchers do not; watchers were told, those who wait for the revision were not.
    "cache.state",
    "cache.notified",
    // What was compacted is durable, and nothing is forgotten yet.
    "compact.logged",
    // What is needed of an old file is copied; nothing of it is needed; it is gone, its table of contents is not.
    "reclaim.copied",
    "reclaim.emptied",
    "reclaim.deleted",
    // A backup is written and does not have its name yet.
    "backup.written",
    // At the next start, the end of the log is written again and not synced.
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

/// Where to die, and how often that place is still to be passed.
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
    fn a_point_is_named_with_a_count_or_without() {
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
