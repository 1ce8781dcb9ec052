//! How an aggregated server is reached: by its endpoints, and with which certificate.

use integration::aggregated_server::{AnswerBody, Seen, answer, discovery};
use integration::{AggregatedServer, Authority, Flavour, Http, NodeNetwork, Server, eventually};
use serde_json::json;

use crate::aggregation::{API_SERVICES, HTTP2};

const GROUP: &str = "routed.example.com";

fn respond(seen: &Seen) -> http::Response<AnswerBody> {
    if seen.path.starts_with(&format!("/apis/{GROUP}/v1/")) {
        return answer(200, "application/json", r#"{"kind":"FlunderList"}"#);
    }
    discovery(GROUP, seen)
}

/// Registers the server, and waits until it is asked.
fn register(http: &Http, namespace: &str, port: u16, backend: &AggregatedServer) {
    let object = json!({
        "metadata": {"name": format!("v1.{GROUP}")},
        "spec": {
            "group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"namespace": namespace, "name": "backend", "port": port},
            "caBundle": backend.ca_bundle,
        },
    });
    http.post(API_SERVICES, &object).expect(201);
    eventually("the aggregated server is asked", || {
        (http.get(&format!("/apis/{GROUP}/v1/flunders")).code == 200).then_some(())
    });
}

#[test]
fn with_aggregator_routing_endpoints_are_dialed_and_not_the_cluster_ip() {
    // The network of the test has the endpoint, and nothing at the cluster IP.
    let network = NodeNetwork::with(&["--enable-aggregator-routing=true"]);
    let http = network.server.http();
    let namespace = network.server.namespace("routed");
    let backend = AggregatedServer::start(&format!("backend.{namespace}.svc"), HTTP2, respond);
    network.route("192.0.2.50:6443", backend.port());
    let core = format!("/api/v1/namespaces/{namespace}");
    let service = json!({
        "metadata": {"name": "backend"},
        "spec": {"ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
    });
    http.post(&format!("{core}/services"), &service).expect(201);
    let slice = json!({
        "metadata": {"name": "backend-1", "labels": {"kubernetes.io/service-name": "backend"}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": 6443}],
        "endpoints": [
            {"addresses": ["192.0.2.51"], "conditions": {"ready": false}},
            {"addresses": ["192.0.2.50"], "conditions": {"ready": true}},
        ],
    });
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    http.post(&slices, &slice).expect(201);
    register(&http, &namespace, 443, &backend);
    let seen = backend.seen().pop().expect("the request has arrived");
    assert_eq!(seen.header("host"), None, "over HTTP/2");
    assert!(seen.http2);
}

#[test]
fn a_renewed_proxy_client_certificate_is_shown_without_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new("front-proxy-ca");
    let ca = directory.path().join("front-proxy-ca.crt");
    std::fs::write(&ca, &authority.pem).expect("a file");
    let files = authority.client("front-proxy-client", &[]).write(directory.path(), "client");
    let flags = [
        format!("--requestheader-client-ca-file={}", ca.display()),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        format!("--proxy-client-cert-file={}", files[0].display()),
        format!("--proxy-client-key-file={}", files[1].display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::with(Flavour::from_env(), &flags);
    let http = server.http();
    let namespace = server.namespace("renewed");
    let backend = AggregatedServer::start(&format!("backend.{namespace}.svc"), HTTP2, respond);
    let service = json!({
        "metadata": {"name": "backend"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    http.post(&format!("/api/v1/namespaces/{namespace}/services"), &service).expect(201);
    register(&http, &namespace, backend.port(), &backend);
    let shown = || {
        http.get(&format!("/apis/{GROUP}/v1/flunders")).expect(200);
        backend.seen().pop().and_then(|seen| seen.certificate).expect("a certificate")
    };
    let first = shown();
    assert_eq!(shown(), first);
    authority.client("front-proxy-client", &[]).write(directory.path(), "client");
    eventually("the new certificate is shown", || (shown() != first).then_some(()));
}
