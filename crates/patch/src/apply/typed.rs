//! Typed objects (structured-merge-diff's `typed` package): validation, conversion to a field set,
//! removal of items.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use meta::{Map, Str, Value, cancel, limits::FIELD_PATH_BYTES_MAX};
use schema::Schema;

use super::atom::{Atom, DeducedAtom, ElementRelationship, ListSchema, MapSchema, Scalar, TypeRef};
use super::path::{Path, PathElement};
use super::set::Set;
use crate::go_text;

/// Checks that an object matches its schema: no unknown fields, the right types, no duplicates in
/// associative lists. The error lists every violation.
pub(super) fn check(schema: &Schema, type_ref: TypeRef<'_>, value: &Value) -> Result<(), String> {
    let mut checker = Checker { schema, violations: Vec::new(), more: 0 };
    checker.check(type_ref, value, FieldTrail::ROOT, false);
    let Checker { mut violations, more, .. } = checker;
    if more > 0 {
        violations.push(format!("and {more} more"));
    }
    match violations.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        several => Err(format!("errors:\n  {}", several.join("\n  "))),
    }
}

/// The paths of atomic lists, maps and structs in a value.
pub(super) fn find_atomics(
    schema: &Schema,
    type_ref: TypeRef<'_>,
    value: &Value,
    path: &str,
    atomics: &mut Vec<String>,
) {
    let atom = type_ref.resolve(schema);
    match (value, atom.map, atom.list) {
        (Value::Object(map), Some(object), _) => {
            if object.atomic {
                atomics.push(path.to_owned());
            }
            for (name, member) in map.iter() {
                if let Some(field) = object.ty.and_then(|ty| ty.field(name)) {
                    let path = format!("{path}.{name}");
                    find_atomics(schema, TypeRef::Node(&field.node), member, &path, atomics);
                }
            }
        }
        (Value::Array(items), _, Some(list)) => {
            if matches!(list.kind, ElementRelationship::Atomic) {
                atomics.push(path.to_owned());
            }
            for (at, item) in items.iter().enumerate() {
                find_atomics(schema, list.item, item, &format!("{path}[{at}]"), atomics);
            }
        }
        _ => {}
    }
}

/// The path from the root to the value being checked; formatted only when there is an error.
#[derive(Clone, Copy)]
struct FieldTrail<'a> {
    to: Option<&'a FieldTrail<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Member(&'a str),
    Item(&'a PathElement),
}

impl FieldTrail<'_> {
    const ROOT: Self = Self { to: None, step: Step::Root };
}

impl fmt::Display for FieldTrail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(to) = self.to {
            to.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Member(name) => write!(f, ".{name}"),
            Step::Item(element) => element.fmt(f),
        }
    }
}

struct Checker<'a> {
    schema: &'a Schema,
    violations: Vec<String>,
    /// Violations that are not listed.
    more: usize,
}

/// Violations that are listed; the rest is counted.
const VIOLATIONS_MAX: usize = 100;

