//! One pass over the text, guided by the schema. Containers under construction are frames on a
//! stack of our own, so nesting costs heap and not the thread's stack.
//!
//! Go checks the syntax of the whole document first, then reads on after a value of the wrong type,
//! but stops where a type's own reader (time, quantity) fails. To end up with the same error, all of
//! them are kept until the end: a syntax error wins over a fatal one, and that over the first wrong
//! type.

use std::{borrow::Cow, collections::HashSet, fmt::Write as _};

use meta::{
    Map, RawJson, Str, Value,
    limits::{FIELD_PATH_BYTES_MAX, STRICT_ERRORS_MAX, TreeSize},
};
use schema::{NodeType, Schema, Type, TypeId};

use super::{
    DecodeError, Found, GoType, Step, StrictError, TREE_DEPTH_MAX, TypeError, go_type,
    leaf::{self, LeafError},
    lexer::{Lexer, well_formed},
};
use crate::growing;

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
    /// In the order of the document, each once, at most 100. The last one counts the rest.
    pub strict: Vec<StrictError>,
}

/// Strict errors that are compared with those that are listed already; later ones are only counted.
/// Otherwise the same unknown field a million times would be a million comparisons of long paths.
const STRICT_ERRORS_COMPARED_MAX: usize = 10 * STRICT_ERRORS_MAX;

/// The first strict errors, and how many more there were.
pub fn list_strict_errors(mut errors: Vec<StrictError>) -> Vec<StrictError> {
    if errors.len() > STRICT_ERRORS_MAX + 1 {
        let rest = errors.drain(STRICT_ERRORS_MAX..);
        let more = rest.map(|error| if let StrictError::More(count) = error { count } else { 1 });
        let more = more.sum();
        errors.push(StrictError::More(more));
    }
    errors
}

/// Reads an object of a type. What the type doesn't know is dropped.
pub fn decode(
    bytes: &[u8],
    schema: &Schema,
    ty: TypeId,
    options: DecodeOptions,
) -> Result<Decoded, DecodeError> {
    decode_up_to(bytes, schema, ty, options, &mut TreeSize::unbounded())
}

/// Reads a request body: as [`decode`], with a bound on the memory that the tree takes.
pub fn decode_body(
    bytes: &[u8],
    schema: &Schema,
    ty: TypeId,
    options: DecodeOptions,
) -> Result<Decoded, DecodeError> {
    decode_up_to(bytes, schema, ty, options, &mut TreeSize::bounded())
}

fn decode_up_to(
    bytes: &[u8],
    schema: &Schema,
    ty: TypeId,
    options: DecodeOptions,
    size: &mut TreeSize,
) -> Result<Decoded, DecodeError> {
    let text = well_formed(bytes);
    let root = NodeType::Object(ty);
    let decoder = Decoder::new(&text, Some(schema), options, size);
    let mut decoded = decoder.run(Target::plain(&root))?;
    if decoded.value.is_null() {
        // Go leaves the struct as it is.
        decoded.value = Value::object();
    }
    Ok(decoded)
}

/// Reads any JSON and keeps all of it, as Kubernetes reads custom resources.
pub fn decode_any(bytes: &[u8], options: DecodeOptions) -> Result<Decoded, DecodeError> {
    decode_any_up_to(bytes, options, &mut TreeSize::unbounded())
}

/// Reads a request body: as [`decode_any`], with a bound on the memory that the tree takes.
pub fn decode_any_body(bytes: &[u8], options: DecodeOptions) -> Result<Decoded, DecodeError> {
    decode_any_up_to(bytes, options, &mut TreeSize::bounded())
}

/// Reads an answer: as [`decode_any`], with this bound on the memory that the tree takes.
pub fn decode_any_within(
    bytes: &[u8],
    options: DecodeOptions,
    tree_bytes_max: usize,
) -> Result<Decoded, DecodeError> {
    decode_any_up_to(bytes, options, &mut TreeSize::bounded_by(tree_bytes_max))
}

/// Reads any JSON as a part of a body: its tree counts together with the others.
pub(crate) fn decode_any_up_to(
    bytes: &[u8],
    options: DecodeOptions,
    size: &mut TreeSize,
) -> Result<Decoded, DecodeError> {
    let text = well_formed(bytes);
    Decoder::new(&text, None, options, size).run(Target::REPORTED)
}

