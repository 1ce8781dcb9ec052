//! A `FieldsV1` that is read without being decoded. Most writes concern few fields of few managers, and to make a
//! [`Set`] of all of them takes longer than the rest of field management.

use meta::{Map, Value, limits::TREE_DEPTH_MAX};
use schema::Schema;

use super::{
    atom::{DeducedAtom, ElementRelationship, TypeRef},
    path::PathElement,
    set::Set,
};

/// A level of a `FieldsV1`.
// Invariant: canonical, so that a path element has one spelling.
#[derive(Clone, Copy)]
pub(super) struct FieldsV1<'a>(&'a Map);

impl<'a> FieldsV1<'a> {
    /// None if it is not what [`Set::to_value`] writes: then it has to be decoded.
    pub(super) fn of(fields: &'a Value) -> Option<Self> {
        let canonical = is_canonical(fields, 0, &mut String::new());
        fields.as_object().filter(|_| canonical).map(Self)
    }

    /// Of what [`FieldsV1::of`] has accepted before.
    pub(super) fn of_canonical(fields: &'a Value) -> Option<Self> {
        fields.as_object().map(Self)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// [`Set::len`]. What has others below it is a member itself if `.` is among them.
    pub(super) fn len(self) -> usize {
        let mut count = 0;
        for below in self.0.values() {
            count += Self::below(below).map_or(1, Self::len);
        }
        count
    }

    /// [`Set::includes`].
    pub(super) fn includes(self, other: &Set) -> bool {
        let mut key = String::new();
        other.members.iter().all(|element| self.has_member(element, &mut key))
            && other.children.iter().all(|(element, theirs)| match self.child(element, &mut key) {
                Some(mine) => mine.includes(theirs),
                None => theirs.is_empty(),
            })
    }

    /// [`Set::intersection`], which walks over the smaller of the two as well: there may be as many managers as there
    /// are changed fields.
    pub(super) fn intersection(self, other: &Set) -> Set {
        if self.0.len() < other.members.len().max(other.children.len()) {
            return self.few_of(other);
        }
        let mut key = String::new();
        let members = other.members.iter().filter(|element| self.has_member(element, &mut key));
        let members = members.cloned().collect();
        let children = other.children.iter().filter_map(|(element, theirs)| {
            let child = self.child(element, &mut key)?.intersection(theirs);
            (!child.is_empty()).then(|| (element.clone(), child))
        });
        Set { members, children: children.collect() }
    }

    /// The intersection with a larger set.
    fn few_of(self, other: &Set) -> Set {
        let mut found = Set::default();
        for (key, below) in self.0.iter() {
            let Ok(Some(element)) = PathElement::decode(key) else { continue };
            if let (Some(below), Some(theirs)) = (Self::below(below), other.child(&element)) {
                let child = below.intersection(theirs);
                if !child.is_empty() {
                    found.children.push((element.clone(), child));
                }
            }
            if is_member(below) && other.has_member(&element) {
                found.members.push(element);
            }
        }
        // Keys are sorted by their text, which is another order than that of numbers.
        found.members.sort();
        found.children.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    /// Whether there is something below a value that is owned as a whole: then the set has to be reconciled with
    /// the schema.
    pub(super) fn divides_atomics(self, schema: &Schema, type_ref: TypeRef<'_>) -> bool {
        self.divides(schema, type_ref, true)
    }

    fn divides(self, schema: &Schema, type_ref: TypeRef<'_>, is_root: bool) -> bool {
        match type_ref.resolve(schema).deduce(None) {
            DeducedAtom::Map(object) => {
                if matches!((object.ty, object.others), (None, Some(TypeRef::Deduced))) {
                    return false;
                }
                if object.atomic && !is_root {
                    return true;
                }
                self.parents().any(|(key, below)| {
                    let field = key.strip_prefix("f:").and_then(|name| object.field(name));
                    let type_ref = field.map(|field| TypeRef::Node(&field.node)).or(object.others);
                    type_ref.is_some_and(|type_ref| below.divides(schema, type_ref, false))
                })
            }
            DeducedAtom::List(list) => {
                if matches!(list.kind, ElementRelationship::Atomic) && !is_root {
                    return true;
                }
                self.parents().any(|(_, below)| below.divides(schema, list.item, false))
            }
            DeducedAtom::Scalar(_) => false,
        }
    }

    /// The path elements that have others below them.
    fn parents(self) -> impl Iterator<Item = (&'a str, Self)> {
        self.0.iter().filter_map(|(key, below)| Some((key.as_str(), Self::below(below)?)))
    }

    /// `key` is a buffer.
    fn find(self, element: &PathElement, key: &mut String) -> Option<&'a Value> {
        key.clear();
        element.encode_into(key);
        self.0.get(key)
    }

    fn has_member(self, element: &PathElement, key: &mut String) -> bool {
        self.find(element, key).is_some_and(is_member)
    }

    fn child(self, element: &PathElement, key: &mut String) -> Option<Self> {
        Self::below(self.find(element, key)?)
    }

    fn below(fields: &'a Value) -> Option<Self> {
        fields.as_object().filter(|below| !below.is_empty()).map(Self)
    }
}

/// Whether a path element is in the set itself, by what is below it.
fn is_member(below: &Value) -> bool {
    below.as_object().is_some_and(|below| below.is_empty() || below.get(".").is_some())
}

/// Whether the fields are written as [`Set::to_value`] would write them. `spelling` is a buffer.
fn is_canonical(fields: &Value, depth: usize, spelling: &mut String) -> bool {
    let Value::Object(fields) = fields else { return false };
    if depth > TREE_DEPTH_MAX {
        return false;
    }
    // Plain loops, because adapters would take stack on every level.
    for (key, below) in fields.iter() {
        if key == "." {
            // The root is no member, and what has nothing below it is one without saying so.
            let is_empty = matches!(below, Value::Object(below) if below.is_empty());
            if !is_empty || depth == 0 || fields.len() == 1 {
                return false;
            }
        } else if !is_element(key, spelling) || !is_canonical(below, depth + 1, spelling) {
            return false;
        }
    }
    true
}

fn is_element(key: &str, spelling: &mut String) -> bool {
    if key.starts_with("f:") || is_name_key(key) {
        return true;
    }
    let Ok(Some(element)) = PathElement::decode(key) else { return false };
    spelling.clear();
    element.encode_into(spelling);
    spelling == key
}

/// The most common key, `k:{"name":"app"}`, with nothing that has to be escaped.
fn is_name_key(key: &str) -> bool {
    let name = key.strip_prefix("k:{\"name\":\"").and_then(|rest| rest.strip_suffix("\"}"));
    name.is_some_and(|name| {
        name.bytes().all(
            |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'A'..=b'Z'),
        )
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{apply::set::tests::any_set, json_text::parse};

    #[test]
    fn only_what_is_written_like_that_is_read_without_decoding() {
        let cases = [
            r#"{"f:a":{".":{},"f:b":{}},"k:{\"a\":1}":{},"k:{\"name\":\"x\"}":{},"v:\"x\"":{},"i:1":{}}"#,
            "{}",
            "null",
            "[]",
            r#"{"f:a":1}"#,
            r#"{"f:a":null}"#,
            r#"{".":{},"f:a":{}}"#,
            r#"{"f:a":{".":{}}}"#,
            r#"{"f:a":{".":{"f:b":{}},"f:b":{}}}"#,
            r#"{"f:a":{".":null,"f:b":{}}}"#,
            r#"{"f:a":{},"x:new":{}}"#,
            r#"{"k:{\"b\":1,\"a\":1}":{}}"#,
            r#"{"k:{\"name\":\"\\u0061\"}":{}}"#,
            r#"{"k:{\"name\":\"a\",\"name\":\"b\"}":{}}"#,
            r#"{"v:1.0":{}}"#,
            r#"{"i:01":{}}"#,
            r#"{"f":{}}"#,
        ];
        for text in cases {
            let fields = parse(text).unwrap();
            let canonical = Set::from_value(&fields).is_ok_and(|(_, canonical)| canonical);
            assert_eq!(FieldsV1::of(&fields).is_some(), canonical, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_not_decoded_answers_as_the_set(a in any_set(), b in any_set()) {
            let value = a.to_value();
            let fields = FieldsV1::of(&value).expect("canonical");
            prop_assert_eq!(fields.is_empty(), a.is_empty());
            prop_assert_eq!(fields.len(), a.len());
            prop_assert_eq!(fields.includes(&b), a.includes(&b));
            prop_assert_eq!(fields.intersection(&b), a.intersection(&b));
        }
    }
}
