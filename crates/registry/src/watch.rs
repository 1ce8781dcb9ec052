//! WATCH: the events of a resource as a stream. The frame of an event is built once and shared by
//! all watchers with the same format.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use meta::ApiError;
use store::{Entry, Event, EventKind, Snapshot, StoreError, Timer, Trigger, WatchItem, Watcher};

use crate::{
    Payload, ResourceResponse, Storage,
    frame::{self, Frames},
    get::storage,
    list,
    options::ListOptions,
    resource_request::ResourceRequest,
    response_format::ResponseFormat,
    selectors::Selection,
    storage::{parse_revision, store_error},
    watch_metrics::WatchScope,
};

pub(crate) async fn watch(request: &ResourceRequest<'_>) -> Result<ResourceResponse, ApiError> {
    // Compat: an error about the streaming format comes after all others.
    let streamed = ResponseFormat::negotiate_stream(request);
    let format = ResponseFormat::negotiate(request)?;
    let options = ListOptions::read(request.query)?;
    let storage = storage(request)?;
    let selection = Selection::read(request, &options)?;
    let frames = Frames::new(request, &format);
    let content_type = frames.content_type();
    let timeout = timeout(request, &options);
    let timeout_timer = Timer::new(timeout);
    let began = Instant::now();
    let started = start(request, storage, &options, &selection).await?;
    streamed?;
    let namespace = &request.info.namespace;
    let stream = match started {
        Start::Watching { initial, watcher } => WatchResponse {
            start_revision: watcher.seen(),
            prefix: storage.key_prefix(namespace).to_string(),
            frames,
            watcher,
            timeout_timer,
            sends_initial_events_end: options.allow_watch_bookmarks
                && options.send_initial_events == Some(true),
            sends_final_bookmark: options.allow_watch_bookmarks && timeout > SHORT_WATCH,
            ready: VecDeque::new(),
            initial: initial.map(|snapshot| {
                let candidates =
                    list::by_name_or_index(storage, namespace, &selection, &snapshot, true);
                Initial { snapshot, candidates: candidates.map(VecDeque::from), after: None }
            }),
            selection,
            preparing: None,
            began,
            scope: WatchScope::of(request.info),
            ended: false,
        },
        // The version is too old, or too new: reported as an ERROR event, because the response is a 200 by
        // then.
        Start::Refused(error) => {
            let frame = frames.error(&error);
            let payload = Payload::Stream(Box::pin(stream::iter([frames.finish(frame)])));
            return Ok(ResourceResponse { code: 200, content_type, payload });
        }
    };
    Ok(ResourceResponse { code: 200, content_type, payload: Payload::Stream(Box::pin(stream)) })
}

enum Start {
    Watching { initial: Option<Arc<Snapshot>>, watcher: Watcher },
    Refused(ApiError),
}

async fn start(
    request: &ResourceRequest<'_>,
    storage: &Storage,
    options: &ListOptions,
    selection: &Selection,
) -> Result<Start, ApiError> {
    let cache = &storage.cache;
    // Compat: a watch with a bad resourceVersion is a 500 without a reason.
    let revision = parse_revision(&options.resource_version).map_err(ApiError::Storage)?;
    // A watch without a resourceVersion begins with the current state.
    let with_state = options.send_initial_events.unwrap_or(revision == 0);
    let initial = match options.resource_version.as_str() {
        _ if !with_state => None,
        "" => Some(cache.fresh().await.map_err(store_error)?),
        "0" => Some(cache.snapshot()),
        _ => match cache.at_least(revision).await {
            Ok(snapshot) => Some(snapshot),
            // Compat: the stream has begun by then.
            Err(error @ StoreError::TooLargeRevision { .. }) => {
                return Ok(Start::Refused(store_error(error)));
            }
            Err(other) => return Err(store_error(other)),
        },
    };
    if let Some(snapshot) = &initial {
        list::check_readable(request, selection, snapshot, None)?;
    }
    let after = match (&initial, revision) {
        (Some(snapshot), _) => snapshot.revision,
        // No initial events and no version: events from now on.
        (None, 0) => cache.fresh().await.map_err(store_error)?.revision,
        (None, revision) => revision,
    };
    match cache.watch(after, trigger(request, storage, selection)) {
        Ok(watcher) => {
            let watcher = if options.allow_watch_bookmarks {
                watcher.with_bookmarks(BOOKMARK_INTERVAL)
            } else {
                watcher
            };
            Ok(Start::Watching { initial, watcher })
        }
        Err(StoreError::Expired { oldest }) => {
            let message = format!("too old resource version: {after} ({oldest})");
            Ok(Start::Refused(ApiError::Expired { message, continue_token: String::new() }))
        }
        Err(other) => Err(store_error(other)),
    }
}

