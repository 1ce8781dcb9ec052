//! Entry points for the fuzz targets: files as they may be found on disk, in memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::record::{self, RecordHeader, RecordKind, u32_at};
use super::segment::{self, HEADER_BYTES, SegmentHeader};
use super::{hint, key_value, recover};
use crate::{Range, StoreError};

/// A log of two segments, and the hint file of the first.
#[derive(Clone)]
pub struct Log {
    pub first: Vec<u8>,
    pub hint: Vec<u8>,
    pub second: Vec<u8>,
}

impl Log {
    /// A valid log with every kind of record.
    pub fn sample() -> Self {
        let put = |revision, create_revision, key: &str| RecordHeader {
            kind: RecordKind::Put,
            revision,
            create_revision,
            expires_ms: 0,
            superseded: 0,
            key: key.into(),
        };
        let compact = RecordHeader { kind: RecordKind::Compact, ..put(3, 0, "") };
        let moved = RecordHeader { kind: RecordKind::Moved, superseded: 5, ..put(2, 2, "/a") };
        let delete = RecordHeader { kind: RecordKind::Delete, ..put(6, 3, "/b") };
        let first = [put(2, 2, "/a"), put(3, 3, "/b"), put(4, 2, "/a"), compact];
        let expiring = RecordHeader { expires_ms: u64::MAX, ..put(5, 2, "/a") };
        let (first, hint) = segment(1, 1, &first);
        let (second, _) = segment(2, 4, &[expiring, delete, moved]);
        Self { first, hint, second }
    }

    /// Recovers the log and reads everything that is in it.
    pub fn read(self) -> Result<String, StoreError> {
        let files = [
            (segment::file_name(1), self.first),
            (hint::file_name(1), self.hint),
            (segment::file_name(2), self.second),
        ];
        let files = files.into_iter().filter(|(_, bytes)| !bytes.is_empty());
        let disk = MemoryDisk(files.map(|(name, bytes)| (name, bytes.into())).collect());
        let index = recover::recover(&disk)?.index;
        let (found, revision, _) = index.range(&Range::default())?;
        let keys = found.len();
        for version in found {
            key_value(version)?;
        }
        let (changes, reached) = index.changes_after("", index.compacted, CHANGES_MAX)?;
        assert!(reached <= revision || changes.is_empty(), "history ends at the newest revision");
        let history = revision - index.compacted.min(revision);
        Ok(format!("{} keys, {} changes, {}", keys.min(9), changes.len().min(9), history.min(9)))
    }
}

const CHANGES_MAX: usize = 1000;

/// Decodes one record; if that succeeds, it must encode to the same bytes.
pub fn decode_record(bytes: &[u8]) -> Option<&'static str> {
    let decoded = record::decode(bytes)?;
    let len = record::claimed_len(bytes)?;
    let mut again = vec![0; decoded.batch_back.min(1 << 16) as usize];
    let start = again.len();
    decoded.header.encode(decoded.value, &mut again);
    // The checksum covers the distance to the start of the batch and a byte that is always zero.
    if start == decoded.batch_back as usize && bytes[47] == 0 {
        assert_eq!(again[start..start + len], bytes[..len], "a record encodes as it was decoded");
    }
    Some(match decoded.header.kind {
        RecordKind::Put => "put",
        RecordKind::Delete => "delete",
        RecordKind::Moved => "moved",
        RecordKind::Compact => "compaction",
    })
}

/// Corrects the checksums of a segment, so that what they protect is read.
pub fn repair_segment(bytes: &mut [u8]) {
    if let Some(header) = bytes.first_chunk_mut::<HEADER_BYTES>() {
        let crc = crc32fast::hash(&header[..60]);
        header[60..].copy_from_slice(&crc.to_le_bytes());
    }
    let mut rest = bytes.get_mut(HEADER_BYTES..).unwrap_or_default();
    while let Some(len) = repair_record(rest) {
        rest = rest.get_mut(record::padded(len)..).unwrap_or_default();
    }
}

/// The same for a record; answers its length.
pub fn repair_record(bytes: &mut [u8]) -> Option<usize> {
    let len = record::claimed_len(bytes)?;
    let crc = crc32fast::hash(bytes.get(4..len)?);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    Some(len)
}

/// The same for a hint file.
pub fn repair_hint(bytes: &mut [u8]) {
    if u32_at(bytes, 12).is_some() {
        let crc = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    }
}

fn segment(number: u64, revision: u64, headers: &[RecordHeader]) -> (Vec<u8>, Vec<u8>) {
    let mut bytes = SegmentHeader { number, revision, compacted: 1 }.encode().to_vec();
    let mut hint = hint::HintBuilder::default();
    for header in headers {
        let mut batch = Vec::new();
        let value: &[u8] = if header.kind == RecordKind::Put { b"{\"kind\":\"Pod\"}" } else { b"" };
        let len = header.encode(value, &mut batch);
        hint.add(header, bytes.len() as u32, len);
        bytes.extend(batch);
    }
    let hint = hint.encode(number, bytes.len() as u64);
    (bytes, hint)
}

/// Files that can only be read.
struct MemoryDisk(BTreeMap<String, Arc<[u8]>>);

impl Disk for MemoryDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.keys().cloned().collect())
    }

    fn create(&self, _name: &str) -> io::Result<Box<dyn DiskFile>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = self.0.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(MemoryFile(Arc::clone(file))))
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

struct MemoryFile(Arc<[u8]>);

impl DiskFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        let n = buffer.len().min(self.0.len() - from);
        buffer[..n].copy_from_slice(&self.0[from..from + n]);
        Ok(n)
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
