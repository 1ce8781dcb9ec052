//! All admission plugins of kube-apiserver, in the order in which they run.

use crate::{
    Configurations, Plugin,
    plugins::{
        certificates, namespace_lifecycle::NamespaceLifecycle, node_restriction::NodeRestriction,
        service_account::ServiceAccount,
    },
};

/// A plugin of kube-apiserver.
pub struct KnownPlugin {
    pub name: &'static str,
    pub on_by_default: bool,
    /// None: not implemented.
    build: Option<Build>,
    pub takes_configuration: bool,
}

/// What plugins are built from.
pub struct Settings<'a> {
    pub configurations: &'a Configurations,
    /// Whether a feature gate is enabled.
    pub feature: &'a dyn Fn(&str) -> bool,
    pub not_ready_toleration_seconds: i64,
    pub unreachable_toleration_seconds: i64,
}

type Build = fn(&Settings<'_>) -> Result<Box<dyn Plugin>, String>;

pub static PLUGINS: [KnownPlugin; 41] = [
    missing("AlwaysAdmit").off(),
    missing("NamespaceAutoProvision").off(),
    // Before the others: nothing else needs to look at an object that has no namespace to live in.
    built("NamespaceLifecycle", |_| Ok(Box::new(NamespaceLifecycle))),
    missing("NamespaceExists").off(),
    missing("LimitPodHardAntiAffinityTopology").off(),
    missing("LimitRanger"),
    built("ServiceAccount", |_| Ok(Box::new(ServiceAccount))),
    // Off by default in kube-apiserver; without it, mode Node trusts kubelets too much.
    built("NodeRestriction", |_| Ok(Box::new(NodeRestriction))),
    missing("TaintNodesByCondition"),
    missing("AlwaysPullImages").off(),
    missing("ImagePolicyWebhook").off().configured(),
    missing("PodSecurity").configured(),
    missing("PodNodeSelector").off().configured(),
    missing("Priority"),
    missing("DefaultTolerationSeconds"),
    missing("PodTolerationRestriction").off().configured(),
    missing("EventRateLimit").off().configured(),
    missing("ExtendedResourceToleration").off(),
    missing("DefaultStorageClass"),
    missing("StorageObjectInUseProtection"),
    // Only with the gate GenericWorkload, which is alpha.
    missing("PodGroupProtection"),
    missing("OwnerReferencesPermissionEnforcement").off(),
    missing("PersistentVolumeClaimResize"),
    missing("RuntimeClass"),
    built("CertificateApproval", |_| Ok(Box::new(certificates::approval::CertificateApproval))),
    built("CertificateSigning", |_| Ok(Box::new(certificates::signing::CertificateSigning))),
    built("ClusterTrustBundleAttest", |settings| {
        let enabled = (settings.feature)("ClusterTrustBundle");
        Ok(Box::new(certificates::trust_bundle::ClusterTrustBundleAttest { enabled }))
    }),
    built("CertificateSubjectRestriction", |_| {
        Ok(Box::new(certificates::subject::CertificateSubjectRestriction))
    }),
    missing("DefaultIngressClass"),
    missing("DenyServiceExternalIPs").off(),
    missing("PodTopologyLabels"),
    // Only with the gate GenericWorkload, which is alpha.
    missing("PodGroupWorkloadExists"),
    missing("NodeDeclaredFeatureValidator"),
    // Only with the gate WorkloadWithJob, which is alpha.
    missing("JobValidation"),
    missing("PodResizeValidator"),
    // Policies and webhooks run after the plugins above, so that they see what these made of an
    // object.
    missing("MutatingAdmissionPolicy"),
    missing("MutatingAdmissionWebhook").configured(),
    missing("ValidatingAdmissionPolicy"),
    missing("ValidatingAdmissionWebhook").configured(),
    // Last of those that are on by default: only what every other plugin accepted counts.
    missing("ResourceQuota").configured(),
    missing("AlwaysDeny").off(),
];

const fn built(name: &'static str, build: Build) -> KnownPlugin {
    KnownPlugin { name, on_by_default: true, build: Some(build), takes_configuration: false }
}

const fn missing(name: &'static str) -> KnownPlugin {
    KnownPlugin { name, on_by_default: true, build: None, takes_configuration: false }
}

impl KnownPlugin {
    const fn off(self) -> Self {
        Self { on_by_default: false, ..self }
    }

    const fn configured(self) -> Self {
        Self { takes_configuration: true, ..self }
    }

    pub fn is_built(&self) -> bool {
        self.build.is_some()
    }
}

pub fn find(name: &str) -> Option<&'static KnownPlugin> {
    PLUGINS.iter().find(|known| known.name == name)
}

/// Builds the plugins that are on.
pub fn plugins(
    is_on: &dyn Fn(&str) -> bool,
    settings: &Settings<'_>,
) -> Result<Vec<Box<dyn Plugin>>, String> {
    let builds = PLUGINS.iter().filter(|known| is_on(known.name)).filter_map(|known| known.build);
    builds.map(|build| build(settings)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_built_under_their_names_in_order() {
        let configurations = Configurations::default();
        let settings = Settings {
            configurations: &configurations,
            feature: &|_| true,
            not_ready_toleration_seconds: 300,
            unreachable_toleration_seconds: 300,
        };
        // EventRateLimit and ImagePolicyWebhook do not work without a configuration.
        let is_on = |name: &str| !matches!(name, "EventRateLimit" | "ImagePolicyWebhook");
        let built = plugins(&is_on, &settings).unwrap();
        let names: Vec<_> = built.iter().map(|plugin| plugin.name()).collect();
        let known = PLUGINS.iter().filter(|known| known.is_built() && is_on(known.name));
        assert_eq!(names, known.map(|known| known.name).collect::<Vec<_>>());
    }
}
