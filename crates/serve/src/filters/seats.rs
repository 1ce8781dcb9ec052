//! How many requests are served at the same time: by priority and fairness, or by two plain limits
//! with `--enable-priority-and-fairness=false`.

use std::sync::Arc;
use std::time::Duration;

use flowcontrol::FlowController;
use meta::{ApiError, User};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::context::Context;

/// What decides whether a request is served now, later or not at all.
pub enum FlowControl {
    PriorityAndFairness(Arc<FlowController>),
    MaxInFlight(MaxInFlight),
}

/// Plain limits for reads and writes. A request that finds no seat gets a 429 at once.
pub struct MaxInFlight {
    reading: Option<Arc<Semaphore>>,
    mutating: Option<Arc<Semaphore>>,
}

impl MaxInFlight {
    /// So many reads and writes at a time; 0 is no limit.
    pub fn new(reading: usize, mutating: usize) -> Self {
        let seats = |count: usize| {
            (count > 0).then(|| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS))))
        };
        Self { reading: seats(reading), mutating: seats(mutating) }
    }

    fn seat(&self, cx: &Context) -> Result<Option<Seat>, ApiError> {
        let seats = if cx.info.is_read_only() { &self.reading } else { &self.mutating };
        let Some(seats) = seats.as_ref().filter(|_| !cx.info.is_long_running()) else {
            return Ok(None);
        };
        match seats.clone().try_acquire_owned() {
            Ok(permit) => Ok(Some(Seat(Kind::Plain { _permit: permit }))),
            // An admin can repair an overloaded server.
            Err(_) if cx.user.is_in(User::MASTERS) => Ok(None),
            Err(_) => Err(ApiError::Overloaded { retry_after_seconds: 1 }),
        }
    }
}

