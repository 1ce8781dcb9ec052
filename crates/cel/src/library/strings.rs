//! cel-go's functions on strings (version 2). Positions count characters.

use super::standard::text;
use super::{format_string, list_of};
use crate::functions::Functions;
use crate::go_text::show;
use crate::types::Type;
use crate::value::{EvalError, EvalResult, NO_SUCH_OVERLOAD, TEXT_BYTES_MAX, Val, fail};

pub(super) fn declare(f: &mut Functions) {
    use Type::{Int, String};
    let s = String;
    f.member("charAt", "string_char_at_int", &[s.clone(), Int], s.clone(), char_at);
    let (two, two_int) = ([s.clone(), s.clone()], [s.clone(), s.clone(), Int]);
    f.member("indexOf", "string_index_of_string", &two, Int, index_of);
    f.member("indexOf", "string_index_of_string_int", &two_int, Int, index_of);
    f.member("lastIndexOf", "string_last_index_of_string", &two, Int, last_index_of);
    f.member("lastIndexOf", "string_last_index_of_string_int", &two_int, Int, last_index_of);
    f.member("lowerAscii", "string_lower_ascii", std::slice::from_ref(&s), s.clone(), |args| {
        Ok(Val::text(text(args)?.to_ascii_lowercase()))
    });
    let three = [s.clone(), s.clone(), s.clone()];
    let three_int = [s.clone(), s.clone(), s.clone(), Int];
    f.member("replace", "string_replace_string_string", &three, s.clone(), replace);
    f.member("replace", "string_replace_string_string_int", &three_int, s.clone(), replace);
    let list = list_of(String);
    f.member("split", "string_split_string", &two, list.clone(), split);
    f.member("split", "string_split_string_int", &two_int, list.clone(), split);
    f.member("substring", "string_substring_int", &[s.clone(), Int], s.clone(), substring);
    let range = [s.clone(), Int, Int];
    f.member("substring", "string_substring_int_int", &range, s.clone(), substring);
    f.member("trim", "string_trim", std::slice::from_ref(&s), s.clone(), |args| {
        Ok(Val::text(text(args)?.trim()))
    });
    f.member("upperAscii", "string_upper_ascii", std::slice::from_ref(&s), s.clone(), |args| {
        Ok(Val::text(text(args)?.to_ascii_uppercase()))
    });
    let format = [s.clone(), list_of(Type::Dyn)];
    f.member("format", "string_format", &format, s.clone(), format_string::format);
    f.global("strings.quote", "strings_quote", std::slice::from_ref(&s), s.clone(), quote);
    f.member("join", "list_join", std::slice::from_ref(&list), s.clone(), join);
    f.member("join", "list_join_string", &[list, s.clone()], s, join);
}

/// The n-th argument, declared as a string.
fn str_at<'v>(args: &'v [Val<'_>], at: usize) -> Result<&'v str, EvalError> {
    args.get(at).and_then(Val::as_str).ok_or(NO_SUCH_OVERLOAD)
}

/// The n-th argument, declared as an int, if there is one.
fn int_at(args: &[Val<'_>], at: usize) -> Result<Option<i64>, EvalError> {
    match args.get(at) {
        None => Ok(None),
        Some(Val::Int(int)) => Ok(Some(*int)),
        Some(_) => Err(NO_SUCH_OVERLOAD),
    }
}

fn out_of_range<'a>(index: i64) -> EvalResult<'a> {
    fail(format!("index out of range: {index}"))
}

fn char_at<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let (text, index) = (text(args)?, int_at(args, 1)?.unwrap_or_default());
    let count = text.chars().count() as i64;
    if index < 0 || index > count {
        return out_of_range(index);
    }
    Ok(Val::text(text.chars().nth(index as usize).map(String::from).unwrap_or_default()))
}

fn index_of<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let (text, part) = (text(args)?, str_at(args, 1)?);
    let offset = int_at(args, 2)?.unwrap_or(0);
    if part.is_empty() {
        return Ok(Val::Int(offset));
    }
    if offset < 0 {
        return out_of_range(offset);
    }
    let Some((begin, _)) = text.char_indices().nth(offset as usize) else {
        return Ok(Val::Int(-1));
    };
    Ok(Val::Int(match text[begin..].find(part) {
        Some(at) => offset + text[begin..begin + at].chars().count() as i64,
        None => -1,
    }))
}

