//! Admission webhooks: a server of the test decides about what clients write.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Response;
use integration::{Answer, Flavour, Http, Reply, Server, Shared, Webhook, eventually, shared};
use serde_json::{Value, json};

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// A namespace, and configurations that concern nothing else. They are gone with it.
struct Place {
    server: Shared,
    http: Http,
    namespace: String,
    configurations: Mutex<Vec<String>>,
}

impl Place {
    fn new(purpose: &str) -> Self {
        let server = shared();
        let (http, namespace) = (server.http(), server.namespace(purpose));
        Self { server, http, namespace, configurations: Mutex::default() }
    }

    /// A configuration with webhooks of the test; what they leave out is filled in.
    fn configure(&self, path: &str, webhooks: &[Value]) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", self.namespace, COUNT.fetch_add(1, Ordering::Relaxed));
        let webhooks: Vec<Value> = webhooks.iter().map(|own| self.complete(own)).collect();
        let configuration = json!({"metadata": {"name": name}, "webhooks": webhooks});
        self.http.post(path, &configuration).expect(201);
        let at = format!("{path}/{name}");
        self.configurations.lock().expect("no test panics here").push(at.clone());
        at
    }

    fn complete(&self, webhook: &Value) -> Value {
        let mut complete = json!({
            "name": "decide.example.com",
            "rules": [{
                "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["configmaps"],
            }],
            "namespaceSelector": {
                "matchLabels": {"kubernetes.io/metadata.name": self.namespace},
            },
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
        });
        let own = webhook.as_object().expect("a webhook is an object");
        for (field, value) in own {
            complete[field] = value.clone();
        }
        complete
    }

    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace)
    }

    fn config_map() -> Value {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("c{}", COUNT.fetch_add(1, Ordering::Relaxed));
        json!({"metadata": {"name": name}, "data": {"a": "b"}})
    }

    fn create(&self) -> Answer {
        self.http.post(&self.path(), &Self::config_map())
    }

    /// Creates until the answer is this: kube-apiserver takes a moment to see a configuration.
    fn create_until(&self, code: u16) -> Answer {
        if !self.server.flavour().is_peer() {
            let answer = self.create();
            assert_eq!(answer.code, code, "{}", answer.text());
            return answer;
        }
        eventually("the configuration counts", || {
            Some(self.create()).filter(|own| own.code == code)
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for at in self.configurations.lock().expect("no test panics here").drain(..) {
            self.http.delete(&at);
        }
    }
}

fn client_config(webhook: &Webhook) -> Value {
    json!({"url": webhook.url("/decide"), "caBundle": webhook.ca_bundle})
}

fn answer(review: &Value, response: Value) -> Value {
    let mut response = response;
    response["uid"] = review["request"]["uid"].clone();
    json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
}

/// Answers every review with the same response.
fn always(response: Value) -> Webhook {
    Webhook::start(move |review| answer(&review, response.clone()))
}

fn patch(operations: &Value) -> Value {
    let patch = STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
}

#[test]
fn a_webhook_refuses_with_its_own_code_reason_and_message() {
    let cases = [
        (
            json!({"allowed": false}),
            400,
            "",
            "admission webhook \"decide.example.com\" denied the request without explanation",
        ),
        (
            json!({"allowed": false, "status": {"message": "no", "code": 403, "reason": "Forbidden"}}),
            403,
            "Forbidden",
            "admission webhook \"decide.example.com\" denied the request: no",
        ),
        (
            json!({"allowed": false, "status": {"reason": "Conflict", "code": 200}}),
            400,
            "Conflict",
            "admission webhook \"decide.example.com\" denied the request: Conflict",
        ),
    ];
    for (path, purpose) in [(VALIDATING, "deny-v"), (MUTATING, "deny-m")] {
        for (response, code, reason, message) in &cases {
            let place = Place::new(purpose);
            let webhook = always(response.clone());
            place.configure(path, &[json!({"clientConfig": client_config(&webhook)})]);
            let status = place.create_until(*code).json();
            assert_eq!(status["message"], *message);
            assert_eq!(status["reason"].as_str().unwrap_or_default(), *reason);
            // Other namespaces are not concerned.
            let other = place.server.namespace("not-concerned");
            let other = format!("/api/v1/namespaces/{other}/configmaps");
            place.http.post(&other, &Place::config_map()).expect(201);
        }
    }
}

#[test]
fn a_review_says_all_about_the_request() {
    let place = Place::new("review");
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let kept = seen.clone();
    let webhook = Webhook::start(move |review| {
        kept.lock().expect("no panic").push(review.clone());
        answer(&review, json!({"allowed": true, "warnings": ["mind the gap"]}))
    });
    place.configure(VALIDATING, &[json!({"clientConfig": client_config(&webhook)})]);
    let created = eventually("the webhook is called", || {
        let created = place.create();
        assert_eq!(created.code, 201, "{}", created.text());
        (webhook.calls() > 0).then_some(created)
    });
    assert_eq!(created.header("warning"), Some("299 - \"mind the gap\""));
    let object = created.json();
    let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
    let at = format!("{}/{name}", place.path());
    place.http.patch(&at, "application/merge-patch+json", &json!({"data": {"a": "c"}})).expect(200);
    place.http.delete(&at).expect(200);
    let seen = seen.lock().expect("no panic");
    let requests: Vec<&Value> = seen.iter().map(|review| &review["request"]).collect();
    let requests: Vec<&Value> =
        requests.into_iter().filter(|request| request["name"] == name.as_str()).collect();
    let told: Vec<&str> =
        requests.iter().filter_map(|request| request["operation"].as_str()).collect();
    assert_eq!(told, ["CREATE", "UPDATE", "DELETE"]);
    let [create, update, delete] = requests[..] else { panic!("three reviews") };
    assert_eq!(create["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(create["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!(create["requestKind"], create["kind"]);
    assert_eq!(create["namespace"], place.namespace.as_str());
    assert_eq!(create["dryRun"], false);
    assert_eq!(create["options"]["kind"], "CreateOptions");
    assert_eq!(create["object"]["data"], json!({"a": "b"}));
    assert_eq!(create["object"]["kind"], "ConfigMap");
    assert!(create["oldObject"].is_null());
    assert!(create["userInfo"]["groups"].to_string().contains("system:authenticated"));
    assert_eq!(update["object"]["data"], json!({"a": "c"}));
    // Exactly what was stored before.
    assert_eq!(update["oldObject"], object);
    assert!(delete["object"].is_null());
    assert_eq!(delete["oldObject"]["data"], json!({"a": "c"}));
    // Connections are kept.
    assert!(webhook.connections() <= 2, "{} connections", webhook.connections());
}

#[test]
fn patches_change_the_object_one_after_the_other() {
    let place = Place::new("patches");
    let first = always(patch(&json!([
        {"op": "add", "path": "/data/first", "value": "1"},
        {"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}},
    ])));
    // Sees what the first has made of it.
    let second = Webhook::start(|review| {
        let count = review["request"]["object"]["data"].as_object().map_or(0, serde_json::Map::len);
        let add = json!([{"op": "add", "path": "/data/second", "value": count.to_string()}]);
        answer(&review, patch(&add))
    });
    place.configure(
        MUTATING,
        &[
            json!({"name": "a.example.com", "clientConfig": client_config(&first)}),
            json!({"name": "b.example.com", "clientConfig": client_config(&second)}),
        ],
    );
    let created = eventually("both have patched", || {
        let created = place.create().expect(201);
        (created["data"]["second"] != Value::Null).then_some(created)
    });
    assert_eq!(created["data"], json!({"a": "b", "first": "1", "second": "2"}));
    assert_eq!(created["metadata"]["labels"], json!({"by": "webhook"}));
    let at = format!("{}/{}", place.path(), created["metadata"]["name"].as_str().expect("a name"));
    assert_eq!(place.http.get(&at).expect(200)["data"], created["data"]);
}

#[test]
fn patches_are_checked_like_what_clients_write() {
    let cases = [
        (json!([{"op": "add", "path": "/data", "value": 7}]), 500, "cannot unmarshal number"),
        (json!([{"op": "add", "path": "/nowhere/at/all", "value": 7}]), 500, "does not apply"),
        (
            json!([{"op": "add", "path": "/metadata/labels", "value": {"-": "x"}}]),
            422,
            "Invalid value",
        ),
        (
            json!([{"op": "replace", "path": "/metadata/name", "value": "?"}]),
            422,
            "ConfigMap \"?\" is invalid: metadata.name",
        ),
        (json!("nonsense"), 500, "received undecodable patch in webhook response"),
    ];
    for (operations, code, message) in cases {
        let place = Place::new("checked");
        let webhook = always(patch(&operations));
        place.configure(MUTATING, &[json!({"clientConfig": client_config(&webhook)})]);
        let answered = place.create_until(code).json();
        let told = answered["message"].as_str().expect("a message");
        assert!(told.contains(message), "{operations}: {told}");
    }
}

#[test]
fn a_patch_that_doubles_the_object_is_bounded() {
    let place = Place::new("doubling");
    let mut operations = vec![json!({"op": "add", "path": "/data/x", "value": "y".repeat(1024)})];
    for round in 0..5_000 {
        let to = format!("/data/x{round}");
        operations.push(json!({"op": "copy", "from": "/data", "path": to}));
    }
    let webhook = always(patch(&json!(operations)));
    place.configure(MUTATING, &[json!({"clientConfig": client_config(&webhook)})]);
    place.create_until(500);
}

/// A webhook that fails, and what kube-apiserver says about it behind `failed calling webhook`.
fn failures() -> Vec<(&'static str, Webhook, Value, &'static str)> {
    let raw = |status: u16, header: (&'static str, &'static str), body: Bytes| {
        Webhook::start_with(move |_| {
            let response = Response::builder().status(status).header(header.0, header.1);
            Reply::Raw(response.body(body.clone()).expect("a response"))
        })
    };
    let json_type = ("content-type", "application/json");
    let with = |webhook: Webhook, why| {
        let config = client_config(&webhook);
        ("", webhook, config, why)
    };
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.local_addr().expect("it has an address")
    };
    let idle = always(json!({"allowed": true}));
    let unreachable = json!({"url": format!("https://{closed}/"), "caBundle": idle.ca_bundle});
    let other = always(json!({"allowed": true}));
    let untrusted = json!({"url": other.url("/"), "caBundle": idle.ca_bundle});
    let mut all = vec![
        with(Webhook::start_with(|_| Reply::Never), "context deadline exceeded"),
        with(raw(200, json_type, "not json".into()), "failed to call webhook"),
        with(raw(200, json_type, "{}".into()), "webhook response was absent"),
        with(raw(200, json_type, "[[[[".repeat(50_000).into()), "failed to call webhook"),
        with(raw(500, json_type, "broken".into()), "an error on the server"),
        with(
            raw(307, ("location", "https://127.0.0.1:1/elsewhere"), Bytes::new()),
            "failed to call webhook",
        ),
        with(
            Webhook::start(|review| {
                let mut answer = answer(&review, json!({"allowed": true}));
                answer["response"]["uid"] = "another".into();
                answer
            }),
            "expected response.uid=",
        ),
        with(
            Webhook::start(|review| {
                let mut answer = answer(&review, json!({"allowed": true}));
                answer["kind"] = "Pod".into();
                answer
            }),
            "failed calling webhook",
        ),
        with(
            Webhook::start(|review| {
                let mut answer = answer(&review, json!({"allowed": true}));
                answer["apiVersion"] = "admission.k8s.io/v1beta1".into();
                answer
            }),
            "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        ),
    ];
    all.push(("", idle, unreachable, "connect: connection refused"));
    all.push(("", other, untrusted, "failed to call webhook: Post "));
    all
}

#[test]
fn what_is_no_answer_refuses_or_is_ignored_as_the_failure_policy_says() {
    for (_, webhook, config, why) in failures() {
        for (path, purpose) in [(VALIDATING, "fails-v"), (MUTATING, "fails-m")] {
            let place = Place::new(purpose);
            let hook = |policy: &str| json!({"clientConfig": config, "failurePolicy": policy, "timeoutSeconds": 1});
            place.configure(path, &[hook("Fail")]);
            let status = place.create_until(500).json();
            let message = status["message"].as_str().expect("a message");
            let start = "Internal error occurred: failed calling webhook \"decide.example.com\": ";
            assert!(message.starts_with(start) && message.contains(why), "{why}: {message}");
            drop(place);
            let place = Place::new(purpose);
            place.configure(path, &[hook("Ignore")]);
            place.create_until(201);
        }
        drop(webhook);
    }
}

#[test]
fn a_huge_answer_is_not_read_to_its_end() {
    let place = Place::new("huge");
    // kube-apiserver reads all of it.
    if place.server.flavour().is_peer() {
        return;
    }
    let padding = Bytes::from("x".repeat(64 * 1024 * 1024));
    let webhook = Webhook::start_with(move |_| Reply::Raw(Response::new(padding.clone())));
    place.configure(VALIDATING, &[json!({"clientConfig": client_config(&webhook)})]);
    let status = place.create().expect(500);
    let message = status["message"].as_str().expect("a message");
    assert!(message.contains("failed to call webhook"), "{message}");
}

#[test]
fn a_webhook_that_hangs_does_not_hold_up_others() {
    let place = Place::new("hangs");
    let webhook = Webhook::start_with(|_| Reply::Never);
    let hook = json!({
        "clientConfig": client_config(&webhook), "timeoutSeconds": 1,
        "objectSelector": {"matchLabels": {"slow": "yes"}},
    });
    place.configure(VALIDATING, &[hook]);
    let slow =
        |at: usize| json!({"metadata": {"name": format!("slow{at}"), "labels": {"slow": "yes"}}});
    let started = std::time::Instant::now();
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..20)
            .map(|at| {
                scope.spawn({
                    let (place, slow) = (&place, &slow);
                    move || place.http.post(&place.path(), &slow(at)).code
                })
            })
            .collect();
        // Meanwhile others are served.
        for _ in 0..10 {
            place.create().expect(201);
        }
        for call in calls {
            assert_eq!(call.join().expect("no panic"), 500);
        }
    });
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
}

#[test]
fn dry_runs_reach_only_webhooks_without_side_effects() {
    let place = Place::new("dry-run");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    let webhook = Webhook::start(move |review| {
        kept.lock().expect("no panic").push(review["request"]["dryRun"].clone());
        answer(&review, json!({"allowed": true}))
    });
    place.configure(
        VALIDATING,
        &[json!({"clientConfig": client_config(&webhook), "sideEffects": "NoneOnDryRun"})],
    );
    eventually("the webhook is called", || {
        place.create().expect(201);
        (webhook.calls() > 0).then_some(())
    });
    place.http.post(&format!("{}?dryRun=All", place.path()), &Place::config_map()).expect(201);
    assert_eq!(seen.lock().expect("no panic").last(), Some(&json!(true)));
}

#[test]
fn a_webhook_is_called_again_if_a_later_one_changes_the_object() {
    for (policy, expected) in [("IfNeeded", "2"), ("Never", "1")] {
        let place = Place::new("again");
        // Counts how often it has seen an object.
        let first = Webhook::start(|review| {
            let seen = review["request"]["object"]["data"]["seen"].as_str().unwrap_or("0");
            let seen = seen.parse::<u32>().unwrap_or_default() + 1;
            let set = json!([{"op": "add", "path": "/data/seen", "value": seen.to_string()}]);
            answer(&review, patch(&set))
        });
        let later = always(patch(&json!([{"op": "add", "path": "/data/later", "value": "x"}])));
        place.configure(
            MUTATING,
            &[
                json!({
                    "name": "a.example.com", "clientConfig": client_config(&first),
                    "reinvocationPolicy": policy,
                }),
                json!({"name": "b.example.com", "clientConfig": client_config(&later)}),
            ],
        );
        let created = eventually("both are called", || {
            let created = place.create().expect(201);
            (created["data"]["later"] != Value::Null).then_some(created)
        });
        assert_eq!(created["data"]["seen"], expected, "{policy}");
    }
}

#[test]
fn match_conditions_decide_before_the_call() {
    let cases = [
        ("object.data.a == 'b'", "Fail", 400),
        ("object.data.a == 'c'", "Fail", 201),
        ("request.operation == 'DELETE'", "Fail", 201),
        ("request.userInfo.username != ''", "Fail", 400),
        ("authorizer.group('').resource('configmaps').check('create').allowed()", "Fail", 400),
        ("authorizer.requestResource.check('delete').allowed()", "Fail", 400),
        ("authorizer.path('/healthz').check('get').reason() == 'never'", "Fail", 201),
        ("object.data.missing == 'x'", "Fail", 403),
        ("object.data.missing == 'x'", "Ignore", 201),
    ];
    let webhook = always(json!({"allowed": false}));
    for (expression, policy, code) in cases {
        let place = Place::new("conditions");
        let hook = json!({
            "clientConfig": client_config(&webhook), "failurePolicy": policy,
            "matchConditions": [{"name": "only", "expression": expression}],
        });
        place.configure(VALIDATING, &[hook]);
        let answered = place.create_until(code);
        if code == 403 {
            let message = answered.json()["message"].as_str().expect("a message").to_owned();
            let why = "is forbidden: expression 'object.data.missing == 'x'' resulted in error: no \
                       such key: missing";
            assert!(message.contains(why), "{message}");
        }
    }
}

#[test]
fn a_webhook_gets_the_version_that_it_asks_for() {
    let place = Place::new("versions");
    let group = format!("{}.example.com", place.namespace);
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
            }}},
        })
    };
    let definition = json!({
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version("v1", true), version("v2", false)],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    place.http.post(definitions, &definition).expect(201);
    let at =
        |version: &str| format!("/apis/{group}/{version}/namespaces/{}/things", place.namespace);
    eventually("things are served", || (place.http.get(&at("v1")).code == 200).then_some(()));
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let kept = seen.clone();
    let webhook = Webhook::start(move |review| {
        kept.lock().expect("no panic").push(review["request"].clone());
        let set = json!([{"op": "replace", "path": "/spec/size", "value": 9}]);
        answer(&review, patch(&set))
    });
    let hook = |policy: &str, name: &str| {
        json!({
            "name": name, "clientConfig": client_config(&webhook), "matchPolicy": policy,
            "rules": [{
                "operations": ["CREATE", "UPDATE"], "apiGroups": [group], "apiVersions": ["v2"],
                "resources": ["things"],
            }],
        })
    };
    place.configure(
        MUTATING,
        &[hook("Exact", "exact.example.com"), hook("Equivalent", "equivalent.example.com")],
    );
    let thing = |name: &str| {
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Thing",
            "metadata": {"name": name}, "spec": {"size": 1},
        })
    };
    let mut count = 0;
    let created = eventually("the webhook is called", || {
        count += 1;
        let created = place.http.post(&at("v1"), &thing(&format!("t{count}"))).expect(201);
        (webhook.calls() > 0).then_some(created)
    });
    // One of the two, in its own version; what it changed is converted back.
    assert_eq!(webhook.calls(), 1);
    assert_eq!(created["apiVersion"], format!("{group}/v1"));
    assert_eq!(created["spec"]["size"], 9);
    let request = seen.lock().expect("no panic")[0].clone();
    assert_eq!(request["kind"]["version"], "v2");
    assert_eq!(request["requestKind"]["version"], "v1");
    assert_eq!(request["object"]["apiVersion"], format!("{group}/v2"));
    // An update keeps its condition on the resourceVersion.
    let name = created["metadata"]["name"].as_str().expect("a name");
    let mut stale = created.clone();
    stale["metadata"]["resourceVersion"] = "1".into();
    place.http.put(&format!("{}/{name}", at("v1")), &stale).expect(409);
    place.http.delete(&format!("{definitions}/things.{group}"));
}

