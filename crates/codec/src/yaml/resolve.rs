//! The type of a plain scalar: YAML 1.1 as go-yaml 2 resolves it.

/// The type and value of a scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Resolved {
    Null,
    Bool(bool),
    Int(i64),
    /// Too large for the above.
    Uint(u64),
    Float(f64),
    /// A text that looks like a time. It stays a text, but is quoted when it is printed.
    Timestamp,
    Text,
}

impl Resolved {
    /// The tag of its type.
    pub(super) fn tag(self) -> &'static str {
        match self {
            Self::Null => "!!null",
            Self::Bool(_) => "!!bool",
            Self::Int(_) | Self::Uint(_) => "!!int",
            Self::Float(_) => "!!float",
            Self::Timestamp => "!!timestamp",
            Self::Text => "!!str",
        }
    }
}

/// The value of a plain scalar without a tag.
pub(super) fn resolve(text: &str) -> Resolved {
    let Some(first) = text.bytes().next() else { return Resolved::Null };
    match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => word(text),
        b'.' => match word(text) {
            Resolved::Text => float(text),
            found => found,
        },
        b'+' | b'-' | b'0'..=b'9' => match word(text) {
            Resolved::Text if is_timestamp(text) => Resolved::Timestamp,
            Resolved::Text => number(&text.replace('_', "")),
            found => found,
        },
        _ => Resolved::Text,
    }
}

fn word(text: &str) -> Resolved {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Resolved::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Resolved::Bool(false)
        }
        "~" | "null" | "Null" | "NULL" => Resolved::Null,
        ".nan" | ".NaN" | ".NAN" => Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Resolved::Float(f64::NEG_INFINITY),
        _ => Resolved::Text,
    }
}

/// A number whose underscores are gone already.
fn number(text: &str) -> Resolved {
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        Some("0b" | "0B") => (2, &digits[2..]),
        Some("0o" | "0O") => (8, &digits[2..]),
        // A leading zero alone means octal.
        Some(start) if start.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    // `from_str_radix` would take a second sign.
    let magnitude = match digits.bytes().next() {
        Some(b'+' | b'-') | None => None,
        Some(_) => u64::from_str_radix(digits, radix).ok(),
    };
    match (magnitude, negative) {
        (Some(magnitude), false) => {
            i64::try_from(magnitude).map_or(Resolved::Uint(magnitude), Resolved::Int)
        }
        (Some(magnitude), true) if magnitude <= 1 << 63 => {
            Resolved::Int((magnitude as i64).wrapping_neg())
        }
        _ if looks_like_float(text) => float(text),
        _ => Resolved::Text,
    }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn looks_like_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty()) && exponent_fits
}

/// What overflows is no number but a text.
fn float(text: &str) -> Resolved {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Resolved::Float(number),
        _ => Resolved::Text,
    }
}

/// A date, or a date and a time: `2006-1-2`, `2006-1-2T15:4:5.9Z`, `2006-1-2 15:4:5`.
pub(super) fn is_timestamp(text: &str) -> bool {
    let Some((year, rest)) = text.split_once('-') else { return false };
    if year.len() != 4 || !year.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let Some((month, rest)) = rest.split_once('-') else { return false };
    let day_end = rest.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    let (day, time) = rest.split_at(day_end);
    let (Some(year), Some(month), Some(day)) =
        (year.parse::<u32>().ok(), two_digits(month), two_digits(day))
    else {
        return false;
    };
    if !is_date(year, month, day) {
        return false;
    }
    match time.bytes().next() {
        None => true,
        Some(b'T' | b't') => {
            let zone = time.rfind(['Z', '+', '-']);
            zone.is_some_and(|zone| is_clock(&time[1..zone]) && is_zone(&time[zone..]))
        }
        Some(b' ') => is_clock(&time[1..]),
        Some(_) => false,
    }
}

fn two_digits(text: &str) -> Option<u32> {
    let fits = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| fits)
}

/// Through the stricter reader, which knows the calendar.
fn is_date(year: u32, month: u32, day: u32) -> bool {
    meta::time::Time::parse(&format!("{year:04}-{month:02}-{day:02}T00:00:00Z")).is_ok()
}

/// `15:4:5.9`
fn is_clock(text: &str) -> bool {
    let (clock, fraction) = text.split_once(['.', ',']).unwrap_or((text, "0"));
    let parts: Vec<Option<u32>> = clock.split(':').map(two_digits).collect();
    let in_range = matches!(parts.as_slice(), [Some(0..24), Some(0..60), Some(0..60)]);
    in_range && !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

/// `Z` or `+01:00`
fn is_zone(text: &str) -> bool {
    let number = |text: &str| text.len() == 2 && two_digits(text).is_some_and(|n| n <= 60);
    match text.split_at_checked(1) {
        Some(("Z", "")) => true,
        Some(("+" | "-", rest)) => {
            rest.split_once(':').is_some_and(|(hours, minutes)| number(hours) && number(minutes))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_resolve_as_in_go_yaml() {
        use Resolved::{Bool, Float, Int, Null, Text, Timestamp, Uint};
        let cases = [
            ("", Null),
            ("~", Null),
            ("Null", Null),
            ("nULL", Text),
            ("y", Bool(true)),
            ("On", Bool(true)),
            ("oN", Text),
            ("NO", Bool(false)),
            ("off", Bool(false)),
            ("1", Int(1)),
            ("+1", Int(1)),
            ("-1", Int(-1)),
            ("--1", Text),
            ("1_000", Int(1000)),
            ("010", Int(8)),
            ("-010", Int(-8)),
            ("0o17", Int(15)),
            ("08", Float(8.0)),
            ("0", Int(0)),
            ("0x1F", Int(31)),
            ("-0x10", Int(-16)),
            ("0b101", Int(5)),
            ("-0b101", Int(-5)),
            ("0x", Text),
            ("0xg", Text),
            ("9223372036854775807", Int(i64::MAX)),
            ("-9223372036854775808", Int(i64::MIN)),
            ("9223372036854775808", Uint(1 << 63)),
            ("18446744073709551616", Float(18_446_744_073_709_551_616.0)),
            ("1.5", Float(1.5)),
            ("1.", Float(1.0)),
            (".5", Float(0.5)),
            ("-.5e3", Float(-500.0)),
            ("1e3", Float(1000.0)),
            ("1e", Text),
            ("1e999", Text),
            ("1.2.3", Text),
            (".", Text),
            ("-", Text),
            (".inf", Float(f64::INFINITY)),
            ("-.Inf", Float(f64::NEG_INFINITY)),
            ("1:30", Text),
            ("2024-01-01", Timestamp),
            ("2024-1-1", Timestamp),
            ("2024-13-01", Text),
            ("2024-01-01T00:00:00Z", Timestamp),
            ("2024-01-01t1:2:3.25+01:00", Timestamp),
            ("2024-01-01 00:00:00", Timestamp),
            ("2024-01-01 00:00:00Z", Text),
            ("2024-01", Text),
            ("abc", Text),
            ("<<", Text),
            ("=", Text),
        ];
        for (text, expected) in cases {
            assert_eq!(resolve(text), expected, "{text}");
        }
    }
}
