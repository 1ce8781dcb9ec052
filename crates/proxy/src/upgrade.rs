//! Upgrades: the connections of the client and of the backend become one, once the backend has agreed.

use std::num::NonZeroU64;

use client::ResponseBody;
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode, Version,
    header::{CONNECTION, UPGRADE},
};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serve::Body;

use crate::{
    Error,
    headers::prepare_response,
    request_body::ResponseGuard,
    tunnel::{self, CopyOptions, Protocol},
};

/// Whether a request asks for another protocol: `Connection` has `upgrade`, and `Upgrade` says which.
pub fn is_upgrade<B>(request: &Request<B>) -> bool {
    request.version() <= Version::HTTP_11
        && request.headers().contains_key(UPGRADE)
        && has_token(request.headers(), "upgrade")
}

fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let mut values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.split(',').any(|one| one.trim().eq_ignore_ascii_case(token)))
}

/// What the client asks for, and its connection.
pub(crate) struct UpgradeRequest {
    connection: OnUpgrade,
    protocols: Vec<HeaderValue>,
}

impl UpgradeRequest {
    pub(crate) fn take<B>(request: &mut Request<B>) -> Self {
        let connection = hyper::upgrade::on(&mut *request);
        let protocols = request.headers().get_all(UPGRADE).iter().cloned().collect();
        Self { connection, protocols }
    }

    /// After those of the client's hop were removed.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        for protocol in &self.protocols {
            headers.append(UPGRADE, protocol.clone());
        }
    }

    fn includes(&self, protocol: &str) -> bool {
        let mut values = self.protocols.iter().filter_map(|value| value.to_str().ok());
        values.any(|value| value.split(',').any(|one| one.trim().eq_ignore_ascii_case(protocol)))
    }
}

/// Bytes flow only after a 101 for the protocol that was asked for. Errors of the backend are passed on
/// as responses like any other; anything else is an error.
pub(crate) fn answer(
    asked: UpgradeRequest,
    mut response: Response<ResponseBody>,
    guard: Option<ResponseGuard>,
    bytes_per_second_max: Option<NonZeroU64>,
) -> Result<Response<Body>, Error> {
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        if !status.is_client_error() && !status.is_server_error() {
            return Err(Error::InvalidUpgradeResponse(status.as_u16()));
        }
        return Ok(refused(response, guard));
    }
    let protocol = agreed_protocol(&asked, response.headers())?;
    let is_spdy = protocol.as_bytes().trim_ascii().eq_ignore_ascii_case(b"SPDY/3.1");
    let spoken = if is_spdy { Protocol::Spdy } else { Protocol::Other };
    let options = CopyOptions::new(bytes_per_second_max, spoken);
    let backend = hyper::upgrade::on(&mut response);
    let mut head = response.into_parts().0;
    prepare_response(&mut head.headers);
    head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    head.headers.insert(UPGRADE, protocol);
    let body = Body::take_over(asked.connection, async move |client| {
        let backend = match backend.await {
            Ok(backend) => backend,
            Err(error) => return tracing::debug!(%error, "the backend's connection is gone"),
        };
        let (client, backend) = (TokioIo::new(client), TokioIo::new(backend));
        if let Err(error) = tunnel::copy(client, backend, options).await {
            tracing::debug!(%error, "an upgraded connection ended with an error");
        }
        drop(guard);
    });
    let mut switched = Response::new(body);
    *switched.status_mut() = status;
    *switched.headers_mut() = head.headers;
    Ok(switched)
}

/// The protocol that both want: one that the client did not name would turn the connection into something
/// that no filter has checked.
fn agreed_protocol(asked: &UpgradeRequest, headers: &HeaderMap) -> Result<HeaderValue, Error> {
    let wrong = |why: &str| Error::WrongProtocol(why.to_owned());
    if !has_token(headers, "upgrade") {
        return Err(wrong("Connection does not say upgrade"));
    }
    let mut all = headers.get_all(UPGRADE).iter();
    let (Some(protocol), None) = (all.next(), all.next()) else {
        return Err(wrong("not exactly one protocol"));
    };
    match protocol.to_str() {
        Ok(text) if asked.includes(text.trim()) => Ok(protocol.clone()),
        _ => Err(wrong("the protocol is not one that the client asked for")),
    }
}

/// The client gets the backend's answer, and the listener closes the connection after it.
fn refused(response: Response<ResponseBody>, guard: Option<ResponseGuard>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    prepare_response(&mut head.headers);
    let mut body = Body::foreign(body);
    if let Some(guard) = guard {
        body.hold(guard);
    }
    let mut passed = Response::new(body);
    *passed.status_mut() = head.status;
    *passed.headers_mut() = head.headers;
    passed
}
