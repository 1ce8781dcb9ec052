//! A priority level as requests see it: they take a seat, or wait for one.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use meta::Str;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::metrics::SchemaMetrics;
use crate::queue_set::{Admission, Arrival, LimitResponse, QueueSet, RequestId};
use crate::read_vs_write::ReadVsWrite;
use crate::retry_after::RetryAfter;
use crate::seat_seconds::Nanos;

/// Why a request got no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// A level without queues has no seat left.
    ConcurrencyLimit,
    /// The shortest queue of the flow is full.
    QueueFull,
    /// The request waited too long.
    TimeOut,
    /// The client left while the request waited.
    Cancelled,
}

impl RejectReason {
    pub(crate) const ALL: [Self; 4] =
        [Self::ConcurrencyLimit, Self::QueueFull, Self::TimeOut, Self::Cancelled];

    /// The value of the label `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The request gets a 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reason: RejectReason,
    /// Seconds until the client should try again.
    pub retry_after: u32,
}

pub(crate) struct PriorityLevel {
    pub(crate) name: Str,
    clock: Clock,
    queues: Mutex<Guarded>,
    /// Requests never wait here. It is so for the whole life of a level.
    exempt: bool,
    /// There is more than one queue.
    has_queues: AtomicBool,
    /// The most seats that the work estimator gives a request; 0: no limit.
    pub(crate) seats_max: AtomicU32,
    retry_after: RetryAfter,
    read_vs_write: Arc<ReadVsWrite>,
}

struct Guarded {
    set: QueueSet,
    /// A task waits for the next seats that get free without a request's end.
    timer_armed: bool,
}

/// The time since the controller was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(pub(crate) Instant);

impl Clock {
    pub(crate) fn now(self) -> Nanos {
        self.at(Instant::now())
    }

    fn at(self, instant: Instant) -> Nanos {
        u64::try_from(instant.saturating_duration_since(self.0).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The timer of a level. If it panics, the next request that waits starts it again.
struct ArmedTimer(Arc<PriorityLevel>);

impl Drop for ArmedTimer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().timer_armed = false;
        }
    }
}

