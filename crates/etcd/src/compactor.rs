//! Compacts etcd, coordinated with the other apiservers of the same cluster.
//!
//! All of them, kube-apiservers included, coordinate through one key whose version counts the
//! compactions. The apiserver that finds the key unchanged since its last look increments it and
//! compacts to the revision that was the newest at that time; the others notice the change and wait
//! for another interval.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::StoreError;
use tokio::time::sleep;

use crate::backend::CompactionState;
use crate::client::{Client, Retry, method};
use crate::error::store_error;
use crate::pb;
use crate::pb::compare::{Result as Is, Target, TargetUnion};
use crate::pb::request_op::Request;
use crate::pb::response_op::Response;

/// Compat: kube-apiserver's key, outside of every prefix.
const KEY: &[u8] = b"compact_rev_key";

/// Runs until it is aborted. The first compaction comes after two intervals.
pub(crate) async fn run(client: Arc<Client>, every: Duration) {
    let mut known = CompactionState::default();
    loop {
        sleep(every).await;
        match step(&client, known).await {
            Ok(next) => known = next,
            Err(error) => tracing::warn!(%error, "etcd could not be compacted"),
        }
    }
}

/// One round: compacts if no other apiserver has since `known`.
pub(crate) async fn step(
    client: &Client,
    known: CompactionState,
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
        let time = match answer.responses.first().and_then(|op| op.response.as_ref()) {
            Some(Response::Range(range)) => range.kvs.first().map_or(0, |found| found.version),
            _ => 0,
        };
        return Ok(CompactionState { time, revision });
    }
    // In the first round no revision is old enough yet.
    if known.revision > 0 {
        compact(client, known.revision).await?;
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
