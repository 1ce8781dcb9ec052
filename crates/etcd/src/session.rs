//! The state of the watches of a stream: what has been handed over, what etcd was asked.
//!
//! Pure bookkeeping: messages in, batches and requests out, so that it can be tested without etcd.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use meta::Str;
use store::{Batch, Change, StoreError};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use crate::hub::{Opened, create};
use crate::pb;
use crate::pb::event::Type;
use crate::pb::watch_request::Request;

/// The watches of a stream, and of the one that takes its place when it breaks.
#[derive(Default)]
pub(crate) struct Session {
    watches: BTreeMap<i64, Entry>,
    last_id: i64,
    requests: Option<mpsc::Sender<pb::WatchRequest>>,
    /// When etcd was asked how far it is, if it has not answered yet.
    asked: Option<Instant>,
    /// Questions whose answers may still be on their way, the oldest first.
    questions: VecDeque<Instant>,
    /// Somebody asked while an answer was on its way that may be too old for him.
    ask_again: bool,
    /// When the last message came.
    heard: Option<Instant>,
}

struct Entry {
    key: Bytes,
    range_end: Bytes,
    /// Everything up to here has been handed over.
    after: u64,
    out: mpsc::Sender<Result<Batch, StoreError>>,
    wanted: Arc<AtomicBool>,
    /// The stream knows the watch: since when, and since which revision of the store.
    created: Option<(Instant, u64)>,
    /// So many of the next answers may be to questions that were put before the watch was there.
    foreign_answers: usize,
    /// The next progress is for this watch as well.
    owed: bool,
    /// The parts of a message that is not complete yet.
    parts: Vec<Change>,
}

/// The stream does not take any more requests.
#[derive(Debug)]
pub(crate) struct Stuck;

impl Session {
    pub(crate) fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.watches.len()
    }

    /// Takes in a watch; it is opened with the next stream.
    pub(crate) fn add(&mut self, watch: Opened) {
        self.last_id += 1;
        let Opened { key, range_end, after, out, wanted } = watch;
        let entry = Entry {
            key,
            range_end,
            after,
            out,
            wanted,
            created: None,
            foreign_answers: 0,
            owed: false,
            parts: Vec::new(),
        };
        self.watches.insert(self.last_id, entry);
    }

    /// Takes in a watch and opens it at once.
    pub(crate) fn open(&mut self, watch: Opened) -> Result<(), Stuck> {
        self.add(watch);
        self.send_create(self.last_id)
    }

    /// A new stream: every watch goes on where it is.
    pub(crate) fn begin(&mut self, requests: mpsc::Sender<pb::WatchRequest>) {
        self.requests = Some(requests);
        (self.asked, self.ask_again, self.heard) = (None, false, Some(Instant::now()));
        self.questions.clear();
        let ids: Vec<i64> = self.watches.keys().copied().collect();
        for id in ids {
            if let Some(entry) = self.watches.get_mut(&id) {
                entry.created = None;
                entry.parts.clear();
            }
            // The queue was made with room for all of them.
            let _ = self.send_create(id);
        }
    }

    /// Lets go of watches that nobody reads any more.
    pub(crate) fn forget_closed(&mut self) {
        self.watches.retain(|_, entry| !entry.out.is_closed());
    }

    /// What etcd says.
    pub(crate) fn take(&mut self, message: pb::WatchResponse) -> Result<(), Stuck> {
        self.heard = Some(Instant::now());
        let revision = message.header.as_ref().map_or(0, |header| header.revision as u64);
        if message.watch_id == EVERY_WATCH {
            if message.canceled {
                // A watch that is refused has no id either, and says nothing about the others.
                tracing::warn!(why = message.cancel_reason, "etcd refuses a watch");
                return Ok(());
            }
            return self.progress(revision);
        }
        let id = message.watch_id;
        let Some(entry) = self.watches.get_mut(&id) else { return Ok(()) };
        if message.canceled {
            let error = if message.compact_revision > 0 {
                StoreError::Compacted { oldest: message.compact_revision as u64 }
            } else {
                StoreError::Unavailable(message.cancel_reason)
            };
            // A full queue ends the watch as well.
            let _ = entry.out.try_send(Err(error));
            self.watches.remove(&id);
            return Ok(());
        }
        if message.created {
            entry.created = Some((Instant::now(), revision));
            return Ok(());
        }
        let after = entry.after;
        let changes = message.events.into_iter().filter_map(change);
        entry.parts.extend(changes.filter(|change| change.revision > after));
        if message.fragment {
            return Ok(());
        }
        let changes = std::mem::take(&mut entry.parts);
        // Beside events the header may be ahead of them; alone it says how far the watch is.
        let reached = changes.last().map_or(revision, |change| change.revision);
        entry.after = entry.after.max(reached);
        match entry.out.try_send(Ok(Batch { changes, revision: entry.after })) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => {
                self.watches.remove(&id);
                self.send_cancel(id)
            }
        }
    }

    /// All watches that the stream knew when it was asked have seen everything up to `revision`.
    fn progress(&mut self, revision: u64) -> Result<(), Stuck> {
        self.asked = None;
        self.questions.pop_front();
        for entry in self.watches.values_mut() {
            let created = entry.created.filter(|_| entry.parts.is_empty());
            let Some((when, created)) = created else { continue };
            // An answer can be overtaken by the news that a watch was made after it: it says nothing
            // about that watch, which may have everything still to come.
            let foreign = entry.foreign_answers > 0 && when.elapsed() < OVERTAKEN_MAX;
            if revision <= created && foreign {
                entry.foreign_answers -= 1;
                continue;
            }
            entry.after = entry.after.max(revision);
            if entry.owed {
                let told = entry.out.try_send(Ok(Batch { changes: vec![], revision }));
                // Who has a full queue has other things to read first.
                entry.owed = told.is_err();
            }
        }
        if std::mem::take(&mut self.ask_again) { self.ask() } else { Ok(()) }
    }

    /// Somebody wants to know how far etcd is. One question at a time: its answer is for all.
    pub(crate) fn want_progress(&mut self) -> Result<(), Stuck> {
        if self.asked.is_some_and(|asked| asked.elapsed() < ASK_AGAIN_AFTER) {
            self.ask_again = true;
            return Ok(());
        }
        self.ask()
    }

    fn ask(&mut self) -> Result<(), Stuck> {
        for entry in self.watches.values_mut() {
            entry.owed |= entry.wanted.swap(false, Ordering::AcqRel);
        }
        self.asked.get_or_insert_with(Instant::now);
        self.questions.push_back(Instant::now());
        self.send(Request::Progress(pb::WatchProgressRequest {}))
    }

    /// Asks for a sign of life, and tells every watch how far it is.
    pub(crate) fn beat(&mut self) -> Result<(), Stuck> {
        let gone: Vec<i64> = self
            .watches
            .iter()
            .filter_map(|(id, entry)| entry.out.is_closed().then_some(*id))
            .collect();
        for id in gone {
            self.watches.remove(&id);
            self.send_cancel(id)?;
        }
        for entry in self.watches.values_mut() {
            entry.owed = true;
        }
        if self.watches.is_empty() { Ok(()) } else { self.ask() }
    }

    /// Whether etcd was asked and nothing at all has come since. It does not answer while a watch
    /// is catching up, but then there are events.
    pub(crate) fn is_stalled(&self) -> bool {
        let since = self.asked.max(self.heard);
        self.asked.is_some() && since.is_some_and(|since| since.elapsed() > SILENCE_MAX)
    }

    fn send_create(&mut self, id: i64) -> Result<(), Stuck> {
        // etcd leaves questions unanswered while a watch is catching up; those it won't come back to.
        self.questions.retain(|asked| asked.elapsed() < OVERTAKEN_MAX);
        let Some(entry) = self.watches.get_mut(&id) else { return Ok(()) };
        entry.foreign_answers = self.questions.len();
        let request = create(id, entry.key.clone(), entry.range_end.clone(), entry.after);
        self.send(request.request.expect("a request that was just made"))
    }

    fn send_cancel(&self, id: i64) -> Result<(), Stuck> {
        self.send(Request::Cancel(pb::WatchCancelRequest { watch_id: id }))
    }

    fn send(&self, request: Request) -> Result<(), Stuck> {
        let Some(requests) = &self.requests else { return Ok(()) };
        requests.try_send(pb::WatchRequest { request: Some(request) }).map_err(|_| Stuck)
    }
}

