//! OpenAPI v2 (Swagger): one document for everything.

use meta::{Map, Str, Value, json, value};

use super::assemble::{Assembler, EncodedMembers};
use super::definitions::{Definitions, Dialect, group_version_kind};
use super::protobuf::{FieldEncoding, Message, tables};
use super::v3::reason;
use super::{Content, DocumentEncoding, DocumentSource, Operation, Param, ParamLocation, Path};

/// The document about all paths. `foreign` are parts of other servers' documents, with `paths`,
/// `definitions` and `parameters`. Their definitions get other names where one of another content is here;
/// paths and parameters that are here are left out.
pub fn v2_document(
    source: DocumentSource<'_>,
    paths: &[Path],
    foreign: impl Iterator<Item = Value>,
    encoding: DocumentEncoding,
) -> Vec<u8> {
    let definitions = Definitions::new(source, Dialect::V2, None);
    let mut writer = Writer { definitions, encoding, shared: EncodedMembers::new() };
    let member = |path: &Path| {
        let written = encoding.encode(&writer.path(path), &tables::V2_PATH);
        (Str::from(path.path.as_str()), written)
    };
    let mut paths: EncodedMembers = paths.iter().map(member).collect();
    let mut definitions =
        writer.definitions.finish(|definition| encoding.encode(definition, &tables::V2_SCHEMA));
    for part in foreign {
        let part = with_free_names(part, &definitions, encoding);
        let add = |to: &mut EncodedMembers, name: &str, message: &Message| {
            for (name, value) in members(&part, name) {
                to.entry(name.clone()).or_insert_with(|| encoding.encode(value, message));
            }
        };
        add(&mut paths, "paths", &tables::V2_PATH);
        add(&mut definitions, "definitions", &tables::V2_SCHEMA);
        add(&mut writer.shared, "parameters", &Message::Parameter);
    }

    let mut document = Assembler::new(encoding);
    document.value("swagger", 1, &value!("2.0"), &FieldEncoding::String);
    let info = value!({"title": "Kubernetes", "version": (source.version)});
    document.value("info", 2, &info, &FieldEncoding::SubMessage(&tables::V2_INFO));
    document.encoded_members("paths", 8, 2, paths);
    document.encoded_members("definitions", 9, 1, definitions);
    document.encoded_members("parameters", 10, 1, writer.shared);
    let security = value!([{"BearerToken": []}]);
    document.value(
        "security",
        12,
        &security,
        &FieldEncoding::RepeatedMessage(&tables::V2_SECURITY),
    );
    let bearer = value!({
        "BearerToken": {
            "description": "Bearer Token authentication",
            "type": "apiKey",
            "name": "authorization",
            "in": "header",
        },
    });
    let encoding = FieldEncoding::SubMessage(&tables::V2_SECURITY_DEFINITIONS);
    document.value("securityDefinitions", 13, &bearer, &encoding);
    document.finish()
}

