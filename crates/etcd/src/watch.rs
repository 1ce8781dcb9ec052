//! One watch, on a stream of its own.
//!
//! When the stream breaks, or its member stops responding, the watch opens another stream on the
//! next member and resumes after the last revision it has delivered: no event is lost or repeated,
//! and the reader does not notice.
//!
//! The reader polls the watch itself. A reader that is slow fills its own flow-control window of
//! the connection and does not block others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use store::{Batch, BoxFuture, StoreError, Watch};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::codec::Streaming;

use crate::client::{Client, method};
use crate::metrics::{self, CallType};
use crate::pb;
use crate::pb::watch_request::Request;
use crate::watch_state::WatchState;

pub(crate) struct EtcdWatch {
    client: Arc<Client>,
    key: Bytes,
    range_end: Bytes,
    state: WatchState,
    stream: StreamState,
    /// The delay before the next stream is opened, if this one breaks.
    backoff: Duration,
    /// The error that ended the watch while there were still changes to deliver.
    ended: Option<StoreError>,
    /// Turns true, or is dropped, when the store is closed.
    closing: watch::Receiver<bool>,
}

enum StreamState {
    /// There is no stream; the next one is opened at this time.
    Down(Instant),
    /// Kept here, so that a cancelled `next` does not interrupt it.
    Connecting(BoxFuture<'static, (usize, Result<Box<OpenStream>, String>)>),
    Open(Box<OpenStream>),
}

struct OpenStream {
    member: usize,
    since: Instant,
    requests: mpsc::Sender<pb::WatchRequest>,
    messages: Streaming<pb::WatchResponse>,
    /// The member has sent nothing for a while and is being probed by a unary call.
    probe: Option<BoxFuture<'static, bool>>,
}

impl EtcdWatch {
    /// The changes of a range of keys after a revision.
    pub(crate) fn new(
        client: Arc<Client>,
        closing: watch::Receiver<bool>,
        key: Bytes,
        range_end: Bytes,
        after: u64,
    ) -> Self {
        Self {
            client,
            key,
            range_end,
            state: WatchState::new(after),
            stream: StreamState::Down(Instant::now()),
            backoff: BACKOFF_MIN,
            ended: None,
            closing,
        }
    }

    async fn take(&mut self) -> Result<Batch, StoreError> {
        if let Some(error) = self.ended.take() {
            return Err(error);
        }
        loop {
            match &mut self.stream {
                StreamState::Down(until) => {
                    sleep_until(*until).await;
                    self.state.reconnect();
                    self.stream = StreamState::Connecting(self.connect());
                }
                StreamState::Connecting(connecting) => match connecting.await {
                    (_, Ok(open)) => self.stream = StreamState::Open(open),
                    (member, Err(why)) => self.broken(member, &why),
                },
                StreamState::Open(open) => match follow(open, &mut self.state).await {
                    StreamOutcome::Batch(mut batch) => {
                        self.ended = coalesce(open, &mut self.state, &mut batch).err();
                        return Ok(batch);
                    }
                    StreamOutcome::Ended(error) => return Err(error),
                    StreamOutcome::Silent => {
                        let (client, member) = (Arc::clone(&self.client), open.member);
                        open.probe =
                            Some(Box::pin(async move { client.is_reachable(member).await }));
                    }
                    StreamOutcome::Broken(why) => {
                        let (member, stable) = (open.member, open.since.elapsed() > STABLE_AFTER);
                        if stable {
                            self.backoff = BACKOFF_MIN;
                        }
                        self.broken(member, &why);
                    }
                },
            }
        }
    }

    fn connect(&self) -> BoxFuture<'static, (usize, Result<Box<OpenStream>, String>)> {
        let client = Arc::clone(&self.client);
        let create = create(self.key.clone(), self.range_end.clone(), self.state.after);
        Box::pin(async move {
            let (requests, queue) = mpsc::channel(REQUESTS_MAX);
            // The channel is new and has capacity.
            let _ = requests.try_send(create);
            metrics::sent(method::WATCH, CallType::BidiStream);
            let member = client.current();
            let opened = client.watch(member, ReceiverStream::new(queue));
            let open = match timeout(OPEN_TIMEOUT, opened).await {
                Ok(Ok(messages)) => {
                    let since = Instant::now();
                    Ok(Box::new(OpenStream { member, since, requests, messages, probe: None }))
                }
                Ok(Err(status)) => Err(status.message().to_owned()),
                Err(_) => Err("timed out".to_owned()),
            };
            (member, open)
        })
    }

