//! Restrictions by feature gates and flags: fields of disabled features, and objects that flags
//! forbid.

use meta::{FieldErrors, Value};

/// The default restricts nothing.
#[derive(Clone, Debug, Default)]
pub struct FeatureGatedFields {
    /// Fields that are dropped, unless the old object has them already.
    pub dropped: Vec<FieldPattern>,
    /// Validation in addition to the strategy's.
    pub rule: Option<GatedRule>,
}

/// A rule about the part of an object at a path. The path belongs to the kind: the object's own `kind` can be
/// removed by a patch.
#[derive(Clone, Copy, Debug)]
pub struct GatedRule {
    pub check: fn(&Value, &str, &mut FieldErrors),
    /// `spec.template.spec`.
    pub path: &'static str,
}

impl FeatureGatedFields {
    pub(crate) fn drop_fields(&self, object: &mut Value, old: Option<&Value>) {
        for pattern in &self.dropped {
            if !old.is_some_and(|old| pattern.is_in(old)) {
                pattern.remove_from(object);
            }
        }
    }

    pub(crate) fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        if let Some(GatedRule { check, path }) = self.rule {
            check(object, path, errors);
        }
    }
}

/// A path pattern: in `spec.volumes[].projected`, `[]` stands for every item of a list or every
/// value of a map. `spec.source?namespace` is `spec.source` if that has a `namespace`; an old
/// object that has a `spec.source` keeps it either way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPattern(String);

impl FieldPattern {
    pub fn new(pattern: impl Into<String>) -> Self {
        Self(pattern.into())
    }

    fn is_in(&self, object: &Value) -> bool {
        let (path, _) = self.parts();
        find(object, &path)
    }

    fn remove_from(&self, object: &mut Value) {
        let (path, condition) = self.parts();
        remove(object, &path, condition);
    }

    fn parts(&self) -> (Vec<&str>, Option<&str>) {
        let (path, condition) = match self.0.split_once('?') {
            Some((path, condition)) => (path, Some(condition)),
            None => (self.0.as_str(), None),
        };
        (path.split('.').collect(), condition)
    }
}

fn find(value: &Value, path: &[&str]) -> bool {
    let Some((step, rest)) = path.split_first() else { return holds(value, None) };
    let (name, each) = step.strip_suffix("[]").map_or((*step, false), |name| (name, true));
    match value.get(name) {
        Some(Value::Array(items)) if each => items.iter().any(|item| find(item, rest)),
        Some(Value::Object(map)) if each => map.values().any(|item| find(item, rest)),
        Some(next) if !each => find(next, rest),
        _ => false,
    }
}

fn remove(value: &mut Value, path: &[&str], condition: Option<&str>) {
    let Some((step, rest)) = path.split_first() else { return };
    let (name, each) = step.strip_suffix("[]").map_or((*step, false), |name| (name, true));
    if rest.is_empty() {
        // An empty string does not count as use of the field, but is removed with it.
        if condition.is_none() || value.get(name).is_some_and(|value| holds(value, condition)) {
            value.remove_at(&[name]);
        }
        return;
    }
    match value.get_mut(name) {
        Some(Value::Array(items)) if each => {
            for item in items {
                remove(item, rest, condition);
            }
        }
        Some(Value::Object(map)) if each => {
            for (_, item) in map.iter_mut() {
                remove(item, rest, condition);
            }
        }
        Some(next) if !each => remove(next, rest, condition),
        _ => {}
    }
}

fn holds(value: &Value, condition: Option<&str>) -> bool {
    let is_there = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        _ => true,
    };
    is_there(value) && condition.is_none_or(|field| value.get(field).is_some_and(is_there))
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn a_field_is_dropped_everywhere_unless_the_old_object_has_it_somewhere() {
        let object =
            value!({"a": {"list": [{"x": 1i64, "y": 2i64}, {"x": 3i64}], "s": {"n": "b"}}});
        let cases = [
            ("a.list[].x", value!({}), value!({"a": {"list": [{"y": 2i64}, {}], "s": {"n": "b"}}})),
            ("a.list[].x", value!({"a": {"list": [{"x": 9i64}]}}), object.clone()),
            (
                "a.list[].x",
                value!({"a": {"list": [{"y": 9i64}]}}),
                value!({"a": {"list": [{"y": 2i64}, {}], "s": {"n": "b"}}}),
            ),
            ("a.s?n", value!({}), value!({"a": {"list": [{"x": 1i64, "y": 2i64}, {"x": 3i64}]}})),
            ("a.s?n", value!({"a": {"s": {"m": "b"}}}), object.clone()),
            ("a.s?m", value!({}), object.clone()),
            ("a.s[].n", value!({}), object.clone()),
        ];
        for (pattern, old, expected) in cases {
            let gated_fields =
                FeatureGatedFields { dropped: vec![FieldPattern::new(pattern)], rule: None };
            let mut now = object.clone();
            gated_fields.drop_fields(&mut now, Some(&old));
            assert_eq!(now, expected, "{pattern} {old:?}");
        }
    }
}