fn members<'v>(part: &'v Value, name: &str) -> impl Iterator<Item = (&'v Str, &'v Value)> {
    part.get(name).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

/// A part whose definitions have the names of none that is here, unless they are the same. Compat: the
/// names get the suffix that kube-apiserver gives them, `_v2`.
fn with_free_names(part: Value, known: &EncodedMembers, encoding: DocumentEncoding) -> Value {
    let encode = |definition: &Value| encoding.encode(definition, &tables::V2_SCHEMA);
    let taken: Vec<Str> = members(&part, "definitions")
        .filter(|(name, value)| known.get(*name).is_some_and(|known| *known != encode(value)))
        .map(|(name, _)| name.clone())
        .collect();
    if taken.is_empty() {
        return part;
    }
    for number in 2..=SUFFIXES_MAX {
        let mut renamed = part.clone();
        rename(&mut renamed, &taken, number);
        // Another version of the same server has brought the same ones.
        let fits = taken.iter().all(|name| {
            let name = format!("{name}_v{number}");
            let own = renamed.at(&["definitions", &name]);
            known
                .get(name.as_str())
                .is_none_or(|known| own.is_some_and(|own| *known == encode(own)))
        });
        if fits {
            return renamed;
        }
    }
    // What is here already counts for those that are left.
    part
}

/// More servers than have different ideas of the same definition.
const SUFFIXES_MAX: usize = 100;

/// Gives definitions another name, and what refers to them. The decoder has bounded the depth.
fn rename(part: &mut Value, names: &[Str], number: usize) {
    if let Some(Value::Object(definitions)) = part.get_mut("definitions") {
        for name in names {
            if let Some(definition) = definitions.remove(name) {
                definitions.insert(format!("{name}_v{number}"), definition);
            }
        }
    }
    rename_references(part, names, number);
}

fn rename_references(value: &mut Value, names: &[Str], number: usize) {
    match value {
        Value::Object(members) => {
            for (key, member) in members.iter_mut() {
                let name = member.as_str().and_then(|text| text.strip_prefix("#/definitions/"));
                match name.filter(|_| key == "$ref") {
                    Some(name) if names.iter().any(|taken| taken == name) => {
                        *member = Value::string(format!("#/definitions/{name}_v{number}"));
                    }
                    _ => rename_references(member, names, number),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                rename_references(item, names, number);
            }
        }
        _ => {}
    }
}

struct Writer<'a> {
    definitions: Definitions<'a>,
    encoding: DocumentEncoding,
    /// Parameters that are written once and referred to, by their name in the document.
    shared: EncodedMembers,
}

impl Writer<'_> {
    fn path(&mut self, path: &Path) -> Value {
        let mut written: Map = path
            .operations
            .iter()
            .map(|operation| (operation.method, self.operation(operation)))
            .collect();
        if !path.params.is_empty() {
            let params: Vec<_> = path.params.iter().map(|shown| self.param(shown)).collect();
            written.insert("parameters", params);
        }
        written.into()
    }

    fn operation(&mut self, operation: &Operation) -> Value {
        let mut written = Map::new();
        written.insert("tags", vec![operation.tag.clone()]);
        written.insert("schemes", vec!["https"]);
        written.insert("description", operation.description.clone());
        written.insert("operationId", operation.id.clone());
        if !operation.consumes.is_empty() {
            written.insert("consumes", operation.consumes.to_vec());
        }
        written.insert("produces", operation.produces.clone());
        let body =
            operation.body.as_ref().map(|(definition, required)| self.body(definition, *required));
        let params = operation.params.iter().map(|shown| self.param(shown));
        let params: Vec<_> = body.into_iter().chain(params).collect();
        if !params.is_empty() {
            written.insert("parameters", params);
        }
        written.insert("responses", self.responses(operation));
        if let Some(action) = &operation.action {
            written.insert("x-kubernetes-action", action.name);
            written.insert("x-kubernetes-group-version-kind", group_version_kind(&action.kind));
        }
        written.into()
    }

    fn responses(&mut self, operation: &Operation) -> Map {
        let mut written = Map::from_iter([("401", value!({"description": "Unauthorized"}))]);
        for response in &operation.responses {
            let schema = match &response.content {
                Content::Text => value!({"type": "string"}),
                Content::Definition(name) => self.definitions.reference(name),
            };
            let described = value!({"description": (reason(response.code)), "schema": (schema)});
            written.insert(response.code.to_string(), described);
        }
        written
    }

    fn body(&mut self, definition: &Str, required: bool) -> Value {
        let schema = self.definitions.reference(definition);
        let mut written =
            Map::from_iter([("name", "body".into()), ("in", "body".into()), ("schema", schema)]);
        if required {
            written.insert("required", true);
        }
        // Options and patches are the same everywhere.
        if definition.starts_with("io.k8s.apimachinery") {
            return self.share("body", &written.into());
        }
        written.into()
    }

    fn param(&mut self, param: &Param) -> Value {
        let mut written = Map::new();
        written.insert("name", param.name.clone());
        written.insert("in", if param.location == ParamLocation::Path { "path" } else { "query" });
        written.insert("description", param.described(self.definitions.describe()).into_owned());
        written.insert("type", param.kind);
        written.insert("uniqueItems", true);
        if param.required() {
            written.insert("required", true);
        }
        // Compat: kubectl before v1.27 looks for the two in the operations themselves to find out what
        // the server can do. The description of a name has the kind in it.
        if ["name", "dryRun", "fieldValidation"].contains(&param.name.as_str()) {
            return written.into();
        }
        self.share(&param.name, &written.into())
    }

    /// Moves a parameter to those that are written once. The name has a hash of the content, because
    /// several parameters have the same name.
    fn share(&mut self, name: &str, param: &Value) -> Value {
        let key = format!("{name}-{}", hash(go_json(param).as_bytes()));
        let reference = value!({"$ref": (format!("#/parameters/{key}"))});
        let encode = || self.encoding.encode(param, &Message::Parameter);
        self.shared.entry(Str::from(key)).or_insert_with(encode);
        reference
    }
}

