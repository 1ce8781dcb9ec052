//! Frames: read from whatever pieces they arrive in, and written.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::header_block::{BlockDecoder, BlockEncoder, Headers};

/// A control frame that is longer ends the connection. Those of Kubernetes have some 100 bytes.
pub const CONTROL_FRAME_BYTES_MAX: usize = 16 * 1024;

/// What is received. Frames without a meaning here (SETTINGS, WINDOW_UPDATE) are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    SynStream {
        stream: u32,
        headers: Headers,
        fin: bool,
    },
    SynReply {
        stream: u32,
        headers: Headers,
        fin: bool,
    },
    Headers {
        stream: u32,
        headers: Headers,
        fin: bool,
    },
    RstStream {
        stream: u32,
        status: u32,
    },
    Ping {
        id: u32,
    },
    GoAway,
    /// A piece of a frame, as it arrived; `fin` comes with the last piece.
    Data {
        stream: u32,
        bytes: Bytes,
        fin: bool,
    },
}

/// Why a stream is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    RefusedStream = 3,
    Cancel = 5,
}

/// Why a connection cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpdyError {
    #[error("a control frame of {0} bytes is too large")]
    FrameTooLarge(usize),
    #[error("a header block is too large")]
    HeadersTooLarge,
    #[error("a header block is malformed")]
    HeaderBlock,
    #[error("a header block cannot be decompressed")]
    Compression,
    #[error("version {0} of SPDY")]
    Version(u16),
    #[error("a control frame of type {0} is malformed")]
    ControlFrame(u16),
    #[error("a frame for stream 0")]
    StreamZero,
}

const VERSION: u16 = 3;
const HEAD_BYTES: usize = 8;
const FIN: u8 = 1;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const SETTINGS: u16 = 4;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW_UPDATE: u16 = 9;

/// Reads frames. Holds the rest of a data frame's length and no bytes.
#[derive(Default)]
pub struct Decoder {
    blocks: BlockDecoder,
    data: Option<DataFrame>,
}

/// A data frame whose head has been read.
struct DataFrame {
    stream: u32,
    left: usize,
    fin: bool,
}

impl Decoder {
    /// The next frame in `buffer`, which is taken from it. None: more bytes are needed.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, SpdyError> {
        loop {
            if let Some(data) = &mut self.data {
                if buffer.is_empty() && data.left > 0 {
                    return Ok(None);
                }
                let bytes = buffer.split_to(buffer.len().min(data.left)).freeze();
                data.left -= bytes.len();
                let (stream, fin) = (data.stream, data.fin && data.left == 0);
                if data.left == 0 {
                    self.data = None;
                }
                return Ok(Some(Frame::Data { stream, bytes, fin }));
            }
            let Some(head) = buffer.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
            let [a, b, c, d, flags, lengths @ ..] = *head;
            let length = u32::from_be_bytes([0, lengths[0], lengths[1], lengths[2]]) as usize;
            if a & 0x80 == 0 {
                let stream = stream_id([a, b, c, d])?;
                buffer.advance(HEAD_BYTES);
                self.data = Some(DataFrame { stream, left: length, fin: flags & FIN != 0 });
                continue;
            }
            if length > CONTROL_FRAME_BYTES_MAX {
                return Err(SpdyError::FrameTooLarge(length));
            }
            let version = u16::from_be_bytes([a & 0x7f, b]);
            if version != VERSION {
                return Err(SpdyError::Version(version));
            }
            if buffer.len() < HEAD_BYTES + length {
                return Ok(None);
            }
            buffer.advance(HEAD_BYTES);
            let payload = buffer.split_to(length);
            if let Some(frame) = self.control(u16::from_be_bytes([c, d]), flags, &payload)? {
                return Ok(Some(frame));
            }
        }
    }

    fn control(
        &mut self,
        kind: u16,
        flags: u8,
        payload: &[u8],
    ) -> Result<Option<Frame>, SpdyError> {
        let malformed = SpdyError::ControlFrame(kind);
        let fin = flags & FIN != 0;
        let first = || payload.first_chunk::<4>().copied().ok_or(malformed);
        let second = || payload.get(4..8).and_then(|four| four.try_into().ok()).ok_or(malformed);
        Ok(Some(match kind {
            SYN_STREAM => {
                // The associated stream, the priority and the slot are of no use here.
                let block = payload.get(10..).ok_or(malformed)?;
                let headers = self.blocks.decode(block)?;
                Frame::SynStream { stream: stream_id(first()?)?, headers, fin }
            }
            SYN_REPLY => {
                let headers = self.blocks.decode(payload.get(4..).ok_or(malformed)?)?;
                Frame::SynReply { stream: stream_id(first()?)?, headers, fin }
            }
            HEADERS => {
                let headers = self.blocks.decode(payload.get(4..).ok_or(malformed)?)?;
                Frame::Headers { stream: stream_id(first()?)?, headers, fin }
            }
            RST_STREAM => {
                let status = u32::from_be_bytes(second()?);
                Frame::RstStream { stream: stream_id(first()?)?, status }
            }
            PING => Frame::Ping { id: u32::from_be_bytes(first()?) },
            GOAWAY => Frame::GoAway,
            SETTINGS => {
                // Nothing is done with them, but a frame that lies about their number is no frame.
                let count = u32::from_be_bytes(first()?) as usize;
                if count > (payload.len() - 4) / 8 {
                    return Err(malformed);
                }
                return Ok(None);
            }
            WINDOW_UPDATE => return Ok(None),
            _ => return Err(malformed),
        }))
    }
}

