//! Numbers, durations and lists as Go parses them, with Go's error texts, as users of kube-apiserver
//! expect them.

use std::fmt::Write;

/// `strconv.ParseBool`.
pub(crate) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(syntax_error("ParseBool", text)),
    }
}

/// `strconv.ParseInt(text, 0, bits)`: decimal, or with Go's prefixes (`0x1f`, `0b1`, `0o7`, `07`).
pub(super) fn parse_int(text: &str, bits: u32) -> Result<i64, String> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let limit = 1u64 << (bits - 1);
    match magnitude(digits) {
        Err(NumberError::Syntax) => Err(syntax_error("ParseInt", text)),
        Ok(n) if negative && n <= limit => Ok(0i64.wrapping_sub_unsigned(n)),
        Ok(n) if !negative && n < limit => Ok(n as i64),
        _ => Err(range_error("ParseInt", text)),
    }
}

/// `strconv.ParseUint(text, 0, 64)`.
pub(super) fn parse_uint(text: &str) -> Result<u64, String> {
    magnitude(text).map_err(|flaw| match flaw {
        NumberError::Syntax => syntax_error("ParseUint", text),
        NumberError::Range => range_error("ParseUint", text),
    })
}

/// `strconv.ParseUint(text, 10, 31)`: log verbosities, which have to fit into an int32.
pub(super) fn parse_level(text: &str) -> Result<u32, String> {
    match digits(text, 10) {
        Ok(n) if i32::try_from(n).is_ok() => Ok(n as u32),
        Err(NumberError::Syntax) => Err(syntax_error("ParseUint", text)),
        _ => Err(range_error("ParseUint", text)),
    }
}

/// `strconv.Atoi`: decimal only.
pub(super) fn parse_decimal(text: &str) -> Result<i64, String> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    match digits(unsigned, 10) {
        Ok(n) if i64::try_from(n).is_ok() => {
            Ok(if text.starts_with('-') { -(n as i64) } else { n as i64 })
        }
        Err(NumberError::Syntax) => Err(syntax_error("Atoi", text)),
        _ => Err(range_error("Atoi", text)),
    }
}

/// `strconv.ParseFloat`.
pub(super) fn parse_float(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| syntax_error("ParseFloat", text))
}

enum NumberError {
    Syntax,
    Range,
}

/// An unsigned number in any of Go's bases; `_` is allowed between digits.
fn magnitude(text: &str) -> Result<u64, NumberError> {
    let lower = text.to_ascii_lowercase();
    // A prefix must be followed by a digit.
    let prefixed = |prefix| lower.strip_prefix(prefix).filter(|rest| !rest.is_empty());
    let (base, rest) = if let Some(rest) = prefixed("0b") {
        (2, rest)
    } else if let Some(rest) = prefixed("0o") {
        (8, rest)
    } else if let Some(rest) = prefixed("0x") {
        (16, rest)
    } else if let Some(rest) = prefixed("0") {
        (8, rest)
    } else {
        (10, lower.as_str())
    };
    // After a prefix `_` is allowed before the first digit (`0x_ff`).
    let misplaced =
        (base == 10 && rest.starts_with('_')) || rest.ends_with('_') || rest.contains("__");
    if misplaced { Err(NumberError::Syntax) } else { digits(&rest.replace('_', ""), base) }
}

fn digits(text: &str, base: u32) -> Result<u64, NumberError> {
    if text.is_empty() || !text.chars().all(|c| c.is_digit(base)) {
        return Err(NumberError::Syntax);
    }
    u64::from_str_radix(text, base).map_err(|_| NumberError::Range)
}

fn syntax_error(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {}: invalid syntax", quote(text))
}

fn range_error(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {}: value out of range", quote(text))
}

