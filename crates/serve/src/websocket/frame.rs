//! The frames of a WebSocket (RFC 6455, section 5): written whole, read in whatever pieces they come.

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

pub(super) const PING: u8 = 9;

/// 1000: all is well.
pub const NORMAL_CLOSE: [u8; 2] = 1000_u16.to_be_bytes();
/// 1002: the client broke the rules.
pub const PROTOCOL_ERROR: [u8; 2] = 1002_u16.to_be_bytes();

/// One unfragmented frame from the server, so without a mask.
pub fn encode(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + 10);
    frame.push(FINAL | opcode as u8);
    match payload.len() {
        short @ ..=125 => frame.push(short as u8),
        medium @ ..=0xffff => {
            frame.push(126);
            frame.extend_from_slice(&(medium as u16).to_be_bytes());
        }
        long => {
            frame.push(127);
            frame.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

pub(super) const FINAL: u8 = 0x80;
pub(super) const MASKED: u8 = 0x80;

/// What a client sent that matters. Messages don't: a watch has no use for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Ping(Vec<u8>),
    Close,
    /// The rest of what was sent has no meaning any more.
    Violation,
}

/// Reads frames from the pieces in which they arrive. Holds a header or a ping at most.
#[derive(Default)]
pub(super) struct Decoder {
    header: Vec<u8>,
    payload: Option<Payload>,
    broken: bool,
}

/// The payload of a frame, as far as it is still to come.
struct Payload {
    left: u64,
    mask: [u8; 4],
    /// The payload unmasked so far, where the caller needs it.
    kept: Option<Vec<u8>>,
}

impl Decoder {
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Vec<Received> {
        let mut received = Vec::new();
        while !self.broken {
            if let Some(payload) = &mut self.payload {
                bytes = payload.take(bytes);
                if payload.left > 0 {
                    break;
                }
                received.extend(payload.kept.take().map(Received::Ping));
                self.payload = None;
            }
            let Some((first, rest)) = bytes.split_first() else { break };
            self.header.push(*first);
            bytes = rest;
            match header(&self.header) {
                Header::Incomplete => continue,
                Header::Violation => received.push(Received::Violation),
                Header::Close => received.push(Received::Close),
                Header::Payload(payload) => {
                    self.header.clear();
                    self.payload = Some(payload);
                    continue;
                }
            }
            self.broken = true;
        }
        received
    }
}

impl Payload {
    fn take<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let count = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let (here, rest) = bytes.split_at(count);
        if let Some(kept) = &mut self.kept {
            for byte in here {
                // Compat: of a ping that is longer than allowed the beginning is sent back.
                if kept.len() < PING_BYTES_MAX {
                    let masked = byte ^ self.mask[kept.len() % 4];
                    kept.push(masked);
                }
            }
        }
        self.left -= count as u64;
        rest
    }
}

/// What control frames may hold.
pub(super) const PING_BYTES_MAX: usize = 125;

/// Compat: a longer message ends the connection, although its payload is not used.
pub(super) const MESSAGE_BYTES_MAX: u64 = 32 << 20;

enum Header {
    Incomplete,
    Violation,
    Close,
    Payload(Payload),
}

fn header(bytes: &[u8]) -> Header {
    let [first, second, ..] = bytes else { return Header::Incomplete };
    // Checked before the length is known: there may be nothing behind it.
    if second & MASKED == 0 {
        return Header::Violation;
    }
    let short = second & !MASKED;
    let length_bytes = match short {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    if bytes.len() < 2 + length_bytes + 4 {
        return Header::Incomplete;
    }
    let (length, mask) = bytes[2..].split_at(length_bytes);
    let length = match short {
        126 | 127 => length.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)),
        short => u64::from(short),
    };
    let is = |opcode: u8| first & 0x0f == opcode;
    if is(Opcode::Close as u8) {
        return Header::Close;
    }
    if length > MESSAGE_BYTES_MAX {
        return Header::Violation;
    }
    let mask = mask.try_into().expect("the four bytes counted above");
    let kept = is(PING).then(Vec::new);
    Header::Payload(Payload { left: length, mask, kept })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as clients send it.
    fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [0xa1, 0x02, 0x73, 0xf4];
        let mut frame = encode(Opcode::Text, payload);
        let header_bytes = frame.len() - payload.len();
        frame.truncate(header_bytes);
        frame[0] = FINAL | opcode;
        frame[1] |= MASKED;
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    #[test]
    fn lengths_are_written_in_the_shortest_way() {
        let cases: [(usize, &[u8]); 5] = [
            (0, &[0x81, 0]),
            (125, &[0x81, 125]),
            (126, &[0x81, 126, 0, 126]),
            (65535, &[0x81, 126, 0xff, 0xff]),
            (65536, &[0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ];
        for (length, header) in cases {
            let frame = encode(Opcode::Text, &vec![b'x'; length]);
            assert_eq!(&frame[..header.len()], header, "{length}");
            assert_eq!(frame.len(), header.len() + length);
        }
        assert_eq!(encode(Opcode::Close, &NORMAL_CLOSE), [0x88, 2, 0x03, 0xe8]);
    }

    #[test]
    fn pings_and_goodbyes_are_found_between_messages_however_they_arrive() {
        let ping = |text: &str| Received::Ping(text.as_bytes().to_vec());
        let long = "p".repeat(200);
        let cases = [
            (vec![masked(PING, b"hello")], vec![ping("hello")]),
            (vec![masked(PING, b"")], vec![ping("")]),
            (
                vec![masked(1, b"words"), masked(PING, b"a"), masked(2, &[0; 70_000])],
                vec![ping("a")],
            ),
            (vec![masked(PING, long.as_bytes())], vec![ping(&long[..125])]),
            (
                vec![masked(10, b"pong"), masked(8, &NORMAL_CLOSE), masked(PING, b"late")],
                vec![Received::Close],
            ),
            (vec![encode(Opcode::Text, b"bare"), masked(PING, b"late")], vec![Received::Violation]),
            (vec![vec![0x82, 0xff, 0, 0, 0, 0, 2, 0, 0, 1, 1, 2, 3, 4]], vec![Received::Violation]),
            (
                vec![vec![0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]],
                vec![Received::Violation],
            ),
        ];
        for (frames, expected) in cases {
            let bytes = frames.concat();
            for piece in [1, 2, 3, 7, 1024, bytes.len()] {
                let mut decoder = Decoder::default();
                let received: Vec<_> =
                    bytes.chunks(piece).flat_map(|bytes| decoder.read(bytes)).collect();
                assert_eq!(
                    received,
                    expected,
                    "in pieces of {piece}: {:?}",
                    &bytes[..bytes.len().min(20)]
                );
            }
        }
    }
}
