//! Properties that hold for any schema and any object.

use meta::{FieldErrors, FieldPath, Map, Number, Str, Value};
use proptest::prelude::*;
use schema::structural::{RuleOptions, Structural, UnknownFields};

/// Names are few, so that schemas and objects meet.
fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "kind", "apiVersion", "metadata", "labels", "name"])
        .prop_map(ToOwned::to_owned)
}

fn object(depth: u32) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5i64..5).prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        "[a-z0-9.:-]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(depth, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((name(), inner), 0..5)
                .prop_map(|members| { Value::Object(members.into_iter().collect::<Map>()) }),
        ]
    })
}

fn schema() -> impl Strategy<Value = Value> {
    let ty = prop::sample::select(vec!["object", "array", "string", "integer", "number", ""]);
    let keywords = prop::sample::subsequence(keywords(), 0..4);
    let leaf = (ty, keywords).prop_map(|(ty, keywords)| {
        let mut schema: Map = keywords.into_iter().collect();
        schema.insert("type", ty);
        Value::Object(schema)
    });
    leaf.prop_recursive(4, 48, 4, |inner| {
        let some = prop::collection::vec((name(), inner.clone()), 0..4);
        (some, inner.clone(), inner.clone(), any::<[bool; 3]>(), prop::option::of(object(2)))
            .prop_map(
                |(
                    properties,
                    items,
                    nested,
                    [with_items, with_nested, with_additional],
                    default,
                )| {
                    let mut schema = Map::new();
                    schema.insert("type", if with_items { "array" } else { "object" });
                    let properties: Map = properties.into_iter().collect();
                    schema.insert("properties", properties);
                    if with_items {
                        schema.insert("items", items);
                    } else if with_additional {
                        schema.insert("additionalProperties", items);
                    }
                    if with_nested {
                        schema.insert("anyOf", Value::Array(vec![nested]));
                    }
                    if let Some(default) = default {
                        schema.insert("default", default);
                    }
                    Value::Object(schema)
                },
            )
    })
}

fn keywords() -> Vec<(Str, Value)> {
    let list = |items: &[&str]| Value::Array(items.iter().map(|item| Value::from(*item)).collect());
    let rules =
        meta::value!([{"rule": "self == oldSelf"}, {"rule": "size(self) > 1"}, {"rule": "("}]);
    let pairs = [
        ("nullable", Value::from(true)),
        ("x-kubernetes-preserve-unknown-fields", Value::from(true)),
        ("x-kubernetes-embedded-resource", Value::from(true)),
        ("x-kubernetes-int-or-string", Value::from(true)),
        ("x-kubernetes-list-type", Value::from("map")),
        ("x-kubernetes-list-map-keys", list(&["a", "b"])),
        ("x-kubernetes-validations", rules),
        ("default", Value::from("x")),
        ("enum", list(&["a", "b"])),
        ("required", list(&["a"])),
        ("pattern", Value::from("^[a-z]+$")),
        ("format", Value::from("date-time")),
        ("maximum", Value::Number(Number::Float(1.5))),
        ("multipleOf", Value::from(0i64)),
        ("maxLength", Value::from(-1i64)),
        ("uniqueItems", Value::from(true)),
    ];
    pairs.into_iter().map(|(name, value)| (Str::new(name), value)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn pruning_defaulting_and_null_removal_are_idempotent(schema in schema(), object in object(4)) {
        let Ok(structural) = Structural::new(&schema) else { return Ok(()) };
        let mut pruned = object.clone();
        structural.prune(&mut pruned, None);
        let mut again = pruned.clone();
        let mut unknown = UnknownFields::default();
        structural.prune(&mut again, Some(&mut unknown));
        prop_assert_eq!(&pruned, &again);
        prop_assert!(unknown.paths.is_empty(), "nothing is unknown any more");
        let mut filled = object.clone();
        structural.default(&mut filled);
        let mut again = filled.clone();
        structural.default(&mut again);
        prop_assert_eq!(&filled, &again);
        let mut dropped = object;
        structural.drop_nulls(&mut dropped);
        let mut again = dropped.clone();
        structural.drop_nulls(&mut again);
        prop_assert_eq!(dropped, again);
    }

    #[test]
    fn nothing_panics(
        schema in schema(),
        mut new in object(4),
        old in object(4),
    ) {
        let Ok(mut structural) = Structural::new(&schema) else { return Ok(()) };
        let mut errors = FieldErrors::default();
        structural.check(&FieldPath::root(), &mut errors);
        structural.check_defaults(&FieldPath::root(), true, &mut errors);
        let how = RuleOptions { suppress_cost: false, broken: &FieldErrors::default() };
        structural.check_rules(&FieldPath::root(), &how, &mut errors);
        structural.prune_defaults();
        structural.validate(&new, |_| {}, &mut errors);
        structural.validate_update(&new, &old, |_| {}, &mut errors);
        structural.validate_status(&new, &old, |_| {}, &mut errors);
        let _ = structural.coerce_embedded(&mut new, true, None);
    }
}