/// About once a minute, so that clients of a quiet resource get a recent resourceVersion to resume
/// from.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);

/// The events that wake a watcher: all, those of a namespace, of one node's pods, of one object.
fn trigger(
    request: &ResourceRequest<'_>,
    storage: &Storage,
    selection: &Selection,
) -> Option<Trigger> {
    let namespace = &request.info.namespace;
    if let Some(name) = selection.exact_name()
        && (!storage.namespaced || !namespace.is_empty())
    {
        return Some(Trigger::Key(storage.key(namespace, name)));
    }
    if let Some(value) = storage.index.and_then(|field| selection.exact_field(field)) {
        return Some(Trigger::Index(value.clone()));
    }
    (storage.namespaced && !namespace.is_empty()).then(|| Trigger::Namespace(namespace.clone()))
}

fn timeout(request: &ResourceRequest<'_>, options: &ListOptions) -> Duration {
    match options.timeout_seconds {
        Some(seconds @ 1..) => Duration::from_secs(seconds as u64),
        // Random, so that clients that started together do not reconnect together.
        _ => {
            let share = f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX);
            request.engine.options.min_request_timeout.mul_f64(1.0 + share)
        }
    }
}

/// The stream of a watch.
struct WatchResponse {
    /// The revision that the watch started from.
    start_revision: u64,
    prefix: String,
    frames: Frames,
    selection: Selection,
    watcher: Watcher,
    timeout_timer: Timer,
    /// Whether the initial events end with a bookmark.
    sends_initial_events_end: bool,
    /// Whether the watch ends with a bookmark.
    sends_final_bookmark: bool,
    /// Frames to be sent.
    ready: VecDeque<Bytes>,
    /// The initial events that have not been sent.
    initial: Option<Initial>,
    /// Entries that a webhook is converting.
    preparing: Option<Preparing>,
    began: Instant,
    scope: WatchScope,
    ended: bool,
}

type Preparing = Pin<Box<dyn Future<Output = Result<PreparedWork, ApiError>> + Send>>;

/// What is sent after the conversion.
enum PreparedWork {
    Events(Vec<Arc<Event>>),
    Initial(Vec<Arc<Entry>>),
}

struct Initial {
    snapshot: Arc<Snapshot>,
    /// The objects of the name or of the indexed field that is watched. Without them the snapshot is
    /// searched: each of 5 000 kubelets would look at all pods to find its own.
    candidates: Option<VecDeque<Arc<Entry>>>,
    after: Option<meta::Str>,
}

impl Initial {
    /// The next entries that may match, if there are more.
    fn next_page(&mut self, prefix: &str) -> Option<Vec<Arc<Entry>>> {
        let mut page: Vec<Arc<Entry>> = match &self.candidates {
            Some(entries) => entries.iter().take(INITIAL_ENTRIES).cloned().collect(),
            None => self.snapshot.page(prefix, self.after.as_deref(), INITIAL_ENTRIES),
        };
        // Encoding is made here, so a page of large objects is cut short.
        let mut bytes = 0;
        let fits = page.iter().take_while(|entry| {
            let fits = bytes < INITIAL_BYTES;
            bytes += entry.json.len();
            fits
        });
        page.truncate(fits.count());
        if let Some(entries) = &mut self.candidates {
            entries.drain(..page.len());
        }
        self.after = Some(page.last()?.key.clone());
        // The indexed field may have the same value in other namespaces.
        page.retain(|entry| entry.key.starts_with(prefix));
        Some(page)
    }
}

