//! Real clients over the loopback.

use std::time::Duration;

use http::{Method, StatusCode, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::testing::{Client, Http2Frames, Setup, TestServer};
use super::*;
use crate::tls::testing::{Leaf, TestCa};

fn quick(limits: impl FnOnce(&mut Limits)) -> Limits {
    let mut quick = Limits::default();
    limits(&mut quick);
    quick
}

const SOON: Duration = Duration::from_millis(50);

#[tokio::test]
async fn both_protocols_answer_and_know_the_peer() {
    let server = TestServer::start(Setup::default());
    let jane = server.client_ca.sign(&Leaf::client("jane", "dev"));
    let stranger = TestCa::new("elsewhere").sign(&Leaf::client("mallory", "system:masters"));
    let expired = Leaf {
        not_after: std::time::SystemTime::now() - Duration::from_secs(10),
        ..Leaf::client("old", "")
    };
    let expired = server.client_ca.sign(&expired);
    let unknown = "unauthenticated: x509: certificate signed by unknown authority";
    let cases = [
        (None, "unauthenticated"),
        (Some(&jane), "jane of dev"),
        (Some(&stranger), unknown),
        (Some(&expired), "unauthenticated: x509: certificate has expired or is not yet valid"),
    ];
    for http2 in [false, true] {
        for tls12 in [false, true] {
            for (certificate, expected) in &cases {
                let mut client = Client { http2, tls12, ..server.client() };
                client.certificate = *certificate;
                let mut connection = client.connect().await;
                let answer = connection.get("/whoami").await;
                assert_eq!(answer.status, StatusCode::OK, "a bad certificate is no certificate");
                let version = if http2 { Version::HTTP_2 } else { Version::HTTP_11 };
                assert_eq!(answer.version, version);
                let tls = if tls12 { "TLSv1_2" } else { "TLSv1_3" };
                assert_eq!(answer.text(), format!("{expected} over {tls}"));
            }
        }
    }
}

#[tokio::test]
async fn the_client_may_choose_the_certificate_by_name() {
    let setup = Setup {
        sni: vec![("foo.example", ""), ("pinned", "bar.example,*.wild.example,127.0.0.1")],
        ..Setup::default()
    };
    let server = TestServer::start(setup);
    let cases = [
        ("localhost", "pintle"),
        ("foo.example", "foo.example"),
        ("bar.example", "pinned"),
        ("a.wild.example", "pinned"),
        // Without a name, the address decides.
        ("127.0.0.1", "pinned"),
    ];
    for (name, expected) in cases {
        let connection = Client { server_name: name, ..server.client() }.connect().await;
        assert_eq!(connection.server_common_name, expected, "{name}");
    }
}

#[tokio::test]
async fn new_files_are_used_without_a_restart() {
    let server = TestServer::start(Setup::default());
    let jane = server.client_ca.sign(&Leaf::client("jane", ""));
    let client = Client { certificate: Some(&jane), ..server.client() };
    let mut before = client.connect().await;
    assert!(before.get("/whoami").await.text().starts_with("jane"));
    let resumed = client.connect().await;
    assert!(resumed.resumed, "sessions are resumed");

    let new_ca = TestCa::new("new clients");
    server.write_client_ca(&new_ca);
    server.write_serving_cert("renewed");
    let (changed, errors) = server.tls.reload();
    assert!(changed && errors.is_empty(), "{errors:?}");

    let answer = before.get("/whoami").await;
    assert!(answer.text().starts_with("unauthenticated: "), "an open connection loses its trust");
    let mut after = client.connect().await;
    assert_eq!(after.server_common_name, "renewed");
    assert!(!after.resumed, "a session does not survive the CA that it was made under");
    assert!(after.get("/whoami").await.text().starts_with("unauthenticated: "));
    let joe = new_ca.sign(&Leaf::client("joe", ""));
    let mut joe = Client { certificate: Some(&joe), ..server.client() }.connect().await;
    assert!(joe.get("/whoami").await.text().starts_with("joe"));
}

#[tokio::test]
async fn flags_limit_the_handshake() {
    let cases = [
        (Setup { min_version: "VersionTLS13", ..Setup::default() }, true, false),
        (Setup { min_version: "VersionTLS13", ..Setup::default() }, false, true),
        (Setup { cipher_suite: "TLS_AES_128_GCM_SHA256", ..Setup::default() }, true, false),
        (Setup { cipher_suite: "TLS_AES_128_GCM_SHA256", ..Setup::default() }, false, true),
    ];
    for (index, (setup, tls12, good)) in cases.into_iter().enumerate() {
        let server = TestServer::start(setup);
        let connected = Client { tls12, ..server.client() }.try_tls().await;
        assert_eq!(connected.is_ok(), good, "case {index}");
        if !good {
            server.eventually(|server| server.server.handshake_errors().get() == 1).await;
        }
    }
    let server = TestServer::start(Setup { disable_http2: true, ..Setup::default() });
    let stream = Client { http2: true, ..server.client() }.try_tls().await;
    assert!(stream.is_err(), "a client that speaks HTTP/2 only finds no protocol");
}

/// Compat: what kube-apiserver and a client of Go agree on.
#[tokio::test]
async fn the_key_exchange_is_the_post_quantum_one_where_both_have_it() {
    let server = TestServer::start(Setup::default());
    let stream = server.client().tls().await;
    let group = stream.get_ref().1.negotiated_key_exchange_group();
    let name = group.map(rustls::crypto::SupportedKxGroup::name);
    assert_eq!(name, Some(rustls::NamedGroup::X25519MLKEM768));
}

#[tokio::test]
async fn broken_requests_are_refused_in_words() {
    let limits = quick(|limits| limits.header_bytes_max = 20_000);
    let server = TestServer::start(Setup { limits, ..Setup::default() });
    let large = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(30_000));
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(1_001));
    let too_large = "431 Request Header Fields Too Large";
    let cases = [
        (large, too_large),
        (many, too_large),
        ("GET / HTTP/1.1\r\nbad header\r\n\r\n".to_owned(), "400 Bad Request"),
        ("GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n".to_owned(), "400 Bad Request"),
    ];
    for (request, expected) in cases {
        let mut stream = server.client().tls().await;
        // The server may close before it has read everything.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).expect("text");
        let head = "Content-Type: text/plain; charset=utf-8\r\nConnection: close";
        assert_eq!(answer, format!("HTTP/1.1 {expected}\r\n{head}\r\n\r\n{expected}"));
    }
    for (host, expected) in [("", "missing required"), ("Host: x\r\nHost: y\r\n", "too many")] {
        let mut stream = server.client().tls().await;
        let request = format!("GET /whoami HTTP/1.1\r\n{host}\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("closed in order");
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        let text = format!("\r\n\r\n400 Bad Request: {expected} Host header");
        assert!(answer.ends_with(&text) || answer.ends_with(&format!("{text}s")), "{answer}");
    }
    let lengths =
        ["Content-Length: 3\r\nTransfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked"];
    for (lengths, expected) in lengths.iter().zip(["400 Bad Request", "501 Not Implemented"]) {
        let mut stream = server.client().tls().await;
        let request = format!("POST /whoami HTTP/1.1\r\nHost: x\r\n{lengths}\r\n\r\n0\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}\r\n")), "{lengths}: {answer}");
    }
    // An empty 400 of the handler is left alone.
    let mut connection = server.client().connect().await;
    let answer = connection.get("/empty-400").await;
    assert_eq!((answer.status, answer.text()), (StatusCode::BAD_REQUEST, String::new()));
    assert_eq!(connection.get("/whoami").await.status, StatusCode::OK, "and so is the connection");
}

