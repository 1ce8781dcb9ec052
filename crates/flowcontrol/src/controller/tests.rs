use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};

use expect_test::expect;
use meta::value;

use super::*;
use crate::priority_level::RejectReason;
use crate::work_estimate::ObjectStatistics;

struct Counts;

impl ObjectCounts for Counts {
    fn statistics(&self, info: &RequestInfo) -> Option<ObjectStatistics> {
        (info.resource == "pods").then_some(ObjectStatistics { count: 1000, average_bytes: 1000 })
    }
}

fn controller(seats: u32) -> FlowController {
    FlowController::new(Options { seats, lists_by_size: true, counts: Arc::new(Counts) })
}

fn level(name: &str, shares: i64, lendable: i64, response: Value) -> Value {
    value!({
        "metadata": {"name": (name), "uid": (format!("uid-of-{name}"))},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": (shares),
            "lendablePercent": (lendable),
            "limitResponse": (response),
        }},
    })
}

fn queueing(queues: i64, hand_size: i64, length: i64) -> Value {
    value!({"type": "Queue", "queuing": {
        "queues": (queues), "handSize": (hand_size), "queueLengthLimit": (length),
    }})
}

fn reject() -> Value {
    value!({"type": "Reject"})
}

fn schema_of(name: &str, level: &str, precedence: i64, user: &str) -> Value {
    value!({
        "metadata": {"name": (name), "uid": (format!("uid-of-{name}"))},
        "spec": {
            "priorityLevelConfiguration": {"name": (level)},
            "matchingPrecedence": (precedence),
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": (user)}}],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                    "clusterScope": true, "namespaces": ["*"],
                }],
            }],
        },
    })
}

fn default_levels() -> Vec<Value> {
    vec![
        level("system", 30, 33, queueing(64, 6, 50)),
        level("node-high", 40, 25, queueing(64, 6, 50)),
        level("leader-election", 10, 0, queueing(16, 4, 50)),
        level("workload-high", 40, 50, queueing(128, 6, 50)),
        level("workload-low", 100, 90, queueing(128, 6, 50)),
        level("global-default", 20, 50, queueing(128, 6, 50)),
        level("catch-all", 5, 0, reject()),
    ]
}

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|&group| group.into()).collect();
    User { name: name.into(), groups, ..User::default() }
}

fn get() -> RequestInfo {
    RequestInfo {
        path: "/api/v1/namespaces/default/pods/p".into(),
        verb: "get".into(),
        is_resource: true,
        version: "v1".into(),
        resource: "pods".into(),
        namespace: "default".into(),
        name: "p".into(),
        ..RequestInfo::default()
    }
}