#[test]
fn every_way_to_write_passes_the_webhooks() {
    let place = Place::new("ways");
    let (http, namespace) = (&place.http, &place.namespace);
    let container = json!({"name": "c", "image": "i"});
    let labels = json!({"app": "x"});
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    });
    let deployments = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    http.post(&deployments, &deployment).expect(201);
    place.create().expect(201);
    let kept = Place::config_map();
    let kept_name = kept["metadata"]["name"].as_str().expect("a name").to_owned();
    http.post(&place.path(), &kept).expect(201);
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let noted = seen.clone();
    let webhook = Webhook::start(move |review| {
        noted.lock().expect("no panic").push(review["request"].clone());
        answer(&review, json!({"allowed": false}))
    });
    let rules = json!([{
        "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
    }]);
    place
        .configure(VALIDATING, &[json!({"clientConfig": client_config(&webhook), "rules": rules})]);
    place.create_until(400);
    let at = format!("{}/{kept_name}", place.path());
    let own = format!("{deployments}/d");
    let merge = "application/merge-patch+json";
    let change = json!({"data": {"z": "z"}});
    let refused = [
        ("put", http.put(&at, &kept).code),
        ("merge", http.patch(&at, merge, &change).code),
        (
            "json",
            http.patch(
                &at,
                "application/json-patch+json",
                &json!([{"op": "add", "path": "/data/z", "value": "z"}]),
            )
            .code,
        ),
        ("strategic", http.patch(&at, "application/strategic-merge-patch+json", &change).code),
        (
            "apply",
            http.patch(
                &format!("{at}?fieldManager=m"),
                "application/apply-patch+yaml",
                &json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"z": "z"}}),
            )
            .code,
        ),
        ("delete", http.delete(&at).code),
        ("collection", http.delete(&place.path()).code),
        ("dry run", http.delete(&format!("{at}?dryRun=All")).code),
        (
            "status",
            http.patch(&format!("{own}/status"), merge, &json!({"status": {"replicas": 1}})).code,
        ),
        (
            "scale",
            http.patch(&format!("{own}/scale"), merge, &json!({"spec": {"replicas": 3}})).code,
        ),
    ];
    for (way, code) in refused {
        assert_eq!(code, 400, "{way}");
    }
    // A scale is decided about as a Scale.
    let seen = seen.lock().expect("no panic");
    let scale = seen.iter().find(|request| request["subResource"] == "scale").expect("a scale");
    assert_eq!(scale["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!(scale["object"]["spec"]["replicas"], 3);
    assert_eq!(scale["object"]["kind"], "Scale");
    assert_eq!(scale["oldObject"]["spec"]["replicas"], 1);
}

#[test]
fn a_collection_is_reviewed_object_by_object_by_both_kinds_of_webhooks() {
    let place = Place::new("collection");
    let created = [(); 3].map(|()| place.create().expect(201)["metadata"]["name"].clone());
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let webhook = |kind: &'static str| {
        let seen = seen.clone();
        Webhook::start(move |review| {
            let mut request = review["request"].clone();
            request["by"] = kind.into();
            seen.lock().expect("no panic").push(request);
            answer(&review, json!({"allowed": true}))
        })
    };
    let rules = json!([{
        "operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
    }]);
    let webhooks = [(MUTATING, webhook("mutating")), (VALIDATING, webhook("validating"))];
    for (resource, webhook) in &webhooks {
        let own = json!({"clientConfig": client_config(webhook), "rules": rules});
        place.configure(resource, &[own]);
    }
    // kube-apiserver learns of the webhooks a moment later.
    eventually("both webhooks are called", || {
        let dry_run = format!("{}?dryRun=All", place.path());
        place.http.delete(&dry_run).expect(200);
        let seen = std::mem::take(&mut *seen.lock().expect("no panic"));
        ["mutating", "validating"]
            .iter()
            .all(|kind| seen.iter().any(|request| request["by"] == *kind))
            .then_some(())
    });
    let selector = "fieldSelector=metadata.name!%3Dkube-root-ca.crt";
    place.http.delete(&format!("{}?{selector}", place.path())).expect(200);
    let seen = seen.lock().expect("no panic");
    for kind in ["mutating", "validating"] {
        for name in &created {
            let mut of_kind = seen.iter().filter(|request| request["by"] == kind);
            let review = of_kind.find(|request| request["oldObject"]["metadata"]["name"] == *name);
            let review = review.unwrap_or_else(|| panic!("{kind} of {name}"));
            assert_eq!((&review["name"], &review["object"]), (&Value::Null, &Value::Null));
            assert_eq!(review["operation"], "DELETE");
        }
    }
}

