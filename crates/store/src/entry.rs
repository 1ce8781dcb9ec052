//! One object in the cache: the bytes a client gets, and what selectors and lists need without
//! decoding them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use meta::Str;

use crate::{CachedEncodings, ObjectJson};

/// An object as it is served. Immutable; a new revision is a new entry.
#[derive(Debug, Default)]
pub struct Entry {
    /// The full storage key.
    pub key: Str,
    pub name: Str,
    /// Empty for objects without a namespace.
    pub namespace: Str,
    /// The revision at which the object was written; its `resourceVersion`.
    pub revision: u64,
    /// The object as JSON, with `resourceVersion` in place.
    pub json: ObjectJson,
    /// The offset after `kind` and `apiVersion`, which typed lists leave out.
    pub body_at: u32,
    /// Start and end of `metadata`'s value (from brace to brace) in `json`.
    pub meta: (u32, u32),
    pub labels: Box<[(Str, Str)]>,
    /// A Bloom filter of the labels, see [`label_bits`]: a selector that requires a label checks it
    /// first, and skips the labels of nearly all objects that do not have it.
    pub label_bits: u64,
    /// The selectable fields, in the order in which the resource declares them.
    pub fields: Box<[Str]>,
    /// The length of the object's protobuf message, which a list needs before it is made; 0 if unknown.
    pub protobuf_len: AtomicU32,
    /// Other encodings, made on demand.
    pub cached_encodings: CachedEncodings,
}

impl Entry {
    /// Another encoding of the object, if it is kept. The caller assigns the numbers.
    pub fn cached_encoding(&self, number: u32) -> Option<Bytes> {
        self.cached_encodings.get(number)
    }

    /// Whether it is kept; does not count as a use.
    pub fn has_encoding(&self, number: u32) -> bool {
        self.cached_encodings.has(number)
    }

    /// Keeps another encoding, if there is a place for it in the [`EncodingCache`](crate::EncodingCache).
    pub fn keep_encoding(&self, number: u32, encoding: &[u8]) {
        if self.has_place(encoding.len()) {
            self.cached_encodings.keep(number, encoding, false);
        }
    }

    /// Whether it is worth a try to keep an encoding of about so many bytes. Counts as one try; [`Entry::replace_encoding`]
    /// is another part of it.
    pub fn has_place(&self, bytes: usize) -> bool {
        self.cached_encodings.has_place(bytes)
    }

    /// Keeps another encoding in the place of what is kept under this number. For callers that asked [`Entry::has_place`].
    pub fn replace_encoding(&self, number: u32, encoding: &[u8]) {
        self.cached_encodings.keep(number, encoding, true);
    }

    /// Keeps another encoding as long as the entry lives, whatever the budget: one that is too costly to be made again.
    pub fn pin_encoding(&self, number: u32, encoding: &[u8]) {
        self.cached_encodings.pin(number, encoding);
    }

    /// Another encoding of the object: what is kept, or what `make` makes. A failure is not kept.
    pub fn try_encoding<E>(
        &self,
        number: u32,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        if let Some(kept) = self.cached_encoding(number) {
            return Ok(kept);
        }
        let made = make()?;
        self.keep_encoding(number, &made);
        Ok(made)
    }

    /// The length of the object's protobuf message; `None` if it was never encoded.
    pub fn protobuf_len(&self) -> Option<usize> {
        Some(self.protobuf_len.load(Ordering::Relaxed) as usize).filter(|len| *len > 0)
    }

    pub fn set_protobuf_len(&self, len: usize) {
        self.protobuf_len.store(len as u32, Ordering::Relaxed);
    }

    /// The value of `metadata`, from brace to brace.
    pub fn metadata(&self) -> Cow<'_, [u8]> {
        self.json.slice(self.metadata_range())
    }

    /// Where it is in `json`.
    pub fn metadata_range(&self) -> Range<usize> {
        self.meta.0 as usize..self.meta.1 as usize
    }

    /// The value of the `n`th selectable field.
    pub fn field(&self, n: usize) -> Option<&Str> {
        self.fields.get(n)
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&Str> {
        self.labels.iter().find(|(have, _)| have == key).map(|(_, value)| value)
    }

    /// The same object with another `resourceVersion`: the last state in a DELETED event.
    pub fn with_revision(&self, revision: u64) -> Result<Self, String> {
        let (start, end) = (self.meta.0 as usize, self.meta.1 as usize);
        let text = self.json.text();
        let meta = text.get(start..end).ok_or("metadata is out of bounds")?;
        let old = resource_version(meta)
            .ok_or_else(|| format!("{} has no metadata.resourceVersion", self.key))?;

        let mut digits = itoa::Buffer::new();
        let digits = digits.format(revision).as_bytes();
        let mut json = Vec::with_capacity(text.len() + digits.len() - old.len());
        json.extend_from_slice(&text[..start + old.start]);
        json.extend_from_slice(digits);
        json.extend_from_slice(&text[start + old.end..]);

        let moved = |at: u32| {
            if at as usize > start + old.start {
                (at as usize + digits.len() - old.len()) as u32
            } else {
                at
            }
        };
        Ok(Self {
            key: self.key.clone(),
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            revision,
            json: json.into(),
            body_at: moved(self.body_at),
            meta: (moved(self.meta.0), moved(self.meta.1)),
            labels: self.labels.clone(),
            label_bits: self.label_bits,
            fields: self.fields.clone(),
            ..Self::default()
        })
    }
}

