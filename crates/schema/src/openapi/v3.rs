//! OpenAPI v3: one document per group version, and some for paths that belong to none.

use meta::{GroupVersion, Map, Str, Value, value};

use super::assemble::{Assembler, EncodedMembers};
use super::definitions::{Definitions, Dialect, group_version_kind};
use super::protobuf::{FieldEncoding, tables};
use super::{
    Content, Describe, DocumentEncoding, DocumentSource, Operation, Param, ParamLocation, Path,
};

/// A document about some paths. `home` is the group version that they belong to, if it is one.
pub fn v3_document(
    source: DocumentSource<'_>,
    home: Option<&GroupVersion>,
    paths: &[Path],
    encoding: DocumentEncoding,
) -> Vec<u8> {
    let mut writer = Writer { definitions: Definitions::new(source, Dialect::V3, home) };
    let member = |path: &Path| {
        let written = encoding.encode(&writer.path(path), &tables::V3_PATH);
        (Str::from(path.path.as_str()), written)
    };
    let paths: EncodedMembers = paths.iter().map(member).collect();
    let schemas = writer
        .definitions
        .finish(|definition| encoding.encode(definition, &tables::V3_SCHEMA_OR_REFERENCE));

    let mut components = Assembler::new(encoding);
    if !schemas.is_empty() {
        components.encoded_members("schemas", 1, 1, schemas);
    }
    // Compat: custom resources are published in documents of their own, with less detail.
    let custom = !source.custom.is_empty();
    let bearer = value!({
        "BearerToken": {
            "type": "apiKey",
            "description": "Bearer Token authentication",
            "name": "authorization",
            "in": "header",
        },
    });
    if !custom {
        components.value(
            "securitySchemes",
            7,
            &bearer,
            &FieldEncoding::SubMessage(&tables::V3_SECURITY),
        );
    }

    let mut document = Assembler::new(encoding);
    document.value("openapi", 1, &value!("3.0.0"), &FieldEncoding::String);
    let (title, version) =
        if custom { ("Kubernetes CRD Swagger", "v0.1.0") } else { ("Kubernetes", source.version) };
    let info = value!({"title": (title), "version": (version)});
    document.value("info", 2, &info, &FieldEncoding::SubMessage(&tables::V3_INFO));
    document.encoded_members("paths", 4, 1, paths);
    document.object("components", 5, components);
    document.finish()
}

struct Writer<'a> {
    definitions: Definitions<'a>,
}

impl Writer<'_> {
    fn path(&mut self, path: &Path) -> Value {
        let mut written: Map = path
            .operations
            .iter()
            .map(|operation| (operation.method, self.operation(operation)))
            .collect();
        if !path.params.is_empty() {
            written.insert("parameters", self.params(&path.params));
        }
        written.into()
    }

    fn params(&self, params: &[Param]) -> Vec<Value> {
        params.iter().map(|shown| param(shown, self.definitions.describe())).collect()
    }

    fn operation(&mut self, operation: &Operation) -> Value {
        let mut written = Map::new();
        written.insert("tags", vec![operation.tag.clone()]);
        written.insert("description", operation.description.clone());
        written.insert("operationId", operation.id.clone());
        if !operation.params.is_empty() {
            written.insert("parameters", self.params(&operation.params));
        }
        if let Some((definition, required)) = &operation.body {
            let schema = self.definitions.reference(definition);
            let mut body = Map::from_iter([("content", content(operation.consumes, &schema))]);
            if *required {
                body.insert("required", true);
            }
            written.insert("requestBody", body);
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
            let schema = self.schema(&response.content);
            written.insert(
                response.code.to_string(),
                value!({
                    "description": (reason(response.code)),
                    "content": (content(&operation.produces, &schema)),
                }),
            );
        }
        written
    }

    fn schema(&mut self, content: &Content) -> Value {
        match content {
            Content::Text => value!({"type": "string"}),
            Content::Definition(name) => self.definitions.reference(name),
        }
    }
}

fn content(media: &[&str], schema: &Value) -> Value {
    media
        .iter()
        .map(|&media| (Str::new(media), value!({"schema": (schema.clone())})))
        .collect::<Map>()
        .into()
}

fn param(param: &Param, describe: &dyn Describe) -> Value {
    let mut written = Map::new();
    written.insert("name", param.name.clone());
    written.insert("in", if param.location == ParamLocation::Path { "path" } else { "query" });
    written.insert("description", param.described(describe).into_owned());
    if param.required() {
        written.insert("required", true);
    }
    written.insert("schema", value!({"type": (param.kind), "uniqueItems": true}));
    written.into()
}

pub(super) fn reason(code: u16) -> &'static str {
    match code {
        201 => "Created",
        202 => "Accepted",
        _ => "OK",
    }
}
