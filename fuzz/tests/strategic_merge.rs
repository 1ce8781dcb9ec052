//! Strategic merge against a model: of any two objects of a type the difference can be written as a patch, in several ways, and
//! each of them turns the first into the second. The model is the writer of patches; it knows what the strategies mean and
//! nothing of how they are carried out.

use std::collections::BTreeSet;

use fuzz::{Objects, Random, definitions};
use meta::{Map, Value, json, value};
use patch::strategic;
use schema::{Field, Node, NodeType, Schema, TypeId};

#[test]
fn the_diff_patch_turns_one_object_into_the_other() {
    let schema = &definitions().schema;
    let mut written = BTreeSet::new();
    for (id, ty) in schema.types().filter(|(_, ty)| !ty.kinds.is_empty()) {
        for round in 0..12 {
            let mut random = Random::new(u64::from(id.0) << 16 | round);
            let objects = Objects { filled_percent: 40, ..Objects::new(schema) };
            let mut before = objects.object(id, &mut random);
            tidy(&mut before, id, schema, &mut random);
            let mut after = mix(&before, &objects.object(id, &mut random), id, schema, &mut random);
            tidy(&mut after, id, schema, &mut random);
            // Go patches unstructured objects, so raw fields lose their text.
            let raw = before.clone();
            before.flatten_raw();
            after.flatten_raw();
            let mut writer = Writer { schema, random: &mut random, written: &mut written };
            let patch = writer.object(&before, &after, id);
            let patched = strategic::apply(&raw, &patch, schema, id);
            let patched = patched.unwrap_or_else(|error| {
                panic!(
                    "{}: {error}\n{}\n+ {}",
                    ty.name,
                    json::to_string(&before),
                    json::to_string(&patch)
                )
            });
            assert!(
                patched == after,
                "{}, round {round}:\n  {}\n+ {}\n= {}\nnot\n  {}",
                ty.name,
                json::to_string(&before),
                json::to_string(&patch),
                json::to_string(&patched),
                json::to_string(&after),
            );
            // Equal objects need no patch.
            assert_eq!(strategic::apply(&after, &Value::object(), schema, id).as_ref(), Ok(&after));
        }
    }
    let all = [
        "atomic",
        "delete item",
        "delete primitive",
        "merge",
        "nothing",
        "order",
        "replace list",
        "replace object",
        "retain keys",
    ];
    assert_eq!(written.into_iter().collect::<Vec<_>>(), all, "every way to say it was used");
}

/// Gives every list item a unique merge key.
fn tidy(object: &mut Value, id: TypeId, schema: &Schema, random: &mut Random) {
    let Some(map) = object.as_object_mut() else { return };
    for field in &schema.get(id).fields {
        let Some(value) = map.get_mut(&field.name) else { continue };
        tidy_node(value, &field.node, schema, random);
        if let (true, Some(items)) = (field.patch.merge, value.as_array_mut()) {
            let mut seen = BTreeSet::new();
            for item in items.iter_mut() {
                if let (Some(key), Value::Object(item)) = (&field.patch.merge_key, &mut *item) {
                    // Keys are numbers or texts; few, so that the two objects meet.
                    let number = matches!(item.get(key), Some(Value::Number(_)));
                    let name = random.below(4);
                    item.insert(
                        key,
                        if number {
                            Value::from(name as i64)
                        } else {
                            Value::from(format!("k{name}"))
                        },
                    );
                }
            }
            items.retain(|item| seen.insert(identity(item, field)));
        }
    }
}

fn tidy_node(value: &mut Value, node: &Node, schema: &Schema, random: &mut Random) {
    match (&node.kind, value) {
        (NodeType::Object(id), value) => tidy(value, *id, schema, random),
        (NodeType::List(item, _), Value::Array(items)) => {
            for value in items {
                tidy_node(value, item, schema, random);
            }
        }
        (NodeType::Map(item), Value::Object(map)) => {
            map.iter_mut().for_each(|(_, value)| tidy_node(value, item, schema, random));
        }
        _ => {}
    }
}

