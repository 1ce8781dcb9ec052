//! Messages of a WebSocket client: read in whatever pieces they arrive, and passed on the same way, so
//! that no message, however long or fragmented, takes more memory than one read.

use bytes::{Buf as _, Bytes, BytesMut};

use super::frame::{FINAL, MASKED, MESSAGE_BYTES_MAX, Opcode, PING, PING_BYTES_MAX};

/// What a client has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A piece of a message; `begins` with the first one, which may be empty.
    Data {
        binary: bool,
        begins: bool,
        bytes: Bytes,
    },
    Ping(Bytes),
    Pong,
    Close,
}

/// The client broke the rules of RFC 6455; nothing of what follows has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(&'static str);

/// Reads messages. Holds no bytes of them.
#[derive(Default)]
pub struct MessageDecoder {
    payload: Option<Payload>,
    /// Inside of a fragmented message: whether it is binary.
    message: Option<bool>,
}

/// What is still to come of a data frame.
struct Payload {
    left: u64,
    mask: [u8; 4],
    /// Bytes of the payload so far, modulo four.
    at: usize,
    binary: bool,
    begins: bool,
}

impl MessageDecoder {
    /// The next event in `buffer`, which is taken from it. None: more bytes are needed.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Event>, Violation> {
        loop {
            if let Some(payload) = &mut self.payload {
                if buffer.is_empty() && payload.left > 0 {
                    return Ok(None);
                }
                let count = buffer.len().min(usize::try_from(payload.left).unwrap_or(usize::MAX));
                let mut bytes = buffer.split_to(count);
                unmask(&mut bytes, payload.mask, payload.at);
                payload.left -= count as u64;
                payload.at = (payload.at + count) % 4;
                let (binary, begins) = (payload.binary, std::mem::take(&mut payload.begins));
                if payload.left == 0 {
                    self.payload = None;
                }
                return Ok(Some(Event::Data { binary, begins, bytes: bytes.freeze() }));
            }
            let Some(head) = Head::read(buffer)? else { return Ok(None) };
            if head.opcode & CONTROL == 0 {
                buffer.advance(head.bytes);
                self.payload = Some(self.data(&head)?);
                continue;
            }
            let length = head.length as usize;
            if buffer.len() < head.bytes + length {
                return Ok(None);
            }
            buffer.advance(head.bytes);
            let mut payload = buffer.split_to(length);
            unmask(&mut payload, head.mask, 0);
            return Ok(Some(match head.opcode {
                PING => Event::Ping(payload.freeze()),
                PONG => Event::Pong,
                CLOSE => Event::Close,
                _ => return Err(Violation("unknown opcode")),
            }));
        }
    }

    fn data(&mut self, head: &Head) -> Result<Payload, Violation> {
        let (binary, begins) = match (head.opcode, self.message) {
            (CONTINUATION, Some(binary)) => (binary, false),
            (TEXT, None) => (false, true),
            (BINARY, None) => (true, true),
            (CONTINUATION, None) => return Err(Violation("continuation after final frame")),
            (TEXT | BINARY, Some(_)) => return Err(Violation("data before final frame")),
            _ => return Err(Violation("unknown opcode")),
        };
        self.message = (!head.is_final).then_some(binary);
        Ok(Payload { left: head.length, mask: head.mask, at: 0, binary, begins })
    }
}

const CONTROL: u8 = 8;
const CONTINUATION: u8 = 0;
const TEXT: u8 = Opcode::Text as u8;
const BINARY: u8 = Opcode::Binary as u8;
const CLOSE: u8 = Opcode::Close as u8;
const PONG: u8 = Opcode::Pong as u8;
const RESERVED: u8 = 0x70;

struct Head {
    is_final: bool,
    opcode: u8,
    length: u64,
    mask: [u8; 4],
    /// Of the head itself.
    bytes: usize,
}

impl Head {
    fn read(buffer: &[u8]) -> Result<Option<Self>, Violation> {
        let [first, second, rest @ ..] = buffer else { return Ok(None) };
        if first & RESERVED != 0 {
            return Err(Violation("unexpected reserved bits"));
        }
        if second & MASKED == 0 {
            return Err(Violation("frame without a mask"));
        }
        let (is_final, opcode) = (first & FINAL != 0, first & 0x0f);
        let short = second & !MASKED;
        if opcode & CONTROL != 0 && (!is_final || usize::from(short) > PING_BYTES_MAX) {
            return Err(Violation("control frame that is fragmented or too long"));
        }
        let length_bytes = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some((lengths, rest)) = rest.split_at_checked(length_bytes) else { return Ok(None) };
        let length = match short {
            126 | 127 => lengths.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)),
            short => u64::from(short),
        };
        if length > MESSAGE_BYTES_MAX {
            return Err(Violation("frame too large"));
        }
        let Some(mask) = rest.first_chunk::<4>() else { return Ok(None) };
        let bytes = 2 + length_bytes + 4;
        Ok(Some(Self { is_final, opcode, length, mask: *mask, bytes }))
    }
}

fn unmask(bytes: &mut [u8], mask: [u8; 4], at: usize) {
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte ^= mask[(at + index) % 4];
    }
}

