//! Watch fan-out: many watchers of the same pods, a few writers, and how long an event takes from the
//! moment of its write to each watcher.
//!
//! A write carries its moment in an annotation. With a given rate that is the moment the write was
//! *due*, so that a server that falls behind cannot hide it by answering late.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use memchr::memmem::Finder;
use tokio::task::JoinSet;

use super::world::{WATCH_NAMESPACE, pods_path};
use super::{Outcome, World};
use crate::bodies::{self, SENT_ANNOTATION};
use crate::client::{Call, Client, Failure, Keep};
use crate::load::{Latencies, Measured, Plan, closed_loop};
use crate::proc::Probe;

pub(super) async fn fan_out(world: &mut World, plan: Plan, writes_per_s: Option<u32>) -> Outcome {
    match try_fan_out(world, plan, writes_per_s).await {
        Ok(outcome) => outcome,
        Err(failure) => failure.into(),
    }
}

async fn try_fan_out(
    world: &mut World,
    plan: Plan,
    writes_per_s: Option<u32>,
) -> Result<Outcome, Failure> {
    world.ensure_watched_pods(plan.at_once).await?;
    let mut probe = Probe::begin(&world.pids);
    let seen = Arc::new(Seen::default());
    let (_connections, mut watchers) = open_watchers(world, &seen).await?;

    probe.restart_clocks();
    seen.restart();
    let pace = Pace { rate: writes_per_s, begun: seen.begun() };
    let count = writes_per_s
        .map_or(plan.count, |rate| (u64::from(rate) * plan.cap.as_secs().max(1)) as usize);
    let writes = write(&world.client, Plan { count, ..plan }, pace).await;
    if writes.done == 0
        && let Some(failure) = writes.first_failure
    {
        return Err(failure);
    }
    let expected = writes.done * world.sizes.watchers;
    seen.wait_for(expected).await;
    let cost = probe.end();
    watchers.abort_all();
    while watchers.join_next().await.is_some() {}

    let delivered = seen.delivered.load(Ordering::Relaxed);
    let mut notes = Vec::new();
    if delivered < expected {
        notes.push(format!("{} of {expected} events never came", expected - delivered));
    }
    let ended = seen.ended.load(Ordering::Relaxed);
    if ended > 0 {
        notes.push(format!("{ended} watches were ended by the server"));
    }
    let measured = Measured {
        done: delivered,
        bytes: seen.bytes.load(Ordering::Relaxed),
        elapsed: Duration::from_micros(seen.last_us.load(Ordering::Relaxed).max(1)),
        latencies: seen.latencies(),
        failed: writes.failed,
        first_failure: writes.first_failure,
    };
    Ok(Outcome::Measured { measured, cost, ops_per_call: 1, note: notes.join("; ") })
}

/// Opens all watches from the present version, over as many connections as the servers' stream limit
/// asks for. The connections live as long as the clients that are returned.
async fn open_watchers(
    world: &World,
    seen: &Arc<Seen>,
) -> Result<(Vec<Client>, JoinSet<()>), Failure> {
    let version = present_version(&world.client).await?;
    let path = format!(
        "{}?watch=true&allowWatchBookmarks=true&resourceVersion={version}",
        pods_path(WATCH_NAMESPACE)
    );
    let call = Call::get(path);
    let mut clients = Vec::new();
    let mut watchers = JoinSet::new();
    for number in 0..world.sizes.watchers {
        if number % WATCHES_PER_CONNECTION == 0 {
            let client = Client::connect(&world.target, 1).await;
            clients.push(client.map_err(|error| Failure::local(&error))?);
        }
        let client = clients.last().expect("pushed at number 0");
        let response = client.open(&call).await?;
        if !response.status().is_success() {
            let code = response.status().as_u16();
            return Err(Failure { code: Some(code), message: format!("watch answered {code}") });
        }
        watchers.spawn(watch(response.into_body(), Arc::clone(seen)));
    }
    // The last watches may still be on their way into the server's cache.
    tokio::time::sleep(SETTLE).await;
    Ok((clients, watchers))
}

async fn present_version(client: &Client) -> Result<String, Failure> {
    let list = Call::get(format!("{}?limit=1", pods_path(WATCH_NAMESPACE)));
    let answer = client.ok(&list, Keep::Head).await?;
    let missing = || Failure { code: None, message: "a list without resourceVersion".to_owned() };
    let marker = b"\"resourceVersion\":\"";
    let begin = memchr::memmem::find(&answer.kept, marker).ok_or_else(missing)? + marker.len();
    let digits = answer.kept[begin..].iter().take_while(|byte| byte.is_ascii_digit());
    Ok(digits.map(|&byte| char::from(byte)).collect())
}

/// When each write is due.
#[derive(Clone, Copy)]
struct Pace {
    /// Writes per second; `None` is as fast as the server answers.
    rate: Option<u32>,
    begun: Instant,
}

impl Pace {
    /// Waits until write `number` is due, and returns that moment.
    async fn due(&self, number: usize) -> Instant {
        let Some(rate) = self.rate else { return Instant::now() };
        let due = self.begun + Duration::from_secs_f64(number as f64 / f64::from(rate));
        tokio::time::sleep_until(due.into()).await;
        due
    }
}

