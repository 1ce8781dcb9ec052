//! OpenAPI v2 as v3, for aggregated servers that have no v3 of their own: kube-openapi's `ConvertV2ToV3`.
//! What v3 cannot say is lost.

use meta::{Map, Str, Value, value};

use super::DocumentEncoding;
use super::assemble::{Assembler, EncodedMembers};
use super::protobuf::{FieldEncoding, tables};

/// What the copies may have that v3 has in more places than v2: a schema for each media type of an operation, a
/// shared parameter for each use. The server of the document chooses both numbers, so that the copies could have
/// the square of its size; those beyond the bound are left out. The copies in Kubernetes' own document have 2 MB.
const COPIED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A v3 document from a v2 one: its `info`, `paths`, `definitions` and `parameters`. Whatever has not the form
/// that v2 prescribes is left out.
pub fn v3_from_v2(v2: &Value, encoding: DocumentEncoding) -> Vec<u8> {
    let empty = Map::new();
    let members = |name: &str| v2.get(name).and_then(Value::as_object).unwrap_or(&empty);
    let mut shared = Shared { parameters: members("parameters"), bytes_left: COPIED_BYTES_MAX };
    let paths: EncodedMembers = members("paths")
        .iter()
        .map(|(path, item)| {
            let item = path_item(item, &mut shared);
            (Str::from(path.as_str()), encoding.encode(&item, &tables::V3_PATH))
        })
        .collect();
    let schemas: EncodedMembers = members("definitions")
        .iter()
        .map(|(name, definition)| {
            let schema = schema(definition);
            let encoded = encoding.encode(&schema, &tables::V3_SCHEMA_OR_REFERENCE);
            (Str::from(name.as_str()), encoded)
        })
        .collect();
    let mut components = Assembler::new(encoding);
    if !schemas.is_empty() {
        components.encoded_members("schemas", 1, 1, schemas);
    }
    let mut document = Assembler::new(encoding);
    document.value("openapi", 1, &value!("3.0.0"), &FieldEncoding::String);
    let text = |field: &str| v2.str_at(&["info", field]).to_owned();
    let info = value!({"title": (text("title")), "version": (text("version"))});
    document.value("info", 2, &info, &FieldEncoding::SubMessage(&tables::V3_INFO));
    document.encoded_members("paths", 4, 1, paths);
    document.object("components", 5, components);
    document.finish()
}

/// The parameters that the document shares, and how much of what is shared may still be copied.
struct Shared<'a> {
    parameters: &'a Map,
    bytes_left: usize,
}

impl<'a> Shared<'a> {
    /// Whether a value may be copied.
    fn copies(&mut self, value: &Value) -> bool {
        let Some(left) = without(self.bytes_left, value) else {
            self.bytes_left = 0;
            return false;
        };
        self.bytes_left = left;
        true
    }

    /// The parameters, with those that the document shares in their places.
    fn resolved(&mut self, of: &'a Value) -> Vec<&'a Value> {
        let mut found = Vec::new();
        for parameter in of.items_at(&["parameters"]) {
            let Some(reference) = parameter.get("$ref") else {
                found.push(parameter);
                continue;
            };
            let name = reference.as_str().and_then(|text| text.strip_prefix("#/parameters/"));
            let shared = name.and_then(|name| self.parameters.get(name));
            found.extend(shared.filter(|shared| self.copies(shared)));
        }
        found
    }
}

/// What is left of so many bytes behind a value, roughly as memory and as text. It stops where nothing is left.
fn without(left: usize, value: &Value) -> Option<usize> {
    let left = left.checked_sub(VALUE_BYTES)?;
    match value {
        Value::String(text) => left.checked_sub(text.len()),
        Value::Array(items) => items.iter().try_fold(left, without),
        Value::Object(members) => members.iter().try_fold(left, |left, (name, member)| {
            without(left.checked_sub(VALUE_BYTES + name.len())?, member)
        }),
        _ => Some(left),
    }
}

const VALUE_BYTES: usize = size_of::<Value>();

const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

fn path_item<'a>(item: &'a Value, shared: &mut Shared<'a>) -> Value {
    let mut written = Map::new();
    for method in METHODS {
        if let Some(found) = item.get(method) {
            written.insert(method, operation(found, shared));
        }
    }
    let parameters: Vec<Value> = shared.resolved(item).into_iter().map(parameter).collect();
    if !parameters.is_empty() {
        written.insert("parameters", parameters);
    }
    copy_extensions(item, &mut written);
    written.into()
}

