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
use crate::watch_state::Session;

pub(crate) struct EtcdWatch {
    client: Arc<Client>,
    key: Bytes,
    range_end: Bytes,
    session: Session,
    link: Link,
    /// How long to wait before the next stream is opened, should this one break.
    pause: Duration,
    /// How the watch ended, when there were changes to be handed over before.
    ended: Option<StoreError>,
    /// Turns true, or goes away, when the store is closed.
    closing: watch::Receiver<bool>,
}

enum Link {
    /// There is none; not before then.
    Down(Instant),
    /// Kept here, so that who stops waiting does not interrupt it.
    Opening(BoxFuture<'static, (usize, Result<Box<Up>, String>)>),
    Up(Box<Up>),
}

struct Up {
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
            session: Session::new(after),
            link: Link::Down(Instant::now()),
            pause: PAUSE_MIN,
            ended: None,
            closing,
        }
    }

    async fn take(&mut self) -> Result<Batch, StoreError> {
        if let Some(error) = self.ended.take() {
            return Err(error);
        }
        loop {
            match &mut self.link {
                Link::Down(until) => {
                    sleep_until(*until).await;
                    self.session.begin();
                    self.link = Link::Opening(self.open());
                }
                Link::Opening(opening) => match opening.await {
                    (_, Ok(up)) => self.link = Link::Up(up),
                    (member, Err(why)) => self.broken(member, &why),
                },
                Link::Up(up) => match follow(up, &mut self.session).await {
                    Followed::Took(mut batch) => {
                        self.ended = gather(up, &mut self.session, &mut batch).err();
                        return Ok(batch);
                    }
                    Followed::Ended(error) => return Err(error),
                    Followed::Silent => {
                        let (client, member) = (Arc::clone(&self.client), up.member);
                        up.probe = Some(Box::pin(async move { client.is_there(member).await }));
                    }
                    Followed::Broken(why) => {
                        let (member, steady) = (up.member, up.since.elapsed() > STEADY);
                        if steady {
                            self.pause = PAUSE_MIN;
                        }
                        self.broken(member, &why);
                    }
                },
            }
        }
    }

    fn open(&self) -> BoxFuture<'static, (usize, Result<Box<Up>, String>)> {
        let client = Arc::clone(&self.client);
        let create = create(self.key.clone(), self.range_end.clone(), self.session.after);
        Box::pin(async move {
            let (requests, queue) = mpsc::channel(REQUESTS_MAX);
            // There is room for one.
            let _ = requests.try_send(create);
            let member = client.current();
            let opened = client.watch(member, ReceiverStream::new(queue));
            let up = match timeout(OPEN_TIMEOUT, opened).await {
                Ok(Ok(messages)) => {
                    let since = Instant::now();
                    Ok(Box::new(Up { member, since, requests, messages, probe: None }))
                }
                Ok(Err(status)) => Err(status.message().to_owned()),
                Err(_) => Err("it does not answer".to_owned()),
            };
            (member, up)
        })
    }

    fn broken(&mut self, member: usize, why: &str) {
        self.client.watch_broke(member, why);
        self.link = Link::Down(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
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
        self.session.want_progress();
    }
}

/// What a stream has come to.
enum Followed {
    Took(Batch),
    /// The watch is over.
    Ended(StoreError),
    /// Nothing came for a while: the member may be gone.
    Silent,
    /// The stream is over, the watch is not.
    Broken(String),
}

/// Follows a stream until it has something to say. May be given up and called again at any time.
async fn follow(up: &mut Up, session: &mut Session) -> Followed {
    loop {
        if session.ask() {
            let question = Request::Progress(pb::WatchProgressRequest {});
            let question = pb::WatchRequest { request: Some(question) };
            if up.requests.try_send(question).is_err() {
                return Followed::Broken("its member takes no more requests".to_owned());
            }
        }
        if session.is_silent() && up.probe.is_none() {
            return Followed::Silent;
        }
        let probing = up.probe.is_some();
        tokio::select! {
            message = up.messages.message() => match message {
                Ok(Some(message)) => {
                    up.probe = None;
                    match session.take(message) {
                        Ok(Some(batch)) => return Followed::Took(batch),
                        Ok(None) => {}
                        Err(error) => return Followed::Ended(error),
                    }
                }
                Ok(None) => return Followed::Broken("it has ended".to_owned()),
                Err(status) => return Followed::Broken(status.message().to_owned()),
            },
            there = async { up.probe.as_mut().expect("only polled if there is one").await }, if probing => {
                up.probe = None;
                if !there {
                    return Followed::Broken("its member is silent".to_owned());
                }
                session.is_alive();
            }
            () = sleep_until(session.wake_at()) => {}
        }
    }
}

/// Adds what has come meanwhile: etcd sends a message for each write, and together they cost the cache
/// less.
fn gather(up: &mut Up, session: &mut Session, batch: &mut Batch) -> Result<(), StoreError> {
    while batch.changes.len() < CHANGES_TOGETHER {
        // That the stream has ended is found again by who asks next.
        let Some(Ok(Some(message))) = up.messages.message().now_or_never() else { break };
        if let Some(more) = session.take(message)? {
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

const CHANGES_TOGETHER: usize = 256;
const OPEN_TIMEOUT: Duration = Duration::from_secs(4);
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A stream that has lasted so long says nothing about the next one.
const STEADY: Duration = Duration::from_secs(5);
/// Questions that wait to be sent. A stream that does not take them for so long is broken.
const REQUESTS_MAX: usize = 128;