/// Implemented by hand: it is polled for every event of every watcher, and must neither move the
/// state nor set a timer.
impl Stream for WatchResponse {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut pages = 0;
        loop {
            if let Some(bytes) = self.take_ready() {
                return Poll::Ready(Some(bytes));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            if let Some(preparing) = &mut self.preparing {
                let Poll::Ready(work) = preparing.as_mut().poll(cx) else { return Poll::Pending };
                self.preparing = None;
                self.resume(work);
            } else if self.initial.is_some() {
                pages += 1;
                if pages > INITIAL_PAGES {
                    // Nothing matched so far: the connection's other streams go on meanwhile.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                self.send_initial();
            } else if let Poll::Ready(item) = self.watcher.poll_next(cx) {
                self.receive(item);
            } else if self.timeout_timer.poll(cx).is_ready() {
                self.end();
            } else {
                return Poll::Pending;
            }
        }
    }
}

impl WatchResponse {
    /// The next bytes to send. Short frames are joined into one HTTP/2 frame; long ones are not
    /// worth the copy.
    fn take_ready(&mut self) -> Option<Bytes> {
        let first = self.ready.pop_front()?;
        if self.frames.are_messages() {
            return Some(self.frames.finish(first));
        }
        let fits = |have: usize, next: Option<&Bytes>| {
            next.is_some_and(|next| next.len() <= SHORT_BYTES && have + next.len() <= PIECE_BYTES)
        };
        if first.len() > SHORT_BYTES || !fits(first.len(), self.ready.front()) {
            return Some(first);
        }
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        piece.extend_from_slice(&first);
        while fits(piece.len(), self.ready.front()) {
            piece.extend_from_slice(&self.ready.pop_front().expect("looked at above"));
        }
        Some(piece.into())
    }

    fn receive(&mut self, item: WatchItem) {
        match item {
            WatchItem::Events(events) if self.frames.kind().is_remote() => {
                let departed = events.iter().filter_map(|event| event.departed()).cloned();
                let entries = events.iter().map(|event| event.entry.clone()).chain(departed);
                let mut entries: Vec<Arc<Entry>> = entries.collect();
                if self.selection.needs_view() {
                    entries.extend(events.iter().filter_map(|event| event.previous.clone()));
                }
                self.prepare(entries, PreparedWork::Events(events));
            }
            WatchItem::Events(events) => {
                let sent = events.iter().try_for_each(|event| self.send(event));
                self.end_on_error(sent);
            }
            WatchItem::Progress(revision) => {
                let frame = self.frames.bookmark(revision, false);
                self.push(frame);
            }
            WatchItem::Expired => {
                let message = "The resourceVersion for the provided watch is too old.".to_owned();
                let error = ApiError::Expired { message, continue_token: String::new() };
                self.end_on_error(Err(error));
            }
            // The client resumes from its last resourceVersion.
            WatchItem::TooSlow | WatchItem::Closed => self.ended = true,
        }
    }

    /// Continues with `work` when the entries are converted.
    fn prepare(&mut self, entries: Vec<Arc<Entry>>, work: PreparedWork) {
        let kind = self.frames.kind().clone();
        self.preparing = Some(Box::pin(async move {
            kind.prepare(&entries.iter().collect::<Vec<_>>()).await?;
            Ok(work)
        }));
    }

    fn resume(&mut self, work: Result<PreparedWork, ApiError>) {
        let sent = work.and_then(|work| match work {
            PreparedWork::Events(events) => events.iter().try_for_each(|event| self.send(event)),
            PreparedWork::Initial(entries) => {
                for entry in &entries {
                    if self.matches(entry)? {
                        self.ready.push_back(self.frames.initial(entry)?);
                    }
                }
                Ok(())
            }
        });
        self.end_on_error(sent);
    }

