//! Values that may be missing: `optional.of`, `orValue`, `first`, `unwrapOpt` …

use super::{A, B, list_of};
use crate::ast::op;
use crate::functions::Functions;
use crate::go_text::show;
use crate::types::Type;
use crate::value::{EvalResult, List, Map, NO_SUCH_OVERLOAD, Val, fail};

pub(super) fn declare(f: &mut Functions) {
    use Type::{Bool, Dyn, Int, String};
    let optional = || Type::optional(A);
    f.global("optional.of", "optional_of", &[A], optional(), |args| Ok(Val::some(args[0].clone())));
    f.global("optional.ofNonZeroValue", "optional_ofNonZeroValue", &[A], optional(), |args| {
        let value = &args[0];
        Ok(if is_zero(value) { Val::Optional(None) } else { Val::some(value.clone()) })
    });
    f.global("optional.none", "optional_none", &[], optional(), |_| Ok(Val::Optional(None)));
    f.member("value", "optional_value", &[optional()], A, |args| match &args[0] {
        Val::Optional(Some(value)) => Ok((**value).clone()),
        Val::Optional(None) => fail("optional.none() dereference"),
        _ => Err(NO_SUCH_OVERLOAD),
    });
    f.member("hasValue", "optional_hasValue", &[optional()], Bool, |args| match &args[0] {
        Val::Optional(value) => Ok(Val::Bool(value.is_some())),
        _ => Err(NO_SUCH_OVERLOAD),
    });
    // The planner knows these: the right side is only evaluated if it is needed.
    f.signature("or", "optional_or_optional", true, &[optional(), optional()], optional());
    f.signature("orValue", "optional_orValue_value", true, &[optional(), A], A);
    f.signature(op::OPT_SELECT, "select_optional_field", false, &[Dyn, String], optional());
    let (list, map, value) = (list_of(A), Type::map(A, B), Type::optional(B));
    let (some_list, some_map) = (Type::optional(list.clone()), Type::optional(map.clone()));
    let mut index = |id, args: &[Type], result| f.signature(op::OPT_INDEX, id, false, args, result);
    index("list_optindex_optional_int", &[list.clone(), Int], optional());
    index("optional_list_optindex_optional_int", &[some_list.clone(), Int], optional());
    index("map_optindex_optional_value", &[map, A], value.clone());
    index("optional_map_optindex_optional_value", &[some_map.clone(), A], value.clone());
    f.signature(op::INDEX, "optional_list_index_int", false, &[some_list, Int], optional());
    f.signature(op::INDEX, "optional_map_index_value", false, &[some_map, A], value);
    let list = [list];
    f.member("last", "list_last", &list, optional(), |args| at(args, |len| len - 1));
    f.member("first", "list_first", &list, optional(), |args| at(args, |_| 0));
    let optionals = [list_of(optional())];
    f.global("optional.unwrap", "optional_unwrap", &optionals, list_of(A), unwrap);
    f.member("unwrapOpt", "optional_unwrapOpt", &optionals, list_of(A), unwrap);
}

fn at<'a>(args: &[Val<'a>], index: fn(usize) -> usize) -> EvalResult<'a> {
    match &args[0] {
        Val::List(list) if list.is_empty() => Ok(Val::Optional(None)),
        Val::List(list) => match list.get(index(list.len())) {
            Some(item) => item.map(Val::some),
            None => Ok(Val::Optional(None)),
        },
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

fn unwrap<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let Val::List(list) = &args[0] else { return Err(NO_SUCH_OVERLOAD) };
    let mut values = Vec::new();
    for item in list.iter() {
        match item? {
            Val::Optional(Some(value)) => values.push((*value).clone()),
            Val::Optional(None) => {}
            other => return fail(format!("value {} is not optional", show(&other))),
        }
    }
    Ok(Val::list(values))
}

fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null => true,
        Val::Bool(value) => !value,
        Val::Int(int) => *int == 0,
        Val::Uint(uint) => *uint == 0,
        Val::Double(double) => *double == 0.0,
        Val::String(text) => text.as_str().is_empty(),
        Val::Bytes(bytes) => bytes.is_empty(),
        Val::Duration(duration) => duration.0 == 0,
        Val::Timestamp(time) => time.is_zero(),
        // Lists and maps of the object have no zero, only those an expression makes.
        Val::List(list @ (List::Own(_) | List::Concat(_))) => list.is_empty(),
        Val::Map(map @ Map::Own(_)) => map.is_empty(),
        _ => false,
    }
}
