//! Connections: malformed HTTP/1.1, uploads that stall, many streams, clients that do not read.

use std::{
    io::{Read as _, Write as _},
    time::Duration,
};

use integration::Http;

use super::{Case, Client, NAMESPACE, Outcome, sized};

/// Raw bytes over TLS; the answer is what comes until the server closes or is silent.
fn raw(
    name: &'static str,
    codes: &'static [u16],
    bytes: impl Fn(&str) -> Vec<u8> + 'static,
) -> Case {
    Case::new(name, Client::Anonymous, codes, move |http| exchange(http, &bytes(&http.host())))
}

fn exchange(http: &Http, bytes: &[u8]) -> Outcome {
    let mut stream = http.raw_blocking(Duration::from_secs(2)).expect("the server accepts");
    // The server may close before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.flush();
    let mut answer = vec![0; 64 << 10];
    let mut length = 0;
    while length < answer.len() {
        match stream.read(&mut answer[length..]) {
            Ok(0) | Err(_) => break,
            Ok(count) => length += count,
        }
        if answer[..length].windows(4).any(|window| window == b"\r\n\r\n") {
            break;
        }
    }
    let text = String::from_utf8_lossy(&answer[..length]);
    let code = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Outcome { code, bytes: length }
}

fn head(method: &str, host: &str, headers: &str) -> String {
    format!("{method} /version HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n")
}

pub(super) fn cases() -> Vec<Case> {
    let smuggled = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    vec![
        raw("http/1.1: content-length and chunked", &[400], move |host| {
            let headers = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
            format!("{}0\r\n\r\n{smuggled}", head("POST", host, headers)).into()
        }),
        raw("http/1.1: gzip, chunked", &[400, 501], |host| {
            format!("{}0\r\n\r\n", head("POST", host, "Transfer-Encoding: gzip, chunked\r\n"))
                .into()
        }),
        raw("http/1.1: two content lengths", &[400], |host| {
            head("POST", host, "Content-Length: 5\r\nContent-Length: 6\r\n").into()
        }),
        raw("http/1.1: a negative content length", &[400], |host| {
            head("POST", host, "Content-Length: -5\r\n").into()
        }),
        raw("http/1.1: a content length of 2^80", &[400, 413], |host| {
            head("POST", host, "Content-Length: 1208925819614629174706176\r\n").into()
        }),
        raw("http/1.1: a content length of 2^62", &[400, 403, 413], |host| {
            head("POST", host, "Content-Length: 4611686018427387904\r\n").into()
        }),
        raw("http/1.1: a chunk of 2^70", &[400, 403], |host| {
            let head = head("POST", host, "Transfer-Encoding: chunked\r\n");
            format!("{head}400000000000000000\r\n").into()
        }),
        raw("http/1.1: a chunk extension of 1 MB", &[400, 403], |host| {
            let head = head("POST", host, "Transfer-Encoding: chunked\r\n");
            format!("{head}1;{}\r\na\r\n0\r\n\r\n", "x".repeat(1_000_000)).into()
        }),
        raw("http/1.1: no host", &[400, 200], |_| b"GET /version HTTP/1.1\r\n\r\n".to_vec()),
        raw("http/1.1: a header without a colon", &[400], |host| {
            head("GET", host, "abc\r\n").into()
        }),
        raw("http/1.1: a space before the colon", &[400], |host| {
            head("GET", host, "Content-Length : 5\r\n").into()
        }),
        raw("http/1.1: a folded header", &[400], |host| head("GET", host, "a: b\r\n c\r\n").into()),
        raw("http/1.1: a header that never ends", &[431], |host| {
            format!("GET /version HTTP/1.1\r\nHost: {host}\r\nx-a: {}", "b".repeat(3_000_000))
                .into()
        }),
        raw("http/1.1: a path of 100 KB", &[414], |host| {
            head("GET", host, "").replace("/version", &format!("/{}", "a".repeat(100_000))).into()
        }),
        raw("http/1.1: a method of 1 MB", &[400, 403, 405, 414, 431], |host| {
            head(&"A".repeat(1_000_000), host, "").into()
        }),
        raw("http/1.1: 3 000 requests at once", &[200], |host| {
            head("GET", host, "").repeat(sized(3_000)).into()
        }),
        raw("http/2: a preface and nothing else", &[0, 400], |_| {
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()
        }),
        raw("tls: garbage instead of a request", &[400], |_| vec![0xff; 1_000_000]),
        stalled_uploads(),
        watches_that_are_not_read(),
    ]
}

/// Uploads whose body never comes hold neither a seat nor much memory.
fn stalled_uploads() -> Case {
    Case::new("uploads: 300 that stall", Client::NamespaceAdmin, &[200], |http| {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\n{}Content-Type: application/json\r\nContent-Length: 3000000\r\n\r\n{{",
            http.host(),
            http.authorization(),
        );
        let mut open = Vec::new();
        for _ in 0..sized(300) {
            let mut stream = http.raw_blocking(Duration::from_secs(5)).expect("the server accepts");
            stream.write_all(head.as_bytes()).expect("the server reads");
            open.push(stream);
        }
        let answer = http.get(&path);
        // A write of the same client is not held up by them either.
        let object = serde_json::json!({"metadata": {"generateName": "beside-"}});
        http.post(&path, &object).expect(201);
        drop(open);
        Outcome::from(&answer)
    })
}

/// Watchers that never read do not hold up others, and what is kept for them, also by the kernel, is bounded.
fn watches_that_are_not_read() -> Case {
    Case::new(
        "watches: 200 that read nothing, 300 writes",
        Client::NamespaceAdmin,
        &[200],
        |http| {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
            let head = format!(
                "GET {path}?watch=1 HTTP/1.1\r\nHost: {}\r\n{}\r\n",
                http.host(),
                http.authorization(),
            );
            let mut open = Vec::new();
            for _ in 0..sized(200) {
                let mut stream =
                    http.raw_blocking(Duration::from_secs(5)).expect("the server accepts");
                stream.write_all(head.as_bytes()).expect("the server reads");
                open.push(stream);
            }
            let mut connection = http.connect().expect("the server accepts");
            for i in 0..sized(300) {
                let body = serde_json::json!({"metadata": {"name": format!("watched-{i}")}, "data": {
                "a": "b".repeat(20_000)}});
                let request = http::Request::post(&path)
                    .header("content-type", "application/json")
                    .body(body.to_string().into())
                    .expect("a valid request");
                let answer = connection.request(request).expect("the server answers");
                assert_eq!(answer.code, 201, "{}", answer.text());
            }
            let answer = http.get(&format!("{path}?limit=1"));
            drop(open);
            Outcome::from(&answer)
        },
    )
}
