//! kube-apiserver's internal version of a definition, which shows in its error messages: fields that are
//! the same in all versions move up into the spec, and structs are printed with Go's field names.

use meta::{Value, json, json::write_string};
use schema::structural::ValidationRule;

/// The spec, with top-level fields apart from per-version ones.
pub(super) struct InternalSpec<'a> {
    pub raw: &'a Value,
    pub versions: &'a [Value],
}

/// The fields that move from the versions into the spec if they are the same in all versions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PerVersionField {
    Schema,
    Subresources,
    Columns,
    SelectableFields,
}

impl PerVersionField {
    fn in_version(self) -> &'static str {
        match self {
            Self::Schema => "schema",
            Self::Subresources => "subresources",
            Self::Columns => "additionalPrinterColumns",
            Self::SelectableFields => "selectableFields",
        }
    }
}

impl<'a> InternalSpec<'a> {
    pub(super) fn of(definition: &'a Value) -> Self {
        static NOTHING: Value = Value::Null;
        let raw = definition.get("spec").unwrap_or(&NOTHING);
        Self { raw, versions: raw.items_at(&["versions"]) }
    }

    /// The value that all versions share.
    pub(super) fn top_level(&self, what: PerVersionField) -> Option<&'a Value> {
        let (first, rest) = self.versions.split_first()?;
        let value = field(first, what);
        rest.iter().all(|version| field(version, what) == value).then_some(value).flatten()
    }

    /// The value of one version, unless all versions share it.
    pub(super) fn per_version(
        &self,
        version: &'a Value,
        what: PerVersionField,
    ) -> Option<&'a Value> {
        let agreed = self.versions.iter().all(|other| field(other, what) == field(version, what));
        if agreed { None } else { field(version, what) }
    }

    /// The distinct schemas.
    pub(super) fn schemas(&self) -> Vec<&'a Value> {
        let mut schemas: Vec<&Value> = Vec::new();
        for version in self.versions {
            let schema = version.at(&["schema", "openAPIV3Schema"]);
            if let Some(schema) = schema.filter(|schema| !schemas.contains(schema)) {
                schemas.push(schema);
            }
        }
        schemas
    }
}

/// An absent field, null and an empty list are the same.
fn field(version: &Value, what: PerVersionField) -> Option<&Value> {
    version.get(what.in_version()).filter(|value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    })
}

/// The versions as Go prints them.
pub(super) fn show_versions(spec: &InternalSpec<'_>) -> String {
    if spec.raw.get("versions").is_none_or(Value::is_null) {
        return "null".to_owned();
    }
    let versions = spec.versions.iter().map(|version| {
        let own = |what| spec.per_version(version, what);
        let mut out = GoStructWriter::new();
        out.text("Name", version.get("name"));
        out.flag("Served", version.get("served"));
        out.flag("Storage", version.get("storage"));
        out.flag("Deprecated", version.get("deprecated"));
        out.plain("DeprecationWarning", version.get("deprecationWarning"));
        out.optional("Schema", own(PerVersionField::Schema), |schema| {
            let mut out = GoStructWriter::new();
            out.optional("OpenAPIV3Schema", schema.get("openAPIV3Schema"), show_schema);
            out.done()
        });
        out.optional("Subresources", own(PerVersionField::Subresources), show_subresources);
        out.list("AdditionalPrinterColumns", own(PerVersionField::Columns), |column| {
            let mut out = GoStructWriter::new();
            out.text("Name", column.get("name"));
            out.text("Type", column.get("type"));
            out.text("Format", column.get("format"));
            out.text("Description", column.get("description"));
            out.number("Priority", column.get("priority"));
            out.text("JSONPath", column.get("jsonPath"));
            out.done()
        });
        out.list("SelectableFields", own(PerVersionField::SelectableFields), |selectable| {
            let mut out = GoStructWriter::new();
            out.text("JSONPath", selectable.get("jsonPath"));
            out.done()
        });
        out.done()
    });
    format!("[{}]", versions.collect::<Vec<_>>().join(","))
}

