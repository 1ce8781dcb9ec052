//! Objects live in namespaces that exist: refuses creates in a namespace that is missing or on its
//! way out, and deletes of the namespaces that the system itself lives in.

use meta::{ApiError, Cause, GroupResource, Value};

use crate::{
    Attributes, Cluster, Freshness, Operation, Phases, Pinned, Plugin, is_namespace, namespace_of,
    resources,
};

pub struct NamespaceLifecycle;

/// These can't be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update | Operation::Delete)
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        match attributes.operation {
            Operation::Create => !attributes.namespace.is_empty(),
            _ => is_namespace(attributes.gvr),
        }
    }

    fn phases(&self) -> Phases {
        Phases::Mutating
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        _object: Option<&'a mut Value>,
        cluster: &'a Cluster,
    ) -> Pinned<'a, Result<(), ApiError>> {
        Box::pin(decide(attributes, cluster))
    }
}

async fn decide(attributes: &Attributes<'_>, cluster: &Cluster) -> Result<(), ApiError> {
    if is_namespace(attributes.gvr) {
        return refuse_delete_of_immortal(attributes);
    }
    let Some(namespace) = namespace_of(attributes) else { return Ok(()) };
    // Deletes go on while a namespace is emptied; updates of what is there may still be needed to
    // remove finalizers.
    if attributes.operation != Operation::Create {
        return Ok(());
    }
    // Access reviews may be asked about namespaces that are not there.
    if attributes.gvr.group == "authorization.k8s.io" {
        return Ok(());
    }
    let get = |freshness| cluster.objects.get(&resources::NAMESPACES, "", namespace, freshness);
    let mut found = get(Freshness::Cached).await?;
    if found.is_none() {
        // The cache may be behind a create of a moment ago.
        found = get(Freshness::Linearizable).await?;
    }
    let Some(found) = found else {
        return Err(ApiError::not_found(GroupResource::new("", "namespaces"), namespace));
    };
    if found.str_at(&["status", "phase"]) != "Terminating" {
        return Ok(());
    }
    Err(ApiError::Forbidden {
        resource: GroupResource {
            group: attributes.gvr.group.clone(),
            resource: attributes.gvr.resource.clone(),
        },
        name: attributes.name.to_owned(),
        why: format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        ),
        causes: vec![Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        }],
    })
}

fn refuse_delete_of_immortal(attributes: &Attributes<'_>) -> Result<(), ApiError> {
    if attributes.operation != Operation::Delete || !IMMORTAL.contains(&attributes.name) {
        return Ok(());
    }
    Err(ApiError::Forbidden {
        resource: GroupResource::new("", "namespaces"),
        name: attributes.name.to_owned(),
        why: "this namespace may not be deleted".to_owned(),
        causes: Vec::new(),
    })
}