fn stream_id(bytes: [u8; 4]) -> Result<u32, SpdyError> {
    match u32::from_be_bytes(bytes) & 0x7fff_ffff {
        0 => Err(SpdyError::StreamZero),
        id => Ok(id),
    }
}

/// Writes frames.
#[derive(Default)]
pub struct Encoder {
    blocks: BlockEncoder,
}

impl Encoder {
    pub fn syn_stream(&mut self, stream: u32, headers: &[(&str, &str)], out: &mut BytesMut) {
        let block = self.blocks.encode(headers);
        control(SYN_STREAM, 10 + block.len(), out);
        out.put_u32(stream);
        // No associated stream, the highest priority, no slot.
        out.put_bytes(0, 6);
        out.put_slice(&block);
    }

    pub fn syn_reply(&mut self, stream: u32, headers: &[(&str, &str)], out: &mut BytesMut) {
        let block = self.blocks.encode(headers);
        control(SYN_REPLY, 4 + block.len(), out);
        out.put_u32(stream);
        out.put_slice(&block);
    }

    /// The head of a data frame; `length` bytes follow it.
    pub fn data_head(stream: u32, length: usize, fin: bool, out: &mut BytesMut) {
        out.put_u32(stream);
        out.put_u32(u32::from(fin) << 24 | length as u32);
    }

    pub fn rst_stream(stream: u32, status: Reset, out: &mut BytesMut) {
        control(RST_STREAM, 8, out);
        out.put_u32(stream);
        out.put_u32(status as u32);
    }

    pub fn ping(id: u32, out: &mut BytesMut) {
        control(PING, 4, out);
        out.put_u32(id);
    }

    pub fn go_away(out: &mut BytesMut) {
        control(GOAWAY, 8, out);
        out.put_u64(0);
    }
}

fn control(kind: u16, length: usize, out: &mut BytesMut) {
    out.put_u16(0x8000 | VERSION);
    out.put_u16(kind);
    out.put_u32(length as u32);
}

