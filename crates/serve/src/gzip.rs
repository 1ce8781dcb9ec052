//! Compressed answers, under the conditions kube-apiserver sets: only large ones, only for clients that accept gzip, at the fastest level.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use codec::gzip::{self, GzipWriter};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::body::{Body, BoxError, ChunkSource, Chunks, PooledChunks, Source};
use crate::cpu_pool::CpuPool;

/// Compresses `response` if the client accepts it and the body is long enough. A watch never is: its events have to leave one
/// by one. A list whose size is unknown is looked at until it passes the threshold.
///
/// The work is done on the pool: a megabyte takes as long as a thousand small requests.
pub async fn compress(accepted: bool, response: Response<Body>, pool: &CpuPool) -> Response<Body> {
    let headers = response.headers();
    // A part of a document is that of the document as it is: compressed, it could not be joined with others.
    let is_part = response.status() == StatusCode::PARTIAL_CONTENT;
    if !accepted || is_part || headers.contains_key(CONTENT_ENCODING) {
        return response;
    }
    let (mut head, mut body) = response.into_parts();
    let (source, compressed) = compress_source(body.take_source(), pool).await;
    body.set_source(source);
    if compressed {
        head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        if !head.headers.get_all(VARY).iter().any(|vary| vary == "Accept-Encoding") {
            head.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        head.headers.remove(CONTENT_LENGTH);
    }
    Response::from_parts(head, body)
}

/// Whether `gzip` is one of the encodings that a request names.
///
/// Compat: only the first header line counts, as in kube-apiserver.
pub fn is_accepted(request: &HeaderMap) -> bool {
    let Some(encodings) = request.get(ACCEPT_ENCODING) else { return false };
    gzip::is_accepted(encodings.as_bytes())
}

/// The source of the response, and whether it is compressed.
async fn compress_source(source: Source, pool: &CpuPool) -> (Source, bool) {
    let chunks = match source {
        Source::Full(bytes) if bytes.len() > THRESHOLD_BYTES => {
            let pieces = Pieces(bytes);
            Chunks { ready: VecDeque::new(), rest: Box::new(pieces.map(Ok)) }
        }
        // Chunks that are copied are looked at here, those that take long on the pool.
        Source::Chunks(chunks) => match beginning(chunks) {
            Beginning::Large(chunks) => chunks,
            Beginning::Small(source) => return (source, false),
        },
        Source::Pooled(chunks) => {
            let Some(rest) = chunks.into_chunks() else { return (Source::Empty, false) };
            let chunks = Chunks { ready: VecDeque::new(), rest };
            match pool.compute(|| beginning(chunks)).await {
                Beginning::Large(chunks) => chunks,
                Beginning::Small(source) => return (source, false),
            }
        }
        other => return (other, false),
    };
    let chunks = Box::new(GzipChunks::new(chunks));
    (Source::Pooled(PooledChunks::new(chunks, pool.clone())), true)
}

enum Beginning {
    Large(Chunks),
    Small(Source),
}

/// Pulls chunks until they are worth compressing. A body that ends before that is sent as one piece.
fn beginning(mut chunks: Chunks) -> Beginning {
    let mut seen = 0;
    let mut ready = VecDeque::new();
    while seen <= THRESHOLD_BYTES {
        match chunks.next_chunk() {
            Some(Ok(chunk)) => {
                seen += chunk.len();
                ready.push_back(chunk);
            }
            // The error comes after the chunks that are good.
            Some(Err(error)) => {
                let rest = Box::new(std::iter::once(Err(error)));
                return Beginning::Small(Source::Chunks(Chunks { ready, rest }));
            }
            None => return Beginning::Small(joined(ready, seen)),
        }
    }
    Beginning::Large(Chunks { ready, rest: chunks.rest })
}

fn joined(mut ready: VecDeque<Bytes>, length: usize) -> Source {
    match ready.len() {
        0 => Source::Empty,
        1 => Source::Full(ready.pop_front().expect("its length is one")),
        _ => {
            let mut bytes = BytesMut::with_capacity(length);
            for chunk in ready {
                bytes.extend_from_slice(&chunk);
            }
            Source::Full(bytes.freeze())
        }
    }
}

/// Bodies up to this size are sent as they are: compressing them costs more than it saves.
const THRESHOLD_BYTES: usize = 128 * 1024;

/// Large bytes in pieces, so that compressing them never holds up the other streams of a connection for long.
struct Pieces(Bytes);

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let piece = self.0.split_to(self.0.len().min(PIECE_BYTES));
        (!piece.is_empty()).then_some(piece)
    }
}

const PIECE_BYTES: usize = 64 * 1024;

/// Compresses chunk by chunk, as they are sent.
pub(crate) struct GzipChunks {
    chunks: Chunks,
    /// Gone once the trailer is written.
    gzip: Option<GzipWriter>,
}

impl GzipChunks {
    fn new(chunks: Chunks) -> Self {
        Self { chunks, gzip: Some(GzipWriter::new()) }
    }
}

impl Iterator for GzipChunks {
    type Item = Result<Bytes, BoxError>;

    /// Compresses until there is enough for a frame; `None` when the body is complete.
    fn next(&mut self) -> Option<Self::Item> {
        let mut gzip = self.gzip.take()?;
        while let Some(compressed) = self.chunks.compress_next(&mut gzip) {
            if let Err(error) = compressed {
                return Some(Err(error));
            }
            if meta::cancel::requested() {
                return Some(Err("cancelled".into()));
            }
            if gzip.output_len() >= OUTPUT_BYTES {
                let output = gzip.take_output();
                self.gzip = Some(gzip);
                return Some(Ok(output.into()));
            }
        }
        Some(Ok(gzip.finish().into()))
    }
}

