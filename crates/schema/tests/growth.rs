//! Walks over custom resources by their schema: each costs no more than in proportion to the object, ends
//! when its request is cancelled, and fits the stack of a request's thread at the greatest depth.

use meta::{
    FieldErrors, FieldPath, Map, Str, Value,
    cancel::is_interruptible,
    growth::assert_linear,
    limits::{OBJECT_DEPTH_MAX, STRICT_ERRORS_MAX, TREE_BYTES_MAX, TreeSize},
    value,
};
use schema::structural::{RuleOptions, SCHEMA_DEPTH_MAX, Structural, UnknownFields};

fn structural(schema: Value) -> Structural {
    let root = value!({"type": "object", "properties": {"spec": (schema)}});
    Structural::new(&root).expect("a schema")
}

fn object(spec: Value) -> Value {
    value!({"apiVersion": "example.com/v1", "kind": "T", "metadata": {"name": "t"}, "spec": (spec)})
}

/// Everything that is done to an object of a client, in order.
fn all_steps(structural: &Structural, object: &Value) {
    let mut new = object.clone();
    let mut unknown = UnknownFields::default();
    structural.prune(&mut new, Some(&mut unknown));
    structural.drop_nulls(&mut new);
    let _ = structural.coerce_embedded(&mut new, false, Some(&mut unknown));
    let mut size = TreeSize::of(&new).expect("not too large");
    let _ = structural.default_within(&mut new, &mut size);
    structural.validate(&new, |_| {}, &mut FieldErrors::default());
    structural.validate_update(&new, object, |_| {}, &mut FieldErrors::default());
}

fn list(count: usize, item: impl Fn(usize) -> Value) -> Value {
    Value::Array((0..count).map(item).collect())
}

fn map(count: usize, value: impl Fn(usize) -> Value) -> Value {
    Value::Object((0..count).map(|at| (Str::from(format!("k{at}")), value(at))).collect::<Map>())
}

type Make = fn(usize) -> Value;

