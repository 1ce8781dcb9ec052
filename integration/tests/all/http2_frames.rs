//! HTTP/2 below what clients send: header blocks without end, tables that cost memory, frames that
//! break the protocol. `docs/security.md` has the table of all cases.

use std::time::{Duration, Instant};

use integration::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, Frames, GOAWAY, HEADERS, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, get, literal,
};
use integration::{Flavour, Server, shared};

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE_ERROR: u32 = 6;
const REFUSED_STREAM: u32 = 7;
const COMPRESSION_ERROR: u32 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;

const PATIENCE: Duration = Duration::from_secs(20);

fn open(server: &Server) -> Frames {
    Frames::open(&server.http(), &[], PATIENCE)
}

/// Status 200, which is in HPACK's static table.
fn is_ok(frame: &Frame) -> bool {
    frame.kind == HEADERS && frame.payload.first() == Some(&0x88)
}

fn resident_bytes(server: &Server) -> f64 {
    let text = server.http().get("/metrics").text();
    let line = text.lines().find(|line| line.starts_with("process_resident_memory_bytes "));
    let bytes = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    bytes.expect("the metric")
}

/// H02 (CVE-2023-45288): the header limit also ends a header block that never ends.
#[test]
fn h02_a_header_block_without_end_ends_the_connection() {
    let server = shared();
    let mut frames = open(&server);
    frames.send(HEADERS, END_STREAM, 1, &get("/version")).expect("written");
    let field = literal("x-flood", &[b'a'; 16_000]);
    let mut sent = 0;
    // A server that went on reading would take all of it.
    while sent < 64 << 20 && frames.send(CONTINUATION, 0, 1, &field).is_ok() {
        sent += field.len();
    }
    // It discards 16 MiB after its GOAWAY, so that the client can read it, and the kernel's buffers hold some more.
    assert!(sent < 32 << 20, "the server took {sent} bytes of one header block");
    // The GOAWAY is lost where the client is still writing when the server closes at last.
    if let Some(answer) = frames.read_one_of(&[GOAWAY, HEADERS]) {
        assert_eq!((answer.kind, answer.code()), (GOAWAY, ENHANCE_YOUR_CALM));
    }
    assert_eq!(server.http().get("/version").code, 200);
}

/// H03: kube-apiserver takes four million of them.
#[test]
fn h03_empty_continuation_frames_end_the_connection() {
    let server = shared();
    let mut frames = open(&server);
    frames.send(HEADERS, END_STREAM, 1, &get("/version")).expect("written");
    for _ in 0..500 {
        if frames.send(CONTINUATION, 0, 1, &[]).is_err() {
            break;
        }
    }
    // The block is never ended: only the frames' number can be why the server says goodbye.
    let answer = frames.read_one_of(&[GOAWAY, HEADERS]).expect("an answer");
    assert_eq!((answer.kind, answer.code()), (GOAWAY, ENHANCE_YOUR_CALM));
    assert_eq!(frames.read_one_of(&[HEADERS]), None, "the connection is closed");
    assert!(frames.send(PING, 0, 0, &[0; 8]).is_err() || frames.read().is_none());
}

