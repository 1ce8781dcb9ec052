//! Compares two states of an object: structured-merge-diff's `typed.Comparison`.

use std::cmp::Ordering;

use meta::{Map, Str, Value, cancel};
use schema::Schema;

use super::atom::{
    DeducedAtom, ElementRelationship, ListSchema, MapSchema, TypeRef, field_value, normalize,
};
use super::path::{PathElement, same_value};
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
    let mut found = Comparison::default();
    // The root is in no set.
    let mut own = Change::default();
    Walker { schema, kind }.compare(type_ref, (Some(old), Some(new)), 0, &mut own, &mut found);
    found
}

/// Values at a smaller depth are compared as a whole first, because most of an object stays as it is.
/// At any depth, that would be as many comparisons of a leaf as there are levels above it.
const WHOLE_DEPTH_MAX: usize = 16;

struct Walker<'a> {
    schema: &'a Schema,
    kind: NewObject,
}

/// What happened to a value itself, apart from the values in it.
#[derive(Clone, Copy, Default)]
struct Change {
    removed: bool,
    modified: bool,
    added: bool,
}

/// A value before and after.
type Pair<'v> = (Option<&'v Value>, Option<&'v Value>);

/// A name, and its value before and after.
type Member<'v> = (&'v Str, Option<&'v Value>, Option<&'v Value>);

