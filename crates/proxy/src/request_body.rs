//! The body of a request on its way to the backend.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll},
};

use bytes::Bytes;
use client::Body;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::oneshot;

/// The client's body, which breaks off when the response is over. A client that goes on sending, or
/// stops without an end, would otherwise keep a connection to the backend for as long as it likes.
pub(crate) struct RequestBody {
    incoming: Incoming,
    response_over: oneshot::Receiver<()>,
}

/// Held until the last byte of the response is sent.
pub(crate) struct ResponseGuard(
    #[expect(dead_code, reason = "dropping it says so")] oneshot::Sender<()>,
);

/// The body as the client of the backend takes it. None: there is no body to break off.
pub(crate) fn streamed(incoming: Incoming) -> (Body, Option<ResponseGuard>) {
    if incoming.is_end_stream() {
        return (client::empty_body(), None);
    }
    let (sender, response_over) = oneshot::channel();
    let body = RequestBody { incoming, response_over };
    (body.boxed_unsync(), Some(ResponseGuard(sender)))
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if pin!(&mut self.response_over).poll(cx).is_ready() {
            return Poll::Ready(Some(Err("the response is over".into())));
        }
        Pin::new(&mut self.incoming).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
