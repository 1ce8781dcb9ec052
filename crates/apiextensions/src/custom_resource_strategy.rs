//! The strategy of custom resources: preparation, validation, warnings, columns.

use std::{collections::BTreeSet, sync::Arc};

use meta::{
    FieldErrors, FieldPath, GroupVersionKind, Str, Value,
    field::quote,
    limits::{TooLarge, TreeSize},
};
use registry::{Column, ScalePaths, Strategy, WriteContext};

use crate::prune_and_default::VersionSchema;

/// The strategy of one version of a custom resource.
pub(crate) struct CustomResourceStrategy {
    pub(crate) gvk: GroupVersionKind,
    pub(crate) schema: Arc<VersionSchema>,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) columns: Vec<Column>,
}

impl Strategy for CustomResourceStrategy {
    fn default(&self, object: &mut Value) {
        self.schema.default(object);
    }

    fn default_within(&self, object: &mut Value, size: &mut TreeSize) -> Result<(), TooLarge> {
        self.schema.structural().map_or(Ok(()), |schema| schema.default_within(object, size))
    }

    /// `/status` changes the status and nothing else, not even metadata.
    fn prepare_for_subresource(
        &self,
        subresource: &str,
        object: &mut Value,
        old: &Value,
        _cx: &WriteContext<'_>,
    ) {
        if subresource != "status" {
            return;
        }
        let managed = object.remove_at(&["metadata", "managedFields"]);
        let status = object.remove_at(&["status"]);
        *object = old.clone();
        set_or_remove(object, &["metadata", "managedFields"], managed);
        set_or_remove(object, &["status"], status);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        if self.is_another_kind(object, errors) {
            return;
        }
        let scale = |errors: &mut FieldErrors| {
            self.validate_scale(object, &["spec", "status"], errors);
        };
        match self.schema.structural() {
            Some(structural) => structural.validate(object, scale, errors),
            None => scale(errors),
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        if self.is_another_kind(object, errors) {
            return;
        }
        let scale = |errors: &mut FieldErrors| {
            self.validate_scale(object, &["spec", "status"], errors);
        };
        match self.schema.structural() {
            Some(structural) => structural.validate_update(object, old, scale, errors),
            None => scale(errors),
        }
    }

    fn validate_subresource(
        &self,
        subresource: &str,
        object: &Value,
        old: &Value,
        errors: &mut FieldErrors,
    ) {
        if subresource != "status" {
            return self.validate_update(object, old, errors);
        }
        let scale = |errors: &mut FieldErrors| self.validate_scale(object, &["status"], errors);
        match self.schema.structural() {
            Some(structural) => structural.validate_status(object, old, scale, errors),
            None => scale(errors),
        }
    }

    fn warnings(&self, _subresource: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
        let names = |object: &Value| -> BTreeSet<Str> {
            let finalizers = object.items_at(&["metadata", "finalizers"]).iter();
            finalizers.filter_map(Value::as_str).map(Str::new).collect()
        };
        let known = old.map(names).unwrap_or_default();
        names(object).difference(&known).flat_map(|name| finalizer_warnings(name)).collect()
    }

    fn columns(&self) -> Vec<Column> {
        self.columns.clone()
    }
}

fn set_or_remove(object: &mut Value, path: &[&str], value: Option<Value>) {
    match value {
        Some(value) => object.set_at(path, value),
        None => drop(object.remove_at(path)),
    }
}

impl CustomResourceStrategy {
    /// An object of another apiVersion or kind is not validated any further.
    fn is_another_kind(&self, object: &Value, errors: &mut FieldErrors) -> bool {
        let given = (object.str_at(&["kind"]), object.str_at(&["apiVersion"]));
        let expected = (self.gvk.kind.as_str(), self.schema.api_version.as_str());
        let fields = [("kind", given.0, expected.0), ("apiVersion", given.1, expected.1)];
        for (field, given, expected) in
            fields.iter().filter(|(_, given, expected)| given != expected)
        {
            errors.invalid(FieldPath::new(*field), *given, &format!("must be {expected}"));
        }
        given != expected
    }

