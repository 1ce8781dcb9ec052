//! Scans the raw JSON of a stored object for what a read needs, in one pass and without building a
//! tree: labels, selectable fields, and the offsets of its parts.
//!
//! Stored bytes are compact JSON, written by Pintle or kube-apiserver. They have no
//! `metadata.resourceVersion`: it is the revision under which they are stored, and is inserted
//! here.

pub(crate) mod cursor;
pub(crate) mod tape;
#[cfg(test)]
mod tests;

use std::ops::Range;

use bytes::Bytes;
use meta::Str;
use thiserror::Error;

use self::cursor::Cursor;

/// The bytes are not what a stored object looks like.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScanError {
    #[error("stored object: unexpected byte at {0}")]
    Syntax(usize),
    #[error("stored object has no metadata")]
    NoMetadata,
}

/// The fields to extract from every object of a resource; compiled once.
#[derive(Clone, Debug)]
pub struct FieldSet {
    // A tree of names; the first step is the object itself.
    steps: Vec<Step>,
    count: usize,
}

#[derive(Clone, Debug, Default)]
struct Step {
    children: Vec<(Str, usize)>,
    /// The index of the field in [`Scanned::fields`].
    slot: Option<usize>,
}

/// Where `resourceVersion` goes among its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// Built-in kinds: the order of the Go struct.
    Struct,
    /// Custom resources: sorted keys.
    Sorted,
}

/// The result of a scan. Offsets are into the bytes that were scanned, or that `splice` returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Behind the leading `kind` and `apiVersion`. In a typed list an item is a `{` and the bytes
    /// from here on.
    pub body_at: usize,
    /// The value of `metadata`, brackets included.
    pub metadata: Range<usize>,
    /// The member `managedFields` with the comma that has to go with it.
    pub managed_fields: Option<Range<usize>>,
    /// Sorted by key.
    pub labels: Vec<(Str, Str)>,
    /// The values of the requested fields, in the order of their set; none if absent, null or not a
    /// leaf.
    pub fields: Vec<Option<Str>>,
}

impl FieldSet {
    /// Paths are names joined by dots: `spec.nodeName`.
    pub fn new<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let mut set = Self { steps: vec![Step::default()], count: 0 };
        for path in paths {
            let mut at = 0;
            for name in path.split('.').filter(|name| !name.is_empty()) {
                at = set.child(at, name);
            }
            set.steps[at].slot = Some(set.count);
            set.count += 1;
        }
        set
    }

    /// The number of requested fields.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn child(&mut self, at: usize, name: &str) -> usize {
        if let Some(child) = self.find(at, name.as_bytes()) {
            return child;
        }
        self.steps.push(Step::default());
        let child = self.steps.len() - 1;
        self.steps[at].children.push((Str::new(name), child));
        child
    }

    fn find(&self, at: usize, name: &[u8]) -> Option<usize> {
        let children = &self.steps[at].children;
        children.iter().find(|(child, _)| child.as_bytes() == name).map(|(_, child)| *child)
    }
}

/// Looks through an object that is complete.
pub fn scan(object: &[u8], wanted: &FieldSet) -> Result<Scanned, ScanError> {
    Ok(Scanner::run(object, wanted, KeyOrder::Struct)?.found)
}

/// Scans a stored object and inserts its revision as `resourceVersion`, replacing one that is
/// present.
pub fn splice(
    stored: &[u8],
    revision: u64,
    order: KeyOrder,
    wanted: &FieldSet,
) -> Result<(Bytes, Scanned), ScanError> {
    // Custom resources are stored with a final line break.
    let stored = stored.trim_ascii_end();
    let Scanner { mut found, version, .. } = Scanner::run(stored, wanted, order)?;
    let version = version.ok_or(ScanError::NoMetadata)?;

    let out = version.put_into(stored, revision);

    let inserted = out.len() - (stored.len() - version.replaced.len());
    let moved = |place: usize| place - version.replaced.len() + inserted;
    let shift_start = |place: &mut usize| {
        if *place >= version.replaced.end {
            *place = moved(*place);
        }
    };
    let shift_end = |place: &mut usize| {
        if *place > version.replaced.start {
            *place = moved(*place);
        }
    };
    shift_start(&mut found.body_at);
    shift_end(&mut found.metadata.end);
    if let Some(range) = &mut found.managed_fields {
        shift_start(&mut range.start);
        shift_end(&mut range.end);
        // It was alone, and has been joined by the version.
        if out.get(range.start - 1) == Some(&b'{') && out.get(range.end) == Some(&b',') {
            range.end += 1;
        }
    }
    Ok((out.into(), found))
}

