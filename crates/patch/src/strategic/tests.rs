use meta::{Value, json};
use proptest::prelude::*;
use schema::{Field, ListType, Node, NodeType, PatchStrategy, Schema, Type, TypeId};

use super::apply;
use crate::{PatchError, json_text::parse};

/// A recursive type with one field of each patch strategy.
fn item_schema() -> (Schema, TypeId) {
    let mut schema = Schema::default();
    let id = schema.add(Type::default());
    let item = || Node::from(NodeType::Object(id));
    let list = |node: Node| Node::from(NodeType::List(Box::new(node), ListType::Undeclared));
    let field = |name: &str, node: Node, patch: PatchStrategy| Field {
        name: name.into(),
        node,
        patch,
        ..Field::default()
    };
    let none = PatchStrategy::default;
    let merge = || PatchStrategy { merge: true, ..PatchStrategy::default() };
    let by_name = || PatchStrategy { merge_key: Some("name".into()), ..merge() };
    let raw = Node { definition: Some("RawExtension".into()), ..Node::default() };
    let fields = vec![
        field("name", NodeType::String.into(), none()),
        field("value", NodeType::String.into(), none()),
        field("other", NodeType::String.into(), none()),
        field("mergingList", list(item()), by_name()),
        field("nonMergingList", list(item()), none()),
        field("mergingIntList", list(NodeType::Int64.into()), merge()),
        field("nonMergingIntList", list(NodeType::Int64.into()), none()),
        field("mergeItemPtr", item(), by_name()),
        field("simpleMap", NodeType::Map(Box::new(NodeType::String.into())).into(), none()),
        field("replacingItem", raw, PatchStrategy { replace: true, ..none() }),
        field("retainKeysMap", item(), PatchStrategy { retain_keys: true, ..none() }),
    ];
    let mut ty = Type::default();
    ty.name = "MergeItem".into();
    ty.fields = fields;
    schema.set(id, ty);
    (schema, id)
}

#[track_caller]
fn check(original: &str, patch: &str, expected: &str) {
    let (schema, id) = item_schema();
    let got = match apply(&parse(original).unwrap(), &parse(patch).unwrap(), &schema, id) {
        Ok(merged) => json::to_string(&merged),
        Err(PatchError::Malformed(why)) => format!("400 {why}"),
        Err(PatchError::DoesNotApply(why)) => format!("422 {why}"),
        Err(error) => format!("500 {error}"),
    };
    assert_eq!(got, expected, "{original} + {patch}");
}

