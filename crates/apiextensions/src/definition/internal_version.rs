//! kube-apiserver's internal version of a definition, which shows in its error messages: fields that are
//! the same in all versions move up into the spec, and structs are printed with Go's field names.

use std::collections::HashSet;

use meta::{
    Value, json,
    json::{write_string, write_value},
};
use schema::structural::ValidationRule;

/// The spec, with top-level fields apart from per-version ones.
pub(super) struct InternalSpec<'a> {
    pub raw: &'a Value,
    pub versions: &'a [Value],
    /// By [`PerVersionField`]: whether all versions have the same. Compared once: for each version, it
    /// would be as many comparisons as the square of their number.
    agreed: [bool; PER_VERSION_FIELDS.len()],
}

/// The fields that move from the versions into the spec if they are the same in all versions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PerVersionField {
    Schema,
    Subresources,
    Columns,
    SelectableFields,
}

const PER_VERSION_FIELDS: [PerVersionField; 4] = [
    PerVersionField::Schema,
    PerVersionField::Subresources,
    PerVersionField::Columns,
    PerVersionField::SelectableFields,
];

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
        let versions = raw.items_at(&["versions"]);
        let agreed = PER_VERSION_FIELDS.map(|what| {
            let mut pairs = versions.array_windows();
            pairs.all(|[version, next]| field(version, what) == field(next, what))
        });
        Self { raw, versions, agreed }
    }

    /// The value that all versions share.
    pub(super) fn top_level(&self, what: PerVersionField) -> Option<&'a Value> {
        let first = self.versions.first().filter(|_| self.agreed[what as usize])?;
        field(first, what)
    }

    /// The value of one version, unless all versions share it.
    pub(super) fn per_version(
        &self,
        version: &'a Value,
        what: PerVersionField,
    ) -> Option<&'a Value> {
        if self.agreed[what as usize] { None } else { field(version, what) }
    }

    /// The distinct schemas.
    pub(super) fn schemas(&self) -> Vec<&'a Value> {
        let schemas = self.versions.iter();
        let schemas = schemas.filter_map(|version| version.at(&["schema", "openAPIV3Schema"]));
        if self.agreed[PerVersionField::Schema as usize] {
            return schemas.take(1).collect();
        }
        let mut seen = HashSet::new();
        schemas.filter(|schema| seen.insert(json::to_string(schema))).collect()
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

/// The versions as Go prints them, as far as an error quotes them.
pub(super) fn show_versions(spec: &InternalSpec<'_>) -> String {
    if spec.raw.get("versions").is_none_or(Value::is_null) {
        return "null".to_owned();
    }
    let mut out = Vec::new();
    write_list(&mut out, spec.versions, |version, out| {
        let own = |what| spec.per_version(version, what);
        let mut out = GoStructWriter::new(out);
        out.text("Name", version.get("name"));
        out.flag("Served", version.get("served"));
        out.flag("Storage", version.get("storage"));
        out.flag("Deprecated", version.get("deprecated"));
        out.plain("DeprecationWarning", version.get("deprecationWarning"));
        out.optional("Schema", own(PerVersionField::Schema), |schema, out| {
            let mut out = GoStructWriter::new(out);
            out.optional("OpenAPIV3Schema", schema.get("openAPIV3Schema"), write_schema);
            out.done();
        });
        out.optional("Subresources", own(PerVersionField::Subresources), write_subresources);
        out.list("AdditionalPrinterColumns", own(PerVersionField::Columns), |column, out| {
            let mut out = GoStructWriter::new(out);
            out.text("Name", column.get("name"));
            out.text("Type", column.get("type"));
            out.text("Format", column.get("format"));
            out.text("Description", column.get("description"));
            out.number("Priority", column.get("priority"));
            out.text("JSONPath", column.get("jsonPath"));
            out.done();
        });
        out.list("SelectableFields", own(PerVersionField::SelectableFields), |selectable, out| {
            let mut out = GoStructWriter::new(out);
            out.text("JSONPath", selectable.get("jsonPath"));
            out.done();
        });
        out.done();
    });
    text_of(out)
}

