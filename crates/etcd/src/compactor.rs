//! Compacts etcd, coordinated with the other apiservers of the same cluster.
//!
//! All of them, kube-apiservers included, coordinate through one key whose version counts the
//! compactions. The apiserver that finds the key unchanged since its last look increments it and
//! compacts to the revision that was the newest at that time; the others notice the change and wait
//! for another interval.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use store::StoreError;
use tokio::time::{Instant, sleep_until};

use crate::backend::CompactionState;
use crate::client::{Client, Retry, method};
use crate::error::store_error;
use crate::pb;
use crate::pb::compare::{Result as Is, Target, TargetUnion};
use crate::pb::request_op::Request;
use crate::pb::response_op::Response;

/// Compat: kube-apiserver's key, outside of every prefix.
const KEY: &[u8] = b"compact_rev_key";

/// How often to look what other apiservers have compacted: lists from memory must not outlive it.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Runs until it is aborted. The first compaction comes after two intervals. `compacted` learns how far
/// this server and others have compacted.
pub(crate) async fn run(client: Arc<Client>, every: Duration, compacted: Arc<AtomicU64>) {
    let mut known = CompactionState::default();
    let mut due = Instant::now() + every;
    loop {
        sleep_until(due.min(Instant::now() + LOOK_EVERY)).await;
        if Instant::now() < due {
            look(&client, &compacted).await;
            continue;
        }
        match step(&client, known, &compacted).await {
            Ok(next) => known = next,
            Err(error) => tracing::warn!(%error, "etcd could not be compacted"),
        }
        due = Instant::now() + every;
    }
}

/// Learns what others have compacted. A failure is no news; the next round reports it.
async fn look(client: &Client, compacted: &AtomicU64) {
    let get = pb::RangeRequest { key: Bytes::from_static(KEY), ..pb::RangeRequest::default() };
    let found = client.call::<_, pb::RangeResponse>(method::RANGE, get, Retry::Always).await;
    if let Some(found) = found.ok().and_then(|mut found| found.kvs.pop()) {
        learn(&found, compacted);
    }
}

/// The key's value is the revision that was compacted to.
fn learn(found: &pb::KeyValue, compacted: &AtomicU64) {
    let revision = std::str::from_utf8(&found.value).ok().and_then(|text| text.parse().ok());
    compacted.fetch_max(revision.unwrap_or(0), Ordering::Release);
}

/// One round: compacts if no other apiserver has since `known`.
pub(crate) async fn step(
    client: &Client,
    known: CompactionState,
    compacted: &AtomicU64,
) -> Result<CompactionState, StoreError> {
    let op = |request| vec![pb::RequestOp { request: Some(request) }];
    let put = pb::PutRequest {
        key: Bytes::from_static(KEY),
        value: known.revision.to_string().into(),
        lease: 0,
    };
    let get = pb::RangeRequest { key: Bytes::from_static(KEY), ..pb::RangeRequest::default() };
    let txn = pb::TxnRequest {
        compare: vec![pb::Compare {
            result: Is::Equal.into(),
            target: Target::Version.into(),
            key: Bytes::from_static(KEY),
            target_union: Some(TargetUnion::Version(known.time)),
        }],
        success: op(Request::Put(put)),
        failure: op(Request::Range(get)),
    };
    let answer = client.call(method::TXN, txn, Retry::IfUnsent).await;
    let answer: pb::TxnResponse = answer.map_err(|failed| store_error(&failed.status))?;
    let revision = answer.header.map_or(0, |header| header.revision as u64);
    if !answer.succeeded {
        let found = match answer.responses.first().and_then(|op| op.response.as_ref()) {
            Some(Response::Range(range)) => range.kvs.first(),
            _ => None,
        };
        if let Some(found) = found {
            learn(found, compacted);
        }
        let time = found.map_or(0, |found| found.version);
        return Ok(CompactionState { time, revision });
    }
    // In the first round no revision is old enough yet.
    if known.revision > 0 {
        compact(client, known.revision).await?;
        compacted.fetch_max(known.revision, Ordering::Release);
        tracing::debug!(revision = known.revision, "etcd is compacted");
    }
    Ok(CompactionState { time: known.time + 1, revision })
}

/// Compacts; a revision that is compacted already is not an error.
pub(crate) async fn compact(client: &Client, revision: u64) -> Result<(), StoreError> {
    let request = pb::CompactionRequest { revision: revision as i64 };
    let done = client.call::<_, pb::CompactionResponse>(method::COMPACT, request, Retry::Always);
    match done.await.map_err(|failed| store_error(&failed.status)) {
        Ok(_) | Err(StoreError::Compacted { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
