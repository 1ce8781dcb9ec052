//! CBOR in Kubernetes' profile: a self-described document, strings as byte strings, `[]byte`
//! tagged, floats in their shortest form. Served behind a feature gate.
//!
//! The decoder is written by hand: more than half of CBOR is rejected here.

use std::borrow::Cow;

use meta::{
    Map, Number, Str, Value,
    cancel::interruptible,
    limits::{FIELD_PATH_BYTES_MAX, OBJECT_DEPTH_MAX, TooLarge, TreeSize, cut},
};
use schema::{Node, NodeType, Schema, TypeId};
use thiserror::Error;

use crate::{base64, growing};

/// Every document begins with this: the self-described CBOR tag.
const SELF_DESCRIBED: [u8; 3] = [0xd9, 0xd9, 0xf7];

/// Deeper documents are refused, as JSON is. A tag counts as a level.
const DEPTH_MAX: usize = OBJECT_DEPTH_MAX;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CborError {
    #[error("unexpected EOF")]
    UnexpectedEnd,
    #[error("cbor: {0} bytes of extraneous data starting at index {1}")]
    Extraneous(usize, usize),
    #[error("cbor: exceeded max nested level {DEPTH_MAX}")]
    TooDeep,
    #[error("cbor: {0}")]
    TooLarge(#[from] TooLarge),
    #[error("cbor: found duplicate map key {0:?}")]
    DuplicateKey(String),
    #[error("cbor: map key is of type {0} and cannot be used as a name")]
    Key(&'static str),
    #[error("cbor: invalid UTF-8 string")]
    Utf8,
    #[error("cbor: {0} overflows Go's int64")]
    Overflow(u64),
    #[error("cbor: invalid additional information {0} for type {1}")]
    Reserved(u8, u8),
    #[error("cbor: simple value {0} is not recognized")]
    Simple(u8),
    #[error("cbor: NaN and infinity are not accepted")]
    NotFinite,
}

/// Reads one document; anything behind it is an error.
pub fn decode(bytes: &[u8]) -> Result<Value, CborError> {
    let start = if bytes.starts_with(&SELF_DESCRIBED) { SELF_DESCRIBED.len() } else { 0 };
    let mut reader = Reader { bytes, at: start, size: TreeSize::bounded() };
    let value = reader.document()?;
    match bytes.len() - reader.at {
        0 => Ok(value),
        more => Err(CborError::Extraneous(more, reader.at)),
    }
}

/// A document without a schema: custom resources, `Status`.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut out = SELF_DESCRIBED.to_vec();
    write(value, None, &mut out);
    out
}

/// A document of a built-in type: its `[]byte` fields are bytes, not text.
pub fn encode_typed(value: &Value, schema: &Schema, ty: TypeId) -> Vec<u8> {
    let mut out = SELF_DESCRIBED.to_vec();
    write_struct(value, schema, ty, &mut out);
    out
}

/// A watch event: `{"type": …, "object": …}` around a document, which keeps its mark.
pub fn watch_event(ty: &str, document: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(document.len() + 24);
    head(&mut out, MAP, 2);
    text(&mut out, "type");
    text(&mut out, ty);
    text(&mut out, "object");
    out.extend_from_slice(document);
    out
}

// The major types.
const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

/// Members that memory is reserved for before they are read.
const CAPACITY_MAX: u64 = 4;

/// Bytes that are base64 where they become text.
const TAG_LATER_BASE64: u64 = 22;

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The memory of the tree so far.
    size: TreeSize,
}

/// A container whose members are being read: nesting costs heap and not the thread's stack.
struct Frame {
    /// How many are to come; none if a break ends them.
    left: Option<u64>,
    container: Container,
}

enum Container {
    List(Vec<Value>),
    /// The last member is the one whose value comes next; until then its value is null.
    Map(Vec<(Str, Value)>),
}

impl Frame {
    fn add(&mut self, value: Value) {
        match &mut self.container {
            Container::List(items) => growing::push(items, value),
            Container::Map(members) => {
                if let Some((_, place)) = members.last_mut() {
                    *place = value;
                }
            }
        }
    }

