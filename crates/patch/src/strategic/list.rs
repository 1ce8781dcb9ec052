//! Merging of lists item by item, and the order of the result.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;

use meta::{Number, Str, Value, cancel, json};

use super::{DELETE, DIRECTIVE, MAP, MERGE, REPLACE, SET_ELEMENT_ORDER};
use super::{lookup::PatchMeta, merge_map, unknown_directive, without_directives, wrong_type};
use crate::{PatchError, go_text};

/// Merges a list field: replaced as a whole, unless its patch strategy is `merge`.
pub(super) fn merge_field(
    old: Vec<Value>,
    new: Vec<Value>,
    field: &PatchMeta<'_>,
) -> Result<Vec<Value>, PatchError> {
    if !field.patch.merge || old.is_empty() && new.is_empty() {
        return Ok(new);
    }
    if !items_are_maps(&[&old, &new])? {
        let (order, before) = (places(&new, None)?, places(&old, None)?);
        let merged = dedup(old.into_iter().chain(new).collect());
        return in_order(merged, &order, &before, None);
    }
    let Some(key) = field.merge_key() else {
        return Err(contradiction(format!(
            "cannot merge lists without merge key for {}",
            field.lookup.go_kind()
        )));
    };
    let (old, new) = take_directives(old, new, key)?;
    // Noted before the items are moved: copies of long lists would be several times their memory. What
    // is wrong with an item is reported by the merge first.
    let (order, before) = (places(&new, Some(key)), places(&old, Some(key)));
    let merged = merge_items(old, new, key, field)?;
    in_order(merged, &order?, &before?, Some(key))
}

/// `$deleteFromPrimitiveList`: independent of the patch strategy.
pub(super) fn delete(
    old: Vec<Value>,
    deleted: &[Value],
    field: &PatchMeta<'_>,
) -> Result<Vec<Value>, PatchError> {
    if old.is_empty() && deleted.is_empty() {
        return Ok(old);
    }
    if items_are_maps(&[&old, deleted])? {
        return merge_field(old, deleted.to_vec(), field);
    }
    let deleted: HashSet<String> = deleted.iter().map(identity).collect();
    Ok(old.into_iter().filter(|item| !deleted.contains(&identity(item))).collect())
}

/// Merges, then sorts: items in `order` come in that order, the rest keep their relative order of
/// the old list.
pub(super) fn merge_ordered(
    old: Option<&[Value]>,
    new: Option<&[Value]>,
    order: &[Value],
    field: &PatchMeta<'_>,
) -> Result<Vec<Value>, PatchError> {
    let key = field.merge_key().map(Str::as_str);
    check_order(new.unwrap_or_default(), order, key)?;
    let merged = match (old, new) {
        (Some(old), None) => old.to_vec(),
        (Some(old), Some(new)) => merge_field(old.to_vec(), new.to_vec(), field)?,
        (None, new) => {
            let new = new.unwrap_or_default().to_vec();
            new.into_iter().filter_map(without_directives).collect()
        }
    };
    if let Some(key) = key {
        check_order_is_of_maps(&merged, order, key)?;
    }
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    if old.is_empty() && new.is_empty() {
        return Err(contradiction("no elements in any of the given slices".to_owned()));
    }
    let key = if items_are_maps(&[old, new])? { Some(key.unwrap_or_default()) } else { None };
    in_order(merged, &places(order, key)?, &places(old, key)?, key)
}

/// Every item is looked for in the order; the search ends at the first entry that is not an object.
fn check_order_is_of_maps(items: &[Value], order: &[Value], key: &str) -> Result<(), PatchError> {
    let end = order.iter().position(|entry| entry.as_object().is_none());
    let maps = &order[..end.unwrap_or(order.len())];
    let known: HashSet<String> =
        maps.iter().filter_map(|entry| entry.get(key).map(identity)).collect();
    for item in items {
        let wanted = key_of(item, Some(key))?;
        if let Some(end) = end.filter(|_| !known.contains(&wanted)) {
            return Err(contradiction(format!("value for key {end} is not a map")));
        }
    }
    Ok(())
}

/// The items of a patch must stand in the same order in its `$setElementOrder`, all of them.
fn check_order(new: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if new.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    let mut items = new.iter().peekable();
    // The key of the next item, once it is needed.
    let mut wanted = None;
    while let Some(item) = items.peek() {
        if key.is_some() {
            let item = item.as_object().ok_or_else(|| wrong_type(MAP, item))?;
            if item.get(DIRECTIVE).and_then(Value::as_str) == Some(DELETE) {
                items.next();
                continue;
            }
        }
        if rest.len() > 0 && item.get(DIRECTIVE).is_some() {
            items.next();
            continue;
        }
        let Some(next) = rest.next() else {
            return Err(contradiction(format!(
                "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
                go_text::show_list(new),
                go_text::show_list(order),
            )));
        };
        let of_item = match wanted.take() {
            Some(of_item) => of_item,
            None => key_of(item, key)?,
        };
        if of_item == key_of(next, key)? {
            items.next();
        } else {
            wanted = Some(of_item);
        }
    }
    Ok(())
}

