//! Conditions and ranges of requests for OpenAPI documents, as Go's `http.ServeContent` answers them.

use std::fmt::Write;
use std::ops::Range;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Response, StatusCode};
use jiff::fmt::rfc2822;
use serve::Body;

/// The response to a request with these headers, made of the one to a request without conditions and ranges.
/// `body` is that of `whole`.
pub(crate) fn serve_content(
    request: &HeaderMap,
    mut whole: Response<Body>,
    body: &Bytes,
) -> Response<Body> {
    if ![StatusCode::OK, StatusCode::NOT_MODIFIED].contains(&whole.status()) {
        return whole;
    }
    let text = |name: HeaderName| request.get(name).and_then(|value| value.to_str().ok());
    let headers = whole.headers();
    let etag = headers.get(ETAG).and_then(|etag| etag.to_str().ok());
    let modified = headers.get(LAST_MODIFIED).and_then(|date| date.to_str().ok()).and_then(seconds);
    if !may_be_read(text(IF_MATCH), text(IF_UNMODIFIED_SINCE), etag, modified) {
        let has_hash = etag.is_some();
        *whole.status_mut() = StatusCode::PRECONDITION_FAILED;
        *whole.body_mut() = Body::full(Bytes::new());
        // Compat: what has no hash has no content type before its body is written.
        if !has_hash {
            whole.headers_mut().remove(CONTENT_TYPE);
        }
        return whole;
    }
    if whole.status() != StatusCode::OK {
        return whole;
    }
    whole.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let Some(wanted) = text(RANGE).filter(|_| {
        text(IF_RANGE).is_none_or(|known| is_still(known, header(&whole, ETAG), modified))
    }) else {
        return whole;
    };
    match ranges(wanted, body.len()) {
        Ok(ranges) => {
            let bytes: usize = ranges.iter().map(Range::len).sum();
            match &ranges[..] {
                [] => whole,
                _ if bytes > body.len() => whole,
                [one] => part(whole, body, one.clone()),
                several if bytes <= PARTS_BYTES_MAX => parts(whole, body, several),
                _ => whole,
            }
        }
        Err(problem) => refused(&whole, body.len(), problem),
    }
}

fn header(response: &Response<Body>, name: HeaderName) -> Option<&str> {
    response.headers().get(name).and_then(|value| value.to_str().ok())
}

fn seconds(date: &str) -> Option<i64> {
    rfc2822::parse(date).ok().map(|date| date.timestamp().as_second())
}

/// `If-Match`, and without it `If-Unmodified-Since`.
fn may_be_read(
    matches: Option<&str>,
    unmodified_since: Option<&str>,
    etag: Option<&str>,
    modified: Option<i64>,
) -> bool {
    if let Some(known) = matches.filter(|known| !known.is_empty()) {
        return known.split(',').map(str::trim).any(|tag| tag == "*" || Some(tag) == etag);
    }
    match (unmodified_since.and_then(seconds), modified) {
        (Some(since), Some(modified)) => modified <= since,
        _ => true,
    }
}

/// `If-Range`: whether what the client has a part of is what there is.
fn is_still(known: &str, etag: Option<&str>, modified: Option<i64>) -> bool {
    if known.is_empty() {
        return true;
    }
    if known.starts_with('"') || known.starts_with("W/") {
        return Some(known) == etag;
    }
    modified.is_some() && seconds(known) == modified
}

/// Why ranges are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Invalid,
    /// None of them begins within the document.
    NoOverlap,
}

/// The ranges that a header asks for; none if the whole is to be sent.
fn ranges(header: &str, size: usize) -> Result<Vec<Range<usize>>, Refusal> {
    if header.is_empty() {
        return Ok(Vec::new());
    }
    let list = header.strip_prefix("bytes=").ok_or(Refusal::Invalid)?;
    let (mut ranges, mut is_beyond) = (Vec::new(), false);
    for range in list.split(',').map(str::trim).filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').ok_or(Refusal::Invalid)?;
        let number = |text: &str| {
            let number: i64 = text.trim().parse().map_err(|_| Refusal::Invalid)?;
            let number = u64::try_from(number).map_err(|_| Refusal::Invalid)?;
            Ok(usize::try_from(number).unwrap_or(usize::MAX))
        };
        let range = if first.trim().is_empty() {
            // The end of the document.
            size.saturating_sub(number(last)?)..size
        } else {
            let first = number(first)?;
            if first >= size {
                is_beyond = true;
                continue;
            }
            let last = if last.trim().is_empty() { size - 1 } else { number(last)? };
            if last < first {
                return Err(Refusal::Invalid);
            }
            first..last.min(size - 1) + 1
        };
        ranges.push(range);
        if ranges.len() > RANGES_MAX {
            return Ok(Vec::new());
        }
    }
    if ranges.is_empty() && is_beyond && size > 0 {
        return Err(Refusal::NoOverlap);
    }
    Ok(ranges)
}

