//! How far the controller has come with the definitions that were written: the writer of a definition is
//! answered when its objects are served and its conditions are written.

use std::{collections::BTreeMap, time::Duration};

use meta::Str;
use registry::{BoxFuture, Follower};
use tokio::sync::watch;

/// Shared by the controller and the writers of definitions.
pub(crate) struct Progress(watch::Sender<State>);

#[derive(Default)]
struct State {
    /// Everything up to this revision was reconciled.
    reached: u64,
    /// Definitions whose new status is not stored yet, with the revision that asked for it.
    unsettled: BTreeMap<Str, u64>,
}

impl State {
    fn is_settled(&self, revision: u64) -> bool {
        self.reached >= revision && !self.unsettled.values().any(|of| *of == revision)
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self(watch::Sender::new(State::default()))
    }
}

impl Progress {
    pub(crate) fn reach(&self, revision: u64) {
        self.0.send_modify(|state| state.reached = state.reached.max(revision));
    }

    /// A definition needs another status than it has at this revision.
    pub(crate) fn unsettle(&self, name: &Str, revision: u64) {
        self.0.send_modify(|state| {
            state.unsettled.entry(name.clone()).or_insert(revision);
        });
    }

    /// A definition has the status that it needs, or is gone.
    pub(crate) fn settle(&self, name: &Str) {
        self.0.send_if_modified(|state| state.unsettled.remove(name).is_some());
    }

    /// The server stops: no writer waits any longer.
    pub(crate) fn close(&self) {
        self.0.send_replace(State { reached: u64::MAX, unsettled: BTreeMap::new() });
    }
}

/// A write waits no longer than this: it is done, and its effect will follow.
const WAIT_MAX: Duration = Duration::from_secs(1);

impl Follower for Progress {
    fn reached(&self, revision: u64) -> BoxFuture<'_, ()> {
        let mut state = self.0.subscribe();
        Box::pin(async move {
            let settled = state.wait_for(|state| state.is_settled(revision));
            if tokio::time::timeout(WAIT_MAX, settled).await.is_err() {
                tracing::debug!(revision, "a definition is not served yet");
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_answered(progress: &Progress, revision: u64) -> bool {
        tokio::time::timeout(Duration::from_millis(10), progress.reached(revision)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_waits_for_its_own_definition_only() {
        let progress = Progress::default();
        assert!(!is_answered(&progress, 5).await, "not seen yet");
        progress.unsettle(&"a".into(), 5);
        progress.unsettle(&"b".into(), 6);
        progress.reach(6);
        assert!(!is_answered(&progress, 5).await, "its status is not stored yet");
        assert!(is_answered(&progress, 4).await);
        // Its status comes back at revision 7, and asks for nothing more.
        progress.settle(&"a".into());
        progress.reach(7);
        assert!(is_answered(&progress, 5).await);
        assert!(is_answered(&progress, 7).await, "the controller does not wait for itself");
        assert!(!is_answered(&progress, 6).await);
        progress.close();
        assert!(is_answered(&progress, 6).await);
    }

    #[tokio::test(start_paused = true)]
    async fn no_writer_waits_for_ever() {
        Progress::default().reached(1).await;
    }
}
