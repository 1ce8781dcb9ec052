//! A field of an object: its value and, should something be wrong with it, its path. The path is only
//! written out for an error, so checking a good object costs no strings.

use super::go_json;
use meta::{FieldErrors, FieldPath, Value, cancel, field::FieldReason, names::invalid_each};

/// A value somewhere in an object. Absent and null are the same, as they are in Go.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    value: Option<&'a Value>,
    step: Step<'a>,
    parent: Option<&'a Field<'a>>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Field<'a> {
    /// The object itself.
    pub(crate) fn root(object: &'a Value) -> Self {
        Self { value: Some(object), step: Step::Root, parent: None }
    }

    /// The member `name`.
    pub(crate) fn get(&'a self, name: &'a str) -> Self {
        let value = self.value.and_then(|value| value.get(name)).filter(|value| !value.is_null());
        Self { value, step: Step::Name(name), parent: Some(self) }
    }

    /// The same value under another name: a few messages don't name the field they are about.
    pub(crate) fn named(&'a self, name: &'a str) -> Self {
        Self { step: Step::Name(name), ..*self }
    }

    /// Another value in the place of this one.
    pub(crate) fn with(&self, value: Option<&'a Value>) -> Self {
        Self { value: value.filter(|value| !value.is_null()), ..*self }
    }

    /// The item at a position; absent if there are not so many.
    pub(crate) fn index(&'a self, at: usize) -> Self {
        let value = self.value.and_then(Value::as_array).and_then(|items| items.get(at));
        Self { value, step: Step::Index(at), parent: Some(self) }
    }

    /// The entry of a map.
    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        let value = self.value.and_then(|value| value.get(key));
        Self { value, step: Step::Key(key), parent: Some(self) }
    }

    /// The items of a list.
    pub(crate) fn items(
        &'a self,
    ) -> impl DoubleEndedIterator<Item = Field<'a>> + ExactSizeIterator + Clone {
        let items = self.value.and_then(Value::as_array).unwrap_or_default();
        items.iter().enumerate().map(|(at, item)| {
            // A cancelled request ends its validation here: all validators go through lists.
            cancel::checkpoint();
            Self { value: Some(item), step: Step::Index(at), parent: Some(self) }
        })
    }

    /// The entries of a map, sorted by key.
    pub(crate) fn entries(&'a self) -> impl Iterator<Item = (&'a str, Field<'a>)> {
        let map = self.value.and_then(Value::as_object);
        map.into_iter().flat_map(meta::Map::iter).map(|(key, value)| {
            cancel::checkpoint();
            (key.as_str(), Self { value: Some(value), step: Step::Key(key), parent: Some(self) })
        })
    }

    /// Whether this is the member `name`, or below it.
    pub(crate) fn is_within(&self, name: &str) -> bool {
        matches!(self.step, Step::Name(own) if own == name)
            || self.parent.is_some_and(|parent| parent.is_within(name))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.value.is_some()
    }

    /// Absent, or without a single item or entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many items, entries or bytes there are.
    pub(crate) fn len(&self) -> usize {
        match self.value {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(map)) => map.len(),
            Some(Value::String(text)) => text.len(),
            _ => 0,
        }
    }

    pub(crate) fn value(&self) -> Option<&'a Value> {
        self.value
    }

    /// The value at a path below.
    pub(crate) fn value_at(&self, path: &[&str]) -> Option<&'a Value> {
        self.value.and_then(|value| value.at(path)).filter(|value| !value.is_null())
    }

    pub(crate) fn str_at(&self, path: &[&str]) -> &'a str {
        self.value_at(path).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn bool_at(&self, path: &[&str]) -> bool {
        self.value_at(path).and_then(Value::as_bool).unwrap_or_default()
    }

    /// The text, or what a Go string field holds where there is none.
    pub(crate) fn str(&self) -> &'a str {
        self.value.and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn is(&self, text: &str) -> bool {
        self.str() == text
    }

    pub(crate) fn bool(&self) -> bool {
        self.value.and_then(Value::as_bool).unwrap_or_default()
    }

    pub(crate) fn int(&self) -> Option<i64> {
        self.value.and_then(Value::as_i64)
    }

    /// The number, or what a Go integer field holds where there is none.
    pub(crate) fn int_or_zero(&self) -> i64 {
        self.int().unwrap_or_default()
    }

    /// The type of the field in kube-apiserver's internal types.
    fn go_type(&self) -> Option<&'static str> {
        let parent = self.parent.map(Field::go_type);
        match self.step {
            Step::Root => {
                let object = self.value?;
                go_json::kind_type(object.str_at(&["apiVersion"]), object.str_at(&["kind"]))
            }
            Step::Name(name) => go_json::member_type(parent??, name),
            Step::Index(_) => go_json::item_type(parent??),
            Step::Key(_) => go_json::entry_type(parent??),
        }
    }

    /// The value as Go prints it, where that is not the JSON of clients.
    fn as_go_prints(&self) -> Option<String> {
        if !matches!(self.value, None | Some(Value::Object(_) | Value::Array(_))) {
            return None;
        }
        let go_type = self.go_type().filter(|go_type| go_json::has_go_names(go_type))?;
        Some(go_json::compact(go_type, self.value))
    }

    pub(crate) fn path(&self) -> FieldPath {
        let parent = self.parent.map_or_else(FieldPath::root, Field::path);
        match self.step {
            Step::Root => parent,
            Step::Name(name) => parent.child(name),
            Step::Index(at) => parent.index(at),
            Step::Key(key) => parent.key(key),
        }
    }
}

