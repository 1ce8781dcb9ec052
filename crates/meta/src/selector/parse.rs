//! The text form of label selectors.
//!
//! ```text
//! selector    = [ requirement { "," requirement } ]
//! requirement = "!" key | key [ ("in" | "notin") "(" values ")" | ("=" | "==" | "!=" | ">" | "<") value ]
//! ```
//! A value may be empty, and `in` and `notin` may also be keys and values.

use std::collections::BTreeSet;

use super::label::{Operator, Requirement};
use crate::{FieldErrors, FieldPath, Str, names::is_qualified_name};

/// Requirements in the order of the text.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    Parser { tokens: tokens(text), at: 0 }.selector()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    End,
    Word(&'a str),
    Symbol(&'a str),
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::End => "",
            Self::Word(text) | Self::Symbol(text) => text,
        }
    }
}

/// Ends with [`Token::End`]. A zero byte ends the text, as it does upstream.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut rest = text.split('\0').next().unwrap_or_default();
    let mut tokens = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = rest.chars().next() else {
            tokens.push(Token::End);
            return tokens;
        };
        let len = if !is_symbol(first) {
            let ends = |c| is_symbol(c) || matches!(c, ' ' | '\t' | '\r' | '\n');
            rest.find(ends).unwrap_or(rest.len())
        } else if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else {
            1
        };
        let text = &rest[..len];
        tokens.push(if is_symbol(first) { Token::Symbol(text) } else { Token::Word(text) });
        rest = &rest[len..];
    }
}

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

struct Parser<'a> {
    // Invariant: the last one is the end.
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn selector(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        match self.peek() {
            Token::End => return Ok(requirements),
            Token::Word(_) | Token::Symbol("!") => {}
            Token::Symbol(other) => {
                return Err(format!(
                    "found '{other}', expected: !, identifier, or 'end of string'"
                ));
            }
        }
        loop {
            let requirement = self.requirement();
            requirements
                .push(requirement.map_err(|why| format!("unable to parse requirement: {why}"))?);
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Symbol(",") => {}
                other => {
                    let found = other.text();
                    return Err(format!("found '{found}', expected: ',' or 'end of string'"));
                }
            }
            let after = self.peek();
            if !matches!(after, Token::Word(_) | Token::Symbol("!")) {
                let found = after.text();
                return Err(format!("found '{found}', expected: identifier after ','"));
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Token::Symbol("!");
        if absent {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        check_key(key)?;
        if absent {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.value()?],
        };
        Requirement::new(key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        Ok(match self.next() {
            Token::Word("in") => Operator::In,
            Token::Word("notin") => Operator::NotIn,
            Token::Symbol("=") => Operator::Equals,
            Token::Symbol("==") => Operator::DoubleEquals,
            Token::Symbol("!=") => Operator::NotEquals,
            Token::Symbol(">") => Operator::GreaterThan,
            Token::Symbol("<") => Operator::LessThan,
            other => {
                let found = other.text();
                return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        })
    }

    fn value(&mut self) -> Result<Str, String> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(Str::default());
        }
        match self.next() {
            Token::Word(value) => Ok(Str::new(value)),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// `(a,b)`, sorted and each value once. A comma without a neighbour stands beside an empty value.
    fn values(&mut self) -> Result<Vec<Str>, String> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        let mut values = BTreeSet::new();
        match self.peek() {
            Token::Symbol(")") => {
                values.insert(Str::default());
            }
            Token::Word(_) | Token::Symbol(",") => self.list(&mut values)?,
            other => {
                let found = other.text();
                return Err(format!("found '{found}', expected: ',', ')' or identifier"));
            }
        }
        self.next();
        Ok(values.into_iter().collect())
    }

    /// Up to, but without, the closing parenthesis.
    fn list(&mut self, values: &mut BTreeSet<Str>) -> Result<(), String> {
        loop {
            match self.next() {
                Token::Word(value) => {
                    values.insert(Str::new(value));
                    match self.peek() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => return Ok(()),
                        other => {
                            return Err(format!("found '{}', expected: ',' or ')'", other.text()));
                        }
                    }
                }
                Token::Symbol(",") => {
                    if values.is_empty() {
                        values.insert(Str::default());
                    }
                    match self.peek() {
                        Token::Symbol(")") => {
                            values.insert(Str::default());
                            return Ok(());
                        }
                        Token::Symbol(",") => {
                            values.insert(Str::default());
                        }
                        _ => {}
                    }
                }
                other => {
                    return Err(format!("found '{}', expected: ',', or identifier", other.text()));
                }
            }
        }
    }

    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }
}

fn check_key(key: &str) -> Result<(), String> {
    let wrong = is_qualified_name(key);
    if wrong.is_empty() {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    errors.invalid(FieldPath::root(), key, &wrong.join("; "));
    Err(errors.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::LabelSelector;

    #[test]
    fn texts_are_brought_into_their_canonical_form() {
        let cases = [
            ("", ""),
            ("x=a,y=b,z=c", "x=a,y=b,z=c"),
            ("x!=a,y=b", "x!=a,y=b"),
            ("x=", "x="),
            ("x= ", "x="),
            ("x=,z= ", "x=,z="),
            ("x= ,z= ", "x=,z="),
            ("!x", "!x"),
            ("x>1", "x>1"),
            ("x>1,z<5", "x>1,z<5"),
            ("y,x in (c,a,b,a)", "x in (a,b,c),y"),
            ("x in ()", "x in ()"),
            ("x in (a,,b)", "x in (,a,b)"),
            ("x in (,)", "x in ()"),
            ("notin in (in)", "notin in (in)"),
            ("x notin(\ta\n)", "x notin (a)"),
            ("a.b/c==d", "a.b/c==d"),
            ("x\0,,", "x"),
        ];
        for (text, expected) in cases {
            assert_eq!(LabelSelector::parse(text).unwrap().to_string(), expected, "{text:?}");
        }
    }

    #[test]
    fn errors_are_those_of_kubernetes() {
        let cases = [
            (
                "x=a||y=b",
                "unable to parse requirement: values[0][x]: Invalid value: \"a||y\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ),
            ("x==a==b", "found '==', expected: ',' or 'end of string'"),
            ("!x=a", "found '=', expected: ',' or 'end of string'"),
            (
                "x<a",
                "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            (",x", "found ',', expected: !, identifier, or 'end of string'"),
            ("x,", "found '', expected: identifier after ','"),
            ("x,,y", "found ',', expected: identifier after ','"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            (
                "x y",
                "unable to parse requirement: found 'y', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("x in a", "unable to parse requirement: found 'a' expected: '('"),
            ("x in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("x in (=", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
            ("x in (a,=", "unable to parse requirement: found '=', expected: ',', or identifier"),
            ("x=(", "unable to parse requirement: found '(', expected: identifier"),
            (
                "/x",
                "unable to parse requirement: <nil>: Invalid value: \"/x\": prefix part must be non-empty",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(LabelSelector::parse(text).unwrap_err(), expected, "{text:?}");
        }
    }
}
