//! Raw fields under patches: text that a patch does not touch stays, unless Go goes through unstructured
//! objects.

use meta::{RawJson, Value, json, value};
use schema::{Field, NodeType, Schema, Type};

use crate::{json_patch::JsonPatch, json_text::parse, merge, strategic};

fn revision() -> Value {
    let text = r#"{"b":{"y":1,"x":2},"a":1}"#;
    let data: Value = RawJson::new(text, parse(text).unwrap()).into();
    value!({"data": (data), "revision": 1i64})
}

#[test]
fn json_and_merge_patches_leave_other_raw_fields_alone() {
    let cases = [
        (
            r#"[{"op":"replace","path":"/revision","value":2}]"#,
            r#"{"data":{"b":{"y":1,"x":2},"a":1},"revision":2}"#,
        ),
        (
            r#"[{"op":"replace","path":"/data/a","value":2}]"#,
            r#"{"data":{"a":2,"b":{"x":2,"y":1}},"revision":1}"#,
        ),
        (r#"[{"op":"remove","path":"/data/b/y"}]"#, r#"{"data":{"a":1,"b":{"x":2}},"revision":1}"#),
        (
            r#"[{"op":"test","path":"/data","value":{"a":1,"b":{"x":2,"y":1}}}]"#,
            r#"{"data":{"b":{"y":1,"x":2},"a":1},"revision":1}"#,
        ),
        (
            r#"[{"op":"move","from":"/data/b/x","path":"/x"}]"#,
            r#"{"data":{"a":1,"b":{"y":1}},"revision":1,"x":2}"#,
        ),
    ];
    for (patch, expected) in cases {
        let patched =
            JsonPatch::decode(&parse(patch).unwrap()).unwrap().apply(&revision()).unwrap();
        assert_eq!(json::to_string(&patched), expected, "{patch}");
    }
    let cases = [
        (r#"{"revision":2}"#, r#"{"data":{"b":{"y":1,"x":2},"a":1},"revision":2}"#),
        (r#"{"data":{"a":null,"c":3}}"#, r#"{"data":{"b":{"x":2,"y":1},"c":3},"revision":1}"#),
        (r#"{"data":[1]}"#, r#"{"data":[1],"revision":1}"#),
        (r#"{"data":null}"#, r#"{"revision":1}"#),
    ];
    for (patch, expected) in cases {
        let patched = merge::apply(&revision(), &parse(patch).unwrap()).unwrap();
        assert_eq!(json::to_string(&patched), expected, "{patch}");
    }
}

#[test]
fn a_strategic_patch_sorts_raw_fields_as_go_does() {
    let mut schema = Schema::default();
    let mut ty = Type::default();
    let field = |name: &str, kind: NodeType| Field {
        name: name.into(),
        node: kind.into(),
        ..Field::default()
    };
    ty.fields = vec![field("data", NodeType::Raw), field("revision", NodeType::Int64)];
    let ty = schema.add(ty);
    let patch = parse(r#"{"revision":2}"#).unwrap();
    let patched = strategic::apply(&revision(), &patch, &schema, ty).unwrap();
    assert_eq!(json::to_string(&patched), r#"{"data":{"a":1,"b":{"x":2,"y":1}},"revision":2}"#);
}
