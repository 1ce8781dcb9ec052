//! `/metrics`: values and names of the metrics that dashboards use.

use integration::{Flavour, Http, Server, eventually};
use serde_json::json;

/// The value of the one line that has this name and all of these labels.
fn metric(http: &Http, name: &str, labels: &[&str]) -> Option<f64> {
    let text = http.get("/metrics").text();
    let mut lines = text.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    });
    let line = lines.next()?;
    assert!(lines.next().is_none(), "{name} with {labels:?} is not one line");
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn requests_watches_and_objects_are_counted() {
    let server = Server::start();
    let http = server.http();
    let path = format!("/api/v1/namespaces/{}/configmaps", server.namespace("metrics"));
    let resource = [r#"group="""#, r#"resource="configmaps""#];
    let before = metric(&http, "apiserver_resource_objects", &resource).unwrap_or_default();
    let mut watch = http.stream(&format!("{path}?watch=true"));
    for n in 0..3 {
        http.post(&path, &json!({"metadata": {"name": format!("cm-{n}")}})).expect(201);
        watch.expect("ADDED");
    }
    http.get(&path).expect(200);
    http.get(&format!("{path}/missing")).expect(404);

    // kube-apiserver's own clients are counted as well.
    let counted = |name: &str, labels: &[&str], expected: f64| {
        let found = metric(&http, name, labels);
        let right = if server.flavour().is_peer() {
            found >= Some(expected)
        } else {
            found == Some(expected)
        };
        assert!(right, "{name} {labels:?} is {found:?}, not {expected}");
    };
    let watching = [r#"resource="configmaps""#, r#"scope="namespace""#, r#"verb="WATCH""#];
    counted("apiserver_longrunning_requests", &watching, 1.0);
    let posted = [r#"code="201""#, r#"resource="configmaps""#, r#"verb="POST""#];
    counted("apiserver_request_total", &posted, 3.0);
    let missing = [r#"code="404""#, r#"resource="configmaps""#, r#"verb="GET""#];
    counted("apiserver_request_total", &missing, 1.0);
    let listed = [r#"resource="configmaps""#, r#"scope="namespace""#, r#"verb="LIST""#];
    for histogram in [
        "apiserver_request_duration_seconds_count",
        "apiserver_request_sli_duration_seconds_count",
        "apiserver_response_sizes_count",
    ] {
        counted(histogram, &listed, 1.0);
    }
    let version = [r#"resource="configmaps""#, r#"version="v1""#];
    for counter in ["apiserver_watch_events_total", "apiserver_watch_events_sizes_count"] {
        eventually(counter, || metric(&http, counter, &version).filter(|&count| count >= 3.0));
    }
    // kube-apiserver counts its objects once a minute.
    if !server.flavour().is_peer() {
        let objects = metric(&http, "apiserver_resource_objects", &resource);
        assert!(objects >= Some(before + 3.0), "{objects:?} after {before}");
        assert_eq!(metric(&http, "apiserver_storage_objects", &resource[1..]), objects);
    }
    assert!(metric(&http, "apiserver_watch_cache_events_received_total", &resource) >= Some(3.0));
    assert!(metric(&http, "process_resident_memory_bytes", &[]) > Some(1e6));
    assert!(metric(&http, "process_open_fds", &[]) > Some(3.0));
    assert_eq!(metric(&http, "kubernetes_build_info", &[r#"minor="36""#]), Some(1.0));
    let gate = [r#"name="WatchList""#, r#"stage="BETA""#];
    assert_eq!(metric(&http, "kubernetes_feature_enabled", &gate), Some(1.0));
}

#[test]
fn labels_tell_dry_runs_applies_sizes_and_decisions() {
    let server = Server::start();
    let http = server.http();
    let path = format!("/api/v1/namespaces/{}/secrets", server.namespace("labels"));
    let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    http.post(&format!("{path}?dryRun=All"), &body).expect(201);
    http.post(&format!("{path}?dryRun=Some"), &body).expect(422);
    let applied =
        http.patch(&format!("{path}/a?fieldManager=me"), "application/apply-patch+yaml", &body);
    applied.expect(201);
    let secrets = r#"resource="secrets""#;
    for (labels, count) in [
        ([secrets, r#"code="201""#, r#"dry_run="All""#, r#"verb="POST""#], 1.0),
        ([secrets, r#"code="422""#, r#"dry_run="invalid""#, r#"verb="POST""#], 1.0),
        ([secrets, r#"code="201""#, r#"dry_run="""#, r#"verb="APPLY""#], 1.0),
    ] {
        assert_eq!(metric(&http, "apiserver_request_total", &labels), Some(count), "{labels:?}");
    }
    for (name, labels) in [
        ("apiserver_request_body_size_bytes_count", [secrets, r#"verb="create""#].as_slice()),
        ("authorization_attempts_total", &[r#"result="allowed""#]),
        ("authorization_duration_seconds_count", &[r#"result="allowed""#]),
        ("authentication_duration_seconds_count", &[r#"result="success""#]),
        ("apiserver_client_certificate_expiration_seconds_count", &[]),
        ("apiserver_watch_cache_initializations_total", &[secrets]),
        ("watch_cache_capacity", &[secrets]),
    ] {
        assert!(metric(&http, name, labels) >= Some(1.0), "{name}");
    }
    assert!(metric(&http, "apiserver_tls_handshake_errors_total", &[]).is_some());
}

#[test]
fn metrics_can_be_left_out_and_labels_folded() {
    let flags = [
        "--disabled-metrics=apiserver_request_sli_duration_seconds",
        "--allow-metric-labels=apiserver_request_total,verb='LIST'",
    ];
    let server = Server::with(Flavour::from_env(), &flags);
    let http = server.http();
    http.get("/api/v1/namespaces/default").expect(200);
    http.get("/api/v1/namespaces").expect(200);
    let metrics = http.get("/metrics").text();
    assert!(!metrics.contains("apiserver_request_sli_duration_seconds"));
    assert!(metrics.contains("\ndisabled_metrics_total 1\n"), "the flag is counted");
    let total = |line: &&str| line.starts_with("apiserver_request_total{");
    for line in metrics.lines().filter(total) {
        let known = [r#"verb="LIST""#, r#"verb="unexpected""#];
        assert!(known.iter().any(|verb| line.contains(verb)), "{line}");
    }
}

#[test]
fn storage_queues_filters_and_deprecated_versions_are_measured() {
    let server = Server::start();
    let http = server.http();
    let made = json!({"metadata": {"name": "measured"}});
    http.post("/api/v1/namespaces/default/configmaps", &made).expect(201);
    http.get("/api/v1/componentstatuses").expect(200);
    let metrics = http.get("/metrics").text();
    let mut wanted = vec![
        r#"etcd_request_duration_seconds_count{group="",operation="create",resource="configmaps"}"#,
        r#"etcd_requests_total{group="",operation="create",resource="configmaps"}"#,
        r#"apiserver_request_filter_duration_seconds_count{filter="authorization"}"#,
        r#"apiserver_requested_deprecated_apis{group="",removed_release="",resource="componentstatuses",subresource="",version="v1"} 1"#,
        r#"apiserver_storage_events_received_total{group="",resource="configmaps"}"#,
        "process_network_receive_bytes_total ",
        "process_virtual_memory_max_bytes ",
    ];
    if !server.flavour().is_peer() {
        wanted.push(r#"workqueue_adds_total{name="namespace"}"#);
    }
    for line in wanted {
        assert!(metrics.lines().any(|found| found.starts_with(line)), "{line}");
    }
    assert!(metrics.contains(r#"component="kube",emulation="1.36""#), "version_info");
}
