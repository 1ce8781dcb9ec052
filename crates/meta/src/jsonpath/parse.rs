//! The parser, compatible with client-go's: quotes and brackets are not matched inside of brackets, and a
//! name extends to the next character that cannot be part of one.

use crate::{Number, Str, Value};

use super::{Filter, JsonPath, Operator, Slice, Step};

/// A path is the content of the braces of a template. A closing brace in it ends the path; the rest must
/// be a valid template as well, and is ignored.
pub(super) fn parse(text: &str) -> Result<JsonPath, String> {
    let template = format!("{{{text}}}");
    let mut parser = Parser { rest: &template[1..] };
    let path = parser.steps()?;
    while let Some((_, rest)) = parser.rest.split_once('{') {
        parser.rest = rest;
        parser.steps()?;
    }
    Ok(path)
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// Steps up to and including the closing brace.
    fn steps(&mut self) -> Result<JsonPath, String> {
        let mut steps = Vec::new();
        loop {
            if self.take("}") {
                return Ok(JsonPath(steps));
            }
            if self.take("[?(") {
                steps.push(Step::Filter(Box::new(self.filter()?)));
                continue;
            }
            if self.take("..") {
                if steps.last() == Some(&Step::Recursive) {
                    return Err("invalid multiple recursive descent".to_owned());
                }
                steps.push(Step::Recursive);
                // `..name` has no second dot.
                if self.rest.starts_with(begins_a_word) {
                    steps.push(self.field());
                }
                continue;
            }
            match self.rest.chars().next() {
                None | Some('\r' | '\n') => return Err("unclosed action".to_owned()),
                // `$` and `@` name where a path starts; both are the object itself.
                Some(' ' | '@' | '$') => self.rest = &self.rest[1..],
                Some('[') => self.brackets(&mut steps)?,
                Some(quote @ ('"' | '\'')) => steps.push(self.quoted(quote)?),
                Some('.') => {
                    self.rest = &self.rest[1..];
                    steps.push(self.field());
                }
                Some(c) if c == '+' || c == '-' || c.is_numeric() => steps.push(self.number()?),
                Some(c) if begins_a_word(c) => steps.push(self.word()),
                Some(c) => {
                    let code = u32::from(c);
                    return Err(format!("unrecognized character in action: U+{code:04X} '{c}'"));
                }
            }
        }
    }

    fn take(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Consumes the text before `end`.
    fn until(&mut self, end: usize) -> &'a str {
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        text
    }

    /// A name; a backslash escapes a character that would end it.
    fn field(&mut self) -> Step {
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, c)) = chars.next() {
            if c == '\\' {
                chars.next();
            } else if ends_a_word(c) {
                end = at;
                break;
            }
        }
        match self.until(end) {
            "*" => Step::Wildcard,
            name => Step::Field(Str::new(name.replace('\\', ""))),
        }
    }

    fn word(&mut self) -> Step {
        let end = self.rest.find(ends_a_word).unwrap_or(self.rest.len());
        match self.until(end) {
            "true" => Step::Literal(Value::Bool(true)),
            "false" => Step::Literal(Value::Bool(false)),
            _ => Step::Nowhere,
        }
    }

    fn number(&mut self) -> Result<Step, String> {
        let digits = self.rest.strip_prefix(['+', '-']).unwrap_or(self.rest);
        let more = digits.find(|c: char| c != '.' && !c.is_numeric()).unwrap_or(digits.len());
        let text = self.until(self.rest.len() - digits.len() + more);
        let number = text.parse().map(Number::Int).or_else(|_| text.parse().map(Number::Float));
        let number = number.map_err(|_| format!("cannot parse number {text}"))?;
        Ok(Step::Literal(Value::Number(number)))
    }

    fn quoted(&mut self, quote: char) -> Result<Step, String> {
        let unterminated = || "unterminated quoted string".to_owned();
        let end = end_of_quote(&self.rest[1..], quote).ok_or_else(unterminated)?;
        let text = &self.until(end + 2)[1..=end];
        Ok(Step::Literal(Value::string(unescape(text)?)))
    }

    /// `[…]`: an index, a slice, a name in single quotes, or several of them.
    fn brackets(&mut self, steps: &mut Vec<Step>) -> Result<(), String> {
        let end = self.rest.find([']', '\n']).filter(|end| self.rest[*end..].starts_with(']'));
        let end = end.ok_or("unterminated array")?;
        let text = &self.until(end + 1)[1..end];
        if text.contains(',') {
            let paths = text.split(',').map(|part| parse(&format!("[{}]", part.trim_matches(' '))));
            steps.push(Step::Union(paths.collect::<Result<_, String>>()?));
            return Ok(());
        }
        let name = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        if let Some(name) = name.filter(|name| !name.contains('\'')) {
            // Compat: the quoted name is parsed as a path again, so a dot in it has to be escaped.
            steps.extend(parse(&format!(".{name}"))?.0);
            return Ok(());
        }
        steps.push(Step::Slice(slice(if text == "*" { ":" } else { text })?));
        Ok(())
    }

    /// The text between `[?(` and `)]`. A bracket in quotes does not end it.
    fn filter(&mut self) -> Result<Filter, String> {
        let (mut open, mut closed, mut before) = (None, false, ' ');
        let mut end = None;
        for (at, c) in self.rest.char_indices() {
            match c {
                '\n' => break,
                '"' | '\'' if open.is_none() => open = Some(c),
                '"' | '\'' if before != '\\' && open == Some(c) => closed = true,
                ')' if open.is_some() == closed => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
            before = c;
        }
        let text = self.until(end.ok_or("unterminated filter")?);
        if !self.take(")]") {
            return Err("unclosed array expect ]".to_owned());
        }
        let Some((left, sign, right)) = comparison(text) else {
            return Ok(Filter { left: parse(text)?, compare: None });
        };
        let operator = OPERATORS.iter().find(|(known, _)| *known == sign);
        let operator = operator.map_or(Operator::Unknown, |(_, operator)| *operator);
        Ok(Filter { left: parse(left)?, compare: Some((operator, parse(right)?)) })
    }
}

