//! The served group-versions that discovery and OpenAPI are rendered from.

use std::cmp::Ordering;
use std::sync::Arc;

use meta::{GroupVersion, Str};
use schema::{GroupVersionFacts, ResourceFacts, openapi::CustomResource};

use crate::{RemoteApi, compare_versions};

/// A served group-version with its resources.
#[derive(Clone, Debug)]
pub struct ServedGroupVersion {
    pub group_version: GroupVersion,
    /// `groupPriorityMinimum` and `versionPriority` of its APIService.
    pub group_priority: i32,
    pub version_priority: i32,
    pub resources: Vec<Arc<ResourceFacts>>,
    /// For custom resources: their schemas.
    pub custom: Option<Vec<Arc<CustomResource>>>,
    /// For group-versions of other servers: what they say about themselves.
    pub remote: Option<Arc<RemoteApi>>,
}

impl ServedGroupVersion {
    /// A built-in group-version. Resources of other group-versions are skipped.
    pub fn new<'a>(
        facts: &GroupVersionFacts,
        resources: impl IntoIterator<Item = &'a Arc<ResourceFacts>>,
    ) -> Self {
        let is_ours = |resource: &&Arc<ResourceFacts>| {
            resource.kind.group == facts.group_version.group
                && resource.kind.version == facts.group_version.version
        };
        Self {
            group_version: facts.group_version.clone(),
            group_priority: facts.group_priority,
            version_priority: facts.version_priority,
            resources: resources.into_iter().filter(is_ours).cloned().collect(),
            custom: None,
            remote: None,
        }
    }
}

/// A group with its versions, the preferred one first.
pub(crate) struct Group<'a> {
    pub(crate) name: &'a Str,
    pub(crate) versions: Vec<&'a ServedGroupVersion>,
}

/// Groups in the order of discovery, the core group among them.
pub(crate) fn groups(served: &[ServedGroupVersion]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for version in served {
        let name = &version.group_version.group;
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.versions.push(version),
            None => groups.push(Group { name, versions: vec![version] }),
        }
    }
    for group in &mut groups {
        group.versions.sort_by(|a, b| by_preference(a, b));
    }
    groups.sort_by(|a, b| b.priority().cmp(&a.priority()).then_with(|| a.name.cmp(b.name)));
    groups
}

impl Group<'_> {
    /// The kube-aggregator's own group has no APIService and comes first.
    fn priority(&self) -> i32 {
        if self.name == "apiregistration.k8s.io" {
            return i32::MAX;
        }
        self.versions.iter().map(|version| version.group_priority).max().unwrap_or_default()
    }
}

fn by_preference(a: &ServedGroupVersion, b: &ServedGroupVersion) -> Ordering {
    let by_name = || compare_versions(&b.group_version.version, &a.group_version.version);
    b.version_priority.cmp(&a.version_priority).then_with(by_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_versions_are_ordered_by_priority_and_then_by_name() {
        let table = [
            ("b", "v1alpha1", 1000, 15),
            ("b", "v1", 1000, 15),
            ("b", "v2beta1", 10, 20),
            ("a", "v1", 1000, 15),
            ("z", "v1", 2000, 1),
            ("apiregistration.k8s.io", "v1", 0, 0),
        ];
        let served =
            table.map(|(group, version, group_priority, version_priority)| ServedGroupVersion {
                group_version: GroupVersion::new(group, version),
                group_priority,
                version_priority,
                resources: Vec::new(),
                custom: None,
                remote: None,
            });
        let told: Vec<String> = groups(&served)
            .iter()
            .flat_map(|group| &group.versions)
            .map(|version| version.group_version.to_string())
            .collect();
        assert_eq!(told[0], "apiregistration.k8s.io/v1");
        assert_eq!(told[1..], ["z/v1", "a/v1", "b/v2beta1", "b/v1", "b/v1alpha1"]);
    }
}
