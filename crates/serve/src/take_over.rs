//! Connections that belong to a handler after a 101: proxied upgrades, exec, attach and port-forward.

use http::{Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use meta::BoxFuture;

use crate::Body;

/// What a handler does with a connection.
pub(crate) struct TakeOver {
    pub(crate) connection: OnUpgrade,
    pub(crate) run: Box<dyn FnOnce(Upgraded) -> BoxFuture<'static, ()> + Send>,
    /// Ends it.
    pub(crate) end: Option<BoxFuture<'static, ()>>,
}

/// Hands the connection over if the response is a 101 that asks for it; other responses pass.
pub(crate) fn hand_over(mut response: Response<Body>) -> Response<Body> {
    let Some(take_over) = response.body_mut().take_take_over() else { return response };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return response;
    }
    // With its guards, which are released when the connection is done.
    let held = std::mem::take(response.body_mut());
    tokio::spawn(async move {
        let TakeOver { connection, run, end } = take_over;
        match connection.await {
            Ok(upgraded) => match end {
                Some(end) => tokio::select! { () = run(upgraded) => {}, () = end => {} },
                None => run(upgraded).await,
            },
            Err(error) => tracing::debug!(%error, "the connection was not upgraded"),
        }
        drop(held);
    });
    response
}