    fn validate_scale(&self, object: &Value, parts: &[&str], errors: &mut FieldErrors) {
        let Some(scale) = &self.scale else { return };
        let replicas = [("spec", &scale.spec_replicas), ("status", &scale.status_replicas)];
        for (_, path) in replicas.iter().filter(|(part, _)| parts.contains(part)) {
            check_replicas(object, path, errors);
        }
        if let Some(path) = &scale.label_selector {
            let text = |value: &Value| match value {
                Value::String(_) => Ok(()),
                other => Err(wrong_type(path, other, "string")),
            };
            let found = value_at(object, path).and_then(|value| value.map_or(Ok(()), text));
            if let Err(why) = found {
                errors.invalid(FieldPath::new(dotted(path)), "", &why);
            }
        }
    }
}

/// The value at a path; an error if a parent is not an object.
fn value_at<'a>(object: &'a Value, path: &[String]) -> Result<Option<&'a Value>, String> {
    let mut value = object;
    for (at, name) in path.iter().enumerate() {
        match value {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(name) {
                Some(next) => value = next,
                None => return Ok(None),
            },
            other => return Err(wrong_type(&path[..=at], other, "map[string]interface{}")),
        }
    }
    Ok(Some(value))
}

fn dotted(path: &[String]) -> String {
    format!(".{}", path.join("."))
}

fn check_replicas(object: &Value, path: &[String], errors: &mut FieldErrors) {
    let at = FieldPath::new(dotted(path));
    let count = match value_at(object, path) {
        Ok(None) => return,
        Ok(Some(value)) => value.as_i64().ok_or_else(|| wrong_type(path, value, "int64")),
        Err(why) => Err(why),
    };
    match count {
        Err(why) => errors.invalid(at, 0i64, &why),
        Ok(count) if count < 0 => errors.invalid(at, count, "should be a non-negative integer"),
        Ok(count) if count > i64::from(i32::MAX) => {
            let why = format!("should be less than or equal to {}", i32::MAX);
            errors.invalid(at, count, &why);
        }
        Ok(_) => {}
    }
}

/// Go's message for a field of another type than expected.
fn wrong_type(path: &[String], value: &Value, expected: &str) -> String {
    let (shown, found) = match value {
        Value::String(text) => (text.to_string(), "string"),
        Value::Bool(flag) => (flag.to_string(), "bool"),
        Value::Number(meta::Number::Int(int)) => (int.to_string(), "int64"),
        Value::Number(meta::Number::Float(float)) => (float.to_string(), "float64"),
        Value::Array(_) => (patch::go_text::show(value), "[]interface {}"),
        Value::Object(_) | Value::Raw(_) => {
            (patch::go_text::show(value), "map[string]interface {}")
        }
        Value::Null => ("<nil>".to_owned(), "<nil>"),
    };
    format!("{} accessor error: {shown} is of the type {found}, expected {expected}", dotted(path))
}

/// Warnings about the name of a finalizer.
fn finalizer_warnings(name: &str) -> Vec<String> {
    let at = format!("metadata.finalizers: {}", quote(name));
    let warnings = meta::names::is_qualified_name(name).into_iter();
    let mut warnings: Vec<String> = warnings.map(|why| format!("{at}: {why}")).collect();
    let known = ["orphan", "foregroundDeletion", "kubernetes"];
    if !name.contains('/') && !known.contains(&name) {
        let path = if name.contains('.') { " including a path (/)" } else { "" };
        warnings.push(format!(
            "{at}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with \
             other finalizer writers"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn finalizers_without_a_domain_and_path_lead_to_warnings() {
        let cases = [("example.com/x", 0), ("orphan", 0), ("x", 1), ("example.com", 1), ("a b", 2)];
        for (name, warnings) in cases {
            assert_eq!(finalizer_warnings(name).len(), warnings, "{name}");
        }
    }

    #[test]
    fn replicas_are_non_negative_int32() {
        let path = ["spec".to_owned(), "n".to_owned()];
        let cases = [
            (value!({"spec": {"n": 1i64}}), "[]"),
            (value!({"spec": {}}), "[]"),
            (
                value!({"spec": {"n": (-1i64)}}),
                ".spec.n: Invalid value: -1: should be a non-negative integer",
            ),
            (
                value!({"spec": {"n": "x"}}),
                ".spec.n: Invalid value: 0: .spec.n accessor error: x is of the type string, expected int64",
            ),
            (
                value!({"spec": {"n": {"a": null}}}),
                ".spec.n: Invalid value: 0: .spec.n accessor error: map[a:<nil>] is of the type map[string]interface {}, expected int64",
            ),
            (
                value!({"spec": []}),
                ".spec.n: Invalid value: 0: .spec.n accessor error: [] is of the type []interface {}, expected map[string]interface{}",
            ),
            (value!({"spec": null}), "[]"),
        ];
        for (object, expected) in cases {
            let mut errors = FieldErrors::default();
            check_replicas(&object, &path, &mut errors);
            assert_eq!(errors.to_string(), expected);
        }
    }
}