/// A request's place among those that are served at the same time; given back when it is dropped.
///
/// Invariant: no seat is held while a client reads. The chain drops it when the answer is ready to be
/// sent, and the request's deadline drops it with the handler: a client that reads nothing would
/// keep all others out.
#[derive(Debug)]
pub struct Seat(#[expect(dead_code, reason = "held, never read")] Kind);

#[derive(Debug)]
enum Kind {
    Plain { _permit: OwnedSemaphorePermit },
    Fair { _seat: flowcontrol::Seat },
}

/// Takes a seat for the time in which the request is handled; a watch holds it until it is
/// registered with the cache. Other long-running requests take none: they would never give it back.
pub(crate) async fn take_seat(
    flow_control: &FlowControl,
    cx: &mut Context,
    query: &str,
    request_timeout: Duration,
) -> Result<Option<Seat>, ApiError> {
    let controller = match flow_control {
        FlowControl::MaxInFlight(limits) => return limits.seat(cx),
        FlowControl::PriorityAndFairness(controller) => controller,
    };
    let watch = cx.info.is_resource && cx.info.verb == "watch";
    if cx.info.is_long_running() && !watch {
        return Ok(None);
    }
    let request = flowcontrol::Request { info: &cx.info, user: &cx.user, query };
    let schema = controller.classify(&request);
    let began = Instant::now();
    let seat = controller.seat(&schema, &request, wait_until(cx, request_timeout)).await;
    let waited = began.elapsed();
    let registered = seat.is_ok() && watch;
    let registered = registered.then(|| controller.register_watch(&cx.info, query)).flatten();
    tracing::trace!(
        v = 6,
        audit_id = cx.audit.id,
        apf_pl = %schema.level_name(),
        apf_fs = %schema.name,
        rejected = seat.as_ref().err().map(|rejection| rejection.reason.as_str()),
        "flow control"
    );
    if let Some(registered) = registered {
        cx.hold(registered);
    }
    cx.flow_schema = Some(schema);
    cx.waited_for_seat = waited;
    match seat {
        Ok(seat) => Ok(Some(Seat(Kind::Fair { _seat: seat }))),
        Err(rejection) => Err(ApiError::Overloaded { retry_after_seconds: rejection.retry_after }),
    }
}

/// A request waits for a quarter of the time that it has, a minute at most. A watch has no deadline.
fn wait_until(cx: &Context, request_timeout: Duration) -> Instant {
    let received = Instant::from_std(cx.received);
    let allowed = cx
        .deadline
        .map_or(request_timeout, |deadline| deadline.saturating_duration_since(received));
    received + (allowed / 4).min(WAIT_MAX)
}

const WAIT_MAX: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use flowcontrol::{ObjectCounts, ObjectStatistics, Options};

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

    const PODS: &str = "/api/v1/pods";
    const TIMEOUT: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn without_priority_and_fairness_a_request_without_seat_is_rejected_at_once() {
        let limits = FlowControl::MaxInFlight(MaxInFlight::new(1, 1));
        let take = async |mut cx: Context| {
            let taken = take_seat(&limits, &mut cx, "", TIMEOUT).await;
            taken.map_err(|error| error.to_string())
        };
        let first = take(request("list", PODS, &[])).await.expect("a free seat");
        assert!(first.is_some());
        let overloaded = || Err("Too many requests, please try again later.".to_owned());
        for (verb, path, groups, expected) in [
            ("get", PODS, &[] as &[&str], overloaded()),
            ("get", "/version", &[], overloaded()),
            ("create", PODS, &[], Ok(true)),
            ("watch", PODS, &[], Ok(false)),
            ("get", PODS, &["system:masters"], Ok(false)),
        ] {
            let taken = take(request(verb, path, groups)).await.map(|seat| seat.is_some());
            assert_eq!(taken, expected, "{verb} {path} {groups:?}");
        }
        drop(first);
        let unlimited = FlowControl::MaxInFlight(MaxInFlight::new(0, 0));
        let mut cx = request("get", PODS, &[]);
        assert!(take_seat(&unlimited, &mut cx, "", TIMEOUT).await.expect("no limit").is_none());
    }

    struct NoObjects;

    impl ObjectCounts for NoObjects {
        fn statistics(&self, _: &meta::RequestInfo) -> Option<ObjectStatistics> {
            None
        }
    }

    #[tokio::test(start_paused = true)]
    async fn with_it_requests_take_the_seats_of_their_level() {
        // One seat for catch-all, which has no queues.
        let options = Options { seats: 1, lists_by_size: true, counts: Arc::new(NoObjects) };
        let controller = Arc::new(FlowController::new(options));
        let flow_control = FlowControl::PriorityAndFairness(controller.clone());
        let authenticated: &[&str] = &["system:authenticated"];
        let mut first = request("get", PODS, authenticated);
        let held = take_seat(&flow_control, &mut first, "", TIMEOUT).await.expect("a free seat");
        assert!(held.is_some());
        assert_eq!(first.flow_schema.expect("classified").name, "catch-all");
        for (verb, path, groups, expected) in [
            ("get", PODS, authenticated, Err(())),
            ("watch", PODS, authenticated, Err(())),
            ("proxy", PODS, authenticated, Ok(false)),
            ("get", PODS, &["system:masters"], Ok(true)),
            ("watch", PODS, &["system:masters"], Ok(true)),
        ] {
            let mut cx = request(verb, path, groups);
            let taken = take_seat(&flow_control, &mut cx, "", TIMEOUT).await;
            let taken = taken.map(|seat| seat.is_some()).map_err(|_| ());
            assert_eq!(taken, expected, "{verb} {path} {groups:?}");
            assert_eq!(cx.flow_schema.is_some(), verb != "proxy", "{verb}: named in a header");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_a_quarter_of_its_time() {
        // Deadline and request timeout in seconds; wait.
        for (deadline, timeout, expected) in
            [(Some(40), 60, 10), (None, 60, 15), (Some(3600), 60, 60), (None, 3600, 60)]
        {
            let mut cx = request("get", PODS, &[]);
            let received = Instant::from_std(cx.received);
            cx.deadline = deadline.map(|seconds| received + Duration::from_secs(seconds));
            let until = wait_until(&cx, Duration::from_secs(timeout));
            assert_eq!(until - received, Duration::from_secs(expected), "{deadline:?} {timeout}");
        }
    }
}