fn in_seconds(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn requests_are_classified_by_precedence_and_name() {
    let controller = controller(100);
    let levels = [level("a", 1, 0, reject()), level("b", 1, 0, reject())];
    let schemas = [
        schema_of("later", "a", 900, "anna"),
        schema_of("second", "a", 500, "anna"),
        schema_of("first", "b", 500, "anna"),
        schema_of("dangling", "gone", 2, "anna"),
        schema_of("lot", "a", 500, "lot"),
    ];
    controller.configure(&levels, &schemas);
    let authenticated = "system:authenticated";
    // User, groups; flow schema, level, and their UIDs.
    let cases = [
        ("anna", &[authenticated][..], "first b uid-of-first uid-of-b"),
        ("anna", &["system:masters"], "exempt exempt  "),
        ("lot", &[authenticated], "lot a uid-of-lot uid-of-a"),
        ("eve", &[authenticated], "catch-all catch-all  "),
        ("eve", &["system:unauthenticated"], "catch-all catch-all  "),
        ("eve", &[], "catch-all catch-all  "),
    ];
    for (name, groups, expected) in cases {
        let (info, user) = (get(), user(name, groups));
        let schema = controller.classify(&Request { info: &info, user: &user, query: "" });
        let got = [&schema.name, schema.level_name(), &schema.uid, schema.level_uid()];
        assert_eq!(got.map(Str::as_str).join(" "), expected, "{name} {groups:?}");
    }
    // The level is gone: its schemas match nothing any more.
    controller.configure(&levels[..1], &schemas);
    let (info, anna) = (get(), user("anna", &[]));
    let request = Request { info: &info, user: &anna, query: "" };
    assert_eq!(controller.classify(&request).name, "second");
}

/// The limits that follow from kube-apiserver v1.36's default objects and flags, by its source.
#[tokio::test(start_paused = true)]
async fn seats_are_divided_by_shares() {
    let controller = controller(600);
    controller.configure(&default_levels(), &[]);
    let state = controller.lock();
    let cases = [
        ("system", [74, 50, 674]),
        ("node-high", [98, 73, 698]),
        ("leader-election", [25, 25, 625]),
        ("workload-high", [98, 49, 698]),
        ("workload-low", [245, 24, 845]),
        ("global-default", [49, 24, 649]),
        ("catch-all", [13, 13, 613]),
        ("exempt", [0, 0, 600]),
    ];
    for (name, expected) in cases {
        let limits = state.levels.limits(name).expect("it exists");
        assert_eq!(limits[..3], expected, "{name}");
    }
    let names = cases.map(|(name, _)| name);
    let current: u32 = names.iter().map(|name| state.levels.limits(name).unwrap()[3]).sum();
    assert!(current.abs_diff(602) <= 4, "{current} of all seats are given");
}

async fn hold(controller: &FlowController, name: &str, count: usize) -> Vec<Seat> {
    let (info, user) = (get(), user(name, &[]));
    let request = Request { info: &info, user: &user, query: "" };
    let schema = controller.classify(&request);
    let mut seats = Vec::new();
    for _ in 0..count {
        seats.push(controller.seat(&schema, &request, in_seconds(1)).await.expect("a free seat"));
    }
    seats
}

#[tokio::test(start_paused = true)]
async fn a_busy_level_borrows_what_others_lend() {
    let controller = controller(100);
    let levels = [level("busy", 50, 0, queueing(8, 2, 50)), level("lender", 50, 80, reject())];
    controller.configure(&levels, &[schema_of("busy", "busy", 5, "anna")]);
    let current = |name: &str| controller.lock().levels.limits(name).expect("it exists")[3];
    let before = current("busy");
    let held = hold(&controller, "anna", before as usize).await;
    // More than the level has now, by lending: requests wait until it borrows the rest.
    let (info, anna) = (get(), user("anna", &[]));
    let request = Request { info: &info, user: &anna, query: "" };
    let schema = controller.classify(&request);
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let mut one = Box::pin(controller.seat(&schema, &request, in_seconds(60)));
        assert!(one.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        waiting.push(one);
    }
    tokio::time::advance(ADJUSTMENT_INTERVAL).await;
    controller.adjust();
    assert!(current("busy") >= before + 5, "{before} became {}", current("busy"));
    assert!(current("lender") >= 10, "what is not lendable stays");
    let mut borrowed = Vec::new();
    for one in waiting {
        borrowed.push(one.await.expect("a borrowed seat"));
    }
    drop((held, borrowed));
    // Half an hour later the demand is forgotten, and both have their share again.
    for _ in 0..360 {
        tokio::time::advance(ADJUSTMENT_INTERVAL).await;
        controller.adjust();
    }
    assert!(current("busy") < before + 15, "{}", current("busy"));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_seat_is_rejected_or_waits() {
    let controller = controller(2);
    let levels = [level("queue", 100, 0, queueing(1, 1, 1)), level("catch-all", 5, 0, reject())];
    controller.configure(&levels, &[schema_of("queued", "queue", 5, "anna")]);
    // Nominal limits are rounded up: two seats, and one for catch-all.
    let limit = controller.lock().levels.limits("queue").unwrap()[3] as usize;
    let mut held = hold(&controller, "anna", limit).await;
    let (info, anna) = (get(), user("anna", &[]));
    let request = Request { info: &info, user: &anna, query: "" };
    let schema = controller.classify(&request);

    let began = Instant::now();
    let rejection = controller.seat(&schema, &request, in_seconds(15)).await.unwrap_err();
    assert_eq!(rejection, Rejection { reason: RejectReason::TimeOut, retry_after: 1 });
    assert_eq!(began.elapsed(), Duration::from_secs(15));

    // One waits, so that the queue is full; then it gets the seat that gets free.
    let mut waiting = pin!(controller.seat(&schema, &request, in_seconds(15)));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let rejection = controller.seat(&schema, &request, in_seconds(15)).await.unwrap_err();
    assert_eq!(rejection.reason, RejectReason::QueueFull);
    drop(held.pop());
    held.push(waiting.await.expect("a seat got free"));

    // A client that disconnects frees its place in the queue.
    let mut leaves = Box::pin(controller.seat(&schema, &request, in_seconds(15)));
    assert!(leaves.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(leaves);
    let mut waiting = Box::pin(controller.seat(&schema, &request, in_seconds(15)));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // A seat that was given to a client that left at the same moment is not lost.
    drop(held.pop());
    drop(waiting);
    held.push(controller.seat(&schema, &request, in_seconds(0)).await.expect("a free seat"));

    let (eve, other) = (user("eve", &["system:authenticated"]), get());
    let request = Request { info: &other, user: &eve, query: "" };
    let schema = controller.classify(&request);
    let _held = controller.seat(&schema, &request, in_seconds(15)).await.expect("a free seat");
    let rejection = controller.seat(&schema, &request, in_seconds(15)).await.unwrap_err();
    assert_eq!(rejection.reason, RejectReason::ConcurrencyLimit);

    let dump = controller.dump_priority_levels();
    expect![[r"
        PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, DispatchedRequests, RejectedRequests, TimedoutRequests, CancelledRequests
        catch-all,         0,            false,  false,       0,               1,                 1,                  1,                0,                0
        exempt,            0,            true,   false,       0,               0,                 0,                  0,                0,                0
        queue,             0,            false,  false,       0,               2,                 5,                  3,                1,                1
    "]]
    .assert_eq(&dump);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_wake_when_the_events_of_a_write_are_sent() {
    let controller = controller(20);
    let levels = [level("queue", 100, 0, queueing(1, 1, 50)), level("catch-all", 5, 0, reject())];
    controller.configure(&levels, &[schema_of("queued", "queue", 5, "anna")]);
    let watch = RequestInfo { verb: "watch".into(), name: Str::default(), ..get() };
    let watches: Vec<_> = (0..100).map(|_| controller.register_watch(&watch, "")).collect();
    let (anna, update) = (user("anna", &[]), RequestInfo { verb: "update".into(), ..get() });
    let write = Request { info: &update, user: &anna, query: "" };
    let schema = controller.classify(&write);
    let estimate = controller.estimate(&schema, &write);
    assert_eq!(estimate.final_seats, 3, "15% of 20 seats");
    let mut held = Vec::new();
    for _ in 0..6 {
        held.push(controller.seat(&schema, &write, in_seconds(1)).await.expect("a free seat"));
    }
    let (info, read) = (get(), user("anna", &[]));
    let read = Request { info: &info, user: &read, query: "" };
    for _ in 0..2 {
        held.push(controller.seat(&schema, &read, in_seconds(1)).await.expect("a free seat"));
    }
    drop(held.remove(0));
    let began = Instant::now();
    let _seat = controller.seat(&schema, &read, in_seconds(1)).await.expect("a seat got free");
    let waited = began.elapsed();
    assert!(waited >= estimate.additional_latency, "{waited:?}");
    assert!(waited <= estimate.additional_latency + Duration::from_millis(2), "{waited:?}");
    drop(watches);
}

#[tokio::test(start_paused = true)]
async fn a_removed_level_stays_until_its_requests_have_left() {
    let controller = controller(100);
    let levels = [level("gone", 50, 0, reject())];
    controller.configure(&levels, &[schema_of("gone", "gone", 5, "anna")]);
    let held = hold(&controller, "anna", 3).await;
    controller.configure(&[], &[]);
    let row = |controller: &FlowController| {
        let dump = controller.dump_priority_levels();
        dump.lines().find(|line| line.starts_with("gone")).map(|line| line.replace(' ', ""))
    };
    assert_eq!(row(&controller).as_deref(), Some("gone,0,false,true,0,3,3,0,0,0"));
    let (info, anna) = (get(), user("anna", &["system:authenticated"]));
    let request = Request { info: &info, user: &anna, query: "" };
    assert_eq!(controller.classify(&request).name, "catch-all");
    drop(held);
    controller.adjust();
    assert_eq!(row(&controller), None);
}

#[tokio::test(start_paused = true)]
async fn broken_levels_are_ignored() {
    let limited = |response: Value| level("x", 1, 0, response);
    let mut exempt = limited(reject());
    exempt.set_at(&["spec", "type"], "Exempt");
    let mut unknown = limited(reject());
    unknown.set_at(&["spec", "type"], "Other");
    let mut empty = limited(reject());
    empty.remove_at(&["spec", "limited"]);
    let mut wrongly_limited = level("exempt", 1, 0, reject());
    wrongly_limited.set_at(&["metadata", "name"], "exempt");
    let cases = [
        exempt,
        unknown,
        empty,
        limited(queueing(0, 0, 1)),
        limited(queueing(2, 3, 1)),
        limited(queueing(64, 11, 1)),
        limited(value!({"type": "Other"})),
        limited(Value::Null),
    ];
    for broken in cases {
        let controller = controller(10);
        controller.configure(std::slice::from_ref(&broken), &[schema_of("s", "x", 5, "anna")]);
        let (info, anna) = (get(), user("anna", &["system:authenticated"]));
        let request = Request { info: &info, user: &anna, query: "" };
        assert_eq!(controller.classify(&request).name, "catch-all", "{broken:?}");
    }
    let controller = controller(10);
    controller.configure(&[wrongly_limited], &[]);
    assert_eq!(controller.lock().levels.limits("exempt"), Some([0, 0, 10, 0]));
}

#[tokio::test(start_paused = true)]
async fn dumps_list_queues_and_requests() {
    let controller = controller(1);
    let levels = [level("queue", 100, 0, queueing(2, 1, 5)), level("catch-all", 0, 0, reject())];
    let mut schema = schema_of("queued", "queue", 5, "anna");
    schema.set_at(&["spec", "distinguisherMethod", "type"], "ByNamespace");
    controller.configure(&levels, &[schema]);
    let (info, anna) = (get(), user("anna", &[]));
    let request = Request { info: &info, user: &anna, query: "" };
    let schema = controller.classify(&request);
    let _held = controller.seat(&schema, &request, in_seconds(5)).await.expect("a free seat");
    let mut waiting = pin!(controller.seat(&schema, &request, in_seconds(5)));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // Which queue and when is random.
    let masked = |text: String| -> String {
        let rows = text.lines().map(|line| {
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            let mask = |(at, cell): (usize, &&str)| {
                let random = at == 2 && *cell != "QueueIndex" || cell.contains('Z');
                if random { "-".to_owned() } else { (*cell).to_owned() }
            };
            cells.iter().enumerate().map(mask).collect::<Vec<_>>().join("|") + "\n"
        });
        rows.collect()
    };
    expect![[r"
        PriorityLevelName|FlowSchemaName|QueueIndex|RequestIndexInQueue|FlowDistingsher|ArriveTime|InitialSeats|FinalSeats|AdditionalLatency|StartTime
        queue|queued|-|0|default|-|1|0|0s|-
        queue|queued|-|-1|default|-|1|0|0s|-
    "]]
    .assert_eq(&masked(controller.dump_requests(false)));
    let detailed = controller.dump_requests(true).split_whitespace().collect::<Vec<_>>().join(" ");
    let expected =
        "0001-01-01T00:00:00Z, anna, get, /api/v1/namespaces/default/pods/p, default, p, v1, pods,";
    assert!(detailed.contains(expected), "{detailed}");
    let queues = controller.dump_queues();
    assert_eq!(queues.lines().count(), 3, "{queues}");
    let busy = queues.lines().find(|line| line.contains("0.00300000ss")).expect("one waits");
    let cells: Vec<&str> = busy.split(',').map(str::trim).collect();
    assert_eq!(
        (cells[0], &cells[2..5], &cells[6..]),
        ("queue", &["1", "1", "1"][..], &["1", "1", "0.00300000ss"][..])
    );
}

#[tokio::test(start_paused = true)]
async fn metrics_count_what_happened() {
    let controller = controller(2);
    let levels = [level("queue", 100, 0, queueing(1, 1, 0)), level("catch-all", 0, 0, reject())];
    controller.configure(&levels, &[schema_of("queued", "queue", 5, "anna")]);
    let held = hold(&controller, "anna", 2).await;
    let (info, anna) = (get(), user("anna", &[]));
    let request = Request { info: &info, user: &anna, query: "" };
    let schema = controller.classify(&request);
    controller.seat(&schema, &request, in_seconds(5)).await.expect_err("the queue has no place");
    tokio::time::advance(Duration::from_secs(1)).await;
    drop(held);
    tokio::time::advance(Duration::from_secs(1)).await;
    let snapshot = controller.metrics();
    let counts = snapshot.schemas.iter().find(|schema| schema.name == "queued").expect("counted");
    assert_eq!(
        counts.counters,
        [("dispatched_requests_total", "", 2), ("rejected_requests_total", "queue-full", 1)]
    );
    assert!(counts.gauges.iter().all(|(_, value)| *value == 0));
    let level = snapshot.levels.iter().find(|level| level.name == "queue").expect("counted");
    let (_, _, seats) = &level.histograms[0];
    assert_eq!(seats.counts.iter().sum::<u64>(), 2_000_000_000, "a count for each nanosecond");
    assert_eq!(seats.counts[12], 1_000_000_000, "all seats were taken half of the time");
    let executing = &snapshot.read_vs_write[0];
    assert_eq!((executing.0, executing.1), ("executing", "readOnly"));
    assert_eq!(executing.2.counts.iter().sum::<u64>(), 2_000_000_000);
    // A flow schema's series end with it.
    controller.configure(&levels, &[]);
    assert!(controller.metrics().schemas.iter().all(|schema| schema.name != "queued"));
}

/// `cargo test --release -p flowcontrol -- --ignored --nocapture speed`
#[tokio::test]
#[ignore = "a measurement"]
async fn speed_of_an_uncontended_request() {
    let controller = controller(600);
    let mut schemas = vec![schema_of("first", "system", 1, "other")];
    for at in 0..10 {
        schemas.push(schema_of(&format!("schema-{at}"), "workload-high", 100 + at, "other"));
    }
    schemas.push(schema_of("mine", "workload-low", 9000, "anna"));
    controller.configure(&default_levels(), &schemas);
    let (info, anna) = (get(), user("anna", &["dev", "system:authenticated"]));
    let request = Request { info: &info, user: &anna, query: "" };
    for _ in 0..3 {
        let (began, rounds) = (std::time::Instant::now(), 200_000);
        for _ in 0..rounds {
            let schema = controller.classify(&request);
            let wait_until = Instant::now() + Duration::from_secs(15);
            drop(controller.seat(&schema, &request, wait_until).await.expect("a free seat"));
        }
        println!("{:?} per request", began.elapsed() / rounds);
    }
}
