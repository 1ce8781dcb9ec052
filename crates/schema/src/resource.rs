//! Facts about group versions, resources and subresources. Plain data, the same for built-in and
//! custom resources.

use meta::{GroupVersion, GroupVersionKind, GroupVersionResource, Str, field::quote};

use crate::TypeId;

/// A group version: its priority, and whether it is served by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupVersionFacts {
    pub group_version: GroupVersion,
    /// `groupPriorityMinimum` of its APIService.
    pub group_priority: i32,
    /// `versionPriority` of its APIService.
    pub version_priority: i32,
    /// Served without `--runtime-config`.
    pub on_by_default: bool,
    /// Never served: its types are needed for webhooks, discovery or storage only.
    pub internal: bool,
}

/// A resource as one group version serves it.
#[derive(Clone, Debug, Default)]
pub struct ResourceFacts {
    pub kind: GroupVersionKind,
    pub plural: Str,
    pub singular: Str,
    pub short_names: Vec<Str>,
    pub categories: Vec<Str>,
    pub namespaced: bool,
    /// In alphabetical order, as discovery lists them.
    pub verbs: Vec<Str>,
    /// The type of an object.
    pub type_id: TypeId,
    /// The kind of a list, and its type; empty and `None` for what can't be listed.
    pub list_kind: Str,
    pub list_type_id: Option<TypeId>,
    /// In alphabetical order.
    pub subresources: Vec<SubresourceFacts>,
    /// `None` for resources that are not stored (reviews, bindings, component statuses).
    pub storage: Option<StorageFacts>,
    /// Field labels that a field selector may name.
    pub selectable: Vec<SelectableField>,
    /// How an unknown field label is rejected.
    pub unknown_label: UnknownLabel,
    pub on_by_default: bool,
    /// OpenAPI says that a finished delete responds with the object, not with a `Status`.
    pub delete_returns_object: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubresourceFacts {
    pub name: Str,
    /// What is read or written there, possibly of another group (`autoscaling/v1 Scale`).
    pub kind: GroupVersionKind,
    /// In alphabetical order.
    pub verbs: Vec<Str>,
}

/// How the objects of a resource are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageFacts {
    /// Between `/registry/` and `/<namespace>/<name>`: `pods`, `services/specs`.
    pub prefix: Str,
    pub encoding: StorageEncoding,
    pub version: GroupVersion,
    /// `storageVersionHash` in discovery.
    pub version_hash: Str,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StorageEncoding {
    #[default]
    Protobuf,
    Json,
}

/// A field label and the fields that its value is taken from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectableField {
    pub label: Str,
    /// Paths into the object, separated by dots; the first one with a non-empty value counts. With no
    /// path at all the label is known and its value always empty.
    pub paths: Vec<Str>,
}

/// The error for a field label that a resource does not support.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownLabel {
    /// Resources that only know the name and namespace.
    #[default]
    NotKnown,
    NotSupported,
    NotSupportedForKind,
    NotSupportedForVersionKind,
}

impl ResourceFacts {
    pub fn group_version(&self) -> GroupVersion {
        self.kind.group_version()
    }

    pub fn group_version_resource(&self) -> GroupVersionResource {
        GroupVersionResource {
            group: self.kind.group.clone(),
            version: self.kind.version.clone(),
            resource: self.plural.clone(),
        }
    }

    pub fn subresource(&self, name: &str) -> Option<&SubresourceFacts> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    pub fn selectable(&self, label: &str) -> Option<&SelectableField> {
        self.selectable.iter().find(|field| field.label == label)
    }

    /// The message for a field label that is not selectable, word for word Kubernetes'.
    pub fn unknown_label(&self, label: &str) -> String {
        let GroupVersionKind { group, version, kind } = &self.kind;
        match self.unknown_label {
            UnknownLabel::NotKnown => format!(
                r#"{} is not a known field selector: only "metadata.name", "metadata.namespace""#,
                quote(label)
            ),
            UnknownLabel::NotSupported => format!("field label not supported: {label}"),
            UnknownLabel::NotSupportedForKind => {
                format!("field label {} not supported for {kind}", quote(label))
            }
            UnknownLabel::NotSupportedForVersionKind => {
                format!("field label not supported for {group}/{version}, Kind={kind}: {label}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_labels_get_kubernetes_error_messages() {
        let cases = [
            (
                UnknownLabel::NotKnown,
                r#""a\"b" is not a known field selector: only "metadata.name", "metadata.namespace""#,
            ),
            (UnknownLabel::NotSupported, r#"field label not supported: a"b"#),
            (UnknownLabel::NotSupportedForKind, r#"field label "a\"b" not supported for Job"#),
            (
                UnknownLabel::NotSupportedForVersionKind,
                r#"field label not supported for batch/v1, Kind=Job: a"b"#,
            ),
        ];
        for (unknown_label, expected) in cases {
            let kind = GroupVersionKind::new("batch", "v1", "Job");
            let facts = ResourceFacts { kind, unknown_label, ..ResourceFacts::default() };
            assert_eq!(facts.unknown_label(r#"a"b"#), expected);
        }
    }
}
