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
    use std::{cell::RefCell, collections::BTreeSet, path::Path};

    use super::*;
    use crate::quota::testing::NoQuotas;

    /// A test of what each plugin does: its file, from the directory of the plugins, and its name.
    const TESTS: [(&str, &str, &str); 41] = [
        ("AlwaysAdmit", "always.rs", "one_admits_and_one_denies"),
        ("NamespaceAutoProvision", "namespace_exists.rs", "missing_namespaces_are_created"),
        ("NamespaceLifecycle", "namespace_lifecycle.rs", "objects_live_in_namespaces_that_exist"),
        ("NamespaceExists", "namespace_exists.rs", "writes_need_their_namespace"),
        (
            "LimitPodHardAntiAffinityTopology",
            "limit_pod_hard_anti_affinity_topology.rs",
            "only_nodes_are_kept_for_oneself",
        ),
        ("LimitRanger", "limit_ranger.rs", "pods_stay_within_the_bounds"),
        ("ServiceAccount", "service_account.rs", "pods_get_the_account_and_its_secrets"),
        ("NodeRestriction", "node_restriction.rs", "a_kubelet_writes_what_is_its_own"),
        ("TaintNodesByCondition", "taint_nodes_by_condition.rs", "new_nodes_are_tainted"),
        ("AlwaysPullImages", "always_pull_images.rs", "images_are_always_pulled"),
        ("ImagePolicyWebhook", "image_policy_webhook.rs", "a_webhook_decides_about_images"),
        ("PodSecurity", "pod_security/tests.rs", "pods_are_refused_audited_and_warned_about"),
        ("PodNodeSelector", "pod_node_selector.rs", "pods_select_what_their_namespace_says"),
        ("Priority", "priority.rs", "pods_get_the_priority_of_their_class"),
        (
            "DefaultTolerationSeconds",
            "default_toleration_seconds.rs",
            "pods_tolerate_lost_nodes_for_a_while",
        ),
        (
            "PodTolerationRestriction",
            "pod_toleration_restriction.rs",
            "tolerations_are_filled_in_and_limited",
        ),
        ("EventRateLimit", "event_rate_limit.rs", "events_beyond_the_burst_are_refused"),
        (
            "ExtendedResourceToleration",
            "extended_resource_toleration.rs",
            "pods_tolerate_the_hardware_that_they_request",
        ),
        (
            "DefaultStorageClass",
            "default_storage_class.rs",
            "the_newest_default_class_is_filled_in",
        ),
        (
            "StorageObjectInUseProtection",
            "storage_object_in_use_protection.rs",
            "new_storage_objects_have_a_finalizer",
        ),
        ("PodGroupProtection", "pod_groups.rs", "groups_are_protected"),
        (
            "OwnerReferencesPermissionEnforcement",
            "owner_references_permission_enforcement.rs",
            "owners_are_set_by_users_with_rights",
        ),
        (
            "PersistentVolumeClaimResize",
            "persistent_volume_claim_resize.rs",
            "claims_grow_if_their_class_allows_it",
        ),
        ("RuntimeClass", "runtime_class.rs", "pods_get_what_their_class_says"),
        ("CertificateApproval", "certificates/approval.rs", "approval_needs_a_right_on_the_signer"),
        ("CertificateSigning", "certificates/signing.rs", "signing_needs_a_right_on_the_signer"),
        (
            "ClusterTrustBundleAttest",
            "certificates/trust_bundle.rs",
            "attesting_needs_a_right_on_the_signer",
        ),
        (
            "CertificateSubjectRestriction",
            "certificates/subject.rs",
            "the_group_of_administrators_is_refused",
        ),
        (
            "DefaultIngressClass",
            "default_ingress_class.rs",
            "the_newest_default_class_is_filled_in",
        ),
        ("DenyServiceExternalIPs", "deny_service_external_ips.rs", "external_ips_only_go_away"),
        (
            "PodTopologyLabels",
            "pod_topology_labels.rs",
            "bound_pods_have_the_topology_of_their_node",
        ),
        ("PodGroupWorkloadExists", "pod_groups.rs", "a_group_refers_to_a_template_that_exists"),
        (
            "NodeDeclaredFeatureValidator",
            "node_declared_feature_validator.rs",
            "changes_need_features_of_the_node",
        ),
        ("JobValidation", "pod_groups.rs", "a_job_in_a_gang_keeps_its_size"),
        ("PodResizeValidator", "pod_resize_validator.rs", "pods_are_resized_within_their_node"),
        (
            "MutatingAdmissionPolicy",
            "../../../../integration/tests/all/admission_policies.rs",
            "mutations_apply_configurations_and_json_patches",
        ),
        (
            "MutatingAdmissionWebhook",
            "../../../../integration/tests/all/admission_webhooks.rs",
            "patches_change_the_object_one_after_the_other",
        ),
        (
            "ValidatingAdmissionPolicy",
            "../policy/validating/tests.rs",
            "the_actions_of_a_binding_decide_what_a_failed_validation_does",
        ),
        (
            "ValidatingAdmissionWebhook",
            "../../../../integration/tests/all/admission_webhooks.rs",
            "a_webhook_refuses_with_its_own_code_reason_and_message",
        ),
        ("ResourceQuota", "../quota/tests.rs", "requests_are_charged_or_refused"),
        ("AlwaysDeny", "always.rs", "one_admits_and_one_denies"),
    ];

    #[test]
    fn every_plugin_has_a_test_of_what_it_does() {
        let listed: Vec<&str> = TESTS.iter().map(|(plugin, ..)| *plugin).collect();
        let known: Vec<&str> = PLUGINS.iter().map(|known| known.name).collect();
        assert_eq!(listed, known, "a plugin has no row, or not at its place");
        let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plugins");
        for (plugin, file, test) in TESTS {
            let text = std::fs::read_to_string(plugins.join(file)).expect(file);
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            let is_test = lines.windows(2).any(|pair| {
                let marked = pair[0].starts_with("#[test]") || pair[0].starts_with("#[tokio::test");
                marked && pair[1].contains(&format!("fn {test}()"))
            });
            assert!(is_test, "{plugin}: {file} has no test {test}");
        }
    }

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
