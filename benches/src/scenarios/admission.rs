//! Creates of small objects under admission: with nothing configured, with configurations that are about other
//! objects, with a policy, a policy of many expressions, a webhook, and a quota. The objects are small, so that the
//! difference shows.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{Outcome, World, drive};
use crate::client::{Call, Failure, JSON, Keep};
use crate::load::Plan;
use crate::webhook::Webhook;

/// What is configured while the objects are created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Configured {
    Nothing,
    /// 50 policies and 20 webhooks: half of them are about other resources, half about objects of the same
    /// resource elsewhere.
    NotMatching,
    Policy,
    /// One policy with [`EXPRESSIONS`] validations: what a create costs more than with a policy of one, divided by
    /// their number, is what an expression costs.
    Expressions,
    Webhook,
    Quota,
}

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const POLICIES: usize = 50;
const WEBHOOKS: usize = 20;
const EXPRESSIONS: usize = 100;

pub(super) async fn create(world: &World, plan: Plan, configured: Configured) -> Outcome {
    let namespace = format!("bench-admission-{}", configured.name());
    let webhook = match (configured == Configured::Webhook).then(Webhook::start).transpose() {
        Ok(webhook) => webhook,
        Err(error) => return Failure::local(&error).into(),
    };
    let objects = configured.objects(&namespace, webhook.as_ref());
    let outcome = match prepare(world, &namespace, configured, &objects).await {
        Ok(()) => measure(world, plan, &namespace).await,
        Err(failure) => failure.into(),
    };
    for (path, object) in &objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let call = Call::send(Method::DELETE, format!("{path}/{name}"), "", "");
        // What is left over would be part of the next scenario's figures.
        if let Err(failure) = world.client.ok(&call, Keep::Nothing).await {
            return failure.into();
        }
    }
    let calls = webhook.map_or(0, |webhook| webhook.calls());
    if configured == Configured::Webhook && calls < outcome.begun() {
        return Outcome::NotAvailable(format!("wrong: the webhook was called {calls} times"));
    }
    outcome
}

async fn measure(world: &World, plan: Plan, namespace: &str) -> Outcome {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    drive(world, plan, None, 500, async |client, _, number| {
        let body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": format!("c-{number}"), "labels": {"app": "bench", "team": "a"}},
            "data": {"key": "value", "level": "info"},
        });
        let call = Call::send(Method::POST, path.as_str(), JSON, body.to_string());
        Ok(client.ok(&call, Keep::Nothing).await?.bytes)
    })
    .await
}

/// Makes a namespace without objects and the configurations, and waits until they are in effect.
async fn prepare(
    world: &World,
    namespace: &str,
    configured: Configured,
    objects: &[(String, Value)],
) -> Result<(), Failure> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    world.create_unless_there("/api/v1/namespaces", body.to_string()).await?;
    world.clear(&format!("/api/v1/namespaces/{namespace}/configmaps")).await?;
    for (path, object) in objects {
        world.create_unless_there(path, object.to_string()).await?;
    }
    if configured == Configured::Quota {
        // kube-apiserver has no controller that would count.
        let path = format!("/api/v1/namespaces/{namespace}/resourcequotas/bench/status");
        let amount = |amount: &str| json!({"count/configmaps": amount});
        let status = json!({"status": {"hard": amount("10000000"), "used": amount("0")}});
        let call =
            Call::send(Method::PATCH, path, "application/merge-patch+json", status.to_string());
        world.client.ok(&call, Keep::Nothing).await?;
    }
    // kube-apiserver learns of them from its informers.
    tokio::time::sleep(SETTLE).await;
    Ok(())
}

const SETTLE: Duration = Duration::from_secs(2);

