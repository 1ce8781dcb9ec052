//! Waiting for something that another process does.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up on it. Generous, because a busy machine is no
/// reason for a test to fail; nothing waits this long when all is well.
pub const PATIENCE: Duration = Duration::from_mins(1);

const PAUSE: Duration = Duration::from_millis(20);

/// Tries until there is an answer; panics with `what` was waited for once patience runs out.
#[track_caller]
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = attempt() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain: {what}");
        #[expect(clippy::disallowed_methods, reason = "a test's own thread serves no request")]
        thread::sleep(PAUSE);
    }
}
