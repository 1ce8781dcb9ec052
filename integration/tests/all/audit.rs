//! Audit: what a policy lets into the log file and to a webhook, with kubectl over TLS.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use bytes::Bytes;
use http::Request;
use integration::{Flavour, Kubectl, Server, Version, Webhook, eventually};
use serde_json::{Value, json};

use crate::assert_contains;

/// A server that audits, and its files.
struct Audited {
    server: Server,
    directory: tempfile::TempDir,
}

impl Audited {
    /// `flags` may name files of the directory as `DIR/…`.
    fn start(policy: &str, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        fs::write(directory.path().join("policy.yaml"), format!("{head}{policy}")).expect("a file");
        let own = ["--audit-policy-file=DIR/policy.yaml"];
        let place = directory.path().display().to_string();
        let flags = own.iter().chain(flags).map(|flag| flag.replace("DIR", &place));
        let flags: Vec<String> = flags.collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Self { server: Server::with(Flavour::from_env(), &flags), directory }
    }

    fn with_log(policy: &str) -> Self {
        Self::start(policy, &["--audit-log-path=DIR/audit.log"])
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("audit.log")
    }

    fn kubectl(&self) -> Kubectl<'_> {
        self.server.kubectl(Version::Current)
    }

    /// The events of requests whose URI has a part, in order.
    fn events(&self, part: &str) -> Vec<Value> {
        let mut events = read(&self.log());
        events.retain(|event| event["requestURI"].as_str().is_some_and(|uri| uri.contains(part)));
        events
    }

    /// The last events of the only request with a verb, once it is complete.
    fn completed(&self, part: &str, verb: &str) -> Value {
        eventually("the request is in the log", || {
            let is_it =
                |event: &Value| event["verb"] == verb && event["stage"] == "ResponseComplete";
            self.events(part).into_iter().find(is_it)
        })
    }
}

/// All lines of a log; each of them is an event.
fn read(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).expect("the log is there");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Requests of controllers are left out: they would be between those of the test.
const QUIET: &str = "- {level: None, userGroups: [\"system:serviceaccounts\", \"system:nodes\"]}\n";

