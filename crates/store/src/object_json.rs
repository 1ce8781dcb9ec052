//! The JSON of a cached object: whole, or as its difference from a similar object.
//!
//! Most objects of a cluster are copies of few: the pods of a Deployment, the nodes of a pool, the next version of the same object.
//! One of them is kept whole (a base), the others as what is theirs and where to copy the rest from. To write such an object is a
//! few copies out of a text that is in the processor's cache, about as fast as one copy of a text that is not.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

/// The JSON of an object, immutable.
#[derive(Debug, Clone)]
pub struct ObjectJson(Repr);

#[derive(Debug, Clone)]
enum Repr {
    Whole(Bytes),
    /// Whole, and others may refer to it.
    Base(Arc<Bytes>),
    Delta(Delta),
}

/// A text as its difference from another one.
#[derive(Debug, Clone)]
struct Delta {
    base: Arc<Bytes>,
    /// Of the text.
    len: u32,
    steps: Box<[u8]>,
}

impl ObjectJson {
    pub(crate) fn base(base: Arc<Bytes>) -> Self {
        Self(Repr::Base(base))
    }

    /// `steps` must make a text of `len` bytes from `base`.
    pub(crate) fn delta(base: Arc<Bytes>, len: usize, steps: &[u8]) -> Self {
        Self(Repr::Delta(Delta { base, len: len as u32, steps: steps.into() }))
    }

    /// How long the text is.
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Whole(text) => text.len(),
            Repr::Base(text) => text.len(),
            Repr::Delta(delta) => delta.len as usize,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory of this object alone: a base counts for the object that it is.
    pub fn held_bytes(&self) -> usize {
        match &self.0 {
            Repr::Whole(text) => text.len(),
            Repr::Base(text) => text.len(),
            Repr::Delta(delta) => delta.steps.len(),
        }
    }

    /// The text; a copy if it is not whole, with room for the newline that ends a response.
    pub fn bytes(&self) -> Bytes {
        match &self.0 {
            Repr::Whole(text) => text.clone(),
            Repr::Base(text) => Bytes::clone(text),
            Repr::Delta(delta) => {
                let mut out = Vec::with_capacity(self.len() + 1);
                delta.append_to(&mut out, 0..self.len());
                out.into()
            }
        }
    }

    /// The text, for those who only look at it.
    pub fn text(&self) -> Cow<'_, [u8]> {
        self.slice(0..self.len())
    }

    /// A part of the text. Panics if it is out of bounds.
    pub fn slice(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        if let Some(text) = self.whole() {
            return Cow::Borrowed(&text[range]);
        }
        let mut out = Vec::with_capacity(range.len());
        self.append_to(&mut out, range);
        Cow::Owned(out)
    }

    /// As [`ObjectJson::slice`]; shares the memory if the text is whole.
    pub fn slice_bytes(&self, range: Range<usize>) -> Bytes {
        match &self.0 {
            Repr::Whole(text) => text.slice(range),
            Repr::Base(text) => text.slice(range),
            Repr::Delta(_) => self.slice(range).into_owned().into(),
        }
    }

    /// Appends a part of the text. Panics if it is out of bounds.
    pub fn append_to(&self, out: &mut Vec<u8>, range: Range<usize>) {
        match &self.0 {
            Repr::Whole(text) => append(out, &text[range]),
            Repr::Base(text) => append(out, &text[range]),
            Repr::Delta(delta) => {
                assert!(range.start <= range.end && range.end <= delta.len as usize);
                delta.append_to(out, range);
            }
        }
    }

    pub fn starts_with(&self, prefix: &[u8]) -> bool {
        self.len() >= prefix.len() && *self.slice(0..prefix.len()) == *prefix
    }

    fn whole(&self) -> Option<&Bytes> {
        match &self.0 {
            Repr::Whole(text) => Some(text),
            Repr::Base(text) => Some(text),
            Repr::Delta(_) => None,
        }
    }

    /// Takes the text and leaves none, if it is whole and nothing refers to it.
    pub(crate) fn take_unshared(&mut self) -> Option<Bytes> {
        if let Repr::Whole(text) = &mut self.0 { Some(std::mem::take(text)) } else { None }
    }
}

