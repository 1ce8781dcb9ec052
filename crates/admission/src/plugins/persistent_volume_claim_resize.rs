//! A bound claim may ask for more storage if its class allows that.

use meta::{ApiError, Value, quantity::Quantity};

use super::default_storage_class::class_of;
use crate::{Attributes, BoxFuture, Cluster, Freshness, Operation, Phases, Plugin, resources};

pub struct PersistentVolumeClaimResize;

impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Update
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is("", "persistentvolumeclaims", "")
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let (Some(claim), Some(old)) = (object, attributes.old) else { return Ok(()) };
            if size(claim) <= size(old) {
                return Ok(());
            }
            if old.str_at(&["status", "phase"]) != "Bound" {
                let why = "Only bound persistent volume claims can be expanded";
                return Err(attributes.forbidden(object, why));
            }
            if allows_expansion(claim, old, cluster).await? {
                return Ok(());
            }
            let why = "only dynamically provisioned pvc can be resized and the storageclass that \
                       provisions the pvc must support resize";
            Err(attributes.forbidden(object, why))
        })
    }
}

fn size(claim: &Value) -> Quantity {
    let size = claim.at(&["spec", "resources", "requests", "storage"]);
    size.and_then(|size| Quantity::from_value(size).ok()).unwrap_or_default()
}

async fn allows_expansion(claim: &Value, old: &Value, cluster: &Cluster) -> Result<bool, ApiError> {
    let class = class_of(claim).unwrap_or_default();
    if class.is_empty() || class_of(old) != Some(class) {
        return Ok(false);
    }
    let classes = &resources::STORAGE_CLASSES;
    let class = cluster.objects.get(classes, "", class, Freshness::Cached).await?;
    Ok(class.is_some_and(|class| class.bool_at(&["allowVolumeExpansion"])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{cluster, update, yaml};

    #[test]
    fn claims_grow_if_their_class_allows_it() {
        let claim = |size: &str, class: &str, phase: &str| {
            yaml(&format!(
                "{{metadata: {{name: c}}, spec: {{resources: {{requests: {{storage: {size}}}}}, \
                 storageClassName: '{class}'}}, status: {{phase: {phase}}}}}"
            ))
        };
        let forbidden = |why: &str| format!("persistentvolumeclaims \"c\" is forbidden: {why}");
        let unbound = forbidden("Only bound persistent volume claims can be expanded");
        let fixed = forbidden(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions \
             the pvc must support resize",
        );
        let cases = [
            ("1Gi", "2Gi", "grows", "Bound", ""),
            ("1Gi", "1024Mi", "fixed", "Bound", ""),
            ("2Gi", "1Gi", "fixed", "Bound", ""),
            ("1Gi", "2Gi", "fixed", "Bound", &fixed),
            ("1Gi", "2Gi", "gone", "Bound", &fixed),
            ("1Gi", "2Gi", "", "Bound", &fixed),
            ("1Gi", "2Gi", "grows", "Pending", &unbound),
        ];
        let classes = [
            (&resources::STORAGE_CLASSES, "{metadata: {name: grows}, allowVolumeExpansion: true}"),
            (&resources::STORAGE_CLASSES, "{metadata: {name: fixed}}"),
        ];
        for (from, to, class, phase, expected) in cases {
            let request = update(&resources::PERSISTENT_VOLUME_CLAIMS, claim(from, class, phase));
            let new = claim(to, class, phase);
            let outcome =
                request.validate(&PersistentVolumeClaimResize, &new, &cluster(&classes, &[]));
            assert_eq!(outcome.message(), expected, "{from} {to} {class}");
        }
    }
}