#[test]
fn no_webhook_can_lock_its_own_configuration() {
    let place = Place::new("lock");
    let webhook = always(json!({"allowed": false}));
    let config = client_config(&webhook);
    let rules = json!([{
        "operations": ["*"], "apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["*"],
        "resources": ["*"],
    }]);
    let hook = json!({"clientConfig": config, "rules": rules, "namespaceSelector": {}});
    let at = place.configure(VALIDATING, &[hook]);
    place
        .http
        .patch(&at, "application/merge-patch+json", &json!({"metadata": {"labels": {"a": "b"}}}))
        .expect(200);
    place.http.delete(&at).expect(200);
    assert_eq!(webhook.calls(), 0);
}

#[test]
fn webhooks_are_counted() {
    let place = Place::new("counted");
    let webhook = always(json!({"allowed": false, "status": {"code": 418}}));
    place.configure(
        VALIDATING,
        &[json!({"name": "counted.example.com", "clientConfig": client_config(&webhook)})],
    );
    place.create_until(418);
    let metrics = place.http.get("/metrics").text();
    for line in [
        "apiserver_admission_webhook_rejection_count{error_type=\"no_error\",name=\"counted.example.com\",operation=\"CREATE\",rejection_code=\"418\",type=\"validating\"}",
        "apiserver_admission_webhook_request_total{code=\"418\",name=\"counted.example.com\",operation=\"CREATE\",rejected=\"true\",type=\"validating\"}",
        "apiserver_admission_webhook_admission_duration_seconds_count{name=\"counted.example.com\",operation=\"CREATE\",rejected=\"true\",type=\"validating\"}",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[test]
fn webhooks_get_the_credentials_of_the_admission_configuration() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, value: &Value| {
        let path = directory.path().join(name);
        std::fs::write(&path, value.to_string()).expect("a file");
        path.display().to_string()
    };
    let by_port = always(json!({"allowed": true}));
    let others = always(json!({"allowed": true}));
    let mutating = always(json!({"allowed": true}));
    let name = by_port.url("").replace("https://", "");
    let kubeconfig = write(
        "kubeconfig",
        &json!({"apiVersion": "v1", "kind": "Config", "users": [
            {"name": name, "user": {"token": "for-one-port"}},
            {"name": "*", "user": {"username": "server", "password": "word"}},
        ]}),
    );
    let plugin = |name: &str| {
        json!({"name": name, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": kubeconfig,
        }})
    };
    let file = write(
        "admission.json",
        &json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": [plugin("ValidatingAdmissionWebhook")],
        }),
    );
    let flag = format!("--admission-control-config-file={file}");
    let server = Server::with(Flavour::from_env(), &[&flag]);
    let http = server.http();
    for (path, name, webhook) in [
        (VALIDATING, "by-port", &by_port),
        (VALIDATING, "others", &others),
        // A plugin without a configuration sends none.
        (MUTATING, "mutating", &mutating),
    ] {
        let configuration = json!({"metadata": {"name": name}, "webhooks": [{
            "name": "decide.example.com",
            "clientConfig": client_config(webhook),
            "rules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["configmaps"],
            }],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }]});
        http.post(path, &configuration).expect(201);
        // kube-apiserver takes a moment to see a configuration.
        let before = webhook.calls();
        eventually("the webhook is called", || {
            let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
            http.post(path, &json!({"metadata": {"name": "c"}})).expect(201);
            (webhook.calls() > before).then_some(())
        });
        let sent = webhook.last_headers();
        let sent = sent.get("authorization").map(|value| value.to_str().expect("text").to_owned());
        let expected = match (path, name) {
            (MUTATING, _) => None,
            (_, "by-port") => Some("Bearer for-one-port".to_owned()),
            _ => Some(format!("Basic {}", STANDARD.encode("server:word"))),
        };
        assert_eq!(sent, expected, "{name}");
        http.delete(&format!("{path}/{name}")).expect(200);
    }
}