impl Default for ObjectJson {
    fn default() -> Self {
        Self(Repr::Whole(Bytes::new()))
    }
}

impl<T: Into<Bytes>> From<T> for ObjectJson {
    fn from(text: T) -> Self {
        Self(Repr::Whole(text.into()))
    }
}

impl Delta {
    fn append_to(&self, out: &mut Vec<u8>, range: Range<usize>) {
        out.reserve(range.len());
        let base: &[u8] = &self.base;
        let mut steps = &*self.steps;
        let (mut written, mut base_at) = (0, 0);
        // The part of the next `len` bytes of the text that is asked for.
        let mut wanted = |len: usize| {
            let from = range.start.saturating_sub(written).min(len);
            let to = range.end.saturating_sub(written).min(len);
            written += len;
            from..to
        };
        while !steps.is_empty() {
            let (literal, rest) = steps_literal(steps);
            out.extend_from_slice(&literal[wanted(literal.len())]);
            let Some((start, len, rest)) = steps_copy(rest, base_at) else { return };
            append(out, &base[start..start + len][wanted(len)]);
            (steps, base_at) = (rest, start + len);
        }
    }
}

/// Appends a text in pieces: the C library copies a long slice with `rep movsb`, which on some processors has a quarter of the
/// speed of the vector loop for short ones. That was half of the cost of a long list.
pub fn append(out: &mut Vec<u8>, text: &[u8]) {
    out.reserve(text.len());
    for piece in text.chunks(COPIED_BYTES_MAX) {
        out.extend_from_slice(piece);
    }
}

/// Below the length from which the C library uses `rep movsb` (4 KB, 2 KB without AVX).
const COPIED_BYTES_MAX: usize = 2000;

// The steps of a delta, in turns: the length of a literal and its bytes; how far behind the end of the last copy the next one
// begins in the base, and its length. All numbers are variable-length, since most are below 128. The last copy may be missing.

pub(crate) fn push_literal(steps: &mut Vec<u8>, literal: &[u8]) {
    push_number(steps, literal.len() as u64);
    steps.extend_from_slice(literal);
}

/// `base_at`: the end of the last copy.
pub(crate) fn push_copy(steps: &mut Vec<u8>, base_at: usize, copied: &Range<usize>) {
    let moved = copied.start as i64 - base_at as i64;
    // Zigzag, so that small numbers of both signs are short.
    push_number(steps, ((moved << 1) ^ (moved >> 63)).cast_unsigned());
    push_number(steps, copied.len() as u64);
}

fn push_number(steps: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        steps.push(number as u8 | 0x80);
        number >>= 7;
    }
    steps.push(number as u8);
}

fn steps_literal(steps: &[u8]) -> (&[u8], &[u8]) {
    let (len, rest) = take_number(steps);
    rest.split_at(len as usize)
}

/// Where a copy begins in the base, its length, and what follows.
fn steps_copy(steps: &[u8], base_at: usize) -> Option<(usize, usize, &[u8])> {
    if steps.is_empty() {
        return None;
    }
    let (moved, rest) = take_number(steps);
    let moved = (moved >> 1).cast_signed() ^ -((moved & 1).cast_signed());
    let (len, rest) = take_number(rest);
    Some((base_at.wrapping_add_signed(moved as isize), len as usize, rest))
}

fn take_number(steps: &[u8]) -> (u64, &[u8]) {
    let (mut number, mut at) = (0, 0);
    loop {
        let byte = steps[at];
        number |= u64::from(byte & 0x7f) << (7 * at);
        at += 1;
        if byte < 0x80 {
            return (number, &steps[at..]);
        }
    }
}
