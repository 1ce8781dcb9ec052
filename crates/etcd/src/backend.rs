//! [`store::Backend`] on an etcd cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use background::Tasks;
use bytes::Bytes;
use meta::Str;
use prost::Message as _;
use store::{
    Backend, BoxFuture, Expect, KeyValue, Range, RangeResult, StoreError, Watch as _, WatchStream,
    Write,
};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::client::{CallError, Client, Retry, Status, method};
use crate::error::{is_lease_lost, store_error};
use crate::lease::Leases;
use crate::pb::compare::{Result as Is, Target, TargetUnion};
use crate::pb::request_op::Request;
use crate::pb::response_op::Response;
use crate::revision::Revisions;
use crate::watch::EtcdWatch;
use crate::{Options, compactor, pb};

/// An etcd cluster as a backend. Cheap to share; its background tasks end when it is closed or
/// dropped.
pub struct Etcd {
    client: Arc<Client>,
    leases: Leases,
    revisions: Revisions,
    /// Ends all watches and background tasks when it turns true or is dropped.
    closing: watch::Sender<bool>,
    /// The revision of the last compaction that this server knows of.
    compacted: Arc<AtomicU64>,
}

impl Etcd {
    /// Prepares the connections, which are opened by the first call. Needs a Tokio runtime.
    pub fn new(options: &Options, tasks: &Tasks) -> Result<Self, String> {
        let client = Arc::new(Client::new(options)?);
        let closing = watch::Sender::new(false);
        let compacted = Arc::<AtomicU64>::default();
        if let Some(every) = options.compact_every {
            let (client, closing) = (Arc::clone(&client), closing.subscribe());
            let compacted = Arc::clone(&compacted);
            tasks.restarting("etcd-compaction", move || {
                let (client, mut closing) = (Arc::clone(&client), closing.clone());
                let compacted = Arc::clone(&compacted);
                async move {
                    tokio::select! {
                        () = compactor::run(client, every, compacted) => {}
                        _ = closing.wait_for(|closing| *closing) => {}
                    }
                }
            });
        }
        Ok(Self {
            leases: Leases::new(options.lease_reuse_seconds),
            revisions: Revisions::start(Arc::clone(&client), closing.subscribe(), tasks),
            closing,
            client,
            compacted,
        })
    }

    /// The status of each member, by its URL.
    pub async fn statuses(&self) -> Vec<(String, Result<Status, StoreError>)> {
        self.client.statuses().await
    }

    /// Transfers leadership to another member.
    pub async fn move_leader(&self, member: u64) -> Result<(), StoreError> {
        self.client.move_leader(member).await
    }

    /// One step of the compaction that the apiservers of an etcd cluster share; for tests.
    pub async fn compact_step(
        &self,
        known: CompactionState,
    ) -> Result<CompactionState, StoreError> {
        compactor::step(&self.client, known, &self.compacted).await
    }

