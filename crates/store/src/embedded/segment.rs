//! A segment: one file of the log. Only the last one grows.

use std::io;

use super::disk::{Disk, DiskFile};
use super::record::{self, RecordHeader, u32_at, u64_at};
use crate::StoreError;

/// One file of the log.
pub(crate) struct Segment {
    pub(crate) number: u64,
    file: Box<dyn DiskFile>,
}

/// The first bytes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u64,
    /// The newest revision when the segment was created. Keeps the counter from going back after
    /// the records with the highest revisions were reclaimed.
    pub(crate) revision: u64,
    /// The compacted revision at that time.
    pub(crate) compacted: u64,
}

pub(crate) const HEADER_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"pintlelg";
/// Raised whenever the meaning of a byte changes; a server refuses a version that it does not know.
const VERSION: u32 = 1;
const SUFFIX: &str = ".log";

pub(crate) fn file_name(number: u64) -> String {
    format!("{number:012}{SUFFIX}")
}

pub(crate) fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX).filter(|stem| stem.len() == 12)?.parse().ok()
}

impl SegmentHeader {
    pub(crate) fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.revision.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.compacted.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `Ok(None)` if the bytes are not a complete header; an error if the format is unknown.
    fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Option<Self>, StoreError> {
        let field = |at| u64_at(bytes, at).unwrap_or_default();
        let version = u32_at(bytes, 8).unwrap_or_default();
        if bytes[..8] != *MAGIC || u32_at(bytes, 60) != Some(crc32fast::hash(&bytes[..60])) {
            return Ok(None);
        }
        if version != VERSION {
            return Err(StoreError::Unavailable(format!(
                "the data directory has storage format {version}, this server knows {VERSION}"
            )));
        }
        Ok(Some(Self { number: field(16), revision: field(24), compacted: field(32) }))
    }
}

impl Segment {
    /// Creates a segment, durably.
    pub(crate) fn create(disk: &dyn Disk, header: SegmentHeader) -> io::Result<Self> {
        let file = disk.create(&file_name(header.number))?;
        file.write_at(&header.encode(), 0)?;
        file.sync()?;
        disk.sync()?;
        Ok(Self { number: header.number, file })
    }

    pub(crate) fn open(disk: &dyn Disk, number: u64) -> io::Result<Self> {
        Ok(Self { number, file: disk.open(&file_name(number))? })
    }

    pub(crate) fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    pub(crate) fn header(&self) -> Result<Option<SegmentHeader>, StoreError> {
        let mut bytes = [0; HEADER_BYTES];
        let n = self.file.read_at(&mut bytes, 0).map_err(|error| self.read_error(&error))?;
        if n < HEADER_BYTES {
            return Ok(None);
        }
        let header = SegmentHeader::decode(&bytes)?;
        Ok(header.filter(|header| header.number == self.number))
    }

    /// Reads and checks one record.
    pub(crate) fn read(
        &self,
        offset: u32,
        len: u32,
    ) -> Result<(RecordHeader, bytes::Bytes), StoreError> {
        // The length may come from a hint file, and memory is allocated before the checksum is
        // verified.
        let len = (len as usize).min(record::padded(record::RECORD_BYTES_MAX));
        let mut bytes = vec![0; len];
        let n = self
            .file
            .read_at(&mut bytes, u64::from(offset))
            .map_err(|error| self.read_error(&error))?;
        bytes.truncate(n);
        record::decode_owned(bytes).ok_or_else(|| {
            StoreError::Corrupt(format!(
                "the record at byte {offset} of {} does not match its checksum",
                file_name(self.number)
            ))
        })
    }

    pub(crate) fn read_error(&self, error: &io::Error) -> StoreError {
        StoreError::Unavailable(format!("reading {}: {error}", file_name(self.number)))
    }

    /// Reads records from `from` up to the first place without one, and returns that place. `each`
    /// gets the offset, the padded length and the record.
    pub(crate) fn scan(
        &self,
        from: u64,
        mut each: impl FnMut(u32, u32, record::DecodedRecord<'_>) -> bool,
    ) -> Result<u64, StoreError> {
        let mut window = ReadWindow::new(&*self.file);
        let mut at = from;
        loop {
            let bytes =
                window.at(at, record::FIXED_BYTES).map_err(|error| self.read_error(&error))?;
            let Some(len) = record::claimed_len(bytes) else { return Ok(at) };
            let bytes = window.at(at, len).map_err(|error| self.read_error(&error))?;
            let Some(decoded) = record::decode(bytes) else { return Ok(at) };
            let room = record::padded(len) as u32;
            let go_on = each(at as u32, room, decoded);
            at += u64::from(room);
            if !go_on {
                return Ok(at);
            }
        }
    }

    /// Whether a record of a later batch follows after `end`. Then the log was not torn at `end` by
    /// a crash, but damaged later.
    pub(crate) fn has_later_batch(&self, end: u64) -> Result<bool, StoreError> {
        let mut window = ReadWindow::new(&*self.file);
        let len = self.file.len().map_err(|error| self.read_error(&error))?;
        let mut at = end + record::ALIGN as u64;
        while at < len {
            let bytes =
                window.at(at, record::FIXED_BYTES).map_err(|error| self.read_error(&error))?;
            if let Some(len) = record::claimed_len(bytes) {
                let bytes = window.at(at, len).map_err(|error| self.read_error(&error))?;
                let start =
                    |found: record::DecodedRecord<'_>| at - u64::from(found.batch_back).min(at);
                if record::decode(bytes).map(start).is_some_and(|start| start > end) {
                    return Ok(true);
                }
            }
            at += record::ALIGN as u64;
        }
        Ok(false)
    }
}

/// A part of a file in memory, which follows the reader.
struct ReadWindow<'a> {
    file: &'a dyn DiskFile,
    start: u64,
    bytes: Vec<u8>,
    end_of_file: bool,
}

/// Large enough for sequential reads, small compared to the memory of an idle server.
const WINDOW_BYTES: usize = 256 << 10;

impl<'a> ReadWindow<'a> {
    fn new(file: &'a dyn DiskFile) -> Self {
        Self { file, start: 0, bytes: Vec::new(), end_of_file: false }
    }

    /// `len` bytes at `at`, or fewer at the end of the file.
    fn at(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        let have = self.start..self.start + self.bytes.len() as u64;
        let inside = at >= have.start && at + len as u64 <= have.end;
        let at_end = self.end_of_file && at >= have.start;
        if !inside && !at_end {
            let want = len.max(WINDOW_BYTES);
            let left = self.file.len()?.saturating_sub(at);
            self.bytes.resize(want.min(usize::try_from(left).unwrap_or(want)), 0);
            let n = self.file.read_at(&mut self.bytes, at)?;
            self.bytes.truncate(n);
            self.end_of_file = n < want;
            self.start = at;
        }
        let from = ((at - self.start) as usize).min(self.bytes.len());
        let to = (from + len).min(self.bytes.len());
        Ok(&self.bytes[from..to])
    }
}
