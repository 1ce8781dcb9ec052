//! What depends on how the server was started: fields of features that are off, and containers that
//! are let out of their box.

use meta::{FieldErrors, Value};
use registry::{FeatureGatedFields, FieldPattern};

use crate::validation::{cursor::Field, pod_spec::each_container};

/// The feature gates that kinds look at. All of them are off unless somebody says otherwise.
pub const GATES: [&str; 16] = [
    "ClusterTrustBundle",
    "ClusterTrustBundleProjection",
    "ContainerStopSignals",
    "CoordinatedLeaderElection",
    "CrossNamespaceVolumeDataSource",
    "DRAListTypeAttributes",
    "DRANodeAllocatableResources",
    "DRAWorkloadResourceClaims",
    "GenericWorkload",
    "ImageVolumeWithDigest",
    "MaxUnavailableStatefulSet",
    "PodCertificateRequest",
    "StorageVersionMigrator",
    "TopologyAwareWorkloadScheduling",
    "VolumeLimitScaling",
    "WorkloadAwarePreemption",
];

/// What the server does not allow of a kind. `features` are those of [`GATES`] that are on.
pub(crate) fn of(kind: &str, allow_privileged: bool, features: &[&str]) -> FeatureGatedFields {
    let is_off = |gate: &str| !features.contains(&gate);
    let own = FIELDS.iter().filter(|(gate, of, _)| *of == kind && is_off(gate));
    let mut dropped: Vec<FieldPattern> =
        own.map(|(_, _, field)| FieldPattern::new(*field)).collect();
    let pods = POD_SPECS.iter().find(|(of, _)| *of == kind);
    if let Some((_, spec)) = pods {
        let fields = POD_FIELDS.iter().filter(|(gate, _)| is_off(gate));
        dropped.extend(fields.map(|(_, field)| FieldPattern::new(format!("{spec}.{field}"))));
    }
    let rule: fn(&Value, &mut FieldErrors) = no_privileged_containers;
    FeatureGatedFields { dropped, rule: (pods.is_some() && !allow_privileged).then_some(rule) }
}

/// The gate that a resource waits for, whatever `--runtime-config` says.
pub fn gate_of(group: &str, resource: &str) -> Option<&'static str> {
    match (group, resource) {
        ("certificates.k8s.io", "clustertrustbundles") => Some("ClusterTrustBundle"),
        ("certificates.k8s.io", "podcertificaterequests") => Some("PodCertificateRequest"),
        ("scheduling.k8s.io", "podgroups" | "workloads") => Some("GenericWorkload"),
        ("storagemigration.k8s.io", "storageversionmigrations") => Some("StorageVersionMigrator"),
        _ => None,
    }
}

