//! How many requests are served at the same time. The others wait for a seat, in the order they
//! came; a request that would wait too long, or find too many before it, gets a 429.
//!
//! There is one queue for reads and one for writes. Priority and fairness will decide here which
//! queue a request waits in and how many seats it takes; [`Seat`] stays.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use meta::{ApiError, RequestInfo, User};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::context::Context;

/// The seats of a server.
pub struct Seats {
    reading: Option<Queue>,
    mutating: Option<Queue>,
    wait_max: Duration,
}

/// One limit and the requests that wait for it.
struct Queue {
    seats: Arc<Semaphore>,
    waiters: AtomicUsize,
}

/// Requests that wait in one queue; the next one gets a 429 at once. Each holds its header, which a
/// client makes as long as it likes, so they are not more than a busy server needs.
const WAITERS_MAX: usize = 1024;

impl Seats {
    /// So many reads and writes at a time; 0 is no limit. A request waits for a quarter of its time
    /// at most.
    pub fn new(reading: usize, mutating: usize, request_timeout: Duration) -> Self {
        let queue = |count: usize| {
            let seats = Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
            (count > 0).then(|| Queue { seats, waiters: AtomicUsize::new(0) })
        };
        Self { reading: queue(reading), mutating: queue(mutating), wait_max: request_timeout / 4 }
    }
}

impl Queue {
    /// Takes `width` seats at once, or none.
    async fn seat(&self, width: u32, give_up: tokio::time::Instant) -> Result<Seat, ApiError> {
        if let Ok(permit) = self.seats.clone().try_acquire_many_owned(width) {
            return Ok(Seat { _permit: permit });
        }
        let _waiting = Waiting::enter(&self.waiters).ok_or(ApiError::Overloaded)?;
        let permit = self.seats.clone().acquire_many_owned(width);
        match tokio::time::timeout_at(give_up, permit).await {
            Ok(Ok(permit)) => Ok(Seat { _permit: permit }),
            _ => Err(ApiError::Overloaded),
        }
    }
}

/// One of the bounded number of waiters.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(waiters: &'a AtomicUsize) -> Option<Self> {
        let waiting = Self(waiters);
        (waiters.fetch_add(1, Ordering::Relaxed) < WAITERS_MAX).then_some(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request's place among those that are served at the same time; given back when it is dropped.
///
/// Invariant: no seat is held while a client reads. The chain drops it when the answer is ready to be
/// sent, and the request's deadline drops it with the handler: a client that reads nothing would
/// keep all others out.
#[derive(Debug)]
pub struct Seat {
    _permit: OwnedSemaphorePermit,
}

/// Takes a seat for the time in which the request is handled.
pub(crate) async fn take_seat(seats: &Seats, cx: &Context) -> Result<Option<Seat>, ApiError> {
    let read_only = cx.info.is_read_only() || cx.info.verb == "head";
    let Some(queue) = (if read_only { &seats.reading } else { &seats.mutating }) else {
        return Ok(None);
    };
    if is_exempt(&cx.info, &cx.user) {
        return Ok(None);
    }
    let latest = tokio::time::Instant::now() + seats.wait_max;
    let give_up = cx.deadline.map_or(latest, |deadline| deadline.min(latest));
    queue.seat(1, give_up).await.map(Some)
}

/// Watches and the like need no seat: they would never give it back. `system:masters` needs none, so
/// that an admin can repair an overloaded server; a probe needs none, so that the server is not
/// restarted for being busy.
fn is_exempt(info: &RequestInfo, user: &User) -> bool {
    // Compat: what kube-apiserver's flow schemas `exempt` and `probes` let pass.
    let probe = !info.is_resource
        && info.verb == "get"
        && matches!(info.path.as_str(), "/healthz" | "/livez" | "/readyz");
    probe || info.is_long_running() || user.is_in(User::MASTERS)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::connection::Peer;

    fn request(verb: &str, path: &str, groups: &[&str]) -> Context {
        let mut cx =
            Context::new(Arc::new(Peer::detached(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)))));
        cx.info.verb = verb.into();
        cx.info.path = path.to_owned();
        cx.info.is_resource = path.starts_with("/api");
        cx.user.groups = groups.iter().map(|&group| group.into()).collect();
        cx
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_seat_waits_and_then_is_sent_away() {
        const PODS: &str = "/api/v1/pods";
        let seats = Seats::new(1, 1, Duration::from_mins(1));
        let first = take_seat(&seats, &request("list", PODS, &[])).await.expect("a free seat");
        assert!(first.is_some());
        let overloaded = || Err("Too many requests, please try again later.".to_owned());
        for (verb, path, groups, expected) in [
            ("get", PODS, &[] as &[&str], overloaded()),
            ("get", "/version", &[], overloaded()),
            ("get", "/readyz/ping", &[], overloaded()),
            ("get", "/readyz", &[], Ok(false)),
            ("get", "/livez", &["system:unauthenticated"], Ok(false)),
            ("get", "/healthz", &[], Ok(false)),
            ("create", PODS, &[], Ok(true)),
            ("watch", PODS, &[], Ok(false)),
            ("get", PODS, &["system:masters"], Ok(false)),
        ] {
            let began = tokio::time::Instant::now();
            let taken = take_seat(&seats, &request(verb, path, groups)).await;
            let waited = if taken.is_err() { 15 } else { 0 };
            assert_eq!(began.elapsed(), Duration::from_secs(waited), "{verb} {path} {groups:?}");
            let taken = taken.map(|seat| seat.is_some()).map_err(|error| error.to_string());
            assert_eq!(taken, expected, "{verb} {path} {groups:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_seat_that_gets_free_goes_to_who_waited() {
        let seats = Seats::new(1, 0, Duration::from_mins(1));
        let cx = request("get", "/version", &[]);
        let first = take_seat(&seats, &cx).await.expect("a free seat");
        let (second, ()) = tokio::join!(take_seat(&seats, &cx), async { drop(first) });
        assert!(second.expect("waited for").is_some());
        let unlimited = take_seat(&seats, &request("update", "/api/v1/pods", &[])).await;
        assert!(unlimited.expect("no limit").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_has_an_end_and_nobody_waits_beyond_the_deadline() {
        let seats = Seats::new(1, 0, Duration::from_mins(1));
        let mut cx = request("get", "/version", &[]);
        cx.deadline = Some(tokio::time::Instant::now() + Duration::from_secs(3));
        let _first = take_seat(&seats, &cx).await.expect("a free seat");
        let began = tokio::time::Instant::now();
        let waiting = (0..WAITERS_MAX).map(|_| take_seat(&seats, &cx));
        let waiting = futures_util::future::join_all(waiting);
        let (waited, beyond) = tokio::join!(waiting, async {
            let beyond = take_seat(&seats, &cx).await;
            assert_eq!(began.elapsed(), Duration::ZERO, "it does not wait");
            beyond
        });
        assert!(matches!(beyond, Err(ApiError::Overloaded)));
        assert!(waited.iter().all(|waited| matches!(waited, Err(ApiError::Overloaded))));
        assert_eq!(began.elapsed(), Duration::from_secs(3));
    }
}
