//! How the built-in kinds differ in what can be said as a fact. A kind that is not listed behaves
//! as most do: unconditional updates, no create by PUT, no generation, a `Status` after a delete.

use meta::names::{is_config_map_key, name_is_dns_label, name_is_path_segment};
use registry::{Behaviour, Dependents, Fields, ObjectMetaValidation};

use crate::validation::name_is_ip;

/// The behaviour of a kind in one of its versions.
pub(crate) fn of(group: &str, version: &str, kind: &str) -> Behaviour {
    let mut behaviour = Behaviour::default();
    let name = format!("{group}/{kind}");
    let deprecated = DEPRECATED.iter().find(|(of, other, _)| {
        *of == kind && other.split_once('/').unwrap_or(("", other)) == (group, version)
    });
    behaviour.deprecation = deprecated.map(|(_, _, text)| *text);
    let is_in = |list: &[&str]| list.contains(&name.as_str());
    if is_in(&CONDITIONAL_UPDATE) {
        behaviour.unconditional_update = false;
    }
    if is_in(&CREATED_BY_PUT) {
        behaviour.create_on_update = true;
    }
    if name == "/Node" {
        behaviour.status_on_create = true;
    }
    // Compat: a namespace does so, too, though the API's description doesn't say it.
    behaviour.returns_deleted_object = schema::returns_deleted(group, kind) || name == "/Namespace";
    behaviour.deleted_in_two_steps =
        is_in(&["/Namespace", "apiextensions.k8s.io/CustomResourceDefinition"]);
    if is_in(&COUNTS_SPEC) {
        behaviour.generation = &["spec"];
    }
    for (kinds, fields) in COUNTS_OTHER {
        if kinds.contains(&name.as_str()) {
            behaviour.generation = fields;
        }
    }
    behaviour.dependents = match name.as_str() {
        "batch/Job" => Dependents::Orphaned { warning: Some(JOB_WARNING) },
        "/ReplicationController" => Dependents::Orphaned { warning: None },
        "/Event" | "events.k8s.io/Event" => Dependents::None,
        _ => Dependents::Deleted,
    };
    behaviour.metadata.qualified_finalizers = !is_in(&FREE_FINALIZERS);
    for (kinds, update, status) in RECHECKS {
        if kinds.contains(&name.as_str()) {
            (behaviour.metadata.update, behaviour.metadata.status) = (update, status);
        }
    }
    for (kinds, resets) in RESETS {
        if kinds.contains(&name.as_str()) {
            behaviour.resets = resets;
        }
    }
    if is_in(&NAMED_LIKE_PATHS) {
        behaviour.name_rule = name_is_path_segment;
    } else if is_in(&NAMED_LIKE_LABELS) {
        behaviour.name_rule = name_is_dns_label;
    } else if name == "networking.k8s.io/IPAddress" {
        behaviour.name_rule = name_is_ip;
    } else if name == "coordination.k8s.io/LeaseCandidate" {
        behaviour.name_rule = |name, _prefix| is_config_map_key(name);
    } else if name == "certificates.k8s.io/ClusterTrustBundle" {
        // What it may be depends on the signer; its validation knows.
        behaviour.name_rule = |_name, _prefix| Vec::new();
    }
    behaviour
}

const JOB_WARNING: &str = "child pods are preserved by default when jobs are deleted; set \
    propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this \
    warning";

