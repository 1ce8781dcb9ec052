//! cel-go's functions on lists (version 3): slices, flattening, sorting, ranges.

use std::cmp::Ordering;

use super::standard::id;
use super::{A, COMPARABLE, list_of};
use crate::functions::Functions;
use crate::ops::{compare, equal_values};
use crate::types::Type;
use crate::value::{EvalError, EvalResult, List, NO_SUCH_OVERLOAD, Val, fail};

/// A longer range would exceed the cost limit: it costs as much as it is long.
const RANGE_MAX: i64 = 1_000_000;

/// The square of it is more than any budget.
const DISTINCT_MAX: usize = 5_000;

pub(super) fn declare(f: &mut Functions) {
    let list = list_of(A);
    let slice_args = [list.clone(), Type::Int, Type::Int];
    f.member("slice", "list_slice", &slice_args, list.clone(), slice);
    f.signature("flatten", "list_flatten", true, &[list_of(list.clone())], list.clone());
    let dynamic = list_of(Type::Dyn);
    f.signature("flatten", "list_flatten_int", true, &[dynamic.clone(), Type::Int], dynamic);
    f.single("flatten", flatten_op);
    for (_, ty) in COMPARABLE {
        let keys = list_of(ty.clone());
        f.signature(
            "sort",
            id("list", &format!("{}_sort", ty.name())),
            true,
            std::slice::from_ref(&keys),
            keys.clone(),
        );
        let id = id("list", &format!("{}_sortByAssociatedKeys", ty.name()));
        f.signature("@sortByAssociatedKeys", id, true, &[list.clone(), keys], list.clone());
    }
    f.single("sort", |args| match &args[0] {
        Val::List(list) => sort(list, list),
        _ => crate::ops::no_overload("sort"),
    });
    f.single("@sortByAssociatedKeys", |args| match args {
        [Val::List(list), Val::List(keys)] => sort(list, keys),
        _ => crate::ops::no_overload("@sortByAssociatedKeys"),
    });
    f.global("lists.range", "lists_range", &[Type::Int], list_of(Type::Int), |args| {
        match &args[0] {
            Val::Int(count) if *count > RANGE_MAX => Err(EvalError::CostLimit),
            Val::Int(count) => Ok(Val::list((0..*count).map(Val::Int).collect())),
            _ => Err(NO_SUCH_OVERLOAD),
        }
    });
    let one = [list.clone()];
    f.member("reverse", "list_reverse", &one, list.clone(), |args| {
        let mut items = items(&args[0])?;
        items.reverse();
        Ok(Val::list(items))
    });
    f.member("distinct", "list_distinct", &one, list, distinct);
}

fn items<'a>(list: &Val<'a>) -> Result<Vec<Val<'a>>, EvalError> {
    match list {
        Val::List(list) => list.iter().collect(),
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

fn slice<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let [Val::List(list), Val::Int(start), Val::Int(end)] = args else {
        return Err(NO_SUCH_OVERLOAD);
    };
    if *start < 0 || *end < 0 {
        return fail(format!("cannot slice({start}, {end}), negative indexes not supported"));
    }
    if start > end {
        return fail(format!(
            "cannot slice({start}, {end}), start index must be less than or equal to end index"
        ));
    }
    if (list.len() as i64) < *end {
        return fail(format!("cannot slice({start}, {end}), list is length {}", list.len()));
    }
    let items: Result<Vec<_>, _> =
        (*start as usize..*end as usize).filter_map(|at| list.get(at)).collect();
    Ok(Val::list(items?))
}

fn flatten_op<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let Val::List(list) = &args[0] else {
        let of = args[0].type_of();
        return crate::ops::no_overload(&format!("{}.flatten()", of.name()));
    };
    let depth = match args.get(1) {
        None => 1,
        Some(Val::Int(depth)) if *depth < 0 => return fail("level must be non-negative"),
        Some(Val::Int(depth)) => *depth,
        Some(_) => return Err(NO_SUCH_OVERLOAD),
    };
    let mut flat = Vec::new();
    flatten(list, depth, &mut flat)?;
    Ok(Val::list(flat))
}

fn flatten<'a>(list: &List<'a>, depth: i64, flat: &mut Vec<Val<'a>>) -> Result<(), EvalError> {
    for item in list.iter() {
        match item? {
            Val::List(inner) if depth > 0 => flatten(&inner, depth - 1, flat)?,
            item => flat.push(item),
        }
    }
    Ok(())
}

fn sort<'a>(list: &List<'a>, keys: &List<'a>) -> EvalResult<'a> {
    if list.len() != keys.len() {
        return fail(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, \
             but got {} and {} elements respectively",
            list.len(),
            keys.len()
        ));
    }
    let keys: Vec<Val<'a>> = keys.iter().collect::<Result<_, _>>()?;
    if let Some(first) = keys.first() {
        if compare("sort", first, first).is_err() {
            return fail("list elements must be comparable");
        }
        let ty = first.type_of();
        if keys.iter().any(|key| key.type_of().name() != ty.name()) {
            return fail("list elements must have the same type");
        }
    }
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by(|a, b| compare("sort", &keys[*a], &keys[*b]).unwrap_or(Ordering::Equal));
    let sorted: Result<Vec<_>, _> = order.into_iter().filter_map(|at| list.get(at)).collect();
    Ok(Val::list(sorted?))
}

fn distinct<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let items = items(&args[0])?;
    // Comparing so many elements pairwise would exceed the cost limit.
    if items.len() > DISTINCT_MAX {
        return Err(EvalError::CostLimit);
    }
    let mut unique: Vec<Val<'a>> = Vec::new();
    for item in items {
        if !unique.iter().any(|other| equal_values(&item, other) == Ok(true)) {
            unique.push(item);
        }
    }
    Ok(Val::list(unique))
}
