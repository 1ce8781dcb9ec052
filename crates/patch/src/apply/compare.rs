//! Compares two states of an object: structured-merge-diff's `typed.Comparison`.

use std::collections::BTreeMap;

use meta::{Map, Str, Value};
use schema::Schema;

use super::atom::{
    DeducedAtom, ElementRelationship, ListSchema, MapSchema, TypeRef, field_value, normalize,
};
use super::path::{Path, PathElement, same_value};
use super::set::Set;

/// The sets are disjoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    pub(super) removed: Set,
    pub(super) modified: Set,
    pub(super) added: Set,
}

impl Comparison {
    /// The fields that the newer object sets.
    pub(super) fn changed(self) -> Set {
        self.modified.union(self.added)
    }

    pub(super) fn filter(&mut self, filter: impl Fn(Set) -> Set) {
        for set in [&mut self.removed, &mut self.modified, &mut self.added] {
            *set = filter(std::mem::take(set));
        }
    }
}

/// Where the newer object comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NewObject {
    /// A complete object from a client: its Go struct cannot tell zero values from missing ones.
    Whole,
    /// The older object with a configuration merged into it; explicit zero values count.
    Merged,
}

pub(super) fn compare(
    schema: &Schema,
    type_ref: TypeRef<'_>,
    old: &Value,
    new: &Value,
    kind: NewObject,
) -> Comparison {
    let mut walker = Walker { schema, kind, path: Vec::new(), found: Comparison::default() };
    walker.compare(type_ref, Some(old), Some(new));
    walker.found
}

struct Walker<'a> {
    schema: &'a Schema,
    kind: NewObject,
    path: Path,
    found: Comparison,
}

impl Walker<'_> {
    fn compare(&mut self, type_ref: TypeRef<'_>, old: Option<&Value>, new: Option<&Value>) {
        if old == new {
            return;
        }
        let atom = type_ref.resolve(self.schema);
        let (was, is) = (atom.deduce(old), atom.deduce(new));
        let leaf = match (old, new) {
            (_, None) => self.compare_as(type_ref, was, old, new),
            // The type of the value changed: the fields of the old value are removed as well.
            (Some(_), Some(_)) if !was.same_kind(&is) => {
                self.compare_as(type_ref, was, old, new);
                self.compare_as(type_ref, is, old, new)
            }
            _ => self.compare_as(type_ref, is, old, new),
        };
        if !leaf {
            match (old, new) {
                (None, _) => self.found.added.insert(&self.path),
                (_, None) => self.found.removed.insert(&self.path),
                _ => {}
            }
        }
    }

    /// Returns whether the value was a leaf, which is then already recorded.
    fn compare_as(
        &mut self,
        type_ref: TypeRef<'_>,
        shape: DeducedAtom<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> bool {
        match shape {
            DeducedAtom::Scalar(_) => self.compare_leaf(type_ref, old, new),
            DeducedAtom::List(list) => {
                let (was, is) = (items(old), items(new));
                let empty = was.is_empty() && is.is_empty();
                if matches!(list.kind, ElementRelationship::Atomic) || empty {
                    return self.compare_leaf(type_ref, old, new);
                }
                self.compare_items(list, was, is);
                false
            }
            DeducedAtom::Map(object) => {
                let (was, is) = (members(old), members(new));
                let is_empty = |map: Option<&Map>| map.is_none_or(Map::is_empty);
                if object.atomic || is_empty(was) && is_empty(is) {
                    return self.compare_leaf(type_ref, old, new);
                }
                self.compare_members(object, was, is);
                false
            }
        }
    }

    fn compare_leaf(
        &mut self,
        type_ref: TypeRef<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> bool {
        match (old, new) {
            (None, _) => self.found.added.insert(&self.path),
            (_, None) => self.found.removed.insert(&self.path),
            (Some(old), Some(new)) if !self.same(type_ref, old, new) => {
                self.found.modified.insert(&self.path);
            }
            _ => {}
        }
        true
    }

    fn same(&self, type_ref: TypeRef<'_>, old: &Value, new: &Value) -> bool {
        let normalized = |value: &Value| normalize(self.schema, type_ref, value);
        same_value(old, new)
            || match (old, self.kind) {
                (Value::Array(_) | Value::Object(_), NewObject::Merged) => {
                    same_value(&normalized(old), new)
                }
                (Value::Array(_) | Value::Object(_), NewObject::Whole) => {
                    same_value(&normalized(old), &normalized(new))
                }
                _ => false,
            }
    }

    fn compare_members<'v>(
        &mut self,
        object: MapSchema<'_>,
        old: Option<&'v Map>,
        new: Option<&'v Map>,
    ) {
        let mut names: Vec<&str> =
            [old, new].into_iter().flatten().flat_map(Map::keys).map(Str::as_str).collect();
        if old.is_none() || new.is_none() {
            names.extend(object.always_present());
        }
        names.sort_unstable();
        names.dedup();
        for name in names {
            let get = |map: Option<&'v Map>| map.and_then(|map| map.get(name));
            let (mut was, mut is) = (get(old), get(new));
            if let Some(field) = object.field(name) {
                let raw = was;
                was = old.and_then(|_| field_value(field, raw));
                is = match (self.kind, is) {
                    (NewObject::Whole, is) => new.and_then(|_| field_value(field, is)),
                    // A field that the old object has implicitly is also implicit in the merged
                    // one.
                    (NewObject::Merged, None) if raw.is_none() => new.and(was),
                    (NewObject::Merged, is) => is,
                };
            }
            if was.is_some() || is.is_some() {
                self.path.push(PathElement::field(name));
                self.compare(object.member(name), was, is);
                self.path.pop();
            }
        }
    }

    fn compare_items(&mut self, list: ListSchema<'_>, old: &[Value], new: &[Value]) {
        let mut by_element: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old {
            if let Ok(element) = list.element(self.schema, item) {
                by_element.entry(element).or_default().0.push(item);
            }
        }
        for item in new {
            if let Ok(element) = list.element(self.schema, item) {
                by_element.entry(element).or_default().1.push(item);
            }
        }
        for (element, (was, is)) in by_element {
            self.path.push(element);
            match (was.as_slice(), is.as_slice()) {
                ([] | [_], [] | [_]) => {
                    self.compare(list.item, was.first().copied(), is.first().copied());
                }
                // Items with duplicate keys are one leaf, before and after.
                ([_, _, ..], [_, _, ..]) => {
                    let same = was.len() == is.len()
                        && was.iter().zip(&is).all(|(was, is)| same_value(was, is));
                    if !same {
                        self.found.modified.insert(&self.path);
                    }
                }
                ([_, _, ..], is) => {
                    if let Some(is) = is.first() {
                        self.compare(list.item, None, Some(is));
                    }
                    self.found.removed.insert(&self.path);
                }
                (was, _) => {
                    if let Some(was) = was.first() {
                        self.compare(list.item, Some(was), None);
                    }
                    self.found.added.insert(&self.path);
                }
            }
            self.path.pop();
        }
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).unwrap_or_default()
}

fn members(value: Option<&Value>) -> Option<&Map> {
    value.and_then(Value::as_object)
}
