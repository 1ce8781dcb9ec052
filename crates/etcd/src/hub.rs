//! All watches of a server, over one stream.
//!
//! When the stream breaks, or its member falls silent, the hub opens another one on the next member
//! and each watch goes on behind the last revision it has handed over: nothing is lost, nothing
//! comes twice, and those who watch do not even notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use store::{Batch, BoxFuture, StoreError, Watch};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::Streaming;

use crate::client::Client;
use crate::pb::watch_request::Request;
use crate::{pb, session::Session};

pub(crate) struct Hub {
    opened: mpsc::Sender<Opened>,
    progress: Arc<Notify>,
    task: JoinHandle<()>,
}

/// A watch that wants to be part of the stream.
pub(crate) struct Opened {
    pub(crate) key: Bytes,
    pub(crate) range_end: Bytes,
    /// The last revision it knows.
    pub(crate) after: u64,
    pub(crate) out: mpsc::Sender<Result<Batch, StoreError>>,
    /// Somebody wants to know how far etcd is.
    pub(crate) wanted: Arc<AtomicBool>,
}

impl Hub {
    pub(crate) fn start(client: Arc<Client>) -> Self {
        let (opened, received) = mpsc::channel(OPENED_MAX);
        let progress = Arc::new(Notify::new());
        let task = tokio::spawn(run(client, received, Arc::clone(&progress)));
        Self { opened, progress, task }
    }

    /// The changes of a range of keys behind a revision.
    pub(crate) async fn watch(
        &self,
        key: Bytes,
        range_end: Bytes,
        after: u64,
    ) -> Result<HubWatch, StoreError> {
        let (out, batches) = mpsc::channel(BATCHES_MAX);
        let wanted = Arc::new(AtomicBool::new(false));
        let opened = Opened { key, range_end, after, out, wanted: Arc::clone(&wanted) };
        self.opened.send(opened).await.map_err(|_| closed())?;
        let progress = Arc::clone(&self.progress);
        Ok(HubWatch { batches, error: None, wanted, progress })
    }

    /// The oldest revision that can be read. Only a watch that comes too late is told.
    pub(crate) async fn compacted(&self) -> Result<u64, StoreError> {
        let key = Bytes::from_static(b"\0");
        let mut watch = self.watch(key.clone(), Bytes::from_static(b"\0\0"), 0).await?;
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

    pub(crate) fn close(&self) {
        self.task.abort();
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".to_owned())
}

/// Watches that wait to be opened.
const OPENED_MAX: usize = 1024;
/// Batches that wait to be taken. A watch that has more is ended; who reads it starts again from
/// where he is.
const BATCHES_MAX: usize = 1024;
const COMPACTED_TIMEOUT: Duration = Duration::from_secs(5);

/// One watch of the hub.
pub(crate) struct HubWatch {
    batches: mpsc::Receiver<Result<Batch, StoreError>>,
    /// How the watch ended, when there were changes to be handed over before.
    error: Option<StoreError>,
    wanted: Arc<AtomicBool>,
    progress: Arc<Notify>,
}

impl HubWatch {
    async fn take(&mut self) -> Result<Batch, StoreError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let mut batch = match self.batches.recv().await {
            Some(first) => first?,
            None => return Err(StoreError::Unavailable("the watch fell behind".to_owned())),
        };
        // etcd sends a message for each write; together they cost the cache less.
        while batch.changes.len() < CHANGES_TOGETHER {
            match self.batches.try_recv() {
                Ok(Ok(more)) => {
                    batch.changes.extend(more.changes);
                    batch.revision = batch.revision.max(more.revision);
                }
                Ok(Err(error)) => {
                    self.error = Some(error);
                    break;
                }
                Err(_) => break,
            }
        }
        Ok(batch)
    }
}

const CHANGES_TOGETHER: usize = 256;

impl Watch for HubWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        Box::pin(self.take())
    }

    fn request_progress(&mut self) {
        self.wanted.store(true, Ordering::Release);
        self.progress.notify_one();
    }
}

/// Keeps the stream open for as long as there are watches. Runs until the hub is gone.
async fn run(client: Arc<Client>, mut opened: mpsc::Receiver<Opened>, progress: Arc<Notify>) {
    let mut session = Session::default();
    let mut pause = PAUSE_MIN;
    loop {
        session.forget_closed();
        if session.is_empty() {
            match opened.recv().await {
                Some(watch) => session.add(watch),
                None => return,
            }
        }
        while let Ok(watch) = opened.try_recv() {
            session.add(watch);
        }
        let (requests, queue) = mpsc::channel(session.len() + REQUESTS_EXTRA);
        session.begin(requests);
        // etcd answers once it has something to say, which it has: watches are waiting in the queue.
        let open = client.watch(ReceiverStream::new(queue));
        let (member, why) = match timeout(OPEN_TIMEOUT, open).await {
            Ok((member, Ok(stream))) => {
                let began = Instant::now();
                let why = follow(&mut session, stream, &mut opened, &progress).await;
                if began.elapsed() > STEADY {
                    pause = PAUSE_MIN;
                }
                match why {
                    Some(why) => (member, why),
                    None => return,
                }
            }
            Ok((member, Err(status))) => (member, status.message().to_owned()),
            Err(_) => (client.current(), "it does not answer".to_owned()),
        };
        tracing::warn!(member = client.url(member), why, "the watch stream of etcd broke");
        client.moved_on(member);
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

const OPEN_TIMEOUT: Duration = Duration::from_secs(4);
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A stream that has lasted so long says nothing about the next one.
const STEADY: Duration = Duration::from_secs(5);
/// Requests beyond one for each watch: new watches, cancellations, questions for progress.
const REQUESTS_EXTRA: usize = 1024;

/// Follows a stream until it breaks, and says why; `None`: nobody needs it any more.
async fn follow(
    session: &mut Session,
    mut stream: Streaming<pb::WatchResponse>,
    opened: &mut mpsc::Receiver<Opened>,
    progress: &Notify,
) -> Option<String> {
    let mut beat = interval(BEAT_EVERY);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let sent = tokio::select! {
            message = stream.message() => match message {
                Ok(Some(message)) => session.take(message),
                Ok(None) => return Some("it has ended".to_owned()),
                Err(status) => return Some(status.message().to_owned()),
            },
            watch = opened.recv() => session.open(watch?),
            () = progress.notified() => session.want_progress(),
            _ = beat.tick() => {
                if session.is_stalled() {
                    return Some("its member is silent".to_owned());
                }
                session.beat()
            }
        };
        if sent.is_err() {
            return Some("its member takes no more requests".to_owned());
        }
    }
}

/// How often a member is asked whether it is still there.
const BEAT_EVERY: Duration = Duration::from_secs(1);

/// What is sent to open a watch.
pub(crate) fn create(id: i64, key: Bytes, range_end: Bytes, after: u64) -> pb::WatchRequest {
    let create = pb::WatchCreateRequest {
        key,
        range_end,
        // Not one further: etcd tells no watch of a stream how far it is while one of them waits for
        // a revision that is still to come. What is known already is dropped on arrival.
        start_revision: after.max(1) as i64,
        progress_notify: true,
        watch_id: id,
        fragment: true,
    };
    pb::WatchRequest { request: Some(Request::Create(create)) }
}
