//! The JSON tree that an object is while it is being written: parsed once, changed by defaults,
//! strategies and patches, encoded once. Reads never build one.
//!
//! A map is a vector sorted by key. Kubernetes prints free maps (`labels`, `data`) and custom
//! resources with sorted keys, and the fields of built-in types in the order of their schema, so
//! insertion order is never needed; a sorted vector makes equality, merging and lookups cheap and
//! cannot be attacked through hash collisions.

use std::{fmt, sync::Arc};

use smol_str::SmolStr;

use crate::raw_json::RawJson;

/// Short strings are stored inline, long ones are shared: a clone never copies text.
pub type Str = SmolStr;

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    String(Str),
    Array(Vec<Value>),
    Object(Map),
    /// A field whose text is kept (`RawExtension`). It reads as its tree, and becomes that tree when it
    /// is changed.
    Raw(Arc<RawJson>),
}

/// A number as JSON has it. Kubernetes keeps integers apart from floats: `1` and `1.0` differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Int(i64),
    Float(f64),
}

/// Key/value pairs, sorted by key, each key once.
#[derive(Clone, Default, PartialEq)]
pub struct Map {
    // Invariant: strictly ascending by key.
    entries: Vec<(Str, Value)>,
}

impl Value {
    pub fn object() -> Self {
        Self::Object(Map::new())
    }

    pub fn string(text: impl AsRef<str>) -> Self {
        Self::String(Str::new(text))
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    #[inline]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            Self::Raw(raw) => raw.tree().as_str(),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            Self::Raw(raw) => raw.tree().as_bool(),
            _ => None,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Number(Number::Int(value)) => Some(*value),
            Self::Raw(raw) => raw.tree().as_i64(),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(items) => Some(items),
            Self::Raw(raw) => raw.tree().as_array(),
            _ => None,
        }
    }

    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self.tree_mut() {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    #[inline]
    pub fn as_object(&self) -> Option<&Map> {
        match self {
            Self::Object(map) => Some(map),
            Self::Raw(raw) => raw.tree().as_object(),
            _ => None,
        }
    }

    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        match self.tree_mut() {
            Self::Object(map) => Some(map),
            _ => None,
        }
    }

    /// The value without the text of a raw field: what code that matches on variants looks at.
    pub fn tree(&self) -> &Value {
        match self {
            Self::Raw(raw) => raw.tree(),
            other => other,
        }
    }

    /// The same to be changed: a raw field gives up its text.
    pub fn tree_mut(&mut self) -> &mut Value {
        if let Self::Raw(_) = self {
            *self = std::mem::take(self).into_tree();
        }
        self
    }

    #[must_use]
    pub fn into_tree(self) -> Value {
        match self {
            Self::Raw(raw) => Arc::unwrap_or_clone(raw).into_tree(),
            other => other,
        }
    }

    /// Replaces all raw fields by their trees: what Go does to objects that it converts to unstructured
    /// ones.
    pub fn flatten_raw(&mut self) {
        // Plain loops, because adapters would take stack on every level.
        match self {
            Self::Raw(_) => {
                self.tree_mut();
            }
            Self::Array(items) => {
                for item in items {
                    item.flatten_raw();
                }
            }
            Self::Object(map) => {
                for (_, value) in &mut map.entries {
                    value.flatten_raw();
                }
            }
            _ => {}
        }
    }

    /// Whether two values are equal down to the text of their raw fields, so that one can stand for the
    /// other.
    pub fn is_identical(&self, other: &Self) -> bool {
        // Plain loops, because adapters would take stack on every level.
        match (self, other) {
            (Self::Raw(a), Self::Raw(b)) => a.text() == b.text(),
            // Zero has two signs, which are written.
            (Self::Number(Number::Float(a)), Self::Number(Number::Float(b))) => {
                a.to_bits() == b.to_bits()
            }
            (Self::Array(a), Self::Array(b)) => {
                for (a, b) in a.iter().zip(b) {
                    if !a.is_identical(b) {
                        return false;
                    }
                }
                a.len() == b.len()
            }
            (Self::Object(a), Self::Object(b)) => {
                for ((a_key, a), (b_key, b)) in a.entries.iter().zip(&b.entries) {
                    if a_key != b_key || !a.is_identical(b) {
                        return false;
                    }
                }
                a.len() == b.len()
            }
            (a, b) => a == b,
        }
    }

    /// Sets a member of an object to a copy of a value; nothing is copied if it is the same already.
    pub fn keep_at(&mut self, path: &[&str], value: Option<&Value>) {
        match value {
            Some(value) if self.at(path).is_some_and(|own| own.is_identical(value)) => {}
            Some(value) => self.set_at(path, value.clone()),
            None => drop(self.remove_at(path)),
        }
    }

    /// The member `key`, if this is an object that has it.
    #[inline]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_object()?.get(key)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.as_object_mut()?.get_mut(key)
    }

    /// Walks down object members: `at(&["metadata", "labels"])`.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |value, key| value.get(key))
    }

    pub fn at_mut(&mut self, path: &[&str]) -> Option<&mut Value> {
        path.iter().try_fold(self, |value, key| value.get_mut(key))
    }

    /// The text at a path, or "" where there is none: what a Go string field reads as.
    pub fn str_at(&self, path: &[&str]) -> &str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn i64_at(&self, path: &[&str]) -> Option<i64> {
        self.at(path)?.as_i64()
    }

    pub fn bool_at(&self, path: &[&str]) -> bool {
        self.at(path).and_then(Value::as_bool).unwrap_or_default()
    }

    /// The items at a path; none where there is no array.
    pub fn items_at(&self, path: &[&str]) -> &[Value] {
        self.at(path).and_then(Value::as_array).unwrap_or_default()
    }

    /// The object at a path, made where it is missing (or is something else).
    pub fn object_at_mut(&mut self, path: &[&str]) -> &mut Map {
        let mut value = self;
        for key in path {
            value = value.make_object().entry(key);
        }
        value.make_object()
    }

    /// Sets a member at a path, making the objects on the way.
    pub fn set_at(&mut self, path: &[&str], new: impl Into<Value>) {
        let (last, parents) = path.split_last().expect("a path has at least one step");
        self.object_at_mut(parents).insert(*last, new.into());
    }

    /// Removes and returns the member at a path.
    pub fn remove_at(&mut self, path: &[&str]) -> Option<Value> {
        let (last, parents) = path.split_last()?;
        self.at_mut(parents)?.as_object_mut()?.remove(last)
    }

    fn make_object(&mut self) -> &mut Map {
        if !matches!(self.tree_mut(), Self::Object(_)) {
            *self = Self::object();
        }
        self.as_object_mut().expect("made an object above")
    }

    /// What Go calls it in decoding errors: `object`, `array`, `string`, `number`, `bool`, `null`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
            Self::Raw(raw) => raw.tree().type_name(),
        }
    }
}