/// Kind, version and what is said of it.
const DEPRECATED: [(&str, &str, &str); 18] = [
    ("ComponentStatus", "v1", "v1 ComponentStatus is deprecated in v1.19+"),
    (
        "Endpoints",
        "v1",
        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ),
    (
        "IPAddress",
        "networking.k8s.io/v1beta1",
        "networking.k8s.io/v1beta1 IPAddress is deprecated in v1.34+, unavailable in v1.37+",
    ),
    (
        "ServiceCIDR",
        "networking.k8s.io/v1beta1",
        "networking.k8s.io/v1beta1 ServiceCIDR is deprecated in v1.34+, unavailable in v1.37+",
    ),
    (
        "VolumeAttributesClass",
        "storage.k8s.io/v1beta1",
        "storage.k8s.io/v1beta1 VolumeAttributesClass is deprecated in v1.34+, unavailable in v1.37+; use storage.k8s.io/v1 VolumeAttributesClass",
    ),
    (
        "MutatingAdmissionPolicy",
        "admissionregistration.k8s.io/v1alpha1",
        "admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicy is deprecated in v1.35+, unavailable in v1.38+",
    ),
    (
        "MutatingAdmissionPolicyBinding",
        "admissionregistration.k8s.io/v1alpha1",
        "admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicyBinding is deprecated in v1.35+, unavailable in v1.38+",
    ),
    (
        "LeaseCandidate",
        "coordination.k8s.io/v1beta1",
        "coordination.k8s.io/v1beta1 LeaseCandidate is deprecated in v1.36+, unavailable in v1.39+",
    ),
    (
        "LeaseCandidate",
        "coordination.k8s.io/v1alpha2",
        "coordination.k8s.io/v1alpha2 LeaseCandidate is deprecated in v1.35+, unavailable in v1.38+",
    ),
    (
        "DeviceClass",
        "resource.k8s.io/v1beta2",
        "resource.k8s.io/v1beta2 DeviceClass is deprecated in v1.36+, unavailable in v1.39+",
    ),
    (
        "ResourceClaim",
        "resource.k8s.io/v1beta2",
        "resource.k8s.io/v1beta2 ResourceClaim is deprecated in v1.36+, unavailable in v1.39+",
    ),
    (
        "ResourceClaimTemplate",
        "resource.k8s.io/v1beta2",
        "resource.k8s.io/v1beta2 ResourceClaimTemplate is deprecated in v1.36+, unavailable in v1.39+",
    ),
    (
        "ResourceSlice",
        "resource.k8s.io/v1beta2",
        "resource.k8s.io/v1beta2 ResourceSlice is deprecated in v1.36+, unavailable in v1.39+",
    ),
    (
        "DeviceClass",
        "resource.k8s.io/v1beta1",
        "resource.k8s.io/v1beta1 DeviceClass is deprecated in v1.35+, unavailable in v1.38+",
    ),
    (
        "ResourceClaim",
        "resource.k8s.io/v1beta1",
        "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+",
    ),
    (
        "ResourceClaimTemplate",
        "resource.k8s.io/v1beta1",
        "resource.k8s.io/v1beta1 ResourceClaimTemplate is deprecated in v1.35+, unavailable in v1.38+",
    ),
    (
        "ResourceSlice",
        "resource.k8s.io/v1beta1",
        "resource.k8s.io/v1beta1 ResourceSlice is deprecated in v1.35+, unavailable in v1.38+",
    ),
    (
        "DeviceTaintRule",
        "resource.k8s.io/v1alpha3",
        "resource.k8s.io/v1alpha3 DeviceTaintRule is deprecated in v1.36+, unavailable in v1.39+",
    ),
];

/// `PUT` needs a resourceVersion.
const CONDITIONAL_UPDATE: [&str; 21] = [
    "admissionregistration.k8s.io/MutatingAdmissionPolicy",
    "admissionregistration.k8s.io/MutatingAdmissionPolicyBinding",
    "admissionregistration.k8s.io/MutatingWebhookConfiguration",
    "admissionregistration.k8s.io/ValidatingAdmissionPolicy",
    "admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding",
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
    "apiextensions.k8s.io/CustomResourceDefinition",
    "apiregistration.k8s.io/APIService",
    "certificates.k8s.io/ClusterTrustBundle",
    "certificates.k8s.io/PodCertificateRequest",
    "coordination.k8s.io/Lease",
    "coordination.k8s.io/LeaseCandidate",
    "internal.apiserver.k8s.io/StorageVersion",
    "node.k8s.io/RuntimeClass",
    "policy/PodDisruptionBudget",
    "resource.k8s.io/ResourcePoolStatusRequest",
    "storage.k8s.io/CSIDriver",
    "storage.k8s.io/CSINode",
    "storage.k8s.io/CSIStorageCapacity",
    "storage.k8s.io/VolumeAttachment",
    "storagemigration.k8s.io/StorageVersionMigration",
];

