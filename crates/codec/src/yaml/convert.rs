//! Converts YAML nodes to JSON: aliases and merges are resolved, keys become strings.
//!
//! Aliases can expand a small document to a huge one. The expansion is bounded by go-yaml's rule:
//! the larger a document gets, the smaller the share of it that may come from aliases.

use std::collections::HashMap;

use meta::{Map, Str, Value, field::quote};

use super::{
    Converted, YamlError,
    emit::general_form,
    load::{Node, NodeKind, Tree, too_deep},
    resolve::{Resolved, resolve},
};
use crate::base64;

/// Deeper trees are refused: the conversion recurses. The parser has the same limit for flow
/// collections (`[`, `{`).
const TREE_DEPTH_MAX: usize = 250;

pub(super) fn convert(tree: &Tree) -> Result<Converted, YamlError> {
    let Some(root) = tree.root else { return Ok(Converted::default()) };
    // The document counts as a node of its own.
    let count = Count { all: 1, from_aliases: 0 };
    let mut converter = Converter { tree, duplicates: Vec::new(), count, inside: Vec::new() };
    let value = converter.node(root, 0)?;
    Ok(Converted { value, duplicates: converter.duplicates })
}

struct Converter<'a> {
    tree: &'a Tree,
    duplicates: Vec<String>,
    count: Count,
    /// The aliases that are being followed.
    inside: Vec<usize>,
}

/// How much has been converted, and how much of it because of aliases.
struct Count {
    all: u32,
    from_aliases: u32,
}

/// What a key is before it becomes a text. Keys that differ here may become the same text.
#[derive(Clone, PartialEq)]
enum Key {
    Text(Str),
    Int(i64),
    Float(f64),
    Bool(bool),
}

/// A mapping under construction.
#[derive(Default)]
struct Members {
    pairs: Vec<(Key, Value)>,
    /// Where the keys with a text are.
    index: HashMap<Str, Vec<usize>>,
}