/// Applies `$patch: delete` and `$patch: replace` items. Returns what remains of both lists.
fn take_directives(
    mut old: Vec<Value>,
    new: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::with_capacity(new.len());
    let mut replace = false;
    let mut deleted = HashSet::new();
    for item in new {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some(DELETE) => {
                deleted.insert(key_of(&item, Some(key))?);
            }
            Some(REPLACE) => replace = true,
            Some(MERGE) => {
                let why = "merging lists cannot yet be specified in the patch";
                return Err(contradiction(why.to_owned()));
            }
            _ => return Err(unknown_directive(item.as_object().unwrap_or(&meta::Map::new()))),
        }
    }
    if replace {
        return Ok((plain, Vec::new()));
    }
    old.retain(|item| !item.get(key).is_some_and(|value| deleted.contains(&identity(value))));
    Ok((old, plain))
}

/// Merges items with the same key, appends the others.
fn merge_items(
    mut merged: Vec<Value>,
    new: Vec<Value>,
    key: &str,
    field: &PatchMeta<'_>,
) -> Result<Vec<Value>, PatchError> {
    let mut places = HashMap::new();
    for (at, item) in merged.iter().enumerate() {
        if let Some(value) = item.get(key) {
            places.entry(identity(value)).or_insert(at);
        }
    }
    for item in new {
        let wanted = key_of(&item, Some(key))?;
        match (places.get(&wanted), item) {
            (Some(&at), Value::Object(new)) => {
                let old = match std::mem::take(&mut merged[at]) {
                    Value::Object(old) => old,
                    _ => meta::Map::new(),
                };
                merged[at] = merge_map(old, new, &field.lookup)?.into();
            }
            (_, item) => {
                places.insert(wanted, merged.len());
                merged.push(item);
            }
        }
    }
    Ok(merged)
}

/// Items in `order` come in that order; the others keep the order of the old list and are inserted
/// before the first item that they preceded there.
fn in_order(
    merged: Vec<Value>,
    order: &Places,
    old: &Places,
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    let mut first = Vec::new();
    let mut others = Vec::new();
    for item in merged {
        let id = key_of(&item, key)?;
        let was = old.get(&id).copied();
        match order.get(&id) {
            Some(&at) => first.push((at, was, item)),
            None => others.push((was, item)),
        }
    }
    first.sort_by_key(|(at, ..)| *at);
    others.sort_by_key(|(was, _)| *was);

    let mut all = Vec::with_capacity(first.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, was, item) in first {
        let before =
            |other: &(Option<usize>, Value)| matches!((other.0, was), (Some(a), Some(b)) if a < b);
        while let Some((_, other)) = others.next_if(before) {
            all.push(other);
        }
        all.push(item);
    }
    all.extend(others.map(|(_, item)| item));
    Ok(all)
}

/// Where items are in a list, by their identities.
type Places = HashMap<String, usize>;

fn places(items: &[Value], key: Option<&str>) -> Result<Places, PatchError> {
    let mut places = HashMap::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        cancel::checkpoint();
        places.entry(key_of(item, key)?).or_insert(at);
    }
    Ok(places)
}

/// The identity of an item: the value of its merge key, or the item itself.
fn key_of(item: &Value, key: Option<&str>) -> Result<String, PatchError> {
    let Some(key) = key else { return Ok(identity(item)) };
    let map = item.as_object().ok_or_else(|| wrong_type(MAP, item))?;
    let value = map.get(key).ok_or_else(|| {
        let map = go_text::show(item);
        contradiction(format!("map: {map} does not contain declared merge key: {key}"))
    })?;
    Ok(identity(value))
}

/// Equal texts for equal values; `1`, `1.0` and `"1"` differ.
fn identity(value: &Value) -> String {
    let mark = if matches!(value, Value::Number(Number::Float(_))) { "." } else { "" };
    json::to_string(value) + mark
}

fn dedup(items: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    items.into_iter().filter(|item| seen.insert(identity(item))).collect()
}

/// Whether the lists hold objects. All items must be of one kind, and not lists.
fn items_are_maps(lists: &[&[Value]]) -> Result<bool, PatchError> {
    let mut items = lists.iter().flat_map(|list| list.iter());
    let Some(first) = items.next() else { return Ok(false) };
    if matches!(first, Value::Array(_)) {
        return Err(PatchError::DoesNotApply("lists of lists are not supported".to_owned()));
    }
    let kind = |value: &Value| match value {
        Value::Number(number) => (discriminant(value), Some(discriminant(number))),
        _ => (discriminant(value), None),
    };
    if items.any(|item| kind(item) != kind(first)) {
        let lists: Vec<String> = lists.iter().map(|list| go_text::show_list(list)).collect();
        let lists = lists.join(" ");
        return Err(contradiction(format!("list element types are not identical: [{lists}]")));
    }
    Ok(matches!(first, Value::Object(_)))
}

fn contradiction(why: String) -> PatchError {
    PatchError::Contradiction(why)
}