#[test]
fn levels_decide_how_much_of_a_request_is_recorded() {
    let audited = Audited::with_log(&format!(
        "omitManagedFields: true\nrules:\n{QUIET}\
         - {{level: None, resources: [{{group: '', resources: [serviceaccounts]}}], verbs: [get]}}\n\
         - {{level: Metadata, resources: [{{group: '', resources: [secrets]}}]}}\n\
         - {{level: Request, resources: [{{group: apps}}]}}\n\
         - {{level: RequestResponse, resources: [{{group: '', resources: [configmaps]}}]}}\n"
    ));
    let kubectl = audited.kubectl();
    kubectl.ok("create configmap cm --from-literal=a=<b>");
    kubectl.ok("create secret generic s --from-literal=password=hunter2");
    kubectl.ok("create deployment web --image=nginx");
    kubectl.ok("get serviceaccounts");

    let created = audited.completed("/configmaps", "create");
    assert_eq!(created["level"], "RequestResponse");
    assert_eq!(created["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(created["requestObject"]["data"], json!({"a": "<b>"}));
    assert_eq!(created["responseObject"]["metadata"]["name"], "cm");
    assert_eq!(created["responseObject"]["metadata"]["managedFields"], Value::Null);
    assert_eq!(
        created["objectRef"],
        json!({"resource": "configmaps", "namespace": "default", "name": "cm", "apiVersion": "v1"})
    );
    assert_eq!(created["sourceIPs"], json!(["127.0.0.1"]));
    assert!(created["userAgent"].as_str().is_some_and(|agent| agent.starts_with("kubectl/")));
    assert_eq!(created["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(created["user"]["groups"], json!(["system:masters", "system:authenticated"]));
    let received = &audited.events("/configmaps")[0];
    assert_eq!(received["stage"], "RequestReceived");
    assert_eq!(received["auditID"], created["auditID"]);
    assert_eq!(received["requestReceivedTimestamp"], received["stageTimestamp"]);

    let secret = audited.completed("/secrets", "create");
    assert_eq!(secret["level"], "Metadata");
    assert_eq!((&secret["requestObject"], &secret["responseObject"]), (&Value::Null, &Value::Null));
    let deployment = audited.completed("/deployments", "create");
    assert_eq!(deployment["requestObject"]["spec"]["replicas"], 1);
    assert_eq!(deployment["responseObject"], Value::Null);
    assert_eq!(audited.events("/serviceaccounts"), Vec::<Value>::new());
    let text = fs::read_to_string(audited.log()).expect("the log");
    let secret_value = "aHVudGVyMg==";
    assert!(!text.contains("hunter2") && !text.contains(secret_value), "a secret in the log");
}

#[test]
fn every_verb_has_its_events() {
    let audited = Audited::with_log(&format!("rules:\n{QUIET}- {{level: RequestResponse}}\n"));
    let (server, kubectl) = (&audited.server, audited.kubectl());
    kubectl.ok("create configmap cm --from-literal=a=1");
    kubectl.ok("patch configmap cm --type=merge -p '{\"data\":{\"a\":\"2\"}}'");
    let patched = audited.completed("/configmaps/cm", "patch");
    assert_eq!(patched["requestObject"], json!({"data": {"a": "2"}}));
    assert_eq!(patched["responseObject"]["data"], json!({"a": "2"}));
    let apply = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {b: '3'}\n";
    kubectl.ok_with_yaml("apply --server-side -f -", apply);
    let applied = audited.completed("/configmaps/applied", "patch");
    assert_eq!(applied["requestObject"]["data"], json!({"b": "3"}));

    // A watch has a stage of its own, and is complete when it ends.
    let path = "/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3Dcm";
    let mut watch = server.http().stream(path);
    watch.expect("ADDED");
    let stages = || -> Vec<String> {
        let events = audited.events("fieldSelector=metadata.name%3Dcm");
        events.iter().map(|event| event["stage"].as_str().unwrap_or("").to_owned()).collect()
    };
    eventually("the watch has begun", || {
        (stages() == ["RequestReceived", "ResponseStarted"]).then_some(())
    });
    drop(watch);
    eventually("the watch has ended", || (stages().len() == 3).then_some(()));
    assert_eq!(stages()[2], "ResponseComplete");

    kubectl.ok("delete configmap cm");
    let deleted = audited.completed("/configmaps/cm", "delete");
    assert_eq!(deleted["requestObject"]["propagationPolicy"], "Background");
    assert_eq!(deleted["responseStatus"]["status"], "Success");
    assert_eq!(deleted["responseStatus"]["details"]["name"], "cm");
    kubectl.ok("delete configmaps --all");
    let gone = server.http().delete("/api/v1/namespaces/default/configmaps").expect(200);
    assert_eq!(gone["kind"], "ConfigMapList");
    let collection = audited.completed("/configmaps", "deletecollection");
    assert_eq!(collection["responseObject"]["kind"], "ConfigMapList");

    // Tokens stay out, even where the policy asks for bodies.
    let token = kubectl.ok("create token default");
    let issued = audited.completed("/serviceaccounts/default/token", "create");
    assert_eq!(issued["responseObject"]["status"]["token"], "REDACTED");
    let issued = &issued["annotations"]["authentication.kubernetes.io/issued-credential-id"];
    assert!(issued.as_str().is_some_and(|id| id.starts_with("JTI=")), "{issued}");
    kubectl.ok(&format!("get configmaps --token={}", token.trim()));
    let text = fs::read_to_string(audited.log()).expect("the log");
    assert!(!text.contains(token.trim()), "a token in the log");

    // Discovery is recorded as JSON, in whichever form the client gets it.
    for (path, accept, kind) in [
        ("/api/v1?protobuf", "application/vnd.kubernetes.protobuf", "APIResourceList"),
        ("/apis?plain", "application/json", "APIGroupList"),
        (
            "/apis?aggregated",
            "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            "APIGroupDiscoveryList",
        ),
    ] {
        let request = http::Request::get(path).header("accept", accept);
        let answer = server.http().request(request.body(bytes::Bytes::new()).expect("a request"));
        assert_eq!(answer.code, 200, "{path}");
        let event = audited.completed(path, "get");
        assert_eq!(event["responseObject"]["kind"], kind, "{path}");
    }

    let metrics = server.http().get("/metrics").text();
    assert_contains(
        &metrics,
        &[
            "apiserver_audit_event_total ",
            "apiserver_audit_level_total{level=\"RequestResponse\"} ",
            "apiserver_audit_requests_rejected_total 0",
        ],
    );
}

#[test]
fn both_users_and_refusals_are_recorded() {
    let audited = Audited::with_log(&format!("rules:\n{QUIET}- {{level: Metadata}}\n"));
    let kubectl = audited.kubectl();
    kubectl.fail("get secrets --as=bob --as-group=dev");
    let event = audited.completed("/secrets", "list");
    assert_eq!(event["impersonatedUser"]["username"], "bob");
    assert_eq!(event["impersonatedUser"]["groups"], json!(["dev", "system:authenticated"]));
    assert_eq!(event["user"]["groups"][0], "system:masters");
    assert_eq!(event["responseStatus"]["reason"], "Forbidden");
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "forbid");

    let http = audited.server.http().anonymous().with_token("wrong-token");
    http.get("/api/v1/namespaces/unknown/pods").expect(401);
    let events = audited.events("/namespaces/unknown/pods");
    assert_eq!(events.len(), 1);
    let event = &events[0];
    assert_eq!((&event["stage"], &event["user"]), (&json!("ResponseStarted"), &json!({})));
    assert_eq!(event["responseStatus"]["code"], 401);
    let text = fs::read_to_string(audited.log()).expect("the log");
    assert!(!text.contains("wrong-token"), "a token in the log");

    audited.server.http().get("/api/v1/pods?timeout=abc").expect(400);
    let events = audited.events("timeout=abc");
    assert_eq!((events.len(), &events[0]["stage"]), (1, &json!("ResponseStarted")));

    let mut request =
        Request::get("/api/v1/componentstatuses/x").body(Bytes::new()).expect("valid");
    let headers = request.headers_mut();
    headers.insert("x-forwarded-for", "1.2.3.4, ::1".parse().expect("a header"));
    headers.insert("audit-id", "my-own-id".parse().expect("a header"));
    audited.server.http().request(request);
    let event = audited.completed("/componentstatuses/x", "get");
    assert_eq!(event["sourceIPs"], json!(["1.2.3.4", "::1", "127.0.0.1"]));
    assert_eq!(event["auditID"], "my-own-id");
    assert_eq!(event["annotations"]["k8s.io/deprecated"], "true");
}

#[test]
fn full_files_are_rotated_and_compressed() {
    let audited = Audited::start(
        &format!("rules:\n{QUIET}- {{level: RequestResponse}}\n"),
        &[
            "--audit-log-path=DIR/logs/audit.log",
            "--audit-log-maxsize=1",
            "--audit-log-maxbackup=2",
            "--audit-log-compress",
            "--audit-log-mode=batch",
        ],
    );
    let http = audited.server.http();
    let value = "x".repeat(300_000);
    for n in 0..20 {
        let object = json!({"metadata": {"name": format!("cm{n}")}, "data": {"a": value}});
        http.post("/api/v1/namespaces/default/configmaps", &object).expect(201);
    }
    let logs = audited.directory.path().join("logs");
    let names = || -> Vec<String> {
        let names = fs::read_dir(&logs).expect("the directory").map(|entry| entry.expect("a file"));
        let mut names: Vec<_> =
            names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    // `audit-2006-01-02T15-04-05.000.log.gz` twice, and the current file.
    eventually("old files are deleted and the others compressed", || {
        let names = names();
        let compressed = names.iter().filter(|name| name.ends_with(".log.gz")).count();
        (names.len() == 3 && compressed == 2).then_some(())
    });
    assert!(fs::metadata(logs.join("audit.log")).expect("the file").len() <= 1 << 20);
    read(&logs.join("audit.log"));
}

#[test]
fn a_killed_server_leaves_whole_lines() {
    for mode in ["blocking", "batch"] {
        let mode_flag = format!("--audit-log-mode={mode}");
        let mut audited = Audited::start(
            "rules:\n- {level: RequestResponse}\n",
            &["--audit-log-path=DIR/audit.log", &mode_flag],
        );
        let done = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let (http, done) = (audited.server.http(), done.clone());
                thread::spawn(move || {
                    loop {
                        let request = Request::get("/api/v1/namespaces").body(Bytes::new());
                        if http.try_request(request.expect("a request")).is_err() {
                            return;
                        }
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        eventually("requests are served", || (done.load(Ordering::SeqCst) > 100).then_some(()));
        audited.server.kill();
        for worker in workers {
            worker.join().expect("a worker that ended");
        }
        let served = done.load(Ordering::SeqCst);
        let complete = |event: &Value| {
            event["requestURI"] == "/api/v1/namespaces"
                && event["stage"] == "ResponseComplete"
                && event["userAgent"].as_str().is_none_or(|agent| !agent.starts_with("pintle"))
        };
        let recorded = read(&audited.log()).iter().filter(|event| complete(event)).count();
        // Without a queue, no response is sent before its event is written.
        assert!(mode == "batch" || recorded >= served, "{recorded} events of {served} requests");
        assert!(recorded > 0);
        // A line that was cut by a crash of the machine is ended by the next start.
        let mut text = fs::read(audited.log()).expect("the log");
        text.extend_from_slice(b"{\"kind\":\"Eve");
        fs::write(audited.log(), &text).expect("the log");
        audited.server.start_again();
        let whole = fs::read_to_string(audited.log()).expect("the log");
        let broken = whole.lines().filter(|line| serde_json::from_str::<Value>(line).is_err());
        assert_eq!(broken.collect::<Vec<_>>(), ["{\"kind\":\"Eve"]);
    }
}

/// The kubeconfig of a webhook, in a file of the directory.
fn kubeconfig(directory: &Path, webhook: &Webhook) -> PathBuf {
    let file = directory.join("webhook.kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {
            "server": webhook.url("/audit"), "certificate-authority-data": webhook.ca_bundle,
        }}],
    });
    fs::write(&file, config.to_string()).expect("a file");
    file
}

#[test]
fn a_webhook_gets_batches_and_the_rest_at_shutdown() {
    let received: Arc<Mutex<Vec<Value>>> = Arc::default();
    let webhook = Webhook::start({
        let received = received.clone();
        move |list| {
            received.lock().expect("a lock").push(list);
            json!({})
        }
    });
    let directory = tempfile::tempdir().expect("a directory");
    let file =
        format!("--audit-webhook-config-file={}", kubeconfig(directory.path(), &webhook).display());
    let mut audited = Audited::start(
        "omitStages: [RequestReceived]\nrules:\n\
         - {level: Metadata, resources: [{group: '', resources: [configmaps]}], verbs: [create]}\n",
        &[&file, "--audit-webhook-batch-max-size=5", "--audit-webhook-batch-max-wait=10m"],
    );
    let http = audited.server.http();
    for n in 0..12 {
        let object = json!({"metadata": {"name": format!("cm{n}")}});
        http.post("/api/v1/namespaces/default/configmaps", &object).expect(201);
    }
    let names = || -> Vec<String> {
        let received = received.lock().expect("a lock");
        let events = received.iter().flat_map(|list| list["items"].as_array().expect("items"));
        let own = events.map(|event| event["objectRef"]["name"].as_str().unwrap_or("").to_owned());
        own.filter(|name| name.starts_with("cm")).collect()
    };
    eventually("two batches arrive", || (names().len() >= 5).then_some(()));
    let first = received.lock().expect("a lock")[0].clone();
    assert_eq!((&first["kind"], &first["metadata"]), (&json!("EventList"), &json!({})));
    assert_eq!(first["items"].as_array().map(Vec::len), Some(5));
    assert!(audited.server.stop().success());
    let mut all = names();
    all.sort();
    let mut expected: Vec<String> = (0..12).map(|n| format!("cm{n}")).collect();
    expected.sort();
    assert_eq!(all, expected, "queued events are sent at shutdown");
}

#[test]
fn a_webhook_that_is_down_costs_a_bounded_queue_and_no_request() {
    let webhook = Webhook::start(|_| json!({}));
    let directory = tempfile::tempdir().expect("a directory");
    let file =
        format!("--audit-webhook-config-file={}", kubeconfig(directory.path(), &webhook).display());
    // From now on connections are refused.
    drop(webhook);
    let audited = Audited::start(
        "rules:\n- {level: Metadata}\n",
        &[
            &file,
            "--audit-webhook-batch-max-size=1",
            "--audit-webhook-batch-buffer-size=10",
            "--audit-webhook-initial-backoff=1m",
        ],
    );
    let http = audited.server.http();
    eventually("the queue is full, and events are counted as lost", || {
        for _ in 0..20 {
            http.get("/api/v1/namespaces/default").expect(200);
        }
        let metrics = http.get("/metrics").text();
        let lost = "apiserver_audit_error_total{plugin=\"buffered\"} ";
        metrics.lines().any(|line| line.starts_with(lost)).then_some(())
    });
}

#[test]
fn wrong_settings_stop_the_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let policy = directory.path().join("policy.yaml");
    let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
    let cases = [
        ("rules:\n- level: Everything\n", "--audit-log-path=-", "supported values: \"None\""),
        ("rules:\n- level: None\n  user: [a]\n", "--audit-log-path=-", "line 5: unknown field"),
        ("rules: []\n", "--audit-log-path=-", "loaded illegal policy with 0 rules"),
        ("rules: [{level: None}]\n", "--audit-log-path=/proc/none/log", "--audit-log-path"),
        ("rules: [{level: None}]\n", "--audit-webhook-config-file=/none", "audit webhook"),
    ];
    for (text, flag, expected) in cases {
        fs::write(&policy, format!("{head}{text}")).expect("a file");
        let data = directory.path().join("data");
        let output = std::process::Command::new(integration::pintle_program())
            .arg(format!("--data-dir={}", data.display()))
            .arg(format!("--audit-policy-file={}", policy.display()))
            .args([flag, "--secure-port=0"])
            .output()
            .expect("pintle can be started");
        assert!(!output.status.success(), "{text} {flag}");
        assert_contains(&String::from_utf8_lossy(&output.stderr), &[expected]);
    }
}