/// The id under which etcd tells all watches of a stream how far they are.
const EVERY_WATCH: i64 = -1;
/// After so long a question is put again: etcd leaves it unanswered while a watch is catching up.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(90);
/// By how much a message can be overtaken. etcd has both ready and sends them one after the other, in
/// any order.
const OVERTAKEN_MAX: Duration = Duration::from_millis(250);
/// A member that is silent for so long hangs, or is out of reach.
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(after: u64) -> (Opened, mpsc::Receiver<Result<Batch, StoreError>>) {
        let (out, batches) = mpsc::channel(8);
        let (key, range_end) = (Bytes::from_static(b"/b/"), Bytes::from_static(b"/b0"));
        let wanted = Arc::new(AtomicBool::new(true));
        (Opened { key, range_end, after, out, wanted }, batches)
    }

    fn message(watch_id: i64, revision: i64) -> pb::WatchResponse {
        let header = Some(pb::ResponseHeader { revision, ..Default::default() });
        pb::WatchResponse { header, watch_id, ..Default::default() }
    }

    fn created(watch_id: i64, revision: i64) -> pb::WatchResponse {
        pb::WatchResponse { created: true, ..message(watch_id, revision) }
    }

    fn event(watch_id: i64, revision: i64) -> pb::WatchResponse {
        let kv = pb::KeyValue {
            key: Bytes::from_static(b"/b/1"),
            mod_revision: revision,
            ..Default::default()
        };
        let events = vec![pb::Event { kv: Some(kv), ..Default::default() }];
        pb::WatchResponse { events, ..message(watch_id, revision) }
    }

    fn revisions(batches: &mut mpsc::Receiver<Result<Batch, StoreError>>) -> Vec<u64> {
        let batches = std::iter::from_fn(|| batches.try_recv().ok());
        batches.map(|batch| batch.expect("no error").revision).collect()
    }

    /// It was taken for an answer about the new watch, which then dropped what it had still to get.
    #[test]
    fn an_answer_to_an_older_question_says_nothing_about_a_new_watch() {
        for (answer, rest) in [(10, vec![5, 10]), (11, vec![11])] {
            let (requests, _queue) = mpsc::channel(64);
            let mut session = Session::default();
            session.begin(requests);
            let (first, _first_batches) = opened(0);
            session.open(first).unwrap();
            session.take(created(1, 10)).unwrap();
            session.want_progress().unwrap();
            let (late, mut batches) = opened(3);
            session.open(late).unwrap();
            session.take(created(2, 10)).unwrap();
            session.ask().unwrap();
            // The answer to the first question, or one that can only be to the second.
            session.take(message(EVERY_WATCH, answer)).unwrap();
            if answer == 10 {
                session.take(event(2, 5)).unwrap();
                session.take(message(EVERY_WATCH, 10)).unwrap();
            }
            assert_eq!(revisions(&mut batches), rest, "after an answer at {answer}");
        }
    }
}
