//! The operators on values: equality, order, arithmetic.

use std::cmp::Ordering;
use std::sync::Arc;

use meta::{Number, Str, Value};

use crate::decl::{Decl, DeclKind, ListType};
use crate::escape::escape;
use crate::go_text::show;
use crate::time::Duration;
use crate::value::{
    Entries, EvalError, EvalResult, Items, Key, List, Map, NO_SUCH_OVERLOAD, TEXT_BYTES_MAX, Text,
    Val, fail,
};

const INT_OVERFLOW: EvalError = EvalError::Failed(Str::new_static("integer overflow"));
const UINT_OVERFLOW: EvalError = EvalError::Failed(Str::new_static("unsigned integer overflow"));
const TIMESTAMP_OVERFLOW: EvalError = EvalError::Failed(Str::new_static("timestamp overflow"));
const NAN: EvalError = EvalError::Failed(Str::new_static("NaN values cannot be ordered"));

/// An operator without an overload for its left side.
pub(crate) fn no_overload<T>(function: &str) -> Result<T, EvalError> {
    Err(EvalError::NoSuchOverload(format!("no such overload: {function}").into()))
}

pub(crate) fn equal(left: &Val<'_>, right: &Val<'_>) -> Result<bool, EvalError> {
    if matches!(left, Val::Null) || matches!(right, Val::Null) {
        return Ok(matches!((left, right), (Val::Null, Val::Null)));
    }
    equal_values(left, right)
}

/// Equality as the left side sees it.
pub(crate) fn equal_values(left: &Val<'_>, right: &Val<'_>) -> Result<bool, EvalError> {
    Ok(match (left, right) {
        (Val::Null, Val::Null) => true,
        (Val::Bool(a), Val::Bool(b)) => a == b,
        (Val::String(a), Val::String(b)) => a.as_str() == b.as_str(),
        (Val::Int(a), Val::Int(b)) => a == b,
        (
            Val::Int(_) | Val::Uint(_) | Val::Double(_),
            Val::Int(_) | Val::Uint(_) | Val::Double(_),
        ) => compare_numbers(left, right) == Some(Ordering::Equal),
        (Val::Bytes(a), Val::Bytes(b)) => a == b,
        (Val::Duration(a), Val::Duration(b)) => a == b,
        (Val::Timestamp(a), Val::Timestamp(b)) => a.cmp(*b) == Ordering::Equal,
        (Val::Type(a), Val::Type(b)) => a.name() == b.name(),
        (Val::Optional(a), Val::Optional(b)) => match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => equal_values(a, b)?,
            _ => false,
        },
        (Val::List(a), b) => equal_lists(a, b)?,
        (Val::Map(a), b) => equal_maps(a, b)?,
        (Val::Kubernetes(a), Val::Kubernetes(b)) => match a.equals(b) {
            Some(equal) => equal,
            None => return Err(NO_SUCH_OVERLOAD),
        },
        (Val::Kubernetes(_), _) => return Err(NO_SUCH_OVERLOAD),
        (Val::Preserved(a), b) => same_as_raw(a, b),
        _ => false,
    })
}