/// `PUT` of a missing object creates it.
const CREATED_BY_PUT: [&str; 12] = [
    "/Endpoints",
    "/Event",
    "/LimitRange",
    "/Service",
    "coordination.k8s.io/Lease",
    "coordination.k8s.io/LeaseCandidate",
    "events.k8s.io/Event",
    "node.k8s.io/RuntimeClass",
    "rbac.authorization.k8s.io/ClusterRole",
    "rbac.authorization.k8s.io/ClusterRoleBinding",
    "rbac.authorization.k8s.io/Role",
    "rbac.authorization.k8s.io/RoleBinding",
];

/// `metadata.generation` counts changes of `spec`.
const COUNTS_SPEC: [&str; 22] = [
    "/Pod",
    "/ReplicationController",
    "admissionregistration.k8s.io/MutatingAdmissionPolicy",
    "admissionregistration.k8s.io/MutatingAdmissionPolicyBinding",
    "admissionregistration.k8s.io/ValidatingAdmissionPolicy",
    "admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding",
    "apiextensions.k8s.io/CustomResourceDefinition",
    "apps/DaemonSet",
    "apps/ReplicaSet",
    "apps/StatefulSet",
    "batch/CronJob",
    "batch/Job",
    "flowcontrol.apiserver.k8s.io/FlowSchema",
    "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration",
    "networking.k8s.io/Ingress",
    "networking.k8s.io/IngressClass",
    "networking.k8s.io/NetworkPolicy",
    "policy/PodDisruptionBudget",
    "resource.k8s.io/DeviceClass",
    "resource.k8s.io/DeviceTaintRule",
    "resource.k8s.io/ResourceSlice",
    "storage.k8s.io/CSIDriver",
];

/// … or of something else.
const COUNTS_OTHER: [(&[&str], &[&str]); 4] = [
    (&["apps/Deployment"], &["spec", "metadata.annotations"]),
    (&["/PodTemplate"], &["template"]),
    (
        &[
            "admissionregistration.k8s.io/MutatingWebhookConfiguration",
            "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
        ],
        &["webhooks"],
    ),
    (
        &["discovery.k8s.io/EndpointSlice"],
        &["addressType", "endpoints", "ports", "metadata.labels"],
    ),
];

