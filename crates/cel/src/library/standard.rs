//! CEL's own functions: operators, sizes, conversions, tests of strings.

use std::sync::Arc;

use meta::Str;

use super::{A, B, list_of};
use crate::ast::op;
use crate::functions::Functions;
use crate::go_text::shortest;
use crate::ops;
use crate::regex::Regex;
use crate::time::{Duration, Timestamp};
use crate::types::Type;
use crate::value::{EvalError, EvalResult, NO_SUCH_OVERLOAD, Val, fail};

pub(super) fn declare(f: &mut Functions) {
    logic(f);
    arithmetic(f);
    comparison(f);
    containers(f);
    conversions(f);
    strings(f);
}

/// The planner knows these; they are never called.
fn logic(f: &mut Functions) {
    use Type::Bool;
    f.signature(op::CONDITIONAL, "conditional", false, &[Bool, A, A], A);
    f.signature(op::AND, "logical_and", false, &[Bool, Bool], Bool);
    f.signature(op::OR, "logical_or", false, &[Bool, Bool], Bool);
    f.signature(op::NOT, "logical_not", false, &[Bool], Bool);
    f.signature(op::NOT_STRICTLY_FALSE, "not_strictly_false", false, &[Bool], Bool);
    f.signature(op::EQUALS, "equals", false, &[A, A], Bool);
    f.signature(op::NOT_EQUALS, "not_equals", false, &[A, A], Bool);
}

fn arithmetic(f: &mut Functions) {
    use Type::{Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let list = list_of(A);
    let mut add = |id, args: [Type; 2], result| f.signature(op::ADD, id, false, &args, result);
    add("add_bytes", [Bytes, Bytes], Bytes);
    add("add_double", [Double, Double], Double);
    add("add_duration_duration", [Duration, Duration], Duration);
    add("add_duration_timestamp", [Duration, Timestamp], Timestamp);
    add("add_timestamp_duration", [Timestamp, Duration], Timestamp);
    add("add_int64", [Int, Int], Int);
    add("add_list", [list.clone(), list.clone()], list);
    add("add_string", [String, String], String);
    add("add_uint64", [Uint, Uint], Uint);
    for (name, verb) in [(op::DIVIDE, "divide"), (op::MULTIPLY, "multiply")] {
        f.signature(name, id(verb, "double"), false, &[Double, Double], Double);
        f.signature(name, id(verb, "int64"), false, &[Int, Int], Int);
        f.signature(name, id(verb, "uint64"), false, &[Uint, Uint], Uint);
    }
    f.signature(op::MODULO, "modulo_int64", false, &[Int, Int], Int);
    f.signature(op::MODULO, "modulo_uint64", false, &[Uint, Uint], Uint);
    f.signature(op::NEGATE, "negate_double", false, &[Double], Double);
    f.signature(op::NEGATE, "negate_int64", false, &[Int], Int);
    f.single(op::NEGATE, |args| ops::negate(&args[0]));
    let mut subtract =
        |id, args: [Type; 2], result| f.signature(op::SUBTRACT, id, false, &args, result);
    subtract("subtract_double", [Double, Double], Double);
    subtract("subtract_duration_duration", [Duration, Duration], Duration);
    subtract("subtract_int64", [Int, Int], Int);
    subtract("subtract_timestamp_duration", [Timestamp, Duration], Timestamp);
    subtract("subtract_timestamp_timestamp", [Timestamp, Timestamp], Duration);
    subtract("subtract_uint64", [Uint, Uint], Uint);
}

/// An id made of its parts. Declarations are made once, so nothing is leaked twice.
pub(super) fn id(verb: &str, types: &str) -> &'static str {
    format!("{verb}_{types}").leak()
}

fn comparison(f: &mut Functions) {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let pairs = [
        ("bool", [Bool, Bool]),
        ("int64", [Int, Int]),
        ("int64_double", [Int, Double]),
        ("int64_uint64", [Int, Uint]),
        ("uint64", [Uint, Uint]),
        ("uint64_double", [Uint, Double]),
        ("uint64_int64", [Uint, Int]),
        ("double", [Double, Double]),
        ("double_int64", [Double, Int]),
        ("double_uint64", [Double, Uint]),
        ("string", [String, String]),
        ("bytes", [Bytes, Bytes]),
        ("timestamp", [Timestamp, Timestamp]),
        ("duration", [Duration, Duration]),
    ];
    let verbs = [
        (op::LESS, "less"),
        (op::LESS_EQUALS, "less_equals"),
        (op::GREATER, "greater"),
        (op::GREATER_EQUALS, "greater_equals"),
    ];
    for (name, verb) in verbs {
        for (types, args) in &pairs {
            f.signature(name, id(verb, types), false, args, Bool);
        }
    }
}

