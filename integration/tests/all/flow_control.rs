//! API Priority and Fairness: which flow schema and priority level a request belongs to, and what
//! happens when its level has no seat left.

use std::thread;

use bytes::Bytes;
use http::Request;
use integration::{Answer, Flavour, Http, Server, eventually, shared};
use serde_json::{Value, json};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const SCHEMA_UID: &str = "x-kubernetes-pf-flowschema-uid";
const LEVEL_UID: &str = "x-kubernetes-pf-prioritylevel-uid";
const DUMPS: &str = "/debug/api_priority_and_fairness";

fn get_as(http: &Http, user: &str, path: &str) -> Answer {
    let request = Request::get(path).header("impersonate-user", user);
    http.request(request.body(Bytes::new()).expect("a valid request"))
}

fn uid(http: &Http, path: &str, name: &str) -> String {
    let object = http.get(&format!("{path}/{name}")).expect(200);
    object["metadata"]["uid"].as_str().expect("every object has a UID").to_owned()
}

fn classified(answer: &Answer) -> (String, String) {
    let header = |name| answer.header(name).unwrap_or_default().to_owned();
    (header(SCHEMA_UID), header(LEVEL_UID))
}

/// A flow schema for one user.
fn schema(name: &str, level: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level},
            "matchingPrecedence": 700,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": user}}],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                    "clusterScope": true, "namespaces": ["*"],
                }],
            }],
        },
    })
}

/// A list that takes three seconds: it waits for a version that is not there yet.
const SLOW: &str = "/api/v1/namespaces?resourceVersion=9007199254740991";

/// Sends the slow list until it gets the only seat, which the other requests of a test want too.
fn take_the_seat(http: &Http, user: &str) -> Answer {
    eventually("the slow list gets the seat", || {
        let answer = get_as(http, user, SLOW);
        (answer.code != 429).then_some(answer)
    })
}

fn allow_everything(http: &Http, user: &str) {
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    http.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).expect(201);
    eventually("the binding has its effect", || {
        (get_as(http, user, "/api/v1/namespaces").code == 200).then_some(())
    });
}

#[test]
fn responses_name_the_flow_schema_and_the_priority_level() {
    let server = shared();
    let http = server.http();
    // What was asked, flow schema, priority level. A refusal is classified too.
    let cases = [
        (http.get("/api/v1/namespaces"), "exempt", "exempt"),
        (get_as(&http, "stranger", "/api/v1/namespaces"), "global-default", "global-default"),
        (get_as(&http, "stranger", "/version"), "global-default", "global-default"),
        (get_as(&http, "system:kube-scheduler", "/version"), "kube-scheduler", "workload-high"),
        (http.clone().anonymous().get("/livez"), "probes", "exempt"),
        (http.clone().anonymous().get("/api/v1/pods"), "global-default", "global-default"),
        (
            get_as(
                &http,
                "system:kube-scheduler",
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/none",
            ),
            "system-leader-election",
            "leader-election",
        ),
    ];
    for (answer, schema, level) in cases {
        let expected = (uid(&http, SCHEMAS, schema), uid(&http, LEVELS, level));
        assert_eq!(classified(&answer), expected, "{schema} {}", answer.text());
    }
}

#[test]
fn a_new_level_limits_its_requests_at_once() {
    let server = shared();
    let http = server.http();
    // Names of the cluster, and of this test run.
    let name = &server.namespace("flow-limit");
    let user = &format!("user-of-{name}");
    allow_everything(&http, user);
    // No seats: one request at a time.
    let level = json!({
        "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0,
            "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        }},
    });
    http.post(LEVELS, &level).expect(201);
    http.post(SCHEMAS, &schema(name, name, user)).expect(201);
    let expected = (uid(&http, SCHEMAS, name), uid(&http, LEVELS, name));
    eventually("the flow schema has its effect", || {
        let answer = get_as(&http, user, "/api/v1/namespaces/default");
        (classified(&answer) == expected).then_some(())
    });

    let rejected = thread::scope(|scope| {
        let slow = scope.spawn(|| take_the_seat(&http, user));
        let rejected = eventually("a second request finds no seat", || {
            let answer = get_as(&http, user, "/api/v1/namespaces/default");
            (answer.code == 429).then_some(answer)
        });
        // Others are not affected, and probes and admins never are.
        let stranger = get_as(&http, "stranger", "/version");
        assert_ne!(stranger.code, 429);
        assert_eq!(http.clone().anonymous().get("/livez").code, 200);
        let requests = http.get(&format!("{DUMPS}/dump_requests?includeRequestDetails=1")).text();
        let row = requests.lines().find(|line| line.starts_with(name.as_str()));
        let row = row.unwrap_or_else(|| panic!("no row of {name} in {requests}"));
        let cells: Vec<&str> = row.split(',').map(str::trim).collect();
        assert_eq!(cells[1..4], [name, "-1", "-1"], "{row}");
        assert_eq!(cells[10..13], [user, "list", "/api/v1/namespaces"], "{row}");
        assert_eq!(slow.join().expect("it is answered").code, 504);
        rejected
    });
    assert_eq!(rejected.text(), "Too many requests, please try again later.\n");
    let retry_after = rejected.header("retry-after").and_then(|value| value.parse::<u32>().ok());
    assert!(retry_after.is_some_and(|seconds| (1..=32).contains(&seconds)), "{retry_after:?}");
    assert_eq!(classified(&rejected), expected);

    let levels = http.get(&format!("{DUMPS}/dump_priority_levels"));
    assert_eq!(levels.header("content-type"), Some("text/plain; charset=utf-8"));
    let levels = levels.text();
    assert!(
        levels.starts_with("PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, "),
        "{levels}"
    );
    let row = levels.lines().find(|line| line.starts_with(name.as_str())).expect("its row");
    let cells: Vec<&str> = row.split(',').map(str::trim).collect();
    assert_eq!((cells[1], cells[3]), ("0", "false"), "{row}");
    assert!(cells[7].parse::<u64>().expect("a number") >= 1, "rejected: {row}");
    let metrics = http.get("/metrics").text();
    let series = format!(
        "apiserver_flowcontrol_rejected_requests_total{{flow_schema=\"{name}\",\
         priority_level=\"{name}\",reason=\"concurrency-limit\"}} "
    );
    assert!(metrics.contains(&series), "{series} is missing");

    // Without its level the flow schema has no effect, and says so.
    http.delete(&format!("{LEVELS}/{name}")).expect(200);
    eventually("the flow schema dangles", || {
        let schema = http.get(&format!("{SCHEMAS}/{name}")).expect(200);
        let condition = &schema["status"]["conditions"][0];
        (condition["type"] == "Dangling" && condition["status"] == "True").then_some(())
    });
    eventually("another flow schema matches", || {
        let answer = get_as(&http, user, "/api/v1/namespaces/default");
        (classified(&answer).0 != expected.0).then_some(())
    });
    http.delete(&format!("{SCHEMAS}/{name}")).expect(200);
}

