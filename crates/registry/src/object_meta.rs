//! The fields of `metadata` that the server manages, for all kinds.

use meta::{
    ApiError, FieldErrors, Number, Str, Value,
    field::path,
    names::{self, NameRule},
};

use crate::{Behaviour, Kind, ObjectMetaValidation, strategy::WriteContext};

/// Removes the fields that a client cannot choose for a new object. Compat: what a PUT or an apply creates
/// keeps some of them until the server fills them in; mutating admission sees them.
pub(crate) fn wipe_for_create(object: &mut Value, by_create: bool) {
    let meta = object.object_at_mut(&["metadata"]);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        meta.remove(field);
    }
    if by_create {
        for field in ["creationTimestamp", "uid", "selfLink"] {
            meta.remove(field);
        }
    }
}

/// Sets the fields that the server chooses for a new object.
pub(crate) fn fill_for_create(object: &mut Value, cx: &WriteContext<'_>) {
    let meta = object.object_at_mut(&["metadata"]);
    meta.insert("uid", uuid::Uuid::new_v4().to_string());
    meta.insert("creationTimestamp", cx.now.to_rfc3339());
}

/// A random name for `generateName`, if there is one.
pub(crate) fn generate_name(object: &mut Value) {
    let base = object.str_at(&["metadata", "generateName"]).to_owned();
    if !base.is_empty() {
        object.set_at(&["metadata", "name"], names::generate_name(&base, random_u32));
    }
}

fn random_u32() -> u32 {
    getrandom::u32().expect("the operating system gives random numbers")
}

/// Sets the namespace of the path, or checks it.
pub(crate) fn ensure_namespace_matches(
    kind: &Kind,
    namespace: &str,
    object: &mut Value,
) -> Result<(), ApiError> {
    let given = object.str_at(&["metadata", "namespace"]);
    let expected = if kind.namespaced() { namespace } else { "" };
    if given == expected {
        return Ok(());
    }
    if given.is_empty() {
        object.set_at(&["metadata", "namespace"], expected);
        return Ok(());
    }
    if expected.is_empty() {
        // Compat: the namespace of a cluster-scoped object is dropped.
        object.remove_at(&["metadata", "namespace"]);
        return Ok(());
    }
    Err(ApiError::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}

/// Checks the name against that of the path.
pub(crate) fn check_name(object: &Value, name: &str) -> Result<(), ApiError> {
    match object.str_at(&["metadata", "name"]) {
        "" => Err(ApiError::BadRequest(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        given if given == name => Ok(()),
        given => Err(ApiError::BadRequest(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
    }
}

/// Restores the fields that an update cannot change.
pub(crate) fn keep_for_update(object: &mut Value, old: &Value) {
    let keep = |object: &mut Value, field: &str, even_if_given: bool| {
        let at = ["metadata", field];
        let given = object.at(&at).is_some_and(|value| !value.is_null());
        if let Some(value) = old.at(&at).filter(|value| !value.is_null())
            && (even_if_given || !given)
        {
            object.set_at(&at, value.clone());
        }
    };
    if object.str_at(&["metadata", "uid"]).is_empty() {
        keep(object, "uid", true);
    }
    keep(object, "creationTimestamp", true);
    keep(object, "deletionTimestamp", true);
    keep(object, "deletionGracePeriodSeconds", false);
}

/// `generation` counts changes of the desired state.
pub(crate) fn count_generation(object: &mut Value, old: Option<&Value>, fields: &[&str]) {
    let at = ["metadata", "generation"];
    let Some(old) = old else {
        // Compat: kinds without a generation keep what the client sent.
        if !fields.is_empty() {
            object.set_at(&at, 1i64);
        }
        return;
    };
    let before = old.i64_at(&at).unwrap_or_default();
    let changed = fields.iter().any(|field| {
        if *field == Behaviour::ALL_BUT_METADATA {
            return differ_beside_metadata(object, old);
        }
        let path: Vec<&str> = field.split('.').collect();
        !same(object.at(&path), old.at(&path))
    });
    let generation = before + i64::from(changed);
    if generation == 0 {
        object.remove_at(&at);
    } else {
        object.set_at(&at, generation);
    }
}

fn differ_beside_metadata(object: &Value, old: &Value) -> bool {
    let (Some(object), Some(old)) = (object.as_object(), old.as_object()) else { return true };
    let keys = object.keys().chain(old.keys()).filter(|key| *key != "metadata");
    keys.into_iter().any(|key| object.get(key) != old.get(key))
}

/// Whether two values are equal; an empty object equals none.
fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let empty = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.is_empty(),
        _ => false,
    };
    (empty(a) && empty(b)) || alike(a, b)
}

/// Whether two values are equal to Go: an empty list equals none, and numbers compare by value
/// (`minimum: 0` of a definition is a float when a client sends it).
fn alike(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => float(*a).total_cmp(&float(*b)).is_eq(),
        // The common case, without a look-up of each key.
        (Some(Value::Object(a)), Some(Value::Object(b))) if a.keys().eq(b.keys()) => {
            a.values().zip(b.values()).all(|(a, b)| alike(Some(a), Some(b)))
        }
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(key)));
            keys.into_iter().all(|key| alike(a.get(key), b.get(key)))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(Some(a), Some(b)))
        }
        (Some(Value::Array(list)), None | Some(Value::Null))
        | (None | Some(Value::Null), Some(Value::Array(list))) => list.is_empty(),
        (a, b) => a == b,
    }
}