fn containers(f: &mut Functions) {
    use Type::{Bool, Bytes, Int, String};
    let (list, map) = (list_of(A), Type::map(A, B));
    f.signature(op::INDEX, "index_list", false, &[list.clone(), Int], A);
    f.signature(op::INDEX, "index_map", false, &[map.clone(), A], B);
    f.signature(op::IN, "in_list", false, &[A, list.clone()], Bool);
    f.signature(op::IN, "in_map", false, &[A, map.clone()], Bool);
    let sized = [
        ("size_bytes", "bytes_size", Bytes),
        ("size_list", "list_size", list),
        ("size_map", "map_size", map),
        ("size_string", "string_size", String),
    ];
    for (global, member, ty) in sized {
        f.signature("size", global, false, std::slice::from_ref(&ty), Int);
        f.signature("size", member, true, &[ty], Int);
    }
    f.single("size", |args| match &args[0] {
        Val::Kubernetes(_) => ops::no_overload("size"),
        Val::Duration(_) | Val::Timestamp(_) => Err(NO_SUCH_OVERLOAD),
        value => match value.size() {
            Some(size) => Ok(Val::Int(size as i64)),
            None => ops::no_overload("size"),
        },
    });
}

fn conversions(f: &mut Functions) {
    use Type::{Bool, Bytes, Double, Int, String, Uint};
    let (duration, timestamp) = (Type::Duration, Type::Timestamp);
    f.signature("type", "type", false, &[A], Type::Type(Some(Arc::new(A))));
    f.single("type", |args| Ok(Val::Type(Arc::new(args[0].type_of()))));
    f.signature("dyn", "to_dyn", false, &[A], Type::Dyn);
    f.single("dyn", |args| Ok(args[0].clone()));

    f.global("bool", "bool_to_bool", &[Bool], Bool, same);
    f.global("bool", "string_to_bool", &[String], Bool, to_bool);
    f.global("bytes", "bytes_to_bytes", &[Bytes], Bytes, same);
    f.global("bytes", "string_to_bytes", &[String], Bytes, |args| {
        Ok(Val::Bytes(text(args)?.as_bytes().into()))
    });
    f.global("double", "double_to_double", &[Double], Double, same);
    f.global("double", "int64_to_double", &[Int], Double, to_double);
    f.global("double", "string_to_double", &[String], Double, to_double);
    f.global("double", "uint64_to_double", &[Uint], Double, to_double);
    let durations = [duration.clone()];
    f.global("duration", "duration_to_duration", &durations, duration.clone(), same);
    f.global("duration", "int64_to_duration", &[Int], duration.clone(), to_duration);
    f.global("duration", "string_to_duration", &[String], duration.clone(), to_duration);
    f.global("int", "int64_to_int64", &[Int], Int, same);
    f.global("int", "double_to_int64", &[Double], Int, to_int);
    f.global("int", "duration_to_int64", &durations, Int, to_int);
    f.global("int", "string_to_int64", &[String], Int, to_int);
    f.global("int", "timestamp_to_int64", std::slice::from_ref(&timestamp), Int, to_int);
    f.global("int", "uint64_to_int64", &[Uint], Int, to_int);
    f.global("string", "string_to_string", &[String], String, same);
    f.global("string", "bool_to_string", &[Bool], String, to_string);
    f.global("string", "bytes_to_string", &[Bytes], String, to_string);
    f.global("string", "double_to_string", &[Double], String, to_string);
    f.global("string", "duration_to_string", &durations, String, to_string);
    f.global("string", "int64_to_string", &[Int], String, to_string);
    f.global("string", "timestamp_to_string", std::slice::from_ref(&timestamp), String, to_string);
    f.global("string", "uint64_to_string", &[Uint], String, to_string);
    let timestamps = [timestamp.clone()];
    f.global("timestamp", "timestamp_to_timestamp", &timestamps, timestamp.clone(), same);
    f.global("timestamp", "int64_to_timestamp", &[Int], timestamp.clone(), to_timestamp);
    f.global("timestamp", "string_to_timestamp", &[String], timestamp, to_timestamp);
    f.global("uint", "uint64_to_uint64", &[Uint], Uint, same);
    f.global("uint", "double_to_uint64", &[Double], Uint, to_uint);
    f.global("uint", "int64_to_uint64", &[Int], Uint, to_uint);
    f.global("uint", "string_to_uint64", &[String], Uint, to_uint);
}

fn strings(f: &mut Functions) {
    use Type::{Bool, String};
    let two = [String, String];
    f.signature("contains", "contains_string", true, &two, Bool);
    f.single("contains", |args| texts(args, |text, part| text.contains(part)));
    f.signature("endsWith", "ends_with_string", true, &two, Bool);
    f.single("endsWith", |args| texts(args, |text, end| text.ends_with(end)));
    f.signature("startsWith", "starts_with_string", true, &two, Bool);
    f.single("startsWith", |args| texts(args, |text, start| text.starts_with(start)));
    f.signature("matches", "matches", false, &two, Bool);
    f.signature("matches", "matches_string", true, &two, Bool);
    f.single("matches", |args| match args {
        [Val::String(text), Val::String(pattern)] => match Regex::new(pattern.as_str()) {
            Ok(regex) => Ok(Val::Bool(regex.is_match(text.as_str()))),
            Err(message) => fail(message),
        },
        [Val::String(_) | Val::Duration(_) | Val::Timestamp(_), _] => Err(NO_SUCH_OVERLOAD),
        _ => ops::no_overload("matches"),
    });
}

