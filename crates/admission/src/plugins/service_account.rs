//! Pods act as a service account: `default` unless they say otherwise. Gives them the volume with the
//! account's token, and its pull secrets.

use std::time::Duration;

use auth::authz::node::references::names_secrets;
use meta::{ApiError, GroupResource, Value, value};

use crate::{Attributes, BoxFuture, Cluster, Freshness, Operation, Plugin, resources};

pub struct ServiceAccount;

const DEFAULT: &str = "default";
const MIRROR: &str = "kubernetes.io/config.mirror";
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
const VOLUME: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// By this number the server knows the tokens that such volumes ask for.
const TOKEN_SECONDS: i64 = 3607;
const READABLE: i64 = 0o644;

/// A controller creates the default account after its namespace: a pod that is created at once waits
/// for it.
const DEFAULT_ATTEMPTS: usize = 10;
const ATTEMPT_EVERY: Duration = Duration::from_millis(150);

impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        is_pod(attributes) && matches!(attributes.subresource, "" | "ephemeralcontainers")
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(pod) = object.filter(|_| is_new_pod(attributes)) else { return Ok(()) };
            // Their spec is the kubelet's.
            if is_mirror(pod) {
                return check_mirror(pod).map_err(|why| forbidden(attributes, why.to_owned()));
            }
            if account_name(pod).is_empty() {
                pod.set_at(&["spec", "serviceAccountName"], DEFAULT);
            }
            let account = find(attributes, account_name(pod), cluster).await?;
            let wanted = [pod.at(&["spec", TOKEN_WANTED]), account.get(TOKEN_WANTED)];
            let wanted = wanted.into_iter().flatten().find_map(Value::as_bool);
            if wanted.unwrap_or(true) {
                mount_token(pod);
            }
            let pull = account.items_at(&["imagePullSecrets"]);
            if pod.items_at(&["spec", "imagePullSecrets"]).is_empty() && !pull.is_empty() {
                pod.set_at(&["spec", "imagePullSecrets"], pull.to_vec());
            }
            if limits_secrets(&account) {
                check_secrets(pod, &account).map_err(|why| forbidden(attributes, why))?;
            }
            Ok(())
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(()) };
            let ephemeral = is_pod(attributes)
                && attributes.operation == Operation::Update
                && attributes.subresource == "ephemeralcontainers";
            if !ephemeral && !is_new_pod(attributes) {
                return Ok(());
            }
            if !ephemeral && is_mirror(pod) {
                return check_mirror(pod).map_err(|why| forbidden(attributes, why.to_owned()));
            }
            let name = account_name(pod);
            if name.is_empty() {
                let (namespace, name) = (attributes.namespace, attributes.name);
                let why = format!("no service account specified for pod {namespace}/{name}");
                return Err(forbidden(attributes, why));
            }
            let account = find(attributes, name, cluster).await?;
            if !limits_secrets(&account) {
                return Ok(());
            }
            if ephemeral {
                // Compat: a plain error of upstream, which is a 500.
                return check_containers(
                    pod,
                    "ephemeralContainers",
                    "ephemeral container",
                    &account,
                )
                .map_err(ApiError::Storage);
            }
            check_secrets(pod, &account).map_err(|why| forbidden(attributes, why))
        })
    }
}

