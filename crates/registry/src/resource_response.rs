//! The response of a verb: bytes, chunks made on demand, or a stream.

use std::pin::Pin;

use bytes::Bytes;
use codec::gzip::GzipWriter;
use futures_core::Stream;
use meta::ApiError;

/// A successful response. Failures are an `ApiError`.
pub struct ResourceResponse {
    pub code: u16,
    pub content_type: &'static str,
    pub payload: Payload,
}

pub enum Payload {
    Bytes(Bytes),
    /// A list: a chunk is made when the previous one is being sent, so that a list of any size
    /// costs one chunk of memory. An error ends the response abruptly.
    Chunks(Box<dyn ListChunks>),
    /// The same, where making a chunk takes milliseconds: not to be made on a thread that polls
    /// connections.
    CostlyChunks(Box<dyn ListChunks>),
    /// A watch: every item is to be flushed.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

/// The body of a list in chunks. A client that accepts it gets the same bytes compressed.
pub trait ListChunks: Iterator<Item = Result<Bytes, ApiError>> + Send + Sync {
    /// Writes about as much as a chunk of what comes next; `None` after the end. May be called after some chunks were
    /// taken, and chunks are not taken after it was called.
    fn compress_next(&mut self, gzip: &mut GzipWriter) -> Option<Result<(), ApiError>> {
        let chunk = self.next()?;
        Some(chunk.map(|chunk| gzip.write(&chunk)))
    }
}

impl ResourceResponse {
    pub fn json(code: u16, body: impl Into<Bytes>) -> Self {
        let payload = Payload::Bytes(body.into());
        Self { code, content_type: "application/json", payload }
    }

    /// The whole body; for tests and for callers in process.
    pub fn into_bytes(self) -> Result<Bytes, ApiError> {
        match self.payload {
            Payload::Bytes(bytes) => Ok(bytes),
            Payload::Chunks(chunks) | Payload::CostlyChunks(chunks) => {
                let mut all = Vec::new();
                for chunk in chunks {
                    all.extend_from_slice(&chunk?);
                    meta::cancel::check()?;
                }
                Ok(all.into())
            }
            Payload::Stream(_) => Err(ApiError::internal("a stream has no body")),
        }
    }
}
