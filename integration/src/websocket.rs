//! A WebSocket as a browser opens it, read message by message.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

use crate::eventually::PATIENCE;
use crate::http::{Answer, Http, block_on, runtime};

/// An open WebSocket. Dropping it closes the connection.
pub struct WebSocket {
    pub headers: HeaderMap,
    messages: Receiver<Message>,
    writer: Arc<Mutex<WriteHalf<TokioIo<Upgraded>>>>,
    reader: AbortHandle,
}

/// One frame from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub opcode: u8,
    pub payload: Vec<u8>,
}

pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// What a browser sends with an upgrade, besides what says that it is one.
pub const HANDSHAKE: [(&str, &str); 3] = [
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-version", "13"),
    ("origin", "https://example.com"),
];

impl Http {
    /// Asks for a WebSocket with these headers; the answer if it is not given.
    #[track_caller]
    pub fn websocket(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<WebSocket, Box<Answer>> {
        let mut request =
            Request::get(path).header(UPGRADE, "websocket").header(CONNECTION, "Upgrade");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Bytes::new()).expect("tests write valid requests");
        let this = self.clone();
        let opened = block_on(async move {
            let response = this.exchange(request).await?;
            if response.status() != 101 {
                let (parts, body) = response.into_parts();
                let body = body.collect().await?.to_bytes();
                let code = parts.status.as_u16();
                return Ok(Err(Box::new(Answer { code, headers: parts.headers, body })));
            }
            let headers = response.headers().clone();
            Ok(Ok((headers, hyper::upgrade::on(response).await?)))
        });
        let (headers, upgraded) = opened.expect("the server answers")?;
        let (mut reader, writer) = tokio::io::split(TokioIo::new(upgraded));
        let (sender, messages) = channel();
        let reading = runtime().spawn(async move {
            while let Ok(message) = read(&mut reader).await {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let reader = reading.abort_handle();
        Ok(WebSocket { headers, messages, writer: Arc::new(Mutex::new(writer)), reader })
    }
}

impl WebSocket {
    /// The next frame; nothing once the connection is closed.
    #[track_caller]
    pub fn next_message(&mut self) -> Option<Message> {
        match self.messages.recv_timeout(PATIENCE) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no message came within {PATIENCE:?}"),
        }
    }

    /// The payloads of all frames of this kind, up to the server's close frame, which must come.
    #[track_caller]
    pub fn until_goodbye(&mut self, opcode: u8) -> Vec<Vec<u8>> {
        let mut payloads = Vec::new();
        loop {
            let message = self.next_message().expect("the server says goodbye");
            if message.opcode == CLOSE {
                assert_eq!(message.payload, 1000_u16.to_be_bytes());
                assert_eq!(self.next_message(), None, "nothing follows a goodbye");
                return payloads;
            }
            assert_eq!(message.opcode, opcode, "{message:?}");
            payloads.push(message.payload);
        }
    }

    /// Sends a short frame, masked as clients have to.
    pub fn send(&self, opcode: u8, payload: &[u8]) {
        let mask = [7, 77, 177, 255];
        let mut frame = vec![0x80 | opcode, 0x80 | u8::try_from(payload.len()).expect("short")];
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        let writer = Arc::clone(&self.writer);
        let sent = block_on(async move {
            let mut writer = writer.lock().await;
            writer.write_all(&frame).await?;
            Ok(writer.flush().await?)
        });
        sent.expect("the server reads");
    }
}

impl Drop for WebSocket {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(reader: &mut ReadHalf<TokioIo<Upgraded>>) -> std::io::Result<Message> {
    let first = reader.read_u8().await?;
    assert_eq!(first & 0xf0, 0x80, "frames are whole, and without extensions");
    let length = match reader.read_u8().await? {
        126 => u64::from(reader.read_u16().await?),
        127 => reader.read_u64().await?,
        short => u64::from(short),
    };
    assert!(length < 1 << 31, "a server does not mask, nor send this much");
    let mut payload = vec![0; length as usize];
    reader.read_exact(&mut payload).await?;
    Ok(Message { opcode: first & 0x0f, payload })
}
