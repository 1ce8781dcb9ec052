//! Claims, volumes and volume attributes classes are deleted only when they are no longer in use: their
//! finalizers make the deletion wait for a controller.

use meta::{ApiError, Value};

use crate::{Attributes, BoxFuture, Cluster, Operation, Phases, Plugin};

pub struct StorageObjectInUseProtection;

impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        finalizer(attributes).is_some()
    }

    fn phases(&self) -> Phases {
        Phases::Mutating
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        if let (Some(object), Some(finalizer)) = (object, finalizer(attributes)) {
            super::add_finalizer(object, finalizer);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

fn finalizer(attributes: &Attributes<'_>) -> Option<&'static str> {
    if !attributes.subresource.is_empty() {
        return None;
    }
    match (attributes.gvr.group.as_str(), attributes.gvr.resource.as_str()) {
        ("", "persistentvolumes") => Some("kubernetes.io/pv-protection"),
        ("", "persistentvolumeclaims") => Some("kubernetes.io/pvc-protection"),
        ("storage.k8s.io", "volumeattributesclasses") => Some("kubernetes.io/vac-protection"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::{cluster, create, update, yaml},
        resources,
    };

    #[test]
    fn new_storage_objects_have_a_finalizer() {
        let claims = &resources::PERSISTENT_VOLUME_CLAIMS;
        let cases = [
            (create(claims), "{}", "{finalizers: [kubernetes.io/pvc-protection]}"),
            (
                create(claims),
                "{finalizers: [a, kubernetes.io/pvc-protection]}",
                "{finalizers: [a, kubernetes.io/pvc-protection]}",
            ),
            (
                create(&resources::PERSISTENT_VOLUMES),
                "{finalizers: [a]}",
                "{finalizers: [a, kubernetes.io/pv-protection]}",
            ),
            (
                create(&resources::VOLUME_ATTRIBUTES_CLASSES),
                "{}",
                "{finalizers: [kubernetes.io/vac-protection]}",
            ),
            (create(&resources::PODS), "{}", "{}"),
            (update(claims, yaml("{}")), "{}", "{}"),
        ];
        for (request, metadata, expected) in cases {
            let object = |metadata: &str| yaml(&format!("{{metadata: {metadata}}}"));
            let mut changed = object(metadata);
            request.admit(&StorageObjectInUseProtection, &mut changed, &cluster(&[], &[]));
            assert_eq!(changed, object(expected));
        }
    }
}
