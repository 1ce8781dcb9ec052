//! The `format` keyword: checks of each known format. Unknown formats are ignored.

mod address;
mod uri;

use meta::time::Duration;

use super::node::{StructuralNode, ValueValidation};

/// A format that is checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format(fn(&str) -> bool);

impl Format {
    pub(super) fn fits(self, text: &str) -> bool {
        self.0(text)
    }
}

/// The format that strings at a node are checked against.
pub(super) fn of(node: &StructuralNode, value_validation: &ValueValidation) -> Option<Format> {
    *value_validation.checked_format.get_or_init(|| match kept(node, value_validation) {
        "" => None,
        name => by_name(name),
    })
}

/// The name of the format, if it is one that a node of its type may have.
pub(super) fn kept<'a>(node: &StructuralNode, value_validation: &'a ValueValidation) -> &'a str {
    let ty = if node.int_or_string { "" } else { node.ty.as_str() };
    let name = value_validation.format.as_str();
    if !name.is_empty() && is_recognized(ty, name) { name } else { "" }
}

/// Whether a format applies to the type. A missing type matches any.
pub fn is_recognized(ty: &str, format: &str) -> bool {
    match ty {
        "" | "string" => by_name(format).is_some(),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// Dashes in a format name are ignored.
fn by_name(name: &str) -> Option<Format> {
    let fits: fn(&str) -> bool = match name.replace('-', "").as_str() {
        "bsonobjectid" => |text| text.len() == 24 && all_hex(text),
        "uri" => uri::is_request_uri,
        "email" => address::is_email,
        "hostname" => is_hostname,
        "ipv4" => address::is_ipv4,
        "ipv6" => address::is_ipv6,
        "cidr" => address::is_cidr,
        "mac" => address::is_mac,
        "uuid" => |text| is_uuid(text, None, false),
        "uuid3" => |text| is_uuid(text, Some(b'3'), false),
        "uuid4" => |text| is_uuid(text, Some(b'4'), true),
        "uuid5" => |text| is_uuid(text, Some(b'5'), true),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => is_social_security_number,
        "hexcolor" => is_hex_color,
        "rgbcolor" => is_rgb_color,
        "byte" => is_base64,
        "password" => |_| true,
        "date" => is_date,
        "duration" => is_duration,
        "datetime" => is_date_time,
        "k8sshortname" => |text| text.len() <= 63 && is_name_segment(text),
        "k8slongname" => |text| text.len() <= 253 && text.split('.').all(is_name_segment),
        _ => return None,
    };
    Some(Format(fits))
}

fn all_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_name_segment(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(plain) && text.ends_with(plain) && text.chars().all(|c| plain(c) || c == '-')
}

/// Groups of hexadecimal digits; the dashes between them may be left out one by one.
fn is_uuid(text: &str, version: Option<u8>, variant: bool) -> bool {
    let mut rest = text.as_bytes();
    for (at, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((group, behind)) = rest.split_at_checked(length) else { return false };
        if !group.iter().all(u8::is_ascii_hexdigit)
            || at == 2 && version.is_some_and(|version| group[0] != version)
            || at == 3 && variant && !matches!(group[0], b'8' | b'9' | b'a' | b'b' | b'A' | b'B')
        {
            return false;
        }
        rest = behind;
    }
    rest.is_empty()
}

fn is_hostname(text: &str) -> bool {
    let symbol = |c: char| "$+<=>^`|~".contains(c) || !c.is_ascii() && is_symbol(c);
    let letter = |c: char| c.is_ascii_alphabetic() || !c.is_ascii() && c.is_alphabetic();
    let plain = |c: char| c.is_ascii_digit() || letter(c) || symbol(c);
    if text.len() > 255 || text.split('.').any(|label| label.len() > 63) {
        return false;
    }
    let Some((domain, top)) = text.rsplit_once('.') else {
        let mut chars = text.chars();
        let rest = chars.next().is_some_and(plain).then_some(chars.as_str());
        let rest = rest.map(|rest| rest.strip_prefix('-').unwrap_or(rest));
        return rest.is_some_and(|rest| rest.chars().all(plain));
    };
    let label = |label: &str| {
        label.starts_with(plain)
            && label.ends_with(plain)
            && label.chars().all(|c| plain(c) || c == '-')
    };
    domain.split('.').all(label) && top.chars().count() >= 2 && top.chars().all(letter)
}

/// Unicode's symbols, by their blocks.
fn is_symbol(c: char) -> bool {
    matches!(c,
        '\u{a2}'..='\u{a6}' | '\u{a8}' | '\u{a9}' | '\u{ac}' | '\u{ae}'..='\u{b1}' | '\u{b4}'
        | '\u{b8}' | '\u{d7}' | '\u{f7}' | '\u{20a0}'..='\u{20c0}' | '\u{2100}'..='\u{214f}'
        | '\u{2190}'..='\u{2307}' | '\u{230c}'..='\u{2328}' | '\u{232b}'..='\u{2426}'
        | '\u{2500}'..='\u{2767}' | '\u{2794}'..='\u{27c4}' | '\u{27f0}'..='\u{2982}'
        | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}

fn is_isbn10(text: &str) -> bool {
    let digits = without_spaces_and_dashes(text);
    let Some((last, first)) = digits.as_bytes().split_last() else { return false };
    let last = match last {
        b'X' => 10,
        b'0'..=b'9' => u32::from(last - b'0'),
        _ => return false,
    };
    if first.len() != 9 || !first.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let sum: u32 = (1..).zip(first).map(|(at, digit)| at * u32::from(digit - b'0')).sum();
    (sum + 10 * last).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = without_spaces_and_dashes(text);
    if digits.len() != 13 || !all_digits(&digits) {
        return false;
    }
    let weigh =
        |(at, digit): (usize, u8)| u32::from(digit - b'0') * if at % 2 == 0 { 1 } else { 3 };
    digits.bytes().enumerate().map(weigh).sum::<u32>().is_multiple_of(10)
}

fn without_spaces_and_dashes(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '-' | ' ' | '\t' | '\n' | '\r' | '\u{c}')).collect()
}

fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_digit).map(|byte| byte - b'0').collect();
    let starts = |prefix: &[u8]| digits.starts_with(prefix);
    let known = match digits.len() {
        13 => starts(&[4]),
        14 => starts(&[3, 6]) || starts(&[3, 8]) || (0..=5).any(|third| starts(&[3, 0, third])),
        15 => starts(&[3, 4]) || starts(&[3, 7]) || starts(&[2, 1, 3, 1]) || starts(&[1, 8, 0, 0]),
        16 => {
            starts(&[4])
                || (1..=5).any(|second| starts(&[5, second]))
                || starts(&[6, 0, 1, 1])
                || starts(&[6, 5])
                || starts(&[3, 5])
        }
        _ => false,
    };
    let weigh = |(at, digit): (usize, &u8)| match u32::from(*digit) * 2 {
        _ if at % 2 == 0 => u32::from(*digit),
        doubled @ 10.. => doubled % 10 + 1,
        doubled => doubled,
    };
    known && digits.iter().rev().enumerate().map(weigh).sum::<u32>().is_multiple_of(10)
}

