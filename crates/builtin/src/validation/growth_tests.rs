//! Every list and map of a valid object of every kind, made long: validation may not cost more than in
//! proportion.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use meta::{
    Str, Value,
    cancel::is_interruptible,
    growth::{GROWTH_MAX, cpu_time_of},
    value,
};
use schema::{NodeType, Schema, TypeId};

use super::tests::{bases, kind, steps};
use crate::Definitions;

/// Items, and how much more four times as many may cost. What is quadratic shows in a few items already, together with what is
/// noise; larger sizes tell them apart, and only few come that far.
const SIZES: [(usize, f64); 3] = [(60, 4.6), (300, 5.0), (2_000, GROWTH_MAX)];

#[test]
fn validation_grows_no_faster_than_the_object() {
    let definitions = Definitions::load();
    let schema = Arc::new(Definitions::load().schema);
    let mut bases: Vec<(String, Value)> = bases().into_iter().collect();
    bases.sort_by(|a, b| a.0.cmp(&b.0));
    let cases = cases(&definitions, &schema, &bases);
    let next = AtomicUsize::new(0);
    let (count, too_fast) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let check = || {
        while let Some((name, base, path)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let kind = kind(&definitions, &schema, base);
            for distinct in [true, false] {
                count.fetch_add(1, Ordering::Relaxed);
                let growth_at = |n: usize| {
                    let [small, large] = [n, 4 * n].map(|n| {
                        let object = lengthened(base, path, n, distinct);
                        let cost = cpu_time_of(|| drop(steps(&kind, &value!({}), &object)));
                        cost.as_secs_f64()
                    });
                    // What takes less than this is not measured well.
                    large / small.max(5e-4)
                };
                if SIZES.iter().all(|(size, growth_max)| growth_at(*size) > *growth_max) {
                    let what = format!("{name} {} distinct={distinct}", path.join("."));
                    too_fast.lock().unwrap().push(what);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(check);
        check();
    });
    let (count, too_fast) = (count.into_inner(), too_fast.into_inner().unwrap());
    assert!(count > 200, "{count}");
    assert!(too_fast.is_empty(), "{too_fast:#?}");
}

/// A validator that goes through a list stops when its request is cancelled.
#[test]
fn validation_is_interruptible() {
    let definitions = Definitions::load();
    let schema = Arc::new(Definitions::load().schema);
    let bases = bases();
    let interrupted = bases.values().filter(|base| {
        let kind = kind(&definitions, &schema, base);
        is_interruptible(|| drop(steps(&kind, &value!({}), base)))
    });
    // The rest have no list, or one that is short for certain.
    let (interrupted, all) = (interrupted.count(), bases.len());
    assert!(interrupted * 3 > all * 2, "{interrupted} of {all}");
}

/// The shapes that made the server busy for seconds.
#[test]
fn wrong_items_are_counted_without_their_texts() {
    let definitions = Definitions::load();
    let schema = Arc::new(Definitions::load().schema);
    let mut pod =
        value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}});
    pod.set_at(&["spec", "containers"], vec![Value::object(); 20_000]);
    let controllers: Vec<Value> = (0..2_000i64)
        .map(|at| {
            let (name, uid) = (format!("n{at}"), format!("u{at}"));
            value!({"apiVersion": "v1", "kind": "Node", "name": (name), "uid": (uid), "controller": true})
        })
        .collect();
    let mut owned = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    owned.set_at(&["metadata", "ownerReferences"], controllers);
    for object in [pod, owned] {
        let kind = kind(&definitions, &schema, &object);
        let error = steps(&kind, &value!({}), &object).map(drop).expect_err("invalid");
        let status = error.status();
        assert!(status.message.contains(" more errors]"), "{}", status.message.len());
        let bytes = status.to_json().len();
        assert!(bytes < 2_000_000, "{bytes}");
    }
}

