//! The seats and queues of one priority level: fair queuing for requests.
//!
//! Each queue has a virtual clock: the seat-seconds it was given. The level's clock `current_r` runs
//! as if all busy queues shared the seats evenly. A request is dispatched from the queue whose oldest
//! request would finish first in virtual time; since its duration is not known, it is charged a guess
//! ([`SERVICE_NANOS`]) first and the rest when it has finished.
//!
//! Nothing here waits or reads a clock: the time is an argument of every operation.

mod requests;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use meta::{RequestInfo, Str};

use self::requests::{NONE, Requests};
pub(crate) use self::requests::{RequestDump, RequestId, Waker};
use crate::metrics::SchemaMetrics;
use crate::priority_level::RejectReason;
use crate::seat_demand::Integrator;
use crate::seat_seconds::{Nanos, SeatSeconds};
use crate::shuffle_sharding::Dealer;
use crate::timing_histogram::TimingHistogram;
use crate::work_estimate::WorkEstimate;

/// The guess at how long a request takes.
const SERVICE_NANOS: Nanos = 3_000_000;

/// What happens to a request that finds no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitResponse {
    /// Cannot happen: there is a seat for every request.
    Exempt,
    Reject,
    Queue {
        dealer: Dealer,
        queue_length_max: usize,
    },
}

impl LimitResponse {
    pub(crate) fn queues(self) -> usize {
        match self {
            Self::Exempt | Self::Reject => 0,
            Self::Queue { dealer, .. } => dealer.deck_size(),
        }
    }

    /// How many requests the level may queue.
    pub(crate) fn waiting_max(self) -> usize {
        match self {
            Self::Exempt | Self::Reject => 0,
            Self::Queue { dealer, queue_length_max } => {
                dealer.deck_size().saturating_mul(queue_length_max)
            }
        }
    }
}

/// A request on arrival.
pub(crate) struct Arrival<'a> {
    pub(crate) estimate: WorkEstimate,
    /// Of the flow.
    pub(crate) hash: u64,
    pub(crate) distinguisher: Str,
    pub(crate) schema: &'a Arc<SchemaMetrics>,
    pub(crate) user: &'a Str,
    pub(crate) info: &'a RequestInfo,
}

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Executing(RequestId),
    Waiting(RequestId),
    Rejected(RejectReason),
}

pub(crate) struct QueueSet {
    response: LimitResponse,
    /// Seats that may be taken now.
    limit: u32,
    /// What utilization is measured against; the limit unless that is 0.
    denominator: f64,
    /// There may be more than are wanted, while those at the end drain.
    queues: Vec<Queue>,
    requests: Requests,
    /// Requests that were served and whose events are being sent, by end.
    lingering: BinaryHeap<Reverse<Lingering>>,
    now: Nanos,
    current_r: SeatSeconds,
    /// The queue that was dispatched from last; ties go to the next one.
    robin: usize,
    /// Arrivals in queues, for the rotation in [`Self::choose_queue`].
    enqueued: usize,
    waiting: u32,
    seats_waiting: u32,
    executing: u32,
    /// Of executing and lingering requests.
    seats_in_use: u32,
    /// Queues with a waiting or executing request.
    active_queues: usize,
    pub(crate) totals: Totals,
    pub(crate) demand: Integrator,
    pub(crate) timings: Timings,
    pub(crate) dispatch: DispatchMetrics,
}

#[derive(Debug)]
struct Queue {
    /// Oldest and newest waiting request.
    head: u32,
    tail: u32,
    waiting: usize,
    executing: u32,
    seats_in_use: u32,
    initial_seats_waiting: u32,
    seats_waiting: u32,
    work_waiting: SeatSeconds,
    next_dispatch_r: SeatSeconds,
}

