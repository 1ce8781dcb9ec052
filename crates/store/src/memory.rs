//! An in-memory backend: the model that the others are compared with, and the store of unit tests.
//! One lock and simple data structures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use meta::Str;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    Backend, Batch, BoxFuture, Change, KeyValue, Range, RangeResult, StoreError, Watch,
    WatchStream, Write,
};

/// A store that lives as long as its last reference.
#[derive(Clone, Default)]
pub struct MemoryBackend {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    revision: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// Every write since the last compaction and, for each key, the last one before.
    log: Vec<Record>,
    compacted: u64,
    revision: u64,
    now_ms: u64,
    /// While set, every call fails with it.
    failing: Option<StoreError>,
}

#[derive(Clone)]
struct Record {
    change: Change,
    expires_ms: Option<u64>,
}

impl Default for Shared {
    fn default() -> Self {
        // etcd starts at 1 as well: 0 is "no revision" everywhere.
        let state = State { revision: 1, compacted: 1, ..State::default() };
        Self { state: Mutex::new(state), revision: watch::Sender::new(1) }
    }
}

impl MemoryBackend {
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances the clock: keys whose TTL has passed are deleted.
    pub fn advance(&self, time: Duration) {
        let mut state = self.shared.state.lock();
        state.now_ms += time.as_millis() as u64;
        let now = state.now_ms;
        let due = |record: &&Record| record.expires_ms.is_some_and(|at| at <= now);
        let gone: Vec<Str> =
            state.live(state.revision).values().copied().filter(due).map(Record::key).collect();
        for key in gone {
            // The key existed a moment ago under the same lock, so deleting it cannot conflict.
            let _ = state.write(&Write::delete(key, crate::Expect::Any));
        }
        self.shared.revision.send_replace(state.revision);
    }

    /// Makes every call fail (`None`: succeed again). Watches in progress end with the error.
    pub fn fail(&self, error: Option<StoreError>) {
        self.shared.state.lock().failing = error;
        self.shared.revision.send_modify(|_| {});
    }
}

impl State {
    fn check(&self) -> Result<(), StoreError> {
        self.failing.clone().map_or(Ok(()), Err)
    }

    /// The keys that exist at a revision.
    fn live(&self, revision: u64) -> BTreeMap<&Str, &Record> {
        let mut live = BTreeMap::new();
        for record in self.log.iter().take_while(|record| record.change.revision <= revision) {
            match record.change.value {
                Some(_) => live.insert(&record.change.key, record),
                None => live.remove(&record.change.key),
            };
        }
        live
    }

    fn current(&self, key: &str) -> Option<&Record> {
        let newest = self.log.iter().rev().find(|record| record.change.key == key)?;
        newest.change.value.is_some().then_some(newest)
    }

    fn range(&self, range: &Range) -> Result<RangeResult, StoreError> {
        let revision = range.revision.unwrap_or(self.revision);
        if revision < self.compacted {
            return Err(StoreError::Compacted { oldest: self.compacted });
        }
        if revision > self.revision {
            return Err(StoreError::Future { asked: revision, current: self.revision });
        }
        let live = self.live(revision);
        let wanted = |key: &Str| {
            key.starts_with(range.prefix.as_str())
                && range.after.as_ref().is_none_or(|after| key > after)
        };
        let mut items: Vec<_> = live
            .into_iter()
            .filter(|(key, _)| wanted(key))
            .map(|(_, record)| record.key_value())
            .collect();
        let total = items.len();
        if range.limit > 0 {
            items.truncate(range.limit);
        }
        let remaining = (total - items.len()) as u64;
        Ok(RangeResult { items, revision, more: remaining > 0, remaining })
    }

