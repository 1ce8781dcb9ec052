//! Defaulting from the schema.
//!
//! For custom resources these are the rules of structural schemas: a missing field (or one that is
//! null but not nullable) gets its default, and defaulting continues inside it. Built-in types
//! behave as their Go structs: a field without a pointer cannot tell its zero value from an absent
//! one, and a struct without a pointer is always present.

use meta::{
    Number, Value, cancel,
    limits::{TooLarge, TreeSize},
};

use crate::{Field, Node, NodeType, Presence, Schema, TypeId};

/// Records which types have no defaults in their subtree, so that those are skipped.
#[derive(Debug, Default)]
pub struct Defaults {
    // By type: whether it or its subtree has a default.
    any_below: Vec<bool>,
}

impl Defaults {
    pub fn of(schema: &Schema) -> Self {
        let mut defaults = Self { any_below: vec![false; schema.types().len()] };
        // Types may be recursive, so this repeats until nothing changes.
        loop {
            let mut changed = false;
            for (id, ty) in schema.types() {
                let known = defaults.any_below[id.0 as usize];
                if !known && ty.fields.iter().any(|field| defaults.in_node(&field.node)) {
                    defaults.any_below[id.0 as usize] = true;
                    changed = true;
                }
            }
            if !changed {
                return defaults;
            }
        }
    }

    /// Fills in defaults in an object of type `ty`.
    pub fn apply(
        &self,
        schema: &Schema,
        ty: TypeId,
        object: &mut Value,
        size: &mut TreeSize,
    ) -> Result<(), TooLarge> {
        if !self.in_type(ty) {
            return Ok(());
        }
        let Some(map) = object.as_object_mut() else { return Ok(()) };
        for field in &schema.get(ty).fields {
            if !self.in_node(&field.node) {
                continue;
            }
            match map.get_mut(&field.name).filter(|value| !is_absent(value, field)) {
                Some(value) => self.apply_below(schema, &field.node, value, size)?,
                None => {
                    if let Some(mut value) = self.missing(schema, field, size)? {
                        self.apply_below(schema, &field.node, &mut value, size)?;
                        map.insert(&field.name, value);
                    }
                }
            }
        }
        Ok(())
    }

    /// The value of a field that a client omitted.
    fn missing(
        &self,
        schema: &Schema,
        field: &Field,
        size: &mut TreeSize,
    ) -> Result<Option<Value>, TooLarge> {
        if let Some(default) = &field.node.default {
            size.add_copy(default)?;
            return Ok(Some(default.clone()));
        }
        let NodeType::Object(ty) = field.node.kind else { return Ok(None) };
        if field.presence == Presence::AsGiven || field.pointer {
            return Ok(None);
        }
        // A Go struct is always present, so its fields get their defaults.
        let mut object = Value::object();
        self.apply(schema, ty, &mut object, size)?;
        Ok(object.as_object().is_some_and(|map| !map.is_empty()).then_some(object))
    }

    fn apply_below(
        &self,
        schema: &Schema,
        node: &Node,
        value: &mut Value,
        size: &mut TreeSize,
    ) -> Result<(), TooLarge> {
        match (&node.kind, value) {
            (NodeType::Object(ty), value) => self.apply(schema, *ty, value, size),
            (NodeType::List(item, _), Value::Array(items)) => {
                self.apply_each(schema, item, items.iter_mut(), size)
            }
            (NodeType::Map(item), Value::Object(map)) => {
                self.apply_each(schema, item, map.iter_mut().map(|(_, value)| value), size)
            }
            _ => Ok(()),
        }
    }

    fn apply_each<'a>(
        &self,
        schema: &Schema,
        node: &Node,
        values: impl Iterator<Item = &'a mut Value>,
        size: &mut TreeSize,
    ) -> Result<(), TooLarge> {
        if !self.in_node(node) {
            return Ok(());
        }
        for value in values {
            cancel::checkpoint();
            if let (Value::Null, false, Some(default)) = (&*value, node.nullable, &node.default) {
                size.add_copy(default)?;
                *value = default.clone();
            }
            self.apply_below(schema, node, value, size)?;
        }
        Ok(())
    }

    fn in_type(&self, ty: TypeId) -> bool {
        // A type that was added later has no entry: then every type is visited.
        self.any_below.get(ty.0 as usize).copied().unwrap_or(true)
    }

    fn in_node(&self, node: &Node) -> bool {
        node.default.is_some()
            || match &node.kind {
                NodeType::Object(ty) => self.in_type(*ty),
                NodeType::List(item, _) | NodeType::Map(item) => self.in_node(item),
                _ => false,
            }
    }
}