/// A flood of chunk extensions lost its 403: the server closed while the client was sending, and the reset that followed
/// made the client's kernel discard the answer.
#[tokio::test]
async fn a_refusal_reaches_a_client_that_is_still_sending() {
    let server = TestServer::start(Setup::default());
    let cases = [
        ("POST /empty-400 HTTP/1.1\r\nHost: x\r\nContent-Length: 4194304\r\n\r\n", 400),
        ("POST /connection-close HTTP/1.1\r\nHost: x\r\nContent-Length: 4194304\r\n\r\n", 401),
        ("POST /close HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;", 401),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        ("POST / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", 404),
    ];
    let body = vec![b'x'; 4 << 20];
    for (head, expected) in cases {
        let mut stream = server.client().tls().await;
        stream.write_all(head.as_bytes()).await.expect("written");
        stream.write_all(&body).await.expect("the server reads it all");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("closed in order");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{head}: {answer}");
    }
    // The same over HTTP/2, where the answer of an anonymous client is followed by GOAWAY.
    let mut frames = Http2Frames::connect(&server).await;
    frames.open_with_body(1, "/connection-close").await;
    assert_eq!(frames.until_headers().await, 1);
    for _ in 0..14 {
        frames.data(1, &body[..16 << 10]).await;
    }
    assert_eq!(frames.until_goaway().await, 0, "no error");
    // This client answers no PING, so the connection ends by its time limit, but not with a reset.
    let ended = frames.until_closed().await.map_err(|error| error.kind());
    assert!(matches!(ended, Ok(()) | Err(io::ErrorKind::UnexpectedEof)), "{ended:?}");
}

