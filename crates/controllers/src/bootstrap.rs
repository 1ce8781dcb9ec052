//! Objects that the apiserver creates itself, and how it creates them.

use meta::{ApiError, Value, value};

use crate::{ApiClient, ResourceRef};

/// Returns the stored object, which is created if it does not exist. An existing one stays as it is.
pub async fn get_or_create(
    api: &dyn ApiClient,
    target: &ResourceRef,
    object: &Value,
) -> Result<Value, ApiError> {
    let named = target.clone().named(object.str_at(&["metadata", "name"]));
    if let Ok(found) = api.get(&named).await {
        return Ok(found);
    }
    match api.create(target, object).await {
        // Another apiserver created it meanwhile.
        Err(ApiError::AlreadyExists { .. }) => api.get(&named).await,
        other => other,
    }
}

/// Creates an object, or resets these fields of an existing one.
pub async fn reconcile_fields(
    api: &dyn ApiClient,
    target: &ResourceRef,
    object: &Value,
    fields: &[&[&str]],
) -> Result<(), ApiError> {
    let named = target.clone().named(object.str_at(&["metadata", "name"]));
    for _ in 0..CONFLICTS_MAX {
        let mut found = get_or_create(api, target, object).await?;
        let differs = |field: &&&[&str]| found.at(field) != object.at(field);
        let wrong: Vec<&[&str]> = fields.iter().filter(differs).copied().collect();
        if wrong.is_empty() {
            return Ok(());
        }
        for field in wrong {
            match object.at(field) {
                Some(value) => found.set_at(field, value.clone()),
                None => drop(found.remove_at(field)),
            }
        }
        match api.update(&named, &found).await {
            Ok(_) => return Ok(()),
            Err(ApiError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(ApiError::internal("the object keeps changing"))
}

/// Attempts before the reconciliation fails: other clients write the object as well.
const CONFLICTS_MAX: usize = 5;

/// The namespaces that every cluster has.
pub const SYSTEM_NAMESPACES: [&str; 4] =
    ["default", "kube-system", "kube-public", "kube-node-lease"];

pub fn namespace(name: &str) -> Value {
    value!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": (name)}})
}

/// The priority classes that the Priority admission plugin and kubelets rely on.
pub fn priority_classes() -> Vec<Value> {
    let classes = [
        ("system-cluster-critical", 2_000_000_000i64, "Pods that the cluster needs; on any node."),
        ("system-node-critical", 2_000_001_000, "Pods that their node needs."),
    ];
    let class = |(name, priority, description)| {
        value!({
            "kind": "PriorityClass",
            "apiVersion": "scheduling.k8s.io/v1",
            "metadata": {"name": (name)},
            "value": (priority),
            "description": (description),
        })
    };
    classes.map(class).to_vec()
}

pub fn config_map(name: &str, data: &[(&str, String)]) -> Value {
    let data: meta::Map = data.iter().map(|(key, text)| (*key, text.clone())).collect();
    value!({
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": (name), "namespace": "kube-system"},
        "data": (data),
    })
}
