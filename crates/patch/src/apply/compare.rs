//! Compares two states of an object: structured-merge-diff's `typed.Comparison`.

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
        let atom = type_ref.resolve(self.schema);
        let (was, is) = (atom.deduce(old), atom.deduce(new));
        let found = match (old, new) {
            (_, None) => self.compare_as(type_ref, was, pair, depth, own, below),
            // The type of the value changed: the fields of the old value are removed as well.
            (Some(_), Some(_)) if !was.same_kind(&is) => {
                self.compare_as(type_ref, was, pair, depth, own, below);
                let found = self.compare_as(type_ref, is, pair, depth, own, below);
                below.sort();
                found
            }
            _ => self.compare_as(type_ref, is, pair, depth, own, below),
        };
        if !found.leaf {
            own.added |= old.is_none();
            own.removed |= new.is_none();
        }
        // A value that is the same has no changes, even if its Go struct could not say so.
        if found.same && depth >= WHOLE_DEPTH_MAX {
            (*own, *below) = (Change::default(), Comparison::default());
        }
        found.same
    }

    fn compare_as(
        &self,
        type_ref: TypeRef<'_>,
        shape: DeducedAtom<'_>,
        pair: Pair<'_>,
        depth: usize,
        own: &mut Change,
        below: &mut Comparison,
    ) -> Compared {
        let (old, new) = pair;
        match shape {
            DeducedAtom::Scalar(_) => self.compare_leaf(type_ref, pair, own),
            DeducedAtom::List(list) => {
                let (was, is) = (items(old), items(new));
                let empty = was.is_empty() && is.is_empty();
                if matches!(list.kind, ElementRelationship::Atomic) || empty {
                    return self.compare_leaf(type_ref, pair, own);
                }
                let same = self.compare_items(list, was, is, depth, below);
                Compared { leaf: false, same: same && same_type(pair) }
            }
            DeducedAtom::Map(object) => {
                let (was, is) = (members(old), members(new));
                let is_empty = |map: Option<&Map>| map.is_none_or(Map::is_empty);
                if object.atomic || is_empty(was) && is_empty(is) {
                    return self.compare_leaf(type_ref, pair, own);
                }
                let same = self.compare_members(object, was, is, depth, below);
                Compared { leaf: false, same: same && same_type(pair) }
            }
        }
    }

    fn compare_leaf(&self, type_ref: TypeRef<'_>, pair: Pair<'_>, own: &mut Change) -> Compared {
        match pair {
            (None, _) => own.added = true,
            (_, None) => own.removed = true,
            (Some(old), Some(new)) => own.modified |= !self.same(type_ref, old, new),
        }
        Compared { leaf: true, same: pair.0 == pair.1 }
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

    fn compare_members<'v>(
        &self,
        object: MapSchema<'_>,
        old: Option<&'v Map>,
        new: Option<&'v Map>,
        depth: usize,
        level: &mut Comparison,
    ) -> bool {
        let mut names: Vec<&Str> = [old, new].into_iter().flatten().flat_map(Map::keys).collect();
        let implied: Vec<Str> = match (old, new) {
            (Some(_), Some(_)) => Vec::new(),
            _ => object.always_present().map(Str::new).collect(),
        };
        names.extend(&implied);
        names.sort_unstable();
        names.dedup();
        let mut all_same = true;
        for name in names {
            let get = |map: Option<&'v Map>| map.and_then(|map| map.get(name));
            let (raw_was, raw_is) = (get(old), get(new));
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
                let element = PathElement::Field(name.clone());
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
                    let same = self.compare_child(list.item, pair, depth, element, level);
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
        element: PathElement,
        level: &mut Comparison,
    ) -> bool {
        let (mut own, mut below) = (Change::default(), Comparison::default());
        let same = self.compare(type_ref, pair, depth + 1, &mut own, &mut below);
        level.attach(element, own, below);
        same
    }
}

/// The result of [`Walker::compare_as`].
struct Compared {
    /// The value was a leaf, and is recorded already.
    leaf: bool,
    same: bool,
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

fn is_same_reference(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => std::ptr::eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

fn same_type((old, new): Pair<'_>) -> bool {
    old.map(std::mem::discriminant) == new.map(std::mem::discriminant)
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).unwrap_or_default()
}

fn members(value: Option<&Value>) -> Option<&Map> {
    value.and_then(Value::as_object)
}