/// Inserts the revision into an object that was just encoded: as [`splice`], but the place is near the beginning,
/// and what comes behind it is not looked at.
pub fn insert_revision(encoded: &[u8], revision: u64, order: KeyOrder) -> Result<Bytes, ScanError> {
    let encoded = encoded.trim_ascii_end();
    let mut cursor = Cursor::new(encoded);
    let mut more = cursor.open(b'{')?;
    while more {
        if cursor.key()? == b"metadata" {
            return Ok(Version::find(&mut cursor, order)?.put_into(encoded, revision).into());
        }
        cursor.skip()?;
        more = cursor.another(b'}')?;
    }
    Err(ScanError::NoMetadata)
}

/// How to put `resourceVersion` in.
struct Version {
    replaced: Range<usize>,
    before: &'static [u8],
    after: &'static [u8],
}

impl Version {
    /// Looks for its place in the metadata.
    fn find(cursor: &mut Cursor<'_>, order: KeyOrder) -> Result<Self, ScanError> {
        let mut empty = true;
        let mut more = cursor.open(b'{')?;
        while more {
            let start = cursor.at();
            match cursor.key()? {
                b"resourceVersion" => return Self::replacing(cursor),
                key if comes_behind_version(key, order) => return Ok(Self::before(start)),
                _ => cursor.skip()?,
            }
            empty = false;
            more = cursor.another(b'}')?;
        }
        Ok(Self::last(cursor.at() - 1, empty))
    }

    /// Replaces the value at the cursor, and moves behind it.
    fn replacing(cursor: &mut Cursor<'_>) -> Result<Self, ScanError> {
        let value = cursor.string()?;
        let end = cursor.at() - 1;
        Ok(Self { replaced: end - value.len()..end, before: b"", after: b"" })
    }

    /// In front of the member that starts here.
    fn before(member: usize) -> Self {
        Self { replaced: member..member, before: b"\"resourceVersion\":\"", after: b"\"," }
    }

    /// In front of the closing bracket that is here.
    fn last(end: usize, empty: bool) -> Self {
        let before: &[u8] =
            if empty { b"\"resourceVersion\":\"" } else { b",\"resourceVersion\":\"" };
        Self { replaced: end..end, before, after: b"\"" }
    }

    fn put_into(&self, object: &[u8], revision: u64) -> Vec<u8> {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(revision).as_bytes();
        let inserted = self.before.len() + digits.len() + self.after.len();
        // Exactly what is needed: it stays in memory as long as the object.
        let mut out = Vec::with_capacity(object.len() - self.replaced.len() + inserted);
        out.extend_from_slice(&object[..self.replaced.start]);
        out.extend_from_slice(self.before);
        out.extend_from_slice(digits);
        out.extend_from_slice(self.after);
        out.extend_from_slice(&object[self.replaced.end..]);
        out
    }
}

fn comes_behind_version(key: &[u8], order: KeyOrder) -> bool {
    match order {
        KeyOrder::Struct => {
            !matches!(key, b"name" | b"generateName" | b"namespace" | b"selfLink" | b"uid")
        }
        KeyOrder::Sorted => key > &b"resourceVersion"[..],
    }
}

struct Scanner<'a> {
    wanted: &'a FieldSet,
    order: KeyOrder,
    found: Scanned,
    version: Option<Version>,
}

impl<'a> Scanner<'a> {
    fn run(object: &'a [u8], wanted: &'a FieldSet, order: KeyOrder) -> Result<Self, ScanError> {
        let found = Scanned { fields: vec![None; wanted.count], ..Scanned::default() };
        let mut scanner = Self { wanted, order, found, version: None };
        let mut cursor = Cursor::new(object);
        scanner.object(&mut cursor)?;
        if !cursor.rest().trim_ascii().is_empty() {
            return Err(cursor.unexpected());
        }
        Ok(scanner)
    }