#[test]
fn objects_are_merged() {
    let cases = [
        (r#"{"name":"1","value":"1"}"#, r#"{"value":"2"}"#, r#"{"name":"1","value":"2"}"#),
        (r#"{"name":"1","value":"1"}"#, r#"{"value":null}"#, r#"{"name":"1"}"#),
        (
            r#"{"name":"1"}"#,
            r#"{"other":null,"simpleMap":{"x":null,"y":"1"}}"#,
            r#"{"name":"1","simpleMap":{"y":"1"}}"#,
        ),
        (
            r#"{"simpleMap":{"x":"1","y":"2"}}"#,
            r#"{"simpleMap":{"y":"3","z":"4"}}"#,
            r#"{"simpleMap":{"x":"1","y":"3","z":"4"}}"#,
        ),
        (
            r#"{"simpleMap":{"x":"1"}}"#,
            r#"{"simpleMap":{"$patch":"replace","y":"2"}}"#,
            r#"{"simpleMap":{"y":"2"}}"#,
        ),
        (
            r#"{"simpleMap":{"x":"1"}}"#,
            r#"{"simpleMap":{"$patch":"delete","x":"1"}}"#,
            r#"{"simpleMap":{}}"#,
        ),
        (r#"{"name":"1"}"#, r#"{"$patch":"replace","value":"2"}"#, r#"{"value":"2"}"#),
        (
            r#"{"name":"1"}"#,
            r#"{"mergeItemPtr":{"$patch":"delete"},"simpleMap":{"x":"1"}}"#,
            r#"{"name":"1","simpleMap":{"x":"1"}}"#,
        ),
        (
            r#"{"replacingItem":{"p":"1"}}"#,
            r#"{"replacingItem":{"q":null}}"#,
            r#"{"replacingItem":{"q":null}}"#,
        ),
        (r#"{"value":"1"}"#, r#"{"value":{"a":null}}"#, r#"{"value":{}}"#),
        (
            r#"{"mergeItemPtr":{"name":"1"}}"#,
            r#"{"mergeItemPtr":{"mergingList":[{"name":"2"}]}}"#,
            r#"{"mergeItemPtr":{"mergingList":[{"name":"2"}],"name":"1"}}"#,
        ),
        (r#"{"a":1}"#, "null", r#"{"a":1}"#),
    ];
    for (original, patch, expected) in cases {
        check(original, patch, expected);
    }
}

#[test]
fn lists_are_merged_by_their_key() {
    let cases = [
        (
            r#"{"mergingList":[{"name":"1"},{"name":"2","value":"2"}]}"#,
            r#"{"mergingList":[{"name":"2","value":"a"},{"name":"3"}]}"#,
            r#"{"mergingList":[{"name":"1"},{"name":"2","value":"a"},{"name":"3"}]}"#,
        ),
        (
            r#"{"mergingList":[{"name":"1"},{"name":"2"}]}"#,
            r#"{"mergingList":[{"name":"1","$patch":"delete"}]}"#,
            r#"{"mergingList":[{"name":"2"}]}"#,
        ),
        (
            r#"{"mergingList":[{"name":"1"},{"name":"2"}]}"#,
            r#"{"mergingList":[{"$patch":"replace"},{"name":"3"}]}"#,
            r#"{"mergingList":[{"name":"3"}]}"#,
        ),
        (
            r#"{"mergingList":[{"name":"1"}]}"#,
            r#"{"mergingList":[{"$patch":"replace"}]}"#,
            r#"{"mergingList":[]}"#,
        ),
        (
            r#"{"mergingList":[{"name":"1","mergingList":[{"name":"a","value":"1"}]}]}"#,
            r#"{"mergingList":[{"name":"1","mergingList":[{"name":"a","other":"2"},{"name":"b"}]}]}"#,
            r#"{"mergingList":[{"mergingList":[{"name":"a","other":"2","value":"1"},{"name":"b"}],"name":"1"}]}"#,
        ),
        // New list items are taken as they are, nulls included; decoding drops the nulls.
        (
            r#"{"mergingList":[{"name":"1"}]}"#,
            r#"{"mergingList":[{"name":"2","value":null}]}"#,
            r#"{"mergingList":[{"name":"2","value":null},{"name":"1"}]}"#,
        ),
        (
            "{}",
            r#"{"mergingList":[{"name":"1","value":null},{"name":"2","$patch":"delete"}]}"#,
            r#"{"mergingList":[{"name":"1"}]}"#,
        ),
        (r#"{"mergingList":[{"name":"1"}]}"#, r#"{"mergingList":null}"#, "{}"),
        (
            r#"{"mergingList":[{"name":"1"}]}"#,
            r#"{"mergingList":[]}"#,
            r#"{"mergingList":[{"name":"1"}]}"#,
        ),
        (
            r#"{"nonMergingList":[{"name":"1"},{"name":"2"}]}"#,
            r#"{"nonMergingList":[{"value":"3"}]}"#,
            r#"{"nonMergingList":[{"value":"3"}]}"#,
        ),
    ];
    for (original, patch, expected) in cases {
        check(original, patch, expected);
    }
}

#[test]
fn lists_of_scalars_are_united_or_replaced() {
    let cases = [
        (
            r#"{"mergingIntList":[1,2]}"#,
            r#"{"mergingIntList":[2,3]}"#,
            r#"{"mergingIntList":[1,2,3]}"#,
        ),
        (
            r#"{"mergingIntList":[1,2,3]}"#,
            r#"{"$deleteFromPrimitiveList/mergingIntList":[1,3]}"#,
            r#"{"mergingIntList":[2]}"#,
        ),
        (
            r#"{"nonMergingIntList":[1,2]}"#,
            r#"{"nonMergingIntList":[3]}"#,
            r#"{"nonMergingIntList":[3]}"#,
        ),
        (
            r#"{"nonMergingIntList":[1,2]}"#,
            r#"{"$deleteFromPrimitiveList/nonMergingIntList":[1]}"#,
            r#"{"nonMergingIntList":[2]}"#,
        ),
        (
            r#"{"name":"1"}"#,
            r#"{"$deleteFromPrimitiveList/mergingIntList":[1]}"#,
            r#"{"name":"1"}"#,
        ),
        (
            r#"{"mergingIntList":[1,2,3]}"#,
            r#"{"$deleteFromPrimitiveList/mergingIntList":[2],"$setElementOrder/mergingIntList":[4,3,1],"mergingIntList":[4]}"#,
            r#"{"mergingIntList":[4,3,1]}"#,
        ),
    ];
    for (original, patch, expected) in cases {
        check(original, patch, expected);
    }
}

#[test]
fn the_order_of_a_list_can_be_set() {
    let cases = [
        (
            r#"{"mergingIntList":[1,2,3]}"#,
            r#"{"$setElementOrder/mergingIntList":[3,2,1]}"#,
            r#"{"mergingIntList":[3,2,1]}"#,
        ),
        (
            r#"{"mergingIntList":[1,9,2]}"#,
            r#"{"$setElementOrder/mergingIntList":[2,1]}"#,
            r#"{"mergingIntList":[9,2,1]}"#,
        ),
        (
            r#"{"mergingList":[{"name":"1"},{"name":"x"},{"name":"2"}]}"#,
            r#"{"$setElementOrder/mergingList":[{"name":"3"},{"name":"2"},{"name":"1"}],"mergingList":[{"name":"3"},{"name":"2","value":"a"}]}"#,
            r#"{"mergingList":[{"name":"3"},{"name":"x"},{"name":"2","value":"a"},{"name":"1"}]}"#,
        ),
        (
            "{}",
            r#"{"$setElementOrder/mergingList":[{"name":"1"},{"name":"2"}],"mergingList":[{"name":"1"},{"name":"2"}]}"#,
            r#"{"mergingList":[{"name":"1"},{"name":"2"}]}"#,
        ),
        ("{}", r#"{"$setElementOrder/mergingList":[{"name":"1"}]}"#, "{}"),
        (
            r#"{"mergingList":[{"name":"1"},{"name":"2"}]}"#,
            r#"{"$setElementOrder/mergingList":[{"name":"1"}],"mergingList":[{"name":"2","$patch":"delete"}]}"#,
            r#"{"mergingList":[{"name":"1"}]}"#,
        ),
        (
            r#"{"mergingIntList":[1]}"#,
            r#"{"$setElementOrder/mergingIntList":[2,3],"mergingIntList":[3,2]}"#,
            "500 The order in patch list:\n[3 2]\n doesn't match $setElementOrder list:\n[2 3]\n",
        ),
        (
            r#"{"mergingList":[{"name":"1"}]}"#,
            r#"{"$setElementOrder/mergingList":[{"value":"1"}],"mergingList":[{"name":"1"}]}"#,
            "500 map: map[value:1] does not contain declared merge key: name",
        ),
        (
            r#"{"mergingList":[{"name":"1"}]}"#,
            r#"{"$setElementOrder/mergingList":[{"name":"2"},1]}"#,
            "500 value for key 1 is not a map",
        ),
        (
            "{}",
            r#"{"$setElementOrder/nope":["x"]}"#,
            "500 unable to find api field in struct MergeItem for the json field \"nope\"",
        ),
        ("{}", r#"{"$setElementOrder":[]}"#, "400 invalid patch format of setElementOrder list"),
        (
            "{}",
            r#"{"$setElementOrder/mergingList":1}"#,
            "500 expected a []interface {}, but received a int64",
        ),
    ];
    for (original, patch, expected) in cases {
        check(original, patch, expected);
    }
}

#[test]
fn retain_keys_clears_what_it_does_not_name() {
    let cases = [
        (
            r#"{"retainKeysMap":{"name":"1","value":"1"}}"#,
            r#"{"retainKeysMap":{"$retainKeys":["name","other"],"other":"2"}}"#,
            r#"{"retainKeysMap":{"name":"1","other":"2"}}"#,
        ),
        (
            r#"{"retainKeysMap":{"name":"1","value":"1"}}"#,
            r#"{"retainKeysMap":{"$retainKeys":["name"],"value":null}}"#,
            r#"{"retainKeysMap":{"name":"1"}}"#,
        ),
        (
            r#"{"mergingList":[{"name":"1","value":"1"}]}"#,
            r#"{"mergingList":[{"$retainKeys":["name","other"],"name":"1","other":"2"}]}"#,
            r#"{"mergingList":[{"name":"1","other":"2"}]}"#,
        ),
        (
            r#"{"retainKeysMap":{"name":"1"}}"#,
            r#"{"retainKeysMap":{"$retainKeys":["name"],"other":"2"}}"#,
            "400 invalid patch format of retainKeys",
        ),
        (
            r#"{"retainKeysMap":{"name":"1"}}"#,
            r#"{"retainKeysMap":{"$retainKeys":"name"}}"#,
            "400 invalid patch format of retainKeys",
        ),
    ];
    for (original, patch, expected) in cases {
        check(original, patch, expected);
    }
}

#[test]
fn contradictions_are_explained() {
    let original = r#"{"mergingList":[{"name":"1"}],"mergingIntList":[1],"simpleMap":{"x":"1"},"replacingItem":{"p":"1"},"bogus":{"x":1},"name":[1]}"#;
    let cases = [
        (
            r#"{"mergingList":[{"value":"1"}]}"#,
            "500 map: map[value:1] does not contain declared merge key: name",
        ),
        (
            r#"{"mergingList":[{"$patch":"delete"}]}"#,
            "500 map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (
            r#"{"mergingList":[{"$patch":"merge"}]}"#,
            "500 merging lists cannot yet be specified in the patch",
        ),
        (
            r#"{"mergingList":[{"$patch":"what"}]}"#,
            "500 unknown patch type: what in map: map[$patch:what]",
        ),
        (
            r#"{"simpleMap":{"$patch":"merge"}}"#,
            "500 unknown patch type: merge in map: map[$patch:merge]",
        ),
        (
            r#"{"simpleMap":{"$patch":1}}"#,
            "500 unknown patch type: %!s(int64=1) in map: map[$patch:1]",
        ),
        (r#"{"mergingIntList":["a"]}"#, "500 list element types are not identical: [[1] [a]]"),
        (r#"{"mergingIntList":[1.5]}"#, "500 list element types are not identical: [[1] [1.5]]"),
        (r#"{"$deleteFromPrimitiveList":[1]}"#, "400 invalid patch format of primitive list"),
        (
            r#"{"bogus":{"y":1}}"#,
            "500 unable to find api field in struct MergeItem for the json field \"bogus\"",
        ),
        (r#"{"name":[2]}"#, "500 expected slice or array type, but got: struct"),
        ("[]", "400 json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ];
    for (patch, expected) in cases {
        check(original, patch, expected);
    }
    check(
        r#"{"mergeItemPtr":{"simpleMap":{"x":{"y":1}}}}"#,
        r#"{"mergeItemPtr":{"simpleMap":{"x":{"y":2}}}}"#,
        "500 merging an object in json but data type is not struct, instead is: map",
    );
}

proptest! {
    #[test]
    fn any_patch_is_merged_or_refused(
        original in crate::json_text::any_object(), patch in crate::json_text::any_object(), directive in 0usize..5
    ) {
        // The random objects have the members a, b and c; they become fields and a directive.
        let names = ["$patch", "$retainKeys", "$setElementOrder/mergingList", "$deleteFromPrimitiveList/mergingIntList", "simpleMap"];
        let rename = |value: &Value| parse(&json::to_string(value)
            .replace("\"a\":", "\"mergingList\":")
            .replace("\"b\":", "\"mergingIntList\":")
            .replace("\"c\":", &format!("\"{}\":", names[directive]))).unwrap();
        let (schema, id) = item_schema();
        let _ = apply(&rename(&original), &rename(&patch), &schema, id);
    }
}

#[test]
fn long_lists_are_merged_in_linear_time() {
    type Make = fn(usize) -> (String, String);
    let (schema, ty) = item_schema();
    let cases: [(&str, Make); 6] = [
        ("new items", |n| (items(0..1), items(0..n))),
        ("the same items", |n| (items(0..n), items(0..n))),
        ("items in reverse order", |n| (items(0..n), items((0..n).rev()))),
        ("deletions", |n| {
            let gone = (0..n).map(|i| format!(r#"{{"name":"n{i}","$patch":"delete"}}"#));
            let gone = gone.collect::<Vec<_>>().join(",");
            (items(0..n), format!(r#"{{"mergingList":[{gone}]}}"#))
        }),
        ("an order", |n| {
            let order = (0..n).rev().map(|i| format!(r#"{{"name":"n{i}"}}"#));
            let order = order.collect::<Vec<_>>().join(",");
            (items(0..n), format!(r#"{{"$setElementOrder/mergingList":[{order}]}}"#))
        }),
        ("numbers", |n| {
            let numbers = |from: usize| {
                let numbers: Vec<String> = (from..from + n).map(|i| i.to_string()).collect();
                format!(r#"{{"mergingIntList":[{}]}}"#, numbers.join(","))
            };
            (numbers(0), numbers(n / 2))
        }),
    ];
    for (name, make) in cases {
        let made = |n: usize| {
            let (object, patch) = make(n);
            (parse(&object).unwrap(), parse(&patch).unwrap())
        };
        meta::growth::assert_linear(name, 500, made, |(object, patch)| {
            apply(object, patch, &schema, ty).unwrap();
        });
        let (object, patch) = made(100);
        assert!(meta::cancel::is_interruptible(|| drop(apply(&object, &patch, &schema, ty))));
    }
}

fn items(of: impl Iterator<Item = usize>) -> String {
    let items: Vec<String> = of.map(|i| format!(r#"{{"name":"n{i}","value":"v"}}"#)).collect();
    format!(r#"{{"mergingList":[{}]}}"#, items.join(","))
}
