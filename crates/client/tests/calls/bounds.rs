use client::{Call, Error, Limits};

use crate::{get, plain, server::RawServer};

/// What a call makes of an answer, given byte by byte; the server then keeps the connection open, so
/// that nothing but the answer can end the call.
async fn outcome(answer: Vec<u8>) -> String {
    let server = RawServer::start(move |_, mut peer| {
        let answer = answer.clone();
        async move {
            peer.request().await;
            peer.write(&answer).await;
            // Until the client goes.
            peer.request().await;
        }
    })
    .await;
    let call = Call { response_bytes_max: 10, ..get(&server.url()) };
    match plain(Limits::default()).call(call).await {
        Ok(response) => {
            let body = String::from_utf8_lossy(response.body()).into_owned();
            format!("{} {body}", response.status().as_u16())
        }
        Err(Error::Http(error)) => {
            assert!(error.is_parse(), "{error}");
            "not HTTP".to_owned()
        }
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_response_is_bounded() {
    let answer = |head: &str, body: &str| format!("HTTP/1.1 {head}\r\n\r\n{body}").into_bytes();
    let too_large = "the response is larger than 10 bytes";
    let chunked = "200 OK\r\ntransfer-encoding: chunked";
    let long = "x".repeat(300_000);
    let many: String = (0..300).map(|number| format!("\r\nx-{number}: y")).collect();
    let headers_too_large = "the headers of the response are larger than 262144 bytes";
    let early = |count: usize| answer("100 Continue", "").repeat(count);
    let informational = "the server sends informational responses and no other";
    let cases = [
        ([early(3), answer("200 OK\r\ncontent-length: 2", "ok")].concat(), "200 ok"),
        (early(65), informational),
        (early(10_000), informational),
        (answer("200 OK\r\ncontent-length: 10", "0123456789"), "200 0123456789"),
        (answer("200 OK\r\ncontent-length: 0", ""), "200 "),
        (answer(chunked, "5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n"), "200 0123456789"),
        // Nothing of the body has to come for that.
        (answer("200 OK\r\ncontent-length: 11", ""), too_large),
        (answer(chunked, "6\r\n012345\r\n6\r\n6789ab\r\n"), too_large),
        // Without a length, until the connection ends: it does not.
        (answer("200 OK", "0123456789a"), too_large),
        (answer(&format!("200 OK\r\nx: {long}"), ""), headers_too_large),
        (answer(&format!("200 OK{many}"), ""), headers_too_large),
        (answer("200 OK\r\ncontent-length: 2\r\ncontent-encoding: identity", "ok"), "200 ok"),
        (
            answer("200 OK\r\ncontent-length: 2\r\ncontent-encoding: gzip", "ok"),
            r#"the response has the unrequested Content-Encoding "gzip""#,
        ),
        (
            answer("302 Found\r\nlocation: https://b/\r\ncontent-length: 0", ""),
            "302 Found redirects to https://b/, which is not followed",
        ),
        (
            answer("307 Temporary Redirect\r\nlocation: /b\r\ncontent-length: 0", ""),
            "307 Temporary Redirect redirects to /b, which is not followed",
        ),
        (answer("304 Not Modified", ""), "304 "),
        (answer("500 Oh No\r\ncontent-length: 2", "no"), "500 no"),
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n".to_vec(), "not HTTP"),
    ];
    for (answer, expected) in cases {
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(80)]).into_owned();
        assert_eq!(outcome(answer).await, expected, "{shown}");
    }
}