/// Each writer has a pod of its own: two patches of one object at a time would conflict.
async fn write(client: &Client, plan: Plan, pace: Pace) -> Measured {
    // A paced run has a fixed number of writes; if the server is slower than asked, they take longer.
    let cap = if pace.rate.is_some() { plan.cap * 3 } else { plan.cap };
    closed_loop(Plan { cap, ..plan }, async |worker, number| {
        let due_us = pace.due(number).await.duration_since(pace.begun).as_micros();
        let path = format!("{}/{}", pods_path(WATCH_NAMESPACE), bodies::pod_name(worker));
        let body =
            format!(r#"{{"metadata":{{"annotations":{{"{SENT_ANNOTATION}":"{due_us}"}}}}}}"#);
        let call = Call::send(Method::PATCH, path, "application/merge-patch+json", body);
        Ok(client.ok(&call, Keep::Nothing).await?.bytes)
    })
    .await
}

/// What all watchers have seen, together.
#[derive(Default)]
struct Seen {
    begun: Mutex<Option<Instant>>,
    delivered: AtomicUsize,
    bytes: AtomicU64,
    last_us: AtomicU64,
    ended: AtomicUsize,
    latencies: Mutex<Latencies>,
}

impl Seen {
    /// The clock of all latencies starts now.
    fn restart(&self) {
        *self.begun.lock().expect("no watcher panics") = Some(Instant::now());
    }

    fn begun(&self) -> Instant {
        self.begun.lock().expect("no watcher panics").unwrap_or_else(Instant::now)
    }

    fn note(&self, sent_us: u64) {
        let now_us = self.begun().elapsed().as_micros() as u64;
        let latency = Duration::from_micros(now_us.saturating_sub(sent_us));
        self.latencies.lock().expect("no watcher panics").push(latency);
        self.last_us.fetch_max(now_us, Ordering::Relaxed);
        self.delivered.fetch_add(1, Ordering::Relaxed);
    }

    fn latencies(&self) -> Latencies {
        self.latencies.lock().expect("no watcher panics").clone()
    }

    /// Until everything has come, or nothing more does.
    async fn wait_for(&self, expected: usize) {
        let mut before = usize::MAX;
        let mut quiet_since = Instant::now();
        while self.delivered.load(Ordering::Relaxed) < expected {
            let delivered = self.delivered.load(Ordering::Relaxed);
            if delivered != before {
                before = delivered;
                quiet_since = Instant::now();
            }
            if quiet_since.elapsed() > QUIET_MAX {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn watch(mut body: Incoming, seen: Arc<Seen>) {
    let mut events = Events::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Some(data) = frame.data_ref() else { continue };
        seen.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        events.feed(data, |sent_us| seen.note(sent_us));
    }
    seen.ended.fetch_add(1, Ordering::Relaxed);
}

/// Finds the moment in each event of a stream of JSON lines, without parsing them.
struct Events {
    marker: Finder<'static>,
    /// The beginning of the event under way, while its moment has not been found.
    head: Vec<u8>,
    /// An event counts when it has arrived whole; this is its moment until then.
    found: Option<u64>,
}

impl Events {
    fn new() -> Self {
        Self { marker: Finder::new(SENT_MARKER), head: Vec::new(), found: None }
    }

    fn feed(&mut self, mut data: &[u8], mut event: impl FnMut(u64)) {
        while !data.is_empty() {
            let end = memchr::memchr(b'\n', data);
            let (part, rest) = match end {
                Some(end) => (&data[..end], &data[end + 1..]),
                None => (data, &[][..]),
            };
            if self.found.is_none() && self.head.len() < HEAD_BYTES_MAX {
                let room = HEAD_BYTES_MAX - self.head.len();
                self.head.extend_from_slice(&part[..part.len().min(room)]);
                self.found = self.moment();
            }
            if end.is_some() {
                // Bookmarks carry no moment and do not count.
                if let Some(sent_us) = self.found.take() {
                    event(sent_us);
                }
                self.head.clear();
            }
            data = rest;
        }
    }

    fn moment(&self) -> Option<u64> {
        let begin = self.marker.find(&self.head)? + SENT_MARKER.len();
        let length = memchr::memchr(b'"', &self.head[begin..])?;
        std::str::from_utf8(&self.head[begin..begin + length]).ok()?.parse().ok()
    }
}

const SENT_MARKER: &[u8] = b"\"bench-sent\":\"";
/// Annotations stand near the front of an object; beyond this an event has none.
const HEAD_BYTES_MAX: usize = 8192;
/// Servers allow 100 streams on a connection at the least.
const WATCHES_PER_CONNECTION: usize = 64;
const SETTLE: Duration = Duration::from_millis(300);
/// When nothing has come for so long, the rest is lost.
const QUIET_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_found_however_the_stream_is_cut() {
        assert_eq!(SENT_MARKER, format!("\"{SENT_ANNOTATION}\":\"").as_bytes());
        let stream = concat!(
            r#"{"type":"MODIFIED","object":{"annotations":{"bench-sent":"17"},"f:bench-sent":{}}}"#,
            "\n",
            r#"{"type":"BOOKMARK","object":{}}"#,
            "\n",
            r#"{"type":"MODIFIED","object":{"annotations":{"bench-sent":"4200"}}}"#,
            "\n",
            r#"{"type":"MODIFIED","object":{"annotations":{"bench-sent":"9"}"#,
        );
        for size in [1, 2, 7, 31, 1000] {
            let mut events = Events::new();
            let mut moments = Vec::new();
            for part in stream.as_bytes().chunks(size) {
                events.feed(part, |sent_us| moments.push(sent_us));
            }
            assert_eq!(moments, [17, 4200], "cut into pieces of {size}");
        }
    }
}