    fn close(self) -> Result<Value, CborError> {
        match self.container {
            Container::List(mut items) => {
                items.shrink_to_fit();
                Ok(Value::Array(items))
            }
            Container::Map(mut members) => {
                members.shrink_to_fit();
                // Sorted once: members that are inserted one by one would move all later ones each
                // time.
                members.sort_by(|a, b| a.0.cmp(&b.0));
                if let Some([(key, _), _]) = members.array_windows().find(|[a, b]| a.0 == b.0) {
                    return Err(duplicate_key(key));
                }
                Ok(Value::Object(Map::from_pairs(members)))
            }
        }
    }
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Value, CborError> {
        let mut frames: Vec<Frame> = Vec::new();
        // In a row.
        let mut tags = 0;
        loop {
            let (major, info) = self.initial()?;
            if frames.len() + tags >= DEPTH_MAX && matches!(major, ARRAY | MAP | TAG) {
                return Err(CborError::TooDeep);
            }
            let mut value = match major {
                TAG => match self.argument(major, info)? {
                    TAG_LATER_BASE64 => Some(self.base64()?),
                    // Times may have tag 0; no other tag carries information.
                    _ => {
                        tags += 1;
                        continue;
                    }
                },
                ARRAY | MAP => {
                    self.size.add_container()?;
                    frames.push(self.open(major, info)?);
                    None
                }
                _ => Some(self.leaf(major, info)?),
            };
            tags = 0;
            // The value may be the last of its container, which then is the last of its own …
            loop {
                let Some(frame) = frames.last_mut() else {
                    return Ok(value.unwrap_or_default());
                };
                if let Some(value) = value.take() {
                    frame.add(value);
                }
                if self.next_member(frame)? {
                    break;
                }
                value = frames.pop().map(Frame::close).transpose()?;
            }
        }
    }

    fn leaf(&mut self, major: u8, info: u8) -> Result<Value, CborError> {
        match major {
            UNSIGNED => {
                let number = self.argument(major, info)?;
                let int = i64::try_from(number).map_err(|_| CborError::Overflow(number))?;
                Ok(Value::from(int))
            }
            NEGATIVE => {
                let number = self.argument(major, info)?;
                let int = i64::try_from(number).map_err(|_| CborError::Overflow(number))?;
                Ok(Value::from(-1 - int))
            }
            BYTES | TEXT => {
                let bytes = self.string(major, info)?;
                Ok(Value::from(Str::new(utf8(&bytes)?)))
            }
            _ => self.simple(info),
        }
    }

    /// Bytes that are base64 where they become text.
    fn base64(&mut self) -> Result<Value, CborError> {
        let (major, info) = self.initial()?;
        if major != BYTES {
            return Err(CborError::Reserved(info, major));
        }
        Ok(Value::from(base64::encode(&self.string(major, info)?)))
    }

    fn open(&mut self, major: u8, info: u8) -> Result<Frame, CborError> {
        let left = if info == INDEFINITE { None } else { Some(self.argument(major, info)?) };
        // The bytes that announce many members may be all that there is.
        let capacity = left.map_or(0, |left| left.min(CAPACITY_MAX) as usize);
        let container = match major {
            ARRAY => Container::List(Vec::with_capacity(capacity)),
            _ => Container::Map(Vec::with_capacity(capacity)),
        };
        Ok(Frame { left, container })
    }

    /// Whether another member follows; reads its key.
    fn next_member(&mut self, frame: &mut Frame) -> Result<bool, CborError> {
        match &mut frame.left {
            Some(0) => return Ok(false),
            Some(left) => *left -= 1,
            None if self.is_break()? => return Ok(false),
            None => {}
        }
        if let Container::Map(members) = &mut frame.container {
            self.size.add_member()?;
            let (major, info) = self.initial()?;
            if major != BYTES && major != TEXT {
                return Err(CborError::Key(MAJOR_NAMES[usize::from(major)]));
            }
            let key = self.string(major, info)?;
            let key = utf8(&key)?;
            // All are compared at the end; this ends a long run of one key before it takes memory.
            if members.last().is_some_and(|(last, _)| last == key) {
                return Err(duplicate_key(key));
            }
            growing::push(members, (Str::new(key), Value::Null));
        } else {
            self.size.add_value()?;
        }
        Ok(true)
    }