fn last_index_of<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let (text, part) = (text(args)?, str_at(args, 1)?);
    let count = text.chars().count() as i64;
    let offset = match int_at(args, 2)? {
        Some(offset) => offset,
        None if part.is_empty() => return Ok(Val::Int(count)),
        None if text.len() < part.len() => return Ok(Val::Int(-1)),
        None => count - 1,
    };
    if part.is_empty() {
        return Ok(Val::Int(offset));
    }
    if offset < 0 {
        return out_of_range(offset);
    }
    if offset >= count {
        return Ok(Val::Int(-1));
    }
    // The match may begin at the offset at the latest.
    let begin = text.char_indices().nth(offset as usize).map_or(text.len(), |(at, _)| at);
    let end = (begin + part.len()).min(text.len());
    let end = (end..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
    let found = text[..end].rmatch_indices(part).find(|(at, _)| *at <= begin);
    let overlapping = || {
        // `rmatch_indices` skips overlapping matches.
        (0..=begin)
            .rev()
            .filter(|at| text.is_char_boundary(*at))
            .find(|at| text[*at..].starts_with(part))
    };
    let at = match found {
        Some((at, _)) if at == begin => Some(at),
        _ => overlapping(),
    };
    Ok(Val::Int(at.map_or(-1, |at| text[..at].chars().count() as i64)))
}

fn replace<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let (text, old, new) = (text(args)?, str_at(args, 1)?, str_at(args, 2)?);
    let places = if old.is_empty() { text.len() + 1 } else { text.len() / old.len() };
    if places.saturating_mul(new.len()) > TEXT_BYTES_MAX {
        // It may be fewer places, but they have to be counted then.
        let places = text.matches(old).count();
        if places.saturating_mul(new.len()) > TEXT_BYTES_MAX {
            return Err(EvalError::CostLimit);
        }
    }
    Ok(Val::text(match int_at(args, 3)? {
        Some(limit) if limit >= 0 => text.replacen(old, new, limit as usize),
        _ => text.replace(old, new),
    }))
}

fn split<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let (text, separator) = (text(args)?, str_at(args, 1)?);
    let limit = int_at(args, 2)?.unwrap_or(-1);
    let limit = match limit {
        0 => return Ok(Val::list(Vec::new())),
        limit if limit < 0 => usize::MAX,
        limit => limit as usize,
    };
    let parts: Vec<Val<'a>> = if separator.is_empty() {
        // One part per character; what is over the limit stays together.
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if parts.len() + 1 == limit {
                parts.push(Val::text(rest));
                break;
            }
            parts.push(Val::text(&rest[..c.len_utf8()]));
            rest = &rest[c.len_utf8()..];
        }
        parts
    } else {
        text.splitn(limit, separator).map(Val::text).collect()
    };
    Ok(Val::list(parts))
}

fn substring<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let text = text(args)?;
    let count = text.chars().count() as i64;
    let (start, end) = (int_at(args, 1)?.unwrap_or_default(), int_at(args, 2)?);
    if let Some(end) = end
        && start > end
    {
        return fail(format!("invalid substring range. start: {start}, end: {end}"));
    }
    for index in [start, end.unwrap_or(count)] {
        if index < 0 || index > count {
            return out_of_range(index);
        }
    }
    let take = (end.unwrap_or(count) - start) as usize;
    Ok(Val::text(text.chars().skip(start as usize).take(take).collect::<String>()))
}

fn quote<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let text = text(args)?;
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    Ok(Val::text(quoted))
}

fn join<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let Val::List(list) = &args[0] else { return Err(NO_SUCH_OVERLOAD) };
    let separator = args.get(1).and_then(Val::as_str).unwrap_or_default();
    let mut joined = String::new();
    for (at, item) in list.iter().enumerate() {
        if joined.len() > TEXT_BYTES_MAX {
            return Err(EvalError::CostLimit);
        }
        if at > 0 {
            joined.push_str(separator);
        }
        match item? {
            Val::String(text) => joined.push_str(text.as_str()),
            other => return fail(format!("join: invalid input: {}", show(&other))),
        }
    }
    Ok(Val::text(joined))
}