impl Map {
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Builds a map from pairs in any order. Of equal keys the last wins, as in Go.
    pub fn from_pairs(mut pairs: Vec<(Str, Value)>) -> Self {
        if !pairs.is_sorted_by(|a, b| a.0 < b.0) {
            // Stable, so that of equal keys the later one stays behind the earlier.
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
            pairs.reverse();
            pairs.dedup_by(|a, b| a.0 == b.0);
            pairs.reverse();
        }
        Self { entries: pairs }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub fn get(&self, key: &str) -> Option<&Value> {
        // Most maps are small, and keys of another length need no look at their bytes.
        if self.entries.len() <= FEW {
            return self.entries.iter().find(|(probe, _)| probe == key).map(|(_, value)| value);
        }
        let at = self.find(key).ok()?;
        Some(&self.entries[at].1)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        let at = self.find(key).ok()?;
        Some(&mut self.entries[at].1)
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_ok()
    }

    /// Sets `key`; returns what was there before.
    pub fn insert(&mut self, key: impl AsRef<str>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.as_ref(), value.into());
        match self.find(key) {
            Ok(at) => Some(std::mem::replace(&mut self.entries[at].1, value)),
            Err(at) => {
                self.entries.insert(at, (Str::new(key), value));
                None
            }
        }
    }

    /// The value of `key`, inserted as null if it is missing.
    pub fn entry(&mut self, key: &str) -> &mut Value {
        let at = match self.find(key) {
            Ok(at) => at,
            Err(at) => {
                self.entries.insert(at, (Str::new(key), Value::Null));
                at
            }
        };
        &mut self.entries[at].1
    }

    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.find(key).ok()?;
        Some(self.entries.remove(at).1)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        self.entries.retain_mut(|(key, value)| keep(key, value));
    }

    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Str, &Value)> + DoubleEndedIterator {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&Str, &mut Value)> {
        self.entries.iter_mut().map(|(key, value)| (&*key, value))
    }

    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Str> {
        self.entries.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl ExactSizeIterator<Item = &Value> {
        self.entries.iter().map(|(_, value)| value)
    }

    /// The place of a key among the sorted keys, or the place where it would be inserted: an insertion
    /// or removal there moves all later members.
    pub fn position(&self, key: &str) -> Result<usize, usize> {
        self.find(key)
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|(probe, _)| probe.as_str().cmp(key))
    }
}

