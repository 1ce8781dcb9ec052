//! One pass over the text, guided by the schema. Containers under construction are frames on a
//! stack of our own, so nesting costs heap and not the thread's stack.
//!
//! Go checks the syntax of the whole document first, then reads on after a value of the wrong type,
//! but stops where a type's own reader (time, quantity) fails. To end up with the same error, all of
//! them are kept until the end: a syntax error wins over a fatal one, and that over the first wrong
//! type.

use std::{borrow::Cow, collections::HashSet, fmt::Write as _, sync::LazyLock};

use meta::{Map, Str, Value};
use schema::{Kind, Node, Schema, Type, TypeId};

use super::{
    DecodeError, StrictError, TREE_DEPTH_MAX, go_type,
    leaf::{self, LeafError},
    lexer::{Lexer, well_formed},
};

/// How to read a document.
#[derive(Clone, Copy, Debug)]
pub struct DecodeOptions {
    /// Look for unknown and duplicate fields.
    pub strict: bool,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self { strict: true }
    }
}

/// A document that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// In the order of the document, each once, at most 100.
    pub strict: Vec<StrictError>,
}

/// More is not reported.
pub(super) const STRICT_ERRORS_MAX: usize = 100;

/// Reads an object of a type. What the type doesn't know is dropped.
pub fn decode(
    bytes: &[u8],
    schema: &Schema,
    ty: TypeId,
    options: DecodeOptions,
) -> Result<Decoded, DecodeError> {
    let text = well_formed(bytes);
    let target = Target::Object(schema.get(ty));
    let mut decoded = Decoder::new(&text, Some(schema), options).run(target)?;
    if decoded.value.is_null() {
        // Go leaves the struct as it is.
        decoded.value = Value::object();
    }
    Ok(decoded)
}

/// Reads any JSON and keeps all of it, as Kubernetes reads custom resources.
pub fn decode_any(bytes: &[u8], options: DecodeOptions) -> Result<Decoded, DecodeError> {
    let text = well_formed(bytes);
    Decoder::new(&text, None, options).run(Target::Free { reported: true })
}

/// What the next value should be.
#[derive(Clone, Copy)]
enum Target<'a> {
    Node(&'a Node),
    Object(&'a Type),
    /// Anything. Duplicates are reported inside of objects that are read as such, but not inside of
    /// a field that Go keeps as raw bytes.
    Free {
        reported: bool,
    },
}

/// A container whose members are being read.
enum Frame<'a> {
    Struct {
        ty: &'a Type,
        members: Vec<(Str, Value)>,
        /// The field being read; none if the key is unknown and kept.
        field: Option<usize>,
        key: Str,
        /// One bit per field.
        seen: u128,
    },
    Map {
        of: Target<'a>,
        members: Vec<(Str, Value)>,
        key: Str,
        keys: Keys,
    },
    List {
        of: Target<'a>,
        items: Vec<Value>,
    },
}

/// What begins at a place: a whole value, or a container whose first member comes next.
enum Begun<'a> {
    Value(Value),
    Member(Target<'a>),
}

struct Decoder<'a> {
    lexer: Lexer<'a>,
    schema: Option<&'a Schema>,
    strict: bool,
    frames: Vec<Frame<'a>>,
    strict_errors: Vec<StrictError>,
    saved: Option<DecodeError>,
    fatal: Option<DecodeError>,
    /// From this depth on nothing is reported: Go reads these values with a plain decoder.
    quiet_from: Option<usize>,
}

/// An item of a list of texts that the schema has no node for.
static STRING: LazyLock<Node> = LazyLock::new(|| Kind::String.into());

impl<'a> Decoder<'a> {
    fn new(text: &'a str, schema: Option<&'a Schema>, options: DecodeOptions) -> Self {
        Self {
            lexer: Lexer::new(text),
            schema,
            strict: options.strict,
            frames: Vec::with_capacity(8),
            strict_errors: Vec::new(),
            saved: None,
            fatal: None,
            quiet_from: None,
        }
    }

    fn run(mut self, target: Target<'a>) -> Result<Decoded, DecodeError> {
        let value = self.value(target)?;
        self.lexer.end()?;
        match self.fatal.or(self.saved) {
            Some(error) => Err(error),
            None => Ok(Decoded { value, strict: self.strict_errors }),
        }
    }