#[tokio::test]
async fn lingering_is_bounded() {
    const LONG: Duration = Duration::from_mins(10);
    let lingering = |limits: fn(&mut Limits)| {
        let limits = quick(|all| {
            (all.linger_timeout, all.linger_quiet_timeout) = (LONG, LONG);
            limits(all);
        });
        TestServer::start(Setup { limits, ..Setup::default() })
    };
    let head = b"POST /close HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n";

    let server = lingering(|limits| limits.linger_bytes_max = 1 << 20);
    let mut stream = server.client().tls().await;
    stream.write_all(head).await.expect("written");
    let mut sent = 0;
    while stream.write_all(&[b'x'; 16 << 10]).await.is_ok() {
        sent += 16 << 10;
        // The rest is what the kernel's buffers hold.
        assert!(sent < 64 << 20, "the server goes on reading");
    }

    let in_time: [fn(&mut Limits); 3] = [
        |limits| limits.linger_timeout = SOON,
        |limits| limits.linger_quiet_timeout = SOON,
        |limits| limits.lingering_max = 0,
    ];
    for limits in in_time {
        let server = lingering(limits);
        let mut stream = server.client().tls().await;
        stream.write_all(head).await.expect("written");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("closed in order");
        assert!(answer.starts_with(b"HTTP/1.1 401 "), "{}", String::from_utf8_lossy(&answer));
        server.eventually(|server| server.server.connections() == 0).await;
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed() {
    let limits = quick(|limits| limits.connections_max = 2);
    let server = TestServer::start(Setup { limits, ..Setup::default() });
    let mut first = server.client().connect().await;
    let second = server.client().connect().await;
    assert!(server.client().try_tls().await.is_err());
    assert_eq!(first.get("/whoami").await.status, StatusCode::OK, "those inside stay");
    drop(second);
    server.eventually(|server| server.server.connections() == 1).await;
    assert_eq!(server.client().connect().await.get("/whoami").await.status, StatusCode::OK);
}

#[tokio::test]
async fn plain_http_gets_a_hint() {
    let server = TestServer::start(Setup::default());
    let mut stream = TcpStream::connect(server.server.address()).await.expect("connected");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("read");
    let text = "Client sent an HTTP request to an HTTPS server.\n";
    assert_eq!(answer, format!("HTTP/1.0 400 Bad Request\r\n\r\n{text}"));
}

#[tokio::test]
async fn http2_has_the_limits_of_kube_apiserver() {
    let server = TestServer::start(Setup::default());
    let mut frames = Http2Frames::connect(&server).await;
    // max streams, initial window, max frame, max header list
    let settings = frames.settings().await;
    let expected = [(3, 100), (4, 262_144), (5, 262_144), (6, 1_048_896)];
    for setting in expected {
        assert!(settings.contains(&setting), "{setting:?} in {settings:?}");
    }
    for stream in 0..100 {
        frames.open(2 * stream + 1, "/wait").await;
    }
    frames.open(201, "/wait").await;
    let (stream, code) = frames.until_reset().await;
    assert_eq!((stream, code), (201, 7), "stream 101 is refused, to be tried again");
    server.handler.release();
    assert_eq!(frames.until_headers().await % 2, 1, "the others are served");
}

#[tokio::test]
async fn reset_streams_do_not_pile_up() {
    let server = TestServer::start(Setup::default());
    let mut frames = Http2Frames::connect(&server).await;
    for stream in 0..3000 {
        frames.open(2 * stream + 1, "/wait").await;
        frames.reset(2 * stream + 1).await;
        if stream % 100 == 0 {
            frames.ping().await;
        }
    }
    frames.open(6001, "/whoami").await;
    assert_eq!(frames.until_headers().await, 6001);
    server.eventually(|server| server.handler.running() == 0).await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_cut_off() {
    let limits = quick(|limits| limits.stall_timeout = SOON);
    let server = TestServer::start(Setup { limits, ..Setup::default() });
    let mut frames = Http2Frames::connect(&server).await;
    frames.open_windows().await;
    for stream in 0..5 {
        frames.open(2 * stream + 1, "/list").await;
    }
    server.eventually(|server| server.server.connections() == 0).await;
}

/// The connection is alive, so its own time limit never runs out.
#[tokio::test]
async fn a_stream_whose_client_reads_nothing_is_reset() {
    let limits = quick(|limits| limits.stall_timeout = SOON);
    let server = TestServer::start(Setup { limits, ..Setup::default() });
    let mut frames = Http2Frames::connect(&server).await;
    frames.close_windows().await;
    frames.ping().await;
    frames.open(1, "/quiet").await;
    for (stream, path) in [(3, "/events"), (5, "/list"), (7, "/send-by"), (9, "/whoami")] {
        frames.open(stream, path).await;
        let (reset, code) = frames.until_reset().await;
        assert_eq!((reset, code), (stream, 8), "{path} is cancelled");
    }
    frames.ping().await;
    assert_eq!(server.server.connections(), 1, "the others go on");
}

#[tokio::test]
async fn an_http1_client_that_reads_nothing_is_cut_off() {
    for (path, stall) in [("/list", SOON), ("/events", SOON), ("/send-by", Duration::from_mins(1))]
    {
        let limits = quick(|limits| {
            limits.stall_timeout = stall;
            limits.header_timeout = SOON;
        });
        let server = TestServer::start(Setup { limits, ..Setup::default() });
        let mut stream = server.client().tls().await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        server.eventually(|server| server.handler.running() == 0).await;
        server.eventually(|server| server.server.connections() == 0).await;
    }
}

/// The kernel would take 4 MB for each of them.
#[tokio::test]
async fn little_is_sent_to_a_client_that_reads_nothing() {
    let limits = quick(|limits| limits.stall_timeout = 10 * SOON);
    let server = TestServer::start(Setup { limits, ..Setup::default() });
    let mut stream = server.client().tls().await;
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("written");
    server.eventually(|server| server.handler.event_bytes() > 0).await;
    server.eventually(|server| server.server.connections() == 0).await;
    let sent = server.handler.event_bytes();
    assert!(sent < 2 << 20, "{sent} bytes");
}

#[tokio::test]
async fn a_connection_can_be_closed_by_its_requests() {
    let server = TestServer::start(Setup::default());
    for path in ["/close", "/connection-close"] {
        let mut frames = Http2Frames::connect(&server).await;
        frames.open(1, path).await;
        assert_eq!(frames.until_headers().await, 1);
        assert_eq!(frames.until_goaway().await, 0, "no error");

        for http2 in [false, true] {
            let mut connection = Client { http2, ..server.client() }.connect().await;
            let answer = connection.get(path).await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "the answer arrives");
            assert!(connection.closed().await, "{path} {http2}");
        }
    }
}

#[tokio::test]
async fn one_streams_panic_leaves_the_others_alone() {
    let server = TestServer::start(Setup::default());
    let mut connection = Client { http2: true, ..server.client() }.connect().await;
    let mut other = connection.share();
    let waiting = tokio::spawn(async move { other.get("/wait").await.status });
    server.eventually(|server| server.handler.running() == 1).await;
    assert!(connection.send(Method::GET, "/panic").await.is_err());
    assert!(connection.send(Method::GET, "/body-panic").await.is_err());
    server.handler.release();
    assert_eq!(waiting.await.expect("no panic here"), StatusCode::OK);
}

#[tokio::test]
async fn a_panic_in_an_http1_body_ends_its_response() {
    let server = TestServer::start(Setup::default());
    let mut stream = server.client().tls().await;
    stream.write_all(b"GET /body-panic HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("written");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.ends_with("0\r\n\r\n"), "cut off: {answer}");
    server.eventually(|server| server.server.connections() == 0).await;
    assert_eq!(server.client().connect().await.get("/whoami").await.status, StatusCode::OK);
}

#[tokio::test]
async fn large_answers_arrive_whole() {
    let server = TestServer::start(Setup::default());
    for http2 in [false, true] {
        let mut connection = Client { http2, ..server.client() }.connect().await;
        let answer = connection.get("/list").await;
        assert_eq!(answer.body.len(), 8 << 20);
        assert!(
            answer.body.chunks(64 << 10).enumerate().all(|(i, c)| c.iter().all(|b| *b == i as u8))
        );
    }
}

#[tokio::test]
async fn http1_can_be_upgraded() {
    let server = TestServer::start(Setup::default());
    let mut stream = server.client().tls().await;
    let request =
        "GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a header"));
    }
    assert!(head.starts_with(b"HTTP/1.1 101 Switching Protocols\r\n"));
    // The handler takes five bytes, and ends while the rest is being sent.
    stream.write_all(b"hello").await.expect("written");
    stream.write_all(&vec![b'x'; 4 << 20]).await.expect("the server reads it all");
    let mut echo = Vec::new();
    stream.read_to_end(&mut echo).await.expect("closed in order");
    assert_eq!(echo, b"hello");
}