/// So many keys are looked through faster than they are halved.
const FEW: usize = 12;

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl IntoIterator for Map {
    type Item = (Str, Value);
    type IntoIter = std::vec::IntoIter<(Str, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl<K: Into<Str>, V: Into<Value>> FromIterator<(K, V)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self::from_pairs(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(Str::new(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(Str::from(text))
    }
}

impl From<Str> for Value {
    fn from(text: Str) -> Self {
        Self::String(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Number(Number::Int(value))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Number(Number::Float(value))
    }
}

impl From<RawJson> for Value {
    fn from(raw: RawJson) -> Self {
        Self::Raw(Arc::new(raw))
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Self::Object(map)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Self {
        Self::Array(items.into_iter().map(Into::into).collect())
    }
}

/// Builds a [`Value`] from JSON-like text: `value!({"kind": "Pod", "spec": {"replicas": 1}})`.
#[macro_export]
macro_rules! value {
    (null) => { $crate::Value::Null };
    ({ $($key:literal : $value:tt),* $(,)? }) => {
        $crate::Value::Object($crate::Map::from_pairs(vec![
            $(($crate::Str::new($key), $crate::value!($value))),*
        ]))
    };
    ([ $($item:tt),* $(,)? ]) => { $crate::Value::Array(vec![ $($crate::value!($item)),* ]) };
    (($value:expr)) => { $crate::Value::from($value) };
    ($value:expr) => { $crate::Value::from($value) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_duplicate_keys_wins() {
        let map: Map = [("b", 1i64), ("a", 2), ("b", 3), ("a", 4), ("c", 5)].into_iter().collect();
        let pairs: Vec<_> = map.iter().map(|(k, v)| (k.as_str(), v.as_i64().unwrap())).collect();
        assert_eq!(pairs, [("a", 4), ("b", 3), ("c", 5)]);
    }

    #[test]
    fn set_at_creates_missing_parents() {
        let mut pod = value!({"kind": "Pod", "spec": null});
        pod.set_at(&["spec", "nodeName"], "n1");
        pod.set_at(&["metadata", "labels", "a"], "b");
        assert_eq!(pod.str_at(&["spec", "nodeName"]), "n1");
        assert_eq!(pod.str_at(&["metadata", "labels", "a"]), "b");
        assert_eq!(pod.remove_at(&["metadata", "labels", "a"]), Some(Value::from("b")));
        assert_eq!(pod.at(&["metadata", "labels"]), Some(&Value::object()));
    }

    #[test]
    fn what_is_kept_is_the_same_afterwards_down_to_the_text_of_raw_fields() {
        let raw = |text: &str| -> Value { RawJson::new(text, value!([1i64])).into() };
        let cases = [
            (value!({"a": [1i64, {"b": null}]}), Some(value!([1i64, {"b": null}]))),
            (value!({"a": [1i64]}), Some(value!([1i64, 2i64]))),
            (value!({"a": {"b": 1i64}}), Some(value!({"c": 1i64}))),
            (value!({"a": {"b": 1i64, "c": 2i64}}), Some(value!({"b": 1i64}))),
            (value!({"a": 1i64}), Some(value!(1.0))),
            (value!({"a": 0.0}), Some(value!((-0.0)))),
            (value!({"a": (raw("[1]"))}), Some(raw("[ 1 ]"))),
            (value!({"a": 1i64}), None),
            (value!({}), Some(value!(1i64))),
        ];
        for (mut object, kept) in cases {
            object.keep_at(&["a"], kept.as_ref());
            assert_eq!(object.get("a").is_some(), kept.is_some());
            let same = |(now, kept): (&Value, &Value)| now.is_identical(kept);
            assert!(object.get("a").zip(kept.as_ref()).is_none_or(same), "{object:?}");
        }
        assert_eq!(raw("[1]"), raw("[ 1 ]"));
        assert!(!raw("[1]").is_identical(&raw("[ 1 ]")));
    }

    #[test]
    fn value_macro_builds_nested_values() {
        let value = value!({"a": [1i64, {"b": true}, null], "c": ("x".to_owned() + "y")});
        assert_eq!(value.items_at(&["a"]).len(), 3);
        assert!(value.items_at(&["a"])[1].bool_at(&["b"]));
        assert_eq!(value.str_at(&["c"]), "xy");
    }
}
