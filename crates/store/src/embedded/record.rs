//! One record of the log. `docs/storage-format.md` describes the format.

use bytes::Bytes;
use meta::Str;

/// What a record does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Put = 1,
    Delete = 2,
    /// A put that was copied from a segment that is being reclaimed.
    Moved = 3,
    /// History before `revision` may be dropped. Has no key.
    Compact = 4,
}

/// A record without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    pub(crate) revision: u64,
    pub(crate) create_revision: u64,
    /// Unix milliseconds, 0: never.
    pub(crate) expires_ms: u64,
    /// For a moved record: the revision that had replaced it when it was moved; 0: none.
    pub(crate) superseded: u64,
    pub(crate) key: Str,
}

/// The fixed part of a record.
pub(crate) const FIXED_BYTES: usize = 48;
/// Records begin at multiples of this.
pub(crate) const ALIGN: usize = 8;
pub(crate) const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// Larger than every record that can be written: the largest request and its header.
pub(crate) const RECORD_BYTES_MAX: usize = crate::backend::REQUEST_BYTES_MAX + 4096;

/// A decoded record, borrowed from a buffer.
pub(crate) struct DecodedRecord<'a> {
    pub(crate) header: RecordHeader,
    pub(crate) value: &'a [u8],
    /// The distance from the start of the batch, which is written and synced at once.
    pub(crate) batch_back: u32,
}

impl RecordHeader {
    /// Appends the record to a batch and returns its padded length.
    pub(crate) fn encode(&self, value: &[u8], batch: &mut Vec<u8>) -> u32 {
        let start = batch.len();
        let len = FIXED_BYTES + self.key.len() + value.len();
        batch.extend_from_slice(&[0; 4]);
        batch.extend_from_slice(&(len as u32).to_le_bytes());
        batch.extend_from_slice(&self.revision.to_le_bytes());
        batch.extend_from_slice(&self.create_revision.to_le_bytes());
        batch.extend_from_slice(&self.expires_ms.to_le_bytes());
        batch.extend_from_slice(&self.superseded.to_le_bytes());
        batch.extend_from_slice(&(start as u32).to_le_bytes());
        batch.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        batch.extend_from_slice(&[self.kind as u8, 0]);
        batch.extend_from_slice(self.key.as_bytes());
        batch.extend_from_slice(value);
        let crc = crc32fast::hash(&batch[start + 4..]);
        batch[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        let padded = padded(len);
        batch.resize(start + padded, 0);
        padded as u32
    }

    pub(crate) fn expires(&self) -> Option<u64> {
        (self.expires_ms > 0).then_some(self.expires_ms)
    }
}

/// The length of a record with padding.
pub(crate) fn padded(len: usize) -> usize {
    len.next_multiple_of(ALIGN)
}

/// The length of the record that begins here, without padding; `None` if there is none.
pub(crate) fn claimed_len(bytes: &[u8]) -> Option<usize> {
    let len = u32_at(bytes, 4)? as usize;
    (FIXED_BYTES..=RECORD_BYTES_MAX).contains(&len).then_some(len)
}

/// The record that begins here, or `None` if there is none or it is not complete.
pub(crate) fn decode(bytes: &[u8]) -> Option<DecodedRecord<'_>> {
    let len = claimed_len(bytes)?;
    let bytes = bytes.get(..len)?;
    let kind = kind(bytes[46])?;
    let key_end = FIXED_BYTES + usize::from(u16::from_le_bytes([bytes[44], bytes[45]]));
    let key = bytes.get(FIXED_BYTES..key_end)?;
    if crc32fast::hash(&bytes[4..]) != u32_at(bytes, 0)? {
        return None;
    }
    let header = RecordHeader {
        kind,
        revision: u64_at(bytes, 8)?,
        create_revision: u64_at(bytes, 16)?,
        expires_ms: u64_at(bytes, 24)?,
        superseded: u64_at(bytes, 32)?,
        key: Str::new(std::str::from_utf8(key).ok()?),
    };
    Some(DecodedRecord { header, value: &bytes[key_end..], batch_back: u32_at(bytes, 40)? })
}

/// Decodes a record without copying its value.
pub(crate) fn decode_owned(bytes: Vec<u8>) -> Option<(RecordHeader, Bytes)> {
    let (header, value_len) = {
        let decoded = decode(&bytes)?;
        (decoded.header, decoded.value.len())
    };
    let len = claimed_len(&bytes)?;
    Some((header, Bytes::from(bytes).slice(len - value_len..len)))
}

pub(crate) fn kind(byte: u8) -> Option<RecordKind> {
    Some(match byte {
        1 => RecordKind::Put,
        2 => RecordKind::Delete,
        3 => RecordKind::Moved,
        4 => RecordKind::Compact,
        _ => return None,
    })
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put() -> RecordHeader {
        RecordHeader {
            kind: RecordKind::Put,
            revision: 7,
            create_revision: 3,
            expires_ms: 1_700_000_000_000,
            superseded: 0,
            key: "/registry/pods/ns/name".into(),
        }
    }

    #[test]
    fn records_decode_as_they_were_encoded() {
        let mut batch = Vec::new();
        let first = put().encode(b"value", &mut batch) as usize;
        let delete = RecordHeader { kind: RecordKind::Delete, key: "k".into(), ..put() };
        let second = delete.encode(b"", &mut batch) as usize;
        assert_eq!(batch.len(), first + second);
        let decoded = decode(&batch).expect("is whole");
        assert_eq!(
            (&decoded.header, decoded.value, decoded.batch_back),
            (&put(), &b"value"[..], 0)
        );
        let decoded = decode(&batch[first..]).expect("is whole");
        assert_eq!((&decoded.header, decoded.value), (&delete, &b""[..]));
        assert_eq!(decoded.batch_back as usize, first);
        let (header, value) = decode_owned(batch[..first].to_vec()).expect("is whole");
        assert_eq!((header, value), (put(), Bytes::from_static(b"value")));
    }

    #[test]
    fn a_record_with_any_bit_changed_or_byte_missing_is_none() {
        let mut batch = Vec::new();
        put().encode(b"some value", &mut batch);
        let len = claimed_len(&batch).expect("is a record");
        for cut in 0..len {
            assert!(decode(&batch[..cut]).is_none(), "cut at {cut}");
        }
        for bit in 0..len * 8 {
            let mut changed = batch.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&changed).is_none(), "bit {bit}");
        }
        assert!(decode(&[0; 64]).is_none());
    }
}
