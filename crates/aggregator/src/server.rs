//! The front of the chain: discovery of the whole, and who owns a group-version. What is local
//! falls through to the servers behind.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{
        ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, VARY,
    },
};
use hyper::body::Incoming;
use meta::ApiError;
use serve::{Body, Context, Delegate, Served, Serving};

use crate::{Answer, Documents};

/// The aggregator: its documents are replaced whole when the table of served kinds changes.
pub struct Aggregator {
    documents: ArcSwap<Documents>,
}

impl Aggregator {
    pub fn new(documents: Documents) -> Arc<Self> {
        Arc::new(Self { documents: ArcSwap::from_pointee(documents) })
    }

    pub fn replace(&self, documents: Documents) {
        self.documents.store(Arc::new(documents));
    }

    fn answer(&self, path: &str, method: &Method, headers: &HeaderMap) -> Option<Result<Response<Body>, ApiError>> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let answer =
            self.documents.load().answer(path, text(ACCEPT), text(IF_NONE_MATCH))?;
        // Compat: `/apis` answers a POST like a GET; the rest of discovery doesn't.
        if !matches!(*method, Method::GET | Method::HEAD) && path.trim_end_matches('/') != "/apis" {
            return Some(Err(ApiError::MethodNotAllowed));
        }
        Some(answer.map(response))
    }
}

impl Delegate for Aggregator {
    fn name(&self) -> &'static str {
        "aggregator"
    }

    fn serve<'a>(&'a self, cx: &'a mut Context, request: Request<Incoming>) -> Serving<'a> {
        Box::pin(async move {
            if cx.info.is_resource {
                // Every group-version is local until remote servers can be registered.
                return Served::Next(request);
            }
            match self.answer(&cx.info.path, request.method(), request.headers()) {
                Some(answer) => Served::Answered(answer),
                None => Served::Next(request),
            }
        })
    }

    fn paths(&self) -> Vec<String> {
        self.documents.load().paths().map(str::to_owned).collect()
    }
}

fn response(answer: Answer) -> Response<Body> {
    let mut response = Response::new(Body::full(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: Option<&str>| {
        if let Some(Ok(value)) = value.filter(|text| !text.is_empty()).map(HeaderValue::from_str) {
            headers.insert(name, value);
        }
    };
    set(CONTENT_TYPE, Some(answer.content_type));
    set(ETAG, answer.etag.as_deref());
    set(CACHE_CONTROL, answer.cache_control);
    set(VARY, answer.vary);
    response
}