    fn write(&mut self, write: &Write) -> Result<u64, StoreError> {
        write.check_size()?;
        let current = self.current(&write.key);
        let at = current.map(|record| record.change.revision);
        if !write.expect.holds(at) || (write.value.is_none() && current.is_none()) {
            return Err(StoreError::Conflict { current: current.map(Record::key_value) });
        }
        let revision = self.revision + 1;
        let change = Change {
            key: write.key.clone(),
            revision,
            create_revision: current.map_or(revision, |record| record.change.create_revision),
            value: write.value.clone(),
            problem: None,
        };
        let expires_ms = write.ttl.map(|ttl| self.now_ms + ttl.as_millis() as u64);
        self.log.push(Record { change, expires_ms });
        self.revision = revision;
        Ok(revision)
    }

    fn compact(&mut self, revision: u64) -> Result<(), StoreError> {
        if revision > self.revision {
            return Err(StoreError::Future { asked: revision, current: self.revision });
        }
        let live = self.live(revision);
        let kept: Vec<u64> = live.values().map(|record| record.change.revision).collect();
        self.log.retain(|record| {
            record.change.revision > revision || kept.contains(&record.change.revision)
        });
        self.compacted = self.compacted.max(revision);
        Ok(())
    }

    fn changes(&self, prefix: &str, after: u64) -> Result<Batch, StoreError> {
        self.check()?;
        if after < self.compacted {
            return Err(StoreError::Compacted { oldest: self.compacted });
        }
        let changes = self.log.iter().map(|record| &record.change);
        let changes = changes.filter(|change| change.revision > after);
        let changes = changes.filter(|change| change.key.starts_with(prefix)).cloned().collect();
        Ok(Batch { changes, revision: self.revision.max(after) })
    }
}

impl Record {
    fn key(&self) -> Str {
        self.change.key.clone()
    }

    fn key_value(&self) -> KeyValue {
        KeyValue {
            key: self.key(),
            value: self.change.value.clone().unwrap_or_default(),
            create_revision: self.change.create_revision,
            mod_revision: self.change.revision,
            expires_ms: self.expires_ms,
            problem: None,
        }
    }
}

impl Backend for MemoryBackend {
    fn oldest_revision(&self) -> u64 {
        self.shared.state.lock().compacted
    }

    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<KeyValue>, StoreError>> {
        let state = self.shared.state.lock();
        let found = state.check().map(|()| state.current(key).map(Record::key_value));
        Box::pin(async { found })
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, StoreError>> {
        let state = self.shared.state.lock();
        let found = state.check().and_then(|()| state.range(&range));
        Box::pin(async { found })
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(async move {
            let mut state = self.shared.state.lock();
            state.check()?;
            let revision = state.write(&write)?;
            self.shared.revision.send_replace(revision);
            Ok(revision)
        })
    }

    fn revision(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        let state = self.shared.state.lock();
        let revision = state.check().map(|()| state.revision);
        Box::pin(async move { revision })
    }

    fn compact(&self, revision: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.shared.state.lock().compact(revision) })
    }

    fn watch(&self, prefix: &str, after: u64) -> BoxFuture<'_, Result<WatchStream, StoreError>> {
        let (prefix, after) = (Str::new(prefix), after.max(1));
        Box::pin(async move {
            self.shared.state.lock().changes(&prefix, after)?;
            let mut revision = self.shared.revision.subscribe();
            revision.mark_changed();
            Ok(Box::new(MemoryWatch { shared: Arc::clone(&self.shared), prefix, after, revision })
                as WatchStream)
        })
    }
}

struct MemoryWatch {
    shared: Arc<Shared>,
    prefix: Str,
    after: u64,
    revision: watch::Receiver<u64>,
}

impl Watch for MemoryWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        Box::pin(async move {
            // The sender is in `shared`, so it outlives this wait.
            let _ = self.revision.changed().await;
            let batch = self.shared.state.lock().changes(&self.prefix, self.after)?;
            self.after = batch.revision;
            Ok(batch)
        })
    }

    fn request_progress(&mut self) {
        self.revision.mark_changed();
    }
}
