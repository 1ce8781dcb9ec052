//! Measurements, run by name: `cargo test --release -p admission -- --ignored --nocapture speed`.

use std::{hint::black_box, sync::Arc, time::Instant};

use auth::authz::AlwaysAllow;
use meta::{AuditAnnotations, GroupVersionKind, Str, User, Value, Warnings, value};

use crate::{
    Attributes, Chain, Cluster, DynamicAdmission, DynamicKind, Operation, Plugin, Reinvocation,
    harness,
    policy::{MutatingAdmissionPolicy, ValidatingAdmissionPolicy},
    resources,
    webhook::{MutatingAdmissionWebhook, ValidatingAdmissionWebhook},
};

const ROUNDS: u32 = 20_000;

/// What is configured: how many policies and webhooks, about which resources and namespaces.
struct Configured {
    policies: usize,
    webhooks: usize,
    /// Every second one is about another resource.
    others: bool,
    namespace: &'static str,
}

fn rules(number: usize, others: bool) -> Value {
    let (group, resource) =
        if others && number % 2 == 1 { ("apps", "deployments") } else { ("", "configmaps") };
    value!([{
        "operations": ["CREATE", "UPDATE"], "apiGroups": [(group)], "apiVersions": ["v1"],
        "resources": [(resource)], "scope": "*",
    }])
}

fn chain(configured: &Configured) -> Chain {
    let dynamic = DynamicAdmission::default();
    let selector = value!({"matchLabels": {"kubernetes.io/metadata.name": (configured.namespace)}});
    for number in 0..configured.policies {
        let name = Str::from(format!("p{number}"));
        let policy = value!({"spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": (rules(number, configured.others)),
                "namespaceSelector": (selector.clone()),
                "objectSelector": {},
                "matchPolicy": "Equivalent",
            },
            "variables": [{
                "name": "team", "expression": "object.metadata.?labels['team'].orValue('')",
            }],
            "validations": [{
                "expression": "variables.team in ['a', 'b'] && size(object.metadata.name) < 100",
                "messageExpression": "'no team: ' + object.metadata.name",
            }],
        }});
        let binding =
            value!({"spec": {"policyName": (name.clone()), "validationActions": ["Deny"]}});
        let policy = vec![(name.clone(), Some(policy))];
        dynamic.apply(DynamicKind::ValidatingAdmissionPolicy, policy);
        let binding = vec![(name, Some(binding))];
        dynamic.apply(DynamicKind::ValidatingAdmissionPolicyBinding, binding);
    }
    for number in 0..configured.webhooks {
        let configuration = value!({"webhooks": [{
            "name": "decide.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": (rules(number, configured.others)),
            "namespaceSelector": (selector.clone()),
            "objectSelector": {},
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }]});
        let kind = DynamicKind::ValidatingWebhookConfiguration;
        dynamic.apply(kind, vec![(Str::from(format!("w{number}")), Some(configuration))]);
    }
    let namespace = "{metadata: {name: n, labels: {kubernetes.io/metadata.name: n, team: a}}}";
    let cluster = Cluster {
        authorizer: Arc::new(AlwaysAllow),
        dynamic_admission: Arc::new(dynamic),
        ..harness::cluster(&[(&resources::NAMESPACES, namespace)], &[])
    };
    let plugins: Vec<Box<dyn Plugin>> = vec![
        Box::new(MutatingAdmissionPolicy),
        Box::new(MutatingAdmissionWebhook),
        Box::new(ValidatingAdmissionPolicy),
        Box::new(ValidatingAdmissionWebhook),
    ];
    Chain::new(plugins, cluster)
}

/// Nanoseconds that the chain takes for the create of a small ConfigMap.
async fn nanoseconds(configured: &Configured) -> u128 {
    let chain = chain(configured);
    let gvk = GroupVersionKind::new("", "v1", "ConfigMap");
    let gvr = meta::GroupVersionResource {
        group: Str::default(),
        version: Str::new("v1"),
        resource: Str::new("configmaps"),
    };
    let (user, warnings) = (User::default(), Warnings::default());
    let mut object = value!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "n", "labels": {"app": "bench", "team": "a"}},
        "data": {"key": "value", "level": "info"},
    });
    let mut run = async |rounds: u32| {
        for _ in 0..rounds {
            let audit = AuditAnnotations::default();
            let attributes = Attributes {
                operation: Operation::Create,
                gvk: &gvk,
                gvr: &gvr,
                subresource: "",
                namespace: "n",
                name: "c",
                user: &user,
                authenticated_user: &user,
                options: &Value::Null,
                old: None,
                warnings: &warnings,
                audit: &audit,
                reinvocation: Reinvocation::default(),
                charges: crate::quota::WriteCharges::default(),
                deadline: None,
            };
            chain.admit(&attributes, Some(&mut object)).await.expect("admitted");
            chain.validate(&attributes, Some(black_box(&object))).await.expect("admitted");
        }
    };
    run(ROUNDS / 10).await;
    let started = Instant::now();
    run(ROUNDS).await;
    started.elapsed().as_nanos() / u128::from(ROUNDS)
}

#[tokio::test]
#[ignore = "a measurement"]
async fn speed_of_configurations() {
    let cases = [
        ("nothing", Configured { policies: 0, webhooks: 0, others: false, namespace: "n" }),
        (
            "50 policies and 20 webhooks that do not match",
            Configured { policies: 50, webhooks: 20, others: true, namespace: "elsewhere" },
        ),
        ("one policy", Configured { policies: 1, webhooks: 0, others: false, namespace: "n" }),
        ("ten policies", Configured { policies: 10, webhooks: 0, others: false, namespace: "n" }),
    ];
    for (what, configured) in cases {
        println!("{what}: {} ns", nanoseconds(&configured).await);
    }
}