impl Queue {
    const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        waiting: 0,
        executing: 0,
        seats_in_use: 0,
        initial_seats_waiting: 0,
        seats_waiting: 0,
        work_waiting: SeatSeconds::ZERO,
        next_dispatch_r: SeatSeconds::ZERO,
    };

    fn is_active(&self) -> bool {
        self.waiting > 0 || self.executing > 0
    }
}

struct Lingering {
    until: Nanos,
    seats: u32,
    queue: u32,
    schema: Arc<SchemaMetrics>,
}

impl PartialEq for Lingering {
    fn eq(&self, other: &Self) -> bool {
        self.until == other.until
    }
}
impl Eq for Lingering {}
impl PartialOrd for Lingering {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Lingering {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.until.cmp(&other.until)
    }
}

/// Requests since the start of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) dispatched: u64,
    pub(crate) rejected: u64,
    pub(crate) timed_out: u64,
    pub(crate) cancelled: u64,
}

/// Utilization over time.
pub(crate) struct Timings {
    pub(crate) seats: TimingHistogram,
    pub(crate) requests_waiting: TimingHistogram,
    pub(crate) requests_executing: TimingHistogram,
    pub(crate) demand: TimingHistogram,
}

const SEAT_UTILIZATION: &[f64] =
    &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
const REQUEST_UTILIZATION: &[f64] = &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];
const DEMAND: &[f64] = &[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0];

/// Virtual times at the latest dispatch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DispatchMetrics {
    pub(crate) r: SeatSeconds,
    /// Of the dispatched request.
    pub(crate) s: SeatSeconds,
    /// Least and greatest over the queues with waiting requests.
    pub(crate) s_bounds: [SeatSeconds; 2],
    /// The same, less the guessed work in progress.
    pub(crate) discounted_s_bounds: [SeatSeconds; 2],
}

impl QueueSet {
    pub(crate) fn new(response: LimitResponse, now: Nanos) -> Self {
        let mut set = Self {
            response,
            limit: 0,
            denominator: 1.0,
            queues: Vec::new(),
            requests: Requests::default(),
            lingering: BinaryHeap::new(),
            now,
            current_r: SeatSeconds::ZERO,
            robin: 0,
            enqueued: 0,
            waiting: 0,
            seats_waiting: 0,
            executing: 0,
            seats_in_use: 0,
            active_queues: 0,
            totals: Totals::default(),
            demand: Integrator::default(),
            timings: Timings {
                seats: TimingHistogram::new(SEAT_UTILIZATION),
                requests_waiting: TimingHistogram::new(REQUEST_UTILIZATION),
                requests_executing: TimingHistogram::new(REQUEST_UTILIZATION),
                demand: TimingHistogram::new(DEMAND),
            },
            dispatch: DispatchMetrics::default(),
        };
        set.set_response(now, response);
        set
    }

    /// Requests that wait keep their queue; a queue too many goes when it is idle.
    pub(crate) fn set_response(&mut self, now: Nanos, response: LimitResponse) {
        self.advance(now);
        self.response = response;
        if response.queues() > self.queues.len() {
            self.queues.resize_with(response.queues(), || Queue::EMPTY);
        }
        self.trim_queues();
    }

    /// A lower limit takes no seat away: nothing is dispatched until the requests fit again.
    pub(crate) fn set_limit(&mut self, now: Nanos, limit: u32, denominator: u32) {
        self.advance(now);
        self.limit = limit;
        self.denominator = f64::from(denominator.max(1));
        self.dispatch_all();
    }

    pub(crate) fn response(&self) -> LimitResponse {
        self.response
    }

    /// Seats that would be in use without the limit.
    pub(crate) fn seats_demanded(&self) -> u32 {
        self.seats_in_use + self.seats_waiting
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0
    }