/// A subresource ("" is the object itself), and the fields that a write to it resets.
type Reset = (&'static str, Fields);

/// What writes to the object or its subresources leave as it was, where it is something special.
const RESETS: [(&[&str], &[Reset]); 5] = [
    (
        &[
            "admissionregistration.k8s.io/ValidatingAdmissionPolicy",
            "apiregistration.k8s.io/APIService",
            "flowcontrol.apiserver.k8s.io/FlowSchema",
            "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration",
            "internal.apiserver.k8s.io/StorageVersion",
            "networking.k8s.io/ServiceCIDR",
            "resource.k8s.io/DeviceTaintRule",
            "resource.k8s.io/ResourceClaim",
            "resource.k8s.io/ResourcePoolStatusRequest",
            "scheduling.k8s.io/PodGroup",
            "storage.k8s.io/VolumeAttachment",
            "storagemigration.k8s.io/StorageVersionMigration",
        ],
        &[("status", &["metadata", "spec"])],
    ),
    (&["apps/Deployment"], &[("status", &["metadata.labels", "spec"])]),
    (&["/Namespace"], &[("finalize", &["status"])]),
    (&["/Pod"], &[("status", &["metadata.deletionTimestamp", "metadata.ownerReferences", "spec"])]),
    (
        &["certificates.k8s.io/CertificateSigningRequest"],
        &[
            ("", &["spec", "status"]),
            ("status", &["spec", "status.conditions"]),
            ("approval", &["spec", "status.certificate"]),
        ],
    ),
];

/// Whose finalizers may be any names.
const FREE_FINALIZERS: [&str; 11] = [
    "admissionregistration.k8s.io/MutatingAdmissionPolicy",
    "admissionregistration.k8s.io/MutatingAdmissionPolicyBinding",
    "admissionregistration.k8s.io/MutatingWebhookConfiguration",
    "admissionregistration.k8s.io/ValidatingAdmissionPolicy",
    "admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding",
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
    "apiextensions.k8s.io/CustomResourceDefinition",
    "apiregistration.k8s.io/APIService",
    "coordination.k8s.io/Lease",
    "node.k8s.io/RuntimeClass",
    "policy/PodDisruptionBudget",
];

/// How often the metadata of an update and of an update of the status is looked at, where it is not as
/// with most kinds.
const RECHECKS: [(&[&str], ObjectMetaValidation, ObjectMetaValidation); 6] = [
    (
        &[
            "/ConfigMap",
            "/Endpoints",
            "/Namespace",
            "/Node",
            "/PersistentVolume",
            "/PersistentVolumeClaim",
            "/Pod",
            "/Secret",
            "/ServiceAccount",
            "apiregistration.k8s.io/APIService",
            "apps/ControllerRevision",
            "networking.k8s.io/Ingress",
            "networking.k8s.io/IngressClass",
            "networking.k8s.io/IPAddress",
            "node.k8s.io/RuntimeClass",
        ],
        ObjectMetaValidation::UpdateThenCreate,
        ObjectMetaValidation::Update,
    ),
    (
        &[
            "batch/Job",
            "rbac.authorization.k8s.io/ClusterRole",
            "rbac.authorization.k8s.io/ClusterRoleBinding",
            "rbac.authorization.k8s.io/Role",
            "rbac.authorization.k8s.io/RoleBinding",
            "resource.k8s.io/DeviceClass",
            "resource.k8s.io/ResourceClaim",
            "resource.k8s.io/ResourceClaimTemplate",
            "storage.k8s.io/CSIStorageCapacity",
            "storage.k8s.io/StorageClass",
            "storage.k8s.io/VolumeAttributesClass",
        ],
        ObjectMetaValidation::CreateThenUpdate,
        ObjectMetaValidation::Update,
    ),
    (
        &["certificates.k8s.io/CertificateSigningRequest"],
        ObjectMetaValidation::UpdateThenCreate,
        ObjectMetaValidation::UpdateThenCreate,
    ),
    (
        &[
            "/LimitRange",
            "admissionregistration.k8s.io/MutatingAdmissionPolicy",
            "admissionregistration.k8s.io/MutatingAdmissionPolicyBinding",
            "admissionregistration.k8s.io/MutatingWebhookConfiguration",
            "admissionregistration.k8s.io/ValidatingAdmissionPolicy",
            "admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding",
            "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
            "discovery.k8s.io/EndpointSlice",
            "flowcontrol.apiserver.k8s.io/FlowSchema",
            "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration",
            "storage.k8s.io/CSINode",
            "storage.k8s.io/VolumeAttachment",
        ],
        ObjectMetaValidation::Create,
        ObjectMetaValidation::Update,
    ),
    (&["batch/CronJob"], ObjectMetaValidation::Update, ObjectMetaValidation::None),
    (&["policy/PodDisruptionBudget"], ObjectMetaValidation::None, ObjectMetaValidation::None),
];

/// Anything that fits into a path: RBAC's names have colons.
const NAMED_LIKE_PATHS: [&str; 7] = [
    "certificates.k8s.io/CertificateSigningRequest",
    "policy/PodDisruptionBudget",
    "rbac.authorization.k8s.io/ClusterRole",
    "rbac.authorization.k8s.io/ClusterRoleBinding",
    "rbac.authorization.k8s.io/Role",
    "rbac.authorization.k8s.io/RoleBinding",
    "apiregistration.k8s.io/APIService",
];

const NAMED_LIKE_LABELS: [&str; 3] = ["/Namespace", "/Service", "apps/StatefulSet"];