#[tokio::test]
async fn connections_without_use_are_closed_in_time() {
    type Start = &'static [u8];
    let header = quick(|limits| limits.header_timeout = SOON);
    let idle = quick(|limits| limits.idle_timeout = SOON);
    let preface = quick(|limits| limits.preface_timeout = SOON);
    let cases: [(&str, Limits, bool, Start); 5] = [
        ("no request", header.clone(), false, b""),
        ("half a request", header, false, b"GET / HT"),
        (
            "nothing after a request",
            idle.clone(),
            false,
            b"GET /whoami HTTP/1.1\r\nHost: x\r\n\r\n",
        ),
        ("no preface", preface, true, b""),
        (
            "no streams",
            idle,
            true,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        ),
    ];
    for (what, limits, http2, start) in cases {
        let limits = Limits { linger_timeout: SOON, ..limits };
        let server = TestServer::start(Setup { limits, ..Setup::default() });
        let mut stream = Client { http2, ..server.client() }.tls().await;
        stream.write_all(start).await.expect("written");
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let ended = tokio::time::timeout(Duration::from_secs(10), read).await;
        assert!(ended.is_ok(), "{what}: still open");
        server.eventually(|server| server.server.connections() == 0).await;
    }
    // Not even a handshake.
    let limits = quick(|limits| limits.handshake_timeout = SOON);
    let server = TestServer::start(Setup { limits, ..Setup::default() });
    let mut stream = TcpStream::connect(server.server.address()).await.expect("connected");
    assert_eq!(stream.read(&mut [0]).await.expect("closed in order"), 0);
    assert_eq!(server.server.handshake_errors().get(), 1);
}