/// A frame of compressed output has at least so many bytes.
const OUTPUT_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use http_body_util::BodyExt;

    use super::*;

    async fn compressed(accepted: bool, response: Response<Body>) -> Response<Body> {
        let pool = CpuPool::start(1).expect("a thread");
        compress(accepted, response, &pool).await
    }

    fn request(accept_encoding: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if !accept_encoding.is_empty() {
            headers.insert(ACCEPT_ENCODING, accept_encoding.parse().expect("test header"));
        }
        headers
    }

    /// Text that compresses, but not to nothing.
    fn text(length: usize) -> Vec<u8> {
        (0..length).map(|i| b"abcdefghijklmnop{\":}0123456789"[(i * i / 7 + i) % 30]).collect()
    }

    fn chunks(text: &[u8], size: usize) -> Vec<Result<Bytes, BoxError>> {
        text.chunks(size).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect()
    }

    #[tokio::test]
    async fn only_large_bodies_of_clients_that_ask_are_compressed() {
        const KIB_128: usize = 128 * 1024;
        let full = |length| Body::full(text(length));
        let list = |length| Body::chunks(chunks(&text(length), 10_000));
        let pool = CpuPool::start(1).expect("a thread");
        let table = |length| Body::pooled_chunks(chunks(&text(length), 10_000), pool.clone());
        let watch = |length| {
            let events = chunks(&text(length), 10_000).into_iter().map(Result::unwrap_or_default);
            Body::events(futures_util::stream::iter(events.collect::<Vec<_>>()))
        };
        let cases: Vec<(&str, Body, usize, bool)> = vec![
            ("gzip", full(KIB_128), KIB_128, false),
            ("gzip", full(KIB_128 + 1), KIB_128 + 1, true),
            ("gzip", full(1_000_000), 1_000_000, true),
            ("deflate, gzip ,br", full(200_000), 200_000, true),
            ("", full(200_000), 200_000, false),
            ("br", full(200_000), 200_000, false),
            ("gzip;q=1.0", full(200_000), 200_000, false),
            ("gzip", list(0), 0, false),
            ("gzip", list(10), 10, false),
            ("gzip", list(KIB_128), KIB_128, false),
            ("gzip", list(KIB_128 + 1), KIB_128 + 1, true),
            ("gzip", list(1_000_000), 1_000_000, true),
            ("gzip", table(KIB_128), KIB_128, false),
            ("gzip", table(1_000_000), 1_000_000, true),
            ("gzip", watch(200_000), 200_000, false),
        ];
        for (index, (accept, body, length, compressed)) in cases.into_iter().enumerate() {
            let response =
                compress(is_accepted(&request(accept)), Response::new(body), &pool).await;
            let headers = response.headers().clone();
            let bytes = response.into_body().collect().await.expect("no error").to_bytes();
            assert_eq!(headers.contains_key(CONTENT_ENCODING), compressed, "case {index}");
            assert_eq!(
                headers.get(VARY).is_some_and(|vary| vary == "Accept-Encoding"),
                compressed,
                "case {index}"
            );
            let plain = if compressed {
                assert!(bytes.len() < length, "case {index} is smaller");
                let mut plain = Vec::new();
                flate2::read::GzDecoder::new(&bytes[..])
                    .read_to_end(&mut plain)
                    .expect("valid gzip");
                plain
            } else {
                bytes.to_vec()
            };
            assert!(plain == text(length), "case {index} has the same bytes");
        }
    }

    #[tokio::test]
    async fn an_already_encoded_answer_stays_as_it_is() {
        let response =
            Response::builder().header(CONTENT_ENCODING, "br").body(Body::full(text(200_000)));
        let response = response.expect("valid response");
        let response = compressed(is_accepted(&request("gzip")), response).await;
        assert_eq!(response.headers()[CONTENT_ENCODING], "br");
        assert!(!response.headers().contains_key(VARY));
    }

    #[tokio::test]
    async fn a_part_stays_as_it_is_and_vary_has_no_line_twice() {
        let response = |code: StatusCode| {
            let response = Response::builder().status(code).header(VARY, "Accept-Encoding");
            response.body(Body::full(text(200_000))).expect("valid response")
        };
        for (code, encoding) in
            [(StatusCode::OK, Some("gzip")), (StatusCode::PARTIAL_CONTENT, None)]
        {
            let response = compressed(is_accepted(&request("gzip")), response(code)).await;
            let found = response.headers().get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
            assert_eq!(found, encoding.map(str::as_bytes), "{code}");
            assert_eq!(response.headers().get_all(VARY).iter().count(), 1, "{code}");
        }
    }

    #[tokio::test]
    async fn an_error_in_a_list_reaches_the_connection() {
        for good_bytes in [10, 300_000] {
            let mut all = chunks(&text(good_bytes), 10_000);
            all.push(Err("compacted".into()));
            let response =
                compressed(is_accepted(&request("gzip")), Response::new(Body::chunks(all))).await;
            let error = response.into_body().collect().await.expect_err("the list broke off");
            assert_eq!(error.to_string(), "compacted", "after {good_bytes} bytes");
        }
    }
}