/// H05 (CVE-2022-41723, CVE-2022-41717): header blocks that cost more than their bytes.
#[test]
fn h05_header_compression_costs_neither_memory_nor_time() {
    let server = Server::with(Flavour::from_env(), &[]);
    let before = resident_bytes(&server);
    let began = Instant::now();
    // A field of 4 000 bytes enters the table, and is then repeated by one byte each.
    let mut bomb = get("/version");
    bomb.extend([0x40]);
    bomb.extend(&literal("x-bomb", &[b'a'; 3_900])[1..]);
    bomb.extend(std::iter::repeat_n(0xbe, 200_000));
    // Changes of the table's size, as many as fit.
    let mut resized = vec![0x20; 200_000];
    resized.extend(get("/version"));
    // Huffman codes that are no text.
    let mut garbage = get("/version");
    garbage.extend([0x00, 0x01, b'x', 0x80 | 0x7f, 0x80, 0x7f]);
    garbage.extend([0xff; 16_255]);
    let cases = [("bomb", bomb), ("resized", resized), ("garbage", garbage)];
    for (name, block) in cases {
        for _ in 0..10 {
            let mut frames = open(&server);
            // The server may close before it has read everything.
            let _ = frames.send(HEADERS, ALL, 1, &block);
            let answer = frames.read_one_of(&[HEADERS, RST_STREAM, GOAWAY]);
            let served = answer.as_ref().is_some_and(is_ok);
            assert!(!served || name == "resized", "{name}: {answer:?}");
        }
    }
    // Names that are never the same, all of them for the table of one connection.
    let mut frames = open(&server);
    for request in 0..200_u32 {
        let mut block = get("/version");
        for field in 0..5 {
            let name = format!("x-{request}-{field}-{}", "n".repeat(8_000));
            block.push(0x40);
            block.extend(&literal(&name, b"v")[1..]);
        }
        frames.send(HEADERS, ALL, 2 * request + 1, &block).expect("the server reads");
        let answer = frames.read_one_of(&[HEADERS, RST_STREAM, GOAWAY]).expect("an answer");
        assert!(is_ok(&answer), "{answer:?}");
    }
    let grown = resident_bytes(&server) - before;
    assert!(grown < 40e6, "the server has grown by {grown} bytes");
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}

