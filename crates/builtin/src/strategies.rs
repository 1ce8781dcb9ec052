//! Which strategy a kind has. A kind that is not listed has nothing special.

#[cfg(test)]
mod defaults;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use registry::{DefaultStrategy, Strategy};

use crate::{
    admissionregistration::{
        mutating_admission_policy::MutatingAdmissionPolicy, policy_binding::PolicyBinding,
        static_names::StaticNames, validating_admission_policy::ValidatingAdmissionPolicy,
        webhook_configuration::WebhookConfiguration,
    },
    apiregistration::api_service::ApiService,
    apiserverinternal::storage_version::StorageVersion,
    apps::{
        controller_revision::ControllerRevision, daemon_set::DaemonSet, deployment::Deployment,
        replica_set::ReplicaSet, stateful_set::StatefulSet,
    },
    authorization::access_review::{AccessReviewRules, ReviewScope},
    autoscaling::horizontal_pod_autoscaler::HorizontalPodAutoscaler,
    batch::{cron_job::CronJob, job::Job},
    certificates::{
        certificate_signing_request::CertificateSigningRequest,
        cluster_trust_bundle::ClusterTrustBundle, pod_certificate_request::PodCertificateRequest,
    },
    coordination::{lease::Lease, lease_candidate::LeaseCandidate},
    core::{
        component_status::ComponentStatus, config_map::ConfigMap, endpoints::Endpoints,
        event::Event, limit_range::LimitRange, namespace::Namespace, node::Node,
        persistent_volume::PersistentVolume, persistent_volume_claim::PersistentVolumeClaim,
        pod::Pod, pod_template::PodTemplate, replication_controller::ReplicationController,
        resource_quota::ResourceQuota, secret::Secret, service::Service,
        service_account::ServiceAccount,
    },
    discovery::endpoint_slice::EndpointSlice,
    feature_gates::FeatureGates,
    flowcontrol::{
        flow_schema::FlowSchema, priority_level_configuration::PriorityLevelConfiguration,
    },
    networking::{
        ingress::Ingress, ingress_class::IngressClass, ip_address::IpAddress,
        network_policy::NetworkPolicy, service_cidr::ServiceCidr,
    },
    node::runtime_class::RuntimeClass,
    policy::pod_disruption_budget::PodDisruptionBudget,
    rbac::{binding::Binding, role::Role},
    resource::{
        device_class::DeviceClass, device_taint_rule::DeviceTaintRule,
        resource_claim::ResourceClaim, resource_claim_template::ResourceClaimTemplate,
        resource_pool_status_request::ResourcePoolStatusRequest, resource_slice::ResourceSlice,
    },
    scheduling::{pod_group::PodGroup, priority_class::PriorityClass, workload::Workload},
    storage::{
        csi_driver::CsiDriver, csi_node::CsiNode, csi_storage_capacity::CsiStorageCapacity,
        storage_class::StorageClass, volume_attachment::VolumeAttachment,
        volume_attributes_class::VolumeAttributesClass,
    },
    storagemigration::storage_version_migration::StorageVersionMigration,
    validation::pod_spec::PodSpecOptions,
};

