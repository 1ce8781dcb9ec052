//! The served kinds by `(group, version, resource)`: a table that is replaced whole, never locked.

use std::{collections::HashMap, sync::Arc};

use meta::{GroupVersion, GroupVersionResource, Str};
use registry::Kind;

/// The served kinds by group-version and plural. Immutable: a change makes a new table.
#[derive(Default)]
pub struct Kinds {
    by_group_version: HashMap<GroupVersion, HashMap<Str, Arc<Kind>>>,
}

impl Kinds {
    pub fn new(kinds: impl IntoIterator<Item = Arc<Kind>>) -> Self {
        let mut table = Self::default();
        for kind in kinds {
            let resources = table.by_group_version.entry(kind.group_version()).or_default();
            resources.insert(kind.facts.plural.clone(), kind);
        }
        table
    }

    /// The resources of a group-version; None if it isn't served here.
    pub(crate) fn group_version(
        &self,
        group: &Str,
        version: &Str,
    ) -> Option<&HashMap<Str, Arc<Kind>>> {
        self.by_group_version.get(&GroupVersion { group: group.clone(), version: version.clone() })
    }

    pub fn group_versions(&self) -> Vec<GroupVersion> {
        self.by_group_version.keys().cloned().collect()
    }

    pub fn get(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<Kind>> {
        self.by_group_version.get(&GroupVersion::new(group, version))?.get(resource)
    }

    pub fn get_resource(&self, resource: &GroupVersionResource) -> Option<&Arc<Kind>> {
        let GroupVersionResource { group, version, resource } = resource;
        self.group_version(group, version)?.get(resource)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.by_group_version.values().flat_map(HashMap::values)
    }
}
