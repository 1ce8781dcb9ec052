use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
};

use audit::{AuditMetrics, DeliveryOptions, LogOptions, Options};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use meta::{ApiError, RequestInfo, Value};
use prometheus::Registry;

use super::*;
use crate::connection::Peer;

struct Log {
    _directory: tempfile::TempDir,
    path: std::path::PathBuf,
    auditor: Arc<Auditor>,
}

impl Log {
    fn new(policy: &str) -> Self {
        Self::with(policy, |_| {})
    }

    fn with(policy: &str, change: impl FnOnce(&mut LogOptions)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let policy_file = directory.path().join("policy.yaml");
        let text = format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, {policy}}}");
        fs::write(&policy_file, text).unwrap();
        let mut log = LogOptions {
            path: path.display().to_string(),
            format: "json".to_owned(),
            delivery: DeliveryOptions { mode: "blocking-strict".to_owned(), ..Default::default() },
            ..LogOptions::default()
        };
        change(&mut log);
        let options = Options { policy_file: Some(policy_file), log, ..Options::default() };
        let metrics = AuditMetrics::register(&Registry::new());
        let auditor =
            Auditor::start(&options, metrics, &background::Tasks::default()).unwrap().unwrap();
        Self { _directory: directory, path, auditor }
    }

    fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.path).unwrap();
        let options = codec::json::DecodeOptions { strict: true };
        let read = |line: &str| codec::json::decode_any(line.as_bytes(), options).unwrap().value;
        text.lines().map(read).collect()
    }

    /// `STAGE CODE MESSAGE` of every event.
    #[track_caller]
    fn check(&self, expected: &[&str]) {
        let show = |event: &Value| {
            let status = |field| event.str_at(&["responseStatus", field]).to_owned();
            let code = event.i64_at(&["responseStatus", "code"]).unwrap_or_default();
            format!("{} {code} {}", event.str_at(&["stage"]), status("message"))
        };
        let found: Vec<String> = self.events().iter().map(show).collect();
        let found: Vec<&str> = found.iter().map(|text| text.trim_end()).collect();
        assert_eq!(found, expected);
    }

    fn context(&self, verb: &str) -> Context {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let mut cx = Context::new(Arc::new(Peer::detached(address)));
        cx.audit = RequestAudit::new("id".to_owned(), Some(&self.auditor));
        cx.user = User { name: "joe".into(), ..User::default() };
        cx.info = RequestInfo {
            verb: verb.into(),
            is_resource: true,
            version: "v1".into(),
            resource: "pods".into(),
            namespace: "ns".into(),
            ..RequestInfo::default()
        };
        cx
    }

    async fn begun(&self, verb: &str) -> Context {
        let mut cx = self.context(verb);
        assert!(begin(Some(&self.auditor), &mut cx, &request()).await);
        cx
    }
}

fn request() -> Request<()> {
    let request = Request::get("/api/v1/namespaces/ns/pods?a=b&access_token=abc&c=d");
    request.header("authorization", "Bearer s3cret").body(()).unwrap()
}

fn answer(body: Body) -> Response<Body> {
    Response::new(body)
}

const ALL: &str = "rules: [{level: RequestResponse}]";

#[tokio::test]
async fn a_request_has_two_events_and_a_watch_three() {
    let log = Log::new(ALL);
    let mut cx = log.begun("get").await;
    let mut whole = answer(Body::full("{}"));
    finish(&mut cx, &mut whole, Outcome::Answered(None)).await;
    drop(cx);
    log.check(&["RequestReceived 0", "ResponseComplete 200"]);
    let events = log.events();
    assert_eq!(
        events[0].str_at(&["requestURI"]),
        "/api/v1/namespaces/ns/pods?a=b&access_token=REDACTED&c=d"
    );
    assert!(!fs::read_to_string(&log.path).unwrap().contains("s3cret"));

    let log = Log::new(ALL);
    let mut cx = log.begun("watch").await;
    let mut watch = answer(Body::events(futures_util::stream::iter([Bytes::from("{}")])));
    finish(&mut cx, &mut watch, Outcome::Answered(None)).await;
    drop(cx);
    log.check(&["RequestReceived 0", "ResponseStarted 200"]);
    watch.into_body().collect().await.unwrap();
    log.check(&["RequestReceived 0", "ResponseStarted 200", "ResponseComplete 200"]);
}