/// Entry point for the fuzz target: what is received in these pieces, as text. Messages are joined, since
/// their pieces are those in which they came.
#[doc(hidden)]
pub fn decode_messages<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let (mut decoder, mut buffer) = (MessageDecoder::default(), BytesMut::new());
    let mut events = Vec::new();
    let mut message = None;
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.next(&mut buffer) {
                Ok(Some(Event::Data { begins: false, bytes, .. })) => {
                    let message: &mut String = &mut events[message.expect("it has begun")];
                    message.push_str(&bytes.escape_ascii().to_string());
                }
                Ok(Some(Event::Data { binary, bytes, .. })) => {
                    message = Some(events.len());
                    events.push(format!("binary {binary} {}", bytes.escape_ascii()));
                }
                Ok(Some(event)) => events.push(format!("{event:?}")),
                Ok(None) => break,
                Err(violation) => {
                    events.push(violation.to_string());
                    return events;
                }
            }
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as clients send it.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [0xa1, 0x02, 0x73, 0xf4];
        let mut frame = super::super::frame::encode(Opcode::Text, payload);
        frame.truncate(frame.len() - payload.len());
        frame[0] = first;
        frame[1] |= MASKED;
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    /// Events with the pieces of each message joined by their beginnings.
    fn read(bytes: &[u8], piece: usize) -> Result<Vec<Event>, Violation> {
        let (mut decoder, mut buffer) = (MessageDecoder::default(), BytesMut::new());
        let mut events: Vec<Event> = Vec::new();
        for piece in bytes.chunks(piece) {
            buffer.extend_from_slice(piece);
            while let Some(event) = decoder.next(&mut buffer)? {
                if let Event::Data { begins: false, bytes, binary } = &event {
                    let last =
                        events.iter_mut().rev().find(|event| matches!(event, Event::Data { .. }));
                    let Some(Event::Data { bytes: so_far, binary: first, .. }) = last else {
                        panic!("a message begins with its beginning");
                    };
                    assert_eq!(first, binary);
                    *so_far = [&so_far[..], bytes].concat().into();
                } else {
                    events.push(event);
                }
            }
        }
        Ok(events)
    }

    #[test]
    fn messages_are_read_in_whatever_pieces_they_arrive() {
        let data = |binary, text: &'static str| Event::Data {
            binary,
            begins: true,
            bytes: Bytes::from_static(text.as_bytes()),
        };
        let cases = [
            (vec![frame(0x82, b"\x00hello")], vec![data(true, "\x00hello")]),
            (vec![frame(0x81, b""), frame(0x82, b"x")], vec![data(false, ""), data(true, "x")]),
            (
                vec![
                    frame(0x02, b"ab"),
                    frame(0x89, b"ping"),
                    frame(0x00, b""),
                    frame(0x80, b"cd"),
                    frame(0x88, b"\x03\xe8"),
                ],
                vec![data(true, "abcd"), Event::Ping(Bytes::from_static(b"ping")), Event::Close],
            ),
            (vec![frame(0x8a, b"")], vec![Event::Pong]),
        ];
        for (frames, expected) in cases {
            let bytes = frames.concat();
            for piece in [1, 2, 3, 5, bytes.len()] {
                assert_eq!(read(&bytes, piece).unwrap(), expected, "in pieces of {piece}");
            }
        }
    }

    /// CVE-2020-27813: lengths that overflow. And what else a hostile client may send.
    #[test]
    fn c17_frames_beyond_the_rules_end_the_connection() {
        let length = |first: u8, length: u64| {
            [&[first, 0xff][..], &length.to_be_bytes(), &[1, 2, 3, 4]].concat()
        };
        let cases = [
            (length(0x82, u64::MAX), "frame too large"),
            (length(0x82, (1 << 63) - 1), "frame too large"),
            (length(0x82, MESSAGE_BYTES_MAX + 1), "frame too large"),
            (length(0x89, 1), "control frame that is fragmented or too long"),
            (frame(0x09, b""), "control frame that is fragmented or too long"),
            (frame(0x89, &[b'x'; 126]), "control frame that is fragmented or too long"),
            (vec![0x82, 0x01, b'x'], "frame without a mask"),
            (frame(0x80, b"x"), "continuation after final frame"),
            ([frame(0x02, b"x"), frame(0x82, b"y")].concat(), "data before final frame"),
            (frame(0xc2, b"x"), "unexpected reserved bits"),
            (frame(0x83, b"x"), "unknown opcode"),
            (frame(0x8b, b"x"), "unknown opcode"),
        ];
        for (bytes, expected) in cases {
            for piece in [1, bytes.len()] {
                let violation = read(&bytes, piece).unwrap_err();
                assert_eq!(violation.to_string(), expected, "{:?}", &bytes[..bytes.len().min(16)]);
            }
        }
        // Fragments without an end: nothing is kept.
        let (mut decoder, mut buffer) = (MessageDecoder::default(), BytesMut::new());
        buffer.extend_from_slice(&frame(0x02, b"x"));
        for _ in 0..10_000 {
            assert!(matches!(decoder.next(&mut buffer), Ok(Some(Event::Data { .. }))));
            assert!(buffer.is_empty());
            buffer.extend_from_slice(&frame(0x00, b"more"));
        }
    }
}
