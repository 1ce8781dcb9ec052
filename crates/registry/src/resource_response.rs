//! The response of a verb: bytes, chunks made on demand, or a stream.

use std::pin::Pin;

use bytes::Bytes;
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
    Chunks(Box<dyn Iterator<Item = Result<Bytes, ApiError>> + Send + Sync>),
    /// The same, where making a chunk takes milliseconds: not to be made on a thread that polls
    /// connections.
    CostlyChunks(Box<dyn Iterator<Item = Result<Bytes, ApiError>> + Send + Sync>),
    /// A watch: every item is to be flushed.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
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