impl PriorityLevel {
    pub(crate) fn new(
        name: Str,
        response: LimitResponse,
        clock: Clock,
        read_vs_write: Arc<ReadVsWrite>,
    ) -> Self {
        let set = QueueSet::new(response, clock.now());
        Self {
            name,
            clock,
            queues: Mutex::new(Guarded { set, timer_armed: false }),
            exempt: response == LimitResponse::Exempt,
            has_queues: AtomicBool::new(response.queues() > 1),
            seats_max: AtomicU32::new(0),
            retry_after: RetryAfter::default(),
            read_vs_write,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Guarded> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_queues(&self) -> bool {
        self.has_queues.load(Relaxed)
    }

    pub(crate) fn set_has_queues(&self, response: LimitResponse) {
        self.has_queues.store(response.queues() > 1, Relaxed);
    }

    /// Runs an operation on the level's state at the present time.
    pub(crate) fn with<T>(
        self: &Arc<Self>,
        operation: impl FnOnce(&mut QueueSet, Nanos) -> T,
    ) -> T {
        let now = self.clock.now();
        let mut guarded = self.lock();
        guarded.set.advance(now);
        let done = operation(&mut guarded.set, now);
        self.arm_timer(&mut guarded);
        done
    }

    /// Makes sure that requests wake up when seats get free after the events of a write were sent.
    /// Without waiting requests the next operation on the level finds the seats free by itself.
    fn arm_timer(self: &Arc<Self>, guarded: &mut Guarded) {
        let Some(mut at) = guarded.set.next_event().filter(|_| !guarded.timer_armed) else {
            return;
        };
        // Outside of the runtime the server is going down, and nothing waits.
        let Ok(runtime) = Handle::try_current() else { return };
        guarded.timer_armed = true;
        let timer = ArmedTimer(Arc::clone(self));
        runtime.spawn(async move {
            let level = &timer.0;
            loop {
                sleep_until(level.clock.0 + Duration::from_nanos(at)).await;
                let now = level.clock.now();
                let mut guarded = level.lock();
                guarded.set.advance(now);
                match guarded.set.next_event() {
                    Some(next) => at = next,
                    None => {
                        guarded.timer_armed = false;
                        return;
                    }
                }
            }
        });
    }

    /// Takes the seats of a request; waits for them until `wait_until`. Dropping the future takes the
    /// request out of its queue.
    pub(crate) async fn seat(
        self: &Arc<Self>,
        arrival: Arrival<'_>,
        traffic: Traffic,
        wait_until: Instant,
    ) -> Result<Seat, Rejection> {
        let began = Instant::now();
        let now = self.clock.at(began);
        let (id, waiter) = self.arrive(now, &arrival)?;
        let (level, schema) = (Arc::clone(self), Arc::clone(arrival.schema));
        let mut seat = Seat { level, schema, id, traffic, began, phase: Phase::Waiting };
        match waiter {
            None if self.exempt => {}
            None => arrival.schema.waited_executed.observe(0),
            Some(waiter) => {
                let waiting = self.read_vs_write.wait(traffic.mutating, now);
                let woken = timeout_at(wait_until, waiter).await;
                drop(waiting);
                if woken.is_err() && self.with(|set, now| set.time_out(now, id)) {
                    seat.phase = Phase::Gone;
                    arrival.schema.waited_rejected.observe_duration(began.elapsed());
                    return Err(self.rejected(RejectReason::TimeOut, self.clock.now()));
                }
                seat.began = Instant::now();
                arrival.schema.waited_executed.observe_duration(seat.began - began);
            }
        }
        seat.phase = Phase::Executing;
        self.read_vs_write.enter(traffic.mutating, self.clock.at(seat.began));
        Ok(seat)
    }

    /// The request's slot, and what it waits for if it has to.
    fn arrive(
        self: &Arc<Self>,
        now: Nanos,
        arrival: &Arrival<'_>,
    ) -> Result<(RequestId, Option<oneshot::Receiver<()>>), Rejection> {
        let mut guarded = self.lock();
        match guarded.set.arrive(now, arrival) {
            Admission::Executing(id) => Ok((id, None)),
            Admission::Waiting(id) => {
                let (waker, waiter) = oneshot::channel();
                guarded.set.set_waker(id, waker);
                self.arm_timer(&mut guarded);
                Ok((id, Some(waiter)))
            }
            Admission::Rejected(reason) => {
                drop(guarded);
                arrival.schema.waited_rejected.observe(0);
                Err(self.rejected(reason, now))
            }
        }
    }

    fn rejected(&self, reason: RejectReason, now: Nanos) -> Rejection {
        Rejection { reason, retry_after: self.retry_after.record(now / 1_000_000_000) }
    }
}

/// What metrics tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) mutating: bool,
    /// A watch holds its seats until it is initialized.
    pub(crate) watch: bool,
}

/// A request's seats; given back when it is dropped.
pub struct Seat {
    level: Arc<PriorityLevel>,
    schema: Arc<SchemaMetrics>,
    id: RequestId,
    traffic: Traffic,
    /// Of waiting, then of the execution.
    began: Instant,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Executing,
    /// The slot was given back.
    Gone,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Seat({} {} {:?})", self.level.name, self.schema.name, self.phase)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.phase == Phase::Gone {
            return;
        }
        let now = Instant::now();
        let spent = now - self.began;
        if self.phase == Phase::Waiting {
            self.schema.waited_rejected.observe_duration(spent);
        } else {
            self.level.read_vs_write.leave(self.traffic.mutating, self.level.clock.at(now));
            let executed = if self.traffic.watch {
                &self.schema.executed_watch
            } else {
                &self.schema.executed_regular
            };
            executed.observe_duration(spent);
        }
        let now = self.level.clock.at(now);
        let mut guarded = self.level.lock();
        // A request that was dispatched and has not been polled since is finished as well.
        guarded.set.leave(now, self.id);
        self.level.arm_timer(&mut guarded);
    }
}
