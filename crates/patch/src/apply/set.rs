//! A set of field paths (structured-merge-diff's `fieldpath.Set`). `FieldsV1` is its serialized
//! form.

use std::cmp::Ordering;

use meta::{Map, Str, Value, json, limits::TREE_DEPTH_MAX};

use super::path::{Path, PathElement};

/// A tree: members are in the set themselves, children lead to members further down. Both are
/// sorted, and no child is empty (other than by reading a set that a client wrote).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    pub(super) members: Vec<PathElement>,
    pub(super) children: Vec<(PathElement, Set)>,
}

impl Set {
    /// The set of these fields, without their parents: `of(&[&["metadata", "labels"]])`.
    pub fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(&path.iter().map(|name| PathElement::field(name)).collect::<Path>());
        }
        set
    }

    /// The root is never in a set: no manager owns a whole object.
    pub fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => {
                if let Err(at) = search(&self.members, last, |member| member) {
                    self.members.insert(at, last.clone());
                }
            }
            [first, rest @ ..] => self.descend(first).insert(rest),
        }
    }

    /// Adds a member and what is below it, behind all elements that there are.
    pub(super) fn push(&mut self, element: PathElement, below: Self) {
        if !(below.members.is_empty() && below.children.is_empty()) {
            self.children.push((element.clone(), below));
        }
        self.members.push(element);
    }

    fn descend(&mut self, element: &PathElement) -> &mut Self {
        let at = match search(&self.children, element, |(child, _)| child) {
            Ok(at) => at,
            Err(at) => {
                self.children.insert(at, (element.clone(), Self::default()));
                at
            }
        };
        &mut self.children[at].1
    }

    fn find_child(&self, element: &PathElement) -> Result<usize, usize> {
        self.children.binary_search_by(|(probe, _)| probe.cmp(element))
    }

    pub fn child(&self, element: &PathElement) -> Option<&Self> {
        self.find_child(element).ok().map(|at| &self.children[at].1)
    }

    pub fn has_member(&self, element: &PathElement) -> bool {
        self.members.binary_search(element).is_ok()
    }

    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.has_member(last),
            [first, rest @ ..] => self.child(first).is_some_and(|child| child.has(rest)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.iter().all(|(_, child)| child.is_empty())
    }

    /// Whether every member of the other set is in this one.
    pub fn includes(&self, other: &Self) -> bool {
        other.members.iter().all(|element| self.has_member(element))
            && other.children.iter().all(|(element, theirs)| match self.child(element) {
                Some(mine) => mine.includes(theirs),
                None => theirs.is_empty(),
            })
    }

    /// Gives back what the lists of this level have in reserve: one of one element, grown by pushing, would
    /// take the memory of four.
    pub(super) fn shrink(&mut self) {
        self.members.shrink_to_fit();
        self.children.shrink_to_fit();
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len() + self.children.iter().map(|(_, child)| child.len()).sum::<usize>()
    }

    #[must_use]
    pub fn union(self, other: Self) -> Self {
        if self.members.is_empty() && self.children.is_empty() {
            return other;
        }
        if other.members.is_empty() && other.children.is_empty() {
            return self;
        }
        let members = merge_sorted(self.members, other.members, Ord::cmp, |mine, _| mine);
        let children = merge_sorted(
            self.children,
            other.children,
            |a, b| a.0.cmp(&b.0),
            |(element, mine), (_, theirs)| (element, mine.union(theirs)),
        );
        Self { members, children }
    }

    /// The union of many sets, in pairs: added to one set one after another, the first ones would be
    /// copied as often as there are sets.
    #[must_use]
    pub fn union_all(mut sets: Vec<Self>) -> Self {
        while sets.len() > 1 {
            let mut rest = sets.into_iter();
            let mut pairs = Vec::with_capacity(rest.len().div_ceil(2));
            while let Some(first) = rest.next() {
                pairs.push(match rest.next() {
                    Some(second) => first.union(second),
                    None => first,
                });
            }
            sets = pairs;
        }
        sets.pop().unwrap_or_default()
    }

    /// Walks over the smaller set and looks up in the larger one: many managers with a few fields each
    /// are compared with all fields that changed.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (few, many) =
            if self.members.len() <= other.members.len() { (self, other) } else { (other, self) };
        let members = few.members.iter().filter(|element| many.has_member(element));
        let members = members.cloned().collect();
        let (few, many) =
            if self.children.len() <= other.children.len() { (self, other) } else { (other, self) };
        let children = few.children.iter().filter_map(|(element, child)| {
            let child = child.intersection(many.child(element)?);
            (!child.is_empty()).then(|| (element.clone(), child))
        });
        Self { members, children: children.collect() }
    }

    /// Without the members of the other set. Paths below them remain.
    #[must_use]
    pub fn difference(mut self, other: &Self) -> Self {
        self.take_out(other, false);
        self
    }

    /// Without the members of the other set and everything below them.
    #[must_use]
    pub fn recursive_difference(mut self, other: &Self) -> Self {
        self.take_out(other, true);
        self
    }

    fn take_out(&mut self, other: &Self, recursive: bool) {
        if !other.members.is_empty() {
            self.members.retain(|element| !other.has_member(element));
        }
        self.children.retain_mut(|(element, child)| {
            if recursive && other.has_member(element) {
                return false;
            }
            let Some(theirs) = other.child(element) else { return true };
            child.take_out(theirs, recursive);
            !child.is_empty()
        });
    }

    /// Only the leaves: members that have no children.
    #[must_use]
    pub fn leaves(&self) -> Self {
        let members = self.members.iter().filter(|element| self.find_child(element).is_err());
        let children =
            self.children.iter().map(|(element, child)| (element.clone(), child.leaves()));
        Self { members: members.cloned().collect(), children: children.collect() }
    }

    /// Only paths that start with one of these patterns; in a pattern, `None` matches any path
    /// element.
    #[must_use]
    pub fn including(&self, patterns: &[&[Option<PathElement>]]) -> Self {
        if patterns.iter().any(|pattern| pattern.is_empty()) {
            return self.clone();
        }
        let below = |element: &PathElement| -> Vec<&[Option<PathElement>]> {
            let fits = |pattern: &&&[Option<PathElement>]| {
                pattern[0].as_ref().is_none_or(|step| step == element)
            };
            patterns.iter().filter(fits).map(|pattern| &pattern[1..]).collect()
        };
        let members = self.members.iter().filter(|element| !below(element).is_empty());
        let children = self.children.iter().filter_map(|(element, child)| {
            let child = child.including(&below(element));
            (!child.is_empty()).then(|| (element.clone(), child))
        });
        Self { members: members.cloned().collect(), children: children.collect() }
    }

    /// The first paths; the members of a level come before their children.
    pub fn paths(&self, most: usize) -> Vec<Path> {
        let mut paths = Vec::new();
        self.collect_paths(most, &mut Vec::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, most: usize, prefix: &mut Path, paths: &mut Vec<Path>) {
        for element in &self.members {
            if paths.len() == most {
                return;
            }
            paths.push(prefix.iter().chain([element]).cloned().collect());
        }
        for (element, child) in &self.children {
            if paths.len() == most {
                return;
            }
            prefix.push(element.clone());
            child.collect_paths(most, prefix, paths);
            prefix.pop();
        }
    }

    /// The set as the JSON tree of a `FieldsV1`.
    pub fn to_value(&self) -> Value {
        self.value_of_level(false)
    }

    fn value_of_level(&self, itself: bool) -> Value {
        let len = self.members.len().max(self.children.len()) + usize::from(itself);
        let mut pairs: Vec<(Str, Value)> = Vec::with_capacity(len);
        if itself {
            pairs.push((".".into(), Value::object()));
        }
        let mut key = String::new();
        for (element, member, child) in self.entries() {
            let value = child.map_or_else(Value::object, |child| child.value_of_level(member));
            key.clear();
            element.encode_into(&mut key);
            pairs.push((Str::new(&key), value));
        }
        Map::from_pairs(pairs).into()
    }

    /// The bytes of a `FieldsV1` in upstream's order, which sorts by path element (port 80 before
    /// port 443) and not by key text.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_level(&mut out, false);
        out
    }

    fn write_level(&self, out: &mut Vec<u8>, itself: bool) {
        out.push(b'{');
        if itself {
            out.extend_from_slice(b"\".\":{}");
        }
        for (element, member, child) in self.entries() {
            if out.last() != Some(&b'{') {
                out.push(b',');
            }
            json::write_string(out, &element.encode());
            out.push(b':');
            match child {
                Some(child) => child.write_level(out, member),
                None => out.extend_from_slice(b"{}"),
            }
        }
        out.push(b'}');
    }

    /// Path elements in order: whether each is a member, and its children.
    fn entries(&self) -> impl Iterator<Item = (&PathElement, bool, Option<&Self>)> {
        let (mut members, mut children) = (&self.members[..], &self.children[..]);
        std::iter::from_fn(move || {
            let order = match (members.first(), children.first()) {
                (Some(member), Some((element, _))) => member.cmp(element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return None,
            };
            let member = if order.is_le() { members.split_off_first() } else { None };
            let child = if order.is_ge() { children.split_off_first() } else { None };
            let element = member.or(child.map(|(element, _)| element))?;
            Some((element, member.is_some(), child.map(|(_, child)| child)))
        })
    }

    /// Parses a `FieldsV1`. Unknown path element types are skipped. Also says whether it is canonical, that
    /// is, what [`Set::to_value`] would make of the set again.
    pub fn from_value(fields: &Value) -> Result<(Self, bool), String> {
        let mut reader = Reader { canonical: true, key: String::new() };
        let set = reader.read_level(fields, 0)?.0.unwrap_or_default();
        Ok((set, reader.canonical))
    }
}