/// A schema as Go prints it, as far as an error quotes it.
pub(super) fn show_schema(schema: &Value) -> String {
    let mut out = Vec::new();
    write_schema(schema, &mut out);
    text_of(out)
}

/// A list of schemas as Go prints it, as far as an error quotes it.
pub(super) fn show_schemas(schemas: &[Value]) -> String {
    let mut out = Vec::new();
    write_list(&mut out, schemas, write_schema);
    text_of(out)
}

fn text_of(out: Vec<u8>) -> String {
    String::from_utf8(out).expect("only UTF-8 is written")
}

fn write_subresources(subresources: &Value, out: &mut Vec<u8>) {
    let mut out = GoStructWriter::new(out);
    out.optional("Status", subresources.get("status"), |_, out| out.extend_from_slice(b"{}"));
    out.optional("Scale", subresources.get("scale"), |scale, out| {
        let mut out = GoStructWriter::new(out);
        out.text("SpecReplicasPath", scale.get("specReplicasPath"));
        out.text("StatusReplicasPath", scale.get("statusReplicasPath"));
        out.plain("LabelSelectorPath", scale.get("labelSelectorPath"));
        out.done();
    });
    out.done();
}

fn write_schema(schema: &Value, out: &mut Vec<u8>) {
    let mut out = GoStructWriter::new(out);
    for (go_name, name, kind) in SCHEMA_FIELDS {
        let value = schema.get(name);
        match kind {
            GoType::Text => out.text(go_name, value),
            GoType::Flag => out.flag(go_name, value),
            GoType::Plain => out.plain(go_name, value),
            GoType::Schema => out.optional(go_name, value, write_schema),
            GoType::Schemas => out.list(go_name, value, write_schema),
            GoType::SchemaMap => out.map(go_name, value, write_schema),
            GoType::SchemaOrArray => out.optional(go_name, value, |value, out| {
                let mut out = GoStructWriter::new(out);
                let schema = Some(value).filter(|value| value.as_object().is_some());
                out.optional("Schema", schema, write_schema);
                out.list("JSONSchemas", Some(value), write_schema);
                out.done();
            }),
            GoType::SchemaOrBool => out.optional(go_name, value, |value, out| {
                let mut out = GoStructWriter::new(out);
                let is_schema = value.as_object().is_some();
                let allows = is_schema || *value == Value::Bool(true);
                out.raw("Allows", if allows { "true" } else { "false" });
                out.optional("Schema", Some(value).filter(|_| is_schema), write_schema);
                out.done();
            }),
            GoType::SchemaOrStrings => out.map(go_name, value, |value, out| {
                let mut out = GoStructWriter::new(out);
                let schema = Some(value).filter(|value| value.as_object().is_some());
                out.optional("Schema", schema, write_schema);
                out.plain("Property", Some(value).filter(|value| value.as_array().is_some()));
                out.done();
            }),
            GoType::Docs => out.optional(go_name, value, |docs, out| {
                let mut out = GoStructWriter::new(out);
                out.text("Description", docs.get("description"));
                out.text("URL", docs.get("url"));
                out.done();
            }),
            GoType::Rules => out.list(go_name, value, |rule, out| {
                out.extend_from_slice(ValidationRule::read(rule).show().as_bytes());
            }),
        }
    }
    out.done();
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

/// Bytes after which no more members and items are written: errors quote less. A schema of 3 MB would
/// otherwise be a text of some hundred.
const SHOWN_BYTES_MAX: usize = 128 * 1024;

/// Writes a struct field by field, as Go's `json.Marshal` does without tags.
struct GoStructWriter<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
}

