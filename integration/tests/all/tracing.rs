//! Spans of requests, exported to a collector over OTLP; the log of requests.

use std::{fs, thread};

use bytes::Bytes;
use http::Request;
use integration::{CollectedSpan, Collector, Flavour, Http, Server, Webhook, eventually};
use serde_json::json;

use crate::assert_contains;

/// A server that exports to a collector.
fn traced(flavour: Flavour, collector: &Collector, rate: u32, flags: &[&str]) -> Server {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tracing.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n\
         endpoint: {}\nsamplingRatePerMillion: {rate}\n",
        collector.endpoint
    );
    fs::write(&file, text).expect("a file");
    let own = format!("--tracing-config-file={}", file.display());
    let mut all = vec![own.as_str()];
    all.extend(flags);
    // The file is read at start.
    Server::with(flavour, &all)
}

/// The spans of a server, which sends the last of them when it stops.
fn collect(mut server: Server, collector: &Collector) -> Vec<CollectedSpan> {
    assert!(server.stop().success());
    collector.spans()
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn parent(flags: &str) -> String {
    format!("00-{TRACE}-b7ad6b7169203331-{flags}")
}

fn send(http: &Http, method: &str, path: &str, body: &str, headers: &[(&str, &str)]) -> u16 {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.header("content-type", "application/json");
    http.request(request.body(Bytes::from(body.to_owned())).expect("a request")).code
}

fn find<'a>(spans: &'a [CollectedSpan], name: &str) -> &'a CollectedSpan {
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} in {names:?}"))
}

#[test]
fn a_request_of_an_administrator_is_part_of_its_trace() {
    let collector = Collector::start();
    let server = traced(Flavour::from_env(), &collector, 0, &[]);
    let http = server.http();
    let webhook = Webhook::start(|review| {
        let uid = review["request"]["uid"].clone();
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
               "response": {"uid": uid, "allowed": true}})
    });
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let configuration = json!({"metadata": {"name": "traced"}, "webhooks": [{
        "name": "traced.example.com",
        "clientConfig": {"url": webhook.url("/decide"), "caBundle": webhook.ca_bundle},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                   "resources": ["configmaps"]}],
        // Not what controllers create meanwhile.
        "objectSelector": {"matchLabels": {"traced": "yes"}},
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    }]});
    http.post(hooks, &configuration).expect(201);
    let sampled = parent("01");
    let headers = [
        ("traceparent", sampled.as_str()),
        ("tracestate", "vendor=1"),
        ("baggage", "who=test"),
        ("audit-id", "trace-me"),
        ("user-agent", "tracer/1"),
    ];
    let path = "/api/v1/namespaces/default/configmaps";
    let body = r#"{"metadata":{"name":"traced","labels":{"traced":"yes"}}}"#;
    assert_eq!(send(&http, "POST", path, body, &headers), 201);
    let passed_on = webhook.last_headers();
    let passed_on = |name: &str| passed_on.get(name).and_then(|value| value.to_str().ok());
    assert!(passed_on("traceparent").is_some_and(|parent| parent.contains(TRACE)));
    assert_eq!(
        (passed_on("tracestate"), passed_on("baggage")),
        (Some("vendor=1"), Some("who=test"))
    );
    assert_eq!(http.get("/api/v1/namespaces/default/configmaps/other").code, 404, "not sampled");

    let spans = collect(server, &collector);
    assert!(spans.iter().all(|span| span.trace_id == TRACE), "{spans:#?}");
    let request = find(&spans, "POST /api/v1/namespaces/{:namespace}/configmaps");
    assert_eq!((request.kind, request.parent.as_str()), (2, "b7ad6b7169203331"));
    let attribute = |name: &str| request.attributes.get(name).map(String::as_str);
    assert_eq!(attribute("http.request.method"), Some("POST"));
    assert_eq!(attribute("http.response.status_code"), Some("201"));
    assert_eq!(attribute("url.path"), Some(path));
    assert_eq!(attribute("http.target"), Some(path));
    assert_eq!(attribute("url.scheme"), Some("https"));
    assert_eq!(attribute("audit-id"), Some("trace-me"));
    assert_eq!(attribute("user_agent.original"), Some("tracer/1"));
    assert_eq!(attribute("client.address"), Some("127.0.0.1"));
    assert_eq!(request.resource["service.name"], "apiserver");
    assert!(request.resource["service.instance.id"].starts_with("apiserver-"));
    for filter in [
        "authentication",
        "audit",
        "constrainedimpersonation",
        "priorityandfairness",
        "authorization",
    ] {
        assert_eq!(find(&spans, filter).parent, request.span_id, "{filter}");
    }
    let create = find(&spans, "Create");
    assert_eq!(create.parent, request.span_id);
    assert_eq!(create.attributes["resource"], "configmaps");
    assert_eq!(create.attributes["namespace"], "default");
    let call = find(&spans, "Call validating webhook");
    assert_eq!(call.parent, create.span_id);
    assert_eq!(call.attributes["webhook"], "traced.example.com");
    assert_eq!(call.attributes["configuration"], "traced");
    let post = find(&spans, "HTTP POST");
    assert_eq!((post.kind, &post.parent), (3, &call.span_id));
    assert_eq!(post.attributes["url.full"], webhook.url("/decide"));
    assert_eq!(post.attributes["http.response.status_code"], "200");
    assert!(call.nanos >= post.nanos && create.nanos >= call.nanos);
    assert_eq!(find(&spans, "store.Write").parent, create.span_id);
}