impl Walker<'_> {
    /// Compares a value, and adds what changed in it to `below`. Returns whether it stayed the same.
    fn compare(
        &self,
        type_ref: TypeRef<'_>,
        pair: Pair<'_>,
        depth: usize,
        own: &mut Change,
        below: &mut Comparison,
    ) -> bool {
        let (old, new) = pair;
        cancel::checkpoint();
        if depth < WHOLE_DEPTH_MAX && old == new {
            return true;
        }
        let (old, new) = match pair {
            (Some(old), Some(new)) => (old, new),
            (None, Some(new)) => {
                own.added = true;
                below.added = self.fields_below(type_ref, new, self.kind == NewObject::Whole);
                return false;
            }
            (Some(old), None) => {
                own.removed = true;
                below.removed = self.fields_below(type_ref, old, true);
                return false;
            }
            (None, None) => return true,
        };
        let atom = type_ref.resolve(self.schema);
        let (was, is) = (atom.deduce(Some(old)), atom.deduce(Some(new)));
        let same = if was.same_kind(&is) {
            self.compare_as(type_ref, is, (old, new), depth, own, below)
        } else {
            // The type of the value changed: the fields of the old value are removed as well.
            self.compare_as(type_ref, was, (old, new), depth, own, below);
            let same = self.compare_as(type_ref, is, (old, new), depth, own, below);
            below.sort();
            same
        };
        // A value that is the same has no changes, even if its Go struct could not say so.
        if same && depth >= WHOLE_DEPTH_MAX {
            (*own, *below) = (Change::default(), Comparison::default());
        }
        same
    }

    /// Compares a value as one of the types that it may have. Returns whether it stayed the same.
    fn compare_as(
        &self,
        type_ref: TypeRef<'_>,
        shape: DeducedAtom<'_>,
        (old, new): (&Value, &Value),
        depth: usize,
        own: &mut Change,
        below: &mut Comparison,
    ) -> bool {
        match shape {
            DeducedAtom::Scalar(_) => self.compare_leaf(type_ref, old, new, own),
            DeducedAtom::List(list) => {
                let (was, is) = (items(old), items(new));
                let empty = was.is_empty() && is.is_empty();
                if matches!(list.kind, ElementRelationship::Atomic) || empty {
                    return self.compare_leaf(type_ref, old, new, own);
                }
                self.compare_items(list, was, is, depth, below) && same_type(old, new)
            }
            DeducedAtom::Map(object) => {
                let (was, is) = (old.as_object(), new.as_object());
                let is_empty = |map: Option<&Map>| map.is_none_or(Map::is_empty);
                if object.atomic || is_empty(was) && is_empty(is) {
                    return self.compare_leaf(type_ref, old, new, own);
                }
                self.compare_members(object, was, is, depth, below) && same_type(old, new)
            }
        }
    }

    fn compare_leaf(
        &self,
        type_ref: TypeRef<'_>,
        old: &Value,
        new: &Value,
        own: &mut Change,
    ) -> bool {
        own.modified |= !self.same(type_ref, old, new);
        old == new
    }

    /// The fields in a value that is only in one of the objects: as many as [`compare`] would find one by
    /// one. `structs`: Go structs do not have fields that are omitted, and always have others.
    // Inlined, this and `joined` would take stack on every level of a comparison.
    #[inline(never)]
    fn fields_below(&self, type_ref: TypeRef<'_>, value: &Value, structs: bool) -> Set {
        cancel::checkpoint();
        match type_ref.resolve(self.schema).deduce(Some(value)) {
            DeducedAtom::List(list) if !matches!(list.kind, ElementRelationship::Atomic) => {
                self.items_below(list, items(value), structs)
            }
            DeducedAtom::Map(object) if !object.atomic => match value.as_object() {
                Some(map) if !map.is_empty() => self.members_below(object, map, structs),
                _ => Set::default(),
            },
            _ => Set::default(),
        }
    }

    fn members_below(&self, object: MapSchema<'_>, map: &Map, structs: bool) -> Set {
        let mut set = Set::default();
        set.members.reserve_exact(map.len());
        for (name, value) in map.iter() {
            let field = object.field(name);
            let value = match field {
                Some(field) if structs => field_value(field, Some(value)),
                _ => Some(value),
            };
            let Some(value) = value else { continue };
            let below = self.fields_below(object.member_of(field), value, structs);
            set.push(PathElement::Field(name.clone()), below);
        }
        if structs {
            // None of them has fields of its own.
            let absent = object.always_present().filter(|name| !map.contains_key(name));
            absent.for_each(|name| set.insert(&[PathElement::field(name)]));
        }
        set.shrink();
        set
    }

    fn items_below(&self, list: ListSchema<'_>, items: &[Value], structs: bool) -> Set {
        let element = |item| Some((list.element(self.schema, item).ok()?, item));
        let mut elements: Vec<(PathElement, &Value)> = items.iter().filter_map(element).collect();
        elements.sort_by(|a, b| a.0.cmp(&b.0));
        let mut set = Set::default();
        set.members.reserve_exact(elements.len());
        let mut rest = elements.into_iter().peekable();
        while let Some((element, item)) = rest.next() {
            let mut below = Set::default();
            if rest.peek().is_some_and(|(next, _)| *next == element) {
                // Items with duplicate keys are one leaf.
                while rest.next_if(|(next, _)| *next == element).is_some() {}
            } else {
                below = self.fields_below(list.item, item, structs);
            }
            set.push(element, below);
        }
        set.shrink();
        set
    }

    fn same(&self, type_ref: TypeRef<'_>, old: &Value, new: &Value) -> bool {
        let normalized = |value: &Value| normalize(self.schema, type_ref, value);
        same_value(old, new)
            || match (old.tree(), self.kind) {
                (Value::Array(_) | Value::Object(_), NewObject::Merged) => {
                    same_value(&normalized(old), new)
                }
                (Value::Array(_) | Value::Object(_), NewObject::Whole) => {
                    same_value(&normalized(old), &normalized(new))
                }
                _ => false,
            }
    }

    fn compare_members(
        &self,
        object: MapSchema<'_>,
        old: Option<&Map>,
        new: Option<&Map>,
        depth: usize,
        level: &mut Comparison,
    ) -> bool {
        let implied: Vec<Str> = match (old, new) {
            (Some(_), Some(_)) => Vec::new(),
            _ => object.always_present().map(Str::new).collect(),
        };
        let mut members = joined(old, new);
        if !implied.is_empty() {
            members.extend(implied.iter().map(|name| (name, None, None)));
            // Stable, so that of two the one that is given stays.
            members.sort_by(|a, b| a.0.cmp(b.0));
            members.dedup_by(|a, b| a.0 == b.0);
        }
        let mut all_same = true;
        for (name, raw_was, raw_is) in members {
            let (mut was, mut is) = (raw_was, raw_is);
            let field = object.field(name);
            if let Some(field) = field {
                was = old.and_then(|_| field_value(field, raw_was));
                is = match (self.kind, raw_is) {
                    (NewObject::Whole, is) => new.and_then(|_| field_value(field, is)),
                    // A field that the old object has implicitly is also implicit in the merged
                    // one.
                    (NewObject::Merged, None) if raw_was.is_none() => new.and(was),
                    (NewObject::Merged, is) => is,
                };
            }
            let as_given = is_same_reference(was, raw_was) && is_same_reference(is, raw_is);
            let mut same = !as_given && raw_was == raw_is;
            if was.is_some() || is.is_some() {
                let element = || PathElement::Field(name.clone());
                let member = object.member_of(field);
                let unchanged = self.compare_child(member, (was, is), depth, element, level);
                same |= as_given && unchanged;
            }
            all_same &= same;
        }
        all_same
    }

    fn compare_items(
        &self,
        list: ListSchema<'_>,
        old: &[Value],
        new: &[Value],
        depth: usize,
        level: &mut Comparison,
    ) -> bool {
        let element = |item| list.element(self.schema, item).ok();
        let olds = old.iter().enumerate().filter_map(|(at, item)| Some((element(item)?, 0, at)));
        let news = new.iter().enumerate().filter_map(|(at, item)| Some((element(item)?, 1, at)));
        let mut by_element: Vec<(PathElement, u8, usize)> = olds.chain(news).collect();
        // Old items of an element before new ones, both in their order.
        by_element.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut same_items = 0;
        for same_element in by_element.chunk_by(|a, b| a.0 == b.0) {
            let element = same_element[0].0.clone();
            let first_new = same_element.partition_point(|(_, side, _)| *side == 0);
            let (was, is) = same_element.split_at(first_new);
            let was_item = was.first().map(|(.., at)| &old[*at]);
            let is_item = is.first().map(|(.., at)| &new[*at]);
            match (was, is) {
                ([] | [_], [] | [_]) => {
                    let pair = (was_item, is_item);
                    let same = self.compare_child(list.item, pair, depth, || element, level);
                    let at = |side: &[(_, _, usize)]| side.first().map(|(.., at)| *at);
                    same_items += usize::from(same && at(was) == at(is));
                }
                // Items with duplicate keys are one leaf, before and after.
                ([_, _, ..], [_, _, ..]) => {
                    let same = was.len() == is.len()
                        && was.iter().zip(is).all(|(was, is)| same_value(&old[was.2], &new[is.2]));
                    if !same {
                        level.modified.members.push(element);
                    }
                }
                ([_, _, ..], _) => {
                    let (mut own, mut below) = (Change::default(), Comparison::default());
                    if is_item.is_some() {
                        self.compare(list.item, (None, is_item), depth + 1, &mut own, &mut below);
                    }
                    own.removed = true;
                    level.attach(element, own, below);
                }
                (_, _) => {
                    let (mut own, mut below) = (Change::default(), Comparison::default());
                    if was_item.is_some() {
                        self.compare(list.item, (was_item, None), depth + 1, &mut own, &mut below);
                    }
                    own.added = true;
                    level.attach(element, own, below);
                }
            }
        }
        // Lists with items that have no element, or the same one, are compared again: rare, and not
        // nested.
        same_items == old.len() && same_items == new.len() || depth < WHOLE_DEPTH_MAX && old == new
    }

    /// Compares a member or an item and adds it to its level.
    fn compare_child(
        &self,
        type_ref: TypeRef<'_>,
        pair: Pair<'_>,
        depth: usize,
        element: impl FnOnce() -> PathElement,
        level: &mut Comparison,
    ) -> bool {
        let (mut own, mut below) = (Change::default(), Comparison::default());
        let same = self.compare(type_ref, pair, depth + 1, &mut own, &mut below);
        if !same {
            level.attach(element(), own, below);
        }
        same
    }
}