struct Reader {
    canonical: bool,
    /// A buffer.
    key: String,
}

impl Reader {
    /// The children, and whether this level itself is a member.
    fn read_level(&mut self, fields: &Value, depth: usize) -> Result<(Option<Set>, bool), String> {
        if depth > TREE_DEPTH_MAX {
            return Err("too deep".to_owned());
        }
        let fields = match fields {
            Value::Object(fields) => fields,
            Value::Null => {
                self.canonical = false;
                return Ok((None, true));
            }
            other => return Err(format!("expected an object, got {}", other.type_name())),
        };
        let mut set: Option<Set> = None;
        let mut itself = false;
        for (key, below) in fields.iter() {
            if key == "." {
                itself = true;
                // The root is no member, and what has no children is one without saying so.
                let is_empty = below.as_object().is_some_and(Map::is_empty);
                self.canonical &= is_empty && depth > 0 && fields.len() > 1;
                continue;
            }
            let Some(element) = PathElement::decode(key)? else {
                self.canonical = false;
                continue;
            };
            if !matches!(element, PathElement::Field(_)) {
                self.key.clear();
                element.encode_into(&mut self.key);
                self.canonical &= self.key == *key;
            }
            let (child, member) = self.read_level(below, depth + 1)?;
            let set = set.get_or_insert_default();
            match (member, child) {
                (true, None) => set.members.push(element),
                (true, Some(child)) => set.push(element, child),
                (false, Some(child)) => set.children.push((element, child)),
                (false, None) => {}
            }
        }
        if let Some(set) = &mut set {
            // Fields come in order, but keys and values are sorted by what they say and not by their text.
            if !set.members.is_sorted_by(|a, b| a < b) {
                set.members.sort();
                set.members.dedup();
            }
            if !set.children.is_sorted_by(|a, b| a.0 < b.0) {
                set.children.sort_by(|a, b| a.0.cmp(&b.0));
                // Compat: if two keys denote the same path element, the later one wins, as upstream.
                set.children.reverse();
                set.children.dedup_by(|a, b| a.0 == b.0);
                set.children.reverse();
            }
        }
        let member = itself || set.is_none();
        Ok((set, member))
    }
}