#[test]
fn calls_to_etcd_are_spans_of_the_request() {
    let collector = Collector::start();
    let server = traced(Flavour::Etcd, &collector, 0, &[]);
    let sampled = parent("01");
    let path = "/api/v1/namespaces/default/configmaps";
    let body = r#"{"metadata":{"name":"traced"}}"#;
    assert_eq!(send(&server.http(), "POST", path, body, &[("traceparent", &sampled)]), 201);
    let spans = collect(server, &collector);
    let call = find(&spans, "etcdserverpb.KV/Txn");
    assert_eq!((call.kind, &call.parent), (3, &find(&spans, "store.Write").span_id));
    assert_eq!(call.attributes["rpc.method"], "Txn");
}

/// Security case C19: otherwise any client could have all its requests recorded.
#[test]
fn other_clients_do_not_decide_what_is_recorded() {
    let collector = Collector::start();
    let server = traced(Flavour::Embedded, &collector, 0, &[]);
    let sampled = parent("01");
    let baggage = "a=".repeat(32 * 1024);
    let mut headers = vec![("traceparent", sampled.as_str())];
    headers.extend([("baggage", baggage.as_str()); 3]);
    let users = [server.http().anonymous(), server.http()];
    for (at, http) in users.iter().enumerate() {
        let mut headers = headers.clone();
        if at == 1 {
            headers.extend([("impersonate-user", "jane"), ("impersonate-group", "system:masters")]);
        }
        for _ in 0..20 {
            assert_eq!(send(http, "GET", "/version", "", &headers), 200);
        }
    }
    let spans = collect(server, &collector);
    // An administrator that impersonates a user is still the authenticated user.
    assert_eq!(spans.iter().filter(|span| span.kind == 2).count(), 20, "{spans:#?}");
}

/// The requests that no caller records are sampled by the configured rate, and begin a trace.
#[test]
fn a_share_of_all_requests_is_recorded() {
    let collector = Collector::start();
    let server = traced(Flavour::Embedded, &collector, 1_000_000, &[]);
    let sampled = parent("01");
    let anonymous = server.http().anonymous();
    assert_eq!(send(&anonymous, "GET", "/version", "", &[("traceparent", &sampled)]), 200);
    let unsampled = parent("00");
    let marked = [("traceparent", unsampled.as_str()), ("user-agent", "silent")];
    assert_eq!(send(&server.http(), "GET", "/version", "", &marked), 200);
    let spans = collect(server, &collector);
    let requests: Vec<_> = spans.iter().filter(|span| span.kind == 2).collect();
    let anonymous = requests.iter().find(|span| !span.links.is_empty()).expect("a link");
    assert_eq!((anonymous.name.as_str(), &anonymous.links), ("GET", &vec![TRACE.to_owned()]));
    assert_ne!(anonymous.trace_id, TRACE);
    assert_eq!(anonymous.parent, "");
    let silent = |span: &&CollectedSpan| {
        span.attributes.get("user_agent.original").is_some_and(|agent| agent == "silent")
    };
    assert!(!requests.iter().any(silent), "its sender does not record it");
}

