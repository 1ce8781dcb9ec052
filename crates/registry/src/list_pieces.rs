//! Compressed lists from pieces that entries keep: what a list writes of an object is compressed once, for all clients.
//!
//! A piece refers to what is written of the object before it, so it is good only after this one. It says which that is: lists
//! without a selector have the same neighbours, until one of them changes. Lists with a selector are compressed as they come.

use std::sync::Arc;

use codec::gzip::{self, GzipWriter, Piece};
use meta::ApiError;
use store::Entry;

use crate::response_format::ItemWriter;

pub(crate) struct ListPieces {
    slot: u32,
    /// The object that was written last; none before the second.
    previous: Option<Arc<Entry>>,
    /// What was written of it, if that was needed.
    previous_text: Option<Vec<u8>>,
    previous_crc: Option<u32>,
    /// Buffers.
    text: Vec<u8>,
    piece: Vec<u8>,
}

/// Smaller objects are not worth a piece each.
const OBJECT_BYTES_MIN: usize = 1024;
/// Which object a piece follows: its revision, and the checksum of what is written of it.
const LINK_BYTES: usize = 12;

impl ListPieces {
    pub(crate) fn new(slot: u32) -> Self {
        let (text, piece) = (Vec::new(), Vec::new());
        Self { slot, previous: None, previous_text: None, previous_crc: None, text, piece }
    }

    /// What is written next comes after `entry`. Not for the first of a list, which is written without a comma.
    pub(crate) fn follow(&mut self, entry: Arc<Entry>) {
        self.previous = Some(entry);
        self.previous_text = None;
        self.previous_crc = None;
    }

    pub(crate) fn follow_any(&self) -> bool {
        self.previous.is_some()
    }

    /// Writes an object, and keeps its piece if there is a place for it. Returns how many bytes had to be compressed.
    pub(crate) fn write(
        &mut self,
        entry: Arc<Entry>,
        writer: &dyn ItemWriter,
        gzip: &mut GzipWriter,
    ) -> Result<usize, ApiError> {
        let kept = entry.cached_encoding(self.slot);
        let kept = kept.as_deref().and_then(<[u8]>::split_first_chunk::<LINK_BYTES>);
        if let Some((link, piece)) = kept
            && *link == self.link(writer)?
            && let Some(piece) = Piece::read(piece)
        {
            gzip.write_piece(&piece);
            self.follow(entry);
            self.previous_crc = Some(piece.crc);
            return Ok(0);
        }
        self.text.clear();
        writer.piece_text(&entry, &mut self.text)?;
        let mut crc = None;
        // Pieces that cannot be kept are larger than a list in one, and take longer.
        if self.text.len() >= OBJECT_BYTES_MIN && entry.has_place(self.text.len() / RATIO) {
            self.piece.clear();
            let link = self.link(writer)?;
            self.piece.extend_from_slice(&link);
            self.previous_text(writer)?;
            let dictionary = self.previous_text.as_deref().unwrap_or_default();
            gzip.compress_piece(dictionary, &self.text, &mut self.piece);
            if let Some(piece) = Piece::read(&self.piece[LINK_BYTES..]) {
                gzip.write_piece(&piece);
                crc = Some(piece.crc);
            }
            entry.replace_encoding(self.slot, &self.piece);
        } else {
            gzip.write(&self.text);
        }
        let compressed = self.text.len();
        let buffer = self.previous_text.take().unwrap_or_default();
        let text = std::mem::replace(&mut self.text, buffer);
        self.follow(entry);
        (self.previous_text, self.previous_crc) = (Some(text), crc);
        Ok(compressed)
    }

    fn link(&mut self, writer: &dyn ItemWriter) -> Result<[u8; LINK_BYTES], ApiError> {
        let crc = match self.previous_crc {
            Some(crc) => crc,
            None => gzip::crc(0, self.previous_text(writer)?),
        };
        self.previous_crc = Some(crc);
        let revision = self.previous.as_ref().map_or(0, |previous| previous.revision);
        let mut link = [0; LINK_BYTES];
        link[..8].copy_from_slice(&revision.to_le_bytes());
        link[8..].copy_from_slice(&crc.to_le_bytes());
        Ok(link)
    }

    fn previous_text(&mut self, writer: &dyn ItemWriter) -> Result<&[u8], ApiError> {
        if self.previous_text.is_none() {
            let mut text = Vec::new();
            if let Some(previous) = &self.previous {
                writer.piece_text(previous, &mut text)?;
            }
            self.previous_text = Some(text);
        }
        Ok(self.previous_text.as_deref().unwrap_or_default())
    }
}

/// How many times smaller a piece is than its text, at least; a guess.
const RATIO: usize = 8;

#[cfg(test)]
mod tests;