impl Checker<'_> {
    /// `open` is inherited: below a node that preserves unknown fields, they are preserved at every
    /// level, but not in types that have a name.
    fn check(&mut self, type_ref: TypeRef<'_>, value: &Value, path: FieldTrail<'_>, open: bool) {
        let schema = self.schema;
        cancel::checkpoint();
        match type_ref.resolve(schema).deduce(Some(value)) {
            _ if value.is_null() => {}
            DeducedAtom::Scalar(scalar) => self.check_scalar(scalar, value, path),
            DeducedAtom::List(list) => match value {
                Value::Array(items) => self.check_items(list, items, path, open),
                other => self.add_violation(path, &format!("expected list, got {}", show(other))),
            },
            DeducedAtom::Map(object) => match value {
                Value::Object(map) => self.check_members(object, map, path, open),
                other => self.add_violation(path, &format!("expected map, got {}", show(other))),
            },
        }
    }

    fn check_scalar(&mut self, scalar: Scalar, value: &Value, path: FieldTrail<'_>) {
        let fits = match scalar {
            Scalar::Number => matches!(value, Value::Number(_)),
            Scalar::String => matches!(value, Value::String(_)),
            Scalar::Bool => matches!(value, Value::Bool(_)),
            Scalar::Any => !matches!(value, Value::Array(_) | Value::Object(_)),
        };
        if fits {
            return;
        }
        let why = match scalar {
            Scalar::Number => {
                format!("expected numeric (int or float), got {}", go_text::type_name(value))
            }
            Scalar::String => {
                let value = go_text::show_syntax(value);
                format!("expected string, got &value.valueUnstructured{{Value:{value}}}")
            }
            Scalar::Bool => format!("expected boolean, got {}", show(value)),
            Scalar::Any => format!("expected any scalar, got {}", show(value)),
        };
        self.add_violation(path, &why);
    }

    fn check_items(
        &mut self,
        list: ListSchema<'_>,
        items: &[Value],
        path: FieldTrail<'_>,
        open: bool,
    ) {
        if matches!(list.kind, ElementRelationship::Atomic) {
            for (at, item) in items.iter().enumerate() {
                let element = PathElement::Index(at as i64);
                let path = FieldTrail { to: Some(&path), step: Step::Item(&element) };
                self.check(list.item, item, path, open);
            }
            return;
        }
        let mut seen = BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            let element = match list.element(self.schema, item) {
                Ok(element) => element,
                Err(why) => return self.add_violation(path, &format!("element {at}: {why}")),
            };
            if seen.contains(&element) {
                self.add_violation(path, &format!("duplicate entries for key {element}"));
            }
            let at = FieldTrail { to: Some(&path), step: Step::Item(&element) };
            self.check(list.item, item, at, open);
            seen.insert(element);
        }
    }

    fn check_members(
        &mut self,
        object: MapSchema<'_>,
        map: &Map,
        path: FieldTrail<'_>,
        open: bool,
    ) {
        // Compat: a type that has a name (the metadata of an embedded resource) is as strict as anywhere.
        let open = open && object.ty.is_none_or(|ty| ty.name.is_empty())
            || object.ty.is_some_and(|ty| ty.preserve_unknown);
        for (name, value) in map.iter() {
            let path = FieldTrail { to: Some(&path), step: Step::Member(name) };
            if object.field(name).is_none() && object.others.is_none() && !open {
                // Compat: upstream stops at the first duplicate, so an object reports at most one.
                return self.add_violation(path, "field not declared in schema");
            }
            self.check(object.member(name), value, path, open);
        }
    }

    fn add_violation(&mut self, path: FieldTrail<'_>, why: &str) {
        if self.violations.len() == VIOLATIONS_MAX {
            self.more += 1;
            return;
        }
        let mut shown = BoundedText(String::new());
        // An error says that the path is cut.
        let suffix = if write!(shown, "{path}").is_err() { "..." } else { "" };
        let path = shown.0 + suffix;
        self.violations.push(if path.is_empty() {
            why.to_owned()
        } else {
            format!("{path}: {why}")
        });
    }
}

/// A text that takes no more than a path may have.
struct BoundedText(String);

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = FIELD_PATH_BYTES_MAX.saturating_sub(self.0.len());
        let end = text.floor_char_boundary(room);
        self.0.push_str(&text[..end]);
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

fn show(value: &Value) -> String {
    format!("&{{{}}}", go_text::show(value))
}

/// The field set of a value: every leaf, every list item and every map key.
pub(super) fn field_set(schema: &Schema, type_ref: TypeRef<'_>, value: &Value) -> Set {
    build(schema, type_ref, value).0
}

/// The field set below a value, and whether the value itself is a leaf.
fn build(schema: &Schema, type_ref: TypeRef<'_>, value: &Value) -> (Set, bool) {
    cancel::checkpoint();
    match (type_ref.resolve(schema).deduce(Some(value)), value) {
        (
            DeducedAtom::Scalar(_)
            | DeducedAtom::List(ListSchema { kind: ElementRelationship::Atomic, .. })
            | DeducedAtom::Map(MapSchema { atomic: true, .. }),
            _,
        ) => (Set::default(), true),
        (DeducedAtom::List(list), Value::Array(items)) => (build_items(schema, list, items), false),
        (DeducedAtom::Map(object), Value::Object(map)) => {
            (build_members(schema, object, map), false)
        }
        _ => (Set::default(), false),
    }
}

fn build_members(schema: &Schema, object: MapSchema<'_>, map: &Map) -> Set {
    let mut set = Set::default();
    for (name, value) in map.iter() {
        let (below, leaf) = build(schema, object.member(name), value);
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        let element = PathElement::Field(name.clone());
        // Maps are sorted by key, so both lists come out sorted.
        if leaf || empty || object.field(name).is_none() {
            set.members.push(element.clone());
        }
        if !below.is_empty() {
            set.children.push((element, below));
        }
    }
    set.shrink();
    set
}

fn build_items(schema: &Schema, list: ListSchema<'_>, items: &[Value]) -> Set {
    let mut set = Set::default();
    // An item whose key was removed together with other fields still counts as an item.
    let element =
        |item| list.element(schema, item).unwrap_or_else(|_| PathElement::Key(Vec::new()));
    let elements: Vec<PathElement> = items.iter().map(element).collect();
    let mut sorted: Vec<&PathElement> = elements.iter().collect();
    sorted.sort();
    let is_single = |element: &PathElement| {
        let start = sorted.partition_point(|other| *other < element);
        sorted.get(start + 1) != Some(&element)
    };
    for (element, item) in elements.iter().zip(items) {
        set.members.push(element.clone());
        // Items with duplicate keys are indistinguishable, so they are treated as one leaf.
        if is_single(element) {
            let below = build(schema, list.item, item).0;
            if !below.is_empty() {
                set.children.push((element.clone(), below));
            }
        }
    }
    set.members.sort();
    set.members.dedup();
    set.children.sort_by(|a, b| a.0.cmp(&b.0));
    set
}