    fn push(&mut self, frame: Result<Bytes, ApiError>) {
        let pushed = frame.map(|frame| self.ready.push_back(frame));
        self.end_on_error(pushed);
    }

    /// A watch must not continue after a frame that failed: the client would miss an event.
    fn end_on_error(&mut self, sent: Result<(), ApiError>) {
        if let Err(error) = sent {
            self.ready.push_back(self.frames.error(&error));
            self.initial = None;
            self.ended = true;
        }
    }

    /// Sends an event as this watcher sees it: an object that starts or stops matching is ADDED or
    /// DELETED.
    fn send(&mut self, event: &Event) -> Result<(), ApiError> {
        let in_scope = event.entry.key.starts_with(&self.prefix);
        if !in_scope {
            return Ok(());
        }
        let was = match &event.previous {
            Some(entry) => self.matches(entry)?,
            None => false,
        };
        let is = event.kind != EventKind::Deleted && self.matches(&event.entry)?;
        let frame = match (was, is) {
            (false, true) => self.frames.event(event, &event.entry, frame::ADDED)?,
            (true, true) => self.frames.event(event, &event.entry, frame::MODIFIED)?,
            (true, false) => match event.departed() {
                Some(last) => self.frames.event(event, last, frame::DELETED)?,
                None => return Ok(()),
            },
            (false, false) => return Ok(()),
        };
        self.frames.kind().watch_metrics.sent(frame.len());
        self.ready.push_back(frame);
        Ok(())
    }

    fn matches(&self, entry: &Entry) -> Result<bool, ApiError> {
        Ok(self.selection.matches(entry)
            && self.selection.matches_view(self.frames.kind(), entry)?)
    }

    /// Sends the next part of the initial events, and the bookmark after the last one.
    fn send_initial(&mut self) {
        let Some(initial) = &mut self.initial else { return };
        let Some(page) = initial.next_page(&self.prefix) else {
            let revision = initial.snapshot.revision;
            self.initial = None;
            if self.sends_initial_events_end {
                let metrics = &self.frames.kind().watch_metrics;
                metrics.initial_events_sent(self.scope, self.began.elapsed());
                let frame = self.frames.bookmark(revision, true);
                self.push(frame);
            }
            return;
        };
        if let Some(storage) = &self.frames.kind().storage {
            let counter = &storage.cache.read_metrics().initial_events;
            counter.fetch_add(page.len() as u64, Ordering::Relaxed);
        }
        let matching = page.iter().filter(|entry| self.selection.matches(entry));
        if self.frames.kind().is_remote() {
            let entries: Vec<Arc<Entry>> = matching.cloned().collect();
            return self.prepare(entries.clone(), PreparedWork::Initial(entries));
        }
        let frames: Result<Vec<Bytes>, ApiError> =
            matching.map(|entry| self.frames.initial(entry)).collect();
        let sent = frames.map(|frames| self.ready.extend(frames));
        self.end_on_error(sent);
    }

    /// Timeout: sends a last bookmark if the revision has advanced.
    fn end(&mut self) {
        if self.sends_final_bookmark
            && let Some(revision) = self.watcher.progress()
            && revision > self.start_revision
        {
            let frame = self.frames.bookmark(revision, false);
            self.push(frame);
        }
        self.ended = true;
    }
}

/// Compat: upstream's last bookmark comes two seconds before the end, so shorter watches have none.
const SHORT_WATCH: Duration = Duration::from_secs(2);

/// The size of an HTTP/2 frame.
const PIECE_BYTES: usize = 16 * 1024;
const SHORT_BYTES: usize = 2 * 1024;
const INITIAL_ENTRIES: usize = 64;
/// About what is encoded as protobuf or as a table in a millisecond; at least one object is sent.
const INITIAL_BYTES: usize = 128 * 1024;
/// How many pages without a match are searched at a time.
const INITIAL_PAGES: usize = 16;

#[cfg(test)]
mod tests;
