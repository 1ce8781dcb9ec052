//! `'%s has %d'.format([a, b])`, and the check of a constant format when it is compiled.

use meta::field::quote;

use super::standard::to_string;
use crate::types::Type;
use crate::value::{EvalResult, NO_SUCH_OVERLOAD, Val, fail};

/// The argument of a clause: a value, or only its type when compiling.
pub(crate) trait FormatArgument {
    const RUNNING: bool;

    /// The text of a clause, or an error message.
    fn fill(&self, clause: Clause) -> Result<String, String>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clause {
    String,
    Decimal,
    Fixed(usize),
    Scientific(usize),
    Binary,
    Hex { upper: bool },
    Octal,
}

const PRECISION: usize = 6;

pub(super) fn format<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let [Val::String(format), Val::List(list)] = args else { return Err(NO_SUCH_OVERLOAD) };
    let values: Vec<Val<'a>> = list.iter().collect::<Result<_, _>>()?;
    match fill(format.as_str(), &values) {
        Ok((text, _)) => Ok(Val::text(text)),
        Err((message, _)) => fail(message),
    }
}

/// Checks a constant format with arguments of known types. An error comes with the position of
/// the argument it is about, if it is about one.
pub(crate) fn check_format<T: FormatArgument>(
    format: &str,
    args: &[T],
) -> Result<usize, (String, Option<usize>)> {
    fill(format, args).map(|(_, used)| used)
}

/// The text and the number of arguments it took.
fn fill<T: FormatArgument>(
    format: &str,
    args: &[T],
) -> Result<(String, usize), (String, Option<usize>)> {
    let mut text = String::with_capacity(format.len());
    let mut used = 0;
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            text.push('%');
            rest = after;
            continue;
        }
        if rest.is_empty() {
            // Compat: at run time the argument is evaluated first.
            if used >= args.len() && T::RUNNING {
                return Err((format!("index {used} out of range"), None));
            }
            return Err(("unexpected end of string".into(), None));
        }
        let Some(arg) = args.get(used) else {
            return Err((format!("index {used} out of range"), None));
        };
        let (clause, after) = clause(rest)
            .map_err(|message| (format!("could not parse formatting clause: {message}"), None))?;
        let filled = arg
            .fill(clause)
            .map_err(|message| (format!("error during formatting: {message}"), Some(used)))?;
        text.push_str(&filled);
        used += 1;
        rest = after;
    }
    text.push_str(rest);
    Ok((text, used))
}

/// The clause behind a `%`, and what follows it.
fn clause(text: &str) -> Result<(Clause, &str), String> {
    let mut rest = text;
    let mut precision = None;
    if let Some(after) = text.strip_prefix('.') {
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if digits == after.len() {
            return Err(
                "error while parsing precision: could not find end of precision specifier".into()
            );
        }
        let number = after[..digits].parse::<usize>().map_err(|_| {
            let digits = quote(&after[..digits]);
            format!(
                "error while parsing precision: error while converting precision to integer: \
                 strconv.Atoi: parsing {digits}: invalid syntax"
            )
        })?;
        precision = Some(number);
        rest = &after[digits..];
    }
    let letter = rest.chars().next().unwrap_or_default();
    let precision = precision.unwrap_or(PRECISION);
    let clause = match letter {
        's' => Clause::String,
        'd' => Clause::Decimal,
        'f' => Clause::Fixed(precision),
        'e' => Clause::Scientific(precision),
        'b' => Clause::Binary,
        'x' => Clause::Hex { upper: false },
        'X' => Clause::Hex { upper: true },
        'o' => Clause::Octal,
        // Compat: Go looks at a byte.
        _ => {
            let byte = char::from(rest.as_bytes()[0]);
            return Err(format!("unrecognized formatting clause \"{byte}\""));
        }
    };
    Ok((clause, &rest[letter.len_utf8()..]))
}

/// The widest number that is printed; Go has no bound, but more digits are of no use.
const PRECISION_MAX: usize = 1_000;

pub(crate) fn clause_error(clause: Clause, given: &str) -> String {
    let what = match clause {
        Clause::String => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, \
             types, durations, and timestamps"
        }
        Clause::Decimal => "decimal clause can only be used on integers",
        Clause::Fixed(_) => "fixed-point clause can only be used on doubles",
        Clause::Scientific(_) => "scientific clause can only be used on doubles",
        Clause::Binary => "only integers and bools can be formatted as binary",
        Clause::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
        Clause::Octal => "octal clause can only be used on integers",
    };
    format!("{what}, was given {given}")
}

impl FormatArgument for Val<'_> {
    const RUNNING: bool = true;

    fn fill(&self, clause: Clause) -> Result<String, String> {
        let wrong = || Err(clause_error(clause, self.type_of().name()));
        match (clause, self) {
            (Clause::String, value) => string(value),
            (Clause::Decimal, Val::Int(int)) => Ok(int.to_string()),
            (Clause::Decimal, Val::Uint(uint)) => Ok(uint.to_string()),
            (Clause::Fixed(_) | Clause::Scientific(_), value) => {
                let double = match value {
                    Val::Double(double) => *double,
                    Val::String(text) => match text.as_str() {
                        "NaN" => f64::NAN,
                        "Infinity" => f64::INFINITY,
                        "-Infinity" => f64::NEG_INFINITY,
                        _ => return wrong(),
                    },
                    _ => return wrong(),
                };
                Ok(number(clause, double))
            }
            (Clause::Binary, Val::Bool(value)) => Ok(u8::from(*value).to_string()),
            (Clause::Binary, Val::Int(int)) => Ok(signed(*int, |n| format!("{n:b}"))),
            (Clause::Binary, Val::Uint(uint)) => Ok(format!("{uint:b}")),
            (Clause::Octal, Val::Int(int)) => Ok(signed(*int, |n| format!("{n:o}"))),
            (Clause::Octal, Val::Uint(uint)) => Ok(format!("{uint:o}")),
            (Clause::Hex { upper }, value) => {
                let hex = match value {
                    Val::Int(int) => signed(*int, |n| format!("{n:x}")),
                    Val::Uint(uint) => format!("{uint:x}"),
                    Val::String(text) => {
                        text.as_str().bytes().map(|b| format!("{b:02x}")).collect()
                    }
                    Val::Bytes(bytes) => bytes.iter().map(|b| format!("{b:02x}")).collect(),
                    _ => return wrong(),
                };
                Ok(if upper { hex.to_uppercase() } else { hex })
            }
            _ => wrong(),
        }
    }
}

