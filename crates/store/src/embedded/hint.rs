//! The hint file of a finished segment: with it, recovery reads keys instead of values. Optional:
//! if it is missing or damaged, the segment itself is read.

use super::disk::Disk;
use super::record::{self, RecordHeader, u32_at, u64_at};
use meta::Str;

/// Collects the entries of a hint file while its segment grows.
#[derive(Default)]
pub(crate) struct HintBuilder {
    entries: Vec<u8>,
}

/// One record of the segment.
pub(crate) struct HintEntry {
    pub(crate) header: RecordHeader,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

const MAGIC: &[u8; 8] = b"pintleix";
const VERSION: u32 = 1;
/// Magic, version, checksum of the rest, segment number, end of its records.
const HEADER_BYTES: usize = 32;
const FIXED_BYTES: usize = 44;

pub(crate) fn file_name(number: u64) -> String {
    format!("{number:012}.idx")
}

impl HintBuilder {
    pub(crate) fn add(&mut self, header: &RecordHeader, offset: u32, len: u32) {
        let entry = &mut self.entries;
        entry.extend_from_slice(&header.revision.to_le_bytes());
        entry.extend_from_slice(&header.create_revision.to_le_bytes());
        entry.extend_from_slice(&header.expires_ms.to_le_bytes());
        entry.extend_from_slice(&header.superseded.to_le_bytes());
        entry.extend_from_slice(&offset.to_le_bytes());
        entry.extend_from_slice(&len.to_le_bytes());
        entry.extend_from_slice(&(header.key.len() as u16).to_le_bytes());
        entry.extend_from_slice(&[header.kind as u8, 0]);
        entry.extend_from_slice(header.key.as_bytes());
    }

    /// Writes the hint file. It need not be durable, so it is not synced.
    pub(crate) fn write(self, disk: &dyn Disk, number: u64, end: u64) -> std::io::Result<()> {
        disk.create(&file_name(number))?.write_at(&self.encode(number, end), 0)
    }

    pub(crate) fn encode(self, number: u64, end: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.entries.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&end.to_le_bytes());
        bytes.extend_from_slice(&self.entries);
        let crc = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// The entries of a hint file and the end of the segment's records, or `None` if it is missing or
/// damaged.
pub(crate) fn read(disk: &dyn Disk, number: u64) -> Option<(Vec<HintEntry>, u64)> {
    let file = disk.open(&file_name(number)).ok()?;
    let mut bytes = vec![0; file.len().ok()? as usize];
    let n = file.read_at(&mut bytes, 0).ok()?;
    bytes.truncate(n);
    let whole = bytes.starts_with(MAGIC)
        && u32_at(&bytes, 8) == Some(VERSION)
        && u32_at(&bytes, 12) == Some(crc32fast::hash(bytes.get(16..)?))
        && u64_at(&bytes, 16) == Some(number);
    if !whole {
        return None;
    }
    let mut entries = Vec::new();
    let mut rest = bytes.get(HEADER_BYTES..)?;
    while !rest.is_empty() {
        let key_end =
            FIXED_BYTES + usize::from(u16::from_le_bytes([*rest.get(40)?, *rest.get(41)?]));
        let header = RecordHeader {
            kind: record::kind(*rest.get(42)?)?,
            revision: u64_at(rest, 0)?,
            create_revision: u64_at(rest, 8)?,
            expires_ms: u64_at(rest, 16)?,
            superseded: u64_at(rest, 24)?,
            key: Str::new(std::str::from_utf8(rest.get(FIXED_BYTES..key_end)?).ok()?),
        };
        entries.push(HintEntry { header, offset: u32_at(rest, 32)?, len: u32_at(rest, 36)? });
        rest = &rest[key_end..];
    }
    Some((entries, u64_at(&bytes, 24)?))
}
