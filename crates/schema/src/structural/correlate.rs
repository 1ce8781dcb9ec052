//! Which old value a new one takes the place of: members by their names, items of list-maps by their
//! keys, items of other lists not at all.

use std::{cell::OnceCell, collections::HashMap};

use meta::{Str, Value};

use super::node::{JsonType, StructuralNode};

#[derive(Clone, Copy)]
pub(super) struct Correlated<'a> {
    pub new: &'a Value,
    pub old: &'a Value,
    pub node: &'a StructuralNode,
}

impl<'a> Correlated<'a> {
    /// A member that both have and the schema knows.
    pub(super) fn key(&self, name: &str) -> Option<Correlated<'a>> {
        let (new, old) = (self.new.get(name)?, self.old.get(name)?);
        Some(Correlated { new, old, node: self.node.member(name)? })
    }

    /// The items by key, if the list is a map.
    pub(super) fn items(&self) -> Option<OldItems<'a>> {
        let items = self.node.items.as_deref()?;
        Some(OldItems { old: OldList::of(self.old, self.node)?, node: items })
    }

    /// Whether nothing has changed. Members that the schema doesn't know count as changed, as they
    /// do upstream.
    pub(super) fn is_unchanged(&self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                match self.items() {
                    Some(items) => new
                        .iter()
                        .all(|item| items.item(item).is_some_and(|item| item.is_unchanged())),
                    None => new == old,
                }
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new.keys().all(|key| self.key(key).is_some_and(|child| child.is_unchanged()))
            }
            (new, old) => new == old,
        }
    }
}

/// The old items of a list-map.
pub(super) struct OldItems<'a> {
    old: OldList<'a>,
    node: &'a StructuralNode,
}

impl<'a> OldItems<'a> {
    pub(super) fn item(&self, new: &'a Value) -> Option<Correlated<'a>> {
        Some(Correlated { new, old: self.old.get(new)?, node: self.node })
    }
}

/// Finds items of a list-map by their keys.
pub(super) struct OldList<'a> {
    items: &'a [Value],
    keys: &'a [Str],
    /// By the text of their keys; only made for long lists.
    index: OnceCell<HashMap<String, &'a Value>>,
}

/// Lists up to this length are searched from the start.
const SEARCHED_MAX: usize = 16;

impl<'a> OldList<'a> {
    pub(super) fn of(list: &'a Value, node: &'a StructuralNode) -> Option<Self> {
        let is_map = node.ty == JsonType::Array && node.list_type.as_deref() == Some("map");
        let items = list.as_array()?;
        let keyed = is_map && !node.list_map_keys.is_empty() && !items.is_empty();
        keyed.then(|| Self { items, keys: &node.list_map_keys, index: OnceCell::new() })
    }

    /// The first item with the keys of `like`. Keys must be there and scalar.
    pub(super) fn get(&self, like: &Value) -> Option<&'a Value> {
        let usable = |key: &Str| {
            matches!(like.get(key), Some(Value::Bool(_) | Value::Number(_) | Value::String(_)))
        };
        if !self.keys.iter().all(usable) {
            return None;
        }
        let is_like = |item: &&Value| self.keys.iter().all(|key| item.get(key) == like.get(key));
        if self.items.len() <= SEARCHED_MAX {
            return self.items.iter().find(is_like);
        }
        let index = self.index.get_or_init(|| {
            // Of equal keys the first wins.
            self.items.iter().rev().map(|item| (self.text(item), item)).collect()
        });
        index.get(&self.text(like)).copied().filter(is_like)
    }

    fn text(&self, item: &Value) -> String {
        let of_key = |key: &Str| item.get(key).map(meta::json::to_string).unwrap_or_default();
        self.keys.iter().map(of_key).collect::<Vec<_>>().join("\0")
    }
}

#[cfg(test)]
mod tests {
    use meta::{Map, value};

    use super::*;
    use crate::structural::Structural;

    #[test]
    fn items_are_found_by_their_keys_in_short_and_long_lists() {
        let schema = Structural::new(&value!({
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k", "n"],
            "items": {"type": "object"}
        }))
        .expect("a schema");
        for length in [3i64, 100] {
            let item = |k: i64, v: i64| {
                let members = [("k", Value::from(format!("k{k}"))), ("n", Value::from(k))];
                let mut item = Value::Object(members.into_iter().collect::<Map>());
                item.set_at(&["v"], v);
                item
            };
            let mut items: Vec<Value> = (0..length).map(|k| item(k, k)).collect();
            items.push(item(1, -1));
            let list = Value::Array(items);
            let old = OldList::of(&list, schema.root()).expect("a list-map");
            let found = old.get(&item(1, 7)).and_then(|item| item.i64_at(&["v"]));
            assert_eq!(found, Some(1), "the first of two");
            assert_eq!(old.get(&item(length, 0)), None);
            assert_eq!(old.get(&value!({"k": "k1"})), None, "a key is missing");
        }
    }
}
