//! `/metrics`: values and names of the metrics that dashboards use.

use std::io::Read as _;

use bytes::Bytes;
use http::Request;
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

#[test]
fn rules_of_custom_resources_and_steps_of_admission_are_timed() {
    let server = Server::start();
    let http = server.http();
    let names = [
        "apiserver_cel_compilation_duration_seconds_count",
        "apiserver_cel_evaluation_duration_seconds_count",
        "apiextensions_apiserver_validation_ratcheting_seconds_count",
    ];
    let count = |name: &str| metric(&http, name, &[]).unwrap_or_default();
    let before = names.map(count);
    let schema = json!({
        "type": "object",
        "properties": {"spec": {
            "type": "object",
            "properties": {"size": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.size < 10"}],
        }},
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "timers.metrics.example.com"},
        "spec": {
            "group": "metrics.example.com", "scope": "Cluster",
            "names": {"plural": "timers", "kind": "Timer"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    http.post(definitions, &definition).expect(201);
    let path = "/apis/metrics.example.com/v1/timers";
    let timer = json!({
        "apiVersion": "metrics.example.com/v1", "kind": "Timer", "metadata": {"name": "a"},
        "spec": {"size": 1},
    });
    eventually("the kind is served", || {
        Some(http.post(path, &timer)).filter(|own| own.code == 201)
    });
    let change = json!({"spec": {"size": 2}});
    http.patch(&format!("{path}/a"), "application/merge-patch+json", &change).expect(200);
    for (name, before) in names.into_iter().zip(before) {
        assert!(count(name) > before, "{name} is still {before}");
    }
    let labels = [r#"operation="CREATE""#, r#"rejected="false""#, r#"type="admit""#];
    let step = "apiserver_admission_step_admission_duration_seconds";
    let steps = metric(&http, &format!("{step}_summary_count"), &labels);
    assert!(steps >= Some(1.0), "{steps:?}");
    http.delete(&format!("{definitions}/timers.metrics.example.com")).expect(200);
}

#[test]
fn reads_by_list_and_watch_are_counted() {
    let server = Server::start();
    let http = server.http();
    let namespace = server.namespace("reads");
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    for n in 0..3 {
        http.post(&path, &json!({"metadata": {"name": format!("cm-{n}")}})).expect(201);
    }
    let resource = [r#"group="""#, r#"resource="configmaps""#];
    let value = |name: &str, more: &[&str]| {
        let labels: Vec<&str> = resource.iter().chain(more).copied().collect();
        metric(&http, name, &labels).unwrap_or_default()
    };
    let counted = |name: &str, more: &[&str], before: f64, least: f64| {
        let after = value(name, more);
        assert!(after >= before + least, "{name}{more:?}: {before}, then {after}");
    };
    let consistent = [r#"success="true""#, r#"fallback="false""#];
    let names = [
        ("apiserver_cache_list_total", &[r#"index="""#][..], 1.0),
        ("apiserver_cache_list_fetched_objects_total", &[r#"index="""#], 3.0),
        ("apiserver_cache_list_returned_objects_total", &[], 1.0),
        ("apiserver_watch_cache_consistent_read_total", &consistent, 1.0),
        ("apiserver_watch_cache_read_wait_seconds_count", &[], 1.0),
    ];
    let before = names.map(|(name, more, _)| value(name, more));
    http.get(&format!("{path}?fieldSelector=metadata.name!%3Dcm-0&labelSelector=none")).expect(200);
    http.get(&path).expect(200);
    for ((name, more, least), before) in names.into_iter().zip(before) {
        counted(name, more, before, least);
    }
    let before = value("apiserver_init_events_total", &[]);
    let query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true\
                 &resourceVersionMatch=NotOlderThan";
    let mut watch = http.stream(&format!("{path}?{query}"));
    // The CA's ConfigMap may be there, too.
    for _ in 0..3 {
        watch.expect("ADDED");
    }
    while watch.next_event().expect("the bookmark comes")["type"] != "BOOKMARK" {}
    counted("apiserver_init_events_total", &[], before, 3.0);
    let scope = [r#"scope="namespace""#, r#"version="v1""#];
    eventually("the watch list is timed", || {
        (value("apiserver_watch_list_duration_seconds_count", &scope) >= 1.0).then_some(())
    });
    counted("apiserver_storage_list_total", &[], 0.0, 1.0);
    for name in ["fetched", "evaluated", "returned"] {
        let name = format!("apiserver_storage_list_{name}_objects_total");
        assert!(metric(&http, &name, &resource).is_some(), "{name}");
    }

    // Pods are indexed by their node.
    http.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dnone").expect(200);
    let pods = [r#"index="f:spec.nodeName""#, r#"resource="pods""#];
    assert!(metric(&http, "apiserver_cache_list_total", &pods) >= Some(1.0));
    http.post(&format!("{path}?fieldValidation=Strict"), &json!({"metadata": {"name": "s"}}))
        .expect(201);
    let strict = [r#"field_validation="Strict""#];
    let name = "field_validation_request_duration_seconds_count";
    // Compat: kube-apiserver has the series, and never adds to it.
    assert!(metric(&http, name, &strict) >= Some(f64::from(u8::from(!server.flavour().is_peer()))));
}

#[test]
fn allocations_calls_and_queues_are_counted() {
    let server = Server::start();
    let http = server.http();
    let services = format!("/api/v1/namespaces/{}/services", server.namespace("allocations"));
    let ports = "kube_apiserver_nodeport_allocator_allocated_ports";
    let before = metric(&http, ports, &[]).unwrap_or_default();
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"type": "NodePort", "ports": [{"port": 80}]},
    });
    let made = http.post(&services, &service).expect(201);
    assert_eq!(metric(&http, ports, &[]), Some(before + 1.0));
    let available = metric(&http, "kube_apiserver_nodeport_allocator_available_ports", &[]);
    assert_eq!(available, Some(2768.0 - before - 1.0));
    let dynamic = [r#"scope="dynamic""#];
    let allocated = metric(&http, "kube_apiserver_nodeport_allocator_allocation_total", &dynamic);
    assert!(allocated >= Some(1.0));
    let ips = |name: &str, labels: &[&str]| {
        metric(&http, &format!("kube_apiserver_clusterip_allocator_{name}"), labels)
    };
    assert!(ips("allocation_total", &dynamic) >= Some(1.0));
    assert!(ips("allocation_duration_seconds_count", &[]) >= Some(1.0));
    // The address of `kubernetes` is taken as well.
    assert!(ips("allocated_ips", &[]) >= Some(2.0));
    assert!(ips("available_ips", &[]) >= Some(1.0));
    let mut wanted = service.clone();
    wanted["metadata"]["name"] = json!("taken");
    wanted["spec"]["clusterIP"] = made["spec"]["clusterIP"].clone();
    http.post(&services, &wanted).expect(422);
    assert!(ips("allocation_errors_total", &[r#"scope="static""#]) >= Some(1.0));
    assert!(metric(&http, "apiserver_nodeport_repair_reconcile_errors_total", &[]).is_some());

    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request = http::Request::get("/apis").header("accept", format!("{accept};profile=nopeer"));
    http.request(request.body(bytes::Bytes::new()).expect("a request")).expect(200);
    let mut wanted = vec![
        "aggregator_discovery_aggregation_count_total",
        "aggregator_discovery_nopeer_requests_total",
        "apiserver_envelope_encryption_dek_cache_fill_percent",
        "apiserver_storage_data_key_generation_failures_total",
        "apiserver_storage_envelope_transformation_cache_misses_total",
    ];
    if *server.flavour() != Flavour::Embedded {
        wanted.push("etcd_lease_object_counts_count");
        let unary = [r#"grpc_method="Txn""#, r#"grpc_type="unary""#];
        assert!(metric(&http, "grpc_client_started_total", &unary) >= Some(1.0));
        assert!(metric(&http, "grpc_client_msg_received_total", &unary) >= Some(1.0));
        let ok = [unary[0], unary[1], r#"grpc_code="OK""#];
        assert!(metric(&http, "grpc_client_handled_total", &ok) >= Some(1.0));
        let stream = [r#"grpc_method="Watch""#, r#"grpc_type="bidi_stream""#];
        assert!(metric(&http, "grpc_client_msg_sent_total", &stream) >= Some(1.0));
    }
    for name in wanted {
        assert!(metric(&http, name, &[]).is_some(), "{name}");
    }
    if !server.flavour().is_peer() {
        let queue = [r#"name="namespace""#];
        for name in
            ["workqueue_longest_running_processor_seconds", "workqueue_unfinished_work_seconds"]
        {
            assert!(metric(&http, name, &queue).is_some(), "{name}");
        }
    }
}

/// The families of `/metrics`: name, type, sum of all values.
fn families(http: &Http) -> Vec<(String, String, f64)> {
    let mut families: Vec<(String, String, f64)> = Vec::new();
    let mut help = "";
    let text = http.get("/metrics").text();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, told) = rest.split_once(' ').unwrap_or((rest, ""));
            assert!(!told.trim().is_empty(), "{name} has no help");
            help = name;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert_eq!(name, help, "the help comes before the type");
            assert!(families.iter().all(|(known, ..)| known != name), "{name} is there twice");
            families.push((name.to_owned(), kind.to_owned(), 0.0));
        } else if let Some((_, value)) = line.rsplit_once(' ') {
            let family = families.last_mut().expect("its type comes first");
            assert!(line.starts_with(&family.0), "{line} is among {}", family.0);
            family.2 += value.parse::<f64>().expect("a number");
        }
    }
    families
}

/// Whatever part of the server counts: nothing has to be registered for it.
#[test]
fn every_metric_has_a_help_and_begins_anew_when_metrics_are_deleted() {
    let server = Server::start();
    let http = server.http();
    let path = format!("/api/v1/namespaces/{}/configmaps", server.namespace("anew"));
    for n in 0..20 {
        http.post(&path, &json!({"metadata": {"name": format!("cm-{n}")}})).expect(201);
    }
    let before = families(&http);
    let request = http::Request::builder().method("DELETE").uri("/metrics");
    let answer = http.request(request.body(bytes::Bytes::new()).expect("a request"));
    assert_eq!(answer.code, 200);
    if server.flavour().is_peer() {
        return;
    }
    let after = families(&http);
    let mut checked = 0;
    for (name, kind, sum) in &before {
        if kind == "gauge" || name.starts_with("process_") || *sum < 20.0 {
            continue;
        }
        let left = after.iter().find(|(known, ..)| known == name).map_or(0.0, |(.., sum)| *sum);
        // The server goes on counting meanwhile.
        assert!(left < *sum / 2.0, "{name} was {sum} and is {left}");
        checked += 1;
    }
    assert!(checked > 15, "only {checked} metrics had counted something");
}

/// Lists are the same bytes with a cache of encodings of any size, and compressed.
#[test]
fn encodings_are_kept_within_their_budget() {
    if Flavour::from_env().is_peer() {
        return;
    }
    for (size, bytes_max) in [("0", 0), ("256Ki", 256 << 10), ("64Mi", 64 << 20)] {
        let flag = format!("--encoding-cache-size={size}");
        let server = Server::with(Flavour::from_env(), &[&flag]);
        let http = server.http();
        let path = format!("/api/v1/namespaces/{}/configmaps", server.namespace("encodings"));
        for n in 0..40 {
            let lines: String =
                (0..300).map(|line| format!("line {line} of {n}, {}\n", n * line)).collect();
            let object =
                json!({"metadata": {"name": format!("cm-{n:02}")}, "data": {"lines": lines}});
            http.post(&path, &object).expect(201);
        }
        let get = |accept: &str, encoding: &str| {
            let request = Request::get(&path).header("accept", accept);
            let request = request.header("accept-encoding", encoding).body(Bytes::new());
            http.request(request.expect("a valid request"))
        };
        for accept in ["application/json", "application/vnd.kubernetes.protobuf"] {
            for round in 0..3 {
                // Something else may be written between two lists, which changes their resourceVersion.
                let (plain, packed) = eventually("lists of one resourceVersion", || {
                    let (plain, packed) = (get(accept, "identity"), get(accept, "gzip"));
                    (get(accept, "identity").body == plain.body).then_some((plain, packed))
                });
                assert_eq!(packed.header("content-encoding"), Some("gzip"), "{accept}");
                let mut unpacked = Vec::new();
                let mut decoder = flate2::read::MultiGzDecoder::new(&packed.body[..]);
                decoder.read_to_end(&mut unpacked).expect("valid gzip");
                assert!(unpacked == plain.body, "{accept} in round {round} with {size}");
            }
        }
        let bytes = metric(&http, "pintle_encoding_cache_bytes", &[]).expect("a metric");
        assert!(bytes <= f64::from(bytes_max) && (bytes > 0.0) == (bytes_max > 0), "{bytes}");
        let full = metric(&http, "pintle_encoding_cache_full_total", &[]).expect("a metric");
        assert_eq!(full > 0.0, size == "256Ki", "{full} with {size}");
        metric(&http, "pintle_encoding_cache_evictions_total", &[]).expect("a metric");
    }
}
