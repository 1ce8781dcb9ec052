//! Links of proxied pages: a page that links to `/style.css` means the place that it is proxied from.
//! `Location` headers and HTML are rewritten as kube-apiserver's `proxy.Transport` does it, the latter as
//! it passes through and not in memory.

mod html;

use std::{
    io::Write as _,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use flate2::write::{DeflateDecoder, GzDecoder};
use http::{
    HeaderMap, HeaderValue, Request, Response, Uri,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION},
};
use http_body::{Body as _, Frame};
use meta::ApiError;
use serve::Body;

use self::html::HtmlRewriter;
use crate::proxies::asked_host;

/// Knows where a page is proxied from.
#[derive(Clone)]
pub(crate) struct Rewriter {
    /// What stands before the backend's path in the URL that the client sees.
    prefix: String,
    /// The backend as its links may name it, and the host that the client asked for.
    hosts: [String; 2],
}

impl Rewriter {
    /// `path` is the backend's.
    pub(crate) fn new<B>(request: &Request<B>, path: &str, authority: &str) -> Self {
        let asked = request.uri().path();
        let asked = percent_encoding::percent_decode_str(asked).decode_utf8_lossy();
        let prefix = asked.strip_suffix(path).unwrap_or(&asked).to_owned();
        let host = asked_host(request);
        let host = host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or_default();
        Self { prefix, hosts: [authority.to_owned(), host.to_owned()] }
    }

    pub(crate) fn rewrite(self, mut response: Response<Body>) -> Result<Response<Body>, ApiError> {
        if let Some(location) = response.headers().get(LOCATION).filter(|value| !value.is_empty()) {
            let location = location.to_str().ok().and_then(|location| self.url(location));
            let location = location.and_then(|location| HeaderValue::try_from(location).ok());
            if let Some(location) = location {
                response.headers_mut().insert(LOCATION, location);
            }
            return Ok(response);
        }
        if !is_html(response.headers()) || response.status().is_informational() {
            return Ok(response);
        }
        let encoding = response.headers().get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
        let html = HtmlRewriter::new(self);
        let decoded = match encoding {
            None | Some(b"") => Decoded::Plain(html),
            Some(b"gzip") => Decoded::Gzip(Box::new(GzDecoder::new(html))),
            Some(b"deflate") => Decoded::Deflate(Box::new(DeflateDecoder::new(html))),
            // Compat: what cannot be understood passes as it is.
            Some(_) => return Ok(response),
        };
        let (mut head, body) = response.into_parts();
        head.headers.remove(CONTENT_LENGTH);
        head.headers.remove(CONTENT_ENCODING);
        let body = Rewritten { body, input: Bytes::new(), decoded: Some(decoded) };
        Ok(Response::from_parts(head, Body::foreign(body)))
    }

    /// The URL as a client of the proxy has to write it; None: as it is.
    fn url(&self, url: &str) -> Option<String> {
        let parsed: Uri = url.parse().ok()?;
        let host = parsed.authority().map_or("", |authority| authority.as_str());
        let elsewhere = !host.is_empty() && !self.hosts.iter().any(|own| own == host);
        // Without a leading slash `parse` takes a relative path for a host.
        let relative = parsed.authority().is_none() && !url.starts_with('/');
        // A link without a scheme to another host.
        if elsewhere || relative || url.starts_with("//") || parsed.path().is_empty() {
            return None;
        }
        let path = parsed.path_and_query().map_or("/", |path| path.as_str());
        let fragment = url.split_once('#').map(|(_, fragment)| format!("#{fragment}"));
        let fragment = fragment.unwrap_or_default();
        // Compat: a link that names the client's own host keeps it.
        let origin = match parsed.scheme_str() {
            Some(scheme) if host == self.hosts[1] => format!("{scheme}://{host}"),
            _ => String::new(),
        };
        let prefix = if path.starts_with(&self.prefix) { "" } else { &self.prefix };
        Some(format!("{origin}{prefix}{path}{fragment}"))
    }
}