fn show_subresources(subresources: &Value) -> String {
    let mut out = GoStructWriter::new();
    out.optional("Status", subresources.get("status"), |_| "{}".to_owned());
    out.optional("Scale", subresources.get("scale"), |scale| {
        let mut out = GoStructWriter::new();
        out.text("SpecReplicasPath", scale.get("specReplicasPath"));
        out.text("StatusReplicasPath", scale.get("statusReplicasPath"));
        out.plain("LabelSelectorPath", scale.get("labelSelectorPath"));
        out.done()
    });
    out.done()
}

/// A schema as Go prints it.
pub(super) fn show_schema(schema: &Value) -> String {
    let mut out = GoStructWriter::new();
    for (go_name, name, kind) in SCHEMA_FIELDS {
        let value = schema.get(name);
        match kind {
            GoType::Text => out.text(go_name, value),
            GoType::Flag => out.flag(go_name, value),
            GoType::Plain => out.plain(go_name, value),
            GoType::Schema => out.optional(go_name, value, show_schema),
            GoType::Schemas => out.list(go_name, value, show_schema),
            GoType::SchemaMap => out.map(go_name, value, show_schema),
            GoType::SchemaOrArray => out.optional(go_name, value, |value| {
                let mut out = GoStructWriter::new();
                out.optional(
                    "Schema",
                    Some(value).filter(|v| v.as_object().is_some()),
                    show_schema,
                );
                out.list("JSONSchemas", Some(value), show_schema);
                out.done()
            }),
            GoType::SchemaOrBool => out.optional(go_name, value, |value| {
                let mut out = GoStructWriter::new();
                let is_schema = value.as_object().is_some();
                out.raw(
                    "Allows",
                    if is_schema || *value == Value::Bool(true) { "true" } else { "false" },
                );
                out.optional("Schema", Some(value).filter(|_| is_schema), show_schema);
                out.done()
            }),
            GoType::SchemaOrStrings => out.map(go_name, value, |value| {
                let mut out = GoStructWriter::new();
                out.optional(
                    "Schema",
                    Some(value).filter(|v| v.as_object().is_some()),
                    show_schema,
                );
                out.plain("Property", Some(value).filter(|v| v.as_array().is_some()));
                out.done()
            }),
            GoType::Docs => out.optional(go_name, value, |docs| {
                let mut out = GoStructWriter::new();
                out.text("Description", docs.get("description"));
                out.text("URL", docs.get("url"));
                out.done()
            }),
            GoType::Rules => out.list(go_name, value, |rule| ValidationRule::read(rule).show()),
        }
    }
    out.done()
}

/// The Go type of a schema field, which decides how it is printed.
#[derive(Clone, Copy)]
pub(super) enum GoType {
    Text,
    Flag,
    /// A pointer, a list or JSON: printed as it is, null if absent.
    Plain,
    Schema,
    Schemas,
    SchemaMap,
    SchemaOrArray,
    SchemaOrBool,
    SchemaOrStrings,
    Docs,
    Rules,
}

/// The fields of a schema in Go's order: Go's name, JSON name, type.
pub(super) const SCHEMA_FIELDS: [(&str, &str, GoType); 44] = [
    ("ID", "id", GoType::Text),
    ("Schema", "$schema", GoType::Text),
    ("Ref", "$ref", GoType::Plain),
    ("Description", "description", GoType::Text),
    ("Type", "type", GoType::Text),
    ("Nullable", "nullable", GoType::Flag),
    ("Format", "format", GoType::Text),
    ("Title", "title", GoType::Text),
    ("Default", "default", GoType::Plain),
    ("Maximum", "maximum", GoType::Plain),
    ("ExclusiveMaximum", "exclusiveMaximum", GoType::Flag),
    ("Minimum", "minimum", GoType::Plain),
    ("ExclusiveMinimum", "exclusiveMinimum", GoType::Flag),
    ("MaxLength", "maxLength", GoType::Plain),
    ("MinLength", "minLength", GoType::Plain),
    ("Pattern", "pattern", GoType::Text),
    ("MaxItems", "maxItems", GoType::Plain),
    ("MinItems", "minItems", GoType::Plain),
    ("UniqueItems", "uniqueItems", GoType::Flag),
    ("MultipleOf", "multipleOf", GoType::Plain),
    ("Enum", "enum", GoType::Plain),
    ("MaxProperties", "maxProperties", GoType::Plain),
    ("MinProperties", "minProperties", GoType::Plain),
    ("Required", "required", GoType::Plain),
    ("Items", "items", GoType::SchemaOrArray),
    ("AllOf", "allOf", GoType::Schemas),
    ("OneOf", "oneOf", GoType::Schemas),
    ("AnyOf", "anyOf", GoType::Schemas),
    ("Not", "not", GoType::Schema),
    ("Properties", "properties", GoType::SchemaMap),
    ("AdditionalProperties", "additionalProperties", GoType::SchemaOrBool),
    ("PatternProperties", "patternProperties", GoType::SchemaMap),
    ("Dependencies", "dependencies", GoType::SchemaOrStrings),
    ("AdditionalItems", "additionalItems", GoType::SchemaOrBool),
    ("Definitions", "definitions", GoType::SchemaMap),
    ("ExternalDocs", "externalDocs", GoType::Docs),
    ("Example", "example", GoType::Plain),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", GoType::Plain),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", GoType::Flag),
    ("XIntOrString", "x-kubernetes-int-or-string", GoType::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", GoType::Plain),
    ("XListType", "x-kubernetes-list-type", GoType::Plain),
    ("XMapType", "x-kubernetes-map-type", GoType::Plain),
    ("XValidations", "x-kubernetes-validations", GoType::Rules),
];

