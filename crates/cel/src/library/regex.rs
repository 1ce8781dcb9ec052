//! `find` and `findAll`.

use super::list_of;
use crate::functions::Functions;
use crate::regex::Regex;
use crate::types::Type;
use crate::value::{EvalResult, NO_SUCH_OVERLOAD, Val, fail};

pub(super) fn declare(f: &mut Functions) {
    use Type::{Int, String};
    f.member("find", "string_find_string", &[String, String], String, |args| dynamic("find", args));
    let list = list_of(String);
    f.member("findAll", "string_find_all_string", &[String, String], list.clone(), |args| {
        dynamic("findAll", args)
    });
    f.member("findAll", "string_find_all_string_int", &[String, String, Int], list, |args| {
        dynamic("findAll", args)
    });
}

fn dynamic<'a>(function: &str, args: &[Val<'a>]) -> EvalResult<'a> {
    let Some(Val::String(pattern)) = args.get(1) else { return Err(NO_SUCH_OVERLOAD) };
    match Regex::new(pattern.as_str()) {
        Ok(regex) => with_pattern(function, &regex, args),
        Err(message) => fail(format!("Illegal regex: {message}")),
    }
}

/// `matches`, `find` or `findAll` with a pattern that is compiled already.
pub(crate) fn with_pattern<'a>(function: &str, regex: &Regex, args: &[Val<'a>]) -> EvalResult<'a> {
    let Some(Val::String(text)) = args.first() else { return Err(NO_SUCH_OVERLOAD) };
    let text = text.as_str();
    match function {
        "matches" => Ok(Val::Bool(regex.is_match(text))),
        "find" => Ok(Val::text(regex.find(text).unwrap_or_default())),
        _ => {
            let limit = match args.get(2) {
                None => None,
                Some(Val::Int(limit)) => usize::try_from(*limit).ok(),
                Some(_) => return Err(NO_SUCH_OVERLOAD),
            };
            Ok(Val::list(regex.find_all(text, limit).into_iter().map(Val::text).collect()))
        }
    }
}
