//! The state of one watch: what has been handed over, what etcd was asked.
//!
//! Pure bookkeeping: messages in, batches out, so that it can be tested without etcd.

use std::time::Duration;

use meta::Str;
use store::{Batch, Change, StoreError};
use tokio::time::Instant;

use crate::pb;
use crate::pb::event::Type;

/// A watch, on whatever stream it is just now.
pub(crate) struct Session {
    /// Everything up to here has been handed over.
    pub(crate) after: u64,
    /// The stream knows the watch.
    created: bool,
    /// The parts of a message that is not complete yet.
    parts: Vec<Change>,
    /// Somebody wants to know how far etcd is, since the last question was put.
    wanted: bool,
    /// When the last question was put, if it has not been answered.
    asked: Option<Instant>,
    /// When the last message came.
    heard: Instant,
}

impl Session {
    pub(crate) fn new(after: u64) -> Self {
        Self {
            after,
            created: false,
            parts: Vec::new(),
            wanted: false,
            asked: None,
            heard: Instant::now(),
        }
    }

    /// A new stream: the watch goes on where it is.
    pub(crate) fn begin(&mut self) {
        self.created = false;
        self.parts.clear();
        // What was asked on the old one is asked again.
        self.wanted |= self.asked.take().is_some();
        self.heard = Instant::now();
    }

    /// What etcd says: changes or progress, if it comes to either.
    pub(crate) fn take(&mut self, message: pb::WatchResponse) -> Result<Option<Batch>, StoreError> {
        self.heard = Instant::now();
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
        if message.watch_id == EVERY_WATCH {
            self.asked = None;
        }
        let changes = std::mem::take(&mut self.parts);
        // Beside events the header may be ahead of them; alone it says how far the watch is.
        let header = message.header.map_or(0, |header| header.revision as u64);
        let reached = changes.last().map_or(header, |change| change.revision);
        self.after = self.after.max(reached);
        Ok(Some(Batch { changes, revision: self.after }))
    }

    /// Somebody wants to know how far etcd is.
    pub(crate) fn want_progress(&mut self) {
        self.wanted = true;
    }

    /// Whether a question is to be put now; the caller puts it.
    ///
    /// Invariant: none is put before etcd has said that the watch is there. etcd takes the requests of
    /// a stream one by one, answers only while the watch has no changes to catch up with, and keeps
    /// changes and answers in one queue: so an answer says that everything up to its revision has come.
    /// (The news of a new watch has a queue of its own and may overtake an answer. If the stream had
    /// other watches, the answer to a question of before would pass for one about the new watch.)
    pub(crate) fn ask(&mut self) -> bool {
        let open = self.asked.is_some_and(|asked| asked.elapsed() < ASK_AGAIN_AFTER);
        let due = self.wanted || self.asked.is_some() || self.heard.elapsed() >= BEAT_EVERY;
        if !self.created || open || !due {
            return false;
        }
        self.wanted = false;
        self.asked = Some(Instant::now());
        true
    }

    /// When there will be something to do if no message comes.
    pub(crate) fn wake_at(&self) -> Instant {
        match self.asked {
            _ if !self.created => self.heard + SILENCE_MAX,
            Some(asked) => asked + ASK_AGAIN_AFTER,
            None if self.wanted => Instant::now(),
            None => self.heard + BEAT_EVERY,
        }
    }

    /// Whether etcd should have said something by now. It leaves a question unanswered while the watch
    /// is catching up, so this alone does not mean that it is gone.
    pub(crate) fn is_silent(&self) -> bool {
        (self.asked.is_some() || !self.created) && self.heard.elapsed() >= SILENCE_MAX
    }

    /// Somebody has heard of the member by other ways.
    pub(crate) fn is_alive(&mut self) {
        self.heard = Instant::now();
    }
}

/// The id under which etcd answers a question.
const EVERY_WATCH: i64 = -1;
/// After so long a question is put again: etcd leaves it unanswered while the watch is catching up.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(90);
/// How often a quiet watch asks by itself: how far it is, and whether anybody is there.
const BEAT_EVERY: Duration = Duration::from_secs(2);
/// A member that is silent for so long may hang, or be out of reach.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Keys of Kubernetes are text; others are not ours.
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

    /// The revisions of the changes, and how far the watch is.
    fn taken(session: &mut Session, message: pb::WatchResponse) -> Option<(Vec<u64>, u64)> {
        let batch = session.take(message).expect("no error")?;
        Some((batch.changes.iter().map(|change| change.revision).collect(), batch.revision))
    }

    /// The answer to a question of before would be taken for one about the watch, which then dropped
    /// what it had still to get.
    #[test]
    fn nothing_is_asked_before_etcd_knows_the_watch() {
        let mut session = Session::new(3);
        session.want_progress();
        assert!(!session.ask());
        assert_eq!(taken(&mut session, created(10)), None);
        assert!(session.ask());
        assert!(!session.ask(), "one question at a time");
        assert_eq!(taken(&mut session, events(10, &[3, 5])), Some((vec![5], 5)));
        assert_eq!(taken(&mut session, message(EVERY_WATCH, 10)), Some((vec![], 10)));
        assert!(!session.ask(), "it is answered");
        // On another stream everything begins anew, and an open question is put again.
        session.want_progress();
        assert!(session.ask());
        session.begin();
        assert!(!session.ask());
        assert_eq!(taken(&mut session, created(10)), None);
        assert!(session.ask());
    }

    #[test]
    fn who_asks_while_an_answer_is_on_its_way_gets_another_one() {
        let mut session = Session::new(3);
        assert_eq!(taken(&mut session, created(10)), None);
        session.want_progress();
        assert!(session.ask());
        session.want_progress();
        assert_eq!(taken(&mut session, message(EVERY_WATCH, 10)), Some((vec![], 10)));
        assert!(session.ask());
    }

    #[test]
    fn a_message_in_parts_is_handed_over_whole() {
        let mut session = Session::new(3);
        assert_eq!(taken(&mut session, created(10)), None);
        let part = pb::WatchResponse { fragment: true, ..events(10, &[4, 5]) };
        assert_eq!(taken(&mut session, part), None);
        assert_eq!(taken(&mut session, events(10, &[6])), Some((vec![4, 5, 6], 6)));
        // Progress of its own accord, which etcd sends every ten minutes.
        assert_eq!(taken(&mut session, message(1, 12)), Some((vec![], 12)));
        let lost = pb::WatchResponse { canceled: true, compact_revision: 9, ..message(1, 12) };
        assert!(matches!(session.take(lost), Err(StoreError::Compacted { oldest: 9 })));
    }
}
