//! How many requests are served at the same time. The others wait for a seat, in the order they came; who would wait too
//! long is told to try again.
//!
//! Priority and fairness will order the queues here; until then there is one queue for reads and one for writes.

use std::sync::Arc;
use std::time::Duration;

use meta::{ApiError, User};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::context::Context;

/// The seats of a server.
pub struct Seats {
    reading: Option<Arc<Semaphore>>,
    mutating: Option<Arc<Semaphore>>,
    wait_max: Duration,
}

impl Seats {
    /// So many reads and writes at a time; 0 is no limit. A request waits for a quarter of its time at most.
    pub fn new(reading: usize, mutating: usize, request_timeout: Duration) -> Self {
        let seats = |count: usize| {
            (count > 0).then(|| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS))))
        };
        Self { reading: seats(reading), mutating: seats(mutating), wait_max: request_timeout / 4 }
    }
}

/// A request's place among those that are served at the same time; given back when it is dropped.
#[derive(Debug)]
pub struct Seat(#[expect(dead_code, reason = "held, never read")] OwnedSemaphorePermit);

/// Takes a seat, to be held until the answer is sent. Watches and the like need none: they would never give it back.
/// `system:masters` needs none, so that an admin can repair an overloaded server.
pub(crate) async fn take_seat(seats: &Seats, cx: &Context) -> Result<Option<Seat>, ApiError> {
    let read_only = cx.info.is_read_only() || cx.info.verb == "head";
    let Some(seats_of_kind) = (if read_only { &seats.reading } else { &seats.mutating }) else {
        return Ok(None);
    };
    if cx.info.is_long_running() || cx.user.is_in(User::MASTERS) {
        return Ok(None);
    }
    if let Ok(seat) = seats_of_kind.clone().try_acquire_owned() {
        return Ok(Some(Seat(seat)));
    }
    let waited = tokio::time::timeout(seats.wait_max, seats_of_kind.clone().acquire_owned()).await;
    waited.ok().and_then(Result::ok).map(|seat| Some(Seat(seat))).ok_or(ApiError::Overloaded)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::connection::Peer;

    fn request(verb: &str, groups: &[&str]) -> Context {
        let mut cx =
            Context::new(Arc::new(Peer::detached(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)))));
        cx.info.verb = verb.into();
        cx.info.is_resource = true;
        cx.user.groups = groups.iter().map(|&group| group.into()).collect();
        cx
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_seat_waits_and_then_is_sent_away() {
        let seats = Seats::new(1, 1, Duration::from_mins(1));
        let first = take_seat(&seats, &request("list", &[])).await.expect("a free seat");
        assert!(first.is_some());
        for (verb, groups, expected) in [
            ("get", &[] as &[&str], Err("Too many requests, please try again later.".to_owned())),
            ("create", &[], Ok(true)),
            ("watch", &[], Ok(false)),
            ("get", &["system:masters"], Ok(false)),
        ] {
            let began = tokio::time::Instant::now();
            let taken = take_seat(&seats, &request(verb, groups)).await;
            let waited = if taken.is_err() { 15 } else { 0 };
            assert_eq!(began.elapsed(), Duration::from_secs(waited), "{verb} {groups:?}");
            let taken = taken.map(|seat| seat.is_some()).map_err(|error| error.to_string());
            assert_eq!(taken, expected, "{verb} {groups:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_seat_that_gets_free_goes_to_who_waited() {
        let seats = Seats::new(1, 0, Duration::from_mins(1));
        let cx = request("get", &[]);
        let first = take_seat(&seats, &cx).await.expect("a free seat");
        let (second, ()) = tokio::join!(take_seat(&seats, &cx), async { drop(first) });
        assert!(second.expect("waited for").is_some());
        let unlimited = take_seat(&seats, &request("update", &[])).await.expect("no limit");
        assert!(unlimited.is_none());
    }
}
