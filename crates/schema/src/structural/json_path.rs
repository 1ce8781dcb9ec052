//! Paths like `.spec.map['key'].field`, as far as they name fields and keys that a schema knows.

use std::borrow::Cow;

use meta::{FieldPath, Value};

use super::node::StructuralNode;

impl StructuralNode {
    /// The schema node that a path refers to, and the path as errors print it. `brackets`: whether
    /// `['key']` is allowed.
    pub fn find(
        &self,
        json_path: &str,
        brackets: bool,
    ) -> Result<(FieldPath, &StructuralNode), String> {
        walk(self, json_path, brackets, |node, name| {
            if node.properties.is_empty() {
                Some((false, node.additional_properties.schema()?))
            } else {
                Some((true, node.property(name)?))
            }
        })
    }
}

/// Whether a path leads to a field that a schema knows, as it is written in a definition.
pub fn has_path(schema: &Value, json_path: &str) -> bool {
    let found = walk(schema, json_path, true, |schema, name| {
        match schema.get("properties").and_then(Value::as_object) {
            Some(properties) if !properties.is_empty() => Some((true, properties.get(name)?)),
            _ => {
                let additional = schema.get("additionalProperties")?;
                additional.as_object().map(|_| (false, additional))
            }
        }
    });
    found.is_ok()
}

/// `step` goes down to the schema of a name, and says whether it is a property.
fn walk<'a, S>(
    root: &'a S,
    json_path: &str,
    brackets: bool,
    step: impl Fn(&'a S, &str) -> Option<(bool, &'a S)>,
) -> Result<(FieldPath, &'a S), String> {
    let (mut path, mut schema) = (FieldPath::root(), root);
    let mut tokens = Tokens(json_path);
    while let Some(token) = tokens.next() {
        let end = || "unexpected end of JSON path".to_owned();
        let name = match token {
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = tokens.next().ok_or_else(end)?;
                let name = quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
                let Some(name) = name.filter(|_| quoted.len() >= 2) else {
                    return Err(format!("expected single quoted string but got {quoted}"));
                };
                Cow::Owned(unescape(name)?)
            }
            "." => Cow::Borrowed(tokens.next().ok_or_else(end)?),
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let (is_property, below) =
            step(schema, &name).ok_or_else(|| "does not refer to a valid field".to_owned())?;
        path = if is_property { path.child(&name) } else { path.key(&name) };
        schema = below;
        if token == "[" {
            match tokens.next().ok_or_else(end)? {
                "]" => {}
                other => return Err(format!("expected ] but got {other}")),
            }
        }
    }
    Ok((path, schema))
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('a') => out.push('\u{7}'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('v') => out.push('\u{b}'),
            Some(plain @ ('\'' | '\\')) => out.push(plain),
            Some(other) => {
                return Err(format!("invalid string literal: invalid escape char \\{other}"));
            }
            None => out.push('\\'),
        }
    }
    Ok(out)
}

/// Tokenizer: dots, brackets and the names between them.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.0.as_bytes();
        let end = match bytes.first()? {
            b'\'' => {
                let closing = |at: &usize| bytes[*at] == b'\'' && bytes[at - 1] != b'\\';
                (1..bytes.len()).find(closing).map_or(bytes.len(), |at| at + 1)
            }
            b'.' | b'[' | b']' => 1,
            _ => self.0.find(['.', '[', ']']).unwrap_or(bytes.len()),
        };
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use crate::structural::Structural;

    #[test]
    fn paths_lead_to_fields_that_the_schema_knows() {
        let schema = Structural::new(&value!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "a.b": {"type": "string"},
                "map": {"type": "object", "additionalProperties": {"type": "integer"}}
            }}
        }}))
        .expect("a schema");
        let cases = [
            (".spec", true, Ok("spec object")),
            (".spec['a.b']", true, Ok("spec.a.b string")),
            (".spec.map['x y']", true, Ok("spec.map[x y] integer")),
            (".spec.map.x", true, Ok("spec.map[x] integer")),
            (".spec['map']", false, Err("array notation is not allowed")),
            (".spec.none", true, Err("does not refer to a valid field")),
            (".spec.", true, Err("unexpected end of JSON path")),
            ("spec", true, Err("expected [ or . but got: spec")),
            (".spec[map]", true, Err("expected single quoted string but got map")),
            (".spec['map'", true, Err("unexpected end of JSON path")),
            (".spec['\\q']", true, Err("invalid string literal: invalid escape char \\q")),
        ];
        for (path, brackets, expected) in cases {
            let found = schema.root().find(path, brackets);
            let found = found.map(|(path, node)| format!("{path} {}", node.ty.as_str()));
            assert_eq!(
                found.as_deref(),
                expected.as_deref().map_err(ToString::to_string).as_deref(),
                "{path}"
            );
        }
    }
}
