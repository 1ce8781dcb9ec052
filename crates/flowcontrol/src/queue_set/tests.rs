use std::time::Duration;

use proptest::prelude::*;

use super::*;

const MILLI: Nanos = 1_000_000;

fn schema() -> Arc<SchemaMetrics> {
    Arc::new(SchemaMetrics::new("level".into(), "schema".into()))
}

fn queueing(queues: usize, hand_size: usize, queue_length_max: usize) -> LimitResponse {
    LimitResponse::Queue { dealer: Dealer::new(queues, hand_size).unwrap(), queue_length_max }
}

fn estimate(initial_seats: u32, final_seats: u32, lingers_ms: u64) -> WorkEstimate {
    let additional_latency = Duration::from_millis(lingers_ms);
    WorkEstimate { initial_seats, final_seats, additional_latency }
}

/// A level on a clock that only the test moves.
struct Bench {
    set: QueueSet,
    schema: Arc<SchemaMetrics>,
    now: Nanos,
    arrived: u64,
}

impl Bench {
    fn new(response: LimitResponse, limit: u32) -> Self {
        let mut set = QueueSet::new(response, 0);
        set.set_limit(0, limit, limit);
        Self { set, schema: schema(), now: 0, arrived: 0 }
    }

    fn arrive(&mut self, hash: u64, estimate: WorkEstimate) -> Admission {
        let (user, info) = ("anna".into(), RequestInfo::default());
        let arrival = Arrival {
            estimate,
            hash,
            distinguisher: Str::default(),
            schema: &self.schema,
            user: &user,
            info: &info,
        };
        self.arrived += 1;
        self.set.arrive(self.now, &arrival)
    }

    fn one(&mut self, hash: u64) -> Admission {
        self.arrive(hash, estimate(1, 0, 0))
    }

    fn leave(&mut self, id: RequestId) {
        self.set.leave(self.now, id);
    }

    /// Everything that must hold between operations.
    fn check(&self) {
        let set = &self.set;
        let (mut waiting, mut seats_waiting, mut active) = (0, 0, 0);
        for (at, queue) in set.queues.iter().enumerate() {
            let (mut index, mut previous, mut length) = (queue.head, NONE, 0);
            let mut work = SeatSeconds::ZERO;
            while index != NONE {
                let id = RequestId::new(index);
                assert!(!set.requests.is_executing(id));
                assert_eq!(set.requests[id].queue as usize, at);
                work += set.requests[id].total_work;
                seats_waiting += set.requests[id].estimate.max_seats();
                length += 1;
                (previous, index) = (index, set.requests[id].next());
            }
            assert_eq!(queue.tail, previous);
            assert_eq!(queue.waiting, length);
            assert_eq!(queue.work_waiting, work);
            waiting += length as u32;
            active += usize::from(queue.is_active());
        }
        assert_eq!((set.waiting, set.seats_waiting), (waiting, seats_waiting));
        assert_eq!(set.active_queues, active);
        let executing: Vec<u32> = set.requests.executing().collect();
        assert_eq!(set.executing as usize, executing.len());
        let seats: u32 = executing.iter().map(|&at| set.requests.at(at).estimate.max_seats()).sum();
        let lingering: u32 = set.lingering.iter().map(|Reverse(lingering)| lingering.seats).sum();
        assert_eq!(set.seats_in_use, seats + lingering);
        assert_eq!(u64::from(set.seats_in_use), self.schema.seats_executing.get());
        assert_eq!(u64::from(set.waiting), self.schema.waiting.get());
        // Every request is counted once.
        let rejected = self.schema.rejected();
        assert_eq!(set.totals.rejected, rejected);
        assert_eq!(set.totals.dispatched, self.schema.dispatched.load(Relaxed));
        assert_eq!(self.arrived, set.totals.dispatched + rejected + u64::from(waiting));
        self.check_no_lost_wakeup();
    }

