//! How far is etcd? Every consistent read asks, so those that ask at the same time share an answer.

use std::sync::Arc;

use bytes::Bytes;
use store::StoreError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::client::{Client, Retry, method};
use crate::error::store_error;
use crate::pb;

type Reply = oneshot::Sender<Result<u64, StoreError>>;

pub(crate) struct Revisions {
    asked: mpsc::Sender<Reply>,
    task: JoinHandle<()>,
}

impl Revisions {
    pub(crate) fn start(client: Arc<Client>) -> Self {
        let (asked, questions) = mpsc::channel(WAITING_MAX);
        Self { asked, task: tokio::spawn(answer(client, questions)) }
    }

    /// The newest revision; not older than the call.
    pub(crate) async fn now(&self) -> Result<u64, StoreError> {
        let closed = || StoreError::Unavailable("the store is closed".to_owned());
        let (reply, answer) = oneshot::channel();
        self.asked.send(reply).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    pub(crate) fn close(&self) {
        self.task.abort();
    }
}

/// More than the server lets in at once; whoever comes later waits for room.
const WAITING_MAX: usize = 4096;

/// Answers all that wait with one question to etcd. Invariant: it is put after the last of them
/// came, so that no answer is older than its question.
async fn answer(client: Arc<Client>, mut questions: mpsc::Receiver<Reply>) {
    let mut waiting = Vec::new();
    while questions.recv_many(&mut waiting, WAITING_MAX).await > 0 {
        let request = pb::RangeRequest {
            key: Bytes::from_static(KEY),
            count_only: true,
            ..pb::RangeRequest::default()
        };
        let asked = client.call::<_, pb::RangeResponse>(method::RANGE, request, Retry::Always);
        let answer = match asked.await {
            Ok(range) => Ok(range.header.map_or(0, |header| header.revision as u64)),
            Err(failed) => Err(store_error(&failed.status)),
        };
        for reply in waiting.drain(..) {
            // Who has gone away needs no answer.
            let _ = reply.send(answer.clone());
        }
    }
}

/// Any key will do, there or not: the answer's header is what counts.
const KEY: &[u8] = b"/registry/revision";
