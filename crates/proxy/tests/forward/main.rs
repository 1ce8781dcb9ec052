//! The proxy between a client on a bare TLS connection and a backend of which a test decides every byte.

mod setup;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use proxy::{Options, Redirects};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::Notify,
};

use crate::setup::{Backend, Front};

const SWITCHED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: echo\r\n\r\n";
const UPGRADE: &str = "GET /up HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

#[tokio::test]
async fn an_upgraded_connection_is_copied_both_ways() {
    let backend = Backend::start(|_, mut peer| async move {
        let request = peer.request().await.expect("a request");
        assert!(request.contains("upgrade: echo\r\n"), "{request}");
        assert!(request.to_lowercase().contains("connection: upgrade\r\n"), "{request}");
        peer.write(SWITCHED).await;
        peer.write(b"hello ").await;
        let mut said = [0; 5];
        peer.tcp.read_exact(&mut said).await.expect("five bytes");
        peer.write(&said).await;
    })
    .await;
    let front = Front::start(&backend, Options::default());
    let mut client = front.connect().await;
    // What the client sends early is kept until the backend has agreed.
    client.write(&format!("{UPGRADE}world")).await;
    let got = client.read_to_end().await;
    assert!(got.starts_with("HTTP/1.1 101 "), "{got}");
    assert!(got.ends_with("\r\n\r\nhello world"), "{got}");
}

/// CVE-2018-1002105: after a failed upgrade the connection to the backend was still passed through, with
/// the server's credentials.
#[tokio::test]
async fn c01_a_failed_upgrade_leaves_no_way_to_the_backend() {
    let cases: [(&'static [u8], &str); 7] = [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 503 "),
        (
            b"HTTP/1.1 302 Found\r\nlocation: http://x/\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 503 ",
        ),
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 403 "),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/1.1 503 "),
        (b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\r\n", "HTTP/1.1 503 "),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n",
            "HTTP/1.1 503 ",
        ),
        (b"not HTTP at all\r\n\r\n", "HTTP/1.1 503 "),
    ];
    for (answer, expected) in cases {
        let seen = Arc::new(AtomicUsize::new(0));
        let counted = seen.clone();
        let backend = Backend::start(move |_, mut peer| {
            let counted = counted.clone();
            async move {
                while peer.request().await.is_some() {
                    counted.fetch_add(1, Ordering::SeqCst);
                    peer.write(answer).await;
                }
            }
        })
        .await;
        let front = Front::start(&backend, Options::default());
        let mut client = front.connect().await;
        // The second request is what an attacker wants the backend to get, as if it were the server's.
        client
            .write(&format!(
                "{UPGRADE}GET /smuggled HTTP/1.1\r\nHost: x\r\nX-Remote-User: root\r\n\r\n"
            ))
            .await;
        let got = client.read_head().await;
        assert!(got.starts_with(expected), "{got}");
        client.shutdown().await;
        client.read_to_end().await;
        // The connection was the upgrade's alone, and is closed.
        backend.all_closed().await;
        for request in backend.seen() {
            assert!(!request.contains("root"), "{request}");
        }
    }
}

#[tokio::test]
async fn c02_c03_redirects_are_refused_or_passed_as_the_option_says() {
    for code in [301, 302, 303, 307, 308] {
        let answer =
            format!("HTTP/1.1 {code} X\r\nlocation: https://evil/\r\ncontent-length: 0\r\n\r\n");
        let backend = Backend::answering(answer).await;
        let refusing = Front::start(&backend, Options::default());
        let got = refusing.get("/a").await;
        assert!(got.starts_with("HTTP/1.1 502 "), "{got}");
        assert!(!got.to_lowercase().contains("location"), "{got}");
        let refused = "the backend attempted to redirect this request, which is not permitted";
        assert!(got.ends_with(refused), "{got}");
        let options = Options { redirects: Redirects::Pass, ..Options::default() };
        let got = Front::start(&backend, options).get("/a").await;
        assert!(got.starts_with(&format!("HTTP/1.1 {code} ")), "{got}");
    }
    // Without a place to go to it is no redirect.
    let backend = Backend::answering("HTTP/1.1 304 X\r\netag: \"1\"\r\n\r\n").await;
    let got = Front::start(&backend, Options::default()).get("/a").await;
    assert!(got.starts_with("HTTP/1.1 304 "), "{got}");
}

#[tokio::test]
async fn an_upgrade_that_was_not_asked_for_is_refused() {
    let backend = Backend::answering(String::from_utf8_lossy(SWITCHED)).await;
    let got = Front::start(&backend, Options::default()).get("/a").await;
    assert!(got.starts_with("HTTP/1.1 503 "), "{got}");
    let options = Options { upgrade_required: true, ..Options::default() };
    let got = Front::start(&backend, options).get("/a").await;
    assert!(got.ends_with("Upgrade request required"), "{got}");
}

#[tokio::test]
async fn c13_c14_the_backend_sees_the_proxys_headers_and_not_those_of_the_hop() {
    let backend = Backend::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let mut options = Options::default();
    options.headers.insert("x-remote-user", "jane".parse().expect("a value"));
    options.client_address = Some([127, 0, 0, 1].into());
    let front = Front::start(&backend, options);
    let mut client = front.connect().await;
    client
        .write(
            "GET /a/b?c=d HTTP/1.1\r\nHost: api\r\nConnection: X-Remote-User, close\r\n\
             X-Remote-User: root\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Uri: /z\r\n\
             X-Forwarded-Host: z\r\nX-Kept: 1\r\n\r\n",
        )
        .await;
    client.read_to_end().await;
    let seen = backend.seen().remove(0);
    let mut lines: Vec<&str> = seen.trim_end().split("\r\n").collect();
    lines[1..].sort_unstable();
    let host = format!("host: {}", backend.address);
    let expected = [
        "GET /a/b?c=d HTTP/1.1",
        &host,
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-host: api",
        "x-forwarded-proto: https",
        "x-forwarded-uri: /a/b",
        "x-kept: 1",
        "x-remote-user: jane",
    ];
    assert_eq!(lines, expected);
}