/// What the next value should be. Two words that stay in registers; an enum here doubled the time.
#[derive(Clone, Copy)]
struct Target<'a> {
    kind: &'a NodeType,
    mode: Mode,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// As the kind says. Inside of any JSON duplicates are not reported: Go keeps it as raw bytes.
    Plain,
    /// Any JSON that Go reads, and finds duplicates in.
    Reported,
    /// An item of a list of schemas: an object of the kind's type.
    Schema,
    /// One of some bytes, which Go reads from a list of numbers too.
    Byte,
}

impl<'a> Target<'a> {
    const REPORTED: Target<'static> = Target { kind: &NodeType::Any, mode: Mode::Reported };
    const BYTE: Target<'static> = Target { kind: &NodeType::Int32, mode: Mode::Byte };

    fn plain(kind: &'a NodeType) -> Self {
        Self { kind, mode: Mode::Plain }
    }
}

/// A container whose members are being read. The last member is the one whose value comes next; until
/// then its value is null.
enum Frame<'a> {
    Struct {
        ty: &'a Type,
        members: Vec<(Str, Value)>,
        /// The field being read; none if the key is unknown and kept.
        field: Option<usize>,
        /// One bit per field.
        seen: u128,
        /// The unknown keys that are kept.
        keys: Keys,
    },
    Map {
        of: Target<'a>,
        members: Vec<(Str, Value)>,
        keys: Keys,
    },
    List {
        of: Target<'a>,
        items: Vec<Value>,
    },
}

struct Decoder<'a, 's> {
    lexer: Lexer<'a>,
    schema: Option<&'a Schema>,
    strict: bool,
    frames: Vec<Frame<'a>>,
    root: Value,
    strict_errors: Vec<StrictError>,
    /// Strict errors so far, and those of them that are not listed.
    strict_count: usize,
    strict_more: usize,
    /// The memory of the tree so far.
    size: &'s mut TreeSize,
    /// Buffers of closed containers. A container is copied out of its buffer when its length is known:
    /// grown one by one, a list of one item would take the memory of four.
    member_buffers: Vec<Vec<(Str, Value)>>,
    item_buffers: Vec<Vec<Value>>,
    saved: Option<DecodeError>,
    fatal: Option<DecodeError>,
    /// From this depth on nothing is reported: Go reads these values with a plain decoder.
    quiet_from: Option<usize>,
    /// The depth of the raw field that is being read, and where its text starts.
    raw_depth: usize,
    raw_start: usize,
}

/// No raw field is being read.
const NO_RAW: usize = usize::MAX;

impl<'a, 's> Decoder<'a, 's> {
    fn new(
        text: &'a str,
        schema: Option<&'a Schema>,
        options: DecodeOptions,
        size: &'s mut TreeSize,
    ) -> Self {
        Self {
            lexer: Lexer::new(text),
            schema,
            strict: options.strict,
            frames: Vec::with_capacity(8),
            root: Value::Null,
            strict_errors: Vec::new(),
            strict_count: 0,
            strict_more: 0,
            size,
            member_buffers: Vec::new(),
            item_buffers: Vec::new(),
            saved: None,
            fatal: None,
            quiet_from: None,
            raw_depth: NO_RAW,
            raw_start: 0,
        }
    }

    fn run(mut self, target: Target<'a>) -> Result<Decoded, DecodeError> {
        self.document(target)?;
        self.lexer.end()?;
        if self.strict_more > 0 {
            self.strict_errors.push(StrictError::More(self.strict_more));
        }
        match self.fatal.or(self.saved) {
            Some(error) => Err(error),
            None => Ok(Decoded { value: self.root, strict: self.strict_errors }),
        }
    }

    fn document(&mut self, mut target: Target<'a>) -> Result<(), DecodeError> {
        loop {
            if let Some(next) = self.begin(target)? {
                target = next;
                continue;
            }
            // The value may be the last of its container, which then is the last of its own …
            target = loop {
                if self.frames.is_empty() {
                    return Ok(());
                }
                match self.next_member()? {
                    Some(next) => break next,
                    None => self.close(),
                }
            };
        }
    }