#[test]
fn queued_requests_are_served_when_a_seat_gets_free() {
    let server = shared();
    let http = server.http();
    let name = &server.namespace("flow-queue");
    let user = &format!("user-of-{name}");
    allow_everything(&http, user);
    let level = json!({
        "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1,
            "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Queue", "queuing": {
                "queues": 1, "handSize": 1, "queueLengthLimit": 20,
            }},
        }},
    });
    http.post(LEVELS, &level).expect(201);
    http.post(SCHEMAS, &schema(name, name, user)).expect(201);
    let expected = uid(&http, SCHEMAS, name);
    eventually("the flow schema has its effect", || {
        let answer = get_as(&http, user, "/api/v1/namespaces/default");
        (classified(&answer).0 == expected).then_some(())
    });
    thread::scope(|scope| {
        // More than the level's few seats.
        let slow: Vec<_> = (0..6).map(|_| scope.spawn(|| get_as(&http, user, SLOW).code)).collect();
        eventually("requests wait", || {
            let queues = http.get(&format!("{DUMPS}/dump_queues")).text();
            let row = queues.lines().find(|line| line.starts_with(name.as_str()))?;
            let waiting = row.split(',').nth(2)?.trim().parse::<u32>().ok()?;
            (waiting > 0).then_some(())
        });
        // Its turn comes after those that wait.
        assert_eq!(get_as(&http, user, "/api/v1/namespaces/default").code, 200);
        for slow in slow {
            assert_eq!(slow.join().expect("it is answered"), 504);
        }
    });
    http.delete(&format!("{SCHEMAS}/{name}")).expect(200);
    http.delete(&format!("{LEVELS}/{name}")).expect(200);
}

#[test]
fn mandatory_objects_have_their_effect_even_if_they_are_deleted() {
    let server = Server::start();
    let http = server.http();
    http.delete(&format!("{SCHEMAS}/global-default")).expect(200);
    let catch_all = uid(&http, SCHEMAS, "catch-all");
    eventually("requests fall through to catch-all", || {
        (classified(&get_as(&http, "stranger", "/version")).0 == catch_all).then_some(())
    });
    for path in [SCHEMAS, LEVELS] {
        http.delete(&format!("{path}/exempt"));
    }
    // The admin is exempt all the same. Whether the object is back yet decides about the UID.
    assert_eq!(http.get("/api/v1/namespaces").code, 200);
    eventually("the level exists without its object", || {
        let levels = http.get(&format!("{DUMPS}/dump_priority_levels")).text();
        levels.lines().any(|line| line.starts_with("exempt")).then_some(())
    });
}

#[test]
fn without_priority_and_fairness_there_are_plain_limits() {
    let flags = ["--enable-priority-and-fairness=false", "--max-requests-inflight=1"];
    let server = Server::with(Flavour::from_env(), &flags);
    let http = server.http();
    let user = "limited";
    allow_everything(&http, user);
    thread::scope(|scope| {
        let slow = scope.spawn(|| take_the_seat(&http, user));
        let rejected = eventually("a second read finds no seat", || {
            let answer = get_as(&http, user, "/api/v1/namespaces/default");
            (answer.code == 429).then_some(answer)
        });
        assert_eq!(rejected.header("retry-after"), Some("1"));
        assert_eq!(rejected.header(SCHEMA_UID), None);
        // An admin gets through.
        assert_eq!(http.get("/api/v1/namespaces/default").code, 200);
        slow.join().expect("it is answered");
    });
    assert_eq!(http.get(&format!("{DUMPS}/dump_queues")).code, 404);
}
