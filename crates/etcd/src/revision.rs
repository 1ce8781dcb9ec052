//! The newest revision of etcd. Every consistent read needs it, so concurrent reads share one
//! request.

use std::sync::Arc;

use background::Tasks;
use bytes::Bytes;
use store::{BoxFuture, StoreError};
use tokio::sync::{Mutex, mpsc, oneshot, watch};

use crate::client::{Client, Retry, method};
use crate::error::store_error;
use crate::pb;

type Reply = oneshot::Sender<Result<u64, StoreError>>;

pub(crate) struct Revisions {
    asked: mpsc::Sender<Reply>,
}

impl Revisions {
    /// The task ends when `closing` turns true or loses its sender.
    pub(crate) fn start(
        client: Arc<Client>,
        closing: watch::Receiver<bool>,
        tasks: &Tasks,
    ) -> Self {
        let ask: Arc<Ask> = Arc::new(move || {
            let client = Arc::clone(&client);
            Box::pin(async move { newest(&client).await })
        });
        Self::start_with(ask, closing, tasks)
    }

    fn start_with(ask: Arc<Ask>, closing: watch::Receiver<bool>, tasks: &Tasks) -> Self {
        let (asked, questions) = mpsc::channel(WAITING_MAX);
        // A task that is started again goes on with the callers that wait.
        let questions = Arc::new(Mutex::new(questions));
        tasks.restarting("etcd-revision", move || {
            let (ask, questions) = (Arc::clone(&ask), Arc::clone(&questions));
            let mut closing = closing.clone();
            async move {
                let mut questions = questions.lock().await;
                tokio::select! {
                    () = answer(&*ask, &mut questions) => {}
                    _ = closing.wait_for(|closing| *closing) => {}
                }
            }
        });
        Self { asked }
    }

    /// The newest revision; not older than the call.
    pub(crate) async fn now(&self) -> Result<u64, StoreError> {
        let unavailable = |why: &str| StoreError::Unavailable(why.to_owned());
        let (reply, answer) = oneshot::channel();
        let sent = self.asked.send(reply).await;
        sent.map_err(|_| unavailable("the store is closed"))?;
        answer.await.map_err(|_| unavailable("the request for the newest revision was lost"))?
    }
}

type Ask = dyn Fn() -> BoxFuture<'static, Result<u64, StoreError>> + Send + Sync;

/// More than the server admits at once; later callers wait until there is space in the queue.
const WAITING_MAX: usize = 4096;

/// Serves all waiting callers with one request to etcd. Invariant: the request is sent after the
/// last of them arrived, so that no result is older than the call it answers.
async fn answer(ask: &Ask, questions: &mut mpsc::Receiver<Reply>) {
    let mut waiting = Vec::new();
    while questions.recv_many(&mut waiting, WAITING_MAX).await > 0 {
        let answer = ask().await;
        for reply in waiting.drain(..) {
            // The caller may have been cancelled.
            let _ = reply.send(answer.clone());
        }
    }
}

async fn newest(client: &Client) -> Result<u64, StoreError> {
    let request = pb::RangeRequest {
        key: Bytes::from_static(KEY),
        count_only: true,
        ..pb::RangeRequest::default()
    };
    let asked = client.call::<_, pb::RangeResponse>(method::RANGE, request, Retry::Always);
    match asked.await {
        Ok(range) => Ok(range.header.map_or(0, |header| header.revision as u64)),
        Err(failed) => Err(store_error(&failed.status)),
    }
}

/// Any key will do, whether it exists or not: only the header of the response is used.
const KEY: &[u8] = b"/registry/revision";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn revisions_are_answered_again_after_a_panic_and_not_after_the_end() {
        let (tasks, closing) = (Tasks::default(), watch::Sender::new(false));
        let calls = AtomicU64::new(0);
        let ask: Arc<Ask> = Arc::new(move || {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                assert!(call > 0, "asked for");
                Ok(call)
            })
        });
        let revisions = Revisions::start_with(ask, closing.subscribe(), &tasks);
        revisions.now().await.expect_err("its question was lost with the task");
        assert_eq!(revisions.now().await.expect("the next one was not"), 1);
        assert_eq!((tasks.panics("etcd-revision"), tasks.running("etcd-revision")), (1, 1));
        closing.send_replace(true);
        while tasks.running("etcd-revision") > 0 {
            tokio::task::yield_now().await;
        }
        revisions.now().await.expect_err("the store is closed");
    }
}