/// A request for more gets the whole. Each range costs more bytes in the response than in the request, and Go counts
/// the bytes of the document only.
const RANGES_MAX: usize = 100;

/// Several ranges of more bytes get the whole as well, which is shared by all clients: parts are a copy for each.
const PARTS_BYTES_MAX: usize = 64 * 1024;

fn content_range(range: &Range<usize>, size: usize) -> String {
    // Compat: the last byte of an empty range is the one before its first.
    format!("bytes {}-{}/{size}", range.start, range.end.wrapping_sub(1))
}

fn part(mut response: Response<Body>, body: &Bytes, range: Range<usize>) -> Response<Body> {
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    let shown = HeaderValue::from_str(&content_range(&range, body.len()));
    response.headers_mut().insert(CONTENT_RANGE, shown.expect("ASCII"));
    *response.body_mut() = Body::full(body.slice(range));
    response
}

fn parts(mut response: Response<Body>, body: &Bytes, ranges: &[Range<usize>]) -> Response<Body> {
    let mut random = [0; 30];
    // A boundary need not be secret: without randomness a part could be taken for one.
    let _ = getrandom::fill(&mut random);
    let boundary = random.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let content_type = header(&response, CONTENT_TYPE).unwrap_or_default().to_owned();
    let mut written = Vec::new();
    for range in ranges {
        if !written.is_empty() {
            written.extend_from_slice(b"\r\n");
        }
        let shown = content_range(range, body.len());
        written.extend_from_slice(
            format!(
                "--{boundary}\r\nContent-Range: {shown}\r\nContent-Type: {content_type}\r\n\r\n"
            )
            .as_bytes(),
        );
        written.extend_from_slice(&body[range.clone()]);
    }
    written.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    let shown = HeaderValue::from_str(&format!("multipart/byteranges; boundary={boundary}"));
    response.headers_mut().insert(CONTENT_TYPE, shown.expect("ASCII"));
    *response.body_mut() = Body::full(Bytes::from(written));
    response
}

