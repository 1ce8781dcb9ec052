//! `ObjectMeta` as Go decodes it, for the metadata inside custom resources, which has no schema
//! type.

use meta::{
    Map, Number, Value,
    limits::{FIELD_PATH_BYTES_MAX, cut},
    time::Time,
};

use super::prune::UnknownFields;

/// What a field of `ObjectMeta` holds.
#[derive(Clone, Copy)]
enum MetaFieldType {
    String,
    Bool,
    Int,
    Time,
    StringMap,
    StringList,
    Any,
    /// A list of structs: Go's name of the struct, its fields.
    Structs(&'static str, &'static [(&'static str, MetaFieldType)]),
}

const OBJECT_META: &[(&str, MetaFieldType)] = &[
    ("annotations", MetaFieldType::StringMap),
    ("creationTimestamp", MetaFieldType::Time),
    ("deletionGracePeriodSeconds", MetaFieldType::Int),
    ("deletionTimestamp", MetaFieldType::Time),
    ("finalizers", MetaFieldType::StringList),
    ("generateName", MetaFieldType::String),
    ("generation", MetaFieldType::Int),
    ("labels", MetaFieldType::StringMap),
    ("managedFields", MetaFieldType::Structs("ManagedFieldsEntry", MANAGED_FIELDS)),
    ("name", MetaFieldType::String),
    ("namespace", MetaFieldType::String),
    ("ownerReferences", MetaFieldType::Structs("OwnerReference", OWNER_REFERENCE)),
    ("resourceVersion", MetaFieldType::String),
    ("selfLink", MetaFieldType::String),
    ("uid", MetaFieldType::String),
];

const OWNER_REFERENCE: &[(&str, MetaFieldType)] = &[
    ("apiVersion", MetaFieldType::String),
    ("blockOwnerDeletion", MetaFieldType::Bool),
    ("controller", MetaFieldType::Bool),
    ("kind", MetaFieldType::String),
    ("name", MetaFieldType::String),
    ("uid", MetaFieldType::String),
];

const MANAGED_FIELDS: &[(&str, MetaFieldType)] = &[
    ("apiVersion", MetaFieldType::String),
    ("fieldsType", MetaFieldType::String),
    ("fieldsV1", MetaFieldType::Any),
    ("manager", MetaFieldType::String),
    ("operation", MetaFieldType::String),
    ("subresource", MetaFieldType::String),
    ("time", MetaFieldType::Time),
];

/// The error of Go's decoder for the first field that it cannot decode.
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
        field_type(OBJECT_META, name)
            .is_none_or(|field_type| check_field(value, field_type, "ObjectMeta", name).is_ok())
    });
}

/// Round-trips metadata as Go would: unknown fields are removed (and reported), and so are empty
/// ones. The metadata has passed [`check`].
pub(super) fn normalize(metadata: &mut Value, mut unknown: Option<&mut UnknownFields>) {
    let Some(map) = metadata.as_object_mut() else {
        // Null decodes to an absent value.
        *metadata = Value::object();
        return;
    };
    normalize_struct(map, OBJECT_META, "", &mut unknown);
}

fn field_type(fields: &[(&str, MetaFieldType)], name: &str) -> Option<MetaFieldType> {
    let at = fields.binary_search_by(|(own, _)| (*own).cmp(name)).ok()?;
    Some(fields[at].1)
}

fn check_struct(
    map: &Map,
    fields: &[(&str, MetaFieldType)],
    go_name: &str,
    path: &str,
) -> Result<(), String> {
    map.iter().try_for_each(|(name, value)| match field_type(fields, name) {
        Some(field_type) => check_field(value, field_type, go_name, &format!("{path}{name}")),
        None => Ok(()),
    })
}

fn check_field(
    value: &Value,
    field_type: MetaFieldType,
    go_name: &str,
    path: &str,
) -> Result<(), String> {
    let mismatch = |value: &Value, go_type: &str| {
        let shown = shown(value);
        Err(format!(
            "json: cannot unmarshal {shown} into Go struct field {go_name}.{path} of type {go_type}"
        ))
    };
    match (field_type, value) {
        (_, Value::Null)
        | (MetaFieldType::Any, _)
        | (MetaFieldType::String, Value::String(_))
        | (MetaFieldType::Bool, Value::Bool(_))
        | (MetaFieldType::Int, Value::Number(Number::Int(_))) => Ok(()),
        (MetaFieldType::String, other) => mismatch(other, "string"),
        (MetaFieldType::Bool, other) => mismatch(other, "bool"),
        (MetaFieldType::Int, Value::Number(Number::Float(float))) => Err(format!(
            "json: cannot unmarshal number {float} into Go struct field {go_name}.{path} of type \
             int64"
        )),
        (MetaFieldType::Int, other) => mismatch(other, "int64"),
        (MetaFieldType::Time, Value::String(text)) => {
            Time::parse(text).map(|_| ()).map_err(|error| error.to_string())
        }
        (MetaFieldType::Time, other) => {
            Err(format!("json: cannot unmarshal {} into Go value of type string", shown(other)))
        }
        (MetaFieldType::StringMap, Value::Object(map)) => {
            map.values().try_for_each(|value| match value {
                Value::Null | Value::String(_) => Ok(()),
                other => mismatch(other, "string"),
            })
        }
        (MetaFieldType::StringMap, other) => mismatch(other, "map[string]string"),
        (MetaFieldType::StringList, Value::Array(items)) => {
            items.iter().try_for_each(|item| match item {
                Value::Null | Value::String(_) => Ok(()),
                other => mismatch(other, "string"),
            })
        }
        (MetaFieldType::StringList, other) => mismatch(other, "[]string"),
        (MetaFieldType::Structs(name, fields), Value::Array(items)) => {
            items.iter().try_for_each(|item| match item {
                Value::Null => Ok(()),
                Value::Object(map) => check_struct(map, fields, name, &format!("{path}.")),
                other => mismatch(other, &format!("v1.{name}")),
            })
        }
        (MetaFieldType::Structs(name, _), other) => mismatch(other, &format!("[]v1.{name}")),
    }
}

fn normalize_struct(
    map: &mut Map,
    fields: &[(&str, MetaFieldType)],
    path: &str,
    unknown: &mut Option<&mut UnknownFields>,
) {
    map.retain(|name, value| {
        let Some(field_type) = field_type(fields, name) else {
            if let Some(unknown) = unknown {
                unknown.add(|| cut(&format!("{path}{name}"), FIELD_PATH_BYTES_MAX).into_owned());
            }
            return false;
        };
        match (field_type, value) {
            (MetaFieldType::Any, value) => !value.is_null(),
            // Pointers: their zero is a value.
            (_, Value::Bool(_)) => true,
            (MetaFieldType::Int, Value::Number(Number::Int(0))) => name != "generation",
            (MetaFieldType::Time, value @ Value::String(_)) => {
                let time = value.as_str().and_then(|text| Time::parse(text).ok());
                *value = Value::from(time.unwrap_or(Time::ZERO).to_rfc3339());
                time.is_some_and(|time| !time.is_zero())
            }
            (_, Value::String(text)) => !text.is_empty(),
            (MetaFieldType::StringMap, Value::Object(map)) => {
                map.iter_mut().for_each(|(_, value)| null_to_empty(value));
                !map.is_empty()
            }
            (MetaFieldType::StringList, Value::Array(items)) => {
                items.iter_mut().for_each(null_to_empty);
                !items.is_empty()
            }
            (MetaFieldType::Structs(struct_name, fields), Value::Array(items)) => {
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