/// A server that shares its store learns of a configuration, a policy and a binding from its watches.
#[test]
fn configurations_count_on_every_server_over_one_store() {
    let first = Server::on_own_etcd(Flavour::Etcd, 1);
    let second = first.beside(Flavour::Etcd);
    let (first, second) = (first.http(), second.http());
    let webhook = always(json!({"allowed": false, "status": {"message": "by the webhook"}}));
    let rules = json!([{
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["configmaps"],
    }]);
    let group = "/apis/admissionregistration.k8s.io/v1";
    let refuses = |message: &str| {
        eventually(&format!("the other server knows what refuses {message}"), || {
            let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
            let answer = second.post(path, &json!({"metadata": {"name": "c"}}));
            match message {
                "" => answer.code == 201,
                _ => answer.text().contains(message),
            }
            .then_some(())
        });
    };
    let configuration = json!({"metadata": {"name": "w"}, "webhooks": [{
        "name": "decide.example.com", "clientConfig": client_config(&webhook), "rules": rules,
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    }]});
    first.post(VALIDATING, &configuration).expect(201);
    refuses("by the webhook");
    first.delete(&format!("{VALIDATING}/w")).expect(200);
    refuses("");
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "false", "message": "by the policy"}],
    }});
    first.post(&format!("{group}/validatingadmissionpolicies"), &policy).expect(201);
    let binding = json!({
        "metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]},
    });
    let bindings = format!("{group}/validatingadmissionpolicybindings");
    first.post(&bindings, &binding).expect(201);
    refuses("by the policy");
    first.delete(&format!("{bindings}/b")).expect(200);
    refuses("");
}