/// What may be wrong with a field. Messages are word for word those of Kubernetes.
impl Field<'_> {
    /// Only counts an error beyond the bound: then neither path nor value are written out.
    fn is_omitted(&self, errors: &mut FieldErrors) -> bool {
        let full = errors.is_full();
        if full {
            errors.omit(&FieldPath::new(self.root_name()), 1);
        }
        full
    }

    fn root_name(&self) -> &str {
        let fields = std::iter::successors(Some(self), |field| field.parent);
        let names = fields.filter_map(|field| match field.step {
            Step::Name(name) => Some(name),
            _ => None,
        });
        names.last().unwrap_or_default()
    }

    pub(crate) fn required(&self, errors: &mut FieldErrors, why: &str) {
        if self.is_omitted(errors) {
            return;
        }
        errors.required(self.path(), why);
    }

    /// True if there is some text; an error if not.
    pub(crate) fn require(&self, errors: &mut FieldErrors) -> bool {
        if self.is_empty() {
            self.required(errors, "");
        }
        !self.is_empty()
    }

    pub(crate) fn invalid(&self, errors: &mut FieldErrors, why: &str) {
        if self.is_omitted(errors) {
            return;
        }
        match self.as_go_prints() {
            Some(shown) => self.invalid_shown(errors, &shown, why),
            None => errors.invalid(self.path(), self.value.cloned().unwrap_or_default(), why),
        }
    }

    /// The error shows something else than the value of the field.
    pub(crate) fn invalid_value(
        &self,
        errors: &mut FieldErrors,
        value: impl Into<Value>,
        why: &str,
    ) {
        if self.is_omitted(errors) {
            return;
        }
        errors.invalid(self.path(), value, why);
    }

    /// The error shows text that is not JSON of ours: a Go struct.
    pub(crate) fn invalid_shown(&self, errors: &mut FieldErrors, shown: &str, why: &str) {
        if self.is_omitted(errors) {
            return;
        }
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        errors.push(FieldReason::Invalid, self.path(), format!("Invalid value: {shown}{why}"));
    }

    pub(crate) fn not_supported(&self, errors: &mut FieldErrors, supported: &[&str]) {
        if self.is_omitted(errors) {
            return;
        }
        errors.not_supported(self.path(), self.str(), supported);
    }

    pub(crate) fn duplicate(&self, errors: &mut FieldErrors) {
        if self.is_omitted(errors) {
            return;
        }
        errors.duplicate(self.path(), self.value.cloned().unwrap_or_default());
    }

    pub(crate) fn forbidden(&self, errors: &mut FieldErrors, why: &str) {
        if self.is_omitted(errors) {
            return;
        }
        errors.forbidden(self.path(), why);
    }

    pub(crate) fn not_found(&self, errors: &mut FieldErrors) {
        if self.is_omitted(errors) {
            return;
        }
        errors.not_found(self.path(), self.str());
    }

    /// Checks the text by a rule of `meta::names`.
    pub(crate) fn rule(&self, errors: &mut FieldErrors, rule: fn(&str) -> Vec<String>) {
        let wrong = rule(self.str());
        if !wrong.is_empty() {
            invalid_each(errors, &self.path(), self.str(), wrong);
        }
    }

    /// As [`Field::rule`], for a field that may be left out.
    pub(crate) fn rule_if_filled(&self, errors: &mut FieldErrors, rule: fn(&str) -> Vec<String>) {
        if !self.is_empty() {
            self.rule(errors, rule);
        }
    }

    /// As [`Field::rule`], for a field that must be there.
    pub(crate) fn require_rule(&self, errors: &mut FieldErrors, rule: fn(&str) -> Vec<String>) {
        if self.require(errors) {
            self.rule(errors, rule);
        }
    }

    /// Checks the number by a rule of `meta::names`.
    pub(crate) fn int_rule(&self, errors: &mut FieldErrors, rule: fn(i64) -> Vec<String>) {
        for why in rule(self.int_or_zero()) {
            self.invalid_value(errors, self.int_or_zero(), &why);
        }
    }

    /// A field that may be left out, but must be one of a few words if not.
    pub(crate) fn one_of(&self, errors: &mut FieldErrors, supported: &[&str]) {
        if self.is_set() && !supported.contains(&self.str()) {
            self.not_supported(errors, supported);
        }
    }

    /// A field that has a default, so empty never stays empty, and must be one of a few words if not.
    pub(crate) fn one_of_or_default(&self, errors: &mut FieldErrors, supported: &[&str]) {
        if !self.is_empty() && !supported.contains(&self.str()) {
            self.not_supported(errors, supported);
        }
    }

    pub(crate) fn non_negative(&self, errors: &mut FieldErrors) {
        if self.int_or_zero() < 0 {
            self.invalid(errors, "must be greater than or equal to 0");
        }
    }

    pub(crate) fn positive(&self, errors: &mut FieldErrors) {
        if self.int_or_zero() <= 0 {
            self.invalid_value(errors, self.int_or_zero(), "must be greater than zero");
        }
    }

    pub(crate) fn in_range(&self, errors: &mut FieldErrors, min: i64, max: i64) {
        if !(min..=max).contains(&self.int_or_zero()) {
            let why = format!("must be between {min} and {max}, inclusive");
            self.invalid_value(errors, self.int_or_zero(), &why);
        }
    }

    /// The same value as before.
    pub(crate) fn immutable(&self, old: &Field<'_>, errors: &mut FieldErrors) {
        if self.value != old.value {
            self.invalid(errors, IMMUTABLE);
        }
    }
}

pub(crate) const IMMUTABLE: &str = "field is immutable";

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn a_path_is_written_out_for_errors() {
        let object = value!({"spec": {"list": [{"name": "x"}], "map": {"k": 1i64}, "none": null}});
        let (root, mut errors) = (Field::root(&object), FieldErrors::default());
        let spec = root.get("spec");
        let list = spec.get("list");
        for item in list.items() {
            item.get("name").invalid(&mut errors, "why");
        }
        let map = spec.get("map");
        for (_, entry) in map.entries() {
            entry.invalid(&mut errors, "why");
        }
        spec.get("none").required(&mut errors, "");
        assert_eq!(
            errors.to_string(),
            "[spec.list[0].name: Invalid value: \"x\": why, spec.map[k]: Invalid value: 1: why, \
             spec.none: Required value]"
        );
    }
}