/// Writes a struct field by field, as Go's `json.Marshal` does without tags.
struct GoStructWriter(Vec<u8>);

impl GoStructWriter {
    fn new() -> Self {
        Self(vec![b'{'])
    }

    fn raw(&mut self, name: &str, value: &str) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        write_string(&mut self.0, name);
        self.0.push(b':');
        self.0.extend_from_slice(value.as_bytes());
    }

    fn text(&mut self, name: &str, value: Option<&Value>) {
        let text = value.and_then(Value::as_str).unwrap_or_default();
        self.raw(name, &json::to_string(&Value::from(text)));
    }

    fn flag(&mut self, name: &str, value: Option<&Value>) {
        let flag = value.and_then(Value::as_bool).unwrap_or_default();
        self.raw(name, if flag { "true" } else { "false" });
    }

    fn number(&mut self, name: &str, value: Option<&Value>) {
        let number = value.and_then(Value::as_i64).unwrap_or_default();
        self.raw(name, &number.to_string());
    }

    fn plain(&mut self, name: &str, value: Option<&Value>) {
        self.raw(name, &json::to_string(value.unwrap_or(&Value::Null)));
    }

    fn optional(&mut self, name: &str, value: Option<&Value>, show: impl Fn(&Value) -> String) {
        match value.filter(|value| !value.is_null()) {
            Some(value) => self.raw(name, &show(value)),
            None => self.raw(name, "null"),
        }
    }

    fn list(&mut self, name: &str, value: Option<&Value>, show: impl Fn(&Value) -> String) {
        match value.and_then(Value::as_array) {
            Some(items) => {
                let items: Vec<String> = items.iter().map(show).collect();
                self.raw(name, &format!("[{}]", items.join(",")));
            }
            None => self.raw(name, "null"),
        }
    }

    fn map(&mut self, name: &str, value: Option<&Value>, show: impl Fn(&Value) -> String) {
        let Some(map) = value.and_then(Value::as_object) else { return self.raw(name, "null") };
        let members = map.iter().map(|(key, value)| {
            format!("{}:{}", json::to_string(&Value::from(key.as_str())), show(value))
        });
        let members: Vec<String> = members.collect();
        self.raw(name, &format!("{{{}}}", members.join(",")));
    }

    fn done(mut self) -> String {
        self.0.push(b'}');
        String::from_utf8(self.0).expect("only UTF-8 is written")
    }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn versions_are_printed_with_the_field_names_of_go() {
        let definition = value!({"spec": {"versions": [{"name": "v1", "served": true}]}});
        assert_eq!(
            show_versions(&InternalSpec::of(&definition)),
            r#"[{"Name":"v1","Served":true,"Storage":false,"Deprecated":false,"#.to_owned()
                + r#""DeprecationWarning":null,"Schema":null,"Subresources":null,"#
                + r#""AdditionalPrinterColumns":null,"SelectableFields":null}]"#
        );
    }
}