/// Entry point for the fuzz target: what is received in these pieces, as text. Data is joined, since
/// its pieces are those in which it came.
#[doc(hidden)]
pub fn decode_frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    // Escaped data never has it.
    const FIN: char = '\n';
    let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::new());
    let mut frames: Vec<String> = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.next(&mut buffer) {
                Ok(Some(Frame::Data { stream, bytes, fin })) => {
                    let head = format!("data {stream} ");
                    let text = bytes.escape_ascii().to_string();
                    match frames.last_mut() {
                        Some(last) if last.starts_with(&head) && !last.ends_with(FIN) => {
                            last.push_str(&text);
                        }
                        _ => frames.push(format!("{head}{text}")),
                    }
                    if fin && let Some(last) = frames.last_mut() {
                        last.push(FIN);
                    }
                }
                Ok(Some(frame)) => frames.push(format!("{frame:?}")),
                Ok(None) => break,
                Err(error) => {
                    frames.push(error.to_string());
                    return frames;
                }
            }
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], piece: usize) -> Result<Vec<Frame>, SpdyError> {
        let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::new());
        let mut frames = Vec::new();
        for piece in bytes.chunks(piece) {
            buffer.extend_from_slice(piece);
            while let Some(frame) = decoder.next(&mut buffer)? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    #[test]
    fn frames_are_read_in_whatever_pieces_they_arrive() {
        let (mut encoder, mut out) = (Encoder::default(), BytesMut::new());
        encoder.syn_stream(1, &[("streamtype", "error")], &mut out);
        encoder.syn_reply(1, &[], &mut out);
        // SETTINGS with one entry, and WINDOW_UPDATE.
        out.put_slice(&[0x80, 3, 0, 4, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 7, 0, 1, 0, 0]);
        out.put_slice(&[0x80, 3, 0, 9, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 1, 0]);
        Encoder::data_head(3, 5, false, &mut out);
        out.put_slice(b"hello");
        Encoder::data_head(3, 0, true, &mut out);
        Encoder::rst_stream(3, Reset::Cancel, &mut out);
        Encoder::ping(7, &mut out);
        Encoder::go_away(&mut out);
        let headers = vec![("streamtype".to_owned(), "error".to_owned())];
        let empty = Bytes::new();
        let expected = vec![
            Frame::SynStream { stream: 1, headers, fin: false },
            Frame::SynReply { stream: 1, headers: Headers::new(), fin: false },
            Frame::Data { stream: 3, bytes: Bytes::from_static(b"hello"), fin: false },
            Frame::Data { stream: 3, bytes: empty, fin: true },
            Frame::RstStream { stream: 3, status: 5 },
            Frame::Ping { id: 7 },
            Frame::GoAway,
        ];
        assert_eq!(read(&out, out.len()).unwrap(), expected);
        for piece in [1, 2, 3, 7, 64] {
            let mut frames = read(&out, piece).unwrap();
            // Data comes in pieces as well.
            let is_hello = |frame: &Frame| matches!(frame, Frame::Data { fin: false, .. });
            let hello: Vec<u8> = frames
                .extract_if(.., |frame| is_hello(frame))
                .flat_map(|frame| match frame {
                    Frame::Data { bytes, .. } => bytes.to_vec(),
                    _ => Vec::new(),
                })
                .collect();
            assert_eq!(hello, b"hello", "in pieces of {piece}");
            let others: Vec<_> =
                expected.iter().filter(|frame| !is_hello(frame)).cloned().collect();
            assert_eq!(frames, others, "in pieces of {piece}");
        }
    }

    /// CVE-2026-35469: counts and lengths that a frame only claims took gigabytes.
    #[test]
    fn c16_absurd_counts_and_lengths_end_the_connection() {
        let settings =
            |count: u32| [&[0x80, 3, 0, 4, 0, 0, 0, 4][..], &count.to_be_bytes()].concat();
        let cases = [
            (settings(1 << 24), SpdyError::ControlFrame(SETTINGS)),
            (settings(u32::MAX), SpdyError::ControlFrame(SETTINGS)),
            (vec![0x80, 3, 0, 4, 0, 0xff, 0xff, 0xff], SpdyError::FrameTooLarge(0xff_ffff)),
            (vec![0x80, 3, 0, 2, 0, 0, 0x40, 1], SpdyError::FrameTooLarge(16 * 1024 + 1)),
            (vec![0x80, 2, 0, 6, 0, 0, 0, 0], SpdyError::Version(2)),
            (vec![0x80, 3, 0, 6, 0, 0, 0, 0], SpdyError::ControlFrame(PING)),
            (vec![0x80, 3, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1], SpdyError::ControlFrame(SYN_STREAM)),
            (vec![0x80, 3, 0, 99, 0, 0, 0, 0], SpdyError::ControlFrame(99)),
            (vec![0, 0, 0, 0, 0, 0, 0, 0], SpdyError::StreamZero),
        ];
        for (bytes, expected) in cases {
            for piece in [1, bytes.len()] {
                assert_eq!(read(&bytes, piece), Err(expected), "{bytes:?}");
            }
        }
        // A data frame of any length costs what has arrived of it.
        let mut decoder = Decoder::default();
        let mut buffer = BytesMut::from(&[0, 0, 0, 1, 0, 0xff, 0xff, 0xff, b'a'][..]);
        let expected = Frame::Data { stream: 1, bytes: Bytes::from_static(b"a"), fin: false };
        assert_eq!(decoder.next(&mut buffer), Ok(Some(expected)));
        assert_eq!(decoder.next(&mut buffer), Ok(None));
    }
}