fn identity(item: &Value, field: &Field) -> String {
    match &field.patch.merge_key {
        Some(key) => json::to_string(item.get(key).unwrap_or(&Value::Null)),
        None => json::to_string(item),
    }
}

/// An object that has something of both.
fn mix(a: &Value, b: &Value, id: TypeId, schema: &Schema, random: &mut Random) -> Value {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return b.clone() };
    let mut mixed = Map::new();
    for field in &schema.get(id).fields {
        let value = match (a.get(&field.name), b.get(&field.name)) {
            (Some(a), Some(b)) => match (&field.node.kind, random.below(4)) {
                // Where there is no schema there is no merging either.
                (_, 0)
                | (
                    NodeType::Any
                    | NodeType::Raw
                    | NodeType::SchemaOrBool(_)
                    | NodeType::SchemaOrArray(_)
                    | NodeType::SchemaOrStringArray(_),
                    _,
                ) => a.clone(),
                (NodeType::Object(id), _) => mix(a, b, *id, schema, random),
                (NodeType::List(item, _), _) => mix_lists(a, b, item, schema, random),
                _ => b.clone(),
            },
            (Some(a), None) if random.chance(60) => a.clone(),
            (None, Some(b)) if random.chance(60) => b.clone(),
            _ => continue,
        };
        mixed.insert(&field.name, value);
    }
    for name in ["kind", "apiVersion"] {
        if let Some(value) = a.get(name) {
            mixed.insert(name, value.clone());
        }
    }
    Value::Object(mixed)
}

fn mix_lists(a: &Value, b: &Value, item: &Node, schema: &Schema, random: &mut Random) -> Value {
    let (a, b) = (a.as_array().unwrap_or_default(), b.as_array().unwrap_or_default());
    let mut items = Vec::new();
    for at in 0..a.len().max(b.len()) {
        match (a.get(at), b.get(at), &item.kind) {
            (Some(a), Some(b), NodeType::Object(id)) if random.chance(50) => {
                items.push(mix(a, b, *id, schema, random));
            }
            (a, b, _) => items.extend(if random.chance(50) { a.or(b) } else { b.or(a) }.cloned()),
        }
    }
    if random.chance(30) {
        items.reverse();
    }
    Value::Array(items)
}

/// Writes the difference between two objects as a patch.
struct Writer<'a> {
    schema: &'a Schema,
    random: &'a mut Random,
    /// The ways of saying it that were used.
    written: &'a mut BTreeSet<&'static str>,
}

