//! The published metrics-server behind the server, used by `kubectl top`.

use std::time::SystemTime;

use integration::aggregated_server::{AnswerBody, Seen, answer};
use integration::{AggregatedServer, Flavour, MetricsServer, Server, Version, eventually};
use serde_json::json;

use crate::aggregation::{API_SERVICES, HTTP2};

/// What a kubelet says of its node and of one pod: a quarter of a CPU, and an eighth of one.
fn metrics_resource(seen: &Seen) -> http::Response<AnswerBody> {
    if seen.path != "/metrics/resource" {
        return answer(404, "text/plain", "404 page not found\n");
    }
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    let millis = now.as_millis();
    let seconds = (millis % 1_000_000_000) as f64 / 1000.0;
    let of = r#"{container="c",namespace="measured",pod="web"}"#;
    let text = format!(
        "# TYPE container_cpu_usage_seconds_total counter\n\
         container_cpu_usage_seconds_total{of} {} {millis}\n\
         # TYPE container_memory_working_set_bytes gauge\n\
         container_memory_working_set_bytes{of} {} {millis}\n\
         # TYPE container_start_time_seconds gauge\n\
         container_start_time_seconds{of} 1.7e+09\n\
         # TYPE node_cpu_usage_seconds_total counter\n\
         node_cpu_usage_seconds_total {} {millis}\n\
         # TYPE node_memory_working_set_bytes gauge\n\
         node_memory_working_set_bytes {} {millis}\n",
        seconds / 8.0,
        64 << 20,
        seconds / 4.0,
        512 << 20,
    );
    answer(200, "text/plain; version=0.0.4", text)
}

#[test]
fn kubectl_top_works_with_the_metrics_server() {
    let server = Server::of(Flavour::Embedded);
    let http = server.http();
    let kubelet = AggregatedServer::start("127.0.0.1", HTTP2, metrics_resource);
    http.post("/api/v1/nodes", &json!({"metadata": {"name": "node-1"}})).expect(201);
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port()}},
        "capacity": {"cpu": "1", "memory": "1Gi"},
        "allocatable": {"cpu": "1", "memory": "1Gi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    http.patch("/api/v1/nodes/node-1/status", "application/merge-patch+json", &status).expect(200);
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "measured"}})).expect(201);
    let account = json!({"metadata": {"name": "default"}});
    // The controller may have been faster.
    assert!(
        [201, 409]
            .contains(&http.post("/api/v1/namespaces/measured/serviceaccounts", &account).code)
    );
    let pod = json!({"metadata": {"name": "web"}, "spec": {
        "nodeName": "node-1", "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "i"}],
    }});
    http.post("/api/v1/namespaces/measured/pods", &pod).expect(201);
    let running = json!({"status": {"phase": "Running"}});
    let path = "/api/v1/namespaces/measured/pods/web/status";
    http.patch(path, "application/merge-patch+json", &running).expect(200);

    let service = json!({
        "metadata": {"name": "metrics-server"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    http.post("/api/v1/namespaces/kube-system/services", &service).expect(201);
    let metrics = MetricsServer::start(&server, "metrics-server.kube-system.svc");
    let api_service = json!({
        "metadata": {"name": "v1beta1.metrics.k8s.io"},
        "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1",
            "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {
                "namespace": "kube-system", "name": "metrics-server", "port": metrics.port,
            },
            "caBundle": metrics.ca_bundle,
        },
    });
    http.post(API_SERVICES, &api_service).expect(201);

    // A rate needs two readings, ten seconds apart.
    for readings in 1..=2 {
        eventually(&format!("{readings} readings"), || {
            (kubelet.seen().len() >= readings).then_some(())
        });
    }
    let kubectl = server.kubectl(Version::Current);
    let mut last = String::new();
    let mut shown = |command: &str, expected: &str| {
        eventually(&format!("{expected} is shown"), || {
            let output = kubectl.run(command, "");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
            // A rate is rounded up.
            let line = line.replace("251m", "250m").replace("126m", "125m");
            let text = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
            if text != last {
                eprintln!("{text}");
                last = text;
            }
            (output.status.success() && line.ends_with(expected)).then_some(())
        });
    };
    shown("top nodes", "node-1 250m 25% 512Mi 50%");
    shown("top pods -n measured", "web 125m 64Mi");
    let listed = http.get("/apis/metrics.k8s.io/v1beta1/namespaces/measured/pods").expect(200);
    assert_eq!(listed["items"][0]["containers"][0]["usage"]["memory"], "64Mi");
}
