//! A typed view of a `CustomResourceDefinition`. Validation has run before; missing fields read as
//! empty.

use std::sync::Arc;

use meta::{GroupVersionKind, Str, Value};
use registry::ScalePaths;

/// The fields of a definition that serving depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Crd {
    /// `<plural>.<group>`
    pub(crate) name: Str,
    pub(crate) uid: Str,
    pub(crate) group: Str,
    pub(crate) namespaced: bool,
    /// `spec.names` and `status.acceptedNames`.
    pub(crate) names: Names,
    pub(crate) accepted: Names,
    pub(crate) versions: Vec<Version>,
    pub(crate) conversion: Value,
    /// `spec.preserveUnknownFields`, which v1beta1 definitions may have.
    pub(crate) preserve_unknown: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_field_names)] // Kubernetes calls them so.
pub(crate) struct Names {
    pub(crate) plural: Str,
    pub(crate) singular: Str,
    pub(crate) kind: Str,
    pub(crate) list_kind: Str,
    pub(crate) short_names: Vec<Str>,
    pub(crate) categories: Vec<Str>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Version {
    pub(crate) name: Str,
    pub(crate) served: bool,
    pub(crate) storage: bool,
    /// `openAPIV3Schema` as JSON, because a tree takes ten times the memory; empty without a schema.
    pub(crate) schema: Arc<str>,
    pub(crate) status: bool,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) columns: Vec<ColumnSpec>,
    /// JSONPaths: `.spec.color`
    pub(crate) selectable: Vec<Str>,
    pub(crate) deprecated: bool,
    pub(crate) deprecation_warning: Option<Str>,
}

/// An entry of `additionalPrinterColumns`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ColumnSpec {
    pub(crate) name: Str,
    pub(crate) ty: Str,
    pub(crate) format: Str,
    pub(crate) description: Str,
    pub(crate) priority: i32,
    pub(crate) path: Str,
}

impl Crd {
    pub(crate) fn read(object: &Value) -> Self {
        let null = Value::Null;
        let spec = object.get("spec").unwrap_or(&null);
        let text = |path: &[&str]| Str::new(object.str_at(path));
        Self {
            name: text(&["metadata", "name"]),
            uid: text(&["metadata", "uid"]),
            group: text(&["spec", "group"]),
            namespaced: object.str_at(&["spec", "scope"]) == "Namespaced",
            names: Names::read(spec.get("names")),
            accepted: Names::read(object.at(&["status", "acceptedNames"])),
            versions: spec.items_at(&["versions"]).iter().map(Version::read).collect(),
            conversion: spec.get("conversion").cloned().unwrap_or_default(),
            preserve_unknown: spec.bool_at(&["preserveUnknownFields"]),
        }
    }

    #[cfg(test)]
    pub(crate) fn stored(&self) -> Option<&Version> {
        self.versions.iter().find(|version| version.storage)
    }

    pub(crate) fn gvk(&self, version: &Version) -> GroupVersionKind {
        GroupVersionKind::new(&self.group, &version.name, &self.accepted.kind)
    }
}

impl Names {
    fn read(names: Option<&Value>) -> Self {
        let null = Value::Null;
        let names = names.unwrap_or(&null);
        let text = |name| Str::new(names.str_at(&[name]));
        Self {
            plural: text("plural"),
            singular: text("singular"),
            kind: text("kind"),
            list_kind: text("listKind"),
            short_names: texts(names, "shortNames"),
            categories: texts(names, "categories"),
        }
    }

    /// As written to `status.acceptedNames`.
    pub(crate) fn write(&self) -> Value {
        let mut out = Value::object();
        // Plural and kind are always written.
        out.set_at(&["plural"], self.plural.clone());
        out.set_at(&["kind"], self.kind.clone());
        for (name, text) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !text.is_empty() {
                out.set_at(&[name], text.clone());
            }
        }
        let lists = [("shortNames", &self.short_names), ("categories", &self.categories)];
        for (name, list) in lists {
            if !list.is_empty() {
                out.set_at(&[name], list.clone());
            }
        }
        out
    }
}

fn texts(object: &Value, name: &str) -> Vec<Str> {
    object.items_at(&[name]).iter().filter_map(Value::as_str).map(Str::new).collect()
}

impl Version {
    fn read(version: &Value) -> Self {
        let columns = version.items_at(&["additionalPrinterColumns"]).iter();
        let selectable = version.items_at(&["selectableFields"]).iter();
        let given = |path: &[&str]| version.at(path).is_some_and(|value| !value.is_null());
        Self {
            name: Str::new(version.str_at(&["name"])),
            served: version.bool_at(&["served"]),
            storage: version.bool_at(&["storage"]),
            schema: version
                .at(&["schema", "openAPIV3Schema"])
                .filter(|schema| !schema.is_null())
                .map(|schema| meta::json::to_string(schema).into())
                .unwrap_or_default(),
            status: given(&["subresources", "status"]),
            scale: version.at(&["subresources", "scale"]).and_then(scale),
            columns: columns.map(ColumnSpec::read).collect(),
            selectable: selectable.map(|field| Str::new(field.str_at(&["jsonPath"]))).collect(),
            deprecated: version.bool_at(&["deprecated"]),
            deprecation_warning: version
                .at(&["deprecationWarning"])
                .and_then(Value::as_str)
                .map(Str::new),
        }
    }
}

/// Parses a schema; null if there is none.
pub(crate) fn schema_tree(json: &str) -> Value {
    let options = codec::json::DecodeOptions { strict: false };
    let decoded = codec::json::decode_any(json.as_bytes(), options);
    decoded.map(|decoded| decoded.value).unwrap_or_default()
}

impl ColumnSpec {
    fn read(column: &Value) -> Self {
        let text = |name| Str::new(column.str_at(&[name]));
        Self {
            name: text("name"),
            ty: text("type"),
            format: text("format"),
            description: text("description"),
            priority: column.i64_at(&["priority"]).unwrap_or_default() as i32,
            path: text("jsonPath"),
        }
    }
}

fn scale(scale: &Value) -> Option<ScalePaths> {
    scale.as_object()?;
    let selector = scale.str_at(&["labelSelectorPath"]);
    Some(ScalePaths {
        spec_replicas: split(scale.str_at(&["specReplicasPath"])),
        status_replicas: split(scale.str_at(&["statusReplicasPath"])),
        label_selector: (!selector.is_empty()).then(|| split(selector)),
    })
}

/// The field names of a path such as `.spec.replicas`.
pub(crate) fn split(path: &str) -> Vec<String> {
    path.strip_prefix('.').unwrap_or(path).split('.').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn a_definition_is_read_field_by_field() {
        let crd = Crd::read(&value!({
            "metadata": {"name": "shirts.stable.example.com", "uid": "u"},
            "spec": {
                "group": "stable.example.com",
                "scope": "Namespaced",
                "names": {"plural": "shirts", "kind": "Shirt", "shortNames": ["sh"]},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.n"},
                    },
                    "additionalPrinterColumns": [
                        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1i64},
                    ],
                    "selectableFields": [{"jsonPath": ".spec.color"}],
                }],
            },
        }));
        assert!(crd.namespaced && crd.names.short_names == ["sh"]);
        let version = crd.stored().expect("one is stored");
        assert!(version.status && version.served && !version.deprecated);
        assert_eq!(
            version.scale.as_ref().map(|scale| scale.status_replicas.join("/")),
            Some("status/n".into())
        );
        assert_eq!(
            (version.columns[0].priority, version.selectable[0].as_str()),
            (1, ".spec.color")
        );
    }
}
