//! Sessions with kubelets: floods of frames from either side, messages without an end, peers that do not read.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use integration::{Http, NodeNetwork, Then};
use serde_json::json;

use super::{Case, Client, NAMESPACE, Outcome, Raw, SILENCE, open, sized};

pub(super) const EXEC: &str = "exec?command=cat&stdin=1&stdout=1";

/// A pod on the node, and pods on nodes whose kubelets do not play by the rules.
pub(super) fn cases(network: &NodeNetwork) -> Vec<Case> {
    network.add_pod(NAMESPACE, "web", NodeNetwork::NODE, &["app"]);
    let mut cases = vec![
        frames("exec: 200 000 empty messages", || frame(0x82, b"").repeat(sized(200_000))),
        frames("exec: a message of 120 000 fragments", || {
            [frame(0x02, b"\x00a"), frame(0x00, b"a").repeat(sized(120_000))].concat()
        }),
        frames("exec: 100 000 pings", || frame(0x89, b"ping").repeat(sized(100_000))),
        frames("exec: 50 000 terminal sizes", || {
            frame(0x82, b"\x04{\"Width\":80,\"Height\":24}").repeat(sized(50_000))
        }),
        frames("exec: messages for 100 000 channels that do not exist", || {
            frame(0x82, b"\x77a").repeat(sized(100_000))
        }),
        frames("exec: a terminal size of 3 MB", || {
            let size = [&b"\x04"[..], &vec![b'['; sized(3_000_000)]].concat();
            long_frame(&size)
        }),
        frames("exec: a frame that claims 32 MB and stops", || {
            vec![0x82, 0xff, 0, 0, 0, 0, 2, 0, 0, 0, 1, 2, 3, 4]
        }),
        frames("exec: a frame that claims 2^63 bytes", || {
            vec![0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]
        }),
        Case::new("exec: 100 sessions that say nothing", Client::NamespaceAdmin, &[101], |http| {
            let open: Vec<_> = (0..sized(100)).map(|_| upgrade(http, EXEC, WEBSOCKET)).collect();
            Outcome::code(open.last().map_or(0, |(code, _)| *code))
        }),
        Case::new("exec: 20 clients that do not read", Client::NamespaceAdmin, &[101], |http| {
            let endless = "exec?command=yes&stdout=1";
            let open: Vec<_> = (0..20).map(|_| upgrade(http, endless, WEBSOCKET)).collect();
            fill_buffers();
            Outcome::code(open.last().map_or(0, |(code, _)| *code))
        }),
        Case::new(
            "exec: 64 MB that the command does not read",
            Client::NamespaceAdmin,
            &[101],
            |http| {
                let (code, mut stream) =
                    upgrade(http, "exec?command=sleep&command=3&stdin=1&stdout=1", WEBSOCKET);
                let megabyte = long_frame(&vec![0; 1 << 20]);
                // The server stops to read, and a write gives up after some seconds.
                for _ in 0..sized(64) {
                    if stream.write_all(&megabyte).is_err() {
                        break;
                    }
                }
                Outcome::code(code)
            },
        ),
        Case::new("exec: frames without a mask", Client::NamespaceAdmin, &[101], |http| {
            let (code, mut stream) = upgrade(http, EXEC, WEBSOCKET);
            let _ = stream.write_all(&[0x82, 0x02, 0x00, b'a'].repeat(sized(100_000)));
            Outcome { code, bytes: rest(&mut stream) }
        }),
        Case::new("attach: 50 000 closes", Client::NamespaceAdmin, &[101], |http| {
            let (code, mut stream) = upgrade(http, "attach?stdin=1&stdout=1", WEBSOCKET);
            let _ = stream.write_all(&frame(0x88, &1000_u16.to_be_bytes()).repeat(sized(50_000)));
            Outcome { code, bytes: rest(&mut stream) }
        }),
        Case::new("exec: 20 000 commands", Client::NamespaceAdmin, &[101, 400, 414], |http| {
            let (code, mut stream) =
                upgrade(http, &format!("exec?stdout=1{}", "&command=a".repeat(6_000)), WEBSOCKET);
            Outcome { code, bytes: rest(&mut stream) }
        }),
        Case::new(
            "port-forward: 12 000 ports",
            Client::NamespaceAdmin,
            &[101, 200, 400, 414, 500],
            |http| {
                let headers = WEBSOCKET.replace("v5.channel.k8s.io", "v4.channel.k8s.io");
                let ports = "&ports=8080".repeat(5_000);
                let (code, _stream) = upgrade(http, &format!("portforward?a=b{ports}"), &headers);
                Outcome::code(code)
            },
        ),
        Case::new(
            "exec: garbage behind an upgrade to SPDY",
            Client::NamespaceAdmin,
            &[101],
            |http| {
                let (code, mut stream) = upgrade(http, EXEC, SPDY);
                let _ = stream.write_all(&vec![0xff; sized(3_000_000)]);
                Outcome { code, bytes: rest(&mut stream) }
            },
        ),
        Case::new(
            "exec: garbage instead of an upgrade",
            Client::NamespaceAdmin,
            &[400, 403],
            |http| {
                let (code, mut stream) =
                    upgrade(http, EXEC, "Connection: upgrade\r\nUpgrade: nonsense\r\n");
                let _ = stream.write_all(&vec![0xff; sized(1_000_000)]);
                Outcome { code, bytes: rest(&mut stream) }
            },
        ),
        Case::new("port-forward: 3 MB of garbage", Client::NamespaceAdmin, &[101], |http| {
            let headers = WEBSOCKET.replace("v5.channel.k8s.io", "SPDY/3.1+portforward.k8s.io");
            let (code, mut stream) = upgrade(http, "portforward", &headers);
            let _ = stream.write_all(&frame(0x82, &[0xff; 100]).repeat(sized(30_000)));
            Outcome { code, bytes: rest(&mut stream) }
        }),
    ];
    let data = |stream: u8| [&[0, 0, 0, stream, 0, 0, 0, 1][..], b"x"].concat();
    let floods: [(&'static str, Vec<u8>); 6] = [
        ("kubelet: 100 000 pings", control(6, &[0, 0, 0, 2])),
        ("kubelet: 100 000 settings", control(4, &[0, 0, 0, 0])),
        ("kubelet: 100 000 window updates", control(9, &[0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff])),
        ("kubelet: 100 000 resets", control(3, &[0, 0, 0, 9, 0, 0, 0, 1])),
        ("kubelet: 100 000 bytes of data in frames of one", data(1)),
        ("kubelet: 100 000 frames of streams that do not exist", data(99)),
    ];
    for (number, (name, flood)) in floods.into_iter().enumerate() {
        let (node, address) = (format!("flood-{number}"), format!("192.0.2.{}", 100 + number));
        let answer = [UPGRADED, &flood.repeat(sized(100_000))].concat();
        let kubelet = network.add_crafted_node(&node, &address, answer);
        network.add_pod(NAMESPACE, &node, &node, &["app"]);
        cases.push(Case::new(name, Client::NamespaceAdmin, &[101], move |http| {
            let _ = &kubelet;
            let (code, mut stream) = upgrade_of(http, &node, EXEC, WEBSOCKET);
            Outcome { code, bytes: rest(&mut stream) }
        }));
    }
    let answers: [(&'static str, &'static str, &'static [u16], Vec<u8>); 8] = [
        ("kubelet: garbage instead of an upgrade", EXEC, &[101, 500, 502, 503], {
            vec![0xff; sized(1_000_000)]
        }),
        ("kubelet: garbage behind an upgrade", EXEC, &[101], {
            [UPGRADED, &vec![0xff; sized(1_000_000)]].concat()
        }),
        ("kubelet: logs that are garbage", "log", &[500, 502, 503], vec![0xff; sized(1_000_000)]),
        ("kubelet: a chunk of 2^60 bytes of logs", "log", &[200, 500], {
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1000000000000000\r\nx".to_vec()
        }),
        ("kubelet: 50 000 header lines", "log", &[403, 500, 502, 503], {
            format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(sized(50_000))).into()
        }),
        ("kubelet: a refusal of 30 MB", EXEC, &[101, 403, 500, 502], {
            let body = "x".repeat(sized(30_000_000));
            format!("HTTP/1.1 500 No\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into()
        }),
        ("kubelet: logs that are an error of 30 MB", "log", &[403, 500, 502], {
            let body = "x".repeat(sized(30_000_000));
            format!("HTTP/1.1 500 No\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into()
        }),
        ("kubelet: a header of 30 MB", "log", &[403, 500, 502, 503], {
            format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(sized(30_000_000))).into()
        }),
    ];
    for (number, (name, subresource, codes, answer)) in answers.into_iter().enumerate() {
        let (node, address) = (format!("huge-{number}"), format!("192.0.2.{}", 120 + number));
        let kubelet = network.add_crafted_node(&node, &address, answer);
        network.add_pod(NAMESPACE, &node, &node, &["app"]);
        cases.push(Case::new(name, Client::NamespaceAdmin, codes, move |http| {
            let _ = &kubelet;
            let headers = if subresource == EXEC { WEBSOCKET } else { "" };
            let (code, mut stream) = upgrade_of(http, &node, subresource, headers);
            Outcome { code, bytes: rest(&mut stream) }
        }));
    }
    cases.extend(silent_and_endless_kubelets(network));
    cases.push(endless_tag(network));
    cases
}

/// A control frame of SPDY: type, flags, length, payload.
pub(super) fn control(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&[0x80, 3, 0, kind, 0], &length[1..], payload].concat()
}

/// Name of the case, subresource, codes, answer, and what comes behind it.
type Kubelet = (&'static str, &'static str, &'static [u16], Vec<u8>, Then);

/// Kubelets that say nothing, close, or never stop, each with many clients.
fn silent_and_endless_kubelets(network: &NodeNetwork) -> Vec<Case> {
    let logs = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n";
    let line = || [b"a line of the log that never ends\n".repeat(1_000)].concat();
    // Data of stream 1: frames of 60 KB.
    let output = || [&[0, 0, 0, 1, 0, 0, 0xea, 0x60][..], &b"x".repeat(60_000)].concat();
    let half_a_frame = [UPGRADED, &[0x80, 3, 0, 2, 0, 0, 0, 200, 0, 0]].concat();
    let kubelets: [Kubelet; 9] = [
        ("kubelet: 50 sessions that it never answers", EXEC, &[0, 101], Vec::new(), Then::Listen),
        (
            "kubelet: 50 logs that it never begins",
            "log",
            &[0, 500, 503, 504],
            Vec::new(),
            Then::Listen,
        ),
        ("kubelet: 50 sessions that it closes", EXEC, &[101, 500], Vec::new(), Then::Close),
        ("kubelet: 50 logs that it closes", "log", &[500, 502, 503], Vec::new(), Then::Close),
        ("kubelet: 50 sessions that end in a frame", EXEC, &[101], half_a_frame, Then::Close),
        (
            "kubelet: 20 logs without an end, not read",
            "log?follow=1",
            &[200],
            logs.to_vec(),
            Then::Repeat(line()),
        ),
        (
            "kubelet: 20 sessions without an end, not read",
            EXEC,
            &[101],
            UPGRADED.to_vec(),
            Then::Repeat(output()),
        ),
        (
            "kubelet: informational answers without an end",
            "log",
            &[0, 500, 502, 503, 504],
            Vec::new(),
            Then::Repeat(b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100)),
        ),
        (
            "kubelet: 20 heads of answers without an end",
            "log",
            &[0, 500, 502, 503, 504],
            b"HTTP/1.1 200 OK\r\n".to_vec(),
            Then::Repeat(b"a: b\r\n".repeat(1_000)),
        ),
    ];
    let mut cases = Vec::new();
    for (number, (name, subresource, codes, answer, then)) in kubelets.into_iter().enumerate() {
        let (node, address) = (format!("many-{number}"), format!("192.0.2.{}", 140 + number));
        let is_endless = matches!(then, Then::Repeat(_));
        let kubelet = network.add_crafted_node_that(&node, &address, answer, then);
        network.add_pod(NAMESPACE, &node, &node, &["app"]);
        cases.push(Case::new(name, Client::NamespaceAdmin, codes, move |http| {
            let _ = &kubelet;
            let headers = if subresource == EXEC { WEBSOCKET } else { "" };
            let head = head(http, &node, subresource, headers);
            let count = if is_endless { 20 } else { 50 };
            let mut open: Vec<_> = (0..count).map(|_| open(http, &head)).collect();
            if is_endless {
                fill_buffers();
            }
            let mut last = open.pop().expect("there are some");
            if codes.contains(&0) {
                last.sock.set_read_timeout(Some(SILENCE)).expect("a socket");
            }
            let code = code(&mut last);
            let bytes = if is_endless { 0 } else { rest(&mut last) };
            Outcome { code, bytes }
        }));
    }
    cases
}

/// A page of a pod whose only tag never ends: links in pages are rewritten.
fn endless_tag(network: &NodeNetwork) -> Case {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    network.route("192.0.2.99:8080", port);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n<a href=\"/",
            );
            let _ = stream.write_all(&vec![b'x'; sized(30_000_000)]);
        }
    });
    network.add_pod(NAMESPACE, "page", NodeNetwork::NODE, &["app"]);
    let http = network.server.http();
    let patch = json!({"status": {"podIP": "192.0.2.99", "podIPs": [{"ip": "192.0.2.99"}]}});
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/page/status");
    http.patch(&path, "application/merge-patch+json", &patch).expect(200);
    Case::new("pod proxy: a tag of 30 MB", Client::NamespaceAdmin, &[200], |http| {
        let head = format!(
            "GET /api/v1/namespaces/{NAMESPACE}/pods/page:8080/proxy/ HTTP/1.1\r\nHost: {}\r\n{}\r\n",
            http.host(),
            http.authorization()
        );
        let mut stream = open(http, &head);
        let code = code(&mut stream);
        // The page is as long as the pod makes it.
        rest(&mut stream);
        Outcome::code(code)
    })
}

