//! `--enable-admission-plugins` and `--disable-admission-plugins`.

use crate::flags::{Parsed, quote};

/// How Pintle treats an admission plugin of kube-apiserver.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plugin {
    /// Enabled by default.
    On,
    /// Enabled by default in kube-apiserver, not implemented here; disabling it has no effect.
    MissingDefault,
    /// Disabled by default in kube-apiserver, not implemented here; enabling it is an error.
    MissingOptional,
}

use Plugin::{MissingDefault, MissingOptional, On};

const PLUGINS: [(&str, Plugin); 41] = [
    ("AlwaysAdmit", MissingOptional),
    ("NamespaceAutoProvision", MissingOptional),
    ("NamespaceLifecycle", On),
    ("NamespaceExists", MissingOptional),
    ("LimitPodHardAntiAffinityTopology", MissingOptional),
    ("LimitRanger", MissingDefault),
    ("ServiceAccount", On),
    // Disabled by default in kube-apiserver; without it, mode Node trusts kubelets too much.
    ("NodeRestriction", On),
    ("TaintNodesByCondition", MissingDefault),
    ("AlwaysPullImages", MissingOptional),
    ("ImagePolicyWebhook", MissingOptional),
    ("PodSecurity", MissingDefault),
    ("PodNodeSelector", MissingOptional),
    ("Priority", MissingDefault),
    ("DefaultTolerationSeconds", MissingDefault),
    ("PodTolerationRestriction", MissingOptional),
    ("EventRateLimit", MissingOptional),
    ("ExtendedResourceToleration", MissingOptional),
    ("DefaultStorageClass", MissingDefault),
    ("StorageObjectInUseProtection", MissingDefault),
    ("PodGroupProtection", MissingDefault),
    ("OwnerReferencesPermissionEnforcement", MissingOptional),
    ("PersistentVolumeClaimResize", MissingDefault),
    ("RuntimeClass", MissingDefault),
    ("CertificateApproval", MissingDefault),
    ("CertificateSigning", MissingDefault),
    ("ClusterTrustBundleAttest", MissingDefault),
    ("CertificateSubjectRestriction", MissingDefault),
    ("DefaultIngressClass", MissingDefault),
    ("DenyServiceExternalIPs", MissingOptional),
    ("PodTopologyLabels", MissingDefault),
    ("PodGroupWorkloadExists", MissingDefault),
    ("NodeDeclaredFeatureValidator", MissingDefault),
    ("JobValidation", MissingDefault),
    ("PodResizeValidator", MissingDefault),
    ("MutatingAdmissionPolicy", On),
    ("MutatingAdmissionWebhook", On),
    ("ValidatingAdmissionPolicy", On),
    ("ValidatingAdmissionWebhook", On),
    ("ResourceQuota", MissingDefault),
    ("AlwaysDeny", MissingOptional),
];

/// The disabled plugins.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdmissionPlugins {
    off: Vec<String>,
}

impl AdmissionPlugins {
    pub(crate) fn is_on(&self, name: &str) -> bool {
        !self.off.iter().any(|named| named == name)
    }
}

fn state(name: &str) -> Option<Plugin> {
    PLUGINS.iter().find(|(known, _)| *known == name).map(|(_, state)| *state)
}

pub(super) fn plugins(
    parsed: &Parsed,
    errors: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> AdmissionPlugins {
    let (on, off) =
        (parsed.texts("enable-admission-plugins"), parsed.texts("disable-admission-plugins"));
    for (flag, names) in [("enable", &on), ("disable", &off)] {
        for name in names.iter().filter(|name| state(name).is_none()) {
            let name = quote(name);
            errors.push(format!("{flag}-admission-plugins plugin {name} is unknown"));
        }
    }
    for name in on.iter().filter(|name| off.contains(name)) {
        errors.push(format!(
            "{} in enable-admission-plugins and disable-admission-plugins overlapped",
            quote(name)
        ));
    }
    for name in &on {
        match state(name) {
            Some(MissingOptional) => errors.push(format!(
                "admission plugin {name} is not available in Pintle yet, and security may depend \
                 on it"
            )),
            // Enabled by default: nothing to do.
            Some(MissingDefault) => {
                warnings.push(format!("admission plugin {name} has no effect in Pintle yet"));
            }
            Some(On) | None => {}
        }
    }
    AdmissionPlugins { off }
}