    /// A string, its pieces put together.
    fn string(&mut self, major: u8, info: u8) -> Result<Cow<'a, [u8]>, CborError> {
        if info != INDEFINITE {
            let length = self.argument(major, info)?;
            return Ok(Cow::Borrowed(self.take(length)?));
        }
        let mut all = Vec::new();
        while !self.is_break()? {
            let (piece_major, piece_info) = self.initial()?;
            if piece_major != major || piece_info == INDEFINITE {
                return Err(CborError::Reserved(piece_info, piece_major));
            }
            let length = self.argument(major, piece_info)?;
            all.extend_from_slice(self.take(length)?);
        }
        Ok(Cow::Owned(all))
    }

    fn simple(&mut self, info: u8) -> Result<Value, CborError> {
        let float = match info {
            20 => return Ok(Value::from(false)),
            21 => return Ok(Value::from(true)),
            22 => return Ok(Value::Null),
            25 => half(self.fixed::<2>().map(u16::from_be_bytes)?),
            26 => f64::from(f32::from_be_bytes(self.fixed()?)),
            27 => f64::from_be_bytes(self.fixed()?),
            24 => return Err(CborError::Simple(self.fixed::<1>()?[0])),
            other => return Err(CborError::Simple(other)),
        };
        if !float.is_finite() {
            return Err(CborError::NotFinite);
        }
        Ok(Value::Number(Number::Float(float)))
    }

    fn initial(&mut self) -> Result<(u8, u8), CborError> {
        let [byte] = self.fixed()?;
        Ok((byte >> 5, byte & 0x1f))
    }

    fn argument(&mut self, major: u8, info: u8) -> Result<u64, CborError> {
        Ok(match info {
            0..=23 => u64::from(info),
            24 => u64::from(self.fixed::<1>()?[0]),
            25 => u64::from(u16::from_be_bytes(self.fixed()?)),
            26 => u64::from(u32::from_be_bytes(self.fixed()?)),
            27 => u64::from_be_bytes(self.fixed()?),
            other => return Err(CborError::Reserved(other, major)),
        })
    }

    fn is_break(&mut self) -> Result<bool, CborError> {
        let next = *self.bytes.get(self.at).ok_or(CborError::UnexpectedEnd)?;
        self.at += usize::from(next == 0xff);
        Ok(next == 0xff)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], CborError> {
        let taken = self.take(N as u64)?;
        taken.try_into().map_err(|_| CborError::UnexpectedEnd)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], CborError> {
        let rest = &self.bytes[self.at..];
        let length = usize::try_from(length).map_err(|_| CborError::UnexpectedEnd)?;
        let taken = rest.get(..length).ok_or(CborError::UnexpectedEnd)?;
        self.at += length;
        Ok(taken)
    }
}

const INDEFINITE: u8 = 31;

fn duplicate_key(key: &str) -> CborError {
    CborError::DuplicateKey(cut(key, FIELD_PATH_BYTES_MAX).into_owned())
}

const MAJOR_NAMES: [&str; 8] = [
    "positive integer",
    "negative integer",
    "byte string",
    "UTF-8 text string",
    "array",
    "map",
    "tag",
    "primitives",
];

fn utf8(bytes: &[u8]) -> Result<&str, CborError> {
    std::str::from_utf8(bytes).map_err(|_| CborError::Utf8)
}

fn half(bits: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => mantissa * 2f64.powi(-24),
        0x1f if mantissa == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1.0 + mantissa / 1024.0) * 2f64.powi(exponent - 15),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

fn write(value: &Value, place: Option<(&Node, &Schema)>, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0xf6),
        Value::Bool(flag) => out.push(0xf4 + u8::from(*flag)),
        Value::Number(Number::Int(int)) if *int < 0 => head(out, NEGATIVE, !*int as u64),
        Value::Number(Number::Int(int)) => head(out, UNSIGNED, *int as u64),
        Value::Number(Number::Float(float)) => write_float(*float, out),
        Value::String(string) => match place {
            Some((Node { kind: NodeType::Bytes, .. }, _))
                if let Ok(bytes) = base64::decode(string) =>
            {
                head(out, TAG, TAG_LATER_BASE64);
                head(out, BYTES, bytes.len() as u64);
                out.extend_from_slice(&bytes);
            }
            _ => text(out, string),
        },
        Value::Array(items) => {
            head(out, ARRAY, items.len() as u64);
            let item_place = place.and_then(|(node, schema)| match &node.kind {
                NodeType::List(item, _) => Some((&**item, schema)),
                _ => None,
            });
            for item in interruptible(items.iter()) {
                write(item, item_place, out);
            }
        }
        Value::Object(map) => match place {
            Some((Node { kind: NodeType::Object(ty), .. }, schema)) => {
                write_struct(value, schema, *ty, out);
            }
            Some((Node { kind: NodeType::Map(item), .. }, schema)) => {
                write_map(map, |_| Some((&**item, schema)), out);
            }
            _ => write_map(map, |_| None, out),
        },
        Value::Raw(raw) => write(raw.tree(), None, out),
    }
}