impl Writer<'_> {
    fn object(&mut self, before: &Value, after: &Value, id: TypeId) -> Value {
        const EMPTY: &Map = &Map::new();
        let (before, after) =
            (before.as_object().unwrap_or(EMPTY), after.as_object().unwrap_or(EMPTY));
        let mut patch = Map::new();
        for field in &self.schema.get(id).fields {
            let name = &field.name;
            match (before.get(name), after.get(name)) {
                (None, None) => {}
                (Some(_), None) => drop(patch.insert(name, Value::Null)),
                (None, Some(after)) => drop(patch.insert(name, after.clone())),
                (Some(before), Some(after)) if before == after => {
                    self.written.insert("nothing");
                }
                (Some(before), Some(after)) => self.field(field, before, after, &mut patch),
            }
        }
        Value::Object(patch)
    }

    fn field(&mut self, field: &Field, before: &Value, after: &Value, patch: &mut Map) {
        match (&field.node.kind, before, after) {
            (NodeType::Object(id), Value::Object(_), Value::Object(_)) if !field.patch.replace => {
                patch.insert(&field.name, self.part(field, before, after, *id));
            }
            (NodeType::Map(_), Value::Object(before), Value::Object(after)) => {
                patch.insert(&field.name, self.map(before, after));
            }
            (NodeType::List(item, _), Value::Array(before), Value::Array(after))
                if field.patch.merge =>
            {
                self.list(field, item, before, after, patch);
            }
            _ => {
                self.written.insert("atomic");
                patch.insert(&field.name, after.clone());
            }
        }
    }

    fn part(&mut self, field: &Field, before: &Value, after: &Value, id: TypeId) -> Value {
        let mut patch;
        if self.random.chance(15) {
            self.written.insert("replace object");
            patch = after.clone();
            patch.set_at(&["$patch"], "replace");
        } else if field.patch.retain_keys || self.random.chance(15) {
            self.written.insert("retain keys");
            let kept = after.as_object().into_iter().flat_map(Map::keys);
            let kept: Vec<Value> = kept.map(|key| Value::String(key.clone())).collect();
            patch = self.object(before, after, id);
            // Fields that are not retained are removed without being mentioned.
            if let Some(map) = patch.as_object_mut() {
                map.retain(|_, value| !value.is_null());
            }
            patch.set_at(&["$retainKeys"], Value::Array(kept));
        } else {
            self.written.insert("merge");
            patch = self.object(before, after, id);
        }
        patch
    }

    /// Free keys: each is set or removed. Where the values are lists or objects there is no schema to merge them by, so the map
    /// is replaced.
    fn map(&mut self, before: &Map, after: &Map) -> Value {
        let is_leaf = |value: &Value| !matches!(value, Value::Array(_) | Value::Object(_));
        if !after.values().chain(before.values()).all(is_leaf) {
            self.written.insert("replace object");
            let mut patch = after.clone();
            patch.insert("$patch", "replace");
            return Value::Object(patch);
        }
        let mut patch = Map::new();
        for key in before.keys().filter(|key| !after.contains_key(key)) {
            patch.insert(key, Value::Null);
        }
        for (key, value) in after.iter().filter(|(key, value)| before.get(key) != Some(*value)) {
            patch.insert(key, value.clone());
        }
        Value::Object(patch)
    }

    fn list(
        &mut self,
        field: &Field,
        item: &Node,
        before: &[Value],
        after: &[Value],
        patch: &mut Map,
    ) {
        let name = &field.name;
        let find = |list: &[Value], wanted: &Value| {
            list.iter().find(|item| identity(item, field) == identity(wanted, field)).cloned()
        };
        let order = format!("$setElementOrder/{name}");
        self.written.insert("order");
        let Some(key) = &field.patch.merge_key else {
            let gone = before.iter().filter(|item| find(after, item).is_none()).cloned();
            let gone: Vec<Value> = gone.collect();
            if !gone.is_empty() {
                self.written.insert("delete primitive");
                patch.insert(format!("$deleteFromPrimitiveList/{name}"), Value::Array(gone));
            }
            patch.insert(order, Value::Array(after.to_vec()));
            let new = after.iter().filter(|item| find(before, item).is_none()).cloned();
            patch.insert(name, Value::Array(new.collect()));
            return;
        };
        if self.random.chance(15) {
            self.written.insert("replace list");
            let mut items = vec![value!({"$patch": "replace"})];
            items.extend(after.iter().cloned());
            patch.insert(name, Value::Array(items));
            return;
        }
        let mut items = Vec::new();
        for new in after {
            match (find(before, new), &item.kind) {
                (Some(old), NodeType::Object(id)) => {
                    let mut changed = self.object(&old, new, *id);
                    changed.set_at(&[key], new.get(key).cloned().unwrap_or_default());
                    items.push(changed);
                }
                _ => items.push(new.clone()),
            }
        }
        for old in before.iter().filter(|old| find(after, old).is_none()) {
            self.written.insert("delete item");
            let mut gone = value!({"$patch": "delete"});
            gone.set_at(&[key], old.get(key).cloned().unwrap_or_default());
            items.push(gone);
        }
        let keys = after.iter().map(|item| {
            let mut only = Value::object();
            only.set_at(&[key], item.get(key).cloned().unwrap_or_default());
            only
        });
        patch.insert(order, Value::Array(keys.collect()));
        patch.insert(name, Value::Array(items));
    }
}
