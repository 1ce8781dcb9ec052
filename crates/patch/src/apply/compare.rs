//! What changed between two versions of an object.

use std::collections::BTreeMap;

use meta::{Map, Str, Value};
use schema::Schema;

use super::atom::{Items, List, Object, Place, Shape, field_value, normal};
use super::path::{Path, PathElement, same_value};
use super::set::Set;

/// No field is in more than one of these.
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

/// What the newer object is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum New {
    /// An object as a client wrote it: its Go struct can't tell zero values from missing ones.
    Whole,
    /// The older one with a configuration merged into it, where every value counts.
    Merged,
}

pub(super) fn compare(
    schema: &Schema,
    place: Place<'_>,
    old: &Value,
    new: &Value,
    kind: New,
) -> Comparison {
    let mut walker = Walker { schema, kind, path: Vec::new(), found: Comparison::default() };
    walker.compare(place, Some(old), Some(new));
    walker.found
}

struct Walker<'a> {
    schema: &'a Schema,
    kind: New,
    path: Path,
    found: Comparison,
}

impl Walker<'_> {
    fn compare(&mut self, place: Place<'_>, old: Option<&Value>, new: Option<&Value>) {
        if old == new {
            return;
        }
        let atom = place.atom(self.schema);
        let (was, is) = (atom.shape(old), atom.shape(new));
        let leaf = match (old, new) {
            (_, None) => self.compare_as(place, was, old, new),
            // Something else stands there now: the parts of the old one are gone, too.
            (Some(_), Some(_)) if !was.same_kind(&is) => {
                self.compare_as(place, was, old, new);
                self.compare_as(place, is, old, new)
            }
            _ => self.compare_as(place, is, old, new),
        };
        if !leaf {
            match (old, new) {
                (None, _) => self.found.added.insert(&self.path),
                (_, None) => self.found.removed.insert(&self.path),
                _ => {}
            }
        }
    }

    /// Returns whether this was a leaf, which is then already dealt with.
    fn compare_as(
        &mut self,
        place: Place<'_>,
        shape: Shape<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> bool {
        match shape {
            Shape::Scalar(_) => self.compare_leaf(place, old, new),
            Shape::List(list) => {
                let (was, is) = (items(old), items(new));
                let empty = was.is_empty() && is.is_empty();
                if matches!(list.kind, Items::Atomic) || empty {
                    return self.compare_leaf(place, old, new);
                }
                self.compare_items(list, was, is);
                false
            }
            Shape::Map(object) => {
                let (was, is) = (members(old), members(new));
                let is_empty = |map: Option<&Map>| map.is_none_or(Map::is_empty);
                if object.atomic || is_empty(was) && is_empty(is) {
                    return self.compare_leaf(place, old, new);
                }
                self.compare_members(object, was, is);
                false
            }
        }
    }

    fn compare_leaf(&mut self, place: Place<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
        match (old, new) {
            (None, _) => self.found.added.insert(&self.path),
            (_, None) => self.found.removed.insert(&self.path),
            (Some(old), Some(new)) if !self.same(place, old, new) => {
                self.found.modified.insert(&self.path);
            }
            _ => {}
        }
        true
    }

    fn same(&self, place: Place<'_>, old: &Value, new: &Value) -> bool {
        let normal = |value: &Value| normal(self.schema, place, value);
        same_value(old, new)
            || match (old, self.kind) {
                (Value::Array(_) | Value::Object(_), New::Merged) => same_value(&normal(old), new),
                (Value::Array(_) | Value::Object(_), New::Whole) => {
                    same_value(&normal(old), &normal(new))
                }
                _ => false,
            }
    }

    fn compare_members<'v>(
        &mut self,
        object: Object<'_>,
        old: Option<&'v Map>,
        new: Option<&'v Map>,
    ) {
        let mut names: Vec<&str> =
            [old, new].into_iter().flatten().flat_map(Map::keys).map(Str::as_str).collect();
        if old.is_none() || new.is_none() {
            names.extend(object.always_there());
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
                    (New::Whole, is) => new.and_then(|_| field_value(field, is)),
                    // What the old one has without writing it, the merged one has too.
                    (New::Merged, None) if raw.is_none() => new.and(was),
                    (New::Merged, is) => is,
                };
            }
            if was.is_some() || is.is_some() {
                self.path.push(PathElement::field(name));
                self.compare(object.member(name), was, is);
                self.path.pop();
            }
        }
    }

    fn compare_items(&mut self, list: List<'_>, old: &[Value], new: &[Value]) {
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
                // Several with one key are one leaf, before and after.
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
