//! From text to steps.

use meta::{Number, Str, Value};

use super::{Filter, JsonPath, Operand, Operator, Slice, Step};

pub(super) fn parse(text: &str) -> Result<JsonPath, String> {
    let mut parser = Parser { rest: text };
    // `$` and `@` name where a path starts; both are the object itself.
    if parser.rest.starts_with(['$', '@']) {
        parser.rest = &parser.rest[1..];
    }
    let mut steps = Vec::new();
    while !parser.rest.is_empty() {
        parser.step(&mut steps)?;
    }
    Ok(JsonPath(steps))
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn step(&mut self, steps: &mut Vec<Step>) -> Result<(), String> {
        if let Some(rest) = self.rest.strip_prefix("..") {
            steps.push(Step::Recursive);
            self.rest = rest;
            // `..name` has no second dot.
            if !self.rest.is_empty() && !self.rest.starts_with(['[', '.']) {
                steps.push(self.field()?);
            }
            return Ok(());
        }
        if let Some(rest) = self.rest.strip_prefix('.') {
            self.rest = rest;
            if self.rest.is_empty() || self.rest.starts_with('[') {
                return Ok(());
            }
            steps.push(self.field()?);
            return Ok(());
        }
        if self.rest.starts_with('[') {
            steps.push(self.bracket()?);
            return Ok(());
        }
        if steps.is_empty() {
            steps.push(self.field()?);
            return Ok(());
        }
        Err(format!("unrecognized character in action: {:?}", self.rest.chars().next()))
    }

    /// A name up to the next dot or bracket; a backslash takes the next character as it is.
    fn field(&mut self) -> Result<Step, String> {
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.push(chars.next().ok_or("unexpected end after a backslash")?.1),
                '.' | '[' => {
                    end = at;
                    break;
                }
                c if c.is_alphanumeric() || "_-/*@".contains(c) => name.push(c),
                other => return Err(format!("unrecognized character in action: {other:?}")),
            }
        }
        self.rest = &self.rest[end..];
        match name.as_str() {
            "" => Err("missing a name".to_owned()),
            "*" => Ok(Step::Wildcard),
            name => Ok(Step::Field(Str::new(name))),
        }
    }

    fn bracket(&mut self) -> Result<Step, String> {
        let inside = self.inside_brackets()?;
        if let Some(filter) = inside.strip_prefix("?(") {
            let filter = filter.strip_suffix(')').ok_or("unterminated filter")?;
            return parse_filter(filter).map(|filter| Step::Filter(Box::new(filter)));
        }
        let parts = split(inside, ',')?;
        if let [part] = parts[..] {
            return index(part.trim());
        }
        let paths = parts.iter().map(|part| Ok(JsonPath(vec![index(part.trim())?])));
        Ok(Step::Union(paths.collect::<Result<_, String>>()?))
    }

    /// What stands between this bracket and the one that closes it.
    fn inside_brackets(&mut self) -> Result<&'a str, String> {
        let mut depth = 0;
        let mut quote = None;
        let mut escaped = false;
        for (at, c) in self.rest.char_indices() {
            match (quote, c) {
                _ if escaped => escaped = false,
                (_, '\\') => escaped = true,
                (Some(open), c) if c == open => quote = None,
                (None, '\'' | '"') => quote = Some(c),
                (None, '[') => depth += 1,
                (None, ']') => {
                    depth -= 1;
                    if depth == 0 {
                        let inside = &self.rest[1..at];
                        self.rest = &self.rest[at + 1..];
                        return Ok(inside);
                    }
                }
                _ => {}
            }
        }
        Err("unterminated array".to_owned())
    }
}

/// Parts between separators that are not inside of quotes.
fn split(text: &str, separator: char) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut quote) = (Vec::new(), 0, None);
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c == separator => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            Some(_) | None => {}
        }
    }
    if quote.is_some() {
        return Err("unterminated quoted string".to_owned());
    }
    parts.push(&text[start..]);
    Ok(parts)
}

/// A name in quotes, `*`, an index or a slice.
fn index(text: &str) -> Result<Step, String> {
    if text == "*" {
        return Ok(Step::Wildcard);
    }
    if let Some(name) = unquote(text) {
        return Ok(Step::Field(Str::new(name)));
    }
    let number = |part: &str| -> Result<Option<i64>, String> {
        match part.trim() {
            "" => Ok(None),
            digits => digits.parse().map(Some).map_err(|_| format!("invalid array index {text}")),
        }
    };
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        [one] => match number(one)? {
            Some(at) => {
                Ok(Step::Slice(Slice { start: Some(at), single: true, ..Slice::default() }))
            }
            None => Err(format!("invalid array index {text}")),
        },
        [start, end] => {
            let (start, end) = (number(start)?, number(end)?);
            Ok(Step::Slice(Slice { start, end, ..Slice::default() }))
        }
        [start, end, step] => {
            let (start, end, step) = (number(start)?, number(end)?, number(step)?);
            Ok(Step::Slice(Slice { start, end, step, single: false }))
        }
        _ => Err(format!("invalid array index {text}")),
    }
}

fn unquote(text: &str) -> Option<&str> {
    ['\'', '"'].iter().find_map(|quote| {
        let inside = text.strip_prefix(*quote)?.strip_suffix(*quote)?;
        Some(inside)
    })
}

const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

fn parse_filter(text: &str) -> Result<Filter, String> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quote = Some(c),
            None => {
                let found = OPERATORS.iter().find(|(sign, _)| text[at..].starts_with(sign));
                if let Some((sign, operator)) = found {
                    let left = operand(&text[..at])?;
                    let right = operand(&text[at + sign.len()..])?;
                    return Ok(Filter { left, compare: Some((*operator, right)) });
                }
            }
        }
    }
    if quote.is_some() {
        return Err("unterminated quoted string".to_owned());
    }
    Ok(Filter { left: operand(text)?, compare: None })
}

fn operand(text: &str) -> Result<Operand, String> {
    let text = text.trim();
    if text.is_empty() || text == "=" {
        return Err("missing an operand".to_owned());
    }
    if let Some(literal) = unquote(text) {
        return Ok(Operand::Literal(Value::string(literal)));
    }
    if let Ok(int) = text.parse() {
        return Ok(Operand::Literal(Value::Number(Number::Int(int))));
    }
    if let Ok(float) = text.parse() {
        return Ok(Operand::Literal(Value::Number(Number::Float(float))));
    }
    match text {
        "true" => Ok(Operand::Literal(Value::Bool(true))),
        "false" => Ok(Operand::Literal(Value::Bool(false))),
        path if path.starts_with(['@', '.', '[']) => parse(path).map(Operand::Path),
        other => Err(format!("unrecognized operand {other}")),
    }
}
