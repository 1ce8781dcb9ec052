//! HTTP/2 frame by frame, for what no client library would send.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};

use crate::http::{Http, Protocol};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// What every connection begins with.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A header field as a literal of HPACK that enters no table.
pub fn literal(name: &str, value: &[u8]) -> Vec<u8> {
    let mut field = vec![0];
    for text in [name.as_bytes(), value] {
        length(&mut field, text.len());
        field.extend(text);
    }
    field
}

/// An integer of HPACK with a prefix of seven bits.
fn length(into: &mut Vec<u8>, mut length: usize) {
    if length < 127 {
        into.push(length as u8);
        return;
    }
    into.push(127);
    length -= 127;
    while length >= 128 {
        into.push((length % 128) as u8 | 128);
        length /= 128;
    }
    into.push(length as u8);
}

/// The header block of a GET.
pub fn get(path: &str) -> Vec<u8> {
    // Method GET and scheme https are in the static table.
    let mut block = vec![0x82, 0x87];
    block.extend(literal(":path", path.as_bytes()));
    block.extend(literal(":authority", b"localhost"));
    block
}

/// A frame of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error code of RST_STREAM and GOAWAY.
    pub fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        let code = self.payload.get(at..at + 4).and_then(|code| code.try_into().ok());
        code.map_or(u32::MAX, u32::from_be_bytes)
    }
}

/// A connection over which frames are sent and read.
pub struct Frames {
    stream: StreamOwned<ClientConnection, TcpStream>,
    unread: Vec<u8>,
}

impl Frames {
    /// Connects as the user of `http`, and begins with these settings. A read or write that takes
    /// longer than `patience` fails.
    pub fn open(http: &Http, settings: &[u8], patience: Duration) -> Self {
        let http = http.clone().over(Protocol::Http2);
        let stream = http.raw_blocking(patience).expect("the server accepts");
        let mut frames = Self { stream, unread: Vec::new() };
        let start = [PREFACE, &frame(SETTINGS, 0, 0, settings)].concat();
        frames.write(&start).expect("the server reads");
        frames
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        self.write(&frame(kind, flags, stream, payload))
    }

    /// The next frame; None once the connection is closed or the server is silent.
    pub fn read(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            let mut buffer = [0; 16 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.unread.extend(&buffer[..count]),
            }
        }
    }

    /// The next frame of one of these kinds.
    pub fn read_one_of(&mut self, kinds: &[u8]) -> Option<Frame> {
        std::iter::from_fn(|| self.read()).find(|frame| kinds.contains(&frame.kind))
    }

    fn take(&mut self) -> Option<Frame> {
        let head: &[u8; 9] = self.unread.first_chunk()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        if self.unread.len() < 9 + length {
            return None;
        }
        let payload = self.unread[9..9 + length].to_vec();
        self.unread.drain(..9 + length);
        Some(Frame { kind, flags, stream, payload })
    }
}
