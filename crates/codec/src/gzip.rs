//! gzip that is put together from text that is compressed as it comes, and pieces that were compressed before.
//!
//! Blocks of deflate can be concatenated if each ends at a byte and refers to nothing but what is in front of it. A piece
//! refers to itself and to the text that it directly follows, its dictionary: objects of a list resemble each other, so that
//! a piece is a third of what it would be alone. The checksum of the whole is combined from those of the pieces.

use flate2::{Compress, Compression, FlushCompress, Status};

/// Writes one gzip member. What is compressed is taken out as it comes, with [`GzipWriter::take_output`].
pub struct GzipWriter {
    output: Vec<u8>,
    compress: Compress,
    encoder: Encoder,
    crc: u32,
    /// Modulo 2^32, as in the trailer.
    len: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoder {
    /// Has seen nothing.
    Fresh,
    /// Has seen the text right before, and may hold back some of its output.
    Running,
    /// Has seen text that is elsewhere now: pieces were written after it.
    Stale,
}

impl Default for GzipWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl GzipWriter {
    pub fn new() -> Self {
        let mut output = Vec::with_capacity(OUTPUT_BYTES);
        output.extend_from_slice(&HEADER);
        let compress = Compress::new(Compression::new(LEVEL), false);
        Self { output, compress, encoder: Encoder::Fresh, crc: 0, len: 0 }
    }

    /// Compresses text that is not kept.
    pub fn write(&mut self, text: &[u8]) {
        if self.encoder == Encoder::Stale {
            self.compress.reset();
        }
        self.encoder = Encoder::Running;
        run(&mut self.compress, text, FlushCompress::None, &mut self.output);
        self.crc = crc(self.crc, text);
        self.len = self.len.wrapping_add(text.len() as u32);
    }

    /// Compresses `text` into a piece, which may be written wherever `dictionary` (or what ends with it) is in front of it.
    /// Does not write it. `piece` is added to.
    pub fn compress_piece(&mut self, dictionary: &[u8], text: &[u8], piece: &mut Vec<u8>) {
        self.flush();
        self.compress.reset();
        self.encoder = Encoder::Stale;
        if !dictionary.is_empty() {
            let from = dictionary.len().saturating_sub(WINDOW_BYTES);
            self.compress.set_dictionary(&dictionary[from..]).expect("nothing was compressed yet");
        }
        for number in [crc(0, text), shift(text.len()), text.len() as u32] {
            piece.extend_from_slice(&number.to_le_bytes());
        }
        run(&mut self.compress, text, FlushCompress::Sync, piece);
    }

    /// Writes a piece. Invariant: its dictionary is what was written right before.
    pub fn write_piece(&mut self, piece: &Piece<'_>) {
        self.flush();
        self.encoder = Encoder::Stale;
        self.output.extend_from_slice(piece.blocks);
        self.crc = multiply(piece.shift, self.crc) ^ piece.crc;
        self.len = self.len.wrapping_add(piece.len);
    }

    /// Writes all that the encoder holds back, up to the end of a byte.
    fn flush(&mut self) {
        if self.encoder == Encoder::Running {
            run(&mut self.compress, &[], FlushCompress::Sync, &mut self.output);
        }
    }

    /// How much can be taken out.
    pub fn output_len(&self) -> usize {
        self.output.len()
    }

    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::replace(&mut self.output, Vec::with_capacity(OUTPUT_BYTES))
    }

    /// Ends the member and returns the rest of it.
    pub fn finish(mut self) -> Vec<u8> {
        if self.encoder == Encoder::Stale {
            self.compress.reset();
        }
        run(&mut self.compress, &[], FlushCompress::Finish, &mut self.output);
        self.output.extend_from_slice(&self.crc.to_le_bytes());
        self.output.extend_from_slice(&self.len.to_le_bytes());
        self.output
    }
}

/// Whether `gzip` is one of the encodings that the first line of a request's `Accept-Encoding` names.
///
/// Compat: a weight (`gzip;q=1.0`) is not understood, as in kube-apiserver.
pub fn is_accepted(accept_encoding: &[u8]) -> bool {
    accept_encoding.split(|byte| *byte == b',').any(|token| token.trim_ascii() == b"gzip")
}

/// Deflate, no name and no time, compressed at the fastest level, on an unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
/// The fastest level: higher ones save a few percent of the bytes and cost several times the time.
const LEVEL: u32 = 1;
/// How far back deflate refers.
const WINDOW_BYTES: usize = 32 << 10;
const OUTPUT_BYTES: usize = 32 << 10;

/// Compresses all of `text` into `output`.
fn run(compress: &mut Compress, mut text: &[u8], flush: FlushCompress, output: &mut Vec<u8>) {
    loop {
        output.reserve(text.len() / 4 + FLUSH_BYTES);
        let before = compress.total_in();
        let status = compress.compress_vec(text, output, flush).expect("the stream is in order");
        text = &text[(compress.total_in() - before) as usize..];
        let done = match flush {
            FlushCompress::None => text.is_empty(),
            FlushCompress::Finish => status == Status::StreamEnd,
            // A flush is complete if it left room.
            _ => text.is_empty() && output.len() < output.capacity(),
        };
        if done {
            return;
        }
    }
}

/// Room for the end of a block.
const FLUSH_BYTES: usize = 64;

/// A piece as [`GzipWriter::compress_piece`] has made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The checksum of its text.
    pub crc: u32,
    /// What a checksum is multiplied with when the text is added; see [`shift`].
    shift: u32,
    /// The length of its text.
    pub len: u32,
    blocks: &'a [u8],
}

impl<'a> Piece<'a> {
    pub fn read(piece: &'a [u8]) -> Option<Self> {
        let (crc, rest) = piece.split_first_chunk()?;
        let (shift, rest) = rest.split_first_chunk()?;
        let (len, blocks) = rest.split_first_chunk()?;
        let number = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        Some(Self { crc: number(crc), shift: number(shift), len: number(len), blocks })
    }
}

/// The CRC-32 of what `crc` is the checksum of and `text`.
pub fn crc(crc: u32, text: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(text);
    hasher.finalize()
}

/// x^(8 * len) modulo CRC-32's polynomial: a checksum times this is the checksum before so many more bytes. crc32fast computes
/// it each time it combines, which takes ten times as long as the multiplication; a piece has it ready.
fn shift(mut len: usize) -> u32 {
    let mut product = ONE;
    // Powers of x^8.
    let mut power = ONE >> 8;
    while len > 0 {
        if len & 1 == 1 {
            product = multiply(power, product);
        }
        power = multiply(power, power);
        len >>= 1;
    }
    product
}

/// Polynomials over GF(2), the highest bit first: the bit of x^0.
const ONE: u32 = 1 << 31;
const POLYNOMIAL: u32 = 0xedb8_8320;

/// The product of two polynomials modulo [`POLYNOMIAL`].
fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = ONE;
    while bit > 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = b >> 1 ^ POLYNOMIAL & (b & 1).wrapping_neg();
        bit >>= 1;
    }
    product
}

#[cfg(test)]
mod tests;
