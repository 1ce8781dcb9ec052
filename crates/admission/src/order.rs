//! All admission plugins of kube-apiserver, in the order in which they run.

use std::sync::Arc;

use crate::{
    Configurations, Plugin,
    plugins::{
        always::{AlwaysAdmit, AlwaysDeny},
        always_pull_images::AlwaysPullImages,
        certificates,
        default_ingress_class::DefaultIngressClass,
        default_storage_class::DefaultStorageClass,
        default_toleration_seconds::DefaultTolerationSeconds,
        deny_service_external_ips::DenyServiceExternalIPs,
        event_rate_limit::EventRateLimit,
        extended_resource_toleration::ExtendedResourceToleration,
        image_policy_webhook::ImagePolicyWebhook,
        limit_pod_hard_anti_affinity_topology::LimitPodHardAntiAffinityTopology,
        limit_ranger::LimitRanger,
        namespace_exists::{NamespaceAutoProvision, NamespaceExists},
        namespace_lifecycle::NamespaceLifecycle,
        node_declared_feature_validator::NodeDeclaredFeatureValidator,
        node_restriction::NodeRestriction,
        owner_references_permission_enforcement::OwnerReferencesPermissionEnforcement,
        persistent_volume_claim_resize::PersistentVolumeClaimResize,
        pod_groups::{JobValidation, PodGroupProtection, PodGroupWorkloadExists},
        pod_node_selector::PodNodeSelector,
        pod_resize_validator::PodResizeValidator,
        pod_security::PodSecurity,
        pod_toleration_restriction::PodTolerationRestriction,
        pod_topology_labels::PodTopologyLabels,
        priority::Priority,
        runtime_class::RuntimeClass,
        service_account::ServiceAccount,
        storage_object_in_use_protection::StorageObjectInUseProtection,
        taint_nodes_by_condition::TaintNodesByCondition,
    },
    policy::{MutatingAdmissionPolicy, ValidatingAdmissionPolicy},
    quota::{Evaluators, QuotaAccessor, ResourceQuota},
    webhook::{MutatingAdmissionWebhook, ValidatingAdmissionWebhook},
};

/// A plugin of kube-apiserver.
pub struct KnownPlugin {
    pub name: &'static str,
    pub on_by_default: bool,
    build: Build,
    pub takes_configuration: bool,
}

/// What plugins are built from.
pub struct Settings<'a> {
    pub configurations: &'a Configurations,
    /// Whether a feature gate is enabled.
    pub feature: &'a dyn Fn(&str) -> bool,
    pub not_ready_toleration_seconds: i64,
    pub unreachable_toleration_seconds: i64,
    pub quota_evaluators: Arc<Evaluators>,
    pub quotas: Arc<dyn QuotaAccessor>,
}

/// The feature gates that plugins look at.
pub const FEATURE_GATES: [&str; 8] = [
    "AllowInsecureKubeletCertificateSigningRequests",
    "ClusterTrustBundle",
    "GenericWorkload",
    "NodeDeclaredFeatures",
    "PodLevelResources",
    "PodTopologyLabelsAdmission",
    "ServiceAccountNodeAudienceRestriction",
    "WorkloadWithJob",
];

