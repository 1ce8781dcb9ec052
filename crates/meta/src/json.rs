//! JSON text as Go writes it, for code that prints JSON without a schema.

use crate::{Number, Value, cancel::interruptible};

/// Appends a quoted string, escaped as Go's `encoding/json` does: `<`, `>`, `&`, U+2028 and U+2029
/// are escaped too, because clients compare bytes (`last-applied-configuration`).
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let (mut written, mut at) = (0, 0);
    loop {
        at = find_escaped(bytes, at);
        let Some(&byte) = bytes.get(at) else { break };
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x0c => b"\\f",
            b'<' => b"\\u003c",
            b'>' => b"\\u003e",
            b'&' => b"\\u0026",
            // U+2028 and U+2029 are E2 80 A8 and E2 80 A9.
            0xE2 if bytes[at..].starts_with(&[0xE2, 0x80, 0xA8]) => b"\\u2028",
            0xE2 if bytes[at..].starts_with(&[0xE2, 0x80, 0xA9]) => b"\\u2029",
            0..0x20 => {
                out.extend_from_slice(&bytes[written..at]);
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
                at += 1;
                written = at;
                continue;
            }
            _ => {
                at += 1;
                continue;
            }
        };
        out.extend_from_slice(&bytes[written..at]);
        out.extend_from_slice(escape);
        at += if byte == 0xE2 { 3 } else { 1 };
        written = at;
    }
    out.extend_from_slice(&bytes[written..]);
    out.push(b'"');
}

/// How many bytes a text has between the quotes of [`write_string`].
pub fn escaped_bytes(text: &str) -> usize {
    text.chars().map(escaped_char_bytes).sum()
}

/// Where to cut a text that has more than `bytes_max` bytes in JSON; None: it has not.
pub fn escaped_prefix(text: &str, bytes_max: usize) -> Option<usize> {
    // The common case, without a look at each character: none becomes longer than this.
    if text.len() <= bytes_max / ESCAPED_BYTES_MAX {
        return None;
    }
    let mut bytes = 0;
    let cut = text.char_indices().find(|(_, c)| {
        bytes += escaped_char_bytes(*c);
        bytes > bytes_max
    });
    cut.map(|(at, _)| at)
}

const ESCAPED_BYTES_MAX: usize = 6;

fn escaped_char_bytes(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '<' | '>' | '&' | '\0'..' ' | '\u{2028}' | '\u{2029}' => ESCAPED_BYTES_MAX,
        c => c.len_utf8(),
    }
}

/// The first byte from `at` on that may have to be escaped, or the end. Eight bytes at a time: nearly
/// all text that is printed has none.
fn find_escaped(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    let is = |word: u64, byte: u8| {
        let differs = word ^ (ONES * u64::from(byte));
        differs.wrapping_sub(ONES) & !differs
    };
    while let Some(chunk) = bytes.get(at..at + 8) {
        let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        // A borrow can only raise false alarms above a true one, and the lowest is taken.
        let found = is(word, b'"')
            | is(word, b'\\')
            | is(word, b'<')
            | is(word, b'>')
            | is(word, b'&')
            | is(word, 0xE2)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        let found = found & HIGHS;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&' | 0xE2 | 0..0x20);
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(special).unwrap_or(rest.len())
}

const HEX: [u8; 16] = *b"0123456789abcdef";

/// Appends a number as Go prints it: floats in the shortest form, with an exponent below 1e-6 and
/// from 1e21 on.
pub fn write_number(out: &mut Vec<u8>, number: Number) {
    match number {
        Number::Int(value) => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
        Number::Float(value) => out.extend_from_slice(format_float(value).as_bytes()),
    }
}

fn format_float(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        // Rust prints `1e21`, Go `1e+21`; small exponents agree (`1e-7`).
        let text = format!("{value:e}");
        return match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                format!("{digits}e+{exponent}")
            }
            _ => text,
        };
    }
    format!("{value}")
}