#[test]
fn objects_are_checked_in_linear_time() {
    let text = value!({"type": "string", "maxLength": 3i64, "pattern": "^[a-z]+$"});
    let item = value!({"type": "object", "required": ["k"],
        "properties": {"k": {"type": "string"}, "d": {"type": "string", "default": "x"}}});
    let embedded = value!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    let cases: [(&str, Value, Make); 9] = [
        ("wrong items", value!({"type": "array", "items": (text.clone())}), |n| {
            list(n, |_| Value::from("ABCDE"))
        }),
        ("items of the wrong type", value!({"type": "array", "items": (text)}), |n| {
            list(n, |_| Value::object())
        }),
        (
            "a set",
            value!({"type": "array", "x-kubernetes-list-type": "set",
            "items": {"type": "string"}}),
            |n| list(n, |at| Value::from(format!("v{at}"))),
        ),
        (
            "a set of one item",
            value!({"type": "array", "x-kubernetes-list-type": "set",
            "items": {"type": "string"}}),
            |n| list(n, |_| Value::from("v")),
        ),
        (
            "a list map",
            value!({"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "items": (item.clone())}),
            |n| list(n, |at| value!({"k": (format!("v{at}"))})),
        ),
        (
            "a list map without keys",
            value!({"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "items": (item.clone())}),
            |n| list(n, |_| Value::object()),
        ),
        (
            "a map with unknown fields",
            value!({"type": "object", "additionalProperties": (item)}),
            |n| map(n, |_| value!({"u": 1i64, "v": null})),
        ),
        ("embedded objects", value!({"type": "array", "items": (embedded)}), |n| {
            list(n, |_| value!({"apiVersion": "v1", "kind": "K", "metadata": {"u": 1i64}}))
        }),
        (
            "a rule for each item",
            value!({"type": "array", "maxItems": 100_000i64, "items": {
            "type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}}),
            |n| list(n, |at| Value::from(at as i64)),
        ),
    ];
    for (name, schema, make) in cases {
        let structural = structural(schema);
        assert_linear(name, 300, |n| object(make(n)), |object| all_steps(&structural, object));
        let object = object(make(10));
        assert!(is_interruptible(|| all_steps(&structural, &object)), "{name}");
        assert!(is_interruptible(|| structural.prune(&mut object.clone(), None)), "{name}");
        let validate = || structural.validate(&object, |_| {}, &mut FieldErrors::default());
        assert!(is_interruptible(validate), "{name}");
    }
}

/// Definitions are checked node by node.
#[test]
fn schemas_are_checked_in_linear_time() {
    let schema = |n: usize| {
        let property = |at: usize| match at % 3 {
            0 => value!({"type": "string", "default": "x", "enum": ["x", "y"]}),
            1 => value!({"type": "array", "items": {"type": "x"}}),
            _ => value!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}),
        };
        let spec = value!({"type": "object", "properties": (map(n, property))});
        value!({"type": "object", "properties": {"spec": (spec)}})
    };
    let check = |schema: &Value| {
        let structural = Structural::new(schema).expect("a schema");
        let path = FieldPath::new("spec");
        let mut errors = FieldErrors::default();
        structural.check(&path, &mut errors);
        structural.check_defaults(&path, true, &mut errors);
        let broken = FieldErrors::default();
        let how = RuleOptions { suppress_cost: false, broken: &broken };
        structural.check_rules(&path, &how, &mut errors);
    };
    assert_linear("properties", 100, schema, check);
    let schema = schema(10);
    assert!(is_interruptible(|| check(&schema)));
}

/// A key of a megabyte above 100 000 unknown fields was a list of 100 GB.
#[test]
fn unknown_fields_are_listed_up_to_a_bound() {
    let structural = structural(value!({"type": "object", "additionalProperties": {
        "type": "object", "properties": {"a": {"type": "string"}}}}));
    let unknown_fields = map(20_000, |_| Value::Null);
    let key = Str::from("k".repeat(1 << 20));
    let spec = Value::Object([(key, unknown_fields)].into_iter().collect::<Map>());
    let mut unknown = UnknownFields::default();
    structural.prune(&mut object(spec), Some(&mut unknown));
    assert_eq!(unknown.paths.len() + unknown.more, 20_000);
    assert_eq!(unknown.paths.len(), 4 * STRICT_ERRORS_MAX);
    assert!(unknown.paths.iter().map(String::len).sum::<usize>() < 1 << 20);
}

/// Three bytes of a body (`{},`) must not become kilobytes of memory.
#[test]
fn defaults_are_bounded() {
    let default = list(1_000, |_| Value::from("x"));
    let structural = structural(value!({"type": "array", "items": {"type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "string"}, "default": (default)}}}}));
    let apply = |items: usize| {
        let mut object = object(list(items, |_| Value::object()));
        let mut size = TreeSize::of(&object).expect("small");
        structural.default_within(&mut object, &mut size)
    };
    assert!(apply(100).is_ok());
    assert!(apply(TREE_BYTES_MAX / 32_000 + 1).is_err());
}

#[test]
fn the_deepest_objects_and_schemas_fit_a_small_stack() {
    let test = || {
        let free = value!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let deep =
            |levels: usize| (0..levels).fold(Value::from("x"), |inner, _| value!({"a": (inner)}));
        let free = structural(free);
        all_steps(&free, &object(deep(OBJECT_DEPTH_MAX - 1)));
        // Nested in every way, as deep as a definition may be.
        let nests: [fn(Value) -> Value; 3] = [
            |inner| value!({"type": "object", "properties": {"a": (inner)}}),
            |inner| value!({"type": "object", "additionalProperties": (inner)}),
            |inner| value!({"type": "array", "items": (inner)}),
        ];
        for (at, nest) in nests.into_iter().enumerate() {
            let mut schema = value!({"type": "string", "default": "x", "maxLength": 5i64,
                "x-kubernetes-validations": [{"rule": "self != 'z'"}]});
            let mut tree = Value::from("x");
            for _ in 0..SCHEMA_DEPTH_MAX - 4 {
                schema = nest(schema);
                tree = if at == 2 { Value::Array(vec![tree]) } else { value!({"a": (tree)}) };
            }
            let root = value!({"type": "object", "properties": {"spec": (schema)}});
            let structural = Structural::new(&root).expect("not too deep");
            let (path, mut errors) = (FieldPath::root(), FieldErrors::default());
            structural.check(&path, &mut errors);
            structural.check_defaults(&path, true, &mut errors);
            let broken = FieldErrors::default();
            let how = RuleOptions { suppress_cost: true, broken: &broken };
            structural.check_rules(&path, &how, &mut errors);
            all_steps(&structural, &object(tree));
        }
    };
    // A quarter of what a request has; debug builds take several times the stack.
    let stack_bytes = if cfg!(debug_assertions) { 4 << 20 } else { 2 << 20 };
    std::thread::Builder::new().stack_size(stack_bytes).spawn(test).unwrap().join().unwrap();
}
