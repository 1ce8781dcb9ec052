//! Metrics of authentication, impersonation, authorization, audit and flow control, by kube-apiserver's
//! names: each is made to count.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;
use integration::{Flavour, Http, Server, eventually};
use serde_json::{Value, json};

/// The sum of the series of a metric that have all of these labels.
fn metric(http: &Http, name: &str, labels: &[&str]) -> Option<f64> {
    let text = http.get("/metrics").text();
    let mut values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (series, value) = rest.rsplit_once(' ')?;
        let is_it = series.is_empty() || series.starts_with('{');
        (is_it && labels.iter().all(|label| series.contains(label))).then(|| value.parse().ok())?
    });
    values.next().map(|first: f64| first + values.sum::<f64>())
}

fn with_headers(http: &Http, path: &str, headers: &[(&str, &str)]) -> u16 {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    http.request(request.body(Bytes::new()).expect("a request")).code
}

#[test]
fn impersonation_is_counted_by_mode_and_decision() {
    let server = Server::with(Flavour::from_env(), &[]);
    let http = server.http();
    assert_eq!(with_headers(&http, "/api/v1/namespaces", &[("impersonate-user", "jane")]), 403);
    let attempts = "apiserver_impersonation_attempts_total";
    let checks = "apiserver_impersonation_authorization_attempts_total";
    // An administrator may impersonate by any verb; the narrow mode is tried first.
    let mode = [r#"mode="user-info""#, r#"decision="allowed""#];
    assert_eq!(metric(&http, attempts, &mode), Some(1.0));
    assert!(metric(&http, checks, &mode) >= Some(2.0));
    let durations = "apiserver_impersonation_attempts_duration_seconds_count";
    assert_eq!(metric(&http, durations, &mode), Some(1.0));
    let durations = "apiserver_impersonation_authorization_attempts_duration_seconds_count";
    assert!(metric(&http, durations, &mode) >= Some(2.0));
    let kubectl = server.kubectl(integration::Version::Current);
    let robot = kubectl.ok("create token default");
    let robot = http.clone().with_token(robot.trim());
    assert_eq!(with_headers(&robot, "/api/v1/namespaces", &[("impersonate-user", "jane")]), 403);
    assert_eq!(metric(&http, attempts, &[r#"mode="""#, r#"decision="denied""#]), Some(1.0));
    let legacy = [r#"mode="legacy""#, r#"decision="denied""#];
    assert_eq!(metric(&http, checks, &legacy), Some(1.0));
}

#[test]
fn uses_of_service_account_tokens_are_counted_and_audited() {
    let files = tempfile::tempdir().expect("a directory");
    let policy = files.path().join("policy.yaml");
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
    std::fs::write(&policy, text).expect("a file");
    let log = files.path().join("audit.log");
    let flags = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::with(Flavour::from_env(), &flags);
    let http = server.http();
    let annotated = |key: &str| -> Value {
        eventually("the event is in the log", || {
            let text = std::fs::read_to_string(&log).expect("the log");
            let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut found = events.filter_map(|event| event["annotations"].get(key).cloned());
            found.next()
        })
    };
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = |name: &str| {
        let secret = json!({
            "type": "kubernetes.io/service-account-token",
            "metadata": {"name": name,
                "annotations": {"kubernetes.io/service-account.name": "default"}},
        });
        http.post(secrets, &secret).expect(201);
        let path = format!("{secrets}/{name}");
        let token = eventually("the secret is filled", || {
            let secret = http.get(&path).expect(200);
            secret["data"]["token"].as_str().map(str::to_owned)
        });
        String::from_utf8(STANDARD.decode(token).expect("base64")).expect("text")
    };
    // The secret of an account that is not there yet is deleted.
    eventually("the account", || {
        (http.get("/api/v1/namespaces/default/serviceaccounts/default").code == 200).then_some(())
    });
    let subject = "system:serviceaccount:default:default";
    let manual = secret("manual");
    assert_eq!(http.clone().with_token(&manual).get(secrets).code, 403);
    assert_eq!(metric(&http, "serviceaccount_legacy_tokens_total", &[]), Some(1.0));
    assert_eq!(metric(&http, "serviceaccount_legacy_manual_token_uses_total", &[]), Some(1.0));
    assert_eq!(annotated("authentication.k8s.io/legacy-token"), subject);
    assert_eq!(annotated("authentication.k8s.io/legacy-token-manual-secret"), "manual");

    // A secret that the account lists was made by a controller.
    let auto = secret("auto");
    let patch = json!({"secrets": [{"name": "auto"}]});
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    http.patch(account, "application/merge-patch+json", &patch).expect(200);
    let answer = eventually("the account names it", || {
        let answer = http.clone().with_token(&auto).get(secrets);
        answer.header("warning").is_some().then_some(answer)
    });
    assert!(
        answer.header("warning").is_some_and(|text| text.contains("auto-generated secret-based")),
        "{answer:?}"
    );
    assert!(metric(&http, "serviceaccount_legacy_auto_token_uses_total", &[]) >= Some(1.0));
    assert_eq!(annotated("authentication.k8s.io/legacy-token-autogenerated-secret"), "auto");
    let label = json!({"metadata": {"labels": {
        "kubernetes.io/legacy-token-invalid-since": "2026-01-01"}}});
    http.patch(&format!("{secrets}/auto"), "application/merge-patch+json", &label).expect(200);
    eventually("the token is refused", || {
        (http.clone().with_token(&auto).get(secrets).code == 401).then_some(())
    });
    let invalid = "serviceaccount_invalid_legacy_auto_token_uses_total";
    assert!(metric(&http, invalid, &[]) >= Some(1.0));
    assert_eq!(annotated("authentication.k8s.io/legacy-token-invalidated"), "auto/default");

    // What a pod's volume asks for lives on for a year, and is valid until it should have been renewed.
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pod = http.post("/api/v1/namespaces/default/pods", &pod).expect(201);
    let request = json!({"spec": {"expirationSeconds": 3607, "boundObjectRef": {
        "kind": "Pod", "apiVersion": "v1", "name": "p", "uid": pod["metadata"]["uid"]}}});
    let issued = http.post(&format!("{account}/token"), &request).expect(201);
    let token = issued["status"]["token"].as_str().expect("a token");
    assert_eq!(http.clone().with_token(token).get(secrets).code, 403);
    assert_eq!(metric(&http, "serviceaccount_valid_tokens_total", &[]), Some(1.0));
    assert_eq!(metric(&http, "serviceaccount_stale_tokens_total", &[]), Some(0.0));
}

/// The families of this chain that kube-apiserver has from its first request on. Those that need a
/// webhook, an issuer or a file are in the tests of these.
const FAMILIES: &[&str] = &[
    "apiserver_audit_event_total",
    "apiserver_audit_requests_rejected_total",
    "apiserver_authorization_decisions_total",
    "apiserver_client_certificate_expiration_seconds",
    "apiserver_current_inflight_requests",
    "apiserver_current_inqueue_requests",
    "apiserver_flowcontrol_current_executing_requests",
    "apiserver_flowcontrol_current_executing_seats",
    "apiserver_flowcontrol_current_inqueue_requests",
    "apiserver_flowcontrol_current_inqueue_seats",
    "apiserver_flowcontrol_current_limit_seats",
    "apiserver_flowcontrol_current_r",
    "apiserver_flowcontrol_demand_seats",
    "apiserver_flowcontrol_demand_seats_average",
    "apiserver_flowcontrol_demand_seats_high_watermark",
    "apiserver_flowcontrol_demand_seats_smoothed",
    "apiserver_flowcontrol_demand_seats_stdev",
    "apiserver_flowcontrol_dispatch_r",
    "apiserver_flowcontrol_dispatched_requests_total",
    "apiserver_flowcontrol_latest_s",
    "apiserver_flowcontrol_lower_limit_seats",
    "apiserver_flowcontrol_next_discounted_s_bounds",
    "apiserver_flowcontrol_next_s_bounds",
    "apiserver_flowcontrol_nominal_limit_seats",
    "apiserver_flowcontrol_priority_level_request_utilization",
    "apiserver_flowcontrol_priority_level_seat_utilization",
    "apiserver_flowcontrol_read_vs_write_current_requests",
    "apiserver_flowcontrol_request_execution_seconds",
    "apiserver_flowcontrol_request_queue_length_after_enqueue",
    "apiserver_flowcontrol_request_wait_duration_seconds",
    "apiserver_flowcontrol_seat_fair_frac",
    "apiserver_flowcontrol_target_seats",
    "apiserver_flowcontrol_upper_limit_seats",
    "apiserver_flowcontrol_watch_count_samples",
    "apiserver_flowcontrol_work_estimated_seats",
    "apiserver_kube_aggregator_x509_insecure_sha1_total",
    "apiserver_kube_aggregator_x509_missing_san_total",
    "apiserver_request_filter_duration_seconds",
    "apiserver_tls_handshake_errors_total",
    "apiserver_webhooks_x509_insecure_sha1_total",
    "apiserver_webhooks_x509_missing_san_total",
    "authenticated_user_requests",
    "authentication_attempts",
    "authentication_duration_seconds",
    "authorization_attempts_total",
    "authorization_duration_seconds",
    "serviceaccount_invalid_legacy_auto_token_uses_total",
    "serviceaccount_legacy_auto_token_uses_total",
    "serviceaccount_legacy_manual_token_uses_total",
    "serviceaccount_legacy_tokens_total",
    "serviceaccount_stale_tokens_total",
    "serviceaccount_valid_tokens_total",
];

#[test]
fn the_families_of_the_chain_are_there_from_the_start() {
    let server = Server::with(Flavour::from_env(), &[]);
    let http = server.http();
    // A read and a write that flow control estimates, and one that is refused.
    let path = "/api/v1/namespaces/default/configmaps";
    http.post(path, &json!({"metadata": {"name": "a"}})).expect(201);
    assert_eq!(http.get(path).code, 200);
    assert_eq!(http.clone().anonymous().get(path).code, 403);
    // And one that RBAC allows: what administrators do is allowed before any authorizer.
    assert_eq!(http.clone().anonymous().get("/version").code, 200);
    let text = http.get("/metrics").text();
    let missing: Vec<&&str> =
        FAMILIES.iter().filter(|family| !text.contains(&format!("# TYPE {family} "))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