/// Whether the pods of an account may use only the secrets that it names.
fn limits_secrets(account: &Value) -> bool {
    let enforced = account.str_at(&["metadata", "annotations", ENFORCE]);
    matches!(enforced, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

const TOKEN_WANTED: &str = "automountServiceAccountToken";

fn is_pod(attributes: &Attributes<'_>) -> bool {
    attributes.gvr.group.is_empty() && attributes.gvr.resource == "pods"
}

fn is_new_pod(attributes: &Attributes<'_>) -> bool {
    is_pod(attributes)
        && attributes.operation == Operation::Create
        && attributes.subresource.is_empty()
}

/// A pod that a kubelet runs by itself and shows here.
fn is_mirror(pod: &Value) -> bool {
    pod.at(&["metadata", "annotations", MIRROR]).is_some()
}

/// Also by the name that the field had once.
fn account_name(pod: &Value) -> &str {
    match pod.str_at(&["spec", "serviceAccountName"]) {
        "" => pod.str_at(&["spec", "serviceAccount"]),
        name => name,
    }
}

async fn find(
    attributes: &Attributes<'_>,
    name: &str,
    cluster: &Cluster,
) -> Result<Value, ApiError> {
    let namespace = attributes.namespace;
    let get =
        |freshness| cluster.objects.get(&resources::SERVICE_ACCOUNTS, namespace, name, freshness);
    if let Some(found) = get(Freshness::Cached).await? {
        return Ok(found);
    }
    let attempts = if name == DEFAULT { DEFAULT_ATTEMPTS } else { 1 };
    for attempt in 0..attempts {
        if attempt > 0 {
            tokio::time::sleep(ATTEMPT_EVERY).await;
        }
        if let Some(found) = get(Freshness::Linearizable).await? {
            return Ok(found);
        }
    }
    let quoted = meta::field::quote(name);
    let why = format!(
        "error looking up service account {namespace}/{name}: serviceaccount {quoted} not found"
    );
    Err(forbidden(attributes, why))
}

fn forbidden(attributes: &Attributes<'_>, why: String) -> ApiError {
    let resource = GroupResource::new("", "pods");
    ApiError::Forbidden { resource, name: attributes.name.to_owned(), why, causes: Vec::new() }
}

/// Every container sees the token, unless something else is mounted at its place.
fn mount_token(pod: &mut Value) {
    let volumes = pod.items_at(&["spec", "volumes"]).iter();
    let mut names = volumes.map(|volume| volume.str_at(&["name"]));
    let existing = names.find(|name| name.starts_with(VOLUME)).map(str::to_owned);
    let name = existing.clone().unwrap_or_else(|| meta::names::generate_name(VOLUME, random_u32));
    let mount = value!({"name": (name.as_str()), "readOnly": true, "mountPath": (MOUNT_PATH)});
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let containers = pod.at_mut(&["spec", list]).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let mounts = container.items_at(&["volumeMounts"]);
            if mounts.iter().all(|mount| mount.str_at(&["mountPath"]) != MOUNT_PATH) {
                let mut mounts = mounts.to_vec();
                mounts.push(mount.clone());
                container.set_at(&["volumeMounts"], mounts);
                needed = true;
            }
        }
    }
    if needed && existing.is_none() {
        let mut volumes = pod.items_at(&["spec", "volumes"]).to_vec();
        volumes.push(value!({"name": (name), "projected": (token_volume())}));
        pod.set_at(&["spec", "volumes"], volumes);
    }
}

fn token_volume() -> Value {
    let namespace = value!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    value!({
        "defaultMode": (READABLE),
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": (TOKEN_SECONDS)}},
            {"configMap": {
                "name": "kube-root-ca.crt",
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }},
            {"downwardAPI": {"items": [(namespace)]}},
        ],
    })
}

fn random_u32() -> u32 {
    getrandom::u32().expect("the operating system gives random numbers")
}

/// A mirror pod exists on its kubelet only, so it may not refer to objects of the cluster.
fn check_mirror(pod: &Value) -> Result<(), &'static str> {
    if !account_name(pod).is_empty() {
        return Err("a mirror pod may not reference service accounts");
    }
    if names_secrets(pod) {
        return Err("a mirror pod may not reference secrets");
    }
    let sources = pod.items_at(&["spec", "volumes"]).iter();
    let mut sources = sources.flat_map(|volume| volume.items_at(&["projected", "sources"]));
    if sources.any(|source| source.get("serviceAccountToken").is_some()) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

