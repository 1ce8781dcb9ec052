//! How the built-in kinds differ in what is a fact. The `resource` options of `api/**.proto` have the
//! facts; the build script checks them and writes the table.

use meta::{
    GroupVersionKind,
    names::{
        generated_name_is_dns_subdomain, is_config_map_key, is_dns1035_label, is_dns1123_subdomain,
        name_is_dns_label, name_is_dns_subdomain, name_is_path_segment,
    },
};
use registry::{Behaviour, GarbageCollectionPolicy, MetadataChecks, ObjectMetaValidation};

use crate::validation::name_is_ip;

include!(concat!(env!("OUT_DIR"), "/kinds.rs"));

/// A kind in one of its versions.
pub(crate) struct KindFacts {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    /// The kind is not served while the gate is off.
    pub(crate) feature_gate: Option<FeatureGate>,
    /// Fields that are dropped while a gate is off, as `registry::FieldPattern` writes them.
    pub(crate) gated_fields: &'static [(FeatureGate, &'static str)],
    /// Where the kind has the spec of a pod: `spec.template.spec`.
    pub(crate) pod_spec: Option<&'static str>,
    /// The minor release in which this version of the kind appeared; 0: before those that can be emulated.
    pub(crate) introduced: u32,
    pub(crate) behaviour: Behaviour,
}

pub(crate) fn of(kind: &GroupVersionKind) -> &'static KindFacts {
    let key = (kind.group.as_str(), kind.version.as_str(), kind.kind.as_str());
    let at = KINDS.binary_search_by_key(&key, |facts| (facts.group, facts.version, facts.kind));
    &KINDS[at.expect("the build script wrote a row for each resource")]
}

/// The gate without which a kind is not served, whatever `--runtime-config` says.
pub fn gate_of(kind: &GroupVersionKind) -> Option<FeatureGate> {
    of(kind).feature_gate
}

/// The minor release in which this version of a kind appeared; 0: long ago.
pub fn introduced_in(kind: &GroupVersionKind) -> u32 {
    of(kind).introduced
}

fn name_is_config_map_key(name: &str, _prefix: bool) -> Vec<String> {
    is_config_map_key(name)
}

/// A group and a resource: `apps.deployments`. Compat: a prefix has to look so, too.
fn name_is_storage_version(name: &str, _prefix: bool) -> Vec<String> {
    let Some((group, resource)) = name.rsplit_once('.') else {
        return vec!["name must be in the form of <group>.<resource>".to_owned()];
    };
    let group = is_dns1123_subdomain(group).into_iter().map(|why| ("group", why));
    let resource = is_dns1035_label(resource).into_iter().map(|why| ("resource", why));
    group.chain(resource).map(|(part, why)| format!("the {part} segment {why}")).collect()
}

/// The kind's validation has the rule: what the name may be depends on other fields.
fn any_name(_name: &str, _prefix: bool) -> Vec<String> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Definitions;

    #[test]
    fn every_resource_has_its_facts() {
        let definitions = Definitions::load();
        for resource in &definitions.resources {
            assert_eq!(of(&resource.kind).kind, resource.kind.kind.as_str());
        }
        assert_eq!(KINDS.len(), definitions.resources.len());
    }

    #[test]
    fn a_gated_field_is_found_wherever_its_type_is_used() {
        let fields = |group: &str, version: &str, kind: &str| -> Vec<&str> {
            let facts = of(&GroupVersionKind::new(group, version, kind));
            facts.gated_fields.iter().map(|(_, field)| *field).collect()
        };
        let cron = fields("batch", "v1", "CronJob");
        let spec = "spec.jobTemplate.spec.template.spec";
        assert!(cron.contains(&format!("{spec}.initContainers[].lifecycle.stopSignal").as_str()));
        assert_eq!(fields("", "v1", "PersistentVolumeClaim"), ["spec.dataSourceRef?namespace"]);
        assert_eq!(fields("", "v1", "Secret"), [""; 0]);
    }

    /// The devices of this version have their fields one level deeper than those of the later ones.
    #[test]
    fn node_allocatable_resources_of_v1beta1_slices_are_gated() {
        let facts = of(&GroupVersionKind::new("resource.k8s.io", "v1beta1", "ResourceSlice"));
        let field = "spec.devices[].basic.nodeAllocatableResourceMappings";
        assert!(
            facts.gated_fields.contains(&(FeatureGate::DRANodeAllocatableResources, field)),
            "{:?}",
            facts.gated_fields
        );
    }
}
