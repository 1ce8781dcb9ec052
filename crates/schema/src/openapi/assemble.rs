//! Assembles documents from members that are encoded as soon as they are built: a document is a few
//! megabytes of bytes, but many times as much as a tree.

use std::collections::BTreeMap;

use meta::{Str, Value, json};

use super::protobuf::{self, FieldEncoding, Message};

/// The encoding of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentEncoding {
    Json,
    /// The binary form of gnostic.
    Protobuf,
}

/// Encoded values by name: paths, definitions, parameters.
pub(super) type EncodedMembers = BTreeMap<Str, Vec<u8>>;

impl DocumentEncoding {
    /// A member; `message` is what it is in the binary form.
    pub(super) fn encode(self, value: &Value, message: &Message) -> Vec<u8> {
        match self {
            Self::Json => {
                let mut out = Vec::new();
                json::write_value(&mut out, value);
                out
            }
            Self::Protobuf => protobuf::encode(value, message),
        }
    }
}

/// A document, or an object in one, that is written member by member. The numbers are those of the
/// binary form, the names those of JSON.
pub(super) struct Assembler {
    encoding: DocumentEncoding,
    out: Vec<u8>,
}

impl Assembler {
    pub(super) fn new(encoding: DocumentEncoding) -> Self {
        let out = if encoding == DocumentEncoding::Json { vec![b'{'] } else { Vec::new() };
        Self { encoding, out }
    }

    pub(super) fn value(
        &mut self,
        name: &str,
        number: u32,
        value: &Value,
        encoding: &FieldEncoding,
    ) {
        match self.encoding {
            DocumentEncoding::Json => {
                self.key(name);
                json::write_value(&mut self.out, value);
            }
            DocumentEncoding::Protobuf => protobuf::write(&mut self.out, number, value, encoding),
        }
    }

    /// An object with free keys. In the binary form it is a message that repeats one field.
    pub(super) fn encoded_members(
        &mut self,
        name: &str,
        number: u32,
        repeated: u32,
        members: EncodedMembers,
    ) {
        let mut inner = Self::new(self.encoding);
        // Documents are large: growing step by step would cost as much again.
        inner
            .out
            .reserve(members.iter().map(|(name, member)| name.len() + member.len() + 16).sum());
        for (name, member) in members {
            match inner.encoding {
                DocumentEncoding::Json => {
                    inner.key(&name);
                    inner.out.extend_from_slice(&member);
                }
                DocumentEncoding::Protobuf => {
                    protobuf::write_pair(&mut inner.out, repeated, &name, &member);
                }
            }
        }
        self.object(name, number, inner);
    }

    pub(super) fn object(&mut self, name: &str, number: u32, object: Self) {
        let bytes = object.finish();
        self.out.reserve(name.len() + bytes.len() + 16);
        match self.encoding {
            DocumentEncoding::Json => {
                self.key(name);
                self.out.extend_from_slice(&bytes);
            }
            DocumentEncoding::Protobuf => protobuf::write_bytes(&mut self.out, number, &bytes),
        }
    }

    fn key(&mut self, name: &str) {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        json::write_string(&mut self.out, name);
        self.out.push(b':');
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.encoding == DocumentEncoding::Json {
            self.out.push(b'}');
        }
        // The document may be cached for the lifetime of the server.
        self.out.shrink_to_fit();
        self.out
    }
}