/// H06 (CVE-2026-27141): frames of undefined types are ignored.
#[test]
fn h06_frames_of_unknown_types_are_ignored() {
    let mut frames = open(&shared());
    for kind in (0x0a..=0x0f).chain([0x42, 0xff]) {
        for stream in [0, 1] {
            frames.send(kind, 0xff, stream, &[kind; 100]).expect("written");
        }
    }
    frames.send(HEADERS, ALL, 1, &get("/version")).expect("written");
    let answer = frames.read_one_of(&[HEADERS, RST_STREAM, GOAWAY]).expect("an answer");
    assert!(is_ok(&answer), "{answer:?}");
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// A GET with one field more.
fn with(name: &str, value: &[u8]) -> Vec<u8> {
    [get("/version"), literal(name, value)].concat()
}

const ALL: u8 = END_STREAM | END_HEADERS;

/// Kind, flags, stream and payload of frames.
type Sent = Vec<(u8, u8, u32, Vec<u8>)>;
/// What is sent, and the codes of GOAWAY and of RST_STREAM that are right for it.
type Case = (&'static str, Sent, &'static [u32], &'static [u32]);

/// H08, I15: what breaks the protocol ends the stream or the connection with a code that RFC 9113
/// allows, and is never a request.
#[test]
fn h08_i15_protocol_errors_are_no_requests() {
    let server = shared();
    let pathless = [&[0x82, 0x87][..], &literal(":authority", b"localhost")].concat();
    let methodless = [&[0x87][..], &get("/version")[2..]].concat();
    let late_pseudo = [with("a", b"b"), literal(":path", b"/version")].concat();
    let version = || get("/version");
    let one = |kind, flags, stream, payload| vec![(kind, flags, stream, payload)];
    let block = |block: Vec<u8>| one(HEADERS, ALL, 1, block);
    let cases: Vec<Case> = vec![
        ("window update of 0", one(WINDOW_UPDATE, 0, 0, vec![0; 4]), &[PROTOCOL_ERROR], &[]),
        (
            "window overflow",
            one(WINDOW_UPDATE, 0, 0, vec![0x7f, 0xff, 0xff, 0xff]),
            &[FLOW_CONTROL_ERROR],
            &[],
        ),
        (
            "frame above the limit",
            one(DATA, 0, 1, vec![0; (256 << 10) + 1]),
            &[FRAME_SIZE_ERROR],
            &[],
        ),
        ("data on an idle stream", one(DATA, 0, 1, vec![0]), &[PROTOCOL_ERROR], &[]),
        ("even stream id", one(HEADERS, ALL, 2, version()), &[PROTOCOL_ERROR], &[]),
        ("headers on stream 0", one(HEADERS, ALL, 0, version()), &[PROTOCOL_ERROR], &[]),
        ("settings on a stream", one(SETTINGS, 0, 1, vec![]), &[PROTOCOL_ERROR], &[]),
        (
            "settings of half a size",
            one(SETTINGS, 0, 0, vec![0; 5]),
            &[FRAME_SIZE_ERROR, PROTOCOL_ERROR],
            &[],
        ),
        (
            "ping of half a size",
            one(PING, 0, 0, vec![0; 4]),
            &[FRAME_SIZE_ERROR, PROTOCOL_ERROR],
            &[],
        ),
        ("frames of size 0", one(SETTINGS, 0, 0, setting(5, 0)), &[PROTOCOL_ERROR], &[]),
        (
            "initial window above 2^31-1",
            one(SETTINGS, 0, 0, setting(4, 1 << 31)),
            &[FLOW_CONTROL_ERROR, PROTOCOL_ERROR],
            &[],
        ),
        ("index 0 of a table", block(vec![0x80]), &[COMPRESSION_ERROR, PROTOCOL_ERROR], &[]),
        (
            "an index beyond the tables",
            block(vec![0xff, 0xff, 0x7f]),
            &[COMPRESSION_ERROR, PROTOCOL_ERROR],
            &[],
        ),
        ("continuation of nothing", one(CONTINUATION, 4, 1, version()), &[PROTOCOL_ERROR], &[]),
        (
            "ping inside a header block",
            vec![(HEADERS, END_STREAM, 1, version()), (PING, 0, 0, vec![0; 8])],
            &[PROTOCOL_ERROR],
            &[],
        ),
        (
            "a stream that depends on itself",
            one(PRIORITY, 0, 1, vec![0, 0, 0, 1, 0]),
            &[PROTOCOL_ERROR],
            &[PROTOCOL_ERROR],
        ),
        (
            "headers on a closed stream",
            vec![(HEADERS, ALL, 3, version()), (HEADERS, ALL, 1, version())],
            &[PROTOCOL_ERROR, STREAM_CLOSED],
            &[STREAM_CLOSED],
        ),
        ("no path", block(pathless), &[], &[PROTOCOL_ERROR]),
        ("no method", block(methodless), &[], &[PROTOCOL_ERROR]),
        ("two paths", block([version(), literal(":path", b"/")].concat()), &[], &[PROTOCOL_ERROR]),
        ("pseudo header after others", block(late_pseudo), &[], &[PROTOCOL_ERROR]),
        ("unknown pseudo header", block(with(":other", b"x")), &[], &[PROTOCOL_ERROR]),
        ("status in a request", block(with(":status", b"200")), &[], &[PROTOCOL_ERROR]),
        ("path without a slash", block(get("version")), &[], &[PROTOCOL_ERROR]),
        ("upper-case name", block(with("X-Upper", b"x")), &[], &[PROTOCOL_ERROR]),
        ("connection", block(with("connection", b"close")), &[], &[PROTOCOL_ERROR]),
        ("transfer-encoding", block(with("transfer-encoding", b"chunked")), &[], &[PROTOCOL_ERROR]),
        ("line end in a value", block(with("x", b"a\r\nb: c")), &[], &[PROTOCOL_ERROR]),
        ("NUL in a value", block(with("x", b"a\0b")), &[], &[PROTOCOL_ERROR]),
        ("space in a name", block(with("x y", b"a")), &[], &[PROTOCOL_ERROR]),
        (
            "body longer than its length",
            vec![
                (HEADERS, END_HEADERS, 1, with("content-length", b"1")),
                (DATA, END_STREAM, 1, b"abc".to_vec()),
            ],
            &[],
            &[PROTOCOL_ERROR],
        ),
    ];
    for (name, sent, goaway, reset) in cases {
        let mut frames = open(&server);
        // In one piece: a request must not be answered before its second frame arrives.
        let sent = sent.iter().map(|(kind, flags, stream, payload)| {
            integration::http2::frame(*kind, *flags, *stream, payload)
        });
        // The server may close before it has read everything.
        let _ = frames.write(&sent.collect::<Vec<_>>().concat());
        let closed_stream = name == "headers on a closed stream";
        let mut verdict = None;
        while let Some(frame) = frames.read_one_of(&[HEADERS, RST_STREAM, GOAWAY]) {
            if frame.kind == HEADERS && closed_stream && frame.stream == 3 {
                continue;
            }
            verdict = Some(frame);
            break;
        }
        let frame = verdict.unwrap_or_else(|| panic!("{name}: the server says nothing"));
        let allowed = match frame.kind {
            // A server may end the connection for what is an error of one stream.
            GOAWAY if goaway.is_empty() => reset,
            GOAWAY => goaway,
            RST_STREAM => reset,
            _ => &[],
        };
        assert!(allowed.contains(&frame.code()), "{name}: {frame:?}");
    }
    assert_eq!(server.http().get("/version").code, 200);
}

/// H08: streams above the limit are refused, so that a client may send them again.
#[test]
fn h08_streams_above_the_limit_are_refused() {
    let mut frames = open(&shared());
    let watch = get("/api/v1/namespaces/default/configmaps?watch=1");
    for stream in 0..101 {
        frames.send(HEADERS, ALL, 2 * stream + 1, &watch).expect("written");
    }
    let refused = frames.read_one_of(&[RST_STREAM, GOAWAY]).expect("an answer");
    assert_eq!((refused.kind, refused.code(), refused.stream), (RST_STREAM, REFUSED_STREAM, 201));
}

/// H04: acknowledgements that no client reads are bounded. The server ends the connection or stops
/// reading; it does not keep them in memory.
#[test]
fn h04_floods_of_control_frames_are_bounded() {
    let server = Server::with(Flavour::from_env(), &[]);
    let before = resident_bytes(&server);
    for (kind, stream, payload) in
        [(PING, 0, vec![0; 8]), (SETTINGS, 0, setting(4, 65_535)), (PRIORITY, 1, vec![0; 5])]
    {
        let mut frames = Frames::open(&server.http(), &[], Duration::from_secs(3));
        let many = integration::http2::frame(kind, 0, stream, &payload).repeat(1_000);
        for _ in 0..300 {
            if frames.write(&many).is_err() {
                break;
            }
        }
    }
    // Empty frames of a body that never ends.
    let mut frames = Frames::open(&server.http(), &[], Duration::from_secs(3));
    let mut post = vec![0x83, 0x87];
    post.extend(&get("/api/v1/namespaces")[2..]);
    frames.send(HEADERS, END_HEADERS, 1, &post).expect("written");
    let many = integration::http2::frame(DATA, 0, 1, &[]).repeat(1_000);
    for _ in 0..300 {
        if frames.write(&many).is_err() {
            break;
        }
    }
    let grown = resident_bytes(&server) - before;
    assert!(grown < 40e6, "the server has grown by {grown} bytes");
    assert_eq!(server.http().get("/version").code, 200);
}

/// O04: watches that are opened and dropped leave nothing behind.
#[test]
fn o04_dropped_watches_leave_nothing_behind() {
    let server = Server::with(Flavour::from_env(), &[]);
    let watches = || {
        let text = server.http().get("/metrics").text();
        let lines = text.lines().filter(|line| {
            line.starts_with("apiserver_longrunning_requests{")
                && line.contains("resource=\"configmaps\"")
        });
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    let round = |connections: usize| {
        let mut open_watches = 0;
        for _ in 0..connections {
            let mut frames = open(&server);
            let block = get("/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0");
            for stream in 0..100 {
                frames.send(HEADERS, ALL, 2 * stream + 1, &block).expect("the server reads");
            }
            for _ in 0..100 {
                let answer = frames.read_one_of(&[HEADERS, RST_STREAM, GOAWAY]).expect("an answer");
                assert!(is_ok(&answer), "{answer:?}");
                open_watches += 1;
            }
            // Half of them by a reset, half of them with the connection.
            for stream in 0..50 {
                let cancel = 8_u32.to_be_bytes();
                frames.send(RST_STREAM, 0, 2 * stream + 1, &cancel).expect("the server reads");
            }
        }
        open_watches
    };
    let steady = watches();
    round(3);
    integration::eventually("watches are gone", || (watches() <= steady).then_some(()));
    let before = resident_bytes(&server);
    assert_eq!(round(20), 2_000);
    integration::eventually("watches are gone", || (watches() <= steady).then_some(()));
    let grown = resident_bytes(&server) - before;
    assert!(grown < 25e6, "the server has grown by {grown} bytes");
    // Their seats are free: a level has far fewer than there were watches.
    assert_eq!(server.http().get("/api/v1/namespaces/default/configmaps").code, 200);
}