/// A parameter as Go writes it. Compat: the names of shared parameters are hashes of this text, in which members
/// have the order of Go's struct.
fn go_json(param: &Value) -> String {
    let order = ["uniqueItems", "type", "description", "name", "in", "required", "schema"];
    debug_assert!(
        param
            .as_object()
            .is_some_and(|param| { param.iter().all(|(name, _)| order.contains(&name.as_str())) })
    );
    let members = order.iter().filter_map(|name| {
        let value = param.get(name)?;
        Some(format!("\"{name}\":{}", json::to_string(value)))
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// Eight characters of base64, made of 48 bits of FNV-1.
fn hash(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte)
    });
    (0..8).map(|at| char::from(ALPHABET[(hash >> (58 - 6 * at) & 63) as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_of_others_get_names_that_are_free() {
        let json = DocumentEncoding::Json;
        let here = [("A", value!({"type": "object"})), ("B", value!({"type": "string"}))];
        let mut known: EncodedMembers = here
            .iter()
            .map(|(name, value)| (Str::from(*name), json.encode(value, &tables::V2_SCHEMA)))
            .collect();
        let part = |kind: &str| {
            value!({
                "paths": {"/x": {"$ref": "#/definitions/A"}, "/y": {"$ref": "#/definitions/C"}},
                "definitions": {
                    "A": {"type": kind, "items": [{"$ref": "#/definitions/A"}]},
                    "B": {"type": "string"},
                    "C": {"$ref": "#/definitions/A"},
                },
            })
        };
        let names = |part: &Value| -> Vec<String> {
            members(part, "definitions").map(|(name, _)| name.to_string()).collect()
        };
        let first = with_free_names(part("integer"), &known, json);
        assert_eq!(names(&first), ["A_v2", "B", "C"]);
        assert_eq!(first.str_at(&["paths", "/x", "$ref"]), "#/definitions/A_v2");
        assert_eq!(first.str_at(&["paths", "/y", "$ref"]), "#/definitions/C");
        assert_eq!(first.str_at(&["definitions", "C", "$ref"]), "#/definitions/A_v2");
        for (name, value) in members(&first, "definitions") {
            known.insert(name.clone(), json.encode(value, &tables::V2_SCHEMA));
        }
        // The same again, and others.
        let again = with_free_names(part("integer"), &known, json);
        assert!(names(&again).contains(&"A_v2".to_owned()), "{again:?}");
        let other = with_free_names(part("number"), &known, json);
        assert!(names(&other).contains(&"A_v3".to_owned()), "{other:?}");
    }

    #[test]
    fn parameters_are_hashed_as_go_writes_them() {
        let body = value!({
            "in": "body",
            "name": "body",
            "required": true,
            "schema": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Patch"},
        });
        let path = value!({
            "description": "path to the resource",
            "in": "path",
            "name": "path",
            "required": true,
            "type": "string",
            "uniqueItems": true,
        });
        for (param, expected) in [(body, "78PwaGsr"), (path, "z6Ciiujn")] {
            assert_eq!(hash(go_json(&param).as_bytes()), expected);
        }
    }

    #[test]
    fn hashes_are_those_of_kube_apiserver() {
        let cases = [("", "y_Kc5IQi"), ("a", "r2O9TIYB"), ("pretty", "eEE4gngf")];
        for (json, expected) in cases {
            assert_eq!(hash(json.as_bytes()), expected);
        }
    }
}
