//! A claim without a storage class gets the default one.

use meta::{ApiError, Value};

use super::newest_default;
use crate::{Attributes, BoxFuture, Cluster, Operation, Phases, Plugin, resources};

pub struct DefaultStorageClass;

const IS_DEFAULT: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is("", "persistentvolumeclaims", "")
    }

    fn phases(&self) -> Phases {
        Phases::Mutating
    }

    fn admit<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            // An empty class is a choice as well: none.
            let Some(claim) = object.filter(|claim| class_of(claim).is_none()) else {
                return Ok(());
            };
            let class = newest_default(cluster, &resources::STORAGE_CLASSES, &IS_DEFAULT).await?;
            if let Some(class) = class {
                claim.set_at(&["spec", "storageClassName"], class.str_at(&["metadata", "name"]));
            }
            Ok(())
        })
    }
}

/// The class that a claim names, by the annotation of old or by its field.
pub(super) fn class_of(claim: &Value) -> Option<&str> {
    let annotation = ["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"];
    let class = claim.at(&annotation).or_else(|| claim.at(&["spec", "storageClassName"]));
    class.and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{cluster, create, yaml};

    fn class(name: &str, created: &str, annotation: &str) -> String {
        format!(
            "{{metadata: {{name: {name}, creationTimestamp: '{created}', annotations: {{{annotation}: 'true'}}}}}}"
        )
    }

    #[test]
    fn the_newest_default_class_is_filled_in() {
        let of_old = class("old", "2020-01-01T00:00:00Z", IS_DEFAULT[0]);
        let (b, a) = (
            class("b", "2021-01-01T00:00:00Z", IS_DEFAULT[1]),
            class("a", "2021-01-01T00:00:00Z", IS_DEFAULT[0]),
        );
        let other = class("other", "2023-01-01T00:00:00Z", "x");
        let cases: [(&[&str], &str, &str); 6] = [
            (&[&of_old], "{spec: {}}", "{spec: {storageClassName: old}}"),
            (&[&of_old, &b, &a, &other], "{spec: {}}", "{spec: {storageClassName: a}}"),
            (&[&other], "{spec: {}}", "{spec: {}}"),
            (&[&of_old], "{spec: {storageClassName: x}}", "{spec: {storageClassName: x}}"),
            (&[&of_old], "{spec: {storageClassName: ''}}", "{spec: {storageClassName: ''}}"),
            (
                &[&of_old],
                "{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: x}}}",
                "{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: x}}}",
            ),
        ];
        for (classes, claim, expected) in cases {
            let classes: Vec<_> =
                classes.iter().map(|class| (&resources::STORAGE_CLASSES, *class)).collect();
            let mut object = yaml(claim);
            let request = create(&resources::PERSISTENT_VOLUME_CLAIMS);
            request.admit(&DefaultStorageClass, &mut object, &cluster(&classes, &[]));
            assert_eq!(object, yaml(expected));
        }
    }
}
