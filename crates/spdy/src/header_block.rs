//! Header blocks: names and values, compressed with one zlib stream for all blocks of a direction.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::{dictionary::DICTIONARY, frame::SpdyError};

/// Names and values of a block, in its order.
pub(crate) type Headers = Vec<(String, String)>;

/// Of one block, decompressed. Kubernetes' streams have three headers of some 50 bytes.
const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// Of one block.
const HEADERS_MAX: usize = 128;
/// Of all blocks of a session: a frame of 100 bytes may become a block of 64 KiB, and frames may come without end.
/// A session has five streams.
const SESSION_BYTES_MAX: usize = 1024 * 1024;
/// What each block counts at least.
const BLOCK_COST: usize = 256;

pub(super) struct BlockEncoder {
    zlib: Compress,
}

impl Default for BlockEncoder {
    fn default() -> Self {
        let mut zlib = Compress::new(Compression::best(), true);
        zlib.set_dictionary(&DICTIONARY).expect("nothing has been compressed yet");
        Self { zlib }
    }
}

impl BlockEncoder {
    pub(super) fn encode(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut block = (headers.len() as u32).to_be_bytes().to_vec();
        for (name, value) in headers {
            for text in [name.to_ascii_lowercase().as_str(), value] {
                block.extend_from_slice(&(text.len() as u32).to_be_bytes());
                block.extend_from_slice(text.as_bytes());
            }
        }
        // Deflate adds a few bytes for each 16 KiB that it cannot compress, and the flush some more.
        let mut compressed = Vec::with_capacity(block.len() + block.len() / 1000 + 64);
        let before = self.zlib.total_in();
        while (self.zlib.total_in() - before) < block.len() as u64
            || compressed.len() == compressed.capacity()
        {
            let consumed = (self.zlib.total_in() - before) as usize;
            compressed.reserve(64);
            let flush = FlushCompress::Sync;
            let compressing = self.zlib.compress_vec(&block[consumed..], &mut compressed, flush);
            compressing.expect("a compressor without an end takes any input");
        }
        compressed
    }
}

pub(super) struct BlockDecoder {
    zlib: Decompress,
    primed: bool,
    /// Of all blocks so far.
    inflated: usize,
}

impl Default for BlockDecoder {
    fn default() -> Self {
        Self { zlib: Decompress::new(true), primed: false, inflated: 0 }
    }
}

impl BlockDecoder {
    pub(super) fn decode(&mut self, compressed: &[u8]) -> Result<Headers, SpdyError> {
        let block = self.inflate(compressed)?;
        self.inflated += block.len().max(BLOCK_COST);
        if self.inflated > SESSION_BYTES_MAX {
            return Err(SpdyError::HeadersTooLarge);
        }
        parse(&block)
    }

    fn inflate(&mut self, mut compressed: &[u8]) -> Result<Vec<u8>, SpdyError> {
        let mut block = Vec::with_capacity(1024);
        loop {
            let before = (self.zlib.total_in(), block.len());
            let inflated = self.zlib.decompress_vec(compressed, &mut block, FlushDecompress::Sync);
            compressed = &compressed[(self.zlib.total_in() - before.0) as usize..];
            match inflated {
                Err(error) if error.needs_dictionary().is_some() && !self.primed => {
                    self.primed = true;
                    self.zlib.set_dictionary(&DICTIONARY).map_err(|_| SpdyError::Compression)?;
                }
                Err(_) | Ok(flate2::Status::StreamEnd) => return Err(SpdyError::Compression),
                Ok(_) if block.len() > BLOCK_BYTES_MAX => return Err(SpdyError::HeadersTooLarge),
                Ok(_) if block.len() == block.capacity() => block.reserve(block.len().max(1024)),
                Ok(_) if compressed.is_empty() => return Ok(block),
                // Input is left, there is space for output, and nothing moves.
                Ok(_) if before == (self.zlib.total_in(), block.len()) => {
                    return Err(SpdyError::Compression);
                }
                Ok(_) => {}
            }
        }
    }
}

/// Nothing is allocated by what a count or a length claims, only by what is there.
fn parse(mut block: &[u8]) -> Result<Headers, SpdyError> {
    let count = number(&mut block)?;
    if count > HEADERS_MAX {
        return Err(SpdyError::HeadersTooLarge);
    }
    let mut headers = Headers::new();
    for _ in 0..count {
        let name = text(&mut block)?;
        let value = text(&mut block)?;
        headers.push((name, value));
    }
    if block.is_empty() { Ok(headers) } else { Err(SpdyError::HeaderBlock) }
}

fn number(block: &mut &[u8]) -> Result<usize, SpdyError> {
    let (number, rest) = block.split_first_chunk::<4>().ok_or(SpdyError::HeaderBlock)?;
    *block = rest;
    Ok(u32::from_be_bytes(*number) as usize)
}

fn text(block: &mut &[u8]) -> Result<String, SpdyError> {
    let length = number(block)?;
    let (text, rest) = block.split_at_checked(length).ok_or(SpdyError::HeaderBlock)?;
    *block = rest;
    String::from_utf8(text.to_vec()).map_err(|_| SpdyError::HeaderBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_one_stream_are_read_in_their_order() {
        let (mut encoder, mut decoder) = (BlockEncoder::default(), BlockDecoder::default());
        let long = "x".repeat(20_000);
        let noise: String = (0..9_000_u32).map(|n| char::from(33 + (n * n % 91) as u8)).collect();
        let blocks: [&[(&str, &str)]; 5] = [
            &[("streamtype", "stdin")],
            &[],
            &[("streamType", "stdout"), ("port", "80")],
            &[("long", &long)],
            &[("noise", &noise)],
        ];
        for block in blocks {
            let decoded = decoder.decode(&encoder.encode(block)).unwrap();
            let expected: Headers = block
                .iter()
                .map(|(name, value)| (name.to_lowercase(), (*value).to_owned()))
                .collect();
            assert_eq!(decoded, expected);
        }
    }

    #[test]
    fn a_block_that_claims_or_holds_too_much_is_refused() {
        let claim = |count: u32| count.to_be_bytes().to_vec();
        let cases = [
            (claim(1 << 31), SpdyError::HeadersTooLarge),
            (claim(3), SpdyError::HeaderBlock),
            ([claim(1), claim(u32::MAX)].concat(), SpdyError::HeaderBlock),
            ([claim(0), claim(0)].concat(), SpdyError::HeaderBlock),
            (vec![0; 3], SpdyError::HeaderBlock),
        ];
        for (block, expected) in cases {
            assert_eq!(parse(&block), Err(expected), "{block:?}");
        }
        // A small frame that becomes a large block.
        let mut encoder = BlockEncoder::default();
        let bomb = encoder.encode(&[("bomb", &"x".repeat(1 << 22))]);
        assert!(bomb.len() < 8192, "{}", bomb.len());
        assert_eq!(BlockDecoder::default().decode(&bomb), Err(SpdyError::HeadersTooLarge));
        assert_eq!(BlockDecoder::default().decode(b"no zlib"), Err(SpdyError::Compression));
    }

    #[test]
    fn the_blocks_of_a_session_are_bounded_together() {
        for (headers, blocks) in [(vec![("a", "x".repeat(60_000))], 17), (Vec::new(), 4_096)] {
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let (mut encoder, mut decoder) = (BlockEncoder::default(), BlockDecoder::default());
            for block in 0..blocks {
                assert!(decoder.decode(&encoder.encode(&headers)).is_ok(), "{block}");
            }
            let more = decoder.decode(&encoder.encode(&headers));
            assert_eq!(more, Err(SpdyError::HeadersTooLarge));
        }
    }
}