    /// Ends all watches and background tasks.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    async fn read(&self, request: pb::RangeRequest) -> Result<pb::RangeResponse, StoreError> {
        let answer = self.client.call(method::RANGE, request, Retry::Always).await;
        answer.map_err(|failed| store_error(&failed.status))
    }

    fn watch_range(&self, start: Bytes, end: Bytes, after: u64) -> EtcdWatch {
        EtcdWatch::new(Arc::clone(&self.client), self.closing.subscribe(), start, end, after)
    }

    /// The oldest revision that can be read. etcd reports it only to a watch that starts before it.
    async fn find_compacted(&self) -> Result<u64, StoreError> {
        let (start, end) = (Bytes::from_static(b"\0"), Bytes::from_static(b"\0\0"));
        let mut watch = self.watch_range(start, end, 0);
        let answer = async {
            loop {
                match watch.next().await {
                    Err(StoreError::Compacted { oldest }) => return Ok(oldest),
                    Err(error) => return Err(error),
                    Ok(_) => {}
                }
            }
        };
        let late = StoreError::Unavailable("etcdserver: request timed out".to_owned());
        timeout(COMPACTED_TIMEOUT, answer).await.unwrap_or(Err(late))
    }

    /// Adds the revisions that etcd leaves out of its errors.
    async fn with_numbers(&self, error: StoreError, asked: u64) -> StoreError {
        match error {
            StoreError::Compacted { .. } => match self.find_compacted().await {
                Ok(oldest) => StoreError::Compacted { oldest },
                Err(other) => other,
            },
            StoreError::Future { .. } => match self.revisions.now().await {
                Ok(current) => StoreError::Future { asked, current },
                Err(other) => other,
            },
            other => other,
        }
    }

    /// Reads a range in pages, so that neither side holds all of it twice.
    async fn read_range(&self, range: Range) -> Result<RangeResult, StoreError> {
        if range.revision == Some(0) {
            // etcd takes revision 0 for the newest.
            return Err(StoreError::Compacted { oldest: 1 });
        }
        let mut items = Vec::new();
        let mut page_keys = PAGE_FIRST;
        let mut request = pb::RangeRequest {
            key: match &range.after {
                Some(after) if **after >= *range.prefix => behind(after.as_bytes()),
                _ => start_of(&range.prefix),
            },
            range_end: end_of(&range.prefix),
            revision: range.revision.unwrap_or(0) as i64,
            ..pb::RangeRequest::default()
        };
        loop {
            let left = match range.limit {
                0 => usize::MAX,
                limit => limit - items.len(),
            };
            request.limit = page_keys.min(left) as i64;
            let page = match self.read(request.clone()).await {
                Ok(page) => page,
                Err(error) => return Err(self.with_numbers(error, request.revision as u64).await),
            };
            if request.revision == 0 {
                // The following pages are read at the same revision.
                request.revision = page.header.as_ref().map_or(0, |header| header.revision);
            }
            let (keys, bytes) = (page.kvs.len(), page.encoded_len());
            let remaining = (page.count as u64).saturating_sub(keys as u64);
            if let Some(last) = page.kvs.last() {
                request.key = behind(&last.key);
            }
            items.extend(page.kvs.into_iter().filter_map(key_value));
            if keys == 0 || remaining == 0 || (range.limit > 0 && items.len() >= range.limit) {
                let revision = request.revision as u64;
                return Ok(RangeResult { items, revision, more: remaining > 0, remaining });
            }
            page_keys = (keys * PAGE_BYTES / bytes.max(1)).clamp(PAGE_MIN, PAGE_MAX);
        }
    }

    async fn commit(&self, write: &Write) -> Result<u64, StoreError> {
        let mut retried = false;
        loop {
            let lease = match (&write.value, write.ttl) {
                (Some(_), Some(ttl)) => self.leases.get(&self.client, ttl).await?,
                _ => 0,
            };
            let txn = transaction(write, lease);
            if txn.encoded_len() > SEND_BYTES_MAX {
                return Err(StoreError::TooLarge { bytes: txn.encoded_len() });
            }
            let done = self.client.call(method::TXN, txn.clone(), Retry::IfUnsent).await;
            return match done {
                Ok(answer) => outcome(answer),
                Err(failed) if lease != 0 && is_lease_lost(&failed.status) && !retried => {
                    self.leases.forget(lease).await;
                    retried = true;
                    continue;
                }
                Err(failed) if failed.outcome_unknown => {
                    self.resolve_unknown_outcome(write, txn, &failed).await
                }
                Err(failed) => Err(store_error(&failed.status)),
            };
        }
    }

    /// The outcome of the write is unknown. If its value is stored, it took effect. To learn that
    /// it did not, the write has to be retried, which is only done where that is harmless.
    async fn resolve_unknown_outcome(
        &self,
        write: &Write,
        txn: pb::TxnRequest,
        failed: &CallError,
    ) -> Result<u64, StoreError> {
        let unknown = || store_error(&failed.status);
        let Some(value) = write.value.as_ref().filter(|_| write.expect != Expect::Any) else {
            return Err(unknown());
        };
        let found = if takes_effect_once(&write.expect) {
            match self.client.call(method::TXN, txn, Retry::Always).await.map(outcome) {
                Ok(Err(StoreError::Conflict { current })) => current,
                Ok(done) => return done,
                Err(_) => return Err(unknown()),
            }
        } else {
            self.get(&write.key).await.map_err(|_| unknown())?
        };
        match found {
            Some(found) if found.value == *value => Ok(found.mod_revision),
            // The value may have been overwritten or deleted since, so a conflict would be wrong.
            _ => Err(unknown()),
        }
    }
}

/// Whether the write can be retried without taking effect twice. A create cannot: if another client
/// deleted the object in between, the retry would bring it back.
fn takes_effect_once(expect: &Expect) -> bool {
    match expect {
        Expect::At(_) => true,
        Expect::Absent | Expect::Any => false,
    }
}

/// Keys in the first page, while the size of the objects is unknown.
const PAGE_FIRST: usize = 500;
const PAGE_MIN: usize = 10;
const PAGE_MAX: usize = 10_000;
/// The size of a page to aim for.
const PAGE_BYTES: usize = 8 << 20;
const COMPACTED_TIMEOUT: Duration = Duration::from_secs(5);
/// Compat: the request limit of kube-apiserver's etcd client, whatever etcd would accept.
const SEND_BYTES_MAX: usize = 2 << 20;

impl Drop for Etcd {
    fn drop(&mut self) {
        self.close();
    }
}

impl Backend for Etcd {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<KeyValue>, StoreError>> {
        let key = Bytes::copy_from_slice(key.as_bytes());
        Box::pin(async move {
            let request = pb::RangeRequest { key, ..pb::RangeRequest::default() };
            Ok(self.read(request).await?.kvs.pop().and_then(key_value))
        })
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, StoreError>> {
        Box::pin(self.read_range(range))
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(async move {
            // A delete of a key that must be absent cannot succeed, so no transaction is sent.
            let impossible = match write.expect {
                Expect::Absent => write.value.is_none(),
                Expect::At(revision) => revision == 0,
                Expect::Any => false,
            };
            if impossible {
                let current = self.get(&write.key).await?;
                return Err(StoreError::Conflict { current });
            }
            self.commit(&write).await
        })
    }

