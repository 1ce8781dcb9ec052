//! Converts YAML nodes to JSON: aliases and merges are resolved, keys become strings.
//!
//! Aliases can expand a small document to a huge one. The expansion is bounded by go-yaml's rule (the
//! larger a document gets, the smaller the share of it that may come from aliases), and by the bytes
//! that come from aliases, which go-yaml does not count.

use std::collections::HashMap;

use meta::{
    Map, Str, Value,
    field::quote,
    limits::{FIELD_PATH_BYTES_MAX, QUOTED_BYTES_MAX, STRICT_ERRORS_MAX, TreeSize, cut},
};

use super::{
    Converted, YamlError,
    emit::general_form,
    load::{Node, NodeIndex, NodeKind, Tree, too_deep},
    resolve::{Resolved, resolve},
};
use crate::base64;

/// Deeper trees are refused: the conversion recurses. The parser has the same limit for flow
/// collections (`[`, `{`).
const TREE_DEPTH_MAX: usize = 250;

/// Bytes of scalars that come from aliases. A request body has no more without aliases.
const ALIAS_BYTES_MAX: usize = 3 * 1024 * 1024;

pub(super) fn convert(tree: &Tree<'_>) -> Result<Converted, YamlError> {
    let Some(root) = tree.root else { return Ok(Converted::default()) };
    // The document counts as a node of its own.
    let size = TreeSize::bounded();
    let count = Count { all: 1, from_aliases: 0, bytes_from_aliases: 0, size };
    let mut converter =
        Converter { tree, duplicates: Vec::new(), more_duplicates: 0, count, aliases: 0 };
    let value = converter.node(root, 0)?;
    let Converter { mut duplicates, more_duplicates, .. } = converter;
    if more_duplicates > 0 {
        duplicates.push(format!("and {more_duplicates} more keys already set in map"));
    }
    Ok(Converted { value, duplicates })
}

struct Converter<'a> {
    tree: &'a Tree<'a>,
    duplicates: Vec<String>,
    /// Duplicates that are not listed.
    more_duplicates: usize,
    count: Count,
    /// How many aliases are being followed.
    aliases: usize,
}

/// How much has been converted, and how much of it because of aliases.
struct Count {
    all: u32,
    from_aliases: u32,
    bytes_from_aliases: usize,
    /// The memory of the tree so far; keys count as values.
    size: TreeSize,
}

/// What a key is before it becomes a text. Keys that differ here may become the same text.
#[derive(Clone, PartialEq)]
enum Key {
    Text(Str),
    Int(i64),
    Float(f64),
    Bool(bool),
}

/// A [`Key`] that can be looked up.
#[derive(PartialEq, Eq, Hash)]
enum KeyIdentity {
    Text(Str),
    Int(i64),
    /// The bits of a float that is neither NaN, which equals nothing, nor `-0.0`.
    Float(u64),
    Bool(bool),
}

/// A mapping under construction.
#[derive(Default)]
struct Members {
    pairs: Vec<(Key, Value)>,
    /// The places of the keys, once there are many.
    index: HashMap<KeyIdentity, u32>,
}

/// Up to here a look at every key is cheaper than an index.
const KEYS_LINEAR_MAX: usize = 12;