fn float(number: Number) -> f64 {
    match number {
        Number::Int(int) => int as f64,
        Number::Float(float) => float,
    }
}

pub(crate) fn validate_create(kind: &Kind, object: &Value) -> FieldErrors {
    validate_named(kind, kind.behaviour.name_rule, object)
}

fn validate_named(kind: &Kind, name_rule: NameRule, object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let meta = object.get("metadata").unwrap_or(&Value::Null);
    names::validate_object_meta(meta, kind.namespaced(), name_rule, &mut errors);
    errors
}

/// Finalizers of most built-in kinds must be qualified, or one of the three standard ones.
pub(crate) fn validate_finalizer_names(kind: &Kind, object: &Value, errors: &mut FieldErrors) {
    if !kind.behaviour.metadata.qualified_finalizers {
        return;
    }
    for (index, name) in finalizers(object).iter().enumerate() {
        let is_known = matches!(name.as_str(), "kubernetes" | "orphan" | "foregroundDeletion");
        if !name.contains('/') && !is_known {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            let at = path("metadata").child("finalizers").index(index);
            errors.invalid(at, name.as_str(), why);
        }
    }
}

/// Validates the metadata of an update. Upstream validates it once for all kinds, where names only
/// have to be path segments, and most kinds validate it again.
pub(crate) fn validate_update(
    kind: &Kind,
    subresource: &str,
    object: &Value,
    old: &Value,
) -> FieldErrors {
    let mut errors = validate_named(kind, names::name_is_path_segment, object);
    validate_change(object, old, &mut errors);
    let checks = kind.behaviour.metadata;
    let again = if subresource.is_empty() { checks.update } else { checks.status };
    let (change, whole) = (ObjectMetaValidation::Update, ObjectMetaValidation::Create);
    let steps: &[ObjectMetaValidation] = match again {
        ObjectMetaValidation::None => &[],
        ObjectMetaValidation::UpdateThenCreate => &[change, whole],
        ObjectMetaValidation::CreateThenUpdate => &[whole, change],
        one => &[one],
    };
    for step in steps {
        if *step == change {
            validate_change(object, old, &mut errors);
        } else {
            errors.extend(validate_create(kind, object));
        }
        validate_finalizer_names(kind, object, &mut errors);
    }
    errors
}

fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let meta = object.get("metadata").unwrap_or(&Value::Null);
    let old = old.get("metadata").unwrap_or(&Value::Null);
    names::validate_object_meta_update(meta, old, errors);
}

/// The finalizers of an object.
pub(crate) fn finalizers(object: &Value) -> Vec<Str> {
    let items = object.items_at(&["metadata", "finalizers"]);
    items.iter().filter_map(Value::as_str).map(Str::new).collect()
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    !object.str_at(&["metadata", "deletionTimestamp"]).is_empty()
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn an_update_cannot_change_what_the_server_keeps() {
        let old =
            value!({"metadata": {"uid": "u", "creationTimestamp": "t", "deletionTimestamp": "d"}});
        let mut new = value!({"metadata": {"creationTimestamp": "x"}});
        keep_for_update(&mut new, &old);
        assert_eq!(new, old);
    }

    #[test]
    fn generation_counts_changes_of_the_spec_only() {
        let old = value!({"metadata": {"generation": 3i64}, "spec": {"a": 1i64}});
        let mut same = value!({"spec": {"a": 1i64}, "status": {"x": 1i64}});
        count_generation(&mut same, Some(&old), &["spec"]);
        assert_eq!(same.i64_at(&["metadata", "generation"]), Some(3));
        let mut changed = value!({"spec": {"a": 2i64}});
        count_generation(&mut changed, Some(&old), &["spec"]);
        assert_eq!(changed.i64_at(&["metadata", "generation"]), Some(4));
        let mut custom = value!({"spec": {"a": 1i64}, "data": {}});
        count_generation(&mut custom, Some(&old), &[Behaviour::ALL_BUT_METADATA]);
        assert_eq!(custom.i64_at(&["metadata", "generation"]), Some(4));
        let cases = [
            (value!({"a": 1.0}), 3),
            (value!({"a": 1.5}), 4),
            (value!({"a": 1i64, "b": []}), 3),
            (value!({"a": 1i64, "b": {}}), 4),
            (value!({"a": [1i64]}), 4),
        ];
        for (spec, expected) in cases {
            let mut new = value!({"spec": (spec)});
            count_generation(&mut new, Some(&old), &["spec"]);
            assert_eq!(new.i64_at(&["metadata", "generation"]), Some(expected));
        }
        let mut new = value!({"metadata": {"generation": 9i64}, "spec": {}});
        count_generation(&mut new, None, &["spec"]);
        assert_eq!(new.i64_at(&["metadata", "generation"]), Some(1));
        let mut uncounted = value!({"metadata": {"generation": 9i64}, "spec": {}});
        count_generation(&mut uncounted, None, &[]);
        assert_eq!(uncounted.i64_at(&["metadata", "generation"]), Some(9));
    }
}
