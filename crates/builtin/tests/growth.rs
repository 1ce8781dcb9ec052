//! What a CustomResourceDefinition publishes is written in proportion to its size: OpenAPI in both versions and encodings.

use std::sync::Arc;

use builtin::Definitions;
use codec::json::{DecodeOptions, decode_any};
use meta::{GroupVersion, GroupVersionKind, Str, Value, growth::assert_linear};
use schema::openapi::{
    CustomDefinitions, CustomResource, DocumentEncoding, DocumentSource, NoDescriptions, Routes,
    TypesByKind, v2_document, v3_document,
};
use schema::{ResourceFacts, Schema};

fn read(text: &str) -> Value {
    decode_any(text.as_bytes(), DecodeOptions { strict: false }).expect("JSON").value
}

fn custom_resource(schema: &str) -> CustomResource {
    let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
    let facts = ResourceFacts {
        kind: GroupVersionKind::new("example.com", "v1", "Widget"),
        plural: "widgets".into(),
        singular: "widget".into(),
        namespaced: true,
        verbs: verbs.map(Str::new_static).to_vec(),
        list_kind: "WidgetList".into(),
        ..ResourceFacts::default()
    };
    CustomResource { facts, schema: Arc::from(schema), read, preserve_unknown: false }
}

fn source<'a>(schema: &'a Schema, custom: &'a CustomDefinitions<'a>) -> DocumentSource<'a> {
    DocumentSource { schema, describe: &NoDescriptions, custom, version: "1.36" }
}

#[test]
fn documents_of_custom_resources_are_written_in_linear_time() {
    let Definitions { schema, .. } = Definitions::load();
    let kinds = TypesByKind::of(&schema);
    let routes = Routes { schema: &schema, kinds: &kinds };
    let group_version = GroupVersion::parse("example.com/v1").expect("valid");
    let properties = |n: usize| {
        let property = |at: usize| match at % 4 {
            0 => format!(r#""p{at}":{{"type":"string","enum":["a","b"],"default":"a"}}"#),
            1 => format!(r#""p{at}":{{"type":"array","items":{{"type":"integer"}}}}"#),
            2 => format!(
                r#""p{at}":{{"type":"object","x-kubernetes-preserve-unknown-fields":true}}"#
            ),
            _ => format!(
                r#""p{at}":{{"anyOf":[{{"type":"integer"}}],"x-kubernetes-int-or-string":true,"nullable":true}}"#
            ),
        };
        let properties: Vec<String> = (0..n).map(property).collect();
        let required: Vec<String> = (0..n).map(|at| format!(r#""p{at}""#)).collect();
        let (properties, required) = (properties.join(","), required.join(","));
        let spec =
            format!(r#"{{"type":"object","required":[{required}],"properties":{{{properties}}}}}"#);
        custom_resource(&format!(r#"{{"type":"object","properties":{{"spec":{spec}}}}}"#))
    };
    for encoding in [DocumentEncoding::Json, DocumentEncoding::Protobuf] {
        assert_linear("v3", 1_000, properties, |custom| {
            let definitions = CustomDefinitions::of([custom]);
            let paths = routes.of_custom(&group_version, [custom]);
            drop(v3_document(
                source(&schema, &definitions),
                Some(&group_version),
                &paths,
                encoding,
            ));
        });
        assert_linear("v2", 1_000, properties, |custom| {
            let definitions = CustomDefinitions::of([custom]);
            let paths = routes.of_custom(&group_version, [custom]);
            drop(v2_document(source(&schema, &definitions), &paths, std::iter::empty(), encoding));
        });
    }
}