impl Converter<'_> {
    fn node(&mut self, at: NodeIndex, depth: usize) -> Result<Value, YamlError> {
        self.count()?;
        if depth > TREE_DEPTH_MAX {
            return Err(too_deep());
        }
        let node = &self.tree.nodes[at as usize];
        match &node.kind {
            NodeKind::Scalar { text, tag, plain } => {
                self.count_bytes(text)?;
                scalar_value(text, tag, *plain)
            }
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
            NodeKind::Alias(target) => {
                self.aliases += 1;
                let value = self.node(*target, depth)?;
                self.aliases -= 1;
                Ok(value)
            }
        }
    }

    fn mapping(
        &mut self,
        children: &[NodeIndex],
        members: &mut Members,
        depth: usize,
    ) -> Result<(), YamlError> {
        for pair in children.chunks_exact(2) {
            let (key_node, value_node) = (&self.tree.nodes[pair[0] as usize], pair[1]);
            if is_merge(key_node) {
                self.merge(value_node, members, depth)?;
                continue;
            }
            let key = self.key(pair[0], value_node, depth)?;
            let value = self.node(value_node, depth + 1)?;
            if let Some(key) = members.set(key, value) {
                if self.duplicates.len() == STRICT_ERRORS_MAX {
                    self.more_duplicates += 1;
                    continue;
                }
                let line = self.tree.nodes[value_node as usize].line;
                let key = key.shown();
                self.duplicates.push(format!("line {line}: key {key} already set in map"));
            }
        }
        Ok(())
    }

    /// `<<`: the members of one or several other mappings. They overwrite existing ones.
    fn merge(
        &mut self,
        at: NodeIndex,
        members: &mut Members,
        depth: usize,
    ) -> Result<(), YamlError> {
        match &self.tree.nodes[at as usize].kind {
            NodeKind::Sequence(children) => {
                // Backwards, because the earlier ones win.
                for child in children.iter().rev() {
                    if matches!(self.tree.nodes[*child as usize].kind, NodeKind::Sequence(_)) {
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
        at: NodeIndex,
        members: &mut Members,
        depth: usize,
    ) -> Result<(), YamlError> {
        self.count()?;
        if depth > TREE_DEPTH_MAX {
            return Err(too_deep());
        }
        match &self.tree.nodes[at as usize].kind {
            NodeKind::Mapping(children) => self.mapping(children, members, depth + 1),
            NodeKind::Alias(target) => {
                let NodeKind::Mapping(children) = &self.tree.nodes[*target as usize].kind else {
                    return Err(want_map());
                };
                self.aliases += 1;
                self.count()?;
                self.mapping(children, members, depth + 1)?;
                self.aliases -= 1;
                Ok(())
            }
            _ => Err(want_map()),
        }
    }

    fn key(&mut self, at: NodeIndex, value: NodeIndex, depth: usize) -> Result<Key, YamlError> {
        let mut node = &self.tree.nodes[at as usize];
        let mut aliases = self.aliases;
        while let NodeKind::Alias(target) = &node.kind {
            aliases += 1;
            node = &self.tree.nodes[*target as usize];
        }
        if let NodeKind::Scalar { text, tag, plain } = &node.kind {
            self.count()?;
            if aliases > 0 {
                self.count_alias_bytes(text)?;
            }
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

    fn unsupported_key(
        &mut self,
        ty: &str,
        key: &str,
        value: NodeIndex,
        depth: usize,
    ) -> YamlError {
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
        let Count { all, from_aliases, .. } = &mut self.count;
        *all += 1;
        if self.aliases > 0 {
            *from_aliases += 1;
        }
        let share = f64::from(*from_aliases) / f64::from(*all);
        if *from_aliases > 100 && *all > 1000 && share > allowed_share(*all) {
            return Err(excessive_aliasing());
        }
        let counted = self.count.size.add_value();
        counted.map_err(|error| YamlError::Yaml(error.to_string()))
    }

    fn count_bytes(&mut self, text: &str) -> Result<(), YamlError> {
        if self.aliases > 0 { self.count_alias_bytes(text) } else { Ok(()) }
    }

    fn count_alias_bytes(&mut self, text: &str) -> Result<(), YamlError> {
        self.count.bytes_from_aliases += text.len();
        if self.count.bytes_from_aliases > ALIAS_BYTES_MAX {
            return Err(excessive_aliasing());
        }
        Ok(())
    }
}

fn excessive_aliasing() -> YamlError {
    YamlError::Yaml("document contains excessive aliasing".to_owned())
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
        let text = cut(text, QUOTED_BYTES_MAX);
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

/// A value as a Go program would write it; a long text is cut.
fn go_syntax(value: &Value) -> String {
    let mut out = String::new();
    write_go_syntax(value, &mut out);
    cut(&out, QUOTED_BYTES_MAX).into_owned()
}

fn write_go_syntax(value: &Value, out: &mut String) {
    // Enough to be cut by the caller.
    if out.len() > QUOTED_BYTES_MAX {
        return;
    }
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::String(text) => out.push_str(&quote(text)),
        Value::Array(items) => {
            out.push_str("[]interface {}{");
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_go_syntax(item, out);
            }
            out.push('}');
        }
        Value::Object(map) => {
            out.push_str("map[interface {}]interface {}{");
            for (at, (key, value)) in map.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                out.push_str(&quote(key));
                out.push(':');
                write_go_syntax(value, out);
            }
            out.push('}');
        }
        Value::Bool(_) | Value::Number(_) | Value::Raw(_) => {
            out.push_str(&meta::json::to_string(value));
        }
    }
}

fn is_merge(node: &Node<'_>) -> bool {
    match &node.kind {
        NodeKind::Scalar { text, tag, plain } => text == "<<" && (*plain || **tag == *"!!merge"),
        _ => false,
    }
}

fn want_map() -> YamlError {
    YamlError::Yaml("map merge requires map or sequence of maps as the value".to_owned())
}

impl Members {
    /// Sets a member; returns the key if it was set before.
    fn set(&mut self, key: Key, value: Value) -> Option<Key> {
        if let Some(place) = self.find(&key) {
            self.pairs[place].1 = value;
            return Some(key);
        }
        self.pairs.push((key, value));
        None
    }

    /// The place of a key. Otherwise remembers that it comes next.
    fn find(&mut self, key: &Key) -> Option<usize> {
        if self.pairs.len() < KEYS_LINEAR_MAX {
            return self.pairs.iter().position(|(known, _)| known == key);
        }
        if self.index.is_empty() {
            let places = self.pairs.iter().zip(0..);
            self.index =
                places.filter_map(|((key, _), place)| Some((key.identity()?, place))).collect();
        }
        let next = self.pairs.len() as u32;
        let place = *self.index.entry(key.identity()?).or_insert(next);
        (place != next).then_some(place as usize)
    }

    fn into_map(self) -> Map {
        Map::from_pairs(self.pairs.into_iter().map(|(key, value)| (key.text(), value)).collect())
    }
}

impl Key {
    /// None for a key that equals no other, not even itself.
    fn identity(&self) -> Option<KeyIdentity> {
        Some(match self {
            Self::Text(text) => KeyIdentity::Text(text.clone()),
            Self::Int(number) => KeyIdentity::Int(*number),
            Self::Float(number) if number.is_nan() => return None,
            // `-0.0` is `0.0`.
            Self::Float(number) => KeyIdentity::Float((number + 0.0).to_bits()),
            Self::Bool(value) => KeyIdentity::Bool(*value),
        })
    }

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
            Self::Text(text) => quote(&cut(text, FIELD_PATH_BYTES_MAX)),
            other => other.text().to_string(),
        }
    }
}
