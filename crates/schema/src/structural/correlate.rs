//! Which old value a new one takes the place of: members by their names, items of list-maps by their
//! keys, items of other lists not at all.

use meta::{Str, Value};

use super::node::{Node, Type};

#[derive(Clone, Copy)]
pub(super) struct Correlated<'a> {
    pub new: &'a Value,
    pub old: &'a Value,
    pub node: &'a Node,
}

impl<'a> Correlated<'a> {
    /// A member that both have and the schema knows.
    pub(super) fn key(&self, name: &str) -> Option<Correlated<'a>> {
        let (new, old) = (self.new.get(name)?, self.old.get(name)?);
        Some(Correlated { new, old, node: self.node.member(name)? })
    }

    /// The items, if the schema says what tells them apart.
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
    node: &'a Node,
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
}

impl<'a> OldList<'a> {
    pub(super) fn of(list: &'a Value, node: &'a Node) -> Option<Self> {
        let is_map = node.ty == Type::Array && node.list_type.as_deref() == Some("map");
        let items = list.as_array()?;
        let keyed = is_map && !node.list_map_keys.is_empty() && !items.is_empty();
        keyed.then_some(Self { items, keys: &node.list_map_keys })
    }

    /// The first item with the keys of `like`. Keys must be there and scalar.
    pub(super) fn get(&self, like: &Value) -> Option<&'a Value> {
        let usable = |key: &Str| {
            matches!(like.get(key), Some(Value::Bool(_) | Value::Number(_) | Value::String(_)))
        };
        if !self.keys.iter().all(usable) {
            return None;
        }
        self.items.iter().find(|item| self.keys.iter().all(|key| item.get(key) == like.get(key)))
    }
}