fn signed(int: i64, digits: impl Fn(u64) -> String) -> String {
    let sign = if int < 0 { "-" } else { "" };
    format!("{sign}{}", digits(int.unsigned_abs()))
}

fn number(clause: Clause, double: f64) -> String {
    if double.is_nan() {
        return "NaN".into();
    }
    if double.is_infinite() {
        return if double > 0.0 { "∞".into() } else { "-∞".into() };
    }
    match clause {
        Clause::Fixed(precision) => group(&format!("{double:.*}", precision.min(PRECISION_MAX))),
        Clause::Scientific(width) => {
            let text = format!("{double:.PRECISION$e}");
            let (digits, exponent) = text.split_once('e').expect("written with an exponent");
            let exponent: i32 = exponent.parse().expect("written as a number");
            let sign = if exponent < 0 { "⁻" } else { "" };
            // As English texts write it: `1.5×10⁰³`.
            let power: String = format!("{:02}", exponent.abs())
                .chars()
                .map(|c| SUPERSCRIPTS[c.to_digit(10).unwrap_or_default() as usize])
                .collect();
            // Compat: what is given as precision is taken as the width.
            let width = width.min(PRECISION_MAX);
            format!("{:>width$}", format!("{digits}×10{sign}{power}"))
        }
        _ => String::new(),
    }
}

const SUPERSCRIPTS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

/// `1234567.5` as `1,234,567.5`.
fn group(number: &str) -> String {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number),
    };
    let (whole, fraction) = match digits.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (digits, String::new()),
    };
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

/// The `%s` of a value.
fn string(value: &Val<'_>) -> Result<String, String> {
    match value {
        Val::Null => Ok("null".into()),
        Val::String(text) => Ok(text.as_str().to_owned()),
        Val::Type(ty) => Ok(ty.name().to_owned()),
        Val::List(list) => {
            let mut items = Vec::new();
            for item in list.iter() {
                items.push(nested(&item.map_err(|error| error.to_string())?)?);
            }
            Ok(format!("[{}]", items.join(", ")))
        }
        Val::Map(map) => {
            let mut entries = Vec::new();
            for key in map.keys() {
                let value = map.find(&key).map_err(|error| error.to_string())?.unwrap_or_default();
                entries.push((nested(&key)?, nested(&value)?));
            }
            entries.sort();
            let entries: Vec<String> =
                entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            Ok(format!("{{{}}}", entries.join(", ")))
        }
        Val::Kubernetes(_) | Val::Optional(_) | Val::Preserved(_) => {
            Err(clause_error(Clause::String, value.type_of().name()))
        }
        other => match to_string(std::slice::from_ref(other)) {
            Ok(Val::String(text)) => Ok(text.as_str().to_owned()),
            Ok(_) => Err("could not convert argument to string".into()),
            Err(error) => {
                Err(format!("could not convert argument {} to string", quote(&error.to_string())))
            }
        },
    }
}

/// An element of a list or a map, written as in an expression.
fn nested(value: &Val<'_>) -> Result<String, String> {
    let plain = match value {
        Val::Double(double) => format!("{double:.PRECISION$}"),
        Val::Kubernetes(_) | Val::Optional(_) | Val::Preserved(_) => {
            return Err(format!("no formatting function for {}", value.type_of().name()));
        }
        other => string(other)?,
    };
    Ok(match value {
        Val::String(_) => quote(&plain),
        Val::Bytes(_) => format!("b{}", quote(&plain)),
        Val::Duration(_) => format!("duration({})", quote(&plain)),
        Val::Timestamp(_) => format!("timestamp({})", quote(&plain)),
        Val::Double(double) if !double.is_finite() => quote(&plain),
        _ => plain,
    })
}

impl FormatArgument for Type {
    const RUNNING: bool = false;

    fn fill(&self, clause: Clause) -> Result<String, String> {
        let fits = match clause {
            Clause::String => !matches!(
                self,
                Type::Object(_) | Type::Opaque(_) | Type::Optional(_) | Type::Error | Type::Any
            ),
            Clause::Decimal | Clause::Octal => matches!(self, Type::Int | Type::Uint),
            Clause::Fixed(_) | Clause::Scientific(_) => matches!(self, Type::Double | Type::String),
            Clause::Binary => matches!(self, Type::Int | Type::Uint | Type::Bool),
            Clause::Hex { .. } => {
                matches!(self, Type::Int | Type::Uint | Type::String | Type::Bytes)
            }
        };
        if fits || matches!(self, Type::Dyn) {
            return Ok(String::new());
        }
        Err(clause_error(clause, self.name()))
    }
}