/// The index at which an element is or has to be inserted. Objects are walked in this order, so it
/// is mostly the end.
fn search<T>(
    sorted: &[T],
    element: &PathElement,
    of: impl Fn(&T) -> &PathElement,
) -> Result<usize, usize> {
    match sorted.last().map(|last| of(last).cmp(element)) {
        None | Some(Ordering::Less) => Err(sorted.len()),
        Some(Ordering::Equal) => Ok(sorted.len() - 1),
        Some(Ordering::Greater) => sorted.binary_search_by(|probe| of(probe).cmp(element)),
    }
}

/// Merges two sorted lists without duplicates; `join` makes one of two that are equal.
fn merge_sorted<T>(
    mine: Vec<T>,
    theirs: Vec<T>,
    compare: impl Fn(&T, &T) -> Ordering,
    join: impl Fn(T, T) -> T,
) -> Vec<T> {
    let mut merged = Vec::with_capacity(mine.len().max(theirs.len()));
    let (mut mine, mut theirs) = (mine.into_iter().peekable(), theirs.into_iter().peekable());
    while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
        let order = compare(a, b);
        let a = if order.is_le() { mine.next() } else { None };
        let b = if order.is_ge() { theirs.next() } else { None };
        merged.extend(match (a, b) {
            (Some(a), Some(b)) => Some(join(a, b)),
            (a, b) => a.or(b),
        });
    }
    merged.extend(mine);
    merged.extend(theirs);
    merged
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json_text::parse;

    fn set(text: &str) -> Set {
        Set::from_value(&parse(text).unwrap()).unwrap().0
    }

    fn text(set: &Set) -> String {
        String::from_utf8(set.to_json()).unwrap()
    }

    #[test]
    fn fields_are_read_and_written() {
        let cases = [
            (r#"{"f:a":{}}"#, r#"{"f:a":{}}"#),
            (r#"{"f:a":{".":{},"f:b":{}}}"#, r#"{"f:a":{".":{},"f:b":{}}}"#),
            (r#"{"f:a":{"f:b":{"f:c":{}}}}"#, r#"{"f:a":{"f:b":{"f:c":{}}}}"#),
            (
                r#"{"f:p":{"k:{\"port\":443}":{},"k:{\"port\":80}":{".":{},"f:port":{}}}}"#,
                r#"{"f:p":{"k:{\"port\":80}":{".":{},"f:port":{}},"k:{\"port\":443}":{}}}"#,
            ),
            (r#"{"f:a":{"x:new":{}},"f:b":{}}"#, r#"{"f:a":{},"f:b":{}}"#),
            (r#"{"f:a":{".":{}}}"#, r#"{"f:a":{}}"#),
            ("{}", "{}"),
            ("null", "{}"),
        ];
        for (given, expected) in cases {
            assert_eq!(text(&set(given)), expected, "{given}");
            assert_eq!(Set::from_value(&set(given).to_value()).unwrap(), (set(given), true));
        }
        for bad in [r#"{"f":{}}"#, r#"{"f:a":1}"#, "[]"] {
            assert!(Set::from_value(&parse(bad).unwrap()).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_would_be_written_in_another_way_is_not_canonical() {
        let cases = [
            (r#"{"f:a":{".":{},"f:b":{}},"k:{\"a\":1}":{},"v:\"x\"":{},"i:1":{}}"#, true),
            ("{}", true),
            ("null", false),
            (r#"{"f:a":null}"#, false),
            (r#"{".":{},"f:a":{}}"#, false),
            (r#"{"f:a":{".":{}}}"#, false),
            (r#"{"f:a":{".":{"f:b":{}},"f:b":{}}}"#, false),
            (r#"{"f:a":{".":null,"f:b":{}}}"#, false),
            (r#"{"f:a":{},"x:new":{}}"#, false),
            (r#"{"k:{\"b\":1,\"a\":1}":{}}"#, false),
            (r#"{"k:{\"a\": 1}":{}}"#, false),
            (r#"{"v:1.0":{}}"#, false),
            (r#"{"i:01":{}}"#, false),
        ];
        for (text, expected) in cases {
            let fields = parse(text).unwrap();
            let (set, canonical) = Set::from_value(&fields).unwrap();
            assert_eq!(canonical, expected, "{text}");
            assert_eq!(set.to_value() == fields, expected, "{text}");
        }
    }

    #[test]
    fn sets_are_combined() {
        let a = set(r#"{"f:a":{".":{},"f:b":{},"f:c":{}},"f:d":{}}"#);
        let b = set(r#"{"f:a":{"f:b":{},"f:e":{}},"f:d":{"f:x":{}}}"#);
        assert_eq!(
            text(&a.clone().union(b.clone())),
            r#"{"f:a":{".":{},"f:b":{},"f:c":{},"f:e":{}},"f:d":{".":{},"f:x":{}}}"#
        );
        assert_eq!(text(&a.intersection(&b)), r#"{"f:a":{"f:b":{}}}"#);
        assert_eq!(text(&a.clone().difference(&b)), r#"{"f:a":{".":{},"f:c":{}},"f:d":{}}"#);
        assert_eq!(text(&b.clone().difference(&a)), r#"{"f:a":{"f:e":{}},"f:d":{"f:x":{}}}"#);
        assert_eq!(text(&b.clone().recursive_difference(&a)), "{}");
        assert_eq!(text(&a.leaves()), r#"{"f:a":{"f:b":{},"f:c":{}},"f:d":{}}"#);
        assert!(a.has(&[PathElement::field("a"), PathElement::field("b")]));
        assert!(!b.has(&[PathElement::field("a")]));
    }

    #[test]
    fn a_pattern_selects_a_part() {
        let a = set(r#"{"f:a":{"k:{\"n\":1}":{".":{},"f:x":{},"f:y":{}}},"f:b":{}}"#);
        let [name, x] = ["a", "x"].map(|name| Some(PathElement::field(name)));
        let pattern = [name, None, x];
        assert_eq!(text(&a.including(&[&pattern])), r#"{"f:a":{"k:{\"n\":1}":{".":{},"f:x":{}}}}"#);
        assert_eq!(a.including(&[&[]]), a);
    }

    pub(in crate::apply) fn any_set() -> impl Strategy<Value = Set> {
        let step = prop_oneof![
            "[abc]".prop_map(|name| PathElement::field(&name)),
            (0i64..3).prop_map(|number| PathElement::Value(number.into())),
        ];
        proptest::collection::vec(proptest::collection::vec(step, 1..4), 0..8).prop_map(|paths| {
            let mut set = Set::default();
            for path in paths {
                set.insert(&path);
            }
            set
        })
    }

    proptest! {
        #[test]
        fn set_algebra_holds(a in any_set(), b in any_set()) {
            prop_assert_eq!(&a.clone().union(b.clone()), &b.clone().union(a.clone()));
            prop_assert_eq!(&a.intersection(&b), &b.intersection(&a));
            // What is not in b, together with what is in both, is a.
            prop_assert_eq!(&a.clone().difference(&b).union(a.intersection(&b)), &a);
            prop_assert!(a.clone().difference(&b).intersection(&b).is_empty());
            prop_assert_eq!(a.includes(&b), b.clone().difference(&a).is_empty());
            prop_assert!(a.clone().union(b.clone()).includes(&a));
            let all = vec![a.clone(), b.clone(), a.intersection(&b)];
            prop_assert_eq!(Set::union_all(all), a.clone().union(b.clone()));
            prop_assert_eq!(a.len(), a.paths(usize::MAX).len());
            prop_assert_eq!(a.paths(2).len(), a.len().min(2));
            prop_assert!(a.clone().recursive_difference(&b).difference(&a.clone().difference(&b)).is_empty());
            for path in a.paths(usize::MAX) {
                prop_assert_eq!(a.intersection(&b).has(&path), b.has(&path));
                prop_assert_eq!(a.clone().difference(&b).has(&path), !b.has(&path));
            }
            prop_assert_eq!(Set::from_value(&a.to_value()).unwrap(), (a, true));
        }
    }
}