impl Converter<'_> {
    fn node(&mut self, at: usize, depth: usize) -> Result<Value, YamlError> {
        self.count()?;
        if depth > TREE_DEPTH_MAX {
            return Err(too_deep());
        }
        let node = &self.tree.nodes[at];
        match &node.kind {
            NodeKind::Scalar { text, tag, plain } => scalar_value(text, tag, *plain),
            NodeKind::Sequence(children) => {
                // A plain loop, because this recurses: adapters would take stack on every level.
                let mut items = Vec::with_capacity(children.len());
                for child in children {
                    items.push(self.node(*child, depth + 1)?);
                }
                Ok(Value::Array(items))
            }
            NodeKind::Mapping(children) => {
                let mut members = Members::default();
                self.mapping(children, &mut members, depth)?;
                Ok(Value::Object(members.into_map()))
            }
            NodeKind::Alias { name, target } => {
                self.enter_alias(at, name)?;
                let value = self.node(*target, depth)?;
                self.inside.pop();
                Ok(value)
            }
        }
    }

    fn mapping(
        &mut self,
        children: &[usize],
        members: &mut Members,
        depth: usize,
    ) -> Result<(), YamlError> {
        for pair in children.chunks_exact(2) {
            let (key_node, value_node) = (&self.tree.nodes[pair[0]], pair[1]);
            if is_merge(key_node) {
                self.merge(value_node, members, depth)?;
                continue;
            }
            let key = self.key(pair[0], value_node, depth)?;
            let value = self.node(value_node, depth + 1)?;
            if let Some(key) = members.set(key, value) {
                let line = self.tree.nodes[value_node].line;
                self.duplicates.push(format!("line {line}: key {key} already set in map"));
            }
        }
        Ok(())
    }

    /// `<<`: the members of one or several other mappings. They overwrite existing ones.
    fn merge(&mut self, at: usize, members: &mut Members, depth: usize) -> Result<(), YamlError> {
        match &self.tree.nodes[at].kind {
            NodeKind::Sequence(children) => {
                // Backwards, because the earlier ones win.
                for child in children.iter().rev() {
                    if matches!(self.tree.nodes[*child].kind, NodeKind::Sequence(_)) {
                        return Err(want_map());
                    }
                    self.merge_one(*child, members, depth)?;
                }
                Ok(())
            }
            _ => self.merge_one(at, members, depth),
        }
    }

    fn merge_one(
        &mut self,
        at: usize,
        members: &mut Members,
        depth: usize,
    ) -> Result<(), YamlError> {
        self.count()?;
        if depth > TREE_DEPTH_MAX {
            return Err(too_deep());
        }
        match &self.tree.nodes[at].kind {
            NodeKind::Mapping(children) => self.mapping(children, members, depth + 1),
            NodeKind::Alias { name, target } => {
                let NodeKind::Mapping(children) = &self.tree.nodes[*target].kind else {
                    return Err(want_map());
                };
                self.enter_alias(at, name)?;
                self.count()?;
                self.mapping(children, members, depth + 1)?;
                self.inside.pop();
                Ok(())
            }
            _ => Err(want_map()),
        }
    }

    fn enter_alias(&mut self, at: usize, name: &str) -> Result<(), YamlError> {
        if self.inside.contains(&at) {
            return Err(YamlError::Yaml(format!("anchor '{name}' value contains itself")));
        }
        self.inside.push(at);
        Ok(())
    }

    fn key(&mut self, at: usize, value: usize, depth: usize) -> Result<Key, YamlError> {
        let mut node = &self.tree.nodes[at];
        while let NodeKind::Alias { target, .. } = &node.kind {
            node = &self.tree.nodes[*target];
        }
        if let NodeKind::Scalar { text, tag, plain } = &node.kind {
            self.count()?;
            return match scalar(text, tag, *plain)? {
                Scalar::Text(text) => Ok(Key::Text(text)),
                Scalar::Int(number) => Ok(Key::Int(number)),
                Scalar::Float(number) => Ok(Key::Float(number)),
                Scalar::Bool(value) => Ok(Key::Bool(value)),
                Scalar::Uint(number) => {
                    Err(self.unsupported_key("uint64", &format!("{number:#x}"), value, depth))
                }
                Scalar::Null => Err(self.unsupported_key("%!s(<nil>)", "<nil>", value, depth)),
            };
        }
        let key = self.node(at, depth + 1)?;
        Err(YamlError::Yaml(format!("invalid map key: {}", go_syntax(&key))))
    }

    fn unsupported_key(&mut self, ty: &str, key: &str, value: usize, depth: usize) -> YamlError {
        match self.node(value, depth + 1) {
            Ok(value) => {
                let value = match &value {
                    Value::Null => "<nil>".to_owned(),
                    other => go_syntax(other),
                };
                YamlError::Json(format!(
                    "unsupported map key of type: {ty}, key: {key}, value: {value}"
                ))
            }
            Err(error) => error,
        }
    }

    fn count(&mut self) -> Result<(), YamlError> {
        let Count { all, from_aliases } = &mut self.count;
        *all += 1;
        if !self.inside.is_empty() {
            *from_aliases += 1;
        }
        let share = f64::from(*from_aliases) / f64::from(*all);
        if *from_aliases > 100 && *all > 1000 && share > allowed_share(*all) {
            return Err(YamlError::Yaml("document contains excessive aliasing".to_owned()));
        }
        Ok(())
    }
}

/// From 99 % of a small document down to 10 % of a large one.
fn allowed_share(all: u32) -> f64 {
    const LOW: u32 = 400_000;
    const HIGH: u32 = 4_000_000;
    match all {
        ..=LOW => 0.99,
        HIGH.. => 0.10,
        _ => 0.99 - 0.89 * f64::from(all - LOW) / f64::from(HIGH - LOW),
    }
}

enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(Str),
}

