//! JSON values as YAML, byte for byte as go-yaml 2 prints them: keys sorted, lists at the level of
//! their key, texts folded at 80 columns, quoted only where they have to be.

use std::fmt::Write as _;

use meta::{Number, Value, cancel::interruptible};

use super::{
    key_order,
    resolve::{Resolved, resolve},
};

/// A value as a YAML document, with a final line break.
pub fn emit(value: &Value) -> String {
    let mut emitter =
        Emitter { out: String::new(), column: 0, indent: 0, after_space: true, only_indent: true };
    emitter.node(value, EmitContext::Root);
    emitter.write_indent();
    emitter.out
}

/// Where lines are folded.
const WIDTH: usize = 80;
const INDENT: usize = 2;
/// Deeper values are written as JSON, on one line: a list of short items a thousand levels down would
/// become a thousand times its size.
const INDENT_MAX: usize = 100 * INDENT;
/// Longer keys are written with a `?`.
const SIMPLE_KEY_BYTES_MAX: usize = 128;

#[derive(Clone, Copy, PartialEq)]
enum EmitContext {
    Root,
    Item,
    Key,
    Value,
}

struct Emitter {
    out: String,
    /// In characters.
    column: usize,
    indent: usize,
    /// The last thing written was white space.
    after_space: bool,
    /// The line has nothing but its indentation and list markers so far.
    only_indent: bool,
}

impl Emitter {
    fn node(&mut self, value: &Value, place: EmitContext) {
        match value {
            Value::Null => self.plain("null", false),
            Value::Raw(raw) => self.node(raw.tree(), place),
            Value::Bool(true) => self.plain("true", false),
            Value::Bool(false) => self.plain("false", false),
            Value::Number(number) => self.plain(&number_text(*number), false),
            Value::String(text) => self.text(text, place),
            Value::Array(_) | Value::Object(_) if self.indent >= INDENT_MAX => self.json(value),
            Value::Array(items) if items.is_empty() => {
                self.indicator("[", true, true, false);
                self.indicator("]", false, false, false);
            }
            Value::Array(items) => {
                let indent = self.indent;
                let nested =
                    place == EmitContext::Item || (place == EmitContext::Value && self.only_indent);
                if nested {
                    self.indent += INDENT;
                }
                for item in interruptible(items.iter()) {
                    self.write_indent();
                    self.indicator("-", true, false, true);
                    self.node(item, EmitContext::Item);
                }
                self.indent = indent;
            }
            Value::Object(map) if map.is_empty() => {
                self.indicator("{", true, true, false);
                self.indicator("}", false, false, false);
            }
            Value::Object(map) => {
                let indent = self.indent;
                if place != EmitContext::Root {
                    self.indent += INDENT;
                }
                let members = map.iter().map(|(key, value)| (key.as_str(), value)).collect();
                for (key, value) in interruptible(key_order::sorted(members).into_iter()) {
                    self.member(key, value);
                }
                self.indent = indent;
            }
        }
    }

    fn json(&mut self, value: &Value) {
        if !self.after_space {
            self.put(' ');
        }
        let text = meta::json::to_string(value);
        self.column += text.len();
        self.out.push_str(&text);
        (self.after_space, self.only_indent) = (false, false);
    }

    fn member(&mut self, key: &str, value: &Value) {
        self.write_indent();
        if key.len() <= SIMPLE_KEY_BYTES_MAX && !Analysis::of(key).multiline {
            self.text(key, EmitContext::Key);
            self.indicator(":", false, false, false);
        } else {
            self.indicator("?", true, false, true);
            self.text(key, EmitContext::Value);
            self.write_indent();
            self.indicator(":", true, false, true);
        }
        self.node(value, EmitContext::Value);
    }

    fn text(&mut self, text: &str, place: EmitContext) {
        let analysis = Analysis::of(text);
        let can_be_plain = resolve(text) == Resolved::Text && !is_base_60(text);
        let in_key = place == EmitContext::Key;
        // Its further lines are indented once more.
        self.indent += INDENT;
        if text.contains('\n') && !in_key && analysis.block_allowed {
            self.literal(text);
        } else if text.contains('\n') || !can_be_plain {
            self.double_quoted(text, in_key);
        } else if analysis.plain_allowed && !(text.is_empty() && in_key) {
            self.plain(text, in_key);
        } else if analysis.single_quoted_allowed {
            self.single_quoted(text, in_key);
        } else {
            self.double_quoted(text, in_key);
        }
        self.indent -= INDENT;
    }