    fn revision(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(self.revisions.now())
    }

    fn compact(&self, revision: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            match compactor::compact(&self.client, revision).await {
                Err(error) => Err(self.with_numbers(error, revision).await),
                Ok(()) => {
                    self.compacted.fetch_max(revision, Ordering::Release);
                    Ok(())
                }
            }
        })
    }

    fn oldest_revision(&self) -> u64 {
        self.compacted.load(Ordering::Acquire)
    }

    fn watch(&self, prefix: &str, after: u64) -> BoxFuture<'_, Result<WatchStream, StoreError>> {
        let prefix = Str::new(prefix);
        Box::pin(async move {
            // etcd accepts the watch and cancels it later; the caller gets the error at once.
            let probe = pb::RangeRequest {
                key: start_of(&prefix),
                revision: after as i64,
                count_only: true,
                ..pb::RangeRequest::default()
            };
            match self.read(probe).await {
                Ok(_) | Err(StoreError::Future { .. }) => {}
                Err(error) => return Err(self.with_numbers(error, after).await),
            }
            let (start, end) = (start_of(&prefix), end_of(&prefix));
            Ok(Box::new(self.watch_range(start, end, after)) as WatchStream)
        })
    }
}

/// What a [`compactor`] knows: how often the apiservers have compacted, and the revision at that
/// time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionState {
    /// The version of `compact_rev_key`, by which the apiservers coordinate.
    pub time: i64,
    /// The newest revision when the key was read: the next compaction goes up to here.
    pub revision: u64,
}

/// The compare-and-swap of a write. If the comparison fails, the current value is read.
fn transaction(write: &Write, lease: i64) -> pb::TxnRequest {
    let key = Bytes::copy_from_slice(write.key.as_bytes());
    let compare = |result: Is, target: Target, value: TargetUnion| pb::Compare {
        result: result.into(),
        target: target.into(),
        key: key.clone(),
        target_union: Some(value),
    };
    let at = |revision| compare(Is::Equal, Target::Mod, TargetUnion::ModRevision(revision));
    let compare = match (write.expect, &write.value) {
        (Expect::Absent, _) => vec![at(0)],
        (Expect::At(revision), _) => vec![at(revision as i64)],
        (Expect::Any, Some(_)) => Vec::new(),
        // A delete succeeds only if the key exists.
        (Expect::Any, None) => vec![compare(Is::Greater, Target::Version, TargetUnion::Version(0))],
    };
    let success = match &write.value {
        Some(value) => {
            Request::Put(pb::PutRequest { key: key.clone(), value: value.clone(), lease })
        }
        None => Request::DeleteRange(pb::DeleteRangeRequest { key: key.clone() }),
    };
    let failure = Request::Range(pb::RangeRequest { key, ..pb::RangeRequest::default() });
    let op = |request| vec![pb::RequestOp { request: Some(request) }];
    pb::TxnRequest { compare, success: op(success), failure: op(failure) }
}

fn outcome(answer: pb::TxnResponse) -> Result<u64, StoreError> {
    if answer.succeeded {
        return Ok(answer.header.map_or(0, |header| header.revision as u64));
    }
    let current = match answer.responses.into_iter().next().and_then(|op| op.response) {
        Some(Response::Range(mut range)) => range.kvs.pop().and_then(key_value),
        _ => None,
    };
    Err(StoreError::Conflict { current })
}

/// Kubernetes keys are UTF-8; other keys do not belong to an apiserver.
pub(crate) fn key_value(found: pb::KeyValue) -> Option<KeyValue> {
    Some(KeyValue {
        key: Str::new(std::str::from_utf8(&found.key).ok()?),
        value: found.value,
        create_revision: found.create_revision as u64,
        mod_revision: found.mod_revision as u64,
        expires_ms: None,
        problem: None,
    })
}

/// The first key of a prefix; etcd has no empty key.
fn start_of(prefix: &str) -> Bytes {
    if prefix.is_empty() { Bytes::from_static(b"\0") } else { prefix.to_owned().into() }
}

/// The first key after another one.
fn behind(key: &[u8]) -> Bytes {
    [key, b"\0"].concat().into()
}

/// The first key after all keys of a prefix (`range_end`).
fn end_of(prefix: &str) -> Bytes {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.last_mut() {
        if *last < 0xff {
            *last += 1;
            return end.into();
        }
        end.pop();
    }
    // etcd's `range_end` for "all following keys".
    Bytes::from_static(b"\0")
}

/// A TTL in whole seconds, which is what etcd counts in.
pub(crate) fn seconds(ttl: Duration) -> i64 {
    ttl.as_secs().max(1).try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_ends_before_the_next_sibling() {
        let cases: [(&str, &[u8]); 4] = [
            ("/registry/pods/", b"/registry/pods0"),
            ("/", b"0"),
            ("", b"\0"),
            ("a\u{7f}", b"a\x80"),
        ];
        for (prefix, end) in cases {
            assert_eq!(end_of(prefix), end, "{prefix}");
        }
    }
}