fn operation<'a>(operation: &'a Value, shared: &mut Shared<'a>) -> Value {
    let mut written = Map::new();
    for field in ["tags", "summary", "description", "externalDocs", "operationId", "deprecated"] {
        copy(operation, field, &mut written);
    }
    let mut parameters = Vec::new();
    for found in shared.resolved(operation) {
        match found.get("schema") {
            Some(body) if found.str_at(&["name"]) == "body" => {
                let content = content(operation, "consumes", body, shared);
                written.insert("requestBody", value!({"content": (content)}));
            }
            _ => parameters.push(parameter(found)),
        }
    }
    if !parameters.is_empty() {
        written.insert("parameters", parameters);
    }
    let empty = Map::new();
    let responses = operation.get("responses").and_then(Value::as_object).unwrap_or(&empty);
    let responses: Map = responses
        .iter()
        .filter(|(code, _)| !code.starts_with("x-"))
        .map(|(code, found)| {
            let mut response = Map::new();
            copy(found, "description", &mut response);
            if let Some(body) = found.get("schema") {
                response.insert("content", content(operation, "produces", body, shared));
            }
            (code.clone(), Value::from(response))
        })
        .collect();
    written.insert("responses", responses);
    copy_extensions(operation, &mut written);
    written.into()
}

/// The same schema for every media type of an operation.
fn content(operation: &Value, types: &str, body: &Value, shared: &mut Shared<'_>) -> Value {
    let schema = schema(body);
    let types = operation.items_at(&[types]).iter().filter_map(Value::as_str);
    let types = types.filter(|_| shared.copies(&schema));
    let content: Map = types.map(|media| (media, value!({"schema": (schema.clone())}))).collect();
    content.into()
}

fn parameter(found: &Value) -> Value {
    let mut written = Map::new();
    for field in ["name", "in", "description", "required", "allowEmptyValue"] {
        copy(found, field, &mut written);
    }
    let of_parameter = match found.get("schema") {
        Some(own) => schema(own),
        None => {
            let mut simple = Map::new();
            for field in ["type", "format", "uniqueItems"] {
                copy(found, field, &mut simple);
            }
            simple.into()
        }
    };
    written.insert("schema", of_parameter);
    copy_extensions(found, &mut written);
    written.into()
}

/// References point to components, and stand alone: v3 ignores what is beside one, so that it is wrapped. The
/// decoder has bounded the depth.
fn schema(found: &Value) -> Value {
    let Some(members) = found.as_object() else { return found.clone() };
    let mut written = Map::new();
    for (name, member) in members.iter() {
        let converted = match name.as_str() {
            "$ref" => continue,
            "properties" => match member.as_object() {
                Some(properties) => {
                    let converted = properties.iter().map(|(name, of)| (name.clone(), schema(of)));
                    Value::from(converted.collect::<Map>())
                }
                None => continue,
            },
            "items"
            | "additionalProperties"
            | "additionalItems"
            | "not"
            | "allOf"
            | "anyOf"
            | "oneOf" => schema_or_list(member),
            _ => member.clone(),
        };
        written.insert(name.clone(), converted);
    }
    let reference = members.get("$ref").and_then(Value::as_str);
    let Some(name) = reference.and_then(|text| text.strip_prefix("#/definitions/")) else {
        return written.into();
    };
    let reference = value!({"$ref": (format!("#/components/schemas/{name}"))});
    if written.is_empty() {
        return reference;
    }
    written.insert("allOf", vec![reference]);
    written.into()
}

fn schema_or_list(found: &Value) -> Value {
    match found {
        Value::Array(items) => Value::from(items.iter().map(schema).collect::<Vec<_>>()),
        other => schema(other),
    }
}

fn copy(from: &Value, field: &str, to: &mut Map) {
    if let Some(found) = from.get(field) {
        to.insert(field, found.clone());
    }
}

fn copy_extensions(from: &Value, to: &mut Map) {
    let Some(members) = from.as_object() else { return };
    for (name, member) in members.iter().filter(|(name, _)| name.starts_with("x-")) {
        to.insert(name.clone(), member.clone());
    }
}

#[cfg(test)]
mod tests {
    use meta::growth::assert_linear;

    use super::*;