fn texts<'a>(args: &[Val<'a>], test: fn(&str, &str) -> bool) -> EvalResult<'a> {
    match args {
        [Val::String(text), Val::String(part)] => Ok(Val::Bool(test(text.as_str(), part.as_str()))),
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

/// The first argument, where it is declared as a string.
pub(super) fn text<'v>(args: &'v [Val<'_>]) -> Result<&'v str, EvalError> {
    args.first().and_then(Val::as_str).ok_or(NO_SUCH_OVERLOAD)
}

fn same<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    Ok(args[0].clone())
}

fn conversion_error<'a>(value: &Val<'_>, to: &Type) -> EvalResult<'a> {
    let from = value.type_of();
    fail(format!("type conversion error from '{}' to '{}'", from.name(), to.name()))
}

fn to_bool<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match text(args)? {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Val::Bool(true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Val::Bool(false)),
        _ => conversion_error(&args[0], &Type::Bool),
    }
}

fn to_double<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match &args[0] {
        Val::Int(int) => Ok(Val::Double(*int as f64)),
        Val::Uint(uint) => Ok(Val::Double(*uint as f64)),
        Val::String(text) => match parse_double(text.as_str()) {
            Some(double) => Ok(Val::Double(double)),
            None => conversion_error(&args[0], &Type::Double),
        },
        other => conversion_error(other, &Type::Double),
    }
}

/// Go's `strconv.ParseFloat`, but for hexadecimal floats.
fn parse_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let special = ["inf", "infinity", "nan"].iter().any(|s| unsigned.eq_ignore_ascii_case(s));
    if special && unsigned.eq_ignore_ascii_case("nan") && unsigned.len() != text.len() {
        return None;
    }
    let double: f64 = text.parse().ok()?;
    // Beyond the range Go reports an error.
    (special || double.is_finite()).then_some(double)
}

fn to_duration<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match args[0].as_str().and_then(Duration::parse) {
        Some(duration) => Ok(Val::Duration(duration)),
        None => conversion_error(&args[0], &Type::Duration),
    }
}

const INT_OVERFLOW: EvalError = EvalError::Failed(Str::new_static("integer overflow"));
const UINT_OVERFLOW: EvalError = EvalError::Failed(Str::new_static("unsigned integer overflow"));

fn to_int<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match &args[0] {
        Val::Uint(uint) => i64::try_from(*uint).map(Val::Int).map_err(|_| INT_OVERFLOW),
        Val::Double(double) => {
            let range = i64::MIN as f64..i64::MAX as f64;
            if range.contains(double) && *double > range.start {
                Ok(Val::Int(*double as i64))
            } else {
                Err(INT_OVERFLOW)
            }
        }
        Val::Duration(duration) => Ok(Val::Int(duration.0)),
        Val::Timestamp(time) => Ok(Val::Int(time.seconds)),
        Val::String(text) => match text.as_str().parse() {
            Ok(int) => Ok(Val::Int(int)),
            Err(_) => conversion_error(&args[0], &Type::Int),
        },
        other => conversion_error(other, &Type::Int),
    }
}

fn to_uint<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match &args[0] {
        Val::Int(int) => u64::try_from(*int).map(Val::Uint).map_err(|_| UINT_OVERFLOW),
        Val::Double(double) => {
            if *double >= 0.0 && *double < 18_446_744_073_709_551_616.0 {
                Ok(Val::Uint(*double as u64))
            } else {
                Err(UINT_OVERFLOW)
            }
        }
        Val::String(text) if !text.as_str().starts_with('+') => match text.as_str().parse() {
            Ok(uint) => Ok(Val::Uint(uint)),
            Err(_) => conversion_error(&args[0], &Type::Uint),
        },
        other => conversion_error(other, &Type::Uint),
    }
}

pub(super) fn to_string<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    Ok(match &args[0] {
        Val::Bool(value) => Val::text(value.to_string()),
        Val::Int(int) => Val::text(int.to_string()),
        Val::Uint(uint) => Val::text(uint.to_string()),
        Val::Double(double) => Val::text(shortest(*double)),
        Val::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Val::text(text),
            Err(_) => return fail("invalid UTF-8 in bytes, cannot convert to string"),
        },
        Val::Duration(duration) => Val::text(duration.text()),
        Val::Timestamp(time) => Val::text(time.text(time.offset)),
        other => return conversion_error(other, &Type::String),
    })
}

fn to_timestamp<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let time = match &args[0] {
        Val::Int(seconds) => Timestamp::new(*seconds, 0, 0),
        Val::String(text) => match Timestamp::parse(text.as_str()) {
            Some(time) => time.0,
            None => return conversion_error(&args[0], &Type::Timestamp),
        },
        other => return conversion_error(other, &Type::Timestamp),
    };
    match time {
        Some(time) => Ok(Val::Timestamp(time)),
        None => fail("timestamp overflow"),
    }
}