    /// When seats get free without a request's end, if a request waits for that.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        let Reverse(first) = self.lingering.peek()?;
        (self.waiting > 0).then_some(first.until)
    }

    #[cfg(test)]
    pub(crate) fn is_executing(&self, id: RequestId) -> bool {
        self.requests.is_executing(id)
    }

    pub(crate) fn set_waker(&mut self, id: RequestId, waker: Waker) {
        self.requests.set_waker(id, waker);
    }

    /// Brings the clocks to `now`; releases the seats of requests that stopped lingering before.
    pub(crate) fn advance(&mut self, now: Nanos) {
        while let Some(Reverse(first)) = self.lingering.peek()
            && first.until <= now
        {
            self.sync(first.until);
            let Some(Reverse(ended)) = self.lingering.pop() else { break };
            self.release_seats(ended.seats, ended.queue, &ended.schema);
            self.dispatch_all();
        }
        self.sync(now);
    }

    /// Accounts for the time since the last operation, in which nothing changed.
    fn sync(&mut self, now: Nanos) {
        // Threads read the clock before they get the lock, so it can seem to run backwards.
        let elapsed = now.saturating_sub(self.now);
        if elapsed == 0 {
            return;
        }
        self.now = now;
        if self.active_queues > 0 {
            // Seats that are kept free for a wide request serve no queue. Counting them would let
            // virtual time run ahead of all queues, and their order become first come, first served.
            self.current_r += SeatSeconds::share(self.seats_in_use, self.active_queues, elapsed);
        }
        let demand = self.seats_demanded();
        self.demand.add(demand, elapsed);
        let waiting_max = self.response.waiting_max().max(1) as f64;
        let of_limit = |count: u32| f64::from(count) / self.denominator;
        self.timings.seats.add(of_limit(self.seats_in_use), elapsed);
        self.timings.requests_waiting.add(f64::from(self.waiting) / waiting_max, elapsed);
        self.timings.requests_executing.add(of_limit(self.executing), elapsed);
        self.timings.demand.add(of_limit(demand), elapsed);
    }

    pub(crate) fn arrive(&mut self, now: Nanos, arrival: &Arrival<'_>) -> Admission {
        self.advance(now);
        let seats = arrival.estimate.max_seats();
        let LimitResponse::Queue { dealer, queue_length_max } = self.response else {
            if !self.accommodates(seats) {
                return self.reject(RejectReason::ConcurrencyLimit, arrival.schema);
            }
            let id = self.requests.insert(arrival, NONE, self.now, self.current_r);
            self.execute(id);
            return Admission::Executing(id);
        };
        let chosen = self.choose_queue(dealer, arrival.hash);
        let queue = &mut self.queues[chosen];
        if self.seats_in_use >= self.limit && queue.waiting >= queue_length_max {
            return self.reject(RejectReason::QueueFull, arrival.schema);
        }
        if !queue.is_active() {
            queue.next_dispatch_r = self.current_r;
            self.active_queues += 1;
        }
        arrival.schema.queue_lengths.observe(queue.waiting as u64 + 1);
        let id = self.requests.insert(arrival, chosen as u32, self.now, self.current_r);
        if self.waiting == 0 && self.seats_in_use < self.limit && self.accommodates(seats) {
            // The only candidate: there is nothing to compare it with.
            self.bound_next_dispatch(chosen, self.current_r);
            let s = self.queues[chosen].next_dispatch_r;
            let discounted = s - self.work_in_progress(chosen);
            self.note_dispatch(s, [s; 2], [discounted; 2]);
            self.dispatch_from(chosen, id);
            return Admission::Executing(id);
        }
        self.enqueue(chosen, id);
        self.dispatch_all();
        if self.requests.is_executing(id) {
            Admission::Executing(id)
        } else {
            Admission::Waiting(id)
        }
    }

    /// A request that waits too long leaves its queue. False if it was dispatched meanwhile.
    pub(crate) fn time_out(&mut self, now: Nanos, id: RequestId) -> bool {
        self.advance(now);
        if self.requests.is_executing(id) {
            return false;
        }
        self.totals.timed_out += 1;
        self.eject(id, RejectReason::TimeOut);
        true
    }

    /// The request is done, or its client has left. Returns how long it was executing.
    pub(crate) fn leave(&mut self, now: Nanos, id: RequestId) -> Option<Nanos> {
        self.advance(now);
        if self.requests.is_executing(id) {
            let executed = self.finish(id);
            self.dispatch_all();
            return Some(executed);
        }
        self.totals.cancelled += 1;
        self.eject(id, RejectReason::Cancelled);
        None
    }

    fn reject(&mut self, reason: RejectReason, schema: &SchemaMetrics) -> Admission {
        self.totals.rejected += 1;
        schema.reject(reason);
        Admission::Rejected(reason)
    }

    /// Takes a waiting request out of its queue, for good.
    fn eject(&mut self, id: RequestId, reason: RejectReason) {
        let queue = self.requests[id].queue as usize;
        self.unlink(queue, id);
        self.totals.rejected += 1;
        self.requests[id].schema().reject(reason);
        self.requests.remove(id);
        if self.queues[queue].is_active() {
            self.bound_to_oldest(queue);
        } else {
            self.active_queues -= 1;
            self.trim_queues();
        }
        // What waited behind a wide request may fit.
        self.dispatch_all();
    }

    fn finish(&mut self, id: RequestId) -> Nanos {
        let request = &self.requests[id];
        let executed = self.now.saturating_sub(request.start);
        let (estimate, queue) = (request.estimate, request.queue);
        let schema = self.requests.remove(id);
        self.executing -= 1;
        schema.executing.sub(1);
        if queue != NONE {
            let at = queue as usize;
            let charged = SeatSeconds::new(estimate.initial_seats, SERVICE_NANOS);
            let used = SeatSeconds::new(estimate.initial_seats, executed);
            self.queues[at].executing -= 1;
            self.queues[at].next_dispatch_r += used - charged;
            if self.queues[at].is_active() {
                self.bound_to_oldest(at);
            } else {
                self.active_queues -= 1;
            }
        }
        let lingers = u64::try_from(estimate.additional_latency.as_nanos()).unwrap_or(u64::MAX);
        let seats = estimate.max_seats();
        if lingers == 0 {
            self.release_seats(seats, queue, &schema);
        } else {
            let until = self.now.saturating_add(lingers);
            self.lingering.push(Reverse(Lingering { until, seats, queue, schema }));
        }
        executed
    }

    fn release_seats(&mut self, seats: u32, queue: u32, schema: &SchemaMetrics) {
        self.seats_in_use -= seats;
        schema.seats_executing.sub(seats);
        if queue != NONE {
            self.queues[queue as usize].seats_in_use -= seats;
            self.trim_queues();
        }
    }

    /// Removes idle queues from the end, as long as there are too many.
    fn trim_queues(&mut self) {
        while self.queues.len() > self.response.queues()
            && self.queues.last().is_some_and(|last| !last.is_active() && last.seats_in_use == 0)
        {
            self.queues.pop();
        }
        if self.robin >= self.queues.len() {
            self.robin = 0;
        }
    }

    /// Of the flow's hand, the queue with the least work waiting.
    fn choose_queue(&mut self, dealer: Dealer, hash: u64) -> usize {
        let hand = dealer.deal(hash);
        // Ties go to each card in turn, so that overlapping hands do not favour their first cards.
        let offset = self.enqueued % dealer.hand_size();
        self.enqueued = self.enqueued.wrapping_add(1);
        let (before, from) = hand.cards().split_at(offset);
        let cards = from.iter().chain(before).map(|&card| card as usize);
        let mut best = from[0] as usize;
        if self.waiting > 0 {
            best = cards.min_by_key(|&card| self.queues[card].work_waiting).unwrap_or(best);
        }
        best
    }

    fn enqueue(&mut self, at: usize, id: RequestId) {
        let queue = &mut self.queues[at];
        self.requests.link(id, queue.tail);
        if queue.tail == NONE {
            queue.head = id.index();
        }
        queue.tail = id.index();
        let request = &self.requests[id];
        let seats = request.estimate.max_seats();
        queue.waiting += 1;
        queue.initial_seats_waiting += request.estimate.initial_seats;
        queue.seats_waiting += seats;
        queue.work_waiting += request.total_work;
        self.waiting += 1;
        self.seats_waiting += seats;
        let schema = request.schema();
        schema.waiting.add(1);
        schema.seats_waiting.add(seats);
        self.demand.note(self.seats_in_use + self.seats_waiting);
        self.bound_to_oldest(at);
    }

    fn unlink(&mut self, at: usize, id: RequestId) {
        let (previous, next) = self.requests.unlink(id);
        let queue = &mut self.queues[at];
        if previous == NONE {
            queue.head = next;
        }
        if next == NONE {
            queue.tail = previous;
        }
        let request = &self.requests[id];
        let seats = request.estimate.max_seats();
        queue.waiting -= 1;
        queue.initial_seats_waiting -= request.estimate.initial_seats;
        queue.seats_waiting -= seats;
        queue.work_waiting -= request.total_work;
        self.waiting -= 1;
        self.seats_waiting -= seats;
        let schema = request.schema();
        schema.waiting.sub(1);
        schema.seats_waiting.sub(seats);
    }

    fn dispatch_all(&mut self) {
        while self.waiting > 0 && self.seats_in_use < self.limit && self.dispatch_one() {}
    }

    /// Dispatches the oldest request of the queue that is next in fair order. False if it does not
    /// fit: no other request overtakes it, or a wide request would wait for ever.
    fn dispatch_one(&mut self) -> bool {
        let mut best: Option<(SeatSeconds, usize)> = None;
        let mut s_bounds = [SeatSeconds::MAX, SeatSeconds::ZERO];
        let mut discounted_s_bounds = s_bounds;
        let count = self.queues.len();
        for step in 1..=count {
            let at = (self.robin + step) % count;
            let queue = &self.queues[at];
            if queue.head == NONE {
                continue;
            }
            let s = queue.next_dispatch_r;
            widen(&mut s_bounds, s);
            widen(&mut discounted_s_bounds, s - self.work_in_progress(at));
            let finish = s + self.requests.at(queue.head).total_work;
            if best.is_none_or(|(least, _)| finish < least) {
                best = Some((finish, at));
            }
        }
        let Some((_, at)) = best else { return false };
        let id = RequestId::new(self.queues[at].head);
        let request = &self.requests[id];
        if !self.accommodates(request.estimate.max_seats()) {
            request.schema().not_accommodated.fetch_add(1, Relaxed);
            return false;
        }
        self.unlink(at, id);
        self.note_dispatch(self.queues[at].next_dispatch_r, s_bounds, discounted_s_bounds);
        self.dispatch_from(at, id);
        true
    }

    /// Starts a request that is not linked in its queue any more.
    fn dispatch_from(&mut self, at: usize, id: RequestId) {
        self.robin = at;
        let work = self.requests[id].total_work;
        // A level whose limit is lower than what the events of a write were to take: the same work,
        // with fewer seats and for longer.
        let limit = self.limit;
        let estimate = &mut self.requests[id].estimate;
        if estimate.final_seats > limit {
            let lingers = u64::try_from(estimate.additional_latency.as_nanos()).unwrap_or(u64::MAX);
            let final_work = SeatSeconds::new(estimate.final_seats, lingers);
            estimate.final_seats = limit;
            estimate.additional_latency =
                std::time::Duration::from_nanos(final_work.duration_for(limit));
        }
        let queue = &mut self.queues[at];
        queue.next_dispatch_r += work;
        queue.executing += 1;
        queue.seats_in_use += self.requests[id].estimate.max_seats();
        self.bound_to_oldest(at);
        self.execute(id);
    }

    fn execute(&mut self, id: RequestId) {
        let now = self.now;
        let request = &mut self.requests[id];
        request.start = now;
        let seats = request.estimate.max_seats();
        let schema = request.schema();
        schema.executing.add(1);
        schema.seats_executing.add(seats);
        schema.dispatched.fetch_add(1, Relaxed);
        self.requests.start(id);
        self.totals.dispatched += 1;
        self.executing += 1;
        self.seats_in_use += seats;
        self.demand.note(self.seats_in_use + self.seats_waiting);
    }

    fn accommodates(&self, seats: u32) -> bool {
        match self.response {
            LimitResponse::Exempt => true,
            // Wider than the level: it has the level for itself.
            _ if seats > self.limit => self.executing == 0,
            _ => self.seats_in_use + seats <= self.limit,
        }
    }

    fn work_in_progress(&self, at: usize) -> SeatSeconds {
        SeatSeconds::new(self.queues[at].seats_in_use, SERVICE_NANOS)
    }

    fn bound_to_oldest(&mut self, at: usize) {
        let head = self.queues[at].head;
        if head != NONE {
            self.bound_next_dispatch(at, self.requests.at(head).arrival_r);
        }
    }

    /// A request is not dispatched before it arrived, in virtual time either. Otherwise a queue that
    /// could not use its share would save it up, and lock the other queues out later.
    fn bound_next_dispatch(&mut self, at: usize, arrival_r: SeatSeconds) {
        let queue = &mut self.queues[at];
        queue.next_dispatch_r = queue.next_dispatch_r.max(arrival_r);
    }

    fn note_dispatch(
        &mut self,
        s: SeatSeconds,
        s_bounds: [SeatSeconds; 2],
        discounted_s_bounds: [SeatSeconds; 2],
    ) {
        self.dispatch = DispatchMetrics { r: self.current_r, s, s_bounds, discounted_s_bounds };
    }

    pub(crate) fn current_r(&self) -> SeatSeconds {
        self.current_r
    }

    pub(crate) fn dump(&self) -> Dump {
        let queues = self.queues.iter().map(|queue| QueueDump {
            waiting: queue.waiting,
            executing: queue.executing,
            seats_in_use: queue.seats_in_use,
            next_dispatch_r: queue.next_dispatch_r,
            initial_seats: queue.initial_seats_waiting,
            max_seats: queue.seats_waiting,
            total_work: queue.work_waiting,
        });
        Dump {
            queues: queues.collect(),
            is_idle: self.is_idle(),
            waiting: self.waiting,
            executing: self.executing,
            totals: self.totals,
        }
    }

    /// Queued requests by queue and place, then the executing ones.
    pub(crate) fn dump_requests(&self) -> Vec<RequestDump> {
        let mut dumps = Vec::new();
        for queue in &self.queues {
            let mut at = queue.head;
            let mut place = 0;
            while at != NONE {
                dumps.push(self.requests.dump(at, place));
                place += 1;
                at = self.requests.at(at).next();
            }
        }
        dumps.extend(self.requests.executing().map(|at| self.requests.dump(at, -1)));
        dumps
    }
}

fn widen(bounds: &mut [SeatSeconds; 2], s: SeatSeconds) {
    *bounds = [bounds[0].min(s), bounds[1].max(s)];
}

/// The state of a level, for `/debug/api_priority_and_fairness`.
pub(crate) struct Dump {
    pub(crate) queues: Vec<QueueDump>,
    pub(crate) is_idle: bool,
    pub(crate) waiting: u32,
    pub(crate) executing: u32,
    pub(crate) totals: Totals,
}

pub(crate) struct QueueDump {
    pub(crate) waiting: usize,
    pub(crate) executing: u32,
    pub(crate) seats_in_use: u32,
    pub(crate) next_dispatch_r: SeatSeconds,
    pub(crate) initial_seats: u32,
    pub(crate) max_seats: u32,
    pub(crate) total_work: SeatSeconds,
}