    /// While seats are free, the next request in fair order does not fit.
    fn check_no_lost_wakeup(&self) {
        let set = &self.set;
        if set.waiting == 0 || set.seats_in_use >= set.limit {
            return;
        }
        let finish = |queue: &Queue| queue.next_dispatch_r + set.requests.at(queue.head).total_work;
        let busy = || set.queues.iter().filter(|queue| queue.head != NONE);
        let least = busy().map(finish).min().expect("one waits");
        let stuck = busy()
            .filter(|queue| finish(queue) == least)
            .any(|queue| !set.accommodates(set.requests.at(queue.head).estimate.max_seats()));
        assert!(stuck, "a request waits beside {} free seats", set.limit - set.seats_in_use);
    }
}

fn executing(admission: Admission) -> RequestId {
    match admission {
        Admission::Executing(id) => id,
        other => panic!("{other:?}"),
    }
}

fn waiting(admission: Admission) -> RequestId {
    match admission {
        Admission::Waiting(id) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_level_that_rejects_has_no_queue() {
    let mut bench = Bench::new(LimitResponse::Reject, 2);
    let first = executing(bench.one(0));
    executing(bench.one(0));
    let rejected = Admission::Rejected(RejectReason::ConcurrencyLimit);
    assert_eq!(bench.one(0), rejected);
    bench.leave(first);
    assert_eq!(bench.arrive(0, estimate(2, 0, 0)), rejected);
    executing(bench.one(0));
    bench.check();
}

#[test]
fn an_exempt_level_has_a_seat_for_every_request() {
    let mut bench = Bench::new(LimitResponse::Exempt, 0);
    for _ in 0..1000 {
        executing(bench.arrive(0, estimate(10, 0, 0)));
    }
    assert_eq!(bench.set.seats_demanded(), 10_000);
    bench.check();
}

#[test]
fn requests_wait_in_their_queue_until_it_is_full() {
    let mut bench = Bench::new(queueing(4, 1, 2), 1);
    let first = executing(bench.one(0));
    let second = waiting(bench.one(0));
    let third = waiting(bench.one(0));
    assert_eq!(bench.one(0), Admission::Rejected(RejectReason::QueueFull));
    waiting(bench.one(1));
    bench.leave(first);
    assert!(bench.set.is_executing(second) || bench.set.waiting == 2);
    // A client that disconnects frees its place.
    bench.leave(third);
    bench.check();
}

#[test]
fn a_request_times_out_unless_it_was_just_dispatched() {
    let mut bench = Bench::new(queueing(1, 1, 9), 1);
    let first = executing(bench.one(0));
    let (second, third) = (waiting(bench.one(0)), waiting(bench.one(0)));
    assert!(bench.set.time_out(bench.now, second));
    bench.leave(first);
    assert!(!bench.set.time_out(bench.now, third), "it has its seat");
    bench.leave(third);
    bench.check();
    assert_eq!((bench.set.totals.timed_out, bench.set.totals.cancelled), (1, 0));
    assert!(bench.set.is_idle());
}

#[test]
fn a_wide_request_waits_for_its_seats_and_is_not_overtaken() {
    let mut bench = Bench::new(queueing(8, 1, 9), 4);
    let narrow: Vec<_> = (0..4).map(|_| executing(bench.one(0))).collect();
    bench.now += MILLI;
    let wide = waiting(bench.arrive(5, estimate(3, 0, 0)));
    bench.now += MILLI;
    let later: Vec<_> = (0..4).map(|_| waiting(bench.one(0))).collect();
    // Slow requests have used up the share of their queue.
    bench.now += 100 * MILLI;
    bench.leave(narrow[0]);
    bench.leave(narrow[1]);
    bench.check();
    assert!(!bench.set.is_executing(wide));
    assert!(!later.iter().any(|&id| bench.set.is_executing(id)), "seats are kept for it");
    bench.leave(narrow[2]);
    assert!(bench.set.is_executing(wide));
    bench.check();
}

#[test]
fn a_request_wider_than_the_level_has_it_for_itself() {
    let mut bench = Bench::new(queueing(2, 1, 9), 2);
    let first = executing(bench.one(0));
    let wide = waiting(bench.arrive(1, estimate(5, 0, 0)));
    bench.leave(first);
    assert!(bench.set.is_executing(wide));
    let after = waiting(bench.one(0));
    bench.check();
    bench.leave(wide);
    assert!(bench.set.is_executing(after));
    bench.check();
}

#[test]
fn seats_of_a_write_stay_taken_while_its_events_are_sent() {
    let mut bench = Bench::new(queueing(2, 1, 9), 4);
    let write = executing(bench.arrive(0, estimate(1, 3, 5)));
    assert_eq!(bench.set.seats_in_use, 3, "the larger number from the start");
    bench.leave(write);
    let reads: Vec<_> = (0..3).map(|_| bench.one(1)).collect();
    assert_eq!(bench.set.next_event(), Some(5 * MILLI));
    bench.now = 5 * MILLI;
    bench.set.advance(bench.now);
    bench.check();
    for read in reads {
        let (Admission::Executing(id) | Admission::Waiting(id)) = read else { panic!("{read:?}") };
        assert!(bench.set.is_executing(id));
    }
    assert_eq!(bench.set.next_event(), None);
}

#[test]
fn events_of_a_write_take_fewer_seats_for_longer_on_a_small_level() {
    let mut bench = Bench::new(queueing(1, 1, 9), 2);
    let write = executing(bench.arrive(0, estimate(1, 10, 5)));
    bench.leave(write);
    bench.check();
    let Reverse(lingering) = bench.set.lingering.peek().expect("it lingers");
    assert_eq!((lingering.seats, lingering.until), (2, 25 * MILLI));
}

#[test]
fn a_lower_limit_takes_no_seat_away() {
    let mut bench = Bench::new(queueing(4, 1, 9), 4);
    let held: Vec<_> = (0..4).map(|hash| executing(bench.one(hash))).collect();
    let next = waiting(bench.one(0));
    bench.set.set_limit(bench.now, 2, 2);
    for (nth, id) in held.into_iter().enumerate() {
        assert_eq!(bench.set.is_executing(next), nth > 2, "{nth}");
        bench.leave(id);
        bench.check();
    }
    bench.set.set_limit(bench.now, 0, 1);
    let stuck = waiting(bench.one(0));
    bench.set.set_limit(bench.now, 2, 2);
    assert!(bench.set.is_executing(stuck), "a higher limit dispatches at once");
}

#[test]
fn queues_that_are_too_many_drain() {
    let mut bench = Bench::new(queueing(8, 1, 9), 1);
    let first = executing(bench.one(7));
    let (second, third) = (waiting(bench.one(7)), waiting(bench.one(6)));
    bench.set.set_response(bench.now, queueing(2, 1, 9));
    assert_eq!(bench.set.queues.len(), 8);
    for id in [first, second, third] {
        bench.check();
        bench.leave(id);
    }
    assert_eq!(bench.set.queues.len(), 2);
    let fourth = executing(bench.one(7));
    bench.set.set_response(bench.now, LimitResponse::Reject);
    bench.leave(fourth);
    assert_eq!(bench.set.queues.len(), 0);
    executing(bench.one(7));
    bench.check();
}

#[test]
fn a_slot_keeps_no_long_path() {
    let mut bench = Bench::new(LimitResponse::Exempt, 1);
    let (user, schema) = (Str::new("anna"), bench.schema.clone());
    let info = RequestInfo { path: "/".repeat(1 << 16), ..RequestInfo::default() };
    let arrival = Arrival {
        estimate: estimate(1, 0, 0),
        hash: 0,
        distinguisher: Str::default(),
        schema: &schema,
        user: &user,
        info: &info,
    };
    let id = executing(bench.set.arrive(0, &arrival));
    assert_eq!(bench.set.dump_requests()[0].path.len(), 1 << 16);
    bench.set.leave(0, id);
    assert_eq!(bench.set.requests.path_bytes(), 0);
}

/// What a client or an admin may do at random.
#[derive(Clone, Debug)]
enum Step {
    Arrive { flow: u64, estimate: WorkEstimate },
    Leave(usize),
    TimeOut(usize),
    Wait(Nanos),
    Limit(u32),
    Queues(usize),
    Reject,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u64..1 << 40, 1u32..6, 0u32..8, 0u64..20).prop_map(|(flow, initial, last, ms)| {
            let lingers = if last == 0 { 0 } else { ms };
            Step::Arrive { flow, estimate: estimate(initial, last, lingers) }
        }),
        6 => (0usize..1000).prop_map(Step::Leave),
        1 => (0usize..1000).prop_map(Step::TimeOut),
        4 => (0u64..30 * MILLI).prop_map(Step::Wait),
        1 => (0u32..20).prop_map(Step::Limit),
        1 => (3usize..12).prop_map(Step::Queues),
        1 => Just(Step::Reject),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn seats_stay_below_the_limit_and_no_request_is_forgotten(
        steps in proptest::collection::vec(step(), 1..200),
        limit in 1u32..12,
    ) {
        let mut bench = Bench::new(queueing(6, 3, 4), limit);
        let mut live: Vec<RequestId> = Vec::new();
        for step in steps {
            let before = bench.set.seats_in_use;
            match step {
                Step::Arrive { flow, estimate } => match bench.arrive(flow, estimate) {
                    Admission::Executing(id) | Admission::Waiting(id) => live.push(id),
                    Admission::Rejected(_) => {}
                },
                Step::Leave(nth) if !live.is_empty() => {
                    let id = live.swap_remove(nth % live.len());
                    bench.leave(id);
                }
                Step::TimeOut(nth) if !live.is_empty() => {
                    let nth = nth % live.len();
                    if bench.set.time_out(bench.now, live[nth]) {
                        live.swap_remove(nth);
                    }
                }
                Step::Wait(nanos) => {
                    bench.now += nanos;
                    bench.set.advance(bench.now);
                }
                Step::Limit(limit) => bench.set.set_limit(bench.now, limit, limit),
                Step::Queues(queues) => bench.set.set_response(bench.now, queueing(queues, 3, 4)),
                Step::Reject => bench.set.set_response(bench.now, LimitResponse::Reject),
                Step::Leave(_) | Step::TimeOut(_) => {}
            }
            bench.check();
            // Above the limit only what was there before the limit fell, or one wide request.
            let in_use = bench.set.seats_in_use;
            prop_assert!(
                in_use <= bench.set.limit || in_use <= before || bench.set.executing == 1,
                "{in_use} of {} seats", bench.set.limit
            );
            prop_assert_eq!(live.len() as u32, bench.set.waiting + bench.set.executing);
        }
        // When all have left and the last events are sent, nothing is left behind.
        for id in live {
            bench.leave(id);
            bench.check();
        }
        bench.now += 1000 * MILLI * 60;
        bench.set.advance(bench.now);
        prop_assert_eq!(bench.set.seats_demanded(), 0);
        prop_assert!(bench.set.is_idle() && bench.set.lingering.is_empty());
    }

    /// Two flows that always have requests waiting get the same seat-seconds, however long their
    /// requests take and however wide they are.
    #[test]
    fn two_busy_flows_get_equal_shares(
        limit in 4u32..16,
        one in (1u32..4, 1u64..40),
        other in (1u32..4, 1u64..40),
        seed in any::<u64>(),
    ) {
        let mut bench = Bench::new(queueing(2, 1, 100), limit);
        let mut random = seed | 1;
        let mut next = |most: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            1 + random % most
        };
        let flows = [one, other];
        let mut served = [SeatSeconds::ZERO; 2];
        // Flow, duration and start of each request.
        let mut live: Vec<(RequestId, usize, Nanos, Option<Nanos>)> = Vec::new();
        for _ in 0..40 {
            for (flow, (seats, most)) in flows.into_iter().enumerate() {
                let admission = bench.arrive(flow as u64, estimate(seats, 0, 0));
                let (Admission::Executing(id) | Admission::Waiting(id)) = admission else {
                    panic!("{admission:?}");
                };
                live.push((id, flow, next(most) * MILLI, None));
            }
        }
        let horizon = 5_000 * MILLI;
        while bench.now < horizon {
            for (id, _, _, start) in &mut live {
                if start.is_none() && bench.set.is_executing(*id) {
                    *start = Some(bench.now);
                }
            }
            let ends = |(_, _, lasts, start): &(RequestId, usize, Nanos, Option<Nanos>)| {
                start.map(|start| start + lasts)
            };
            let first = (0..live.len()).filter(|&at| ends(&live[at]).is_some())
                .min_by_key(|&at| ends(&live[at])).expect("one executes");
            bench.now = ends(&live[first]).unwrap();
            let (id, flow, lasts, _) = live.swap_remove(first);
            let (seats, most) = flows[flow];
            served[flow] += SeatSeconds::new(seats, lasts);
            bench.leave(id);
            let admission = bench.arrive(flow as u64, estimate(seats, 0, 0));
            let (Admission::Executing(id) | Admission::Waiting(id)) = admission else {
                panic!("{admission:?}");
            };
            live.push((id, flow, next(most) * MILLI, None));
        }
        // The bound of fair queuing: what the level can have in progress, and the same again because
        // durations are known only afterwards.
        let longest = one.1.max(other.1) * MILLI;
        let bound = SeatSeconds::new(4 * limit.max(8), longest + SERVICE_NANOS).to_f64();
        let difference = (served[0] - served[1]).to_f64().abs();
        prop_assert!(difference <= bound, "{} and {}, bound {bound}", served[0], served[1]);
        prop_assert!(served[0].to_f64() > 10.0 * bound.min(0.5), "it worked");
    }
}

