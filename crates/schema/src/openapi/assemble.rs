//! Puts documents together from pieces that are encoded as soon as they are made: a document is some
//! megabytes of bytes, but would be many times as much as a tree.

use std::collections::BTreeMap;

use meta::{Str, Value, json};

use super::protobuf::{self, Message, Shape};

/// What a document is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Json,
    /// The binary form of gnostic.
    Protobuf,
}

/// Encoded values by name: paths, definitions, parameters.
pub(super) type Pieces = BTreeMap<Str, Vec<u8>>;

impl Form {
    /// A piece; `message` is what it is in the binary form.
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
    form: Form,
    out: Vec<u8>,
}

impl Assembler {
    pub(super) fn new(form: Form) -> Self {
        let out = if form == Form::Json { vec![b'{'] } else { Vec::new() };
        Self { form, out }
    }

    pub(super) fn value(&mut self, name: &str, number: u32, value: &Value, shape: &Shape) {
        match self.form {
            Form::Json => {
                self.key(name);
                json::write_value(&mut self.out, value);
            }
            Form::Protobuf => protobuf::write(&mut self.out, number, value, shape),
        }
    }

    /// An object with free keys. In the binary form it is a message that repeats one field.
    pub(super) fn pieces(&mut self, name: &str, number: u32, repeated: u32, pieces: Pieces) {
        let mut inner = Self::new(self.form);
        // Documents are large: growing step by step would cost as much again.
        inner.out.reserve(pieces.iter().map(|(name, piece)| name.len() + piece.len() + 16).sum());
        for (name, piece) in pieces {
            match inner.form {
                Form::Json => {
                    inner.key(&name);
                    inner.out.extend_from_slice(&piece);
                }
                Form::Protobuf => protobuf::write_pair(&mut inner.out, repeated, &name, &piece),
            }
        }
        self.object(name, number, inner);
    }

    pub(super) fn object(&mut self, name: &str, number: u32, object: Self) {
        let bytes = object.finish();
        self.out.reserve(name.len() + bytes.len() + 16);
        match self.form {
            Form::Json => {
                self.key(name);
                self.out.extend_from_slice(&bytes);
            }
            Form::Protobuf => protobuf::write_bytes(&mut self.out, number, &bytes),
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
        if self.form == Form::Json {
            self.out.push(b'}');
        }
        // It may be kept for as long as the server runs.
        self.out.shrink_to_fit();
        self.out
    }
}