fn equal_lists(left: &List<'_>, right: &Val<'_>) -> Result<bool, EvalError> {
    let declared = match left {
        List::Tree(_, decl) | List::Declared(_, decl) => Some(*decl),
        List::Own(_) | List::Concat(_) => None,
    };
    let Val::List(right) = right else {
        // A list of the object has no overload for anything else, one of the expression differs.
        return match declared {
            Some(decl) if !decl.is_untyped() => Err(NO_SUCH_OVERLOAD),
            _ => Ok(false),
        };
    };
    if left.len() != right.len() {
        return Ok(false);
    }
    match declared.map(|decl| &decl.kind) {
        Some(DeclKind::List { kind: ListType::Set, .. }) => {
            let ours = raw_list(left)?;
            for item in right.iter() {
                let item = raw(&item?);
                if !ours.contains(&item) {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Some(DeclKind::List { kind: ListType::Map(keys), .. }) => {
            let ours: Vec<(Value, Val<'_>)> = left
                .iter()
                .map(|item| item.map(|item| (list_map_key(&raw(&item), keys), item)))
                .collect::<Result<_, _>>()?;
            for item in right.iter() {
                let item = item?;
                let key = list_map_key(&raw(&item), keys);
                // Of equal keys the last counts.
                match ours.iter().rev().find(|(other, _)| *other == key) {
                    Some((_, mine)) if equal_values(mine, &item)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        Some(DeclKind::List { .. }) => {
            for (a, b) in left.iter().zip(right.iter()) {
                if !equal_values(&a?, &b?)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => {
            for (a, b) in left.iter().zip(right.iter()) {
                // Compat: elements that cannot be compared count as equal.
                if let (Ok(a), Ok(b)) = (a, b)
                    && matches!(equal(&a, &b), Ok(false))
                {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

fn equal_maps(left: &Map<'_>, right: &Val<'_>) -> Result<bool, EvalError> {
    let typed = match left {
        Map::Tree(map, decl) if !decl.is_untyped() => Some((*map, *decl)),
        _ => None,
    };
    let Val::Map(other) = right else {
        return if typed.is_some() { Err(NO_SUCH_OVERLOAD) } else { Ok(false) };
    };
    if left.len() != other.len() {
        return Ok(false);
    }
    let Some((map, decl)) = typed else {
        for key in left.keys() {
            let (Ok(Some(mine)), Ok(theirs)) = (left.find(&key), other.find(&key)) else {
                continue;
            };
            let Some(theirs) = theirs else { return Ok(false) };
            if matches!(equal(&mine, &theirs), Ok(false)) {
                return Ok(false);
            }
        }
        return Ok(true);
    };
    for (name, value) in map.iter() {
        let declared = match &decl.kind {
            DeclKind::Object(object) => object.property(name).is_some(),
            _ => true,
        };
        if declared {
            let key = Val::String(Text::Ref(name));
            match (left.find(&key)?, other.find(&key)?) {
                (None, None) => {}
                (Some(mine), Some(theirs)) => {
                    if !equal_values(&mine, &theirs)? {
                        return Ok(false);
                    }
                }
                _ => return Ok(false),
            }
        } else {
            let Map::Tree(other, _) = other else { return Err(NO_SUCH_OVERLOAD) };
            if other.get(name).is_some_and(|theirs| theirs != value) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The plain JSON of a value, to compare where the declaration does not matter.
pub(crate) fn raw(value: &Val<'_>) -> Value {
    match value {
        Val::Null | Val::Optional(None) => Value::Null,
        Val::Bool(value) => Value::Bool(*value),
        Val::Int(int) => Value::Number(Number::Int(*int)),
        Val::Uint(uint) => Value::Number(Number::Int(*uint as i64)),
        Val::Double(double) => Value::Number(Number::Float(*double)),
        Val::String(text) => Value::string(text.as_str()),
        Val::List(List::Tree(items, _)) => Value::Array(items.to_vec()),
        Val::List(list) => {
            Value::Array(list.iter().map(|item| item.map_or(Value::Null, |i| raw(&i))).collect())
        }
        Val::Map(Map::Tree(map, _)) => Value::Object((*map).clone()),
        Val::Map(map) => Value::Object(
            map.keys()
                .iter()
                .map(|key| {
                    let value = map.find(key).ok().flatten();
                    (Str::from(show(key)), value.map_or(Value::Null, |value| raw(&value)))
                })
                .collect(),
        ),
        Val::Preserved(value) => (*value).clone(),
        Val::Optional(Some(value)) => raw(value),
        other => Value::string(show(other)),
    }
}

fn raw_list(list: &List<'_>) -> Result<Vec<Value>, EvalError> {
    match list {
        List::Tree(items, _) => Ok(items.to_vec()),
        list => list.iter().map(|item| item.map(|item| raw(&item))).collect(),
    }
}

fn same_as_raw(value: &Value, other: &Val<'_>) -> bool {
    match other {
        Val::Preserved(other) => value == *other,
        other => *value == raw(other),
    }
}

/// What identifies an element of a list map.
fn list_map_key(element: &Value, keys: &[Str]) -> Value {
    Value::Array(
        keys.iter()
            .map(|key| {
                // Compat: kube-apiserver looks the escaped name up in the element.
                let name = escape(key).unwrap_or_else(|| key.to_string());
                element.get(&name).cloned().unwrap_or_default()
            })
            .collect(),
    )
}

/// -1, 0, 1 for values of one kind; numbers are one kind.
pub(crate) fn compare(
    function: &str,
    left: &Val<'_>,
    right: &Val<'_>,
) -> Result<Ordering, EvalError> {
    match (left, right) {
        (Val::Int(a), Val::Int(b)) => Ok(a.cmp(b)),
        (
            Val::Int(_) | Val::Uint(_) | Val::Double(_),
            Val::Int(_) | Val::Uint(_) | Val::Double(_),
        ) => compare_numbers(left, right).ok_or(NAN),
        (Val::String(a), Val::String(b)) => Ok(a.as_str().cmp(b.as_str())),
        (Val::Bool(a), Val::Bool(b)) => Ok(a.cmp(b)),
        (Val::Bytes(a), Val::Bytes(b)) => Ok(a.cmp(b)),
        (Val::Duration(a), Val::Duration(b)) => Ok(a.cmp(b)),
        (Val::Timestamp(a), Val::Timestamp(b)) => Ok(a.cmp(*b)),
        (
            Val::Int(_)
            | Val::Uint(_)
            | Val::Double(_)
            | Val::String(_)
            | Val::Bool(_)
            | Val::Bytes(_)
            | Val::Duration(_)
            | Val::Timestamp(_),
            _,
        ) => Err(NO_SUCH_OVERLOAD),
        _ => no_overload(function),
    }
}

/// None if one of them is not a number after all.
fn compare_numbers(left: &Val<'_>, right: &Val<'_>) -> Option<Ordering> {
    let double_int = |double: f64, int: i64| {
        if double < i64::MIN as f64 {
            Some(Ordering::Less)
        } else if double > i64::MAX as f64 {
            Some(Ordering::Greater)
        } else {
            double.partial_cmp(&(int as f64))
        }
    };
    let double_uint = |double: f64, uint: u64| {
        if double < 0.0 {
            Some(Ordering::Less)
        } else if double > u64::MAX as f64 {
            Some(Ordering::Greater)
        } else {
            double.partial_cmp(&(uint as f64))
        }
    };
    match (left, right) {
        (Val::Int(a), Val::Int(b)) => Some(a.cmp(b)),
        (Val::Uint(a), Val::Uint(b)) => Some(a.cmp(b)),
        (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
        (Val::Int(a), Val::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Val::Uint(a), Val::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Val::Double(a), Val::Int(b)) => double_int(*a, *b),
        (Val::Int(a), Val::Double(b)) => double_int(*b, *a).map(Ordering::reverse),
        (Val::Double(a), Val::Uint(b)) => double_uint(*a, *b),
        (Val::Uint(a), Val::Double(b)) => double_uint(*b, *a).map(Ordering::reverse),
        _ => None,
    }
}

/// Costs are summed up afterwards, when the text is there already.
fn check_length(a: usize, b: usize) -> Result<(), EvalError> {
    if a.saturating_add(b) > TEXT_BYTES_MAX { Err(EvalError::CostLimit) } else { Ok(()) }
}

pub(crate) fn add<'a>(left: Val<'a>, right: Val<'a>) -> EvalResult<'a> {
    Ok(match (left, right) {
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_add(b).ok_or(INT_OVERFLOW)?),
        (Val::Uint(a), Val::Uint(b)) => Val::Uint(a.checked_add(b).ok_or(UINT_OVERFLOW)?),
        (Val::Double(a), Val::Double(b)) => Val::Double(a + b),
        (Val::String(a), Val::String(b)) => {
            let (a, b) = (a.as_str(), b.as_str());
            check_length(a.len(), b.len())?;
            let mut sum = String::with_capacity(a.len() + b.len());
            sum.push_str(a);
            sum.push_str(b);
            Val::text(sum)
        }
        (Val::Bytes(a), Val::Bytes(b)) => {
            check_length(a.len(), b.len())?;
            Val::Bytes([&*a, &*b].concat().into())
        }
        (Val::Duration(a), Val::Duration(b)) => {
            Val::Duration(Duration(a.0.checked_add(b.0).ok_or(INT_OVERFLOW)?))
        }
        (Val::Timestamp(time), Val::Duration(duration))
        | (Val::Duration(duration), Val::Timestamp(time)) => {
            Val::Timestamp(time.plus(duration).ok_or(TIMESTAMP_OVERFLOW)?)
        }
        (Val::List(a), Val::List(b)) => Val::List(add_lists(a, b)?),
        (
            Val::Int(_)
            | Val::Uint(_)
            | Val::Double(_)
            | Val::String(_)
            | Val::Bytes(_)
            | Val::Duration(_)
            | Val::Timestamp(_)
            | Val::List(_),
            _,
        ) => return Err(NO_SUCH_OVERLOAD),
        _ => return no_overload("_+_"),
    })
}

fn add_lists<'a>(left: List<'a>, right: List<'a>) -> Result<List<'a>, EvalError> {
    let declared: Option<&'a Decl> = match &left {
        List::Tree(_, decl) | List::Declared(_, decl) => Some(decl),
        List::Own(_) | List::Concat(_) => None,
    };
    match declared.map(|decl| (decl, &decl.kind)) {
        Some((decl, DeclKind::List { kind: ListType::Set, .. })) => {
            let mut seen = raw_list(&left)?;
            let mut items: Vec<Val<'a>> = left.iter().collect::<Result<_, _>>()?;
            for item in right.iter() {
                let item = item?;
                let plain = raw(&item);
                if !seen.contains(&plain) {
                    seen.push(plain);
                    items.push(item);
                }
            }
            Ok(List::Declared(Arc::new(Items::new(items)), decl))
        }
        Some((decl, DeclKind::List { kind: ListType::Map(keys), .. })) => {
            let mut items: Vec<Val<'a>> = left.iter().collect::<Result<_, _>>()?;
            let mut found: Vec<Value> =
                items.iter().map(|item| list_map_key(&raw(item), keys)).collect();
            let own = items.len();
            for item in right.iter() {
                let item = item?;
                let key = list_map_key(&raw(&item), keys);
                match found[..own].iter().rposition(|other| *other == key) {
                    Some(at) => items[at] = item,
                    None => {
                        items.push(item);
                        found.push(key);
                    }
                }
            }
            Ok(List::Declared(Arc::new(Items::new(items)), decl))
        }
        // Adding to a list with a schema gives one, and its elements are looked at.
        Some((decl, DeclKind::List { .. })) if !right.is_empty() => {
            let items = left.iter().chain(right.iter()).collect::<Result<Vec<_>, _>>()?;
            Ok(List::Declared(Arc::new(Items::new(items)), decl))
        }
        _ if left.is_empty() => Ok(right),
        _ if right.is_empty() => Ok(left),
        _ => Ok(List::concat(left, right)),
    }
}

pub(crate) fn subtract<'a>(left: &Val<'a>, right: &Val<'a>) -> EvalResult<'a> {
    Ok(match (left, right) {
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_sub(*b).ok_or(INT_OVERFLOW)?),
        (Val::Uint(a), Val::Uint(b)) => Val::Uint(a.checked_sub(*b).ok_or(UINT_OVERFLOW)?),
        (Val::Double(a), Val::Double(b)) => Val::Double(a - b),
        (Val::Duration(a), Val::Duration(b)) => {
            Val::Duration(Duration(a.0.checked_sub(b.0).ok_or(INT_OVERFLOW)?))
        }
        (Val::Timestamp(a), Val::Timestamp(b)) => Val::Duration(a.minus(*b).ok_or(INT_OVERFLOW)?),
        (Val::Timestamp(a), Val::Duration(b)) => {
            let minus = Duration(b.0.checked_neg().ok_or(INT_OVERFLOW)?);
            Val::Timestamp(a.plus(minus).ok_or(TIMESTAMP_OVERFLOW)?)
        }
        (Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Duration(_) | Val::Timestamp(_), _) => {
            return Err(NO_SUCH_OVERLOAD);
        }
        // Strings can receive calls, but not this one.
        (Val::String(_), _) => return Err(NO_SUCH_OVERLOAD),
        _ => return no_overload("_-_"),
    })
}

pub(crate) fn multiply<'a>(left: &Val<'a>, right: &Val<'a>) -> EvalResult<'a> {
    Ok(match (left, right) {
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_mul(*b).ok_or(INT_OVERFLOW)?),
        (Val::Uint(a), Val::Uint(b)) => Val::Uint(a.checked_mul(*b).ok_or(UINT_OVERFLOW)?),
        (Val::Double(a), Val::Double(b)) => Val::Double(a * b),
        (other, _) => return numbers_only("_*_", other, true),
    })
}

pub(crate) fn divide<'a>(left: &Val<'a>, right: &Val<'a>) -> EvalResult<'a> {
    Ok(match (left, right) {
        (Val::Int(_), Val::Int(0)) | (Val::Uint(_), Val::Uint(0)) => {
            return fail("division by zero");
        }
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_div(*b).ok_or(INT_OVERFLOW)?),
        (Val::Uint(a), Val::Uint(b)) => Val::Uint(a / b),
        (Val::Double(a), Val::Double(b)) => Val::Double(a / b),
        (other, _) => return numbers_only("_/_", other, true),
    })
}

pub(crate) fn modulo<'a>(left: &Val<'a>, right: &Val<'a>) -> EvalResult<'a> {
    Ok(match (left, right) {
        (Val::Int(_), Val::Int(0)) | (Val::Uint(_), Val::Uint(0)) => {
            return fail("modulus by zero");
        }
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_rem(*b).ok_or(INT_OVERFLOW)?),
        (Val::Uint(a), Val::Uint(b)) => Val::Uint(a % b),
        (other, _) => return numbers_only("_%_", other, false),
    })
}

fn numbers_only<'a>(function: &str, left: &Val<'_>, doubles: bool) -> EvalResult<'a> {
    match left {
        Val::Int(_) | Val::Uint(_) | Val::String(_) | Val::Duration(_) | Val::Timestamp(_) => {
            Err(NO_SUCH_OVERLOAD)
        }
        Val::Double(_) if doubles => Err(NO_SUCH_OVERLOAD),
        _ => no_overload(function),
    }
}

pub(crate) fn negate<'a>(value: &Val<'a>) -> EvalResult<'a> {
    Ok(match value {
        Val::Int(int) => Val::Int(int.checked_neg().ok_or(INT_OVERFLOW)?),
        Val::Double(double) => Val::Double(-double),
        Val::Duration(duration) => {
            Val::Duration(Duration(duration.0.checked_neg().ok_or(INT_OVERFLOW)?))
        }
        Val::Bool(_) | Val::String(_) | Val::Timestamp(_) => return Err(NO_SUCH_OVERLOAD),
        _ => return no_overload("-_"),
    })
}

pub(crate) fn contains(element: &Val<'_>, container: &Val<'_>) -> Result<bool, EvalError> {
    match container {
        Val::List(list @ (List::Tree(_, decl) | List::Declared(_, decl))) if !decl.is_untyped() => {
            let mut wrong = None;
            for item in list.iter() {
                match item.and_then(|item| equal_values(&item, element)) {
                    Ok(true) => return Ok(true),
                    Ok(false) => {}
                    Err(error) => wrong = wrong.or(Some(error)),
                }
            }
            wrong.map_or(Ok(false), Err)
        }
        Val::List(List::Concat(parts)) => {
            // A side that contains the element hides an error of the other.
            let parts = [&parts.first, &parts.second];
            let [first, second] = parts.map(|part| contains(element, &Val::List(part.clone())));
            match (first, second) {
                (Ok(true), _) | (_, Ok(true)) => Ok(true),
                (Err(error), _) => Err(error),
                (Ok(false), second) => second,
            }
        }
        Val::List(list) => Ok(list
            .iter()
            .any(|item| item.is_ok_and(|item| matches!(equal_values(element, &item), Ok(true))))),
        Val::Map(map) => map.find(element).map(|found| found.is_some()),
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

/// The map with one more entry.
pub(crate) fn insert<'a>(
    map: Map<'a>,
    key: &Val<'a>,
    value: Val<'a>,
) -> Result<Map<'a>, EvalError> {
    if map.find(key)?.is_some() {
        return fail(format!("insert failed: key {} already exists", show(key)));
    }
    let mut entries = match map {
        Map::Own(entries) => entries,
        tree @ Map::Tree(..) => {
            let mut entries = std::collections::BTreeMap::new();
            for key in tree.keys() {
                if let Some(value) = tree.find(&key)? {
                    entries.insert(Key::of(&key)?, value);
                }
            }
            Arc::new(Entries::new(entries))
        }
    };
    Arc::make_mut(&mut entries).insert(Key::of(key)?, value);
    Ok(Map::Own(entries))
}
