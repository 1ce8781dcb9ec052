//! JSON merge patch (RFC 7396).

use meta::{Map, Value, cancel};

use crate::{PatchError, map_edit::MapEdit};

/// Members of the patch replace those of the object, null removes them, objects are merged.
pub fn apply(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    match patch {
        Value::Object(patch) => {
            let object = object.as_object().cloned().unwrap_or_default();
            Ok(merge(object, patch).into())
        }
        Value::Null => Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
        other => Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type \
             map[string]interface {{}}",
            other.type_name()
        ))),
    }
}

fn merge(object: Map, patch: &Map) -> Map {
    let mut object = MapEdit::new(object);
    for (key, new) in patch.iter() {
        cancel::checkpoint();
        let merged = match (object.take(key).map(Value::into_tree), new) {
            (_, Value::Null) => continue,
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new).into(),
            // Compat: a list that replaces an object is the only new value that keeps its nulls.
            (Some(Value::Object(_)), new @ Value::Array(_)) => new.clone(),
            (_, new) => without_nulls(new),
        };
        object.set(key, merged);
    }
    object.finish()
}

/// A null in a new value has nothing to remove and is dropped. In lists it stays.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect::<Map>().into()
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use meta::json;
    use proptest::prelude::*;

    use super::*;
    use crate::json_text::parse;

    #[test]
    fn patches_are_merged_as_the_rfc_says() {
        let cases = [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
            ("{}", r#"{"a":[null,{"b":null,"c":1}]}"#, r#"{"a":[null,{"c":1}]}"#),
            (r#"{"a":null}"#, r#"{"a":{"b":null}}"#, r#"{"a":{}}"#),
            (r#"{"a":{}}"#, r#"{"a":[{"b":null}]}"#, r#"{"a":[{"b":null}]}"#),
        ];
        for (object, patch, expected) in cases {
            let merged = apply(&parse(object).unwrap(), &parse(patch).unwrap()).unwrap();
            assert_eq!(json::to_string(&merged), expected);
        }
    }

    #[test]
    fn only_objects_are_patches() {
        for (patch, expected) in [
            ("null", "Invalid JSON Patch"),
            (
                "[]",
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
        ] {
            let error = apply(&Value::object(), &parse(patch).unwrap()).unwrap_err();
            assert_eq!(error, PatchError::Malformed(expected.to_owned()));
        }
    }

    proptest! {
        #[test]
        fn a_patch_applied_again_changes_nothing_more(
            object in crate::json_text::any_object(), patch in crate::json_text::any_object()
        ) {
            let once = apply(&object, &patch).unwrap();
            // The second time the list with nulls is merged into a list, and the nulls are dropped.
            let twice = apply(&once, &patch).unwrap();
            prop_assert_eq!(apply(&twice, &patch).unwrap(), twice);
        }
    }

    #[test]
    fn patches_cost_no_more_than_in_proportion() {
        let object = |from: usize, n: usize| -> Value {
            let member = |i: usize| (meta::Str::from(format!("{:07}", i * 7919 % 10_000_019)), i);
            let members = (from..from + n).map(member);
            let members: Map = members.map(|(key, i)| (key, Value::from(i as i64))).collect();
            members.into()
        };
        let made = |n: usize| (object(0, 3 * n), object(2 * n, n));
        meta::growth::assert_linear("keys into keys", 1_000, made, |(object, patch)| {
            apply(object, patch).unwrap();
        });
        let (object, patch) = made(10);
        assert!(cancel::is_interruptible(|| drop(apply(&object, &patch))));
    }

    #[test]
    fn the_deepest_patch_is_merged_on_a_small_stack() {
        let run = || {
            let levels = meta::limits::OBJECT_DEPTH_MAX;
            let deep = |leaf: &str| {
                let leaf = Value::from(leaf);
                (0..levels).fold(leaf, |inner, _| meta::value!({"a": (inner)}))
            };
            let (old, new) = (deep("x"), deep("y"));
            assert_eq!(apply(&old, &new).unwrap(), new);
            assert_eq!(apply(&meta::value!({}), &new).unwrap(), new);
        };
        // Debug builds take several times the stack.
        let stack_bytes = if cfg!(debug_assertions) { 4 << 20 } else { 1 << 20 };
        std::thread::Builder::new().stack_size(stack_bytes).spawn(run).unwrap().join().unwrap();
    }
}