impl<'a> GoStructWriter<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_first: true }
    }

    fn name(&mut self, name: &str) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
        write_string(self.out, name);
        self.out.push(b':');
    }

    fn raw(&mut self, name: &str, value: &str) {
        self.name(name);
        self.out.extend_from_slice(value.as_bytes());
    }

    fn text(&mut self, name: &str, value: Option<&Value>) {
        self.name(name);
        write_string(self.out, value.and_then(Value::as_str).unwrap_or_default());
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
        self.name(name);
        write_value(self.out, value.unwrap_or(&Value::Null));
    }

    fn optional(
        &mut self,
        name: &str,
        value: Option<&Value>,
        write: impl Fn(&Value, &mut Vec<u8>),
    ) {
        match value.filter(|value| !value.is_null()) {
            Some(value) => {
                self.name(name);
                write(value, self.out);
            }
            None => self.raw(name, "null"),
        }
    }

    fn list(&mut self, name: &str, value: Option<&Value>, write: impl Fn(&Value, &mut Vec<u8>)) {
        match value.and_then(Value::as_array) {
            Some(items) => {
                self.name(name);
                write_list(self.out, items, write);
            }
            None => self.raw(name, "null"),
        }
    }

    fn map(&mut self, name: &str, value: Option<&Value>, write: impl Fn(&Value, &mut Vec<u8>)) {
        let Some(map) = value.and_then(Value::as_object) else { return self.raw(name, "null") };
        self.name(name);
        let mut members = GoStructWriter::new(self.out);
        for (key, value) in map.iter() {
            if members.out.len() > SHOWN_BYTES_MAX {
                break;
            }
            members.name(key);
            write(value, members.out);
        }
        members.done();
    }

    fn done(self) {
        self.out.push(b'}');
    }
}

fn write_list(out: &mut Vec<u8>, items: &[Value], write: impl Fn(&Value, &mut Vec<u8>)) {
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if out.len() > SHOWN_BYTES_MAX {
            break;
        }
        if at > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
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

    /// Two versions that differ, each with a schema of 20 000 properties: a megabyte is not made a
    /// hundred to be cut afterwards.
    #[test]
    fn no_more_is_printed_than_is_quoted() {
        let version = |name: &str| {
            let property = |at: usize| (meta::Str::from(format!("{name}{at}")), value!({}));
            let properties = Value::Object((0..20_000).map(property).collect());
            value!({"name": name, "schema": {"openAPIV3Schema": {"properties": (properties)}}})
        };
        let versions = Value::Array(vec![version("a"), version("b")]);
        let definition = value!({"spec": {"versions": (versions)}});
        let spec = InternalSpec::of(&definition);
        assert_eq!(spec.schemas().len(), 2);
        let shown = show_versions(&spec);
        assert!(shown.len() > SHOWN_BYTES_MAX && shown.len() < 2 * SHOWN_BYTES_MAX);
        assert!(show_schema(spec.schemas()[0]).len() < 2 * SHOWN_BYTES_MAX);
    }

    #[test]
    fn fields_that_all_versions_share_are_at_the_top() {
        let version = |name: &str, columns: Value| {
            value!({"name": name, "schema": {"openAPIV3Schema": {"type": "object"}},
                "additionalPrinterColumns": (columns)})
        };
        let versions = |columns: [Value; 3]| {
            let [a, b, c] = columns;
            let versions = vec![version("a", a), version("b", b), version("c", c)];
            value!({"spec": {"versions": (Value::Array(versions))}})
        };
        let column = value!([{"name": "x"}]);
        for (columns, shared, own) in [
            ([column.clone(), column.clone(), column.clone()], true, 0),
            ([column.clone(), column.clone(), value!([])], false, 2),
            ([value!([]), Value::Null, value!([])], false, 0),
        ] {
            let definition = versions(columns);
            let spec = InternalSpec::of(&definition);
            assert_eq!(spec.top_level(PerVersionField::Columns).is_some(), shared);
            let per_version = |version| spec.per_version(version, PerVersionField::Columns);
            assert_eq!(spec.versions.iter().filter_map(per_version).count(), own);
            assert!(spec.top_level(PerVersionField::Schema).is_some());
            assert_eq!(spec.schemas().len(), 1);
        }
    }
}
