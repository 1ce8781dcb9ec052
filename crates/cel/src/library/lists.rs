//! Kubernetes' functions on lists: order, sum, least and greatest, positions.

use std::cmp::Ordering;

use super::standard::id;
use super::{A, COMPARABLE, list_of};
use crate::functions::{FunctionOp, Functions};
use crate::ops::{add, compare, equal_values};
use crate::time::Duration;
use crate::types::Type;
use crate::value::{EvalResult, List, NO_SUCH_OVERLOAD, Val, fail};

pub(super) fn declare(f: &mut Functions) {
    for (name, ty) in COMPARABLE {
        let list = [list_of(ty.clone())];
        f.member(
            "isSorted",
            id("list", &format!("{name}_is_sorted_bool")),
            &list,
            Type::Bool,
            sorted,
        );
        f.member("max", id("list", &format!("{name}_max_{name}")), &list, ty.clone(), |args| {
            pick(args, "max", Ordering::Less)
        });
        f.member("min", id("list", &format!("{name}_min_{name}")), &list, ty, |args| {
            pick(args, "min", Ordering::Greater)
        });
    }
    let sums: [(&str, Type, FunctionOp); 4] = [
        ("int", Type::Int, |args| sum(args, Val::Int(0))),
        ("uint", Type::Uint, |args| sum(args, Val::Uint(0))),
        ("double", Type::Double, |args| sum(args, Val::Double(0.0))),
        ("duration", Type::Duration, |args| sum(args, Val::Duration(Duration(0)))),
    ];
    for (name, ty, op) in sums {
        f.member("sum", id("list", &format!("{name}_sum_{name}")), &[list_of(ty.clone())], ty, op);
    }
    let find = [list_of(A), A];
    f.member("indexOf", "list_a_index_of_int", &find, Type::Int, |args| {
        position(args, |list, equal| (0..list.len()).find(|at| equal(*at)))
    });
    f.member("lastIndexOf", "list_a_last_index_of_int", &find, Type::Int, |args| {
        position(args, |list, equal| (0..list.len()).rev().find(|at| equal(*at)))
    });
}

fn list<'v, 'a>(args: &'v [Val<'a>]) -> Result<&'v List<'a>, crate::value::EvalError> {
    match args.first() {
        Some(Val::List(list)) => Ok(list),
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

fn sorted<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let mut previous: Option<Val<'a>> = None;
    for item in list(args)?.iter() {
        let item = item?;
        if let Some(previous) = &previous
            && matches!(compare("isSorted", previous, &item), Ok(Ordering::Greater))
        {
            return Ok(Val::Bool(false));
        }
        previous = Some(item);
    }
    Ok(Val::Bool(true))
}

fn sum<'a>(args: &[Val<'a>], zero: Val<'a>) -> EvalResult<'a> {
    let mut total = zero;
    for item in list(args)?.iter() {
        total = add(total, item?)?;
    }
    Ok(total)
}

/// The least or greatest element.
fn pick<'a>(args: &[Val<'a>], name: &str, worse: Ordering) -> EvalResult<'a> {
    let mut best: Option<Val<'a>> = None;
    for item in list(args)?.iter() {
        let item = item?;
        best = Some(match best {
            Some(best) if compare(name, &best, &item) != Ok(worse) => best,
            _ => item,
        });
    }
    match best {
        Some(best) => Ok(best),
        None => fail(format!("{name} called on empty list")),
    }
}

fn position<'a>(
    args: &[Val<'a>],
    find: fn(&List<'a>, &dyn Fn(usize) -> bool) -> Option<usize>,
) -> EvalResult<'a> {
    let list = list(args)?;
    let equal = |at: usize| {
        list.get(at)
            .is_some_and(|item| item.is_ok_and(|item| equal_values(&item, &args[1]) == Ok(true)))
    };
    Ok(Val::Int(find(list, &equal).map_or(-1, |at| at as i64)))
}
