//! The newest revision of etcd. Every consistent read needs it, so concurrent reads share one
//! request.

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

/// More than the server admits at once; later callers wait until there is space in the queue.
const WAITING_MAX: usize = 4096;

/// Serves all waiting callers with one request to etcd. Invariant: the request is sent after the
/// last of them arrived, so that no result is older than the call it answers.
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
            // The caller may have been cancelled.
            let _ = reply.send(answer.clone());
        }
    }
}

/// Any key will do, whether it exists or not: only the header of the response is used.
const KEY: &[u8] = b"/registry/revision";
