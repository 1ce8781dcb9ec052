//! What a pod, or a volume, refers to.

use meta::Value;

use super::Related;

/// Whether a pod needs an object of its namespace.
pub fn pod_refers_to(pod: &Value, what: Related, name: &str) -> bool {
    // A kubelet shows what it runs by itself; that gives it no rights.
    if pod.at(&["metadata", "annotations", "kubernetes.io/config.mirror"]).is_some() {
        return false;
    }
    match what {
        Related::ServiceAccount => pod.str_at(&["spec", "serviceAccountName"]) == name,
        Related::Secret => secrets(pod).any(|found| found == name),
        Related::ConfigMap => config_maps(pod).any(|found| found == name),
        Related::Claim => claims(pod).any(|found| found == name),
        Related::ResourceClaim => resource_claims(pod).any(|found| found == name),
        _ => false,
    }
}

/// The claims of a pod's volumes.
pub fn claims(pod: &Value) -> impl Iterator<Item = String> {
    let pod_name = pod.str_at(&["metadata", "name"]);
    volumes(pod).filter_map(move |volume| {
        let claim = volume.str_at(&["persistentVolumeClaim", "claimName"]);
        let ephemeral = volume.get("ephemeral").is_some();
        match claim {
            "" if ephemeral => Some(format!("{pod_name}-{}", volume.str_at(&["name"]))),
            "" => None,
            claim => Some(claim.to_owned()),
        }
    })
}

fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    pod.items_at(&["spec", "volumes"]).iter()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists.into_iter().flat_map(|list| pod.items_at(&["spec", list]))
}

/// Where a kind of object is named in the variables of containers.
fn in_variables<'a>(pod: &'a Value, all: &'a str, one: &'a str) -> impl Iterator<Item = &'a str> {
    containers(pod).flat_map(move |container| {
        let all =
            container.items_at(&["envFrom"]).iter().map(move |from| from.str_at(&[all, "name"]));
        let one = container
            .items_at(&["env"])
            .iter()
            .map(move |variable| variable.str_at(&["valueFrom", one, "name"]));
        all.chain(one)
    })
}

fn in_projections<'a>(pod: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a str> {
    let sources = volumes(pod).flat_map(|volume| volume.items_at(&["projected", "sources"]));
    sources.map(move |source| source.str_at(&[kind, "name"]))
}

fn secrets(pod: &Value) -> impl Iterator<Item = &str> {
    let pull = pod.items_at(&["spec", "imagePullSecrets"]).iter();
    let pull = pull.map(|secret| secret.str_at(&["name"]));
    let of_volumes = volumes(pod).flat_map(|volume| {
        let by_name = ["azureFile", "secret"].map(|kind| volume.str_at(&[kind, "secretName"]));
        let by_reference = WITH_SECRET_REF.map(|kind| volume.str_at(&[kind, "secretRef", "name"]));
        let csi = volume.str_at(&["csi", "nodePublishSecretRef", "name"]);
        by_name.into_iter().chain(by_reference).chain([csi])
    });
    let all = pull
        .chain(in_variables(pod, "secretRef", "secretKeyRef"))
        .chain(of_volumes)
        .chain(in_projections(pod, "secret"));
    all.filter(|name| !name.is_empty())
}

/// Volumes that name their secret in the same way.
const WITH_SECRET_REF: [&str; 7] =
    ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"];

fn config_maps(pod: &Value) -> impl Iterator<Item = &str> {
    let of_volumes = volumes(pod).map(|volume| volume.str_at(&["configMap", "name"]));
    let all = in_variables(pod, "configMapRef", "configMapKeyRef")
        .chain(of_volumes)
        .chain(in_projections(pod, "configMap"));
    all.filter(|name| !name.is_empty())
}

fn resource_claims(pod: &Value) -> impl Iterator<Item = &str> {
    let named = pod.items_at(&["spec", "resourceClaims"]).iter();
    let named = named.map(|claim| claim.str_at(&["resourceClaimName"]));
    // What was made from a template is told by the status.
    let made = pod.items_at(&["status", "resourceClaimStatuses"]).iter();
    let made = made.map(|claim| claim.str_at(&["resourceClaimName"]));
    let extended = pod.str_at(&["status", "extendedResourceClaimStatus", "resourceClaimName"]);
    named.chain(made).chain([extended]).filter(|name| !name.is_empty())
}

/// Whether a kubelet needs this secret to mount a volume.
pub fn volume_refers_to_secret(volume: &Value, namespace: &str, name: &str) -> bool {
    let claim_namespace = volume.str_at(&["spec", "claimRef", "namespace"]);
    let is_it = |of: &str, secret: &str| {
        let of = if of.is_empty() { claim_namespace } else { of };
        !secret.is_empty() && of == namespace && secret == name
    };
    let azure = |field| volume.str_at(&["spec", "azureFile", field]);
    let by_reference = |kind: &str, field: &str| {
        let text = |part| volume.str_at(&["spec", kind, field, part]);
        is_it(text("namespace"), text("name"))
    };
    let csi = ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];
    is_it(azure("secretNamespace"), azure("secretName"))
        || WITH_SECRET_REF.iter().any(|kind| by_reference(kind, "secretRef"))
        || csi.iter().any(|field| by_reference("csi", field))
}

pub fn names_secrets(pod: &Value) -> bool {
    secrets(pod).next().is_some()
}

/// What of the API a pod needs, if anything: what a kubelet runs by itself must do without.
pub fn needed_of_api(pod: &Value) -> Option<&'static str> {
    if !pod.str_at(&["spec", "serviceAccountName"]).is_empty() {
        return Some("serviceaccounts");
    }
    if names_secrets(pod) {
        return Some("secrets");
    }
    if config_maps(pod).next().is_some() {
        return Some("configmaps");
    }
    if !pod.items_at(&["spec", "resourceClaims"]).is_empty() {
        return Some("resourceclaims");
    }
    volumes(pod).find_map(needed_of_api_by_volume)
}

fn needed_of_api_by_volume(volume: &Value) -> Option<&'static str> {
    const NEEDED: [(&str, &str); 7] = [
        ("configMap", "configmaps (via configmap volumes)"),
        ("secret", "secrets (via secret volumes)"),
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        ("persistentVolumeClaim", "persistentvolumeclaims"),
        ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        ("azureFile", "secrets (via azureFile volumes)"),
    ];
    const PROJECTED: [(&str, &str); 5] = [
        ("configMap", "configmaps (via projected volumes)"),
        ("secret", "secrets (via projected volumes)"),
        ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
    ];
    let named = |part: &Value, table: &[(&str, &'static str)]| {
        table.iter().find(|(kind, _)| part.get(kind).is_some()).map(|(_, needed)| *needed)
    };
    let sources = volume.items_at(&["projected", "sources"]);
    named(volume, &NEEDED).or_else(|| sources.iter().find_map(|source| named(source, &PROJECTED)))
}