impl Comparison {
    /// Adds a value and what changed in it. Values come in the order of their path elements.
    fn attach(&mut self, element: PathElement, own: Change, below: Self) {
        let sets = [
            (&mut self.removed, own.removed, below.removed),
            (&mut self.modified, own.modified, below.modified),
            (&mut self.added, own.added, below.added),
        ];
        for (level, member, mut below) in sets {
            if member {
                level.members.push(element.clone());
            }
            if !(below.members.is_empty() && below.children.is_empty()) {
                below.shrink();
                level.children.push((element.clone(), below));
            }
        }
    }

    /// Restores the order after values of two types were added.
    fn sort(&mut self) {
        for set in [&mut self.removed, &mut self.modified, &mut self.added] {
            set.members.sort();
            set.children.sort_by(|a, b| a.0.cmp(&b.0));
        }
    }
}

/// The members of two objects in the order of their names, each with its value before and after.
#[inline(never)]
fn joined<'v>(old: Option<&'v Map>, new: Option<&'v Map>) -> Vec<Member<'v>> {
    let len = old.map_or(0, Map::len).max(new.map_or(0, Map::len));
    let mut members = Vec::with_capacity(len);
    let mut olds = old.into_iter().flat_map(Map::iter).peekable();
    let mut news = new.into_iter().flat_map(Map::iter).peekable();
    loop {
        let order = match (olds.peek(), news.peek()) {
            (Some((old, _)), Some((new, _))) => old.cmp(new),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return members,
        };
        let old = if order.is_le() { olds.next() } else { None };
        let new = if order.is_ge() { news.next() } else { None };
        let name = old.or(new).map(|(name, _)| name);
        members.extend(name.map(|name| (name, old.map(|old| old.1), new.map(|new| new.1))));
    }
}

fn is_same_reference(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => std::ptr::eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

fn same_type(old: &Value, new: &Value) -> bool {
    std::mem::discriminant(old) == std::mem::discriminant(new)
}

fn items(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_default()
}