    /// Reads a value and puts it where it belongs, unless it is a container with members: then says
    /// what the first one should be.
    fn begin(&mut self, target: Target<'a>) -> Result<Option<Target<'a>>, DecodeError> {
        let counted = match self.frames.last() {
            Some(Frame::Struct { .. } | Frame::Map { .. }) => self.size.add_member(),
            Some(Frame::List { .. }) | None => self.size.add_value(),
        };
        counted.map_err(|error| self.lexer.too_large(error))?;
        let byte = self.lexer.next_token()?;
        let target = if let NodeType::Raw = target.kind { self.begin_raw() } else { target };
        match byte {
            b'{' => self.begin_object(target),
            b'[' => self.begin_array(target),
            byte => self.leaf(byte, target).map(|()| None),
        }
    }

    /// A raw field is read as any JSON; its text is added at its end.
    fn begin_raw(&mut self) -> Target<'a> {
        (self.raw_depth, self.raw_start) = (self.frames.len(), self.lexer.at);
        Target::plain(&NodeType::Any)
    }

    #[cold]
    fn end_raw(&mut self, tree: Value) -> Value {
        self.raw_depth = NO_RAW;
        if tree.is_null() {
            return tree;
        }
        RawJson::new(&self.lexer.text[self.raw_start..self.lexer.at], tree).into()
    }

    fn begin_object(&mut self, target: Target<'a>) -> Result<Option<Target<'a>>, DecodeError> {
        if let NodeType::Any | NodeType::Map(_) | NodeType::AnyObject = target.kind
            && self.lexer.text.as_bytes().get(self.lexer.at + 1) == Some(&b'}')
        {
            // Most values in `managedFields`: the short way.
            self.open_container()?;
            self.lexer.at += 1;
            self.attach(Value::object());
            return Ok(None);
        }
        let frame = match target.kind {
            NodeType::Object(id) => self.begin_struct(*id),
            NodeType::SchemaOrArray(id) if target.mode == Mode::Schema => self.begin_struct(*id),
            NodeType::SchemaOrBool(id)
            | NodeType::SchemaOrArray(id)
            | NodeType::SchemaOrStringArray(id) => {
                self.quiet_from.get_or_insert(self.frames.len());
                self.begin_struct(*id)
            }
            NodeType::Map(item) => self.begin_map(Target::plain(&item.kind)),
            NodeType::Any => self.begin_map(target),
            NodeType::AnyObject => self.begin_map(Target::plain(&NodeType::Any)),
            _ => return self.wrong_container(target, Found::Object),
        };
        self.push(frame)?;
        if self.lexer.next_token()? == b'}' {
            self.lexer.at += 1;
            self.close();
            return Ok(None);
        }
        let first = self.member()?;
        if first.is_none() {
            self.close();
        }
        Ok(first)
    }

    fn begin_struct(&mut self, id: TypeId) -> Frame<'a> {
        let ty = self.schema.expect("types come out of a schema").get(id);
        let members = self.member_buffers.pop().unwrap_or_default();
        Frame::Struct { ty, members, field: None, seen: 0, keys: Keys::UNSORTED }
    }