/// An account may limit its pods to the secrets that it names.
fn check_secrets(pod: &Value, account: &Value) -> Result<(), String> {
    let account_name = account.str_at(&["metadata", "name"]);
    for volume in pod.items_at(&["spec", "volumes"]) {
        let Some(secret) = volume.at(&["secret"]) else { continue };
        let name = secret.str_at(&["secretName"]);
        if !is_listed(account, "secrets", name) {
            return Err(format!(
                "volume with secret.secretName=\"{name}\" is not allowed because service account \
                 {account_name} does not reference that secret"
            ));
        }
    }
    check_containers(pod, "initContainers", "init container", account)?;
    check_containers(pod, "containers", "container", account)?;
    for (at, secret) in pod.items_at(&["spec", "imagePullSecrets"]).iter().enumerate() {
        let name = secret.str_at(&["name"]);
        if !is_listed(account, "imagePullSecrets", name) {
            return Err(format!(
                "imagePullSecrets[{at}].name=\"{name}\" is not allowed because service account \
                 {account_name} does not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

fn check_containers(pod: &Value, list: &str, what: &str, account: &Value) -> Result<(), String> {
    let account_name = account.str_at(&["metadata", "name"]);
    let refuse = |container: &Value, with: String, secret: &str| {
        Err(format!(
            "{what} {} with {with} referencing secret.secretName=\"{secret}\" is not allowed \
             because service account {account_name} does not reference that secret",
            container.str_at(&["name"])
        ))
    };
    for container in pod.items_at(&["spec", list]) {
        for variable in container.items_at(&["env"]) {
            let Some(secret) = variable.at(&["valueFrom", "secretKeyRef"]) else { continue };
            let name = secret.str_at(&["name"]);
            if !is_listed(account, "secrets", name) {
                let with = format!("envVar {}", variable.str_at(&["name"]));
                return refuse(container, with, name);
            }
        }
        for source in container.items_at(&["envFrom"]) {
            let Some(secret) = source.get("secretRef") else { continue };
            let name = secret.str_at(&["name"]);
            if !is_listed(account, "secrets", name) {
                return refuse(container, "envFrom".to_owned(), name);
            }
        }
    }
    Ok(())
}

fn is_listed(account: &Value, list: &str, name: &str) -> bool {
    account.items_at(&[list]).iter().any(|listed| listed.str_at(&["name"]) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_container_sees_the_token_unless_its_place_is_taken() {
        let mut pod = value!({"spec": {
            "initContainers": [{"name": "i"}],
            "containers": [
                {"name": "a", "volumeMounts": [{"name": "x", "mountPath": "/x"}]},
                {"name": "b", "volumeMounts": [{"name": "own", "mountPath": (MOUNT_PATH)}]},
            ],
        }});
        mount_token(&mut pod);
        let volumes = pod.items_at(&["spec", "volumes"]);
        assert_eq!(volumes.len(), 1);
        let name = volumes[0].str_at(&["name"]).to_owned();
        assert!(name.starts_with(VOLUME) && name.len() == VOLUME.len() + 5, "{name}");
        let mounts = |list: &str, at: usize| -> Vec<String> {
            let mounts = pod.items_at(&["spec", list])[at].items_at(&["volumeMounts"]);
            mounts.iter().map(|mount| mount.str_at(&["name"]).to_owned()).collect()
        };
        assert_eq!(mounts("initContainers", 0), [name.as_str()]);
        assert_eq!(mounts("containers", 0), ["x", name.as_str()]);
        assert_eq!(mounts("containers", 1), ["own"]);
        let before = pod.clone();
        mount_token(&mut pod);
        assert_eq!(pod, before, "what is there stays");
    }

    #[test]
    fn mirror_pods_reach_for_nothing() {
        let cases = [
            (value!({"spec": {"containers": [{"env": [{"name": "secret", "value": "x"}]}]}}), ""),
            (
                value!({"spec": {"serviceAccountName": "a"}}),
                "a mirror pod may not reference service accounts",
            ),
            (
                value!({"spec": {"volumes": [{"secret": {"secretName": "s"}}]}}),
                "a mirror pod may not reference secrets",
            ),
            (
                value!({"spec": {"containers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]}}),
                "a mirror pod may not reference secrets",
            ),
            (
                value!({"spec": {"volumes": [{"projected": {"sources": [{"serviceAccountToken": {}}]}}]}}),
                "a mirror pod may not use ServiceAccountToken volume projections",
            ),
        ];
        for (pod, expected) in cases {
            assert_eq!(check_mirror(&pod).err().unwrap_or_default(), expected, "{pod:?}");
        }
    }

    #[test]
    fn an_account_may_limit_secrets() {
        let account = value!({"metadata": {"name": "a"}, "secrets": [{"name": "s"}], "imagePullSecrets": [{"name": "p"}]});
        let cases = [
            (
                value!({"spec": {"volumes": [{"secret": {"secretName": "s"}}], "imagePullSecrets": [{"name": "p"}]}}),
                "",
            ),
            (
                value!({"spec": {"volumes": [{"secret": {"secretName": "t"}}]}}),
                "volume with secret.secretName=\"t\" is not allowed because service account a does not reference that secret",
            ),
            (
                value!({"spec": {"initContainers": [{"name": "i", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "t"}}}]}]}}),
                "init container i with envVar E referencing secret.secretName=\"t\" is not allowed because service account a does not reference that secret",
            ),
            (
                value!({"spec": {"containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "t"}}]}]}}),
                "container c with envFrom referencing secret.secretName=\"t\" is not allowed because service account a does not reference that secret",
            ),
            (
                value!({"spec": {"imagePullSecrets": [{"name": "q"}]}}),
                "imagePullSecrets[0].name=\"q\" is not allowed because service account a does not reference that imagePullSecret",
            ),
        ];
        for (pod, expected) in cases {
            assert_eq!(check_secrets(&pod, &account).err().unwrap_or_default(), expected);
        }
    }

    #[test]
    fn pods_get_the_account_and_its_secrets() {
        use crate::harness::{cluster, create, update, yaml};
        let accounts = [
            (
                &resources::SERVICE_ACCOUNTS,
                "{metadata: {name: default, namespace: ns}, imagePullSecrets: [{name: pull}], automountServiceAccountToken: false}",
            ),
            (
                &resources::SERVICE_ACCOUNTS,
                "{metadata: {name: strict, namespace: ns, annotations: {kubernetes.io/enforce-mountable-secrets: 'true'}}, secrets: [{name: s}]}",
            ),
        ];
        let cluster = cluster(&accounts, &[]);
        let pod = |annotations: &str, spec: &str| {
            yaml(&format!(
                "{{metadata: {{name: p, namespace: ns, annotations: {{{annotations}}}}}, spec: {{{spec}}}}}"
            ))
        };
        let mirror = "kubernetes.io/config.mirror: x";
        let forbidden = |why: &str| format!("pods \"p\" is forbidden: {why}");
        let not_mountable = "volume with secret.secretName=\"t\" is not allowed because service \
                             account strict does not reference that secret";
        let cases = [
            (
                "",
                "containers: []",
                "serviceAccountName: default, imagePullSecrets: [{name: pull}], containers: []",
                String::new(),
            ),
            (
                "",
                "imagePullSecrets: [{name: own}]",
                "serviceAccountName: default, imagePullSecrets: [{name: own}]",
                String::new(),
            ),
            (
                "",
                "serviceAccountName: gone",
                "",
                forbidden(
                    "error looking up service account ns/gone: serviceaccount \"gone\" not found",
                ),
            ),
            (mirror, "containers: []", "containers: []", String::new()),
            (
                mirror,
                "serviceAccountName: default",
                "",
                forbidden("a mirror pod may not reference service accounts"),
            ),
            (
                "",
                "serviceAccountName: strict, automountServiceAccountToken: false, volumes: [{secret: {secretName: t}}]",
                "",
                forbidden(not_mountable),
            ),
        ];
        for (annotations, spec, expected, message) in cases {
            let mut object = pod(annotations, spec);
            let outcome = create(&resources::PODS).admit(&ServiceAccount, &mut object, &cluster);
            assert_eq!(outcome.message(), message, "{spec}");
            if message.is_empty() {
                assert_eq!(object, pod(annotations, expected));
            }
        }
        let ephemeral = "serviceAccountName: strict, ephemeralContainers: [{name: e, envFrom: [{secretRef: {name: t}}]}]";
        let request = update(&resources::PODS, pod("", "serviceAccountName: strict"));
        let request = request.subresource("ephemeralcontainers");
        let outcome = request.validate(&ServiceAccount, &pod("", ephemeral), &cluster);
        assert_eq!(
            outcome.message(),
            "ephemeral container e with envFrom referencing secret.secretName=\"t\" is not allowed \
             because service account strict does not reference that secret"
        );
        assert_eq!(outcome.error.unwrap().status().code, 500);
    }
}
