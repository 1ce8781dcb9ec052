//! A definition as kube-apiserver holds it inside, which shows in its errors: what all versions agree
//! on stands above them, and structs are printed with the names that Go has for their fields.

use meta::{Value, json, json::write_string};
use schema::structural::ValidationRule;

/// The spec, with what all versions have in common told apart from what they have of their own.
pub(super) struct Spec<'a> {
    pub raw: &'a Value,
    pub versions: &'a [Value],
}

/// The fields of a version that move up where all versions agree on them: here and there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    Schema,
    Subresources,
    Columns,
    SelectableFields,
}

impl Moved {
    fn in_version(self) -> &'static str {
        match self {
            Self::Schema => "schema",
            Self::Subresources => "subresources",
            Self::Columns => "additionalPrinterColumns",
            Self::SelectableFields => "selectableFields",
        }
    }
}

impl<'a> Spec<'a> {
    pub(super) fn of(definition: &'a Value) -> Self {
        static NOTHING: Value = Value::Null;
        let raw = definition.get("spec").unwrap_or(&NOTHING);
        Self { raw, versions: raw.items_at(&["versions"]) }
    }

    /// What all versions agree on.
    pub(super) fn shared(&self, what: Moved) -> Option<&'a Value> {
        let (first, rest) = self.versions.split_first()?;
        let value = field(first, what);
        rest.iter().all(|version| field(version, what) == value).then_some(value).flatten()
    }

    /// What a version has of its own.
    pub(super) fn own(&self, version: &'a Value, what: Moved) -> Option<&'a Value> {
        let agreed = self.versions.iter().all(|other| field(other, what) == field(version, what));
        if agreed { None } else { field(version, what) }
    }

    /// The schemas, each once: that of all versions, or those of the versions.
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

/// Nothing, null and an empty list are the same.
fn field(version: &Value, what: Moved) -> Option<&Value> {
    version.get(what.in_version()).filter(|value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    })
}

/// The versions as Go prints them.
pub(super) fn show_versions(spec: &Spec<'_>) -> String {
    if spec.raw.get("versions").is_none_or(Value::is_null) {
        return "null".to_owned();
    }
    let versions = spec.versions.iter().map(|version| {
        let own = |what| spec.own(version, what);
        let mut out = Struct::new();
        out.text("Name", version.get("name"));
        out.flag("ServedDefinition", version.get("served"));
        out.flag("Storage", version.get("storage"));
        out.flag("Deprecated", version.get("deprecated"));
        out.plain("DeprecationWarning", version.get("deprecationWarning"));
        out.optional("Schema", own(Moved::Schema), |schema| {
            let mut out = Struct::new();
            out.optional("OpenAPIV3Schema", schema.get("openAPIV3Schema"), show_schema);
            out.done()
        });
        out.optional("Subresources", own(Moved::Subresources), show_subresources);
        out.list("AdditionalPrinterColumns", own(Moved::Columns), |column| {
            let mut out = Struct::new();
            out.text("Name", column.get("name"));
            out.text("Type", column.get("type"));
            out.text("Format", column.get("format"));
            out.text("Description", column.get("description"));
            out.number("Priority", column.get("priority"));
            out.text("JSONPath", column.get("jsonPath"));
            out.done()
        });
        out.list("SelectableFields", own(Moved::SelectableFields), |selectable| {
            let mut out = Struct::new();
            out.text("JSONPath", selectable.get("jsonPath"));
            out.done()
        });
        out.done()
    });
    format!("[{}]", versions.collect::<Vec<_>>().join(","))
}

fn show_subresources(subresources: &Value) -> String {
    let mut out = Struct::new();
    out.optional("Status", subresources.get("status"), |_| "{}".to_owned());
    out.optional("Scale", subresources.get("scale"), |scale| {
        let mut out = Struct::new();
        out.text("SpecReplicasPath", scale.get("specReplicasPath"));
        out.text("StatusReplicasPath", scale.get("statusReplicasPath"));
        out.plain("LabelSelectorPath", scale.get("labelSelectorPath"));
        out.done()
    });
    out.done()
}

