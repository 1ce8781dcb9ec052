//! What authentication, audit at level Metadata, flow control and authorization cost a GET, in
//! microseconds of CPU: `cargo test --release -p serve -- --ignored --nocapture cost_of_the_security_chain`.

use std::sync::Arc;

use audit::{AuditMetrics, Auditor, DeliveryOptions, LogOptions, Options};
use auth::{
    Authenticator,
    authz::{
        PrivilegedGroup, Union,
        rbac::{Index, Rbac, Roles, Rule},
    },
};
use flowcontrol::{FlowController, ObjectCounts, ObjectStatistics};
use http::{HeaderMap, Method, Request, Response, header::USER_AGENT};
use meta::{RequestInfo, Str, value};
use prometheus::Registry;

use super::*;
use crate::tls::{
    Roots,
    testing::{Leaf, TestCa},
};

struct Fixed(Arc<Index>);

impl Roles for Fixed {
    fn current(&self) -> Arc<Index> {
        self.0.clone()
    }
}

/// A thousand users with a role each.
fn roles() -> Index {
    let mut index = Index::default();
    let texts = |texts: &[&str]| texts.iter().map(Str::new).collect::<Vec<_>>();
    for at in 0..1000 {
        let name = format!("user-{at}");
        let rule = Rule {
            verbs: texts(&["get", "list", "watch"]),
            api_groups: texts(&["", "apps"]),
            resources: texts(&["configmaps", "deployments", "pods", "services"]),
            ..Rule::default()
        };
        index.set_role("", &name, Some(vec![rule]));
        let binding = value!({
            "roleRef": {"kind": "ClusterRole", "name": (name.as_str())},
            "subjects": [{"kind": "User", "name": (name.as_str())}],
        });
        index.set_binding("", &name, Some(&binding));
    }
    index
}

struct NoObjects;

impl ObjectCounts for NoObjects {
    fn statistics(&self, _: &RequestInfo) -> Option<ObjectStatistics> {
        None
    }
}

fn auditor(directory: &std::path::Path) -> Arc<Auditor> {
    let policy_file = directory.join("policy.yaml");
    let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";
    std::fs::write(&policy_file, text).expect("a file");
    let log = LogOptions {
        path: directory.join("audit.log").display().to_string(),
        format: "json".to_owned(),
        delivery: DeliveryOptions { mode: "blocking".to_owned(), ..DeliveryOptions::default() },
        ..LogOptions::default()
    };
    let options = Options { policy_file: Some(policy_file), log, ..Options::default() };
    let metrics = AuditMetrics::register(&Registry::new());
    Auditor::start(&options, metrics, &background::Tasks::default())
        .expect("it starts")
        .expect("there is a policy")
}

/// Of all threads: the audit log is written by another one.
fn cpu() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).unwrap_or_default())
}

#[tokio::test]
#[ignore = "a measurement: run it by name, in a release build"]
async fn cost_of_the_security_chain() {
    let directory = tempfile::tempdir().expect("a directory");
    let auditor = Some(auditor(directory.path()));
    let ca = TestCa::new("ca");
    let signed = ca.sign(&Leaf::client("user-500", "dev"));
    let roots = Roots::from_pem(ca.pem().as_bytes()).expect("a bundle");
    let peer = Arc::new(Peer::with_certificates(vec![signed.der], roots));
    let authenticator = Authenticator::default();
    let rbac = Rbac(Arc::new(Fixed(Arc::new(roles()))));
    let authorizer = Union(vec![Arc::new(PrivilegedGroup), Arc::new(rbac)]);
    let options =
        flowcontrol::Options { seats: 600, lists_by_size: true, counts: Arc::new(NoObjects) };
    let flow_control = FlowControl::PriorityAndFairness(Arc::new(FlowController::new(options)));
    let metrics = Metrics::new(metrics::MetricsConfig::default());
    let timeout = Duration::from_mins(1);
    let rounds = 20_000;
    for _ in 0..3 {
        let began = cpu();
        for _ in 0..rounds {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, HeaderValue::from_static("kubectl/v1.36.4 (linux/amd64)"));
            let mut request = Request::get("/api/v1/namespaces/default/pods/web").body(());
            let request = request.as_mut().expect("a request");
            *request.headers_mut() = headers;
            let mut cx = Context::new(peer.clone());
            cx.audit = RequestAudit::new(audit_id(request.headers()), auditor.as_ref());
            cx.info = request_info(&Method::GET, request.uri()).expect("a path");
            let path = cx.info.path.clone();
            let filter = Timed::start(Filter::Authentication, &Scope::default());
            let (headers, mut notes) = (request.headers_mut(), TokenNotes::default());
            let user = authenticate(&authenticator, headers, &peer, &path, true, &mut notes).await;
            metrics.authenticated(user.as_ref().map_err(|_| true), &cx, filter.began());
            filter.complete(&metrics, &mut cx);
            cx.user = user.expect("a certificate");
            cx.span = request_span(None, &cx, request);
            assert!(request_audit::begin(auditor.as_ref(), &mut cx, request).await);
            let counted = Some(&metrics.impersonation);
            impersonate(&authorizer, &mut cx, request.headers_mut(), counted)
                .await
                .expect("the headers ask for no impersonation");
            cx.seat = take_seat(&flow_control, &mut cx, "", timeout).await.expect("a seat");
            let filter = Timed::start(Filter::Authorization, &Scope::default());
            let (decision, allowed) = authorize(&authorizer, &cx).await;
            metrics.authorized(decision, filter.began());
            filter.complete(&metrics, &mut cx);
            allowed.expect("a role");
            let mut response = Response::new(Body::full(Vec::new()));
            request_audit::finish(&mut cx, &mut response, Outcome::Answered(None)).await;
        }
        println!(
            "{:.2} µs of CPU per request",
            cpu().saturating_sub(began).as_secs_f64() * 1e6 / f64::from(rounds)
        );
    }
}
