//! A whole call: a request with all of its body, and a response with all of its body, within one
//! deadline and a bound on its size. What webhooks and key sets need.

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, LOCATION},
};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use crate::{
    Client, ResponseBody, SendOptions,
    deadline::Deadline,
    error::{Error, Phase},
    full_body,
    metrics::{self, Called},
    origin::HostPort,
};

#[derive(Clone, Debug)]
pub struct Call {
    pub method: Method,
    pub url: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// What to connect to instead of the URL's host: the address behind a service.
    pub connect_to: Option<HostPort>,
    /// For everything from dialing to the last byte of the response.
    pub deadline: Instant,
    /// A larger response fails the call before it is read to its end.
    pub response_bytes_max: usize,
}

/// Longer ones are cut in errors.
const LOCATION_BYTES_MAX: usize = 256;

impl Client {
    /// Makes a call. Any status but a redirect is a response: what an error means is the caller's.
    ///
    /// Dropping the future abandons the call.
    pub async fn call(&self, call: Call) -> Result<Response<Bytes>, Error> {
        let (method, url, sent) = (call.method.clone(), call.url.clone(), call.body.len());
        let began = Instant::now();
        let mut code = None;
        let answered = self.exchange(call, &mut code).await;
        let received = answered.as_ref().ok().map(|response| response.body().len());
        metrics::count(&method, &url, &Called { code, took: began.elapsed(), sent, received });
        answered
    }

    /// `code` is that of the response, also of one that is refused.
    async fn exchange(&self, call: Call, code: &mut Option<u16>) -> Result<Response<Bytes>, Error> {
        let Call { method, url, headers, body, connect_to, deadline, response_bytes_max } = call;
        let mut request = Request::new(full_body(body));
        *request.method_mut() = method;
        *request.uri_mut() = url;
        *request.headers_mut() = headers;
        // So that the bound on the size is one on memory: a compressed response may be a thousand
        // times as large.
        request.headers_mut().insert(ACCEPT_ENCODING, IDENTITY);
        let options =
            SendOptions { connect_to, deadline: Some(deadline), ..SendOptions::default() };
        let response = self.send(request, options).await?;
        *code = Some(response.status().as_u16());
        refuse_redirect(&response)?;
        refuse_encoding(&response)?;
        let (head, body) = response.into_parts();
        let body = read(body, response_bytes_max, Deadline(Some(deadline))).await?;
        Ok(Response::from_parts(head, body))
    }
}

const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

fn refuse_redirect(response: &Response<ResponseBody>) -> Result<(), Error> {
    let status = response.status();
    if !matches!(
        status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    ) {
        return Ok(());
    }
    let location = response.headers().get(LOCATION).map_or(&b""[..], HeaderValue::as_bytes);
    let location = &location[..location.len().min(LOCATION_BYTES_MAX)];
    Err(Error::Redirect { status, location: String::from_utf8_lossy(location).into_owned() })
}

fn refuse_encoding(response: &Response<ResponseBody>) -> Result<(), Error> {
    match response.headers().get(CONTENT_ENCODING) {
        Some(encoding) if encoding != IDENTITY && !encoding.is_empty() => {
            let encoding = String::from_utf8_lossy(encoding.as_bytes()).into_owned();
            Err(Error::ContentEncoding { encoding })
        }
        _ => Ok(()),
    }
}

/// Reads a body to its end, unless that is further away than allowed.
async fn read(
    mut body: ResponseBody,
    bytes_max: usize,
    deadline: Deadline,
) -> Result<Bytes, Error> {
    let too_large = || Error::ResponseTooLarge { bytes_max };
    // Content-Length, where there is one.
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    let mut read = BytesMut::new();
    while let Some(frame) = deadline.bound(Phase::ReadingBody, body.frame()).await? {
        let Ok(data) = frame.map_err(Error::Http)?.into_data() else { continue };
        if data.len() > bytes_max - read.len() {
            return Err(too_large());
        }
        if read.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        read.extend_from_slice(&data);
    }
    Ok(read.freeze())
}