    fn plain(&mut self, text: &str, in_key: bool) {
        if !self.after_space {
            self.put(' ');
        }
        self.folded(text, in_key, false);
    }

    fn single_quoted(&mut self, text: &str, in_key: bool) {
        self.indicator("'", true, false, false);
        self.folded(text, in_key, true);
        self.indicator("'", false, false, false);
        (self.after_space, self.only_indent) = (false, false);
    }

    /// The characters of a plain or single-quoted text, broken at spaces where a line gets long.
    fn folded(&mut self, text: &str, in_key: bool, quoted: bool) {
        let (mut after_space, mut after_break) = (false, false);
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let next = chars.peek().map(|(_, c)| *c);
            if c == ' ' {
                let inside = !quoted || (at > 0 && next.is_some());
                let long = !in_key && !after_space && self.column > WIDTH;
                if long && inside && next != Some(' ') {
                    self.write_indent();
                } else {
                    self.put(c);
                }
                after_space = true;
            } else if is_break(c) {
                if !after_break && c == '\n' {
                    self.put_break('\n');
                }
                self.put_break(c);
                self.only_indent = true;
                after_break = true;
            } else {
                if after_break {
                    self.write_indent();
                }
                if quoted && c == '\'' {
                    self.put('\'');
                }
                self.put(c);
                self.only_indent = false;
                (after_space, after_break) = (false, false);
            }
        }
        (self.after_space, self.only_indent) = (false, false);
    }

    fn double_quoted(&mut self, text: &str, in_key: bool) {
        self.indicator("\"", true, false, false);
        let mut after_space = false;
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let next = chars.peek().map(|(_, c)| *c);
            if c == ' ' {
                let long = !in_key && !after_space && self.column > WIDTH;
                if long && at > 0 && next.is_some() {
                    self.write_indent();
                    if next == Some(' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(c);
                }
                after_space = true;
                continue;
            }
            if !is_printable(c) || is_break(c) || c == '"' || c == '\\' {
                self.escape(c);
            } else {
                self.put(c);
            }
            after_space = false;
        }
        self.indicator("\"", false, false, false);
        (self.after_space, self.only_indent) = (false, false);
    }

    fn escape(&mut self, c: char) {
        let start = self.out.len();
        self.out.push('\\');
        match c {
            '\0' => self.out.push('0'),
            '\u{7}' => self.out.push('a'),
            '\u{8}' => self.out.push('b'),
            '\t' => self.out.push('t'),
            '\n' => self.out.push('n'),
            '\u{b}' => self.out.push('v'),
            '\u{c}' => self.out.push('f'),
            '\r' => self.out.push('r'),
            '\u{1b}' => self.out.push('e'),
            '"' | '\\' => self.out.push(c),
            '\u{85}' => self.out.push('N'),
            '\u{A0}' => self.out.push('_'),
            '\u{2028}' => self.out.push('L'),
            '\u{2029}' => self.out.push('P'),
            _ => {
                let _ = match u32::from(c) {
                    code @ ..=0xFF => write!(self.out, "x{code:02X}"),
                    code @ ..=0xFFFF => write!(self.out, "u{code:04X}"),
                    code => write!(self.out, "U{code:08X}"),
                };
            }
        }
        self.column += self.out.len() - start;
    }

    fn literal(&mut self, text: &str) {
        self.indicator("|", true, false, false);
        if text.starts_with([' ', '\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']) {
            self.put('2');
        }
        let mut backwards = text.chars().rev();
        match (backwards.next().is_some_and(is_break), backwards.next()) {
            (false, _) => self.put('-'),
            (true, None) => self.put('+'),
            (true, Some(c)) if is_break(c) => self.put('+'),
            (true, Some(_)) => {}
        }
        self.put_break('\n');
        (self.only_indent, self.after_space) = (true, true);
        let mut after_break = true;
        for c in text.chars() {
            if is_break(c) {
                self.put_break(c);
                self.only_indent = true;
                after_break = true;
            } else {
                if after_break {
                    self.write_indent();
                }
                self.put(c);
                self.only_indent = false;
                after_break = false;
            }
        }
    }

    /// Begins a line, unless one has just begun, and indents it.
    fn write_indent(&mut self) {
        let indent = self.indent;
        if !self.only_indent || self.column > indent || (self.column == indent && !self.after_space)
        {
            self.put_break('\n');
        }
        while self.column < indent {
            self.put(' ');
        }
        (self.after_space, self.only_indent) = (true, true);
    }

    fn indicator(&mut self, text: &str, needs_space: bool, is_space: bool, is_indent: bool) {
        if needs_space && !self.after_space {
            self.put(' ');
        }
        for c in text.chars() {
            self.put(c);
        }
        self.after_space = is_space;
        self.only_indent = self.only_indent && is_indent;
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn put_break(&mut self, c: char) {
        self.out.push(c);
        self.column = 0;
    }
}