fn scalar(text: &str, tag: &str, plain: bool) -> Result<Scalar, YamlError> {
    if tag.is_empty() && !plain {
        return Ok(Scalar::Text(Str::new(text)));
    }
    let resolved = match tag {
        "!!binary" => {
            let bytes = base64::decode(text).map_err(|_| {
                YamlError::Yaml("!!binary value contains invalid base64 data".to_owned())
            })?;
            return Ok(Scalar::Text(Str::new(String::from_utf8_lossy(&bytes))));
        }
        "" | "!!bool" | "!!int" | "!!float" | "!!null" | "!!timestamp" => resolve(text),
        _ => Resolved::Text,
    };
    let fits = match (tag, resolved) {
        ("!!bool" | "!!int" | "!!null" | "!!timestamp", resolved) => resolved.tag() == tag,
        ("!!float", resolved) => matches!(resolved.tag(), "!!float" | "!!int"),
        _ => true,
    };
    if !fits {
        let found = resolved.tag();
        return Err(YamlError::Yaml(format!("cannot decode {found} `{text}` as a {tag}")));
    }
    Ok(match resolved {
        Resolved::Null => Scalar::Null,
        Resolved::Bool(value) => Scalar::Bool(value),
        Resolved::Int(number) if tag == "!!float" => Scalar::Float(number as f64),
        Resolved::Int(number) => Scalar::Int(number),
        Resolved::Uint(number) => Scalar::Uint(number),
        Resolved::Float(number) => Scalar::Float(number),
        Resolved::Timestamp | Resolved::Text => Scalar::Text(Str::new(text)),
    })
}

fn scalar_value(text: &str, tag: &str, plain: bool) -> Result<Value, YamlError> {
    Ok(match scalar(text, tag, plain)? {
        Scalar::Null => Value::Null,
        Scalar::Bool(value) => Value::Bool(value),
        Scalar::Int(number) => Value::from(number),
        Scalar::Uint(number) => Value::from(number as f64),
        Scalar::Float(number) if !number.is_finite() => {
            let number = not_finite(number);
            return Err(YamlError::Json(format!("json: unsupported value: {number}")));
        }
        Scalar::Float(number) => Value::from(number),
        Scalar::Text(text) => Value::String(text),
    })
}

/// As Go's JSON encoder names what it cannot write.
fn not_finite(number: f64) -> &'static str {
    match number {
        f64::INFINITY => "+Inf",
        f64::NEG_INFINITY => "-Inf",
        _ => "NaN",
    }
}

/// A value as a Go program would write it.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let member =
                |(key, value): (&Str, &Value)| format!("{}:{}", quote(key), go_syntax(value));
            let members: Vec<String> = map.iter().map(member).collect();
            format!("map[interface {{}}]interface {{}}{{{}}}", members.join(", "))
        }
        Value::Bool(_) | Value::Number(_) => meta::json::to_string(value),
    }
}

fn is_merge(node: &Node) -> bool {
    match &node.kind {
        NodeKind::Scalar { text, tag, plain } => text == "<<" && (*plain || tag == "!!merge"),
        _ => false,
    }
}

fn want_map() -> YamlError {
    YamlError::Yaml("map merge requires map or sequence of maps as the value".to_owned())
}

impl Members {
    /// Sets a member; what was set before is returned as it is named in an error.
    fn set(&mut self, key: Key, value: Value) -> Option<String> {
        let text = key.text();
        let places = self.index.entry(text).or_default();
        if let Some(&place) = places.iter().find(|place| self.pairs[**place].0 == key) {
            self.pairs[place].1 = value;
            return Some(key.shown());
        }
        places.push(self.pairs.len());
        self.pairs.push((key, value));
        None
    }

    fn into_map(self) -> Map {
        Map::from_pairs(self.pairs.into_iter().map(|(key, value)| (key.text(), value)).collect())
    }
}

impl Key {
    /// As a key of JSON.
    fn text(&self) -> Str {
        match self {
            Self::Text(text) => text.clone(),
            Self::Int(number) => Str::from(number.to_string()),
            // In single precision, as upstream does.
            Self::Float(number) => Str::from(general_form(&format!("{:e}", *number as f32))),
            Self::Bool(value) => Str::new_static(if *value { "true" } else { "false" }),
        }
    }

    /// As Go shows it.
    fn shown(&self) -> String {
        match self {
            Self::Text(text) => quote(text),
            other => other.text().to_string(),
        }
    }
}