fn refused(whole: &Response<Body>, size: usize, problem: Refusal) -> Response<Body> {
    let message = match problem {
        Refusal::Invalid => "invalid range\n",
        Refusal::NoOverlap => "invalid range: failed to overlap\n",
    };
    let mut response = Response::new(Body::full(Bytes::from_static(message.as_bytes())));
    *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
    let headers = response.headers_mut();
    for vary in whole.headers().get_all(VARY) {
        headers.append(VARY, vary.clone());
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if problem == Refusal::NoOverlap {
        let shown = HeaderValue::from_str(&format!("bytes */{size}"));
        headers.insert(CONTENT_RANGE, shown.expect("ASCII"));
    }
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn ranges_are_read_as_by_go() {
        let cases = [
            ("bytes=0-9", "0..10"),
            ("bytes= 0 - 9 ", "0..10"),
            ("bytes=-5", "95..100"),
            ("bytes=-500", "0..100"),
            ("bytes=-0", "100..100"),
            ("bytes=90-", "90..100"),
            ("bytes=90-9999999999", "90..100"),
            ("bytes=0-1, 4-5,", "0..2 4..6"),
            ("bytes=200-, 0-1", "0..2"),
            ("bytes=", ""),
            ("", ""),
            ("bytes=100-", "NoOverlap"),
            ("bytes=5-2", "Invalid"),
            ("bytes=a-b", "Invalid"),
            ("bytes=--5", "Invalid"),
            ("bytes=5", "Invalid"),
            ("lines=1-2", "Invalid"),
        ];
        for (header, expected) in cases {
            let found = match ranges(header, 100) {
                Ok(ranges) => {
                    let shown = ranges.iter().map(|range| format!("{range:?}"));
                    shown.collect::<Vec<_>>().join(" ")
                }
                Err(refusal) => format!("{refusal:?}"),
            };
            assert_eq!(found, expected, "{header}");
        }
        let many = format!("bytes={}", "-0,".repeat(RANGES_MAX + 1));
        assert_eq!(ranges(&many, 100), Ok(Vec::new()));
    }

    /// Recorded from kube-apiserver, whose documents are served by `http.ServeContent`.
    #[tokio::test]
    async fn conditions_and_ranges_decide_code_and_headers() {
        let etag = "\"ABC\"";
        let date = "Sun, 15 Nov 2026 21:00:00 GMT";
        let cases = [
            (vec![], "200 - 10"),
            (vec![(RANGE, "bytes=2-4")], "206 bytes 2-4/10 3"),
            (vec![(RANGE, "bytes=-0")], "206 bytes 10-9/10 0"),
            (vec![(RANGE, "bytes=0-9,0-9")], "200 - 10"),
            (vec![(RANGE, "bytes=10-")], "416 bytes */10 33"),
            (vec![(RANGE, "bytes=5-2")], "416 - 14"),
            (vec![(RANGE, "bytes=2-4"), (IF_RANGE, etag)], "206 bytes 2-4/10 3"),
            (vec![(RANGE, "bytes=2-4"), (IF_RANGE, date)], "206 bytes 2-4/10 3"),
            (vec![(RANGE, "bytes=2-4"), (IF_RANGE, "\"x\"")], "200 - 10"),
            (vec![(RANGE, "bytes=2-4"), (IF_RANGE, "yesterday")], "200 - 10"),
            (vec![(IF_MATCH, etag)], "200 - 10"),
            (vec![(IF_MATCH, "\"x\"")], "412 - 0"),
            (vec![(IF_MATCH, "\"x\", *")], "200 - 10"),
            (vec![(IF_UNMODIFIED_SINCE, date)], "200 - 10"),
            (vec![(IF_UNMODIFIED_SINCE, "Sun, 15 Nov 2020 21:00:00 GMT")], "412 - 0"),
        ];
        for (given, expected) in cases {
            let described = format!("{given:?}");
            let request =
                given.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value)));
            let response = serve_content(&request.collect(), whole(), &body());
            let range = header(&response, CONTENT_RANGE).unwrap_or("-").to_owned();
            let (head, body) = response.into_parts();
            let length = full(body).await.len();
            assert_eq!(
                format!("{} {range} {length}", head.status.as_u16()),
                expected,
                "{described}"
            );
        }
    }

    #[tokio::test]
    async fn several_ranges_are_parts_of_one_body() {
        let request = HeaderMap::from_iter([(RANGE, HeaderValue::from_static("bytes=0-1,4-5"))]);
        let response = serve_content(&request, whole(), &body());
        assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT);
        let content_type = header(&response, CONTENT_TYPE).unwrap_or_default();
        let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").expect("parts");
        let expected = format!(
            "--{boundary}\r\nContent-Range: bytes 0-1/10\r\nContent-Type: text/x\r\n\r\n01\r\n--{boundary}\r\n\
             Content-Range: bytes 4-5/10\r\nContent-Type: text/x\r\n\r\n45\r\n--{boundary}--\r\n"
        );
        assert_eq!(full(response.into_body()).await, expected.as_bytes());
    }

    #[test]
    fn large_parts_are_not_copied() {
        let document = Bytes::from(vec![b'x'; 3 * PARTS_BYTES_MAX]);
        let half = PARTS_BYTES_MAX / 2;
        let answered = |second: usize| {
            let range = format!("bytes=0-{},{}-{}", half - 1, 2 * half, 2 * half + second - 1);
            let range = HeaderValue::from_str(&range).expect("ASCII");
            let request = HeaderMap::from_iter([(RANGE, range)]);
            serve_content(&request, whole(), &document).status()
        };
        assert_eq!(answered(half), StatusCode::PARTIAL_CONTENT);
        assert_eq!(answered(half + 1), StatusCode::OK);
    }

    fn body() -> Bytes {
        Bytes::from_static(b"0123456789")
    }

    fn whole() -> Response<Body> {
        let mut response = Response::new(Body::full(body()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/x"));
        headers.insert(ETAG, HeaderValue::from_static("\"ABC\""));
        let date = HeaderValue::from_static("Sun, 15 Nov 2026 21:00:00 GMT");
        headers.insert(LAST_MODIFIED, date);
        response
    }

    async fn full(body: Body) -> Bytes {
        body.collect().await.expect("the body is in memory").to_bytes()
    }
}