#[tokio::test]
async fn a_busy_connection_is_never_idle() {
    let limits = quick(|limits| {
        limits.idle_timeout = SOON;
        limits.header_timeout = SOON;
        limits.preface_timeout = SOON;
    });
    let server = TestServer::start(Setup { limits, ..Setup::default() });
    for http2 in [false, true] {
        let mut connection = Client { http2, ..server.client() }.connect().await;
        let waiting = tokio::spawn(async move { connection.get("/wait").await.status });
        server.eventually(|server| server.handler.running() == 1).await;
        tokio::time::sleep(4 * SOON).await;
        server.handler.release();
        assert_eq!(waiting.await.expect("no panic"), StatusCode::OK);
    }
}

#[tokio::test]
async fn shutdown_lets_running_requests_end() {
    for http2 in [false, true] {
        let server = TestServer::start(Setup::default());
        let mut connection = Client { http2, ..server.client() }.connect().await;
        let mut idle = Client { http2, ..server.client() }.connect().await;
        assert_eq!(idle.get("/whoami").await.status, StatusCode::OK);
        let waiting = tokio::spawn(async move { connection.get("/wait").await.status });
        server.eventually(|server| server.handler.running() == 1).await;

        let running = server.server.clone();
        let stopping = tokio::spawn(async move { running.shutdown(Duration::from_mins(1)).await });
        assert!(idle.closed().await, "idle connections go at once, HTTP/2: {http2}");
        assert!(TcpStream::connect(server.server.address()).await.is_err(), "no new ones");
        assert!(!stopping.is_finished());

        server.handler.release();
        assert_eq!(waiting.await.expect("no panic"), StatusCode::OK);
        assert_eq!(stopping.await.expect("no panic"), 0, "nothing was cut off");
    }
}

