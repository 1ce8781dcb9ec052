//! `--cors-allowed-origins`: which origins browsers may send requests from.

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header::ORIGIN};
use regex::Regex;

use crate::Body;

/// The allowed origins. Empty: CORS is off.
#[derive(Debug, Default)]
pub struct Cors(Vec<Regex>);

impl Cors {
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        let compile = |pattern: &String| {
            Regex::new(pattern).map_err(|error| format!("--cors-allowed-origins: {error}"))
        };
        patterns.iter().map(compile).collect::<Result<_, _>>().map(Self)
    }

    /// The origin of a request, if it is allowed.
    pub(crate) fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let text = origin.to_str().ok()?;
        self.0.iter().any(|pattern| pattern.is_match(text)).then(|| origin.clone())
    }

    /// The answer to a browser's question before the request proper.
    pub(crate) fn preflight(method: &Method) -> Option<Response<Body>> {
        (method == Method::OPTIONS).then(|| {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        })
    }
}

pub(crate) fn add_headers(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert("access-control-allow-origin", origin);
    let fixed = [
        ("access-control-allow-methods", "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
        (
            "access-control-allow-headers",
            "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, \
             X-Requested-With, If-Modified-Since",
        ),
        ("access-control-expose-headers", "Date"),
        ("access-control-allow-credentials", "true"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Security case H24: an anchored pattern allows exactly what it matches; without an
    /// anchor it is a part of the origin, as in kube-apiserver.
    #[test]
    fn origins_are_let_in_as_their_pattern_says() {
        let patterns = [r"^https://good\.example(:\d+)?$", r"//internal\.example(:|$)"];
        let cors = Cors::new(&patterns.map(str::to_owned)).expect("patterns");
        let cases = [
            ("https://good.example", true),
            ("https://good.example:8443", true),
            ("https://internal.example", true),
            ("https://good.example.evil", false),
            ("https://xgood.example", false),
            ("https://evil/https://good.example", false),
            ("https://goodXexample", false),
            ("https://internal.example.evil", false),
            ("null", false),
            ("", false),
        ];
        for (origin, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(ORIGIN, HeaderValue::from_static(origin));
            assert_eq!(cors.origin(&headers).is_some(), expected, "{origin}");
        }
        assert!(Cors::default().origin(&HeaderMap::new()).is_none());
        assert!(Cors::new(&["(".to_owned()]).is_err());
    }
}