fn write_struct(value: &Value, schema: &Schema, ty: TypeId, out: &mut Vec<u8>) {
    let Value::Object(map) = value else { return write(value, None, out) };
    let ty = schema.get(ty);
    write_map(map, |key| ty.field(key).map(|field| (&field.node, schema)), out);
}

fn write_map<'a>(
    map: &Map,
    place_of: impl Fn(&str) -> Option<(&'a Node, &'a Schema)>,
    out: &mut Vec<u8>,
) {
    head(out, MAP, map.len() as u64);
    // In the order of the encoded bytes: shorter keys first, because their length leads.
    let mut members: Vec<_> = map.iter().collect();
    members.sort_by_key(|(key, _)| (key.len(), *key));
    for (key, value) in interruptible(members.into_iter()) {
        text(out, key);
        write(value, place_of(key), out);
    }
}

/// In the shortest form that keeps the value.
fn write_float(float: f64, out: &mut Vec<u8>) {
    if !float.is_finite() {
        return out.push(0xf6);
    }
    let single = float as f32;
    if f64::from(single).to_bits() != float.to_bits() {
        out.push(0xfb);
        return out.extend_from_slice(&float.to_be_bytes());
    }
    match half_of(float) {
        Some(bits) => {
            out.push(0xf9);
            out.extend_from_slice(&bits.to_be_bytes());
        }
        None => {
            out.push(0xfa);
            out.extend_from_slice(&single.to_be_bytes());
        }
    }
}

/// The 16 bits that mean exactly this, if there are such.
fn half_of(float: f64) -> Option<u16> {
    let bits = float.to_bits();
    let sign = (bits >> 48) as u16 & 0x8000;
    let exponent = (bits >> 52 & 0x7ff) as i32 - 1023;
    let top = (bits >> 42 & 0x3ff) as u16;
    let candidates = if float == 0.0 {
        Some(sign)
    } else if (-14..=15).contains(&exponent) {
        Some(sign | ((exponent + 15) as u16) << 10 | top)
    } else if (-24..-14).contains(&exponent) {
        Some(sign | (0x400 | top) >> (-14 - exponent))
    } else {
        None
    };
    candidates.filter(|candidate| half(*candidate).to_bits() == bits)
}

