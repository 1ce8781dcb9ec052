//! Keys, numbers and lengths of the protobuf wire format.

use meta::Str;

use super::ProtobufError;
use crate::json::lexer::well_formed;

pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const BYTES: u8 = 2;
const START_GROUP: u8 = 3;
const END_GROUP: u8 = 4;
const FIXED32: u8 = 5;

/// A field's tag and how its value is written.
#[derive(Clone, Copy)]
pub(super) struct Key {
    pub(super) tag: u32,
    pub(super) wire_type: u8,
}

/// A cursor over a message. Every length is checked against the remaining bytes.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next field, or none at the end of the message.
    pub(super) fn key(&mut self, message: &str) -> Result<Option<Key>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let wire = self.varint()?;
        let wire_type = (wire & 7) as u8;
        if wire_type == END_GROUP {
            return Err(ProtobufError::EndGroup(message.to_owned()));
        }
        let tag = (wire >> 3) as i32;
        match u32::try_from(tag) {
            Ok(tag @ 1..) => Ok(Some(Key { tag, wire_type })),
            _ => Err(ProtobufError::IllegalTag { message: message.to_owned(), tag, wire }),
        }
    }

    pub(super) fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(ProtobufError::UnexpectedEnd)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ProtobufError::IntOverflow)
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, ProtobufError> {
        let (bytes, rest) =
            self.rest.split_first_chunk::<8>().ok_or(ProtobufError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// Bytes with their length before them.
    pub(super) fn bytes(&mut self, key: Key, field: &str) -> Result<&'a [u8], ProtobufError> {
        key.expect(BYTES, field)?;
        self.block()
    }

    /// A string; invalid UTF-8 is replaced as in JSON.
    pub(super) fn text(&mut self, key: Key, field: &str) -> Result<Str, ProtobufError> {
        Ok(Str::new(well_formed(self.bytes(key, field)?)))
    }

    fn block(&mut self) -> Result<&'a [u8], ProtobufError> {
        let length = self.varint()?;
        let length = i64::try_from(length).map_err(|_| ProtobufError::InvalidLength)?;
        let length = usize::try_from(length).map_err(|_| ProtobufError::InvalidLength)?;
        let (block, rest) =
            self.rest.split_at_checked(length).ok_or(ProtobufError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(block)
    }

    /// Skips an unknown field.
    pub(super) fn skip(&mut self, key: Key) -> Result<(), ProtobufError> {
        let mut groups = 0u32;
        let mut wire_type = key.wire_type;
        loop {
            match wire_type {
                VARINT => drop(self.varint()?),
                FIXED64 => drop(self.fixed64()?),
                BYTES => drop(self.block()?),
                FIXED32 => {
                    self.rest = self.rest.get(4..).ok_or(ProtobufError::UnexpectedEnd)?;
                }
                START_GROUP => groups += 1,
                END_GROUP => {
                    groups = groups.checked_sub(1).ok_or(ProtobufError::UnexpectedEndOfGroup)?;
                }
                other => return Err(ProtobufError::IllegalWireType(other)),
            }
            if groups == 0 {
                return Ok(());
            }
            wire_type = (self.varint()? & 7) as u8;
        }
    }
}

impl Key {
    pub(super) fn expect(self, wire_type: u8, field: &str) -> Result<(), ProtobufError> {
        if self.wire_type == wire_type {
            return Ok(());
        }
        // Go names its own field, which is mostly the same with a capital.
        let mut letters = field.chars();
        let capital = letters.next().map(|c| c.to_ascii_uppercase());
        let field = capital.into_iter().chain(letters).collect();
        Err(ProtobufError::WrongWireType { field, wire_type: self.wire_type })
    }
}

/// A message, written from its end to its beginning: a length is written after what it measures.
pub(super) struct Writer {
    /// What is written stands at the end.
    bytes: Vec<u8>,
    start: usize,
}

impl Writer {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { bytes: vec![0; capacity], start: capacity }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.drain(..self.start);
        self.bytes
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        if self.start < bytes.len() {
            self.grow(bytes.len());
        }
        let start = self.start - bytes.len();
        self.bytes[start..self.start].copy_from_slice(bytes);
        self.start = start;
    }

    /// Makes room for so many bytes more.
    #[cold]
    fn grow(&mut self, more: usize) {
        let mut grown = vec![0; (self.len() + more) * 2];
        let start = grown.len() - self.len();
        grown[start..].copy_from_slice(&self.bytes[self.start..]);
        (self.bytes, self.start) = (grown, start);
    }

    pub(super) fn varint(&mut self, mut value: u64) {
        let mut groups = [0u8; 10];
        let mut count = 0;
        loop {
            groups[count] = (value & 0x7F) as u8 | 0x80;
            count += 1;
            value >>= 7;
            if value == 0 {
                break;
            }
        }
        groups[count - 1] &= 0x7F;
        self.raw(&groups[..count]);
    }

    fn key(&mut self, tag: u32, wire_type: u8) {
        self.varint(u64::from(tag) << 3 | u64::from(wire_type));
    }

    pub(super) fn field_varint(&mut self, tag: u32, value: u64) {
        self.varint(value);
        self.key(tag, VARINT);
    }

    pub(super) fn field_fixed64(&mut self, tag: u32, value: u64) {
        self.raw(&value.to_le_bytes());
        self.key(tag, FIXED64);
    }

    pub(super) fn field_bytes(&mut self, tag: u32, bytes: &[u8]) {
        self.raw(bytes);
        self.varint(bytes.len() as u64);
        self.key(tag, BYTES);
    }

    /// Makes what was written since `start` a message, and that a field.
    pub(super) fn end_message(&mut self, tag: u32, start: usize) {
        self.varint((self.len() - start) as u64);
        self.key(tag, BYTES);
    }
}

/// Appends a field of bytes to a message that is written from its beginning.
pub(super) fn append_bytes(out: &mut Vec<u8>, tag: u32, bytes: &[u8]) {
    append_length(out, tag, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends the key and the length of a field whose bytes follow.
pub(super) fn append_length(out: &mut Vec<u8>, tag: u32, bytes: usize) {
    for mut number in [u64::from(tag) << 3 | u64::from(BYTES), bytes as u64] {
        while number >= 0x80 {
            out.push(number as u8 | 0x80);
            number >>= 7;
        }
        out.push(number as u8);
    }
}
