//! One watch, on a stream of its own.
//!
//! When the stream breaks, or its member falls silent, the watch opens another one on the next member
//! and goes on behind the last revision it has handed over: nothing is lost, nothing comes twice, and
//! who reads it does not even notice.
//!
//! Whoever reads the watch drives it. One who does not read fills his own window of the connection and
//! keeps nobody else waiting.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use store::{Batch, BoxFuture, StoreError, Watch};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::Streaming;

use crate::client::Client;
use crate::pb;
use crate::pb::watch_request::Request;
use crate::watch_state::WatchState;

pub(crate) struct EtcdWatch {
    client: Arc<Client>,
    key: Bytes,
    range_end: Bytes,
    state: WatchState,
    stream: StreamState,
    /// How long to wait before the next stream is opened, should this one break.
    backoff: Duration,
    /// How the watch ended, when there were changes to be handed over before.
    ended: Option<StoreError>,
    /// Turns true, or goes away, when the store is closed.
    closing: watch::Receiver<bool>,
}

enum StreamState {
    /// There is none; not before then.
    Down(Instant),
    /// Kept here, so that who stops waiting does not interrupt it.
    Connecting(BoxFuture<'static, (usize, Result<Box<OpenStream>, String>)>),
    Open(Box<OpenStream>),
}

struct OpenStream {
    member: usize,
    since: Instant,
    requests: mpsc::Sender<pb::WatchRequest>,
    messages: Streaming<pb::WatchResponse>,
    /// The member is silent and is asked by other ways whether it is there.
    probe: Option<BoxFuture<'static, bool>>,
}

impl EtcdWatch {
    /// The changes of a range of keys behind a revision.
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
            // There is room for one.
            let _ = requests.try_send(create);
            let member = client.current();
            let opened = client.watch(member, ReceiverStream::new(queue));
            let open = match timeout(OPEN_TIMEOUT, opened).await {
                Ok(Ok(messages)) => {
                    let since = Instant::now();
                    Ok(Box::new(OpenStream { member, since, requests, messages, probe: None }))
                }
                Ok(Err(status)) => Err(status.message().to_owned()),
                Err(_) => Err("it does not answer".to_owned()),
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

/// What a stream has come to.
enum StreamOutcome {
    Batch(Batch),
    /// The watch is over.
    Ended(StoreError),
    /// Nothing came for a while: the member may be gone.
    Silent,
    /// The stream is over, the watch is not.
    Broken(String),
}

/// Follows a stream until it has something to say. May be given open and called retry at any time.
async fn follow(open: &mut OpenStream, state: &mut WatchState) -> StreamOutcome {
    loop {
        if state.should_request_progress() {
            let question = Request::Progress(pb::WatchProgressRequest {});
            let question = pb::WatchRequest { request: Some(question) };
            if open.requests.try_send(question).is_err() {
                return StreamOutcome::Broken("its member takes no more requests".to_owned());
            }
        }
        if state.is_overdue() && open.probe.is_none() {
            return StreamOutcome::Silent;
        }
        let probing = open.probe.is_some();
        tokio::select! {
            message = open.messages.message() => match message {
                Ok(Some(message)) => {
                    open.probe = None;
                    match state.receive(message) {
                        Ok(Some(batch)) => return StreamOutcome::Batch(batch),
                        Ok(None) => {}
                        Err(error) => return StreamOutcome::Ended(error),
                    }
                }
                Ok(None) => return StreamOutcome::Broken("it has ended".to_owned()),
                Err(status) => return StreamOutcome::Broken(status.message().to_owned()),
            },
            there = async { open.probe.as_mut().expect("only polled if there is one").await }, if probing => {
                open.probe = None;
                if !there {
                    return StreamOutcome::Broken("its member is silent".to_owned());
                }
                state.mark_alive();
            }
            () = sleep_until(state.wake_at()) => {}
        }
    }
}

/// Adds what has come meanwhile: etcd sends a message for each write, and together they cost the cache
/// less.
fn coalesce(
    open: &mut OpenStream,
    state: &mut WatchState,
    batch: &mut Batch,
) -> Result<(), StoreError> {
    while batch.changes.len() < COALESCE_CHANGES_MAX {
        // That the stream has ended is found retry by who asks next.
        let Some(Ok(Some(message))) = open.messages.message().now_or_never() else { break };
        if let Some(more) = state.receive(message)? {
            batch.changes.extend(more.changes);
            batch.revision = more.revision;
        }
    }
    Ok(())
}

/// What is sent to open a watch.
fn create(key: Bytes, range_end: Bytes, after: u64) -> pb::WatchRequest {
    let create = pb::WatchCreateRequest {
        key,
        range_end,
        // Not one further: etcd would say how far it is only once it has come to that revision. And
        // where the last known one is compacted, a deletion behind it may be. What is known already is
        // dropped on arrival.
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
/// A stream that has lasted so long says nothing about the next one.
const STABLE_AFTER: Duration = Duration::from_secs(5);
/// Questions that wait to be sent. A stream that does not take them for so long is broken.
const REQUESTS_MAX: usize = 128;
