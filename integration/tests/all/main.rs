//! The tests over HTTP, in one binary so that they share one server. A module is a way to talk to
//! the server; each test works in a namespace of its own. No test sleeps: they wait for events.

mod abuse;
mod abuse_depth;
mod abuse_serving;
mod access_walk;
mod admission_conformance;
mod admission_manifests;
mod admission_optional_plugins;
mod admission_plugins;
mod admission_policies;
mod admission_security;
mod admission_webhooks;
mod aggregation;
mod aggregation_deletion;
mod aggregation_routing;
mod aggregation_security;
mod audit;
mod authentication;
mod authorization;
mod bad_input;
mod bootstrap;
mod cert_manager;
mod compaction;
mod control_plane;
mod controllers;
mod conversion;
mod crd_conditions;
mod custom_resources;
mod debug_pages;
mod egress;
mod envtest;
mod exchanges;
mod external_signer;
mod flow_control;
mod helm;
mod hostile_webhooks;
mod http2_frames;
mod http_protocol;
mod informers;
mod kube_derive;
mod kube_rs;
mod kubectl_apply;
mod kubectl_create;
mod kubectl_get;
mod kubectl_watch;
mod kubectl_write;
mod leader_election;
mod lifecycle;
mod metrics;
mod metrics_server;
mod migrate;
mod node_connections;
mod nodes;
mod on_etcd;
mod peer_proxy;
mod pod_security;
mod proof;
mod published_crds;
mod quota;
mod races;
mod rbac;
mod sample_apiserver;
mod security;
mod security_metrics;
mod service_accounts;
mod services;
mod shutdown;
mod startup;
mod storage;
mod storage_versions;
mod tracing;
mod websocket;

use integration::{Kubectl, Version, shared};

/// Walks a journey once with each kubectl, each time in a fresh namespace.
fn with_each_kubectl(purpose: &str, journey: impl Fn(&Kubectl<'_>)) {
    let server = shared();
    for version in [Version::Current, Version::Old] {
        // Shown only when the journey ends badly.
        eprintln!("kubectl: {version:?}");
        let namespace = server.namespace(purpose);
        journey(&server.kubectl(version).in_namespace(&namespace));
    }
}

/// Panics unless all parts are in the text, naming the one that is not.
#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}