/// Removes nulls of fields that are not nullable and have no default. Custom resources go through
/// this before defaulting.
pub fn drop_nulls(schema: &Schema, ty: TypeId, object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    let ty = schema.get(ty);
    map.retain(|name, value| match ty.field(name) {
        Some(field) => keep_without_nulls(schema, &field.node, value),
        None => true,
    });
}

fn keep_without_nulls(schema: &Schema, node: &Node, value: &mut Value) -> bool {
    match (&node.kind, value) {
        (_, Value::Null) => return node.nullable || node.default.is_some(),
        (NodeType::Object(ty), value) => drop_nulls(schema, *ty, value),
        (NodeType::Map(item), Value::Object(map)) => {
            map.retain(|_, value| keep_without_nulls(schema, item, value));
        }
        // List items stay, so that the others keep their indexes.
        (NodeType::List(item, _), Value::Array(items)) => {
            for value in items {
                keep_without_nulls(schema, item, value);
            }
        }
        _ => {}
    }
    true
}

/// Whether a value counts as absent.
fn is_absent(value: &Value, field: &Field) -> bool {
    let is_zero = match value {
        Value::Null => return !field.node.nullable,
        Value::String(text) => text.is_empty(),
        Value::Number(Number::Int(number)) => *number == 0,
        Value::Number(Number::Float(number)) => *number == 0.0,
        Value::Bool(value) => !value,
        Value::Array(_) | Value::Object(_) | Value::Raw(_) => false,
    };
    is_zero && !field.pointer && field.presence != Presence::AsGiven
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;
    use crate::{ListType, Type};

    fn schema_of(types: Vec<Vec<Field>>) -> Schema {
        let mut schema = Schema::default();
        for fields in types {
            let mut ty = Type::default();
            ty.fields = fields;
            schema.add(ty);
        }
        schema
    }

    fn field(name: &str, node: impl Into<Node>) -> Field {
        Field { name: name.into(), node: node.into(), ..Field::default() }
    }

    fn with_default(kind: NodeType, default: Value) -> Node {
        Node { kind, default: Some(default), ..Node::default() }
    }

    fn check(schema: &Schema, object: &Value, expected: &Value) {
        let mut defaulted = object.clone();
        let apply = |object: &mut Value| {
            let mut size = TreeSize::of(object).unwrap();
            Defaults::of(schema).apply(schema, TypeId(0), object, &mut size).unwrap();
        };
        apply(&mut defaulted);
        assert_eq!(&defaulted, expected);
        // Once is enough.
        apply(&mut defaulted);
        assert_eq!(&defaulted, expected);
    }

    /// Two bytes of a body must not become kilobytes of memory.
    #[test]
    fn defaults_of_many_items_are_bounded() {
        let text = Value::from("x");
        let default = Value::Array(vec![text; 1_000]);
        let item = vec![field("a", with_default(NodeType::Any, default))];
        let list = NodeType::List(Box::new(NodeType::Object(TypeId(1)).into()), ListType::Atomic);
        let schema = schema_of(vec![vec![field("list", list)], item]);
        let object = |items| value!({"list": (Value::Array(vec![Value::object(); items]))});
        let apply = |items| {
            let mut object = object(items);
            let mut size = TreeSize::of(&object).unwrap();
            schema.apply_defaults_within(TypeId(0), &mut object, &mut size)
        };
        assert_eq!(apply(100), Ok(()));
        assert_eq!(apply(10_000), Err(TooLarge));
        assert!(cancel::is_interruptible(|| _ = apply(10)));
    }

    #[test]
    fn custom_resources_get_missing_defaults() {
        let nullable = Node { nullable: true, ..with_default(NodeType::String, "n".into()) };
        let inner = vec![
            field("x", with_default(NodeType::Int64, 7i64.into())),
            field("y", NodeType::Int64),
        ];
        let object = || NodeType::Object(TypeId(1));
        let schema = schema_of(vec![
            vec![
                field("a", with_default(NodeType::String, "A".into())),
                field("nullable", nullable),
                field("absent", object()),
                field("object", with_default(object(), value!({"y": 1i64}))),
                field("list", NodeType::List(Box::new(object().into()), ListType::Undeclared)),
                field("map", NodeType::Map(Box::new(with_default(NodeType::String, "m".into())))),
                field("free", NodeType::Any),
            ],
            inner,
        ]);
        check(
            &schema,
            &value!({}),
            &value!({"a": "A", "nullable": "n", "object": {"x": 7i64, "y": 1i64}}),
        );
        check(
            &schema,
            &value!({"a": "", "nullable": null, "absent": {}, "object": null,
                "list": [{}, {"x": 1i64}], "map": {"k": null, "l": "v"}, "free": {"x": null}}),
            &value!({"a": "", "nullable": null, "absent": {"x": 7i64},
                "object": {"x": 7i64, "y": 1i64}, "list": [{"x": 7i64}, {"x": 1i64}],
                "map": {"k": "m", "l": "v"}, "free": {"x": null}}),
        );
    }

    #[test]
    fn nulls_of_non_nullable_fields_are_dropped() {
        let schema = schema_of(vec![vec![
            field("a", NodeType::String),
            field("b", Node { nullable: true, ..NodeType::String.into() }),
            field("c", with_default(NodeType::String, "c".into())),
            field("map", NodeType::Map(Box::new(NodeType::String.into()))),
            field(
                "list",
                NodeType::List(Box::new(NodeType::Object(TypeId(0)).into()), ListType::Atomic),
            ),
        ]]);
        let mut object = value!({"a": null, "b": null, "c": null, "unknown": null,
            "map": {"x": null, "y": "1"}, "list": [null, {"a": null}]});
        drop_nulls(&schema, TypeId(0), &mut object);
        let expected = value!({"b": null, "c": null, "unknown": null, "map": {"y": "1"},
            "list": [null, {}]});
        assert_eq!(object, expected);
    }

    #[test]
    fn built_in_types_default_like_go_structs() {
        let omit = |field: Field| Field { presence: Presence::OmitEmpty, ..field };
        let spec = || omit(field("spec", NodeType::Object(TypeId(1))));
        let schema = schema_of(vec![
            vec![
                spec(),
                Field { name: "pointed".into(), pointer: true, ..spec() },
                omit(field("meta", NodeType::Object(TypeId(2)))),
            ],
            vec![
                omit(field("protocol", with_default(NodeType::String, "TCP".into()))),
                Field {
                    pointer: true,
                    ..omit(field("replicas", with_default(NodeType::Int32, 1i64.into())))
                },
            ],
            vec![field("name", NodeType::String)],
        ]);
        let spec = value!({"protocol": "TCP", "replicas": 1i64});
        check(&schema, &value!({}), &value!({"spec": (spec.clone())}));
        check(
            &schema,
            &value!({"spec": {"protocol": "", "replicas": 0i64}, "pointed": {}}),
            &value!({"spec": {"protocol": "TCP", "replicas": 0i64}, "pointed": (spec)}),
        );
    }

    #[test]
    fn types_without_defaults_are_skipped() {
        let schema = schema_of(vec![
            vec![
                field("next", NodeType::Object(TypeId(0))),
                field("other", NodeType::Object(TypeId(1))),
            ],
            vec![field(
                "back",
                NodeType::List(Box::new(NodeType::Object(TypeId(0)).into()), ListType::Set),
            )],
            vec![
                field("first", NodeType::Object(TypeId(0))),
                field("a", with_default(NodeType::Bool, true.into())),
            ],
            vec![field("deep", NodeType::Map(Box::new(NodeType::Object(TypeId(2)).into())))],
        ]);
        assert_eq!(Defaults::of(&schema).any_below, [false, false, true, true]);
    }
}
