//! The state of one watch: what has been delivered, which progress requests are pending.
//!
//! No I/O: messages in, batches out, so that it can be tested without etcd.

use std::time::Duration;

use meta::Str;
use store::{Batch, Change, StoreError};
use tokio::time::Instant;

use crate::pb;
use crate::pb::event::Type;

/// A watch, independent of its current stream.
pub(crate) struct WatchState {
    /// Everything up to this revision has been delivered.
    pub(crate) after: u64,
    /// etcd has confirmed the watch on the current stream.
    created: bool,
    /// The fragments of a message that is not complete yet.
    parts: Vec<Change>,
    /// Progress was asked for since the last progress request was sent.
    progress_wanted: bool,
    /// When the pending progress request was sent.
    progress_requested: Option<Instant>,
    /// When the last message arrived.
    last_message: Instant,
}

impl WatchState {
    pub(crate) fn new(after: u64) -> Self {
        Self {
            after,
            created: false,
            parts: Vec::new(),
            progress_wanted: false,
            progress_requested: None,
            last_message: Instant::now(),
        }
    }

    /// A new stream: the watch resumes where it is.
    pub(crate) fn reconnect(&mut self) {
        self.created = false;
        self.parts.clear();
        // A progress request that was pending on the old stream is sent again.
        self.progress_wanted |= self.progress_requested.take().is_some();
        self.last_message = Instant::now();
    }

    /// Processes a message; returns changes or progress if there are any.
    pub(crate) fn receive(
        &mut self,
        message: pb::WatchResponse,
    ) -> Result<Option<Batch>, StoreError> {
        self.last_message = Instant::now();
        if message.canceled {
            return Err(if message.compact_revision > 0 {
                StoreError::Compacted { oldest: message.compact_revision as u64 }
            } else {
                StoreError::Unavailable(message.cancel_reason)
            });
        }
        if message.created {
            self.created = true;
            return Ok(None);
        }
        let after = self.after;
        let changes = message.events.into_iter().filter_map(change);
        self.parts.extend(changes.filter(|change| change.revision > after));
        if message.fragment {
            return Ok(None);
        }
        if message.watch_id == BROADCAST_WATCH_ID {
            self.progress_requested = None;
        }
        let changes = std::mem::take(&mut self.parts);
        // With events the header's revision may be ahead of them; without events it is the
        // progress.
        let header = message.header.map_or(0, |header| header.revision as u64);
        let reached = changes.last().map_or(header, |change| change.revision);
        self.after = self.after.max(reached);
        Ok(Some(Batch { changes, revision: self.after }))
    }

    /// Asks for the revision that etcd has reached.
    pub(crate) fn request_progress(&mut self) {
        self.progress_wanted = true;
    }

    /// Whether the caller has to send a progress request now.
    ///
    /// Invariant: none is sent before etcd has confirmed the watch. etcd processes the requests of
    /// a stream in order, responds to a progress request only while the watch is synced, and sends
    /// events and progress through one queue: so a response means that all events up to its
    /// revision have arrived. (The confirmation of a new watch goes through another queue and may
    /// overtake a response. If a stream had several watches, the response to an earlier request
    /// would be taken for the progress of the new watch.)
    pub(crate) fn should_request_progress(&mut self) -> bool {
        let open = self
            .progress_requested
            .is_some_and(|progress_requested| progress_requested.elapsed() < PROGRESS_RETRY);
        let due = self.progress_wanted
            || self.progress_requested.is_some()
            || self.last_message.elapsed() >= PROGRESS_INTERVAL;
        if !self.created || open || !due {
            return false;
        }
        self.progress_wanted = false;
        self.progress_requested = Some(Instant::now());
        true
    }

    /// When something has to be done if no message arrives.
    pub(crate) fn wake_at(&self) -> Instant {
        match self.progress_requested {
            _ if !self.created => self.last_message + SILENCE_TIMEOUT,
            Some(progress_requested) => progress_requested + PROGRESS_RETRY,
            None if self.progress_wanted => Instant::now(),
            None => self.last_message + PROGRESS_INTERVAL,
        }
    }

    /// Whether a message is overdue. etcd does not respond to a progress request while the watch is
    /// catching up, so this alone does not mean that the member is down.
    pub(crate) fn is_overdue(&self) -> bool {
        (self.progress_requested.is_some() || !self.created)
            && self.last_message.elapsed() >= SILENCE_TIMEOUT
    }