    fn broken(&mut self, member: usize, why: &str) {
        self.client.watch_failed(member, why);
        self.stream = StreamState::Down(Instant::now() + self.backoff);
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }
}

impl Watch for EtcdWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        let mut closing = self.closing.clone();
        Box::pin(async move {
            tokio::select! {
                biased;
                _ = closing.wait_for(|closed| *closed) => {
                    Err(StoreError::Unavailable("the store is closed".to_owned()))
                }
                batch = self.take() => batch,
            }
        })
    }

    fn request_progress(&mut self) {
        self.state.request_progress();
    }
}

/// What became of polling a stream.
enum StreamOutcome {
    Batch(Batch),
    /// The watch is over.
    Ended(StoreError),
    /// No message for a while: the member may be down.
    Silent,
    /// The stream is over, the watch is not.
    Broken(String),
}

/// Reads a stream until there is something to report. Cancel-safe.
async fn follow(open: &mut OpenStream, state: &mut WatchState) -> StreamOutcome {
    loop {
        if state.should_request_progress() {
            let question = Request::Progress(pb::WatchProgressRequest {});
            let question = pb::WatchRequest { request: Some(question) };
            if open.requests.try_send(question).is_err() {
                return StreamOutcome::Broken("the member takes no more requests".to_owned());
            }
            metrics::sent(method::WATCH, CallType::BidiStream);
        }
        if state.is_overdue() && open.probe.is_none() {
            return StreamOutcome::Silent;
        }
        let probing = open.probe.is_some();
        tokio::select! {
            message = open.messages.message() => match message {
                Ok(Some(message)) => {
                    metrics::received(method::WATCH, CallType::BidiStream);
                    open.probe = None;
                    match state.receive(message) {
                        Ok(Some(batch)) => return StreamOutcome::Batch(batch),
                        Ok(None) => {}
                        Err(error) => return StreamOutcome::Ended(error),
                    }
                }
                Ok(None) => {
                    metrics::handled(method::WATCH, CallType::BidiStream, Code::Ok);
                    return StreamOutcome::Broken("the stream ended".to_owned());
                }
                Err(status) => {
                    metrics::handled(method::WATCH, CallType::BidiStream, status.code());
                    return StreamOutcome::Broken(status.message().to_owned());
                }
            },
            there = async { open.probe.as_mut().expect("only polled if there is one").await }, if probing => {
                open.probe = None;
                if !there {
                    return StreamOutcome::Broken("the member does not respond".to_owned());
                }
                state.mark_alive();
            }
            () = sleep_until(state.wake_at()) => {}
        }
    }
}

/// Adds the messages that have arrived meanwhile: etcd sends one for each write, and a larger batch
/// costs the cache less.
fn coalesce(
    open: &mut OpenStream,
    state: &mut WatchState,
    batch: &mut Batch,
) -> Result<(), StoreError> {
    while batch.changes.len() < COALESCE_CHANGES_MAX {
        // The end of the stream is found again by the next poll.
        let Some(Ok(Some(message))) = open.messages.message().now_or_never() else { break };
        metrics::received(method::WATCH, CallType::BidiStream);
        if let Some(more) = state.receive(message)? {
            batch.changes.extend(more.changes);
            batch.revision = more.revision;
        }
    }
    Ok(())
}

/// The request that creates a watch.
fn create(key: Bytes, range_end: Bytes, after: u64) -> pb::WatchRequest {
    let create = pb::WatchCreateRequest {
        key,
        range_end,
        // Not `after + 1`: etcd would report progress only once it has reached that revision, and
        // if `after` is compacted, a deletion after it may be as well. Events that are known
        // already are dropped on arrival.
        start_revision: after.max(1) as i64,
        progress_notify: true,
        watch_id: 1,
        fragment: true,
    };
    pb::WatchRequest { request: Some(Request::Create(create)) }
}

const COALESCE_CHANGES_MAX: usize = 256;
const OPEN_TIMEOUT: Duration = Duration::from_secs(4);
const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// After this time the backoff starts again from its minimum.
const STABLE_AFTER: Duration = Duration::from_secs(5);
/// Progress requests that wait to be sent. A stream that does not take them is broken.
const REQUESTS_MAX: usize = 128;