/// What a text allows.
struct Analysis {
    multiline: bool,
    plain_allowed: bool,
    single_quoted_allowed: bool,
    block_allowed: bool,
}

impl Analysis {
    fn of(text: &str) -> Self {
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut special, mut multiline) = (false, false);
        let (mut break_space, mut space_break) = (false, false);
        let mut previous = '\n';
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let before_blank = chars.peek().is_none_or(|(_, next)| matches!(next, ' ' | '\t'));
            let after_blank = matches!(previous, ' ' | '\t' | '\0') || is_break(previous);
            indicators |= match c {
                '#' => after_blank,
                ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
                | '@' | '`' => at == 0,
                ':' => before_blank,
                '?' | '-' => at == 0 && before_blank,
                _ => false,
            };
            special |= !is_printable(c);
            multiline |= is_break(c);
            break_space |= at > 0 && is_break(previous) && c == ' ';
            space_break |= previous == ' ' && is_break(c);
            previous = c;
        }
        let leading = text.starts_with(' ') || text.starts_with(is_break);
        let trailing_space = text.ends_with(' ');
        let trailing = trailing_space || text.ends_with(is_break);
        let odd = break_space || space_break || special;
        Self {
            multiline,
            plain_allowed: !(leading || trailing || odd || multiline || indicators),
            single_quoted_allowed: !odd,
            block_allowed: !(trailing_space || space_break || special || text.is_empty()),
        }
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// What libyaml takes for printable: nothing beyond U+FFFF.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{A0}'..='\u{FEFE}' | '\u{FF00}'..='\u{FFFD}')
}

/// `1:30`, which other readers take for a number: `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (clock, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let mut parts = clock.split(':');
    let first = parts.next().unwrap_or_default();
    let mut sixties = 0;
    let all_sixties = parts.all(|part| {
        sixties += 1;
        matches!(part.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9'])
    });
    first.starts_with(|c: char| c.is_ascii_digit())
        && digits(first)
        && digits(fraction)
        && sixties > 0
        && all_sixties
}

fn number_text(number: Number) -> String {
    match number {
        Number::Int(number) => number.to_string(),
        Number::Float(number) => {
            let text = meta::json::to_string(&Value::from(number));
            // What JSON prints as an integer, YAML reads as one.
            match resolve(&text) {
                Resolved::Int(_) | Resolved::Uint(_) => text,
                _ => general_form(&format!("{number:e}")),
            }
        }
    }
}

/// Go's `%g` out of Rust's `{:e}`: an exponent below -4 and from 6 on, with at least two digits.
pub(super) fn general_form(scientific: &str) -> String {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    match mantissa {
        "inf" => return format!("{sign}.inf"),
        "NaN" => return ".nan".to_owned(),
        _ => {}
    }
    if !(-4..6).contains(&exponent) {
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{mantissa}e{exponent_sign}{:02}", exponent.abs());
    }
    let digits = mantissa.replace('.', "");
    if exponent < 0 {
        let zeros = "0".repeat((-exponent - 1) as usize);
        return format!("{sign}0.{zeros}{digits}");
    }
    let point = exponent as usize + 1;
    if digits.len() <= point {
        return format!("{sign}{digits}{}", "0".repeat(point - digits.len()));
    }
    format!("{sign}{}.{}", &digits[..point], &digits[point..])
}
