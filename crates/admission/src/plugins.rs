//! kube-apiserver's admission plugins.

pub mod always;
pub mod always_pull_images;
pub mod certificates;
pub mod default_ingress_class;
pub mod default_storage_class;
pub mod default_toleration_seconds;
pub mod deny_service_external_ips;
pub mod event_rate_limit;
pub mod extended_resource_toleration;
pub mod image_policy_webhook;
pub mod limit_pod_hard_anti_affinity_topology;
pub mod limit_ranger;
pub mod namespace_exists;
pub mod namespace_lifecycle;
pub mod node_declared_feature_validator;
pub mod node_restriction;
pub mod owner_references_permission_enforcement;
pub mod persistent_volume_claim_resize;
pub mod pod_groups;
pub mod pod_node_selector;
pub mod pod_resize_validator;
mod pod_resources;
pub mod pod_security;
pub mod pod_toleration_restriction;
pub mod pod_topology_labels;
pub mod priority;
pub mod runtime_class;
pub mod service_account;
pub mod storage_object_in_use_protection;
pub mod taint_nodes_by_condition;
mod tolerations;

use meta::{GroupVersionResource, Value, selector::LabelSelector};

use crate::Cluster;

/// Several errors as one text, as upstream's `NewAggregate`: each once, in brackets if there are more.
fn aggregate(errors: Vec<String>) -> Option<String> {
    let mut distinct: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        if !distinct.contains(&error) {
            distinct.push(error);
        }
    }
    match &distinct[..] {
        [] => None,
        [one] => Some(one.clone()),
        more => Some(format!("[{}]", more.join(", "))),
    }
}

/// Adds a finalizer that the object does not have yet.
fn add_finalizer(object: &mut Value, finalizer: &str) {
    let finalizers = object.items_at(&["metadata", "finalizers"]);
    if finalizers.iter().all(|known| known.as_str() != Some(finalizer)) {
        let mut finalizers = finalizers.to_vec();
        finalizers.push(Value::from(finalizer));
        object.set_at(&["metadata", "finalizers"], finalizers);
    }
}

/// The objects of a cluster-scoped resource that an annotation marks as the default: the newest of
/// them, by name where several are of the same second.
async fn newest_default(
    cluster: &Cluster,
    resource: &GroupVersionResource,
    annotations: &[&str],
) -> Result<Option<Value>, meta::ApiError> {
    let everything = LabelSelector::everything();
    let mut classes = cluster.objects.list(resource, "", &everything).await?;
    classes.retain(|class| {
        let is_default =
            |annotation: &&str| class.str_at(&["metadata", "annotations", annotation]) == "true";
        annotations.iter().any(is_default)
    });
    // RFC 3339 in UTC sorts by time.
    let created = |class: &Value| class.str_at(&["metadata", "creationTimestamp"]).to_owned();
    let name = |class: &Value| class.str_at(&["metadata", "name"]).to_owned();
    classes.sort_by(|a, b| created(b).cmp(&created(a)).then_with(|| name(a).cmp(&name(b))));
    Ok(classes.into_iter().next())
}