const FIELDS: [(&str, &str, &str); 29] = [
    ("CoordinatedLeaderElection", "Lease", "spec.strategy"),
    ("CoordinatedLeaderElection", "Lease", "spec.preferredHolder"),
    ("CrossNamespaceVolumeDataSource", "PersistentVolumeClaim", "spec.dataSourceRef?namespace"),
    ("DRAListTypeAttributes", "ResourceSlice", "spec.devices[].attributes[].bools"),
    ("DRAListTypeAttributes", "ResourceSlice", "spec.devices[].attributes[].ints"),
    ("DRAListTypeAttributes", "ResourceSlice", "spec.devices[].attributes[].strings"),
    ("DRAListTypeAttributes", "ResourceSlice", "spec.devices[].attributes[].versions"),
    ("DRAListTypeAttributes", "ResourceSlice", "spec.devices[].basic.attributes[].bools"),
    ("DRAListTypeAttributes", "ResourceSlice", "spec.devices[].basic.attributes[].ints"),
    ("DRAListTypeAttributes", "ResourceSlice", "spec.devices[].basic.attributes[].strings"),
    ("DRAListTypeAttributes", "ResourceSlice", "spec.devices[].basic.attributes[].versions"),
    (
        "DRANodeAllocatableResources",
        "ResourceSlice",
        "spec.devices[].nodeAllocatableResourceMappings",
    ),
    ("DRANodeAllocatableResources", "Pod", "status.nodeAllocatableResourceClaimStatuses"),
    ("ImageVolumeWithDigest", "Pod", "status.containerStatuses[].volumeMounts[].volumeStatus"),
    ("ImageVolumeWithDigest", "Pod", "status.initContainerStatuses[].volumeMounts[].volumeStatus"),
    (
        "ImageVolumeWithDigest",
        "Pod",
        "status.ephemeralContainerStatuses[].volumeMounts[].volumeStatus",
    ),
    (
        "MaxUnavailableStatefulSet",
        "StatefulSet",
        "spec.updateStrategy.rollingUpdate.maxUnavailable",
    ),
    ("VolumeLimitScaling", "CSIDriver", "spec.preventPodSchedulingIfMissing"),
    ("DRAWorkloadResourceClaims", "PodGroup", "spec.resourceClaims"),
    ("DRAWorkloadResourceClaims", "PodGroup", "status.resourceClaimStatuses"),
    ("TopologyAwareWorkloadScheduling", "PodGroup", "spec.schedulingConstraints"),
    ("WorkloadAwarePreemption", "PodGroup", "spec.disruptionMode"),
    ("WorkloadAwarePreemption", "PodGroup", "spec.priority"),
    ("WorkloadAwarePreemption", "PodGroup", "spec.priorityClassName"),
    ("DRAWorkloadResourceClaims", "Workload", "spec.podGroupTemplates[].resourceClaims"),
    (
        "TopologyAwareWorkloadScheduling",
        "Workload",
        "spec.podGroupTemplates[].schedulingConstraints",
    ),
    ("WorkloadAwarePreemption", "Workload", "spec.podGroupTemplates[].disruptionMode"),
    ("WorkloadAwarePreemption", "Workload", "spec.podGroupTemplates[].priority"),
    ("WorkloadAwarePreemption", "Workload", "spec.podGroupTemplates[].priorityClassName"),
];

/// In the spec of a pod.
const POD_FIELDS: [(&str, &str); 6] = [
    ("GenericWorkload", "schedulingGroup"),
    ("ClusterTrustBundleProjection", "volumes[].projected.sources[].clusterTrustBundle"),
    ("PodCertificateRequest", "volumes[].projected.sources[].podCertificate"),
    ("ContainerStopSignals", "containers[].lifecycle.stopSignal"),
    ("ContainerStopSignals", "initContainers[].lifecycle.stopSignal"),
    ("ContainerStopSignals", "ephemeralContainers[].lifecycle.stopSignal"),
];

/// Where kinds have the spec of a pod.
const POD_SPECS: [(&str, &str); 9] = [
    ("Pod", "spec"),
    ("PodTemplate", "template.spec"),
    ("ReplicationController", "spec.template.spec"),
    ("ReplicaSet", "spec.template.spec"),
    ("Deployment", "spec.template.spec"),
    ("StatefulSet", "spec.template.spec"),
    ("DaemonSet", "spec.template.spec"),
    ("Job", "spec.template.spec"),
    ("CronJob", "spec.jobTemplate.spec.template.spec"),
];

/// Without `--allow-privileged`.
fn no_privileged_containers(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let Some((_, path)) = POD_SPECS.iter().find(|(kind, _)| root.get("kind").is(kind)) else {
        return;
    };
    below(&root, path, &mut |spec| {
        each_container(spec, |container| {
            let security = container.get("securityContext");
            if security.get("privileged").bool() {
                security.get("privileged").forbidden(errors, "disallowed by cluster policy");
            }
        });
        let is_host_process = |owner: &Field<'_>| {
            owner.value_at(&["securityContext", "windowsOptions", "hostProcess"])
                == Some(&Value::Bool(true))
        };
        let mut any = is_host_process(spec);
        each_container(spec, |container| any |= is_host_process(&container));
        if any {
            spec.forbidden(errors, "hostProcess containers are disallowed by cluster policy");
        }
    });
}

fn below(field: &Field<'_>, path: &str, visit: &mut dyn FnMut(&Field<'_>)) {
    match path.split_once('.') {
        Some((step, rest)) => below(&field.get(step), rest, visit),
        None => visit(&field.get(path)),
    }
}
