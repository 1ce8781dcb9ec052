//! Publishing the trust bundle of a signer needs the verb `attest` on it.

use meta::{ApiError, Value, field::quote};

use super::{GROUP, is_authorized_for_signer};
use crate::{Attributes, BoxFuture, Cluster, Operation, Phases, Plugin};

pub struct ClusterTrustBundleAttest {
    /// The gate ClusterTrustBundle.
    pub enabled: bool,
}

impl Plugin for ClusterTrustBundleAttest {
    fn name(&self) -> &'static str {
        "ClusterTrustBundleAttest"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        self.enabled
            && attributes.gvr.resource == "clustertrustbundles"
            && attributes.gvr.group == GROUP
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
            let Some(bundle) = object else { return Ok(()) };
            // That of the new object: validation refuses another signer.
            let signer = bundle.str_at(&["spec", "signerName"]);
            if signer.is_empty() || attributes.old.is_some_and(|old| is_same(bundle, old)) {
                return Ok(());
            }
            if is_authorized_for_signer(attributes, cluster, "attest", signer).await {
                return Ok(());
            }
            let why = format!("user not permitted to attest for signerName {}", quote(signer));
            Err(attributes.forbidden(object, why))
        })
    }
}

/// Whether an update only has what garbage collection and storage migration change.
fn is_same(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            object.remove_at(&["metadata", field]);
        }
        object
    };
    rest(new) == rest(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::{cluster, create, update, yaml},
        resources,
    };

    #[test]
    fn attesting_needs_a_right_on_the_signer() {
        let refused = "clustertrustbundles.certificates.k8s.io \"b\" is forbidden: user not \
                       permitted to attest for signerName \"a.b/s\"";
        let of_signer = "{metadata: {name: b}, spec: {signerName: a.b/s}}";
        let old = yaml("{metadata: {name: b, finalizers: [x]}, spec: {signerName: a.b/s}}");
        let changed = "{metadata: {name: b}, spec: {signerName: a.b/s, trustBundle: x}}";
        let bundles = &resources::CLUSTER_TRUST_BUNDLES;
        let cases: [(_, &'static [&'static str], &str, &str); 6] = [
            (create(bundles), &["attest signers a.b/s"], of_signer, ""),
            (create(bundles), &["attest signers a.b/*"], of_signer, ""),
            (create(bundles), &[], of_signer, refused),
            (create(bundles), &[], "{metadata: {name: b}, spec: {}}", ""),
            (update(bundles, old.clone()), &[], of_signer, ""),
            (update(bundles, old), &[], changed, refused),
        ];
        for (request, rights, bundle, expected) in cases {
            let plugin = ClusterTrustBundleAttest { enabled: true };
            let outcome = request.validate(&plugin, &yaml(bundle), &cluster(&[], rights));
            assert_eq!(outcome.message(), expected, "{rights:?} {bundle}");
            let off = ClusterTrustBundleAttest { enabled: false };
            let outcome = request.validate(&off, &yaml(bundle), &cluster(&[], rights));
            assert_eq!(outcome.message(), "");
        }
    }
}