/// Definitions whose schemas are nested in every way are refused before anything recurses into them.
#[test]
fn a_schema_that_is_nested_too_deeply_is_refused_on_a_small_stack() {
    let nests: [fn(Value) -> Value; 7] = [
        |inner| value!({"not": (inner)}),
        |inner| value!({"type": "array", "items": (inner)}),
        |inner| value!({"type": "object", "additionalProperties": (inner)}),
        |inner| value!({"type": "object", "properties": {"a": (inner)}}),
        |inner| value!({"allOf": [(inner)]}),
        |inner| value!({"anyOf": [{}, (inner)]}),
        |inner| value!({"oneOf": [(inner)]}),
    ];
    let test = move || {
        let definitions = Definitions::load();
        let kinds = Arc::new(Definitions::load().schema);
        for nest in nests {
            for (levels, refused) in [(490, true), (100, false)] {
                let mut schema = value!({"type": "string"});
                for _ in 0..levels {
                    schema = nest(schema);
                }
                let schema = value!({"type": "object", "properties": {"spec": (schema)}});
                let crd = value!({
                    "apiVersion": "apiextensions.k8s.io/v1",
                    "kind": "CustomResourceDefinition",
                    "metadata": {"name": "as.example.com"},
                    "spec": {
                        "group": "example.com",
                        "scope": "Namespaced",
                        "names": {"plural": "as", "kind": "A"},
                        "versions": [{"name": "v1", "served": true, "storage": true,
                            "schema": {"openAPIV3Schema": (schema)}}],
                    },
                });
                let kind = kind(&definitions, &kinds, &crd);
                let text = match steps(&kind, &value!({}), &crd) {
                    Ok(_) => String::new(),
                    Err(error) => error.to_string(),
                };
                let too_deep = text.contains("must not be nested more than 128 levels deep");
                assert_eq!(too_deep, refused, "{levels}: {text}");
            }
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(test).unwrap().join().unwrap();
}

/// A base by its name, and the path of one of its lists or maps.
type Case<'a> = (&'a str, &'a Value, Vec<String>);

/// Every list and map once: the same field of the same type is validated by the same code in all kinds.
fn cases<'a>(
    definitions: &Definitions,
    schema: &Arc<Schema>,
    bases: &'a [(String, Value)],
) -> Vec<Case<'a>> {
    let mut seen = HashSet::new();
    let mut cases = Vec::new();
    for (name, base) in bases {
        let ty = kind(definitions, schema, base).facts.type_id;
        for path in containers(base) {
            if owner(schema, ty, &path).is_none_or(|owner| seen.insert(owner)) {
                cases.push((name.as_str(), base, path));
            }
        }
    }
    cases
}

/// The type that the path ends in, and its field.
fn owner(schema: &Schema, ty: TypeId, path: &[String]) -> Option<(TypeId, String)> {
    let root = NodeType::Object(ty);
    let (mut at, mut owner) = (&root, None);
    for step in path {
        at = match at {
            NodeType::Object(ty) => {
                owner = Some((*ty, step.clone()));
                &schema.get(*ty).field(step)?.node.kind
            }
            NodeType::List(item, _) | NodeType::Map(item) => &item.kind,
            _ => return None,
        };
    }
    owner
}

/// The paths of all lists and maps of texts, a list's items by the first.
fn containers(object: &Value) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = vec![(object, Vec::new())];
    while let Some((value, path)) = rest.pop() {
        let mut below = |step: &str, value| {
            let path: Vec<String> = path.iter().cloned().chain([step.to_owned()]).collect();
            rest.push((value, path));
        };
        match value {
            Value::Array(items) => {
                if let Some(first) = items.first() {
                    below("0", first);
                    found.push(path);
                }
            }
            Value::Object(map) => {
                map.iter().for_each(|(key, value)| below(key, value));
                let texts = map.values().all(|value| value.as_str().is_some());
                if texts
                    && matches!(
                        path.last().map(String::as_str),
                        Some("labels" | "annotations" | "data" | "matchLabels" | "nodeSelector")
                    )
                {
                    found.push(path);
                }
            }
            _ => {}
        }
    }
    found
}

/// The object with `n` items at `path`.
fn lengthened(object: &Value, path: &[String], n: usize, distinct: bool) -> Value {
    let mut object = object.clone();
    let mut target = &mut object;
    for step in path {
        target = match target {
            Value::Array(items) => &mut items[0],
            other => other.get_mut(step).expect("the path is there"),
        };
    }
    match target {
        Value::Array(items) => {
            let first = items[0].clone();
            *items = (0..n)
                .map(|at| if distinct { renamed(&first, at) } else { first.clone() })
                .collect();
        }
        Value::Object(map) => {
            *map = (0..n).map(|at| (Str::from(format!("key-{at}")), Value::from("v"))).collect();
        }
        _ => {}
    }
    object
}

/// The same with other texts and numbers at the top.
fn renamed(item: &Value, at: usize) -> Value {
    match item {
        Value::String(text) => Value::from(format!("{text}-{at}")),
        Value::Object(map) => {
            let members = map.iter().map(|(key, value)| match value {
                Value::String(text) => (key.clone(), Value::from(format!("{text}-{at}"))),
                Value::Number(_) => (key.clone(), Value::from(at as i64 + 1)),
                other => (key.clone(), other.clone()),
            });
            Value::Object(members.collect())
        }
        Value::Number(_) => Value::from(at as i64 + 1),
        other => other.clone(),
    }
}