/// Kinds that depend on feature gates get them here. `crd` is the strategy of CustomResourceDefinition,
/// which the crate `apiextensions` has: it is passed in because the two crates do not depend on each other.
pub(crate) fn of(
    group: &str,
    kind: &str,
    features: FeatureGates,
    crd: &Arc<dyn Strategy>,
) -> Arc<dyn Strategy> {
    let pods = PodSpecOptions::new(features);
    match (group, kind) {
        ("", "ComponentStatus") => Arc::new(ComponentStatus),
        ("", "ConfigMap") => Arc::new(ConfigMap),
        ("", "Endpoints") => Arc::new(Endpoints),
        ("" | "events.k8s.io", "Event") => Arc::new(Event),
        ("", "LimitRange") => Arc::new(LimitRange),
        ("", "Namespace") => Arc::new(Namespace),
        ("", "Node") => Arc::new(Node),
        ("", "PersistentVolume") => Arc::new(PersistentVolume),
        ("", "PersistentVolumeClaim") => Arc::new(PersistentVolumeClaim),
        ("", "Pod") => Arc::new(Pod(pods)),
        ("", "PodTemplate") => Arc::new(PodTemplate(pods)),
        ("", "ReplicationController") => Arc::new(ReplicationController(pods)),
        ("", "ResourceQuota") => Arc::new(ResourceQuota),
        ("", "Secret") => Arc::new(Secret),
        ("", "Service") => Arc::new(Service),
        ("", "ServiceAccount") => Arc::new(ServiceAccount),
        ("apps", "ControllerRevision") => Arc::new(ControllerRevision),
        ("apps", "DaemonSet") => Arc::new(DaemonSet(pods)),
        ("apps", "Deployment") => Arc::new(Deployment(pods)),
        ("apps", "ReplicaSet") => Arc::new(ReplicaSet(pods)),
        ("apps", "StatefulSet") => Arc::new(StatefulSet(pods)),
        ("authorization.k8s.io", "SelfSubjectAccessReview") => {
            Arc::new(AccessReviewRules(ReviewScope::Oneself))
        }
        ("authorization.k8s.io", "SubjectAccessReview") => {
            Arc::new(AccessReviewRules(ReviewScope::AnySubject))
        }
        ("authorization.k8s.io", "LocalSubjectAccessReview") => {
            Arc::new(AccessReviewRules(ReviewScope::AnySubjectInNamespace))
        }
        ("autoscaling", "HorizontalPodAutoscaler") => Arc::new(HorizontalPodAutoscaler),
        ("batch", "CronJob") => Arc::new(CronJob(pods)),
        ("batch", "Job") => Arc::new(Job(pods)),
        ("admissionregistration.k8s.io", kind) => admission(kind, StaticNames::new(features)),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crd.clone(),
        ("apiregistration.k8s.io", "APIService") => Arc::new(ApiService),
        ("certificates.k8s.io", "CertificateSigningRequest") => Arc::new(CertificateSigningRequest),
        ("certificates.k8s.io", "ClusterTrustBundle") => Arc::new(ClusterTrustBundle),
        ("certificates.k8s.io", "PodCertificateRequest") => Arc::new(PodCertificateRequest),
        ("coordination.k8s.io", "Lease") => Arc::new(Lease),
        ("coordination.k8s.io", "LeaseCandidate") => Arc::new(LeaseCandidate),
        ("discovery.k8s.io", "EndpointSlice") => Arc::new(EndpointSlice),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => Arc::new(FlowSchema),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            Arc::new(PriorityLevelConfiguration)
        }
        ("internal.apiserver.k8s.io", "StorageVersion") => Arc::new(StorageVersion),
        ("networking.k8s.io", "IPAddress") => Arc::new(IpAddress),
        ("networking.k8s.io", "Ingress") => Arc::new(Ingress),
        ("networking.k8s.io", "IngressClass") => Arc::new(IngressClass),
        ("networking.k8s.io", "NetworkPolicy") => Arc::new(NetworkPolicy),
        ("networking.k8s.io", "ServiceCIDR") => Arc::new(ServiceCidr),
        ("node.k8s.io", "RuntimeClass") => Arc::new(RuntimeClass),
        ("policy", "PodDisruptionBudget") => Arc::new(PodDisruptionBudget),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => Arc::new(Binding),
        ("rbac.authorization.k8s.io", "ClusterRole" | "Role") => Arc::new(Role),
        ("resource.k8s.io", "DeviceClass") => Arc::new(DeviceClass),
        ("resource.k8s.io", "DeviceTaintRule") => Arc::new(DeviceTaintRule),
        ("resource.k8s.io", "ResourceClaim") => Arc::new(ResourceClaim),
        ("resource.k8s.io", "ResourceClaimTemplate") => Arc::new(ResourceClaimTemplate),
        ("resource.k8s.io", "ResourcePoolStatusRequest") => Arc::new(ResourcePoolStatusRequest),
        ("resource.k8s.io", "ResourceSlice") => Arc::new(ResourceSlice),
        ("scheduling.k8s.io", "PodGroup") => Arc::new(PodGroup),
        ("scheduling.k8s.io", "PriorityClass") => Arc::new(PriorityClass),
        ("scheduling.k8s.io", "Workload") => Arc::new(Workload),
        ("storage.k8s.io", "CSIDriver") => Arc::new(CsiDriver),
        ("storage.k8s.io", "CSINode") => Arc::new(CsiNode),
        ("storage.k8s.io", "CSIStorageCapacity") => Arc::new(CsiStorageCapacity),
        ("storage.k8s.io", "StorageClass") => Arc::new(StorageClass),
        ("storage.k8s.io", "VolumeAttachment") => Arc::new(VolumeAttachment),
        ("storage.k8s.io", "VolumeAttributesClass") => Arc::new(VolumeAttributesClass),
        ("storagemigration.k8s.io", "StorageVersionMigration") => Arc::new(StorageVersionMigration),
        _ => Arc::new(DefaultStrategy),
    }
}

fn admission(kind: &str, names: StaticNames) -> Arc<dyn Strategy> {
    match kind {
        "MutatingAdmissionPolicy" => Arc::new(MutatingAdmissionPolicy(names)),
        "ValidatingAdmissionPolicy" => Arc::new(ValidatingAdmissionPolicy(names)),
        "MutatingAdmissionPolicyBinding" | "ValidatingAdmissionPolicyBinding" => {
            Arc::new(PolicyBinding(names))
        }
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            Arc::new(WebhookConfiguration(names))
        }
        _ => Arc::new(DefaultStrategy),
    }
}

/// What `pintle` passes to [`of`].
#[cfg(test)]
pub(crate) fn crd() -> Arc<dyn Strategy> {
    Arc::new(apiextensions::definition::CustomResourceDefinition)
}