/// Long enough for every buffer on the way to be full.
pub(super) fn fill_buffers() {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        thread::park_timeout(Duration::from_secs(1));
    }
}

pub(super) const WEBSOCKET: &str = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n";
pub(super) const SPDY: &str = "Connection: upgrade\r\nUpgrade: SPDY/3.1\r\n\
     X-Stream-Protocol-Version: v4.channel.k8s.io\r\n";
pub(super) const UPGRADED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\
      x-stream-protocol-version: v4.channel.k8s.io\r\n\r\n";

/// A session with these frames from the client.
fn frames(name: &'static str, bytes: impl Fn() -> Vec<u8> + 'static) -> Case {
    Case::new(name, Client::NamespaceAdmin, &[101], move |http| {
        let (code, mut stream) = upgrade(http, EXEC, WEBSOCKET);
        let _ = stream.write_all(&bytes());
        let _ = stream.write_all(&frame(0x88, &1000_u16.to_be_bytes()));
        Outcome { code, bytes: rest(&mut stream) }
    })
}

fn upgrade(http: &Http, subresource: &str, headers: &str) -> (u16, Raw) {
    upgrade_of(http, "web", subresource, headers)
}

/// The status code of the answer, and the connection behind its head.
pub(super) fn upgrade_of(http: &Http, pod: &str, subresource: &str, headers: &str) -> (u16, Raw) {
    let mut stream = open(http, &head(http, pod, subresource, headers));
    (code(&mut stream), stream)
}

pub(super) fn head(http: &Http, pod: &str, subresource: &str, headers: &str) -> String {
    format!(
        "GET /api/v1/namespaces/{NAMESPACE}/pods/{pod}/{subresource} HTTP/1.1\r\nHost: {}\r\n{}{headers}\r\n",
        http.host(),
        http.authorization(),
    )
}

/// Reads the head of an answer; 0: there was none.
pub(super) fn code(stream: &mut Raw) -> u16 {
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
        answer.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&answer);
    text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// How many bytes come until the server closes or is silent.
pub(super) fn rest(stream: &mut Raw) -> usize {
    stream.sock.set_read_timeout(Some(SILENCE)).expect("a socket");
    let mut buffer = vec![0; 64 << 10];
    let mut bytes = 0;
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        bytes += count;
    }
    bytes
}

/// A short frame as clients send it, with a mask of zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("short");
    [&[first, 0x80 | length, 0, 0, 0, 0], payload].concat()
}

fn long_frame(payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u64).to_be_bytes();
    [&[0x82, 0xff], &length[..], &[0; 4], payload].concat()
}
