//! Merges an applied configuration into an object. Nothing is removed: what the configuration doesn't
//! mention stays.

use std::collections::{BTreeMap, BTreeSet};

use meta::{Map, Str, Value, cancel};
use schema::Schema;

use super::atom::{DeducedAtom, ElementRelationship, ListSchema, MapSchema, TypeRef};
use super::path::PathElement;

pub(super) fn merge(
    schema: &Schema,
    type_ref: TypeRef<'_>,
    live: &Value,
    config: &Value,
) -> Result<Value, String> {
    Ok(Merger { schema }.merge(type_ref, Some(live), Some(config))?.unwrap_or_default())
}

/// None: the list has several items with this path element, and none of them can be chosen.
type ByElement<'v> = BTreeMap<PathElement, Option<&'v Value>>;

struct Merger<'a> {
    schema: &'a Schema,
}

impl Merger<'_> {
    fn merge(
        &self,
        type_ref: TypeRef<'_>,
        live: Option<&Value>,
        config: Option<&Value>,
    ) -> Result<Option<Value>, String> {
        cancel::checkpoint();
        let Some(config) = config else { return Ok(live.cloned()) };
        match type_ref.resolve(self.schema).deduce(Some(config)) {
            DeducedAtom::Scalar(_) => Ok(Some(config.clone())),
            DeducedAtom::List(list) => self.merge_lists(list, live, config),
            DeducedAtom::Map(object) => self.merge_maps(object, live, config),
        }
    }

    fn merge_maps<'v>(
        &self,
        object: MapSchema<'_>,
        live: Option<&'v Value>,
        config: &'v Value,
    ) -> Result<Option<Value>, String> {
        let was = live.and_then(Value::as_object).filter(|map| !map.is_empty());
        let is = config.as_object().filter(|map| !map.is_empty());
        if object.atomic || was.is_none() && is.is_none() {
            return Ok(Some(config.clone()));
        }
        let mut names: Vec<&Str> = [was, is].into_iter().flatten().flat_map(Map::keys).collect();
        names.sort_unstable();
        names.dedup();
        let mut pairs = Vec::with_capacity(names.len());
        for name in names {
            let member = |map: Option<&'v Map>| map.and_then(|map| map.get(name));
            let merged = self
                .merge(object.member(name), member(was), member(is))
                .map_err(|why| format!(".{name}{why}"))?;
            pairs.extend(merged.map(|value| (name.clone(), value)));
        }
        Ok((!pairs.is_empty()).then(|| Map::from_pairs(pairs).into()))
    }

    fn merge_lists(
        &self,
        list: ListSchema<'_>,
        live: Option<&Value>,
        config: &Value,
    ) -> Result<Option<Value>, String> {
        let was = live.and_then(Value::as_array).unwrap_or_default();
        let is = config.as_array().unwrap_or_default();
        if matches!(list.kind, ElementRelationship::Atomic) || was.is_empty() && is.is_empty() {
            return Ok(Some(config.clone()));
        }
        let merged = self.merge_items(list, was, is)?;
        Ok((!merged.is_empty()).then_some(Value::Array(merged)))
    }

    /// Items keep the order of the configuration; items that are only in the live list stay between
    /// their former neighbours.
    fn merge_items(
        &self,
        list: ListSchema<'_>,
        live: &[Value],
        config: &[Value],
    ) -> Result<Vec<Value>, String> {
        let (live_elements, live_by) = self.index(list, live, true)?;
        let (elements, by) = self.index(list, config, false)?;
        let merge = |element: &PathElement, live: Option<&Value>, config: Option<&Value>| {
            self.merge(list.item, live, config).map_err(|why| format!("{element}{why}"))
        };
        let mut shared = elements.iter().filter(|element| live_by.contains_key(*element));
        let mut next_shared = shared.next();
        let mut merged_elements = BTreeSet::new();
        let mut merged = Vec::with_capacity(live.len().max(config.len()));
        let (mut l, mut c) = (0, 0);
        while l < live_elements.len() || c < elements.len() {
            if let (Some(old), Some(new)) = (live_elements.get(l), elements.get(c)) {
                if old == new {
                    merged_elements.insert(new);
                    merged.extend(merge(new, live_by[old], by[new])?);
                    l += 1;
                    c += 1;
                    next_shared = shared.next();
                    continue;
                }
                if by.contains_key(old) && next_shared.is_some_and(|next| next != old) {
                    // The configuration contains this item as well, further down.
                    l += 1;
                    continue;
                }
            }
            if let Some(old) = live_elements.get(l) {
                if !by.contains_key(old) {
                    merged.push(live[l].clone());
                    l += 1;
                    continue;
                }
                if merged_elements.contains(old) {
                    l += 1;
                }
            }
            if let Some(new) = elements.get(c) {
                merged_elements.insert(new);
                merged.extend(merge(new, live_by.get(new).copied().flatten(), by[new])?);
                c += 1;
                if next_shared == Some(new) {
                    next_shared = shared.next();
                }
            }
        }
        Ok(merged)
    }

    /// The path elements of the items of a list, and the items by path element. A live list may
    /// contain duplicates from before the list was associative; those are not merged.
    fn index<'v>(
        &self,
        list: ListSchema<'_>,
        items: &'v [Value],
        duplicates: bool,
    ) -> Result<(Vec<PathElement>, ByElement<'v>), String> {
        let mut elements = Vec::with_capacity(items.len());
        let mut by_element = BTreeMap::new();
        for (at, item) in items.iter().enumerate() {
            let element =
                list.element(self.schema, item).map_err(|why| format!(": element {at}: {why}"))?;
            if by_element.contains_key(&element) {
                if !duplicates {
                    return Err(format!(": duplicate entries for key {element}"));
                }
                by_element.insert(element.clone(), None);
            } else {
                by_element.insert(element.clone(), Some(item));
            }
            elements.push(element);
        }
        Ok((elements, by_element))
    }
}