/// A float as Go's `%v` prints it: below 1e-4 and from 1e+06 on with an exponent of at least two
/// digits (`%v` is `%g`, which takes the shortest form to have a precision of six).
pub fn show_float(value: f64) -> String {
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    match exponent.parse::<i32>() {
        Ok(exponent @ (..-4 | 6..)) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{value}"),
    }
}

/// Appends JSON text without its white space, escaped as [`write_string`] does: what Go makes of a raw
/// message when it prints the object around it.
pub fn write_compact(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let (mut written, mut at, mut quoted) = (0, 0, false);
    while let Some(&byte) = bytes.get(at) {
        let (skipped, escape): (usize, &[u8]) = match byte {
            b' ' | b'\t' | b'\n' | b'\r' if !quoted => (1, b""),
            b'<' => (1, b"\\u003c"),
            b'>' => (1, b"\\u003e"),
            b'&' => (1, b"\\u0026"),
            0xE2 if bytes[at..].starts_with(&[0xE2, 0x80, 0xA8]) => (3, b"\\u2028"),
            0xE2 if bytes[at..].starts_with(&[0xE2, 0x80, 0xA9]) => (3, b"\\u2029"),
            _ => {
                quoted ^= byte == b'"';
                // What follows a backslash ends no string.
                at += if byte == b'\\' && quoted { 2 } else { 1 };
                continue;
            }
        };
        out.extend_from_slice(&bytes[written..at]);
        out.extend_from_slice(escape);
        at += skipped;
        written = at;
    }
    out.extend_from_slice(&bytes[written..]);
}

/// Appends any value, compact, keys in their (sorted) order.
pub fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(out, *number),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in interruptible(items.iter().enumerate()) {
                if at > 0 {
                    out.push(b',');
                }
                write_value(out, item);
            }
            out.push(b']');
        }
        Value::Object(map) => {
            out.push(b'{');
            for (at, (key, item)) in interruptible(map.iter().enumerate()) {
                if at > 0 {
                    out.push(b',');
                }
                write_string(out, key);
                out.push(b':');
                write_value(out, item);
            }
            out.push(b'}');
        }
        Value::Raw(raw) => write_compact(out, raw.text()),
    }
}

/// A value as compact JSON text.
pub fn to_string(value: &Value) -> String {
    let mut out = Vec::new();
    write_value(&mut out, value);
    String::from_utf8(out).expect("only UTF-8 is written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_text_is_compacted_and_nothing_else() {
        let cases = [
            (r#" { "b" : [ 1.50 , 1e2 ] , "a" : null } "#, r#"{"b":[1.50,1e2],"a":null}"#),
            (r#"{"a b":" c\\\" d ", "e": "\\\\" }"#, r#"{"a b":" c\\\" d ","e":"\\\\"}"#),
            ("\"<a&b>\u{2028}\"", r#""\u003ca\u0026b\u003e\u2028""#),
            ("{\"a\":\r\n1}", r#"{"a":1}"#),
        ];
        for (text, expected) in cases {
            let mut out = Vec::new();
            write_compact(&mut out, text);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn strings_are_escaped_as_in_go() {
        let cases = [
            ("plain", r#""plain""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("<a&b>", r#""\u003ca\u0026b\u003e""#),
            ("\u{1}\n\t\u{8}\u{c}\u{7f}", "\"\\u0001\\n\\t\\b\\f\u{7f}\""),
            ("é\u{2028}x\u{2029}\u{202a}", "\"é\\u2028x\\u2029\u{202a}\""),
            ("12345678<2345678\u{202a}9", "\"12345678\\u003c2345678\u{202a}9\""),
            ("éééééééé\u{1f600}âââ\n", "\"éééééééé\u{1f600}âââ\\n\""),
        ];
        for (text, expected) in cases {
            assert_eq!(to_string(&Value::from(text)), expected);
        }
    }

    #[test]
    fn floats_are_printed_as_in_go() {
        let cases = [
            (1.0, "1"),
            (0.1, "0.1"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-7"),
            (-2.5, "-2.5"),
            (0.0, "0"),
        ];
        for (number, expected) in cases {
            assert_eq!(to_string(&Value::from(number)), expected);
        }
    }
}