#[tokio::test]
async fn a_streamed_list_is_complete_when_it_has_been_sent() {
    let log = Log::new(ALL);
    let mut cx = log.begun("list").await;
    let mut list = answer(Body::chunks([Ok(Bytes::from("["))]));
    finish(&mut cx, &mut list, Outcome::Answered(None)).await;
    log.check(&["RequestReceived 0"]);
    list.into_body().collect().await.unwrap();
    log.check(&["RequestReceived 0", "ResponseComplete 200"]);
}

#[tokio::test]
async fn failures_have_their_status() {
    let log = Log::new(ALL);
    let mut cx = log.begun("watch").await;
    let error = ApiError::bad_request("no");
    let mut response = answer(Body::full("{}"));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let outcome = Outcome::Answered(Some(error.status()));
    finish(&mut cx, &mut response, outcome).await;
    log.check(&["RequestReceived 0", "ResponseStarted 400 no", "ResponseComplete 400 no"]);
    let last = &log.events()[2];
    assert_eq!(last.str_at(&["responseObject", "kind"]), "Status");
    assert_eq!(last.str_at(&["responseStatus", "kind"]), "");
}

#[tokio::test]
async fn a_request_without_a_user_has_one_event() {
    let log = Log::new(ALL);
    let mut cx = log.context("get");
    refused(Some(&log.auditor), &mut cx, &request());
    let mut response = answer(Body::full("{}"));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    let outcome = Outcome::Answered(Some(ApiError::Unauthorized.status()));
    finish(&mut cx, &mut response, outcome).await;
    drop(cx);
    log.check(&["ResponseStarted 401 Unauthorized"]);
    assert_eq!(log.events()[0].at(&["user"]), Some(&Value::object()));
}

#[tokio::test]
async fn panics_and_lost_clients_are_recorded() {
    let log = Log::new(ALL);
    let mut cx = log.begun("get").await;
    let mut response = answer(Body::full("{}"));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    let outcome = Outcome::Panicked("oops".to_owned());
    finish(&mut cx, &mut response, outcome).await;
    drop(cx);
    log.check(&["RequestReceived 0", "Panic 500 APIServer panic'd: oops"]);

    let log = Log::new(ALL);
    let cx = log.begun("get").await;
    cx.audit.record.annotations.add("a", "b");
    // The connection is gone, and the handler with it.
    drop(cx);
    log.check(&["RequestReceived 0", "ResponseComplete 200 Connection closed early"]);
    assert_eq!(log.events()[1].str_at(&["annotations", "a"]), "b");
}

#[tokio::test]
async fn the_policy_decides_about_levels_and_stages() {
    let log = Log::new(
        "omitStages: [RequestReceived], rules: [{level: None, verbs: [get]}, {level: Metadata}]",
    );
    let cx = log.begun("get").await;
    assert!(!cx.audit.record.is_on());
    cx.audit.record.annotations.add("a", "b");
    drop(cx);
    let mut cx = log.begun("list").await;
    let other = User { name: "bob".into(), ..User::default() };
    cx.audit.impersonated(&other, "impersonate:user-info");
    cx.audit.record.request_object(&Value::object(), || b"{\"secret\":1}".to_vec());
    cx.audit.record.response_object(b"{}".to_vec());
    finish(&mut cx, &mut answer(Body::empty()), Outcome::Answered(None)).await;
    log.check(&["ResponseComplete 200"]);
    let event = &log.events()[0];
    assert_eq!(event.str_at(&["level"]), "Metadata");
    assert_eq!(event.str_at(&["user", "username"]), "joe");
    assert_eq!(event.str_at(&["impersonatedUser", "username"]), "bob");
    let constraint = ["authenticationMetadata", "impersonationConstraint"];
    assert_eq!(event.str_at(&constraint), "impersonate:user-info");
    assert_eq!((event.at(&["requestObject"]), event.at(&["responseObject"])), (None, None));
}

#[tokio::test]
async fn a_request_fails_if_its_first_event_cannot_be_stored() {
    let log = Log::with(ALL, |log| log.path = "/dev/full".to_owned());
    let mut cx = log.context("get");
    assert!(!begin(Some(&log.auditor), &mut cx, &request()).await);
    assert_eq!(log.auditor.metrics.rejected.get(), 1);
    assert_eq!(log.auditor.metrics.events.get(), 1);
    let mut response = answer(Body::full("{}"));
    finish(&mut cx, &mut response, Outcome::Answered(None)).await;
    assert_eq!(log.auditor.metrics.events.get(), 1, "no other event follows");
}