fn text(out: &mut Vec<u8>, text: &str) {
    head(out, BYTES, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn head(out: &mut Vec<u8>, major: u8, number: u64) {
    let major = major << 5;
    if number < 24 {
        out.push(major | number as u8);
    } else if let Ok(number) = u8::try_from(number) {
        out.extend_from_slice(&[major | 0x18, number]);
    } else if let Ok(number) = u16::try_from(number) {
        out.push(major | 0x19);
        out.extend_from_slice(&number.to_be_bytes());
    } else if let Ok(number) = u32::try_from(number) {
        out.push(major | 0x1a);
        out.extend_from_slice(&number.to_be_bytes());
    } else {
        out.push(major | 0x1b);
        out.extend_from_slice(&number.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[track_caller]
    fn check(value: Value, expected: &[u8]) {
        let encoded = encode(&value);
        assert_eq!(&encoded[3..], expected, "{value:?}");
        assert_eq!(decode(&encoded), Ok(value.clone()));
        assert_eq!(decode(expected), Ok(value), "the mark may be missing");
    }

    #[test]
    fn values_are_written_in_one_way_and_read_back() {
        check(value!({}), b"\xa0");
        check(value!({"name": "a", "kind": "K"}), b"\xa2\x44kind\x41K\x44name\x41a");
        check(value!({"bb": 1i64, "a": 2i64}), b"\xa2\x41a\x02\x42bb\x01");
        check(
            value!([0i64, 23i64, 24i64, 256i64, 65536i64]),
            b"\x85\x00\x17\x18\x18\x19\x01\x00\x1a\x00\x01\x00\x00",
        );
        check(value!([(-1i64), (i64::MIN)]), b"\x82\x20\x3b\x7f\xff\xff\xff\xff\xff\xff\xff");
        check(value!([true, false, null]), b"\x83\xf5\xf4\xf6");
        check(
            value!([1.5, 0.1, 1e10]),
            b"\x83\xf9\x3e\x00\xfb\x3f\xb9\x99\x99\x99\x99\x99\x9a\xfa\x50\x15\x02\xf9",
        );
        check(
            value!([(2f64.powi(-24)), 65504.0, 65536.0]),
            b"\x83\xf9\x00\x01\xf9\x7b\xff\xfa\x47\x80\x00\x00",
        );
    }

    #[test]
    fn encodings_of_other_writers_are_decoded() {
        let cases: [(&[u8], Value); 4] = [
            (b"\xbf\x61a\x9f\x01\xff\xff", value!({"a": [1i64]})),
            (b"\x7f\x61a\x61b\xff", Value::from("ab")),
            (b"\xd6\x43abc", Value::from("YWJj")),
            (b"\xc0\x74" as &[u8], Value::Null),
        ];
        for (bytes, expected) in &cases[..3] {
            assert_eq!(decode(bytes).as_ref(), Ok(expected));
        }
        assert_eq!(decode(cases[3].0), Err(CborError::UnexpectedEnd));
    }

    #[test]
    fn unsupported_cbor_is_rejected() {
        let cases: [(&[u8], CborError); 9] = [
            (b"", CborError::UnexpectedEnd),
            (b"\xa0\x00", CborError::Extraneous(1, 1)),
            (b"\xa2\x41a\x01\x61a\x02", CborError::DuplicateKey("a".to_owned())),
            (b"\xa1\x01\x02", CborError::Key("positive integer")),
            (b"\x61\xff", CborError::Utf8),
            (b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff", CborError::Overflow(u64::MAX)),
            (b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff", CborError::UnexpectedEnd),
            (b"\xf7", CborError::Simple(23)),
            (b"\xf9\x7e\x00", CborError::NotFinite),
        ];
        for (bytes, expected) in cases {
            assert_eq!(decode(bytes), Err(expected), "{bytes:02x?}");
        }
        assert_eq!(decode(&[0x81; 2000]), Err(CborError::TooDeep));
        assert_eq!(decode(&[0xc1; 2000]), Err(CborError::TooDeep));
    }

    #[test]
    fn depth_and_memory_are_bounded() {
        let nested = |levels: usize| [vec![0x81; levels], vec![0xf6]].concat();
        let check = move || {
            let tree = decode(&nested(DEPTH_MAX)).unwrap();
            assert_eq!(meta::limits::check_depth(&tree), Ok(()));
            assert_eq!(decode(&encode(&tree)), Ok(tree));
            assert_eq!(decode(&nested(DEPTH_MAX + 1)), Err(CborError::TooDeep));
        };
        // Debug builds take several times the stack.
        let stack_bytes = if cfg!(debug_assertions) { 2 << 20 } else { 512 << 10 };
        std::thread::Builder::new().stack_size(stack_bytes).spawn(check).unwrap().join().unwrap();

        let list = |items: usize| {
            let mut bytes = vec![0x9a];
            bytes.extend_from_slice(&u32::try_from(items).unwrap().to_be_bytes());
            bytes.resize(bytes.len() + items, 0x80);
            bytes
        };
        // Lists of 48 bytes each, in one of 16.
        let fitting = (meta::limits::TREE_BYTES_MAX - 16) / 48;
        assert!(decode(&list(fitting)).is_ok());
        assert!(decode(&list(fitting + 1)) == Err(CborError::TooLarge(TooLarge)));
        assert!(meta::cancel::is_interruptible(|| drop(decode(&list(fitting)))));
        // A length alone reserves nothing.
        assert_eq!(decode(b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff"), Err(CborError::UnexpectedEnd));
    }
}