    fn begin_map(&mut self, of: Target<'a>) -> Frame<'a> {
        let members = self.member_buffers.pop().unwrap_or_default();
        Frame::Map { of, members, keys: Keys::SORTED }
    }

    fn begin_array(&mut self, target: Target<'a>) -> Result<Option<Target<'a>>, DecodeError> {
        let of = match target.kind {
            NodeType::List(item, _) => Target::plain(&item.kind),
            NodeType::Any => target,
            NodeType::SchemaOrArray(_) if target.mode == Mode::Plain => {
                self.quiet_from.get_or_insert(self.frames.len());
                Target { mode: Mode::Schema, ..target }
            }
            NodeType::SchemaOrStringArray(_) => Target::plain(&NodeType::String),
            NodeType::Bytes => Target::BYTE,
            _ => return self.wrong_container(target, Found::Array),
        };
        let items = self.item_buffers.pop().unwrap_or_default();
        self.push(Frame::List { of, items })?;
        if self.lexer.next_token()? == b']' {
            self.lexer.at += 1;
            self.close();
            return Ok(None);
        }
        Ok(Some(of))
    }

    /// Opens a container, at its bracket.
    fn push(&mut self, frame: Frame<'a>) -> Result<(), DecodeError> {
        self.open_container()?;
        self.frames.push(frame);
        Ok(())
    }

    /// Reads the opening bracket of a container and counts it.
    #[inline]
    fn open_container(&mut self) -> Result<(), DecodeError> {
        if self.frames.len() >= TREE_DEPTH_MAX {
            return Err(self.lexer.too_deep());
        }
        self.size.add_container().map_err(|error| self.lexer.too_large(error))?;
        self.lexer.at += 1;
        Ok(())
    }

    fn wrong_container(
        &mut self,
        target: Target<'a>,
        found: Found,
    ) -> Result<Option<Target<'a>>, DecodeError> {
        self.report(leaf::container(target.kind, found), target);
        self.lexer.skip_value(self.frames.len())?;
        self.attach(Value::Null);
        Ok(None)
    }

    /// Puts a finished value where it belongs.
    #[inline]
    fn attach(&mut self, value: Value) {
        let value = if self.frames.len() == self.raw_depth { self.end_raw(value) } else { value };
        match self.frames.last_mut() {
            None => self.root = value,
            // To a struct, null is the same as absent.
            Some(Frame::Struct { members, field: Some(_), .. }) if value.is_null() => {
                members.pop();
            }
            Some(Frame::Struct { members, .. }) => set_last(members, value),
            Some(Frame::Map { members, of, .. }) => set_last(members, or_zero(value, *of)),
            Some(Frame::List { items, of }) => growing::push(items, or_zero(value, *of)),
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
            Frame::Struct { ty, field, seen, members, keys } => {
                let ty = *ty;
                *field = field_index(ty, &key, *field);
                let Some(index) = *field else {
                    if ty.preserve_unknown {
                        let repeated = strict && keys.repeats(members, &key);
                        growing::push(members, (leaf::to_str(key), Value::Null));
                        if repeated {
                            self.duplicate();
                        }
                        return Some(Target::REPORTED);
                    }
                    if strict {
                        self.unknown(&key);
                    }
                    return None;
                };
                let known = &ty.fields[index];
                let bit = 1u128.checked_shl(index as u32).unwrap_or(0);
                let repeated = if bit == 0 {
                    members.iter().any(|(name, _)| *name == known.name)
                } else {
                    *seen & bit != 0
                };
                *seen |= bit;
                members.push((known.name.clone(), Value::Null));
                if repeated && strict {
                    self.duplicate();
                }
                Some(Target::plain(&known.node.kind))
            }
            Frame::Map { of, members, keys } => {
                let of = *of;
                let raw = matches!((of.kind, of.mode), (NodeType::Any, Mode::Plain));
                let reported = strict && !raw;
                let repeated = reported && keys.repeats(members, &key);
                growing::push(members, (leaf::to_str(key), Value::Null));
                if repeated {
                    self.duplicate();
                }
                Some(of)
            }
            Frame::List { .. } => None,
        }
    }

    /// Closes the innermost container and puts it where it belongs.
    fn close(&mut self) {
        if self.quiet_from.is_some_and(|depth| self.frames.len() == depth + 1) {
            self.quiet_from = None;
        }
        let value = match self.frames.pop().expect("only open containers are closed") {
            Frame::Struct { mut members, seen, .. } => {
                // Without duplicates the order of equals doesn't matter, and sorting is cheaper.
                if seen.count_ones() as usize == members.len() {
                    members.sort_unstable_by(|a, b| a.0.cmp(&b.0));
                }
                let members = take_exact(members, &mut self.member_buffers);
                Value::Object(Map::from_pairs(members))
            }
            Frame::Map { members, .. } => {
                let members = take_exact(members, &mut self.member_buffers);
                Value::Object(Map::from_pairs(members))
            }
            Frame::List { items, of } if of.mode == Mode::Byte => leaf::bytes(&items),
            Frame::List { items, .. } => Value::Array(take_exact(items, &mut self.item_buffers)),
        };
        self.attach(value);
    }

    fn leaf(&mut self, byte: u8, target: Target<'a>) -> Result<(), DecodeError> {
        let kind = target.kind;
        let read = match byte {
            b'"' => {
                let start = self.lexer.at + 1;
                let text = self.lexer.string()?;
                if let NodeType::String | NodeType::Any = kind {
                    // Most values are texts: the short way.
                    self.attach(Value::String(leaf::to_str(text)));
                    return Ok(());
                }
                leaf::string(kind, text, &self.lexer.text[start..self.lexer.at - 1])
            }
            b'-' | b'0'..=b'9' if target.mode == Mode::Byte => leaf::byte(self.lexer.number()?),
            b'-' | b'0'..=b'9' => leaf::number(kind, self.lexer.number()?),
            b't' | b'f' => {
                self.lexer.word(if byte == b't' { "true" } else { "false" })?;
                leaf::bool(kind, byte == b't')
            }
            b'n' => {
                self.lexer.word("null")?;
                Ok(Value::Null)
            }
            _ => return Err(self.lexer.unexpected("looking for beginning of value")),
        };
        let value = read.unwrap_or_else(|error| {
            // Go does not read what is raw, so a number may be too large there.
            if self.raw_depth == NO_RAW {
                self.report(error, target);
            }
            Value::Null
        });
        self.attach(value);
        Ok(())
    }

    #[cold]
    fn report(&mut self, error: LeafError, target: Target<'a>) {
        // Only the first error of a kind counts, and its path may be long.
        let known = match error {
            LeafError::Type { .. } | LeafError::Other(_) => self.saved.is_some(),
            LeafError::FatalType { .. } | LeafError::Fatal(_) => self.fatal.is_some(),
            LeafError::Ignored => true,
        };
        if known {
            return;
        }
        match error {
            LeafError::Type { found, expected } => {
                let expected = match (expected, self.schema) {
                    (Some(expected), _) => go_type::basic(expected),
                    (None, Some(_)) if target.mode == Mode::Byte => go_type::basic("uint8"),
                    (None, Some(schema)) => go_type::of_kind(target.kind, schema),
                    (None, None) => go_type::basic("interface {}"),
                };
                let error = self.type_error(found, expected);
                self.saved.get_or_insert(error);
            }
            LeafError::FatalType { found, expected } => {
                let error = self.type_error(found, go_type::basic(expected));
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
    fn type_error(&self, found: Found, expected: GoType) -> DecodeError {
        let mut innermost = None;
        let mut go_path: Vec<Str> = Vec::new();
        for frame in &self.frames {
            if let Frame::Struct { ty, field: Some(index), .. } = frame {
                let name = &ty.fields[*index].name;
                go_path.extend(go_type::inlined_from(ty, name).map(Str::new_static));
                go_path.push(name.clone());
                innermost = Some((*ty, name));
            }
        }
        let named = innermost.and_then(|(ty, field)| go_type::named(ty, field, &expected));
        DecodeError::Type(Box::new(TypeError {
            found,
            wanted: named.unwrap_or(expected),
            struct_name: innermost.map(|(ty, _)| Str::new(go_type::struct_name(ty))),
            go_path,
            at: self.frames.iter().filter_map(Frame::step).collect(),
        }))
    }

    #[cold]
    fn unknown(&mut self, key: &str) {
        if self.is_listed() {
            let mut path = self.path_above();
            push_step(&mut path, key);
            self.save(StrictError::UnknownField(shortened(path)));
        }
    }

    /// The key that was just entered was there before.
    #[cold]
    fn duplicate(&mut self) {
        if self.is_listed() {
            let mut path = self.path_above();
            if let Some(frame) = self.frames.last() {
                frame.push_step_to(&mut path);
            }
            self.save(StrictError::DuplicateField(shortened(path)));
        }
    }

    /// Whether another strict error is listed; otherwise it is counted.
    fn is_listed(&mut self) -> bool {
        if self.quiet_from.is_some() {
            return false;
        }
        self.strict_count += 1;
        let listed = self.strict_errors.len() < STRICT_ERRORS_MAX
            && self.strict_count <= STRICT_ERRORS_COMPARED_MAX;
        self.strict_more += usize::from(!listed);
        listed
    }

    fn save(&mut self, error: StrictError) {
        if !self.strict_errors.contains(&error) {
            self.strict_errors.push(error);
        }
    }

    /// `spec.containers[0]`: the way to the innermost container.
    fn path_above(&self) -> String {
        let mut path = String::new();
        let parents = &self.frames[..self.frames.len().saturating_sub(1)];
        for frame in parents {
            if path.len() > FIELD_PATH_BYTES_MAX {
                break;
            }
            frame.push_step_to(&mut path);
        }
        path
    }
}

/// A path of some thousand long keys is cut: there may be a hundred of them in one answer.
fn shortened(path: String) -> String {
    if path.len() <= FIELD_PATH_BYTES_MAX {
        return path;
    }
    let end = path.floor_char_boundary(FIELD_PATH_BYTES_MAX);
    format!("{}...", &path[..end])
}

/// The content of a buffer in a vector of exactly its size; the buffer is used again. A long one is
/// given away instead, as copying it would double the memory for a moment.
fn take_exact<T>(mut buffer: Vec<T>, buffers: &mut Vec<Vec<T>>) -> Vec<T> {
    if buffer.len() > BUFFER_LEN_MAX {
        buffer.shrink_to_fit();
        return buffer;
    }
    let mut exact = Vec::with_capacity(buffer.len());
    exact.append(&mut buffer);
    buffers.push(buffer);
    exact
}

/// Longer buffers are not used again.
const BUFFER_LEN_MAX: usize = 256;

impl Frame<'_> {
    /// The step to the member that is being read.
    fn step(&self) -> Option<Step> {
        match self {
            Self::Struct { members, .. } | Self::Map { members, .. } => {
                members.last().map(|(key, _)| Step::Key(key.clone()))
            }
            Self::List { items, .. } => Some(Step::Index(items.len())),
        }
    }

    /// Appends the step to the member that is being read.
    fn push_step_to(&self, path: &mut String) {
        match self {
            Self::Struct { members, .. } | Self::Map { members, .. } => {
                if let Some((key, _)) = members.last() {
                    push_step(path, key);
                }
            }
            Self::List { items, .. } => {
                let _ = write!(path, "[{}]", items.len());
            }
        }
    }
}

fn push_step(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(&key[..key.floor_char_boundary(FIELD_PATH_BYTES_MAX + 1)]);
}

fn set_last(members: &mut [(Str, Value)], value: Value) {
    if let Some((_, place)) = members.last_mut() {
        *place = value;
    }
}

/// The place of a key among the fields. Most documents come in the order of the fields, so the next
/// ones are tried first.
fn field_index(ty: &Type, key: &str, last: Option<usize>) -> Option<usize> {
    const LOOK_AHEAD: usize = 3;
    let next = last.map_or(0, |last| last + 1);
    let ahead = ty.fields.iter().enumerate().skip(next).take(LOOK_AHEAD);
    for (index, field) in ahead {
        if field.name == key {
            return Some(index);
        }
    }
    ty.field_index(key)
}

/// In a list or a map, null is the zero value of whatever it holds.
fn or_zero(value: Value, of: Target<'_>) -> Value {
    match value {
        Value::Null if of.mode == Mode::Schema => Value::object(),
        Value::Null => leaf::zero(of.kind),
        value => value,
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
    const SORTED: Self = Self { sorted: true, seen: None };
    /// For an object whose known members come in any order.
    const UNSORTED: Self = Self { sorted: false, seen: None };

    /// Is `key` among the keys of `members`, or was it before?
    fn repeats(&mut self, members: &[(Str, Value)], key: &str) -> bool {
        if self.sorted {
            match members.last() {
                Some((last, _)) if last.as_str() >= key => self.sorted = false,
                _ => return false,
            }
        }
        if members.len() <= KEYS_LINEAR_MAX {
            return members.iter().any(|(name, _)| name == key);
        }
        let seen =
            self.seen.get_or_insert_with(|| members.iter().map(|(name, _)| name.clone()).collect());
        !seen.insert(Str::new(key))
    }
}