fn is_html(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim() == "text/html"
}

/// HTML as it comes out of its compression. What is written to it is rewritten, piece by piece.
enum Decoded {
    Plain(HtmlRewriter),
    Gzip(Box<GzDecoder<HtmlRewriter>>),
    Deflate(Box<DeflateDecoder<HtmlRewriter>>),
}

/// A piece is decompressed in steps of this many bytes, so that a small one cannot become a large one
/// in memory.
const STEP_BYTES: usize = 1024;

impl Decoded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Plain(html) => {
                html.write_all(bytes)?;
                Ok(html.take())
            }
            Self::Gzip(gzip) => {
                gzip.write_all(bytes)?;
                gzip.flush()?;
                Ok(gzip.get_mut().take())
            }
            Self::Deflate(deflate) => {
                deflate.write_all(bytes)?;
                deflate.flush()?;
                Ok(deflate.get_mut().take())
            }
        }
    }

    fn finish(self) -> std::io::Result<Vec<u8>> {
        let mut html = match self {
            Self::Plain(html) => html,
            Self::Gzip(gzip) => gzip.finish()?,
            Self::Deflate(deflate) => deflate.finish()?,
        };
        html.end();
        Ok(html.take())
    }
}

struct Rewritten {
    body: Body,
    /// What has come of the body and is not rewritten yet.
    input: Bytes,
    /// None at the end.
    decoded: Option<Decoded>,
}

impl Rewritten {
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Vec<u8>, BoxError>>> {
        let Some(decoded) = &mut self.decoded else { return Poll::Ready(None) };
        while self.input.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(frame) => self.input = frame?.into_data().unwrap_or_default(),
                None => {
                    let end = self.decoded.take().map(Decoded::finish);
                    return Poll::Ready(end.map(|end| Ok(end?)));
                }
            }
        }
        let step = self.input.split_to(self.input.len().min(STEP_BYTES));
        Poll::Ready(Some(Ok(decoded.write(&step)?)))
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl http_body::Body for Rewritten {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            match ready!(self.poll_bytes(cx)) {
                Some(Ok(bytes)) if bytes.is_empty() => {}
                next => return Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes?.into())))),
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn rewriter() -> Rewriter {
        Rewriter {
            prefix: "/api/v1/namespaces/a/services/s/proxy".to_owned(),
            hosts: ["192.0.2.1:80".to_owned(), "api:6443".to_owned()],
        }
    }

    #[test]
    fn urls_of_the_backend_go_through_the_proxy() {
        let proxy = "/api/v1/namespaces/a/services/s/proxy";
        let cases = [
            ("/x", Some(format!("{proxy}/x"))),
            ("/x/?a=b#c", Some(format!("{proxy}/x/?a=b#c"))),
            ("http://192.0.2.1:80/x", Some(format!("{proxy}/x"))),
            ("https://api:6443/x", Some(format!("https://api:6443{proxy}/x"))),
            ("x/y", None),
            ("", None),
            ("#top", None),
            ("http://elsewhere/x", None),
            ("//elsewhere/x", None),
            ("mailto:a@b", None),
        ];
        for (url, expected) in cases {
            assert_eq!(rewriter().url(url), expected, "{url}");
        }
        let already = format!("{proxy}/x");
        assert_eq!(rewriter().url(&already), Some(already.clone()));
    }

    #[test]
    fn compressed_pages_are_rewritten_too() {
        let page = r#"<a href="/x">x</a>"#;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(page.as_bytes()).unwrap();
        let compressed = gzip.finish().unwrap();
        let html = HtmlRewriter::new(rewriter());
        let mut decoded = Decoded::Gzip(Box::new(GzDecoder::new(html)));
        let mut out = decoded.write(&compressed).unwrap();
        out.extend(decoded.finish().unwrap());
        let expected = r#"<a href="/api/v1/namespaces/a/services/s/proxy/x">x</a>"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