    /// The member has responded to another call.
    pub(crate) fn mark_alive(&mut self) {
        self.last_message = Instant::now();
    }
}

/// The watch id of responses to progress requests.
const BROADCAST_WATCH_ID: i64 = -1;
/// After this time a progress request is repeated: etcd does not respond while the watch is
/// catching up.
const PROGRESS_RETRY: Duration = Duration::from_millis(90);
/// How often a quiet watch requests progress by itself, which also shows whether the member is
/// alive.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// A member that sends nothing for this long may hang or be unreachable.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(3);

/// Kubernetes keys are UTF-8; other keys do not belong to an apiserver.
fn change(event: pb::Event) -> Option<Change> {
    let deleted = event.r#type() == Type::Delete;
    let found = event.kv?;
    Some(Change {
        key: Str::new(std::str::from_utf8(&found.key).ok()?),
        revision: found.mod_revision as u64,
        create_revision: found.create_revision as u64,
        value: (!deleted).then_some(found.value),
        problem: None,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn message(watch_id: i64, revision: i64) -> pb::WatchResponse {
        let header = Some(pb::ResponseHeader { revision, ..Default::default() });
        pb::WatchResponse { header, watch_id, ..Default::default() }
    }

    fn created(revision: i64) -> pb::WatchResponse {
        pb::WatchResponse { created: true, ..message(1, revision) }
    }

    fn events(header: i64, revisions: &[i64]) -> pb::WatchResponse {
        let event = |revision: &i64| pb::Event {
            kv: Some(pb::KeyValue {
                key: Bytes::from_static(b"/b/1"),
                mod_revision: *revision,
                ..Default::default()
            }),
            ..Default::default()
        };
        let events = revisions.iter().map(event).collect();
        pb::WatchResponse { events, ..message(1, header) }
    }

    /// The revisions of the changes, and the progress.
    fn taken(state: &mut WatchState, message: pb::WatchResponse) -> Option<(Vec<u64>, u64)> {
        let batch = state.receive(message).expect("no error")?;
        Some((batch.changes.iter().map(|change| change.revision).collect(), batch.revision))
    }

    /// A response to a progress request that was sent before the watch was created passed for
    /// progress of the watch, which then dropped the events it had not received yet.
    #[test]
    fn progress_is_not_requested_before_etcd_has_created_the_watch() {
        let mut state = WatchState::new(3);
        state.request_progress();
        assert!(!state.should_request_progress());
        assert_eq!(taken(&mut state, created(10)), None);
        assert!(state.should_request_progress());
        assert!(!state.should_request_progress(), "one question at a time");
        assert_eq!(taken(&mut state, events(10, &[3, 5])), Some((vec![5], 5)));
        assert_eq!(taken(&mut state, message(BROADCAST_WATCH_ID, 10)), Some((vec![], 10)));
        assert!(!state.should_request_progress(), "it is answered");
        // On another stream the watch is created again, and a pending progress request is repeated.
        state.request_progress();
        assert!(state.should_request_progress());
        state.reconnect();
        assert!(!state.should_request_progress());
        assert_eq!(taken(&mut state, created(10)), None);
        assert!(state.should_request_progress());
    }

    #[test]
    fn progress_requested_while_a_response_is_pending_is_requested_again() {
        let mut state = WatchState::new(3);
        assert_eq!(taken(&mut state, created(10)), None);
        state.request_progress();
        assert!(state.should_request_progress());
        state.request_progress();
        assert_eq!(taken(&mut state, message(BROADCAST_WATCH_ID, 10)), Some((vec![], 10)));
        assert!(state.should_request_progress());
    }

    #[test]
    fn a_fragmented_message_is_delivered_as_one_batch() {
        let mut state = WatchState::new(3);
        assert_eq!(taken(&mut state, created(10)), None);
        let part = pb::WatchResponse { fragment: true, ..events(10, &[4, 5]) };
        assert_eq!(taken(&mut state, part), None);
        assert_eq!(taken(&mut state, events(10, &[6])), Some((vec![4, 5, 6], 6)));
        // Progress notification without a request, which etcd sends every ten minutes.
        assert_eq!(taken(&mut state, message(1, 12)), Some((vec![], 12)));
        let lost = pb::WatchResponse { canceled: true, compact_revision: 9, ..message(1, 12) };
        assert!(matches!(state.receive(lost), Err(StoreError::Compacted { oldest: 9 })));
    }
}