const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

/// The operator and both sides of a comparison, if both are present.
fn comparison(text: &str) -> Option<(&str, &str, &str)> {
    let is_sign = |c: char| "!<>=".contains(c);
    let start = text.find(is_sign).filter(|start| *start > 0)?;
    let (left, rest) = text.split_at(start);
    let length = rest.find(|c| !is_sign(c)).unwrap_or(rest.len() - 1);
    (length > 0).then(|| (left, &rest[..length], &rest[length..]))
}

/// `start:end:step`, each of which is optional.
fn slice(text: &str) -> Result<Slice, String> {
    let invalid = || format!("invalid array index {text}");
    let mut parts = text.split(':');
    let mut number = || match parts.next() {
        None | Some("") => Ok(None),
        Some(digits) if digits.starts_with('+') => Err(invalid()),
        Some(digits) => digits.parse::<i64>().map(Some).map_err(|_| invalid()),
    };
    let slice =
        Slice { start: number()?, end: number()?, step: number()?, single: !text.contains(':') };
    if parts.next().is_some() { Err(invalid()) } else { Ok(slice) }
}

/// The position of the closing quote.
fn end_of_quote(text: &str, quote: char) -> Option<usize> {
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        if c == '\n' {
            return None;
        }
        if c == quote && before != '\\' {
            return Some(at);
        }
        before = c;
    }
    None
}

/// The common escapes of a Go string.
fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(c @ ('\\' | '"' | '\'')) => c,
                _ => return Err(format!("unquote string {text} error invalid syntax")),
            },
            c => c,
        });
    }
    Ok(plain)
}

fn begins_a_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn ends_a_word(c: char) -> bool {
    " \t\r\n.,[]$@{}".contains(c)
}
