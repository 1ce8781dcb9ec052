//! A path element as `managedFields` writes it: `f:name`, `k:{"name":"a"}`, `v:"a"`, `i:0`.

use std::cmp::Ordering;
use std::fmt;

use meta::{Number, Str, Value, field::quote, json};

use crate::json_text;

/// A path from the root of an object.
pub type Path = Vec<PathElement>;

#[derive(Clone, Debug)]
pub enum PathElement {
    /// A member of an object.
    Field(Str),
    /// The item of a list that has these members; sorted by name.
    Key(Vec<(Str, Value)>),
    /// The item of a set.
    Value(Value),
    Index(i64),
}

impl PathElement {
    pub fn field(name: &str) -> Self {
        Self::Field(Str::new(name))
    }

    pub fn key(mut fields: Vec<(Str, Value)>) -> Self {
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Key(fields)
    }

    /// The element as a key of `FieldsV1`.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        self.encode_into(&mut out);
        out
    }

    /// The same, at the end of a text.
    pub(super) fn encode_into(&self, out: &mut String) {
        match self {
            Self::Field(name) => {
                out.push_str("f:");
                out.push_str(name);
            }
            Self::Key(fields) => {
                out.push_str("k:{");
                for (at, (name, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    out.push_str(&json::to_string(&Value::String(name.clone())));
                    out.push(':');
                    out.push_str(&json::to_string(value));
                }
                out.push('}');
            }
            Self::Value(value) => {
                out.push_str("v:");
                out.push_str(&json::to_string(value));
            }
            Self::Index(at) => {
                out.push_str("i:");
                out.push_str(&at.to_string());
            }
        }
    }

    /// `Ok(None)` is a path element type that is not known yet; those are skipped.
    pub fn decode(text: &str) -> Result<Option<Self>, String> {
        if text.len() < 2 {
            return Err("key must be 2 characters long:".to_owned());
        }
        let bad = || format!("invalid path element {}", quote(text));
        let Some((kind, rest)) = text.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
            return Err(format!("missing colon: {text}"));
        };
        Ok(Some(match kind {
            "f" => Self::field(rest),
            "v" => Self::Value(json_text::parse(rest).ok_or_else(bad)?),
            "k" => match decode_name_key(rest) {
                Some(field) => Self::Key(vec![field]),
                None => match json_text::parse(rest).ok_or_else(bad)? {
                    Value::Object(fields) => Self::Key(fields.into_iter().collect()),
                    _ => return Err(bad()),
                },
            },
            "i" => Self::Index(rest.parse().map_err(|_| bad())?),
            _ => return Ok(None),
        }))
    }
}

/// The most common key, `{"name":"app"}`, if it is written like that: one text without escapes.
fn decode_name_key(text: &str) -> Option<(Str, Value)> {
    let (name, value) = text.strip_prefix("{\"")?.strip_suffix("\"}")?.split_once("\":\"")?;
    let plain = |text: &str| text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    (plain(name) && plain(value)).then(|| (Str::new(name), Value::from(value)))
}

/// Fields before keys before values before indexes.
impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => compare_fields(a, b),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

fn compare_fields(a: &[(Str, Value)], b: &[(Str, Value)]) -> Ordering {
    for ((a_name, a_value), (b_name, b_value)) in a.iter().zip(b) {
        let order = a_name.cmp(b_name).then_with(|| compare_values(a_value, b_value));
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// A total order over all JSON: numbers (compared as numbers), strings, booleans, lists, objects,
/// null.
pub(super) fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a.tree(), b.tree()) {
        (Value::Number(Number::Int(a)), Value::Number(Number::Int(b))) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => as_float(*a).total_cmp(&as_float(*b)),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let different = a.iter().zip(b).map(|(a, b)| compare_values(a, b));
            different.into_iter().find(|order| order.is_ne()).unwrap_or(a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let pair = |((a_key, a), (b_key, b)): ((&Str, &Value), (&Str, &Value))| {
                a_key.cmp(b_key).then_with(|| compare_values(a, b))
            };
            let different = a.iter().zip(b.iter()).map(pair).find(|order| order.is_ne());
            different.unwrap_or(a.len().cmp(&b.len()))
        }
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

/// Equality of structured-merge-diff: `1` equals `1.0`.
pub(super) fn same_value(a: &Value, b: &Value) -> bool {
    a == b || compare_values(a, b).is_eq()
}

fn as_float(number: Number) -> f64 {
    match number {
        Number::Int(number) => number as f64,
        // `0.0` and `-0.0` are the same number.
        Number::Float(number) => number + 0.0,
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) | Value::Raw(_) => 4,
        Value::Null => 5,
    }
}

/// `.spec`, `[name="a"]`, `[="a"]`, `[0]`: as in the messages of conflicts.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(name, value)| format!("{name}={}", show(value))).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={}]", show(value)),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(","))
        }
        Value::Object(map) => {
            let members = map.iter().map(|(key, value)| format!("{key}={}", show(value)));
            members.collect::<Vec<_>>().concat()
        }
        other => crate::go_text::show(other),
    }
}

pub(super) fn show_path(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn path_elements_round_trip() {
        let cases = [
            (PathElement::field("a.b/c"), "f:a.b/c", ".a.b/c"),
            (
                PathElement::key(vec![
                    ("protocol".into(), "TCP".into()),
                    ("containerPort".into(), 80i64.into()),
                ]),
                r#"k:{"containerPort":80,"protocol":"TCP"}"#,
                r#"[containerPort=80,protocol="TCP"]"#,
            ),
            (
                PathElement::key(vec![("name".into(), "a-é".into())]),
                r#"k:{"name":"a-é"}"#,
                r#"[name="a-é"]"#,
            ),
            (
                PathElement::key(vec![("name".into(), "a\"b".into())]),
                r#"k:{"name":"a\"b"}"#,
                r#"[name="a\"b"]"#,
            ),
            (PathElement::Value("x".into()), r#"v:"x""#, r#"[="x"]"#),
            (PathElement::Value(1.5.into()), "v:1.5", "[=1.5]"),
            (PathElement::Index(3), "i:3", "[3]"),
        ];
        for (element, text, shown) in cases {
            assert_eq!(element.encode(), text);
            assert_eq!(element.to_string(), shown);
            assert_eq!(PathElement::decode(text), Ok(Some(element)));
        }
        assert_eq!(PathElement::decode("x:new"), Ok(None));
        for bad in ["", "f", "fo", "k:[]", "k:{", "v:", "i:x"] {
            assert!(PathElement::decode(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn path_elements_are_ordered() {
        let port = |port: i64| PathElement::key(vec![("port".into(), port.into())]);
        let sorted = [
            PathElement::field("a"),
            PathElement::field("b"),
            port(80),
            port(443),
            PathElement::Value(value!(1i64)),
            PathElement::Value(value!("a")),
            PathElement::Value(value!(false)),
            PathElement::Value(value!([1i64])),
            PathElement::Value(value!({})),
            PathElement::Value(value!(null)),
            PathElement::Index(0),
        ];
        assert!(sorted.is_sorted());
        assert_eq!(PathElement::Value(value!(1i64)), PathElement::Value(value!(1.0)));
    }
}