#[tokio::test]
async fn shutdown_cuts_off_what_does_not_end() {
    let server = TestServer::start(Setup::default());
    let mut connection = Client { http2: true, ..server.client() }.connect().await;
    let waiting = tokio::spawn(async move { connection.send(Method::GET, "/wait").await.is_ok() });
    server.eventually(|server| server.handler.running() == 1).await;
    assert_eq!(server.server.shutdown(SOON).await, 1);
    assert!(!waiting.await.expect("no panic"));
    server.eventually(|server| server.handler.running() == 0).await;
    assert_eq!(server.server.connections(), 0);
}

#[tokio::test]
async fn sockets_are_bound_as_asked() {
    let any_port = |ip: &str| SocketAddr::new(ip.parse().expect("an address"), 0);
    let loopback = Listener::bind(any_port("127.0.0.1"), Sharing::default()).expect("bound");
    assert_ne!(loopback.address().port(), 0);
    let again = Listener::bind(loopback.address(), Sharing::default());
    assert_eq!(again.err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));

    let all = Listener::bind(any_port("0.0.0.0"), Sharing::default()).expect("bound");
    assert!(all.address().ip().is_unspecified());
    let port = all.address().port();
    TcpStream::connect(("127.0.0.1", port)).await.expect("all addresses include this one");

    let sharing = Sharing { port: true, ..Sharing::default() };
    let first = Listener::bind(any_port("127.0.0.1"), sharing).expect("bound");
    Listener::bind(first.address(), sharing).expect("a second one on the same port");
}
