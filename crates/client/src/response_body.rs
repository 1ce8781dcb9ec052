//! The body of a response as it arrives.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use crate::connection::StreamInUse;

/// What is left to receive of a response. Dropping it before its end closes the connection (HTTP/1.1)
/// or resets the stream (HTTP/2).
pub struct ResponseBody {
    body: Incoming,
    /// The place that it takes in a shared connection.
    _stream: Option<StreamInUse>,
}

impl ResponseBody {
    pub(crate) fn new(body: Incoming, stream: Option<StreamInUse>) -> Self {
        Self { body, _stream: stream }
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