/// A schema as Go prints it.
pub(super) fn show_schema(schema: &Value) -> String {
    let mut out = Struct::new();
    for (go_name, name, kind) in SCHEMA_FIELDS {
        let value = schema.get(name);
        match kind {
            Kind::Text => out.text(go_name, value),
            Kind::Flag => out.flag(go_name, value),
            Kind::Plain => out.plain(go_name, value),
            Kind::Schema => out.optional(go_name, value, show_schema),
            Kind::Schemas => out.list(go_name, value, show_schema),
            Kind::SchemaMap => out.map(go_name, value, show_schema),
            Kind::SchemaOrArray => out.optional(go_name, value, |value| {
                let mut out = Struct::new();
                out.optional(
                    "Schema",
                    Some(value).filter(|v| v.as_object().is_some()),
                    show_schema,
                );
                out.list("JSONSchemas", Some(value), show_schema);
                out.done()
            }),
            Kind::SchemaOrBool => out.optional(go_name, value, |value| {
                let mut out = Struct::new();
                let is_schema = value.as_object().is_some();
                out.raw(
                    "Allows",
                    if is_schema || *value == Value::Bool(true) { "true" } else { "false" },
                );
                out.optional("Schema", Some(value).filter(|_| is_schema), show_schema);
                out.done()
            }),
            Kind::SchemaOrStrings => out.map(go_name, value, |value| {
                let mut out = Struct::new();
                out.optional(
                    "Schema",
                    Some(value).filter(|v| v.as_object().is_some()),
                    show_schema,
                );
                out.plain("Property", Some(value).filter(|v| v.as_array().is_some()));
                out.done()
            }),
            Kind::Docs => out.optional(go_name, value, |docs| {
                let mut out = Struct::new();
                out.text("Description", docs.get("description"));
                out.text("URL", docs.get("url"));
                out.done()
            }),
            Kind::Rules => out.list(go_name, value, |rule| ValidationRule::read(rule).show()),
        }
    }
    out.done()
}

/// How Go holds a field of a schema.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Flag,
    /// A pointer, a list or JSON: printed as it is, null if it is not there.
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

/// The fields of a schema in Go's order: Go's name, ours, and what they hold.
pub(super) const SCHEMA_FIELDS: [(&str, &str, Kind); 44] = [
    ("ID", "id", Kind::Text),
    ("Schema", "$schema", Kind::Text),
    ("Ref", "$ref", Kind::Plain),
    ("Description", "description", Kind::Text),
    ("Type", "type", Kind::Text),
    ("Nullable", "nullable", Kind::Flag),
    ("Format", "format", Kind::Text),
    ("Title", "title", Kind::Text),
    ("Default", "default", Kind::Plain),
    ("Maximum", "maximum", Kind::Plain),
    ("ExclusiveMaximum", "exclusiveMaximum", Kind::Flag),
    ("Minimum", "minimum", Kind::Plain),
    ("ExclusiveMinimum", "exclusiveMinimum", Kind::Flag),
    ("MaxLength", "maxLength", Kind::Plain),
    ("MinLength", "minLength", Kind::Plain),
    ("Pattern", "pattern", Kind::Text),
    ("MaxItems", "maxItems", Kind::Plain),
    ("MinItems", "minItems", Kind::Plain),
    ("UniqueItems", "uniqueItems", Kind::Flag),
    ("MultipleOf", "multipleOf", Kind::Plain),
    ("Enum", "enum", Kind::Plain),
    ("MaxProperties", "maxProperties", Kind::Plain),
    ("MinProperties", "minProperties", Kind::Plain),
    ("Required", "required", Kind::Plain),
    ("Items", "items", Kind::SchemaOrArray),
    ("AllOf", "allOf", Kind::Schemas),
    ("OneOf", "oneOf", Kind::Schemas),
    ("AnyOf", "anyOf", Kind::Schemas),
    ("Not", "not", Kind::Schema),
    ("Properties", "properties", Kind::SchemaMap),
    ("AdditionalProperties", "additionalProperties", Kind::SchemaOrBool),
    ("PatternProperties", "patternProperties", Kind::SchemaMap),
    ("Dependencies", "dependencies", Kind::SchemaOrStrings),
    ("AdditionalItems", "additionalItems", Kind::SchemaOrBool),
    ("Definitions", "definitions", Kind::SchemaMap),
    ("ExternalDocs", "externalDocs", Kind::Docs),
    ("Example", "example", Kind::Plain),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", Kind::Plain),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Kind::Flag),
    ("XIntOrString", "x-kubernetes-int-or-string", Kind::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Kind::Plain),
    ("XListType", "x-kubernetes-list-type", Kind::Plain),
    ("XMapType", "x-kubernetes-map-type", Kind::Plain),
    ("XValidations", "x-kubernetes-validations", Kind::Rules),
];

/// Writes a struct field by field, as `json.Marshal` does where there are no tags.
struct Struct(Vec<u8>);

impl Struct {
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