/// A flow with hundreds of requests in its queues does not make a flow with one request wait for them.
#[test]
fn a_light_flow_overtakes_a_heavy_one() {
    let limit = 10;
    let lasts = 10 * MILLI;
    let mut bench = Bench::new(queueing(64, 1, 1000), limit);
    let mut executing_until: Vec<(RequestId, Nanos)> = Vec::new();
    let mut queued: Vec<RequestId> = Vec::new();
    for _ in 0..800 {
        match bench.one(0) {
            Admission::Executing(id) => executing_until.push((id, lasts)),
            Admission::Waiting(id) => queued.push(id),
            Admission::Rejected(reason) => panic!("{reason:?}"),
        }
    }
    let mut light: Option<(RequestId, Nanos)> = None;
    let (mut waits, mut flow) = (Vec::new(), 0);
    while queued.len() > 100 {
        let (nth, &(id, until)) =
            executing_until.iter().enumerate().min_by_key(|(_, (_, until))| *until).unwrap();
        bench.now = until;
        executing_until.swap_remove(nth);
        bench.leave(id);
        if light.is_none() {
            flow += 1;
            match bench.one(1 + flow % 60) {
                Admission::Executing(id) => executing_until.push((id, bench.now + lasts)),
                Admission::Waiting(id) => light = Some((id, bench.now)),
                Admission::Rejected(reason) => panic!("{reason:?}"),
            }
        }
        if let Some((id, since)) = light
            && bench.set.is_executing(id)
        {
            waits.push(bench.now - since);
            executing_until.push((id, bench.now + lasts));
            light = None;
        }
        let now = bench.now;
        queued.retain(|&id| {
            let runs = bench.set.is_executing(id);
            if runs {
                executing_until.push((id, now + lasts));
            }
            !runs
        });
        bench.check();
    }
    assert!(waits.len() > 20, "{} light requests", waits.len());
    // Not the 700 milliseconds that the queue of the heavy flow takes.
    assert!(waits.iter().all(|&wait| wait <= 2 * lasts), "{waits:?}");
}
