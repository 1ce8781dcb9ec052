//! The tests over HTTP, in one binary so that they share one server. A module is a way to talk to
//! the server; each test works in a namespace of its own. No test sleeps: they wait for events.

mod abuse;
mod abuse_depth;
mod abuse_serving;
mod access_walk;
mod admission_plugins;
mod admission_policies;
mod admission_webhooks;
mod aggregation;
mod aggregation_security;
mod audit;
mod authentication;
mod authorization;
mod bad_input;
mod bootstrap;
mod compaction;
mod controllers;
mod conversion;
mod custom_resources;
mod debug_pages;
mod definitions;
mod derived;
mod exchanges;
mod flow_control;
mod informers;
mod kube_rs;
mod kubectl_apply;
mod kubectl_create;
mod kubectl_get;
mod kubectl_watch;
mod kubectl_write;
mod lifecycle;
mod metrics;
mod migrate;
mod nodes;
mod on_etcd;
mod proof;
mod published;
mod quota;
mod races;
mod raw;
mod rbac;
mod sample_apiserver;
mod service_accounts;
mod services;
mod shutdown;
mod startup;
mod storage;
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