type Build = fn(&Settings<'_>) -> Result<Box<dyn Plugin>, String>;

pub static PLUGINS: [KnownPlugin; 41] = [
    built("AlwaysAdmit", |_| Ok(Box::new(AlwaysAdmit))).off(),
    built("NamespaceAutoProvision", |_| Ok(Box::new(NamespaceAutoProvision))).off(),
    // Before the others: nothing else needs to look at an object that has no namespace to live in.
    built("NamespaceLifecycle", |_| Ok(Box::new(NamespaceLifecycle::default()))),
    built("NamespaceExists", |_| Ok(Box::new(NamespaceExists))).off(),
    built("LimitPodHardAntiAffinityTopology", |_| Ok(Box::new(LimitPodHardAntiAffinityTopology)))
        .off(),
    built("LimitRanger", |settings| {
        let pod_level_resources = (settings.feature)("PodLevelResources");
        Ok(Box::new(LimitRanger { pod_level_resources }))
    }),
    built("ServiceAccount", |_| Ok(Box::new(ServiceAccount))),
    // Off by default in kube-apiserver; without it, mode Node trusts kubelets too much.
    built("NodeRestriction", |settings| {
        let insecure = "AllowInsecureKubeletCertificateSigningRequests";
        Ok(Box::new(NodeRestriction {
            restrict_signing_requests: !(settings.feature)(insecure),
            restrict_audiences: (settings.feature)("ServiceAccountNodeAudienceRestriction"),
        }))
    }),
    built("TaintNodesByCondition", |_| Ok(Box::new(TaintNodesByCondition))),
    built("AlwaysPullImages", |_| Ok(Box::new(AlwaysPullImages))).off(),
    built("ImagePolicyWebhook", |settings| {
        let configuration = settings.configurations.of("ImagePolicyWebhook");
        Ok(Box::new(ImagePolicyWebhook::new(configuration)?))
    })
    .off()
    .configured(),
    built("PodSecurity", |settings| {
        Ok(Box::new(PodSecurity::new(settings.configurations.of("PodSecurity"))?))
    })
    .configured(),
    built("PodNodeSelector", |settings| {
        Ok(Box::new(PodNodeSelector::new(settings.configurations.of("PodNodeSelector"))?))
    })
    .off()
    .configured(),
    built("Priority", |_| Ok(Box::new(Priority))),
    built("DefaultTolerationSeconds", |settings| {
        Ok(Box::new(DefaultTolerationSeconds {
            not_ready_seconds: settings.not_ready_toleration_seconds,
            unreachable_seconds: settings.unreachable_toleration_seconds,
        }))
    }),
    built("PodTolerationRestriction", |settings| {
        Ok(Box::new(PodTolerationRestriction::new(
            settings.configurations.of("PodTolerationRestriction"),
        )?))
    })
    .off()
    .configured(),
    built("EventRateLimit", |settings| {
        Ok(Box::new(EventRateLimit::new(settings.configurations.of("EventRateLimit"))?))
    })
    .off()
    .configured(),
    built("ExtendedResourceToleration", |_| Ok(Box::new(ExtendedResourceToleration))).off(),
    built("DefaultStorageClass", |_| Ok(Box::new(DefaultStorageClass))),
    built("StorageObjectInUseProtection", |_| Ok(Box::new(StorageObjectInUseProtection))),
    built("PodGroupProtection", |settings| {
        let enabled = (settings.feature)("GenericWorkload");
        Ok(Box::new(PodGroupProtection { enabled }))
    }),
    built("OwnerReferencesPermissionEnforcement", |_| {
        Ok(Box::new(OwnerReferencesPermissionEnforcement))
    })
    .off(),
    built("PersistentVolumeClaimResize", |_| Ok(Box::new(PersistentVolumeClaimResize))),
    built("RuntimeClass", |_| Ok(Box::new(RuntimeClass))),
    built("CertificateApproval", |_| Ok(Box::new(certificates::approval::CertificateApproval))),
    built("CertificateSigning", |_| Ok(Box::new(certificates::signing::CertificateSigning))),
    built("ClusterTrustBundleAttest", |settings| {
        let enabled = (settings.feature)("ClusterTrustBundle");
        Ok(Box::new(certificates::trust_bundle::ClusterTrustBundleAttest { enabled }))
    }),
    built("CertificateSubjectRestriction", |_| {
        Ok(Box::new(certificates::subject::CertificateSubjectRestriction))
    }),
    built("DefaultIngressClass", |_| Ok(Box::new(DefaultIngressClass))),
    built("DenyServiceExternalIPs", |_| Ok(Box::new(DenyServiceExternalIPs))).off(),
    built("PodTopologyLabels", |settings| {
        let enabled = (settings.feature)("PodTopologyLabelsAdmission");
        Ok(Box::new(PodTopologyLabels { enabled }))
    }),
    built("PodGroupWorkloadExists", |settings| {
        let enabled = (settings.feature)("GenericWorkload");
        Ok(Box::new(PodGroupWorkloadExists { enabled }))
    }),
    built("NodeDeclaredFeatureValidator", |settings| {
        let enabled = (settings.feature)("NodeDeclaredFeatures");
        Ok(Box::new(NodeDeclaredFeatureValidator { enabled }))
    }),
    built("JobValidation", |settings| {
        let [generic, with_job] =
            ["GenericWorkload", "WorkloadWithJob"].map(|gate| (settings.feature)(gate));
        Ok(Box::new(JobValidation { enabled: generic || with_job }))
    }),
    built("PodResizeValidator", |_| Ok(Box::new(PodResizeValidator))),
    // Policies and webhooks run after the plugins above, so that they see what these made of an
    // object.
    built("MutatingAdmissionPolicy", |_| Ok(Box::new(MutatingAdmissionPolicy))).configured(),
    built("MutatingAdmissionWebhook", |_| Ok(Box::new(MutatingAdmissionWebhook))).configured(),
    built("ValidatingAdmissionPolicy", |_| Ok(Box::new(ValidatingAdmissionPolicy))).configured(),
    built("ValidatingAdmissionWebhook", |_| Ok(Box::new(ValidatingAdmissionWebhook))).configured(),
    // Last of those that are on by default: only what every other plugin accepted counts.
    built("ResourceQuota", |settings| {
        let (evaluators, quotas) = (settings.quota_evaluators.clone(), settings.quotas.clone());
        let configuration = settings.configurations.of("ResourceQuota");
        Ok(Box::new(ResourceQuota::new(evaluators, quotas, configuration)?))
    })
    .configured(),
    built("AlwaysDeny", |_| Ok(Box::new(AlwaysDeny))).off(),
];

const fn built(name: &'static str, build: Build) -> KnownPlugin {
    KnownPlugin { name, on_by_default: true, build, takes_configuration: false }
}

impl KnownPlugin {
    const fn off(self) -> Self {
        Self { on_by_default: false, ..self }
    }

    const fn configured(self) -> Self {
        Self { takes_configuration: true, ..self }
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
    let on = PLUGINS.iter().filter(|known| is_on(known.name));
    on.map(|known| (known.build)(settings)).collect()
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::BTreeSet};

    use super::*;
    use crate::quota::testing::NoQuotas;

    #[test]
    fn plugins_are_built_under_their_names_in_order() {
        let configurations = Configurations::default();
        let asked = RefCell::new(BTreeSet::new());
        let settings = Settings {
            configurations: &configurations,
            feature: &|gate| asked.borrow_mut().insert(gate.to_owned()),
            not_ready_toleration_seconds: 300,
            unreachable_toleration_seconds: 300,
            quota_evaluators: Arc::default(),
            quotas: Arc::new(NoQuotas::default()),
        };
        // EventRateLimit and ImagePolicyWebhook do not work without a configuration.
        let is_on = |name: &str| !matches!(name, "EventRateLimit" | "ImagePolicyWebhook");
        let built = plugins(&is_on, &settings).unwrap();
        let names: Vec<_> = built.iter().map(|plugin| plugin.name()).collect();
        let asked: Vec<String> = asked.into_inner().into_iter().collect();
        assert_eq!(asked, FEATURE_GATES, "a gate that is not listed seems to have no effect");
        let known = PLUGINS.iter().filter(|known| is_on(known.name));
        assert_eq!(names, known.map(|known| known.name).collect::<Vec<_>>());
    }
}
