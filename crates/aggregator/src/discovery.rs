//! The content of the discovery documents, one function per document.

use meta::{GroupVersion, GroupVersionKind, Map, Str, Value, value};
use schema::{ResourceFacts, SubresourceFacts};

use crate::served_group_version::{Group, ServedGroupVersion};

/// `/api`: the versions of the core group. `address` is for clients outside of the cluster.
pub(crate) fn api_versions(core: &Group<'_>, address: &str) -> Value {
    let versions: Vec<Str> =
        core.versions.iter().map(|served| served.group_version.version.clone()).collect();
    // Compat: this document has no apiVersion.
    value!({
        "kind": "APIVersions",
        "versions": (versions),
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": (address)}],
    })
}

/// `/apis`: every group but the core group.
pub(crate) fn api_group_list<'a>(groups: impl Iterator<Item = &'a Group<'a>>) -> Value {
    let groups: Vec<Value> = groups.map(group_members).map(Value::Object).collect();
    value!({"kind": "APIGroupList", "apiVersion": "v1", "groups": (groups)})
}

/// `/apis/<group>`
pub(crate) fn api_group(group: &Group<'_>) -> Value {
    let mut members = group_members(group);
    members.insert("kind", "APIGroup");
    members.insert("apiVersion", "v1");
    Value::Object(members)
}

fn group_members(group: &Group<'_>) -> Map {
    let version = |served: &&ServedGroupVersion| {
        let GroupVersion { version, .. } = &served.group_version;
        value!({
            "groupVersion": (served.group_version.to_string()),
            "version": (version.clone()),
        })
    };
    let mut members = Map::new();
    members.insert("name", group.name.clone());
    members.insert("versions", group.versions.iter().map(version).collect::<Vec<_>>());
    members.insert("preferredVersion", group.versions.first().map_or(Value::Null, version));
    members
}

/// `/api/v1` and `/apis/<group>/<version>`: resources and subresources, in the order of their names.
pub(crate) fn api_resource_list(served: &ServedGroupVersion) -> Value {
    let mut listed: Vec<(String, Value)> = Vec::new();
    for resource in &served.resources {
        listed.push((resource.plural.to_string(), api_resource(resource)));
        for subresource in &resource.subresources {
            let name = format!("{}/{}", resource.plural, subresource.name);
            let described = api_subresource(&name, resource, subresource);
            listed.push((name, described));
        }
    }
    // Compat: custom resources are listed unsorted.
    if served.custom.is_none() {
        listed.sort_by(|a, b| a.0.cmp(&b.0));
    }
    let resources: Vec<Value> = listed.into_iter().map(|(_, described)| described).collect();
    // Compat: as with `/api`, the document of the core group has no apiVersion.
    let core = served.group_version.group.is_empty();
    value!({
        "kind": "APIResourceList",
        "apiVersion": (if core { "" } else { "v1" }),
        "groupVersion": (served.group_version.to_string()),
        "resources": (resources),
    })
}

fn api_resource(resource: &ResourceFacts) -> Value {
    let hash = resource.storage.as_ref().map(|storage| storage.version_hash.clone());
    value!({
        "name": (resource.plural.clone()),
        "singularName": (resource.singular.clone()),
        "namespaced": (resource.namespaced),
        "kind": (resource.kind.kind.clone()),
        "verbs": (resource.verbs.clone()),
        "shortNames": (resource.short_names.clone()),
        "categories": (resource.categories.clone()),
        "storageVersionHash": (hash.unwrap_or_default()),
    })
}

fn api_subresource(name: &str, resource: &ResourceFacts, subresource: &SubresourceFacts) -> Value {
    let GroupVersionKind { group, version, kind } = told_kind(resource, &subresource.kind);
    value!({
        "name": (name),
        "singularName": "",
        "namespaced": (resource.namespaced),
        "group": (group),
        "version": (version),
        "kind": (kind),
        "verbs": (subresource.verbs.clone()),
    })
}

/// Group and version of a kind are omitted if they are those of the resource.
fn told_kind(resource: &ResourceFacts, kind: &GroupVersionKind) -> GroupVersionKind {
    if resource.kind.group_version() == kind.group_version() {
        GroupVersionKind { kind: kind.kind.clone(), ..GroupVersionKind::default() }
    } else {
        kind.clone()
    }
}

/// Aggregated discovery without kind and apiVersion, which [`as_aggregated`] adds.
pub(crate) fn aggregated<'a>(groups: impl Iterator<Item = &'a Group<'a>>) -> Value {
    let items: Vec<Value> = groups.map(group_discovery).collect();
    value!({"metadata": {}, "items": (items)})
}

/// Adds kind and apiVersion to [`aggregated`].
pub(crate) fn as_aggregated(mut document: Value) -> Value {
    document.set_at(&["kind"], "APIGroupDiscoveryList");
    document.set_at(&["apiVersion"], "apidiscovery.k8s.io/v2");
    document
}

fn group_discovery(group: &Group<'_>) -> Value {
    let versions: Vec<Value> =
        group.versions.iter().map(|served| version_discovery(served)).collect();
    value!({"metadata": {"name": (group.name.clone())}, "versions": (versions)})
}

fn version_discovery(served: &ServedGroupVersion) -> Value {
    if let Some(remote) = &served.remote {
        return remote.version_discovery(&served.group_version.version);
    }
    let mut resources: Vec<&ResourceFacts> = served.resources.iter().map(AsRef::as_ref).collect();
    resources.sort_by(|a, b| a.plural.cmp(&b.plural));
    // Compat: custom resources repeat their group and version.
    let custom = served.custom.is_some();
    let resources: Vec<Value> =
        resources.into_iter().map(|resource| resource_discovery(resource, custom)).collect();
    value!({
        "version": (served.group_version.version.clone()),
        "resources": (resources),
        "freshness": "Current",
    })
}

fn resource_discovery(resource: &ResourceFacts, custom: bool) -> Value {
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|subresource| {
            value!({
                "subresource": (subresource.name.clone()),
                "responseKind": (response_kind(resource, &subresource.kind, custom)),
                "verbs": (subresource.verbs.clone()),
            })
        })
        .collect();
    value!({
        "resource": (resource.plural.clone()),
        "responseKind": (response_kind(resource, &resource.kind, custom)),
        "scope": (if resource.namespaced { "Namespaced" } else { "Cluster" }),
        "singularResource": (resource.singular.clone()),
        "verbs": (resource.verbs.clone()),
        "shortNames": (resource.short_names.clone()),
        "categories": (resource.categories.clone()),
        "subresources": (subresources),
    })
}

fn response_kind(resource: &ResourceFacts, kind: &GroupVersionKind, custom: bool) -> Value {
    let told = if custom { kind.clone() } else { told_kind(resource, kind) };
    let GroupVersionKind { group, version, kind } = told;
    value!({"group": (group), "version": (version), "kind": (kind)})
}
