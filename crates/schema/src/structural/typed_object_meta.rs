//! `ObjectMeta` as Go's decoder reads it, for the metadata inside custom resources, which no type
//! of ours describes.

use meta::{Map, Number, Value, time::Time};

/// What a field of `ObjectMeta` holds.
#[derive(Clone, Copy)]
enum Shape {
    String,
    Bool,
    Int,
    Time,
    StringMap,
    StringList,
    Any,
    /// A list of structs: Go's name of the struct, its fields.
    Structs(&'static str, &'static [(&'static str, Shape)]),
}

const OBJECT_META: &[(&str, Shape)] = &[
    ("annotations", Shape::StringMap),
    ("creationTimestamp", Shape::Time),
    ("deletionGracePeriodSeconds", Shape::Int),
    ("deletionTimestamp", Shape::Time),
    ("finalizers", Shape::StringList),
    ("generateName", Shape::String),
    ("generation", Shape::Int),
    ("labels", Shape::StringMap),
    ("managedFields", Shape::Structs("ManagedFieldsEntry", MANAGED_FIELDS)),
    ("name", Shape::String),
    ("namespace", Shape::String),
    ("ownerReferences", Shape::Structs("OwnerReference", OWNER_REFERENCE)),
    ("resourceVersion", Shape::String),
    ("selfLink", Shape::String),
    ("uid", Shape::String),
];

const OWNER_REFERENCE: &[(&str, Shape)] = &[
    ("apiVersion", Shape::String),
    ("blockOwnerDeletion", Shape::Bool),
    ("controller", Shape::Bool),
    ("kind", Shape::String),
    ("name", Shape::String),
    ("uid", Shape::String),
];

const MANAGED_FIELDS: &[(&str, Shape)] = &[
    ("apiVersion", Shape::String),
    ("fieldsType", Shape::String),
    ("fieldsV1", Shape::Any),
    ("manager", Shape::String),
    ("operation", Shape::String),
    ("subresource", Shape::String),
    ("time", Shape::Time),
];

/// What Go's decoder says about the first field that it cannot read.
pub(super) fn check(metadata: &Value) -> Result<(), String> {
    match metadata {
        Value::Null => Ok(()),
        Value::Object(map) => check_struct(map, OBJECT_META, "ObjectMeta", ""),
        other => Err(format!(
            "json: cannot unmarshal {} into Go value of type v1.ObjectMeta",
            shown(other)
        )),
    }
}

/// Removes the fields that Go's decoder cannot read.
pub(super) fn drop_malformed(metadata: &mut Map) {
    metadata.retain(|name, value| {
        shape_of(OBJECT_META, name)
            .is_none_or(|shape| check_field(value, shape, "ObjectMeta", name).is_ok())
    });
}

/// What comes out when Go reads metadata and writes it again: unknown fields are gone (and reported),
/// and so is what is empty. The metadata has passed [`check`].
pub(super) fn normalize(metadata: &mut Value, mut unknown: Option<&mut Vec<String>>) {
    let Some(map) = metadata.as_object_mut() else {
        // Null reads as nothing at all.
        *metadata = Value::object();
        return;
    };
    normalize_struct(map, OBJECT_META, "", &mut unknown);
}

fn shape_of(fields: &[(&str, Shape)], name: &str) -> Option<Shape> {
    let at = fields.binary_search_by(|(own, _)| (*own).cmp(name)).ok()?;
    Some(fields[at].1)
}

fn check_struct(
    map: &Map,
    fields: &[(&str, Shape)],
    go_name: &str,
    path: &str,
) -> Result<(), String> {
    map.iter().try_for_each(|(name, value)| match shape_of(fields, name) {
        Some(shape) => check_field(value, shape, go_name, &format!("{path}{name}")),
        None => Ok(()),
    })
}

fn check_field(value: &Value, shape: Shape, go_name: &str, path: &str) -> Result<(), String> {
    let mismatch = |value: &Value, go_type: &str| {
        let shown = shown(value);
        Err(format!(
            "json: cannot unmarshal {shown} into Go struct field {go_name}.{path} of type {go_type}"
        ))
    };
    match (shape, value) {
        (_, Value::Null)
        | (Shape::Any, _)
        | (Shape::String, Value::String(_))
        | (Shape::Bool, Value::Bool(_))
        | (Shape::Int, Value::Number(Number::Int(_))) => Ok(()),
        (Shape::String, other) => mismatch(other, "string"),
        (Shape::Bool, other) => mismatch(other, "bool"),
        (Shape::Int, Value::Number(Number::Float(float))) => Err(format!(
            "json: cannot unmarshal number {float} into Go struct field {go_name}.{path} of type \
             int64"
        )),
        (Shape::Int, other) => mismatch(other, "int64"),
        (Shape::Time, Value::String(text)) => {
            Time::parse(text).map(|_| ()).map_err(|error| error.to_string())
        }
        (Shape::Time, other) => {
            Err(format!("json: cannot unmarshal {} into Go value of type string", shown(other)))
        }
        (Shape::StringMap, Value::Object(map)) => map.values().try_for_each(|value| match value {
            Value::Null | Value::String(_) => Ok(()),
            other => mismatch(other, "string"),
        }),
        (Shape::StringMap, other) => mismatch(other, "map[string]string"),
        (Shape::StringList, Value::Array(items)) => items.iter().try_for_each(|item| match item {
            Value::Null | Value::String(_) => Ok(()),
            other => mismatch(other, "string"),
        }),
        (Shape::StringList, other) => mismatch(other, "[]string"),
        (Shape::Structs(name, fields), Value::Array(items)) => {
            items.iter().try_for_each(|item| match item {
                Value::Null => Ok(()),
                Value::Object(map) => check_struct(map, fields, name, &format!("{path}.")),
                other => mismatch(other, &format!("v1.{name}")),
            })
        }
        (Shape::Structs(name, _), other) => mismatch(other, &format!("[]v1.{name}")),
    }
}

fn normalize_struct(
    map: &mut Map,
    fields: &[(&str, Shape)],
    path: &str,
    unknown: &mut Option<&mut Vec<String>>,
) {
    map.retain(|name, value| {
        let Some(shape) = shape_of(fields, name) else {
            if let Some(unknown) = unknown {
                unknown.push(format!("{path}{name}"));
            }
            return false;
        };
        match (shape, value) {
            (Shape::Any, value) => !value.is_null(),
            // Pointers: their zero is a value.
            (_, Value::Bool(_)) => true,
            (Shape::Int, Value::Number(Number::Int(0))) => name != "generation",
            (Shape::Time, value @ Value::String(_)) => {
                let time = value.as_str().and_then(|text| Time::parse(text).ok());
                *value = Value::from(time.unwrap_or(Time::ZERO).to_rfc3339());
                time.is_some_and(|time| !time.is_zero())
            }
            (_, Value::String(text)) => !text.is_empty(),
            (Shape::StringMap, Value::Object(map)) => {
                map.iter_mut().for_each(|(_, value)| null_to_empty(value));
                !map.is_empty()
            }
            (Shape::StringList, Value::Array(items)) => {
                items.iter_mut().for_each(null_to_empty);
                !items.is_empty()
            }
            (Shape::Structs(struct_name, fields), Value::Array(items)) => {
                for (at, item) in items.iter_mut().enumerate() {
                    let item = item.object_at_mut(&[]);
                    normalize_struct(item, fields, &format!("{path}{name}[{at}]."), unknown);
                    if struct_name == "OwnerReference" {
                        fill_owner_reference(item);
                    }
                }
                !items.is_empty()
            }
            (_, value) => !value.is_null(),
        }
    });
}

/// These fields are written even where they are empty.
fn fill_owner_reference(owner: &mut Map) {
    for name in ["apiVersion", "kind", "name", "uid"] {
        if !owner.contains_key(name) {
            owner.insert(name, "");
        }
    }
}

fn null_to_empty(value: &mut Value) {
    if value.is_null() {
        *value = Value::from("");
    }
}

/// JSON's word for a value.
fn shown(value: &Value) -> &'static str {
    value.type_name()
}