/// `time.ParseDuration`, in nanoseconds: a sign, then numbers with units as in `1h30m` or `1.5s`.
pub(super) fn parse_duration(text: &str) -> Result<i64, String> {
    let error = |what: &str| format!("time: {what} {}", quote(text));
    let (sign, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (-1, &text[1..]),
        Some(b'+') => (1, &text[1..]),
        _ => (1, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(error("invalid duration"));
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (whole, after) = split_at_not(rest, |c| c.is_ascii_digit());
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => split_at_not(after, |c| c.is_ascii_digit()),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(error("invalid duration"));
        }
        let (unit, after) = split_at_not(after, |c| c != '.' && !c.is_ascii_digit());
        rest = after;
        let nanos: i128 = match unit {
            "" => return Err(error("missing unit in duration")),
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(error(&format!("unknown unit {} in duration", quote(unit)))),
        };
        // Eighteen digits are beyond the precision of any unit and keep the arithmetic exact.
        let fraction = &fraction[..fraction.len().min(18)];
        let whole = if whole.is_empty() { Ok(0) } else { whole.parse::<u64>() };
        let whole = whole.map_err(|_| error("invalid duration"))?;
        total += i128::from(whole) * nanos;
        if !fraction.is_empty() {
            let parts = fraction.parse::<i128>().map_err(|_| error("invalid duration"))?;
            total += parts * nanos / 10i128.pow(fraction.len() as u32);
        }
        // Checked each time, so that no number of terms can overflow the sum.
        if total > i128::from(i64::MAX) + 1 {
            return Err(error("invalid duration"));
        }
    }
    i64::try_from(total * sign).map_err(|_| error("invalid duration"))
}

fn split_at_not(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

/// `time.Duration.String`: `1h0m0s`, `1.5s`, `500ms`, `0s`.
pub(crate) fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let n = nanos.unsigned_abs();
    let decimal = |value: u64, unit: u64, digits: usize| {
        let text = format!("{}.{:0digits$}", value / unit, value % unit);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match n {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{n}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", decimal(n, 1_000, 3)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(n, 1_000_000, 6)),
        _ => {
            let minutes = n / 60_000_000_000;
            let seconds = decimal(n % 60_000_000_000, 1_000_000_000, 9);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// The first record of a CSV text, as `encoding/csv` reads it: a quoted field may hold commas.
pub(super) fn read_csv(text: &str) -> Result<Vec<String>, String> {
    let error = |column: usize, what: &str| {
        Err(format!("parse error on line 1, column {}: {what}", column + 1))
    };
    let mut fields = Vec::new();
    let mut at = 0;
    loop {
        if !text[at..].starts_with('"') {
            // Compat: only the first line counts, as pflag reads one record.
            let end = text[at..].find([',', '\n']).map_or(text.len(), |i| at + i);
            let field = &text[at..end];
            if let Some(i) = field.find('"') {
                return error(at + i, "bare \" in non-quoted-field");
            }
            fields.push(field.to_owned());
            if text[end..].starts_with(',') {
                at = end + 1;
                continue;
            }
            return Ok(fields);
        }
        at += 1;
        let mut field = String::new();
        loop {
            let Some(i) = text[at..].find('"') else {
                return error(text.len(), "extraneous or missing \" in quoted-field");
            };
            field.push_str(&text[at..at + i]);
            at += i + 1;
            match text[at..].chars().next() {
                Some('"') => {
                    field.push('"');
                    at += 1;
                }
                Some(',') => break at += 1,
                None | Some('\n') => {
                    fields.push(field);
                    return Ok(fields);
                }
                Some(_) => return error(at - 1, "extraneous or missing \" in quoted-field"),
            }
        }
        fields.push(field);
    }
}

/// Fields as one CSV record, which quotes commas inside of items.
pub(super) fn write_csv<'a>(fields: impl IntoIterator<Item = &'a String>) -> String {
    let special = |c: char| matches!(c, '"' | ',' | '\n' | '\r');
    let quoted = fields.into_iter().map(|field| {
        if field.contains(special) || field.starts_with(char::is_whitespace) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field.clone()
        }
    });
    quoted.collect::<Vec<_>>().join(",")
}

/// A text in quotes, as `%q` prints it.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            // Control characters could otherwise rewrite the line on a terminal.
            c if c.is_ascii_control() => {
                let _ = write!(quoted, "\\x{:02x}", c as u32);
            }
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