    fn object(&mut self, cursor: &mut Cursor<'a>) -> Result<(), ScanError> {
        let mut in_head = true;
        let mut more = cursor.open(b'{')?;
        while more {
            let start = cursor.at();
            let key = cursor.key()?;
            if in_head && !matches!(key, b"kind" | b"apiVersion") {
                self.found.body_at = start;
                in_head = false;
            }
            if key == b"metadata" {
                // A duplicate is invalid: the offsets below would be inconsistent.
                if self.version.is_some() {
                    return Err(cursor.unexpected());
                }
                let start = cursor.at();
                self.metadata(cursor)?;
                self.found.metadata = start..cursor.at();
            } else {
                self.member(cursor, 0, key)?;
            }
            more = cursor.another(b'}')?;
        }
        if in_head {
            // Nothing but a head: the closing bracket is all that is left.
            self.found.body_at = cursor.at() - 1;
        }
        Ok(())
    }

    fn metadata(&mut self, cursor: &mut Cursor<'a>) -> Result<(), ScanError> {
        let step = self.wanted.find(0, b"metadata");
        let mut empty = true;
        let mut more = cursor.open(b'{')?;
        while more {
            let start = cursor.at();
            let key = cursor.key()?;
            match key {
                b"resourceVersion" => self.version = Some(Version::replacing(cursor)?),
                _ if self.version.is_none() && comes_behind_version(key, self.order) => {
                    self.version = Some(Version::before(start));
                    self.metadata_member(cursor, step, key, start)?;
                }
                _ => self.metadata_member(cursor, step, key, start)?,
            }
            empty = false;
            more = cursor.another(b'}')?;
        }
        if self.version.is_none() {
            self.version = Some(Version::last(cursor.at() - 1, empty));
        }
        Ok(())
    }

    fn metadata_member(
        &mut self,
        cursor: &mut Cursor<'a>,
        step: Option<usize>,
        key: &[u8],
        start: usize,
    ) -> Result<(), ScanError> {
        match key {
            b"labels" if cursor.peek() == Some(b'{') => self.labels(cursor),
            b"managedFields" => {
                cursor.skip()?;
                // The comma behind it, or the one before it if it is the last.
                let range = match (cursor.peek(), cursor.byte_before(start)) {
                    (Some(b','), _) => start..cursor.at() + 1,
                    (_, Some(b',')) => start - 1..cursor.at(),
                    _ => start..cursor.at(),
                };
                self.found.managed_fields = Some(range);
                Ok(())
            }
            _ => match step {
                Some(step) => self.member(cursor, step, key),
                None => cursor.skip(),
            },
        }
    }

    fn labels(&mut self, cursor: &mut Cursor<'a>) -> Result<(), ScanError> {
        let labels = &mut self.found.labels;
        let mut more = cursor.open(b'{')?;
        while more {
            let key = cursor.key_text()?;
            let value = cursor.text()?.unwrap_or_default();
            labels.push((key, value));
            more = cursor.another(b'}')?;
        }
        if !labels.is_sorted() {
            labels.sort();
        }
        Ok(())
    }

    /// The value of a member: descends if a field below it is requested, otherwise skips it.
    fn member(
        &mut self,
        cursor: &mut Cursor<'a>,
        step: usize,
        key: &[u8],
    ) -> Result<(), ScanError> {
        let Some(step) = self.wanted.find(step, key) else { return cursor.skip() };
        let Step { children, slot } = &self.wanted.steps[step];
        if cursor.peek() == Some(b'{') && !children.is_empty() {
            let mut more = cursor.open(b'{')?;
            while more {
                let key = cursor.key()?;
                self.member(cursor, step, key)?;
                more = cursor.another(b'}')?;
            }
            return Ok(());
        }
        match slot {
            Some(slot) => self.found.fields[*slot] = cursor.text()?,
            None => cursor.skip()?,
        }
        Ok(())
    }
}
