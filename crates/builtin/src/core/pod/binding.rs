//! `pods/binding` (and `bindings`): a pod gets its node. What the scheduler does.

use std::sync::{Arc, OnceLock};

use meta::{ApiError, FieldErrors, GroupResource, GroupVersionKind, Value, field::path, value};
use registry::{
    Action, ActionContext, ActionOutcome, BoxFuture, ComputeContext, ComputedResource, Kind,
};

use super::condition::set_condition;

/// `pods/NAME/binding`
pub(crate) struct PodBinding;

impl Action for PodBinding {
    fn accepts(&self) -> Vec<GroupVersionKind> {
        vec![GroupVersionKind::new("", "v1", "Binding")]
    }

    fn act<'a>(
        &'a self,
        binding: Value,
        cx: &'a ActionContext<'a>,
    ) -> BoxFuture<'a, Result<ActionOutcome, ApiError>> {
        Box::pin(async move {
            if binding.str_at(&["metadata", "name"]) != cx.name() {
                let why = "name in URL does not match name in Binding object";
                return Err(ApiError::bad_request(why));
            }
            bind(cx.kind(), cx.namespace(), &binding, cx.dry_run).await
        })
    }
}

/// `bindings`: the same with the pod's name in the body only.
#[derive(Default)]
pub(crate) struct Bindings {
    /// Known when all kinds are.
    pub(crate) pods: OnceLock<Arc<Kind>>,
}

impl ComputedResource for Bindings {
    fn create<'a>(
        &'a self,
        binding: Value,
        cx: &'a ComputeContext<'a>,
    ) -> BoxFuture<'a, Result<ActionOutcome, ApiError>> {
        Box::pin(async move {
            let pods = self.pods.get().ok_or(ApiError::NotServed)?;
            bind(pods, &cx.info.namespace, &binding, cx.dry_run).await
        })
    }
}

async fn bind(
    pods: &Kind,
    namespace: &str,
    binding: &Value,
    dry_run: bool,
) -> Result<ActionOutcome, ApiError> {
    validate(binding)?;
    let name = binding.str_at(&["metadata", "name"]);
    let assign = &mut |pod: &mut Value| {
        check_preconditions(pods, namespace, binding, pod)?;
        assign(binding, pod).map_err(|why| ApiError::Conflict {
            resource: GroupResource::new("", "pods/binding"),
            name: name.to_owned(),
            why,
        })
    };
    pods.rewrite(namespace, name, dry_run, assign).await?;
    Ok(ActionOutcome::Done)
}

fn validate(binding: &Value) -> Result<(), ApiError> {
    let mut errors = FieldErrors::default();
    let kind = binding.str_at(&["target", "kind"]);
    if !matches!(kind, "" | "Node") {
        errors.not_supported(path("target").child("kind"), kind, &["Node", "<empty>"]);
    }
    if binding.str_at(&["target", "name"]).is_empty() {
        errors.required(path("target").child("name"), "");
    }
    // Compat: these errors are passed on as 500.
    if errors.is_empty() { Ok(()) } else { Err(ApiError::Storage(errors.to_string())) }
}

fn check_preconditions(
    pods: &Kind,
    namespace: &str,
    binding: &Value,
    pod: &Value,
) -> Result<(), ApiError> {
    for (field, label) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let at = ["metadata", field];
        let (given, actual) = (binding.str_at(&at), pod.str_at(&at));
        if given.is_empty() || given == actual {
            continue;
        }
        let name = pod.str_at(&["metadata", "name"]);
        let key = pods.storage_key(namespace, name);
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, \
             AdditionalErrorMsg: Precondition failed: {label} in precondition: {given}, \
             {label} in object meta: {actual}"
        );
        let resource = GroupResource::new("", "pods");
        return Err(ApiError::Conflict { resource, name: name.to_owned(), why });
    }
    Ok(())
}

/// Gives the pod its node, once.
fn assign(binding: &Value, pod: &mut Value) -> Result<(), String> {
    let name = pod.str_at(&["metadata", "name"]);
    if !pod.str_at(&["metadata", "deletionTimestamp"]).is_empty() {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = pod.str_at(&["spec", "nodeName"]);
    if !node.is_empty() {
        let node = meta::field::quote(node);
        return Err(format!("pod {name} is already assigned to node {node}"));
    }
    if !pod.items_at(&["spec", "schedulingGates"]).is_empty() {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod.set_at(&["spec", "nodeName"], binding.str_at(&["target", "name"]));
    pod.remove_at(&["status", "nominatedNodeName"]);
    for map in ["annotations", "labels"] {
        let given = binding.at(&["metadata", map]).and_then(Value::as_object);
        for (key, text) in given.into_iter().flat_map(meta::Map::iter) {
            pod.set_at(&["metadata", map, key], text.clone());
        }
    }
    set_condition(pod, value!({"type": "PodScheduled", "status": "True"}));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_bound_once() {
        let binding = value!({"metadata": {"name": "p", "annotations": {"a": "b"}}, "target": {"name": "n1"}});
        let mut pod = value!({"metadata": {"name": "p", "annotations": {"x": "y"}}, "spec": {}});
        assign(&binding, &mut pod).unwrap();
        assert_eq!(pod.str_at(&["spec", "nodeName"]), "n1");
        assert_eq!(pod.at(&["metadata", "annotations"]), Some(&value!({"a": "b", "x": "y"})));
        let scheduled = &pod.items_at(&["status", "conditions"])[0];
        assert_eq!(scheduled.str_at(&["type"]), "PodScheduled");
        assert_eq!(
            assign(&binding, &mut pod),
            Err("pod p is already assigned to node \"n1\"".to_owned())
        );
        let mut gated =
            value!({"metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": "g"}]}});
        let refused = assign(&binding, &mut gated);
        assert_eq!(refused, Err("pod p has non-empty .spec.schedulingGates".to_owned()));
    }
}