    /// Schemas that are copied for every media type, and parameters that are used in every place.
    #[test]
    fn what_v3_copies_is_bounded_and_linear() {
        let document = |n: usize| {
            let media: Vec<Value> = (0..n).map(|at| Value::from(format!("a/{at}"))).collect();
            let properties = |n: usize| -> Map {
                let name = |at: usize| (Str::from(format!("p{at}")), value!({"type": "string"}));
                (0..n).map(name).collect()
            };
            let uses = vec![value!({"$ref": "#/parameters/large"}); n];
            let schema = value!({"type": "object", "properties": (properties(n))});
            value!({
                "paths": {"/x": {"parameters": (uses.clone()), "put": {
                    "consumes": (media.clone()), "produces": (media),
                    "parameters": (uses),
                    "responses": {"200": {"schema": (schema.clone())}, "201": {"schema": (schema.clone())}},
                }}},
                "parameters": {"large": {"name": "l", "in": "query", "schema": (schema)}},
            })
        };
        let converted = |v2: &Value| v3_from_v2(v2, DocumentEncoding::Json).len();
        for n in [1_000, 20_000] {
            let bytes = converted(&document(n));
            assert!(bytes < COPIED_BYTES_MAX, "{bytes} bytes of {n}");
        }
        // Above the bound, so that the copies do not grow any more.
        assert_linear("a document", 4_000, document, |v2| {
            std::hint::black_box(converted(v2));
        });
        let text = value!({"paths": {"/x": {"get": {
            "produces": (vec![Value::from("a/b"); 2_000]),
            "responses": {"200": {"schema": {"description": ("x".repeat(1_000_000))}}},
        }}}});
        assert!(converted(&text) < 2 * COPIED_BYTES_MAX);
    }

    #[test]
    fn a_document_of_v2_says_the_same_in_v3() {
        let v2 = value!({
            "swagger": "2.0",
            "info": {"title": "Flunders", "version": "v1"},
            "paths": {"/apis/g/v1/flunders/{name}": {
                "parameters": [{"$ref": "#/parameters/pretty"}, {"$ref": "#/parameters/gone"}],
                "put": {
                    "operationId": "replaceFlunder",
                    "consumes": ["*/*"],
                    "produces": ["application/json", "application/yaml"],
                    "parameters": [
                        {"name": "body", "in": "body", "required": true,
                         "schema": {"$ref": "#/definitions/Flunder"}},
                        {"name": "dryRun", "in": "query", "type": "string", "uniqueItems": true},
                    ],
                    "responses": {
                        "200": {"description": "OK", "schema": {"$ref": "#/definitions/Flunder"}},
                        "401": {"description": "Unauthorized"},
                    },
                    "x-kubernetes-action": "put",
                },
            }},
            "definitions": {"Flunder": {"type": "object", "properties": {
                "spec": {"description": "Its spec.", "$ref": "#/definitions/Spec"},
                "list": {"type": "array", "items": {"$ref": "#/definitions/Spec"}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
            }}, "Spec": {"type": "string"}},
            "parameters": {"pretty": {"name": "pretty", "in": "query", "type": "string"}},
        });
        let v3 = v3_from_v2(&v2, DocumentEncoding::Json);
        let v3 = String::from_utf8(v3).expect("JSON is text");
        let expected = concat!(
            r##"{"openapi":"3.0.0","info":{"title":"Flunders","version":"v1"},"##,
            r##""paths":{"/apis/g/v1/flunders/{name}":{"parameters":[{"in":"query","name":"pretty","##,
            r##""schema":{"type":"string"}}],"put":{"operationId":"replaceFlunder","##,
            r##""parameters":[{"in":"query","name":"dryRun","schema":{"type":"string","##,
            r##""uniqueItems":true}}],"requestBody":{"content":{"*/*":{"schema":"##,
            r##"{"$ref":"#/components/schemas/Flunder"}}}},"responses":{"200":{"content":"##,
            r##"{"application/json":{"schema":{"$ref":"#/components/schemas/Flunder"}},"##,
            r##""application/yaml":{"schema":{"$ref":"#/components/schemas/Flunder"}}},"##,
            r##""description":"OK"},"401":{"description":"Unauthorized"}},"##,
            r##""x-kubernetes-action":"put"}}},"components":{"schemas":{"##,
            r##""Flunder":{"properties":{"list":{"items":{"$ref":"#/components/schemas/Spec"},"##,
            r##""type":"array"},"map":{"additionalProperties":{"type":"string"},"type":"object"},"##,
            r##""spec":{"allOf":[{"$ref":"#/components/schemas/Spec"}],"description":"Its spec."}},"##,
            r##""type":"object"},"Spec":{"type":"string"}}}}"##,
        );
        assert_eq!(v3.trim_end(), expected);
        // Every part of it can be left out, or be of another form.
        for odd in [
            value!({}),
            value!({"paths": [], "definitions": 7, "info": 7}),
            value!({"paths": {"/x": {"get": {"parameters": [7, {"$ref": 7}], "responses": []}}}}),
            value!({"definitions": {"A": {"properties": 7, "$ref": 7, "items": [[{}]]}}}),
        ] {
            for encoding in [DocumentEncoding::Json, DocumentEncoding::Protobuf] {
                assert!(!v3_from_v2(&odd, encoding).is_empty());
            }
        }
    }
}