/// A collector that takes connections and answers nothing costs requests nothing.
#[test]
fn a_collector_that_hangs_does_not_delay_requests() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = listener.local_addr().expect("an address").to_string();
    let held = thread::spawn(move || listener.incoming().take(1).collect::<Vec<_>>());
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tracing.yaml");
    let head = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\n";
    fs::write(&file, format!("{head}endpoint: {endpoint}\nsamplingRatePerMillion: 1000000\n"))
        .expect("a file");
    let flag = format!("--tracing-config-file={}", file.display());
    let server = Server::with(Flavour::Embedded, &[&flag]);
    let http = server.http();
    let began = std::time::Instant::now();
    // Each is some seven spans; the queue takes 2048.
    for _ in 0..500 {
        assert_eq!(http.get("/api/v1/namespaces/default").code, 200);
    }
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    let metrics = http.get("/metrics").text();
    let dropped = metrics
        .lines()
        .find_map(|line| line.strip_prefix("pintle_tracing_spans_total{result=\"dropped\"} "));
    assert!(dropped.is_some_and(|count| count.parse::<u64>().is_ok_and(|count| count > 0)));
    drop(server);
    drop(held);
}

#[test]
fn a_tracing_configuration_with_an_error_stops_the_start() {
    let cases = [
        ("endpoint: 127.0.0.1:4317\nsampling: 1\n", "line 4: unknown field \"sampling\""),
        ("samplingRatePerMillion: 2000000\n", "less than or equal to one million"),
        ("endpoint: https://127.0.0.1:4317\n", "unsupported scheme: https"),
        ("endpoint: [\n", "yaml: line"),
    ];
    for (text, expected) in cases {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("tracing.yaml");
        let head = "apiVersion: apiserver.config.k8s.io/v1alpha1\nkind: TracingConfiguration\n";
        fs::write(&file, format!("{head}{text}")).expect("a file");
        let output = std::process::Command::new("timeout")
            .arg("60")
            .arg(integration::pintle_program())
            .arg(format!("--data-dir={}", directory.path().display()))
            .arg("--secure-port=0")
            .arg(format!("--tracing-config-file={}", file.display()))
            .output()
            .expect("pintle can be started");
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert_contains(&String::from_utf8_lossy(&output.stderr), &["tracing.yaml", expected]);
    }
}

/// Security cases H23, L01: what clients send is escaped and cut, and no token is in the log.
#[test]
fn requests_are_logged_from_verbosity_three() {
    let server = Server::with(Flavour::Embedded, &["--v=3"]);
    let agent = "agent\u{1b}[31m".to_owned() + &"x".repeat(5000);
    let agent: String = agent.chars().filter(|c| !c.is_control()).collect();
    let headers = [("user-agent", agent.as_str()), ("audit-id", "log-me")];
    let path = "/api/v1/namespaces/default/configmaps?limit=1&access_token=hunter2";
    assert_eq!(send(&server.http(), "GET", path, "", &headers), 200);
    let line = eventually("the request is logged", || {
        let log = server.log();
        log.lines().find(|line| line.contains("audit-ID=\"log-me\"")).map(str::to_owned)
    });
    assert_contains(
        &line,
        &[
            "] \"HTTP\" verb=\"LIST\" URI=\"/api/v1/namespaces/default/configmaps?limit=1&",
            "access_token=REDACTED\" latency=\"",
            " userAgent=\"agent[31mxxx",
            "…\" audit-ID=\"log-me\" srcIP=\"127.0.0.1:",
            "\" apf_pl=\"exempt\" apf_fs=\"exempt\" resp=200",
        ],
    );
    assert!(line.len() < 4000, "{} bytes", line.len());
    assert!(!server.log().contains("hunter2"));
    // Libraries are silent, and so is everything else about single requests.
    let quiet = Server::with(Flavour::Embedded, &["--v=2"]);
    assert_eq!(send(&quiet.http(), "GET", "/version", "", &headers), 200);
    assert!(!quiet.log().contains("log-me"));
    let verbose = Server::with(Flavour::Embedded, &["--v=9"]);
    assert_eq!(send(&verbose.http(), "GET", "/version", "", &headers), 200);
    let log = verbose.log();
    for library in ["codec/", "h2", "framed_", "FramedRead", "hyper", "rustls"] {
        assert!(!log.contains(library), "{library} in {log}");
    }
}

#[test]
fn the_time_of_each_filter_is_a_metric() {
    let server = Server::with(Flavour::Embedded, &[]);
    assert_eq!(server.http().get("/version").code, 200);
    let metrics = server.http().get("/metrics").text();
    for filter in [
        "authentication",
        "audit",
        "constrainedimpersonation",
        "priorityandfairness",
        "authorization",
    ] {
        let name = "apiserver_request_filter_duration_seconds_count";
        let line = format!("{name}{{filter=\"{filter}\"}} ");
        let count = metrics.lines().find_map(|found| found.strip_prefix(&line));
        assert!(count.is_some_and(|count| count != "0"), "{filter}: {count:?}");
    }
}
