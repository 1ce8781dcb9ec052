//! The volumes of a pod: their names, and exactly one source for each.

use std::collections::{BTreeMap, BTreeSet};

use meta::{FieldErrors, Value, names::is_dns1123_label};

use super::{Owner, resources::quantity, volume_sources as sources};
use crate::validation::cursor::Field;

/// The volumes that containers can mount, by name.
pub(super) type Volumes<'a> = BTreeMap<&'a str, &'a Value>;

pub(crate) fn validate<'a>(
    volumes: &Field<'a>,
    owner: &Owner<'_>,
    errors: &mut FieldErrors,
) -> Volumes<'a> {
    let values = volumes.value().and_then(Value::as_array).unwrap_or_default();
    let has_ephemeral = |volume: &&Value| volume.get("ephemeral").is_some();
    let created: BTreeSet<String> = match owner.name {
        "" => BTreeSet::new(),
        pod => {
            let names = values.iter().filter(has_ephemeral).map(|volume| volume.str_at(&["name"]));
            names.map(|name| format!("{pod}-{name}")).collect()
        }
    };
    let mut good = Volumes::new();
    for (volume, value) in volumes.items().zip(values) {
        if errors.stop_early() {
            break;
        }
        let before = errors.count();
        source(&volume, owner, errors);
        let name = volume.get("name");
        name.require_rule(errors, is_dns1123_label);
        let text = value.str_at(&["name"]);
        if good.contains_key(text) {
            name.duplicate(errors);
        }
        if errors.count() == before {
            good.insert(text, value);
        }
        let claim = volume.get("persistentVolumeClaim");
        if created.contains(claim.get("claimName").str()) {
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            claim.get("claimName").invalid(errors, why);
        }
    }
    good
}

fn source(volume: &Field<'_>, owner: &Owner<'_>, errors: &mut FieldErrors) {
    let mut found = false;
    let size = volume.value_at(&["emptyDir", "sizeLimit"]);
    if size.and_then(quantity).is_some_and(|size| size.sign().is_lt()) {
        let why = "SizeLimit field must be a valid resource quantity";
        volume.get("emptyDir").get("sizeLimit").forbidden(errors, why);
    }
    if volume.get("emptyDir").is_set() {
        found = true;
    }
    for (name, shown, check) in SOURCES {
        let source = volume.get(name);
        if !source.is_set() {
            continue;
        }
        if found {
            // Compat: two sources have another name in this message.
            let shown = match *name {
                "downwardAPI" => "downwarAPI",
                "cephfs" => "cephFS",
                name => name,
            };
            volume.get(shown).forbidden(errors, "may not specify more than 1 volume type");
        } else {
            found = true;
            check(&source.named(shown), errors);
            if *name == "ephemeral" {
                ephemeral_claim_name(volume, owner, errors);
            }
            if *name == "image" {
                sources::image(&source, owner.is_pod, errors);
            }
        }
        if *name == "iscsi" {
            sources::iscsi_name_length(volume, errors);
        }
    }
    if !found {
        volume.required(errors, "must specify a volume type");
    }
}

/// The claim of an ephemeral volume is named after pod and volume.
fn ephemeral_claim_name(volume: &Field<'_>, owner: &Owner<'_>, errors: &mut FieldErrors) {
    let name = volume.get("name");
    if owner.name.is_empty() || name.is_empty() {
        return;
    }
    let claim = format!("{}-{}", owner.name, name.str());
    for why in meta::names::is_dns1123_subdomain(&claim) {
        name.invalid(errors, &format!("PVC name {}: {why}", meta::field::quote(&claim)));
    }
}

type Check = fn(&Field<'_>, &mut FieldErrors);

/// Name, name in messages and check of each source besides `emptyDir`, in the order of upstream.
const SOURCES: &[(&str, &str, Check)] = &[
    ("hostPath", "hostPath", sources::host_path),
    ("gitRepo", "gitRepo", sources::git_repo),
    ("gcePersistentDisk", "persistentDisk", sources::gce_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", sources::aws_disk),
    ("secret", "secret", sources::secret),
    ("nfs", "nfs", sources::nfs),
    ("iscsi", "iscsi", sources::iscsi),
    ("glusterfs", "glusterfs", sources::glusterfs),
    ("flocker", "flocker", sources::flocker),
    ("persistentVolumeClaim", "persistentVolumeClaim", sources::claim),
    ("rbd", "rbd", sources::rbd),
    ("cinder", "cinder", sources::cinder),
    ("cephfs", "cephfs", sources::ceph_fs),
    ("quobyte", "quobyte", sources::quobyte),
    ("downwardAPI", "downwardAPI", sources::downward_api),
    ("fc", "fc", sources::fc),
    ("flexVolume", "flexVolume", sources::flex),
    ("configMap", "configMap", sources::config_map),
    ("azureFile", "azureFile", sources::azure_file),
    ("vsphereVolume", "vsphereVolume", sources::vsphere),
    ("photonPersistentDisk", "photonPersistentDisk", sources::photon),
    ("portworxVolume", "portworxVolume", sources::portworx),
    ("azureDisk", "azureDisk", sources::azure_disk),
    ("storageos", "storageos", sources::storage_os),
    ("projected", "projected", sources::projected),
    ("scaleIO", "scaleIO", sources::scale_io),
    ("csi", "csi", sources::csi),
    ("ephemeral", "ephemeral", sources::ephemeral),
    ("image", "image", |_, _| ()),
];
