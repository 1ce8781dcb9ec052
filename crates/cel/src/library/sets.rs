//! `sets.contains`, `sets.equivalent`, `sets.intersects`: lists as sets.

use super::{A, list_of};
use crate::functions::Functions;
use crate::ops::contains;
use crate::types::Type;
use crate::value::{EvalError, EvalResult, NO_SUCH_OVERLOAD, Val};

pub(super) fn declare(f: &mut Functions) {
    let lists = [list_of(A), list_of(A)];
    f.global("sets.contains", "list_sets_contains_list", &lists, Type::Bool, |args| {
        includes(&args[0], &args[1]).map(Val::Bool)
    });
    f.global("sets.equivalent", "list_sets_equivalent_list", &lists, Type::Bool, |args| {
        let same = includes(&args[0], &args[1])? && includes(&args[1], &args[0])?;
        Ok(Val::Bool(same))
    });
    f.global("sets.intersects", "list_sets_intersects_list", &lists, Type::Bool, intersects);
}

fn includes(list: &Val<'_>, part: &Val<'_>) -> Result<bool, EvalError> {
    let Val::List(part) = part else { return Err(NO_SUCH_OVERLOAD) };
    for item in part.iter() {
        if !contains(&item?, list)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let Val::List(list) = &args[0] else { return Err(NO_SUCH_OVERLOAD) };
    let found = list.iter().any(|item| item.is_ok_and(|i| contains(&i, &args[1]) == Ok(true)));
    Ok(Val::Bool(found))
}