    fn value(&mut self, mut target: Target<'a>) -> Result<Value, DecodeError> {
        loop {
            let mut value = match self.begin(target)? {
                Begun::Member(next) => {
                    target = next;
                    continue;
                }
                Begun::Value(value) => value,
            };
            // The value may be the last of its container, which then is the last of its own …
            target = loop {
                if self.frames.is_empty() {
                    return Ok(value);
                }
                self.attach(value);
                match self.next_member()? {
                    Some(next) => break next,
                    None => value = self.close(),
                }
            };
        }
    }

    fn begin(&mut self, target: Target<'a>) -> Result<Begun<'a>, DecodeError> {
        match self.lexer.next_token()? {
            b'{' => self.begin_object(target),
            b'[' => self.begin_array(target),
            byte => Ok(Begun::Value(self.leaf(byte, target)?)),
        }
    }

    fn begin_object(&mut self, target: Target<'a>) -> Result<Begun<'a>, DecodeError> {
        let map =
            |of| Frame::Map { of, members: Vec::new(), key: Str::default(), keys: Keys::new() };
        let frame = match target {
            Target::Object(ty) => Self::begin_struct(ty),
            Target::Free { .. } => map(target),
            Target::Node(node) => match &node.kind {
                Kind::Object(id) => Self::begin_struct(self.schema().get(*id)),
                Kind::SchemaOrBool(id)
                | Kind::SchemaOrArray(id)
                | Kind::SchemaOrStringArray(id) => {
                    self.quiet_from.get_or_insert(self.frames.len());
                    Self::begin_struct(self.schema().get(*id))
                }
                Kind::Map(item) => map(Target::Node(item)),
                Kind::Any | Kind::AnyObject => map(Target::Free { reported: false }),
                _ => return self.wrong_container(target, "object"),
            },
        };
        self.push(frame)?;
        if self.lexer.next_token()? == b'}' {
            self.lexer.at += 1;
            return Ok(Begun::Value(self.close()));
        }
        match self.member()? {
            Some(next) => Ok(Begun::Member(next)),
            None => Ok(Begun::Value(self.close())),
        }
    }

    fn begin_struct(ty: &'a Type) -> Frame<'a> {
        let members = Vec::with_capacity(ty.fields.len().min(8));
        Frame::Struct { ty, members, field: None, key: Str::default(), seen: 0 }
    }

    fn begin_array(&mut self, target: Target<'a>) -> Result<Begun<'a>, DecodeError> {
        let of = match target {
            Target::Free { .. } => target,
            Target::Object(_) => return self.wrong_container(target, "array"),
            Target::Node(node) => match &node.kind {
                Kind::List(item, _) => Target::Node(item),
                Kind::Any => Target::Free { reported: false },
                Kind::SchemaOrArray(id) => {
                    self.quiet_from.get_or_insert(self.frames.len());
                    Target::Object(self.schema().get(*id))
                }
                Kind::SchemaOrStringArray(_) => Target::Node(&STRING),
                _ => return self.wrong_container(target, "array"),
            },
        };
        self.push(Frame::List { of, items: Vec::new() })?;
        if self.lexer.next_token()? == b']' {
            self.lexer.at += 1;
            return Ok(Begun::Value(self.close()));
        }
        Ok(Begun::Member(of))
    }

    /// Opens a container, at its bracket.
    fn push(&mut self, frame: Frame<'a>) -> Result<(), DecodeError> {
        if self.frames.len() >= TREE_DEPTH_MAX {
            return Err(self.lexer.too_deep());
        }
        self.lexer.at += 1;
        self.frames.push(frame);
        Ok(())
    }

    fn wrong_container(
        &mut self,
        target: Target<'a>,
        found: &'static str,
    ) -> Result<Begun<'a>, DecodeError> {
        let error = match target {
            Target::Node(node) => leaf::container(&node.kind, found),
            _ => LeafError::Type { found: found.to_owned(), expected: None },
        };
        self.report(error, target);
        self.lexer.skip_value(self.frames.len())?;
        Ok(Begun::Value(Value::Null))
    }

    /// Puts a finished value where it belongs.
    fn attach(&mut self, value: Value) {
        match self.frames.last_mut().expect("the caller looked") {
            // To a struct, null is the same as absent.
            Frame::Struct { field: Some(_), .. } if value.is_null() => {}
            Frame::Struct { members, key, .. } => members.push((std::mem::take(key), value)),
            Frame::Map { members, key, of, .. } => {
                members.push((std::mem::take(key), or_zero(value, *of)));
            }
            Frame::List { items, of } => items.push(or_zero(value, *of)),
        }
    }

    /// Behind a member: the next one that is kept, or none at the end of the container.
    fn next_member(&mut self) -> Result<Option<Target<'a>>, DecodeError> {
        if let Some(Frame::List { of, .. }) = self.frames.last() {
            let of = *of;
            return Ok(self.lexer.another(b']')?.then_some(of));
        }
        if self.lexer.another(b'}')? { self.member() } else { Ok(None) }
    }

    /// At a key: reads on to the value of the first member that is kept.
    fn member(&mut self) -> Result<Option<Target<'a>>, DecodeError> {
        loop {
            let key = self.lexer.key()?;
            self.lexer.colon()?;
            if let Some(target) = self.enter(key) {
                return Ok(Some(target));
            }
            self.lexer.skip_value(self.frames.len())?;
            if !self.lexer.another(b'}')? {
                return Ok(None);
            }
        }
    }

    /// What a key stands for; none if its value is to be dropped.
    fn enter(&mut self, key: Cow<'a, str>) -> Option<Target<'a>> {
        let strict = self.strict;
        match self.frames.last_mut().expect("keys are inside of objects") {
            Frame::Struct { ty, field, key: current, seen, members } => {
                let ty = *ty;
                *field = ty.field_index(&key);
                let Some(index) = *field else {
                    if ty.preserve_unknown {
                        let repeated =
                            strict && members.iter().any(|(name, _)| name.as_str() == key);
                        *current = leaf::to_str(key);
                        if repeated {
                            self.duplicate();
                        }
                        return Some(Target::Free { reported: true });
                    }
                    if strict {
                        self.unknown(&key);
                    }
                    return None;
                };
                let known = &ty.fields[index];
                *current = known.name.clone();
                let bit = 1u128.checked_shl(index as u32).unwrap_or(0);
                let repeated = if bit == 0 {
                    members.iter().any(|(name, _)| *name == known.name)
                } else {
                    *seen & bit != 0
                };
                *seen |= bit;
                if repeated && strict {
                    self.duplicate();
                }
                Some(Target::Node(&known.node))
            }
            Frame::Map { of, members, key: current, keys } => {
                let of = *of;
                let key = leaf::to_str(key);
                let reported = strict && !matches!(of, Target::Free { reported: false });
                let repeated = reported && keys.repeats(members, &key);
                *current = key;
                if repeated {
                    self.duplicate();
                }
                Some(of)
            }
            Frame::List { .. } => None,
        }
    }

    fn close(&mut self) -> Value {
        if self.quiet_from.is_some_and(|depth| self.frames.len() == depth + 1) {
            self.quiet_from = None;
        }
        match self.frames.pop().expect("only open containers are closed") {
            Frame::Struct { members, .. } | Frame::Map { members, .. } => {
                Value::Object(Map::from_pairs(members))
            }
            Frame::List { items, .. } => Value::Array(items),
        }
    }

    fn leaf(&mut self, byte: u8, target: Target<'a>) -> Result<Value, DecodeError> {
        const FREE: &Kind = &Kind::Any;
        let kind = match target {
            Target::Node(node) => Some(&node.kind),
            Target::Free { .. } => Some(FREE),
            Target::Object(_) => None,
        };
        let wrong = |found: &str| Err(LeafError::Type { found: found.to_owned(), expected: None });
        let read = match byte {
            b'"' => {
                let start = self.lexer.at + 1;
                let text = self.lexer.string()?;
                let raw = &self.lexer.text[start..self.lexer.at - 1];
                kind.map_or_else(|| wrong("string"), |kind| leaf::string(kind, text, raw))
            }
            b'-' | b'0'..=b'9' => {
                let text = self.lexer.number()?;
                kind.map_or_else(|| wrong("number"), |kind| leaf::number(kind, text))
            }
            b't' | b'f' => {
                self.lexer.word(if byte == b't' { "true" } else { "false" })?;
                kind.map_or_else(|| wrong("bool"), |kind| leaf::bool(kind, byte == b't'))
            }
            b'n' => {
                self.lexer.word("null")?;
                return Ok(Value::Null);
            }
            _ => return Err(self.lexer.unexpected("looking for beginning of value")),
        };
        match read {
            Ok(value) => Ok(value),
            Err(error) => {
                self.report(error, target);
                Ok(Value::Null)
            }
        }
    }

    #[cold]
    fn report(&mut self, error: LeafError, target: Target<'a>) {
        match error {
            LeafError::Type { found, expected } => {
                let expected = match (expected, target) {
                    (Some(expected), _) => expected.to_owned(),
                    (None, Target::Node(node)) => go_type::of_node(node, self.schema()),
                    (None, Target::Object(ty)) => go_type::of_type(ty),
                    (None, Target::Free { .. }) => "interface {}".to_owned(),
                };
                let error = self.type_error(&found, &expected);
                self.saved.get_or_insert(error);
            }
            LeafError::FatalType { found, expected } => {
                let error = self.type_error(&found, expected);
                self.fatal.get_or_insert(error);
            }
            LeafError::Other(text) => {
                self.saved.get_or_insert(DecodeError::Value(text));
            }
            LeafError::Fatal(text) => {
                self.fatal.get_or_insert(DecodeError::Value(text));
            }
            LeafError::Ignored => {}
        }
    }

    /// Go names the innermost struct, and the path of fields from the outermost one.
    fn type_error(&self, found: &str, expected: &str) -> DecodeError {
        let mut innermost = None;
        let mut path: Vec<&str> = Vec::new();
        for frame in &self.frames {
            if let Frame::Struct { ty, field: Some(index), .. } = frame {
                let name = &ty.fields[*index].name;
                path.extend(go_type::inlined_from(ty, name));
                path.push(name);
                innermost = Some(*ty);
            }
        }
        let into = match innermost {
            Some(ty) => format!("struct field {}.{}", go_type::struct_name(ty), path.join(".")),
            None => "value".to_owned(),
        };
        DecodeError::Value(format!(
            "json: cannot unmarshal {found} into Go {into} of type {expected}"
        ))
    }

    #[cold]
    fn unknown(&mut self, key: &str) {
        let mut path = self.path_above();
        push_step(&mut path, key);
        self.save(StrictError::UnknownField(path));
    }

    /// The key that was just entered was there before.
    #[cold]
    fn duplicate(&mut self) {
        let mut path = self.path_above();
        if let Some(Frame::Struct { key, .. } | Frame::Map { key, .. }) = self.frames.last() {
            push_step(&mut path, key);
        }
        self.save(StrictError::DuplicateField(path));
    }

    fn save(&mut self, error: StrictError) {
        if self.quiet_from.is_some() {
            return;
        }
        if self.strict_errors.len() < STRICT_ERRORS_MAX && !self.strict_errors.contains(&error) {
            self.strict_errors.push(error);
        }
    }

    /// `spec.containers[0]`: the way to the innermost container.
    fn path_above(&self) -> String {
        let mut path = String::new();
        let parents = &self.frames[..self.frames.len().saturating_sub(1)];
        for frame in parents {
            match frame {
                Frame::Struct { key, .. } | Frame::Map { key, .. } => push_step(&mut path, key),
                Frame::List { items, .. } => {
                    let _ = write!(path, "[{}]", items.len());
                }
            }
        }
        path
    }

    fn schema(&self) -> &'a Schema {
        self.schema.expect("nodes come out of a schema")
    }
}

fn push_step(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

/// In a list or a map, null is the zero value of whatever it holds.
fn or_zero(value: Value, of: Target<'_>) -> Value {
    match (value, of) {
        (Value::Null, Target::Node(node)) => leaf::zero(node),
        (Value::Null, Target::Object(_)) => Value::object(),
        (value, _) => value,
    }
}

/// The keys of a map so far. Keys mostly come sorted, and then nothing is remembered.
struct Keys {
    sorted: bool,
    seen: Option<HashSet<Str>>,
}

/// Up to here a look at every key is cheaper than a set.
const KEYS_LINEAR_MAX: usize = 16;

impl Keys {
    const fn new() -> Self {
        Self { sorted: true, seen: None }
    }

    /// Is `key` among the keys of `members`, or was it before?
    fn repeats(&mut self, members: &[(Str, Value)], key: &Str) -> bool {
        if self.sorted {
            match members.last() {
                Some((last, _)) if last >= key => self.sorted = false,
                _ => return false,
            }
        }
        if members.len() <= KEYS_LINEAR_MAX {
            return members.iter().any(|(name, _)| name == key);
        }
        let seen =
            self.seen.get_or_insert_with(|| members.iter().map(|(name, _)| name.clone()).collect());
        !seen.insert(key.clone())
    }
}