/// The Bloom filter of a set of labels. A set that lacks a bit of a label lacks the label.
pub fn label_bits<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> u64 {
    labels.into_iter().fold(0, |bits, (key, value)| {
        // FNV-1a: keys are short, and a collision is harmless.
        let bytes = key.bytes().chain([b'=']).chain(value.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        // The high bits of the hash hardly depend on the last characters; this mixes them in.
        let hash = (hash ^ hash >> 32).wrapping_mul(0xff51_afd7_ed55_8ccd);
        bits | 1 << (hash >> 58) | 1 << (hash >> 52 & 63)
    })
}

/// The range of the digits of `resourceVersion` in the JSON of an `ObjectMeta`. Only members of the
/// outermost object count: annotations may have any name.
fn resource_version(meta: &[u8]) -> Option<Range<usize>> {
    const NAME: &[u8] = b"\"resourceVersion\":\"";
    let mut depth = 0;
    let mut at = 0;
    while at < meta.len() {
        match meta[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b'"' if depth == 1 && meta[at..].starts_with(NAME) => {
                let from = at + NAME.len();
                let len = meta[from..].iter().position(|byte| *byte == b'"')?;
                return Some(from..from + len);
            }
            b'"' => at = string_end(meta, at)?,
            _ => {}
        }
        at += 1;
    }
    None
}

/// The closing quote of the string that opens at `at`.
fn string_end(json: &[u8], mut at: usize) -> Option<usize> {
    at += 1;
    loop {
        match json.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Decodes stored bytes into an entry. The registry provides one per resource, because only it
/// knows the encoding, the served version and the selectable fields.
pub trait Materialize: Send + Sync + 'static {
    fn entry(&self, key: &Str, value: &Bytes, revision: u64) -> Result<Entry, String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(json: &str, revision: u64) -> Entry {
        let start = json.find("\"metadata\":").expect("has metadata") + "\"metadata\":".len();
        let end = json.rfind("},\"spec\"").map_or(json.len() - 1, |at| at + 1);
        let body_at = json.find("\"metadata\"").expect("has metadata") as u32;
        Entry {
            json: Bytes::copy_from_slice(json.as_bytes()).into(),
            meta: (start as u32, end as u32),
            revision,
            body_at,
            ..Entry::default()
        }
    }

    #[test]
    fn a_new_revision_is_spliced_into_the_objects_own_metadata_only() {
        let cases = [
            (
                r#"{"kind":"A","metadata":{"name":"x","resourceVersion":"9"},"spec":{}}"#,
                r#"{"kind":"A","metadata":{"name":"x","resourceVersion":"1000"},"spec":{}}"#,
            ),
            (
                r#"{"metadata":{"annotations":{"resourceVersion":"9"},"resourceVersion":"9"}}"#,
                r#"{"metadata":{"annotations":{"resourceVersion":"9"},"resourceVersion":"1000"}}"#,
            ),
            (
                r#"{"metadata":{"annotations":{"a":"\\\"{,\"resourceVersion\":\"9\""},"resourceVersion":"9","uid":"u"},"spec":{}}"#,
                r#"{"metadata":{"annotations":{"a":"\\\"{,\"resourceVersion\":\"9\""},"resourceVersion":"1000","uid":"u"},"spec":{}}"#,
            ),
        ];
        for (before, after) in cases {
            let moved = entry(before, 9).with_revision(1000).expect("has a resourceVersion");
            assert_eq!(std::str::from_utf8(&moved.json.text()).expect("is text"), after);
            let again = moved.with_revision(9).expect("offsets moved along");
            assert_eq!(std::str::from_utf8(&again.json.text()).expect("is text"), before);
        }
    }

    #[test]
    fn an_object_without_resource_version_is_an_error() {
        for json in [r#"{"metadata":{"name":"x"}}"#, r#"{"metadata":{"name":"\"#] {
            assert!(entry(json, 1).with_revision(2).is_err(), "{json}");
        }
    }

    #[test]
    fn a_label_has_its_bits_in_every_set_that_has_it() {
        let all = [("app", "web"), ("tier", "front"), ("n", "1"), ("n", "2")];
        for label in all {
            let bits = label_bits([label]);
            assert!(bits != 0 && label_bits(all) & bits == bits);
        }
        assert_ne!(label_bits([("a", "b")]), label_bits([("a", "c")]));
    }

    #[test]
    fn an_encoding_is_made_once() {
        let entry = Entry::default();
        let encoding = |number, text: &'static [u8]| {
            entry.try_encoding(number, || Ok::<_, ()>(Bytes::from_static(text))).unwrap()
        };
        assert_eq!(entry.cached_encoding(1), None);
        assert_eq!(encoding(1, b"first"), "first");
        assert_eq!(entry.cached_encoding(1).as_deref(), Some(&b"first"[..]));
        assert_eq!(encoding(1, b"second"), "first");
        assert_eq!(encoding(0, b"other"), "other");
        assert!(entry.try_encoding(2, || Err("failed")).is_err());
        assert_eq!(entry.cached_encoding(2), None);
    }
}