/// Compat: upstream requires 11 characters, so both separators must be present.
fn is_social_security_number(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 11
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            3 | 6 => matches!(byte, b'-' | b' '),
            _ => byte.is_ascii_digit(),
        })
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && all_hex(digits)
}

fn is_rgb_color(text: &str) -> bool {
    let inner = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')'));
    let channel = |channel: &str| {
        let channel = channel.trim_matches(['\t', '\n', '\u{c}', '\r', ' ']);
        let canonical = all_digits(channel) && (channel == "0" || !channel.starts_with('0'));
        canonical && channel.len() <= 3 && channel.parse::<u16>().is_ok_and(|value| value <= 255)
    };
    inner.is_some_and(|inner| inner.split(',').count() == 3 && inner.split(',').all(channel))
}

/// Standard alphabet, padded, not empty.
fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    !body.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

fn is_date(text: &str) -> bool {
    // The digits and the calendar are those of a time at midnight.
    text.len() == 10 && meta::time::Time::parse(&format!("{text}T00:00:00Z")).is_ok()
}

/// A date and a time of day with an offset. Compat: upstream compares texts and checks no more than
/// this.
fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some((clock, rest)) = time.split_at_checked(8) else { return false };
    let clock_fits = clock.bytes().enumerate().all(|(at, byte)| match at {
        2 | 5 => byte == b':',
        _ => byte.is_ascii_digit(),
    });
    if !is_date(date) || !clock_fits {
        return false;
    }
    if &clock[..2] > "23" || &clock[3..5] > "59" || &clock[6..] > "59" {
        return false;
    }
    is_offset(rest) || {
        // Any character stands between the seconds and their fraction.
        let mut chars = rest.chars();
        let separated = chars.next().is_some_and(|c| c != '\n');
        let fraction = chars.as_str().trim_start_matches(|c: char| c.is_ascii_digit());
        separated && fraction.len() < chars.as_str().len() && is_offset(fraction)
    }
}

fn is_offset(text: &str) -> bool {
    text == "z"
        || matches!(text.as_bytes(), [b'+' | b'-', a, b, b':', c, d]
            if [a, b, c, d].into_iter().all(u8::is_ascii_digit))
}

/// Go's durations, or numbers with units as Scala has them (`3 days`).
fn is_duration(text: &str) -> bool {
    if Duration::parse(text).is_ok() {
        return true;
    }
    let (mut rest, mut found) = (text, false);
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = &rest[start..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, behind) = rest.split_at(digits);
        let unit_at = behind.trim_start_matches(['\t', '\n', '\u{c}', '\r', ' ']);
        let is_unit = |c: char| c.is_ascii_alphabetic() || c == 'µ';
        rest = unit_at.trim_start_matches(is_unit);
        let unit = &unit_at[..unit_at.len() - rest.len()];
        if unit.is_empty() {
            continue;
        }
        if number.parse::<i64>().is_err() {
            return false;
        }
        found |= is_duration_unit(&unit.to_lowercase());
    }
    found
}

fn is_duration_unit(unit: &str) -> bool {
    // The last spelling of each may have a tail: `minutes`, `nanoseconds`.
    const UNITS: [&[&str]; 8] = [
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "wk", "week"],
    ];
    UNITS.iter().any(|spellings| {
        spellings.contains(&unit) || spellings.last().is_some_and(|last| unit.starts_with(last))
    })
}

#[cfg(test)]
mod tests;