impl Configured {
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::NotMatching => "other",
            Self::Policy => "policy",
            Self::Expressions => "expressions",
            Self::Webhook => "webhook",
            Self::Quota => "quota",
        }
    }

    /// The objects to create, with the collections that they belong to.
    fn objects(self, namespace: &str, webhook: Option<&Webhook>) -> Vec<(String, Value)> {
        match self {
            Self::Nothing => Vec::new(),
            Self::NotMatching => {
                let policies = (0..POLICIES).flat_map(|n| policy(&format!("other-{n}"), n, None));
                let webhooks = (0..WEBHOOKS).map(|n| {
                    let client = json!({"url": "https://127.0.0.1:1/"});
                    webhook_configuration(&format!("other-{n}"), n, None, client)
                });
                policies.chain(webhooks).collect()
            }
            Self::Policy => policy("one", 0, Some(namespace)),
            Self::Expressions => {
                let mut objects = policy("expressions", 0, Some(namespace));
                let validations = (0..EXPRESSIONS).map(
                    |n| json!({"expression": TYPICAL[n % TYPICAL.len()], "message": "refused"}),
                );
                objects[0].1["spec"]["validations"] = validations.collect();
                objects
            }
            Self::Webhook => {
                let client = webhook.map(Webhook::client_config).unwrap_or_default();
                vec![webhook_configuration("one", 0, Some(namespace), client)]
            }
            Self::Quota => {
                let quota = json!({
                    "apiVersion": "v1",
                    "kind": "ResourceQuota",
                    "metadata": {"name": "bench"},
                    "spec": {"hard": {"count/configmaps": "10000000"}},
                });
                vec![(format!("/api/v1/namespaces/{namespace}/resourcequotas"), quota)]
            }
        }
    }
}

/// Expressions of the kinds that the documentation of Kubernetes shows: names, required labels, values out of a list,
/// a condition for all entries. Each holds for the bench's objects.
const TYPICAL: [&str; 5] = [
    "object.metadata.name.startsWith('c-') && size(object.metadata.name) < 100",
    "has(object.metadata.labels) && 'team' in object.metadata.labels",
    "object.metadata.labels['app'] in ['bench', 'web', 'api']",
    "object.data.all(key, size(object.data[key]) < 100)",
    "request.operation != 'DELETE' && (!has(object.immutable) || object.immutable == false)",
];

/// Objects of this resource; every second one that is not for the bench's own is about another.
fn rules(number: usize, namespace: Option<&str>) -> Value {
    let (group, resource) = match (number % 2, namespace) {
        (1, None) => ("apps", "deployments"),
        _ => ("", "configmaps"),
    };
    json!([{
        "operations": ["CREATE", "UPDATE"], "apiGroups": [group], "apiVersions": ["v1"],
        "resources": [resource],
    }])
}

fn selector(namespace: Option<&str>) -> Value {
    json!({"matchLabels": {"kubernetes.io/metadata.name": namespace.unwrap_or("elsewhere")}})
}

/// A policy of the kind that the documentation of Kubernetes shows, with its binding.
fn policy(name: &str, number: usize, namespace: Option<&str>) -> Vec<(String, Value)> {
    let name = format!("bench-{name}");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": rules(number, namespace),
                "namespaceSelector": selector(namespace),
            },
            "variables": [{"name": "team", "expression": "object.metadata.?labels['team'].orValue('')"}],
            "validations": [{
                "expression": "variables.team in ['a', 'b'] && size(object.metadata.name) < 100",
                "messageExpression": "'no team: ' + object.metadata.name",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    vec![
        (format!("{GROUP}/validatingadmissionpolicies"), policy),
        (format!("{GROUP}/validatingadmissionpolicybindings"), binding),
    ]
}

fn webhook_configuration(
    name: &str,
    number: usize,
    namespace: Option<&str>,
    client_config: Value,
) -> (String, Value) {
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": format!("bench-{name}")},
        "webhooks": [{
            "name": "decide.bench.example.com",
            "clientConfig": client_config,
            "rules": rules(number, namespace),
            "namespaceSelector": selector(namespace),
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    });
    (format!("{GROUP}/validatingwebhookconfigurations"), configuration)
}
