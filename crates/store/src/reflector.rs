//! Keeps a cache up to date with its backend: list once, then watch; list again when events were
//! lost.

use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::cache::Shared;
use crate::failpoint::failpoint;
use crate::wake_queue::WakeRound;
use crate::{Batch, Event, EventKind, Snapshot, StoreError, Watch, WatchStream};

/// Runs until it is aborted. A panic, of a codec for example, must not freeze the cache: what was deleted
/// or forbidden since would still be served. It lists again, as after lost events.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let mut following = pin!(follow(&shared));
        poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| following.as_mut().poll(cx)));
            if polled.is_err() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        tracing::error!(prefix = %shared.options.prefix, "a watch cache's reflector panicked");
        sleep(RETRY_MAX).await;
    }
}

async fn follow(shared: &Arc<Shared>) -> Infallible {
    let mut pause = RETRY_MIN;
    let mut from_history = true;
    loop {
        let error = match relist(shared, from_history).await {
            Ok(stream) => {
                pause = RETRY_MIN;
                from_history = true;
                watch(shared, stream).await
            }
            Err(error) => error,
        };
        // A value that is corrupt in an old state may have been replaced since.
        if matches!(error, StoreError::Corrupt(_)) {
            from_history = false;
        }
        let prefix = &shared.options.prefix;
        tracing::warn!(%prefix, %error, "the watch cache has to list again");
        *shared.failure.lock() = Some(error);
        sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Lists, and starts a new ring there: watchers of the old ring have lost events. Returns the watch
/// that continues from there. With `from_history` the ring begins a little earlier.
async fn relist(shared: &Shared, from_history: bool) -> Result<WatchStream, StoreError> {
    let now = shared.backend.revision().await?;
    let mut snapshot = if from_history {
        list_with_history(shared, now).await?
    } else {
        shared.list(None).await?
    };
    let mut ring = shared.ring_at(snapshot.revision);
    let mut stream = shared.backend.watch(&shared.options.prefix, snapshot.revision).await?;
    while snapshot.revision < now {
        stream.request_progress();
        let batch = stream.next().await?;
        let SnapshotUpdate { snapshot: next, events, gap } =
            build_update(shared, &snapshot, batch)?;
        snapshot = next;
        if gap {
            ring = shared.ring_at(snapshot.revision);
        } else {
            ring.push(&events, snapshot.revision, Instant::now());
        }
    }
    *shared.failure.lock() = None;
    shared.counters.initializations.fetch_add(1, Ordering::Relaxed);
    shared.reset(snapshot, ring);
    Ok(stream)
}

/// The state a little before `now`, as far back as the options ask for and the backend allows.
async fn list_with_history(shared: &Shared, now: u64) -> Result<Snapshot, StoreError> {
    let back = now.saturating_sub(shared.options.resume_revisions).max(1);
    let from = match shared.list(Some(back)).await {
        Err(StoreError::Compacted { oldest }) if oldest > back && oldest < now => oldest,
        Err(StoreError::Compacted { .. }) => now,
        done => return done,
    };
    if from < now
        && let Ok(snapshot) = shared.list(Some(from)).await
    {
        return Ok(snapshot);
    }
    shared.list(None).await
}

/// Watches until events are lost. A watch that breaks is resumed where it ended.
async fn watch(shared: &Shared, mut stream: WatchStream) -> StoreError {
    let mut pause = RETRY_MIN;
    loop {
        let (taken, error) = consume(shared, &mut *stream).await;
        if taken {
            pause = RETRY_MIN;
        }
        let mut broken = error;
        stream = loop {
            if !matches!(broken, StoreError::Unavailable(_)) {
                return broken;
            }
            let prefix = &shared.options.prefix;
            tracing::warn!(%prefix, error = %broken, "a watch on the backend broke");
            *shared.failure.lock() = Some(broken);
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
            let revision = shared.current.load().revision;
            match shared.backend.watch(prefix, revision).await {
                Ok(stream) => break stream,
                Err(error) => broken = error,
            }
        };
        *shared.failure.lock() = None;
    }
}

/// Applies the batches of a watch until it ends; returns whether there were any, and the error.
async fn consume(shared: &Shared, stream: &mut dyn Watch) -> (bool, StoreError) {
    let mut taken = false;
    let mut evict_at = None;
    let mut round = WakeRound::default();
    loop {
        let ring = shared.ring.load_full();
        let wake_queue = ring.wake_queue();
        let woken = wake_queue.wake_waiting();
        let round_ends = round.progress(woken, wake_queue.has_waiting(), Instant::now());
        tokio::select! {
            () = wake_queue.room(), if round_ends.is_some() => {}
            () = sleep_until(round_ends.unwrap_or_else(Instant::now)), if round_ends.is_some() => {
                wake_queue.begin_round();
                round = WakeRound::default();
            }
            batch = stream.next() => {
                let batch = match batch {
                    Ok(batch) => batch,
                    Err(error) => return (taken, error),
                };
                taken = true;
                if batch.changes.is_empty() {
                    shared.reads.bookmarks.fetch_add(1, Ordering::Relaxed);
                } else {
                    evict_at.get_or_insert_with(|| Instant::now() + EVICT_INTERVAL);
                }
                if let Err(error) = apply(shared, batch) {
                    return (taken, error);
                }
            }
            () = shared.progress_wanted.notified() => stream.request_progress(),
            () = shared.relist_wanted.notified() => {
                let why = "the watch cache differs from the store".to_owned();
                return (taken, StoreError::Corrupt(why));
            }
            () = sleep_until(evict_at.unwrap_or_else(Instant::now)), if evict_at.is_some() => {
                let now = Instant::now();
                let more = ring.evict(now, FRAMES_TTL);
                shared.checkpoints.lock().drop_before(ring.oldest());
                evict_at = more.then(|| now + EVICT_INTERVAL);
            }
        }
    }
}

/// How often old events and frames are evicted while there are any.
const EVICT_INTERVAL: Duration = Duration::from_secs(2);
/// By then all watchers that keep up have sent the frame of an event.
const FRAMES_TTL: Duration = Duration::from_secs(2);

/// Applies changes to the cache: first the state, so that a client that gets an event finds it when
/// reading; then the events; then the revision, which readers wait for.
fn apply(shared: &Shared, batch: Batch) -> Result<(), StoreError> {
    let before = shared.current.load_full();
    if batch.revision < before.revision {
        return Ok(());
    }
    let SnapshotUpdate { snapshot, events, gap } = build_update(shared, &before, batch)?;
    let revision = snapshot.revision;
    if gap {
        shared.reset(snapshot, shared.ring_at(revision));
        return Ok(());
    }
    if !events.is_empty() {
        shared.checkpoints.lock().record(&before, events.len());
    }
    shared.current.store(Arc::new(snapshot));
    failpoint!("cache.state");
    shared.ring.load().push(&events, revision, Instant::now());
    failpoint!("cache.notified");
    shared.revision.send_replace(revision);
    Ok(())
}

/// The effect of a batch on the cache.
struct SnapshotUpdate {
    /// The state after it.
    snapshot: Snapshot,
    /// The events for watchers.
    events: Vec<Arc<Event>>,
    /// There is a change for which there is no event: an object became unreadable, or readable
    /// again.
    gap: bool,
}

fn build_update(
    shared: &Shared,
    before: &Snapshot,
    batch: Batch,
) -> Result<SnapshotUpdate, StoreError> {
    let mut snapshot = before.clone();
    let mut events = Vec::with_capacity(batch.changes.len());
    let mut gap = false;
    let now = Instant::now();
    for change in batch.changes {
        // A resumed watch may repeat known changes.
        if change.revision <= before.revision {
            continue;
        }
        gap |= snapshot.remove_broken(&change.key);
        let (kind, entry, previous) = if let Some(value) = change.value {
            let problem = change.problem.as_ref();
            let entry = match shared.entry(&change.key, &value, change.revision, problem) {
                Ok(entry) => Arc::new(entry),
                Err(broken) => {
                    gap = true;
                    snapshot.insert_broken(broken);
                    continue;
                }
            };
            let previous = snapshot.insert(Arc::clone(&entry));
            let kind = if previous.is_some() { EventKind::Modified } else { EventKind::Added };
            (kind, entry, previous)
        } else {
            let Some(previous) = snapshot.remove(&change.key) else { continue };
            let mut entry = previous
                .with_revision(change.revision)
                .map_err(|error| StoreError::Corrupt(format!("{}: {error}", change.key)))?;
            shared.delta_encoder.pack(&mut entry);
            (EventKind::Deleted, Arc::new(entry), Some(previous))
        };
        events.push(Arc::new(Event::new(kind, change.revision, entry, previous, now)));
    }
    snapshot.revision = batch.revision.max(before.revision);
    Ok(SnapshotUpdate { snapshot, events, gap })
}