/// CVE-2024-24791: the body that was never sent stayed expected, and the next request on the kept
/// connection was read as that body.
#[tokio::test]
async fn c15_expect_continue_does_not_wedge_the_next_request() {
    let backend = Backend::start(|_, mut peer| async move {
        while peer.head().await.is_some() {
            peer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        }
    })
    .await;
    let front = Front::start(&backend, Options::default());
    for _ in 0..3 {
        let mut client = front.connect().await;
        client
            .write(
                "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n",
            )
            .await;
        let mut got = client.read_head().await;
        if got.starts_with("HTTP/1.1 100") {
            got = client.read_head().await;
        }
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
        drop(client);
        let got = front.get("/b").await;
        assert!(got.ends_with("ok"), "{got}");
    }
    // None of the uploads that never came keeps a connection.
    backend.open_at_most(1).await;
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_with_it() {
    let backend = Backend::start(|_, mut peer| async move {
        peer.head().await;
        peer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n").await;
        peer.head().await;
    })
    .await;
    let front = Front::start(&backend, Options::default());
    let mut client = front.connect().await;
    client.write("GET /watch HTTP/1.1\r\nHost: x\r\n\r\n").await;
    client.read_until("one").await;
    assert_eq!(backend.open(), 1);
    drop(client);
    backend.all_closed().await;
    // And one that has no answer yet.
    let waiting = Arc::new(Notify::new());
    let begun = waiting.clone();
    let backend = Backend::start(move |_, mut peer| {
        let begun = begun.clone();
        async move {
            peer.head().await;
            begun.notify_one();
            peer.head().await;
        }
    })
    .await;
    let front = Front::start(&backend, Options::default());
    let mut client = front.connect().await;
    client.write("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
    waiting.notified().await;
    drop(client);
    backend.all_closed().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_backend_from_sending() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let backend = Backend::start(move |_, mut peer| {
        let counted = counted.clone();
        async move {
            peer.head().await;
            peer.write(b"HTTP/1.1 200 OK\r\n\r\n").await;
            let chunk = vec![b'x'; 64 << 10];
            while peer.tcp.write_all(&chunk).await.is_ok() {
                counted.fetch_add(chunk.len(), Ordering::SeqCst);
            }
        }
    })
    .await;
    let front = Front::start(&backend, Options::default());
    let mut client = front.connect().await;
    client.write("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await;
    client.read_head().await;
    let mut before = usize::MAX;
    // Until nothing moves any more: the buffers of two sockets, and the proxy's.
    while before != sent.load(Ordering::SeqCst) {
        before = sent.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(before < 64 << 20, "{before} bytes are somewhere");
}

#[tokio::test]
async fn an_upload_is_passed_on_as_it_comes() {
    let backend = Backend::start(|_, mut peer| async move {
        let head = peer.head().await.expect("a request");
        assert!(head.contains("content-length: 10"), "{head}");
        // Nothing of the body has to be there for the answer to begin.
        peer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        let mut body = [0; 10];
        peer.tcp.read_exact(&mut body).await.expect("ten bytes");
        peer.write(b"a\r\n").await;
        peer.write(&body).await;
        peer.write(b"\r\n0\r\n\r\n").await;
    })
    .await;
    let front = Front::start(&backend, Options::default());
    let mut client = front.connect().await;
    client.write("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n01234").await;
    let head = client.read_head().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    client.write("56789").await;
    client.read_until("0123456789").await;
}

#[tokio::test]
async fn a_backend_that_is_away_is_said_in_gos_words() {
    let backend = Backend::answering("").await;
    let front = Front::start(&backend, Options::default());
    let address = backend.address;
    drop(backend);
    tokio::task::yield_now().await;
    let got = front.get("/a").await;
    let expected =
        format!("error trying to reach service: dial tcp {address}: connect: connection refused");
    assert!(got.ends_with(&expected), "{got}");
}

/// Memory of this process, in bytes: the proxy's, and the small ends on both sides of it.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let kilobytes = line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number");
    kilobytes << 10
}

#[tokio::test]
#[ignore = "a gigabyte takes a while without optimization"]
async fn a_gigabyte_passes_with_little_memory() {
    const GIGABYTE: usize = 1 << 30;
    let backend = Backend::start(|_, mut peer| async move {
        peer.head().await;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {GIGABYTE}\r\n\r\n");
        peer.write(head.as_bytes()).await;
        let chunk = vec![b'x'; 64 << 10];
        for _ in 0..GIGABYTE / chunk.len() {
            peer.write(&chunk).await;
        }
    })
    .await;
    let front = Front::start(&backend, Options::default());
    let mut client = front.connect().await;
    client.write("GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    client.read_head().await;
    let before = resident_bytes();
    let (mut read, mut peak) = (0, 0);
    while let Some(count) = client.skip_some().await {
        read += count;
        peak = peak.max(resident_bytes());
    }
    assert_eq!(read, GIGABYTE);
    let grown = peak.saturating_sub(before);
    assert!(grown < 10 << 20, "{grown} bytes more");
}