/// The value without the fields and items of a set. None if nothing remains.
pub(super) fn remove_items(
    schema: &Schema,
    type_ref: TypeRef<'_>,
    value: &Value,
    removed: &Set,
) -> Option<Value> {
    cancel::checkpoint();
    match (type_ref.resolve(schema).deduce(Some(value)), value) {
        (DeducedAtom::List(list), Value::Array(items)) => {
            if matches!(list.kind, ElementRelationship::Atomic) {
                return None;
            }
            let keep = |item: &Value| -> Option<Value> {
                let Ok(element) = list.element(schema, item) else { return Some(item.clone()) };
                if removed.has_member(&element) {
                    return None;
                }
                Some(match removed.child(&element).filter(|below| !below.is_empty()) {
                    Some(below) => remove_items(schema, list.item, item, below).unwrap_or_default(),
                    None => item.clone(),
                })
            };
            let kept: Vec<Value> = items.iter().filter_map(keep).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        (DeducedAtom::Map(object), Value::Object(map)) => {
            if object.atomic {
                return None;
            }
            let mut kept: Vec<(Str, Value)> = Vec::new();
            for (name, value) in map.iter() {
                let element = PathElement::Field(name.clone());
                if removed.has_member(&element) {
                    continue;
                }
                let value = match removed.child(&element).filter(|below| !below.is_empty()) {
                    Some(below) => {
                        remove_items(schema, object.member(name), value, below).unwrap_or_default()
                    }
                    None => value.clone(),
                };
                kept.push((name.clone(), value));
            }
            (!kept.is_empty()).then(|| Map::from_pairs(kept).into())
        }
        (DeducedAtom::Scalar(_), value) => Some(value.clone()),
        _ => None,
    }
}

/// structured-merge-diff's `EnsureNamedFieldsAreMembers`: struct fields on the path to a member
/// become members themselves, so that a struct that holds nothing but removed fields is removed
/// with them.
pub(super) fn ensure_named_fields_are_members(
    schema: &Schema,
    type_ref: Option<TypeRef<'_>>,
    set: &Set,
) -> Set {
    let atom = type_ref.map_or_else(Atom::default, |type_ref| type_ref.resolve(schema));
    let mut result = Set { members: set.members.clone(), children: Vec::new() };
    for (element, child) in &set.children {
        let mut below = None;
        match (element, atom.map, atom.list) {
            (PathElement::Field(name), Some(object), _) => {
                below = Some(object.member(name));
                if object.field(name).is_some() {
                    result.insert(std::slice::from_ref(element));
                }
            }
            (PathElement::Key(_), _, Some(list)) => below = Some(list.item),
            _ => {}
        }
        result
            .children
            .push((element.clone(), ensure_named_fields_are_members(schema, below, child)));
    }
    result
}

/// structured-merge-diff's `ReconcileFieldSetWithSchema`: adapts a set that was written under an
/// older schema. A manager of part of a value that is atomic now owns the whole value.
pub(super) fn reconcile(schema: &Schema, type_ref: TypeRef<'_>, set: &Set) -> Option<Set> {
    let mut whole = Set::default();
    find_whole(schema, type_ref, set, &mut Vec::new(), &mut whole);
    (!whole.is_empty()).then(|| set.clone().recursive_difference(&whole).union(whole))
}

/// Adds the paths of atomic values that have something below them in a set. A member without children is
/// owned as a whole already, so only children are looked at.
fn find_whole<'s>(
    schema: &Schema,
    type_ref: TypeRef<'_>,
    set: &'s Set,
    path: &mut Vec<&'s PathElement>,
    whole: &mut Set,
) {
    let is_root = path.is_empty();
    match type_ref.resolve(schema).deduce(None) {
        DeducedAtom::Map(object) => {
            if matches!((object.ty, object.others), (None, Some(TypeRef::Deduced))) {
                return;
            }
            if object.atomic && !is_root {
                if !set.is_empty() {
                    whole.insert(&copied(path));
                }
                return;
            }
            for (element, below) in &set.children {
                let type_ref = match element {
                    PathElement::Field(name) => {
                        object.field(name).map(|field| TypeRef::Node(&field.node)).or(object.others)
                    }
                    _ => object.others,
                };
                if let Some(type_ref) = type_ref {
                    path.push(element);
                    find_whole(schema, type_ref, below, path, whole);
                    path.pop();
                }
            }
        }
        DeducedAtom::List(list) => {
            if matches!(list.kind, ElementRelationship::Atomic) && !is_root {
                whole.insert(&copied(path));
                return;
            }
            for (element, below) in &set.children {
                path.push(element);
                find_whole(schema, list.item, below, path, whole);
                path.pop();
            }
        }
        DeducedAtom::Scalar(_) => {}
    }
}

fn copied(path: &[&PathElement]) -> Path {
    path.iter().copied().cloned().collect()
}
