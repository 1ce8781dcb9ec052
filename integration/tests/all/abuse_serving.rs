//! Clients that want to bring the server down: streams that are not read, made-up paths, ambiguous
//! framing, long computations, bad credentials.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use integration::http2::{
    DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PREFACE, SETTINGS, WINDOW_UPDATE,
    frame, get, literal,
};
use integration::{Flavour, Http, Protocol, RawConnection, Server, shared};
use serde_json::json;

/// An HTTP/2 connection whose client lets the server send no data, with GETs of a path.
fn closed_windows(http: &Http, path: &str, gets: u32) -> RawConnection {
    let mut connection = http.clone().over(Protocol::Http2).raw().expect("connected");
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    for get in 0..gets {
        // Method GET and scheme https from the static table, path and authority as literals.
        let mut block = vec![0x82, 0x87, 0x44, path.len() as u8];
        block.extend(path.as_bytes());
        block.extend(b"\x41\x09localhost");
        bytes.extend(frame(1, 5, 2 * get + 1, &block));
    }
    connection.write(&bytes).expect("written");
    connection
}

/// The kinds of the frames in `bytes`.
fn kinds(mut bytes: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while bytes.len() >= 9 {
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        kinds.push(bytes[3]);
        bytes = bytes.get(9 + length..).unwrap_or_default();
    }
    kinds
}

/// Each of them held a seat until it was read, so that 400 kept all other reads out.
#[test]
fn clients_that_do_not_read_block_no_others() {
    let server = shared();
    let anonymous = server.http().anonymous();
    let _unread: Vec<_> = (0..8).map(|_| closed_windows(&anonymous, "/version", 100)).collect();
    for path in ["/version", "/readyz", "/livez"] {
        let began = Instant::now();
        assert_eq!(anonymous.get(path).code, 200);
        assert!(began.elapsed() < Duration::from_secs(10), "{path} took {:?}", began.elapsed());
    }
}

#[test]
fn an_anonymous_http2_connection_ends_after_its_request() {
    let server = shared();
    let mut connection = closed_windows(&server.http().anonymous(), "/livez", 1);
    let read = connection.read_until(|read| kinds(read).contains(&GOAWAY)).expect("read");
    assert!(kinds(&read).contains(&GOAWAY), "{:?}", kinds(&read));
}

/// A thousand of them raised the memory by 255 MB for good.
#[test]
fn made_up_paths_leave_nothing_behind() {
    let server = Server::with(Flavour::from_env(), &[]);
    let (admin, anonymous) = (server.http(), server.http().anonymous());
    let memory = || {
        let text = admin.get("/metrics").text();
        let line = text.lines().find(|line| line.starts_with("process_resident_memory_bytes "));
        let bytes = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        (bytes.expect("the metric"), text)
    };
    let mut connection = anonymous.connect().expect("connected");
    let mut send = |at: usize| {
        let made_up = format!("madeup{at}{}", "x".repeat(15_000));
        let path = format!("/apis/{made_up}/{made_up}/{made_up}/name/{made_up}");
        let request = Request::get(path).body(Bytes::new()).expect("a request");
        assert_eq!(connection.request(request).expect("an answer").code, 403);
    };
    (0..50).for_each(&mut send);
    let (before, _) = memory();
    (50..500).for_each(&mut send);
    let (after, text) = memory();
    assert!(!text.contains("madeup"), "made-up names are labels");
    assert!(after - before < 20e6, "from {before} to {after} bytes");
    assert!(text.contains(r#"pintle_background_task_up{task="role-index"} 4"#), "{text}");
}

#[test]
fn ambiguous_requests_are_refused() {
    let server = shared();
    let cases = [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", "HTTP/1.1 400 "),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", "HTTP/1.1 400 "),
        ("Transfer-Encoding: gzip, chunked", "HTTP/1.1 501 "),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "HTTP/1.1 501 "),
        ("Content-Length: 5\r\nContent-Length: 6", "HTTP/1.1 400 "),
    ];
    for (lengths, expected) in cases {
        let mut connection = server.http().raw().expect("connected");
        let smuggled = "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let request = format!(
            "POST /version HTTP/1.1\r\nHost: localhost\r\n{lengths}\r\n\r\n0\r\n\r\n{smuggled}"
        );
        connection.write(request.as_bytes()).expect("written");
        let answer = connection.read_until(|_| false).expect("closed");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(expected), "{lengths}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "one answer, then the end: {answer}");
    }
}

/// Large YAML bodies took seconds on the threads that poll connections.
#[test]
fn long_computations_hold_up_no_probe_and_no_shutdown() {
    let mut server = Server::with(Flavour::from_env(), &[]);
    let http = server.http();
    let lines: String = (0..60_000).map(|at| format!("  key-{at}: value\n")).collect();
    let body = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: long}}\ndata:\n{lines}");
    let create = {
        let (http, body) = (http.clone(), Bytes::from(body));
        move || {
            let request = Request::post("/api/v1/namespaces/default/configmaps?dryRun=All")
                .header("content-type", "application/yaml")
                .body(body.clone());
            // The last ones meet a server that is stopping.
            let _ = http.try_request(request.expect("a request"));
        }
    };
    let busy: Vec<_> = (0..6).map(|_| std::thread::spawn(create.clone())).collect();
    let mut slowest = Duration::ZERO;
    while !busy.iter().all(std::thread::JoinHandle::is_finished) {
        let began = Instant::now();
        assert_eq!(http.get("/livez").code, 200);
        slowest = slowest.max(began.elapsed());
    }
    // A debug build on a busy machine; on its own a probe takes a millisecond.
    assert!(slowest < Duration::from_secs(2), "a probe took {slowest:?}");

    let busy: Vec<_> = (0..6).map(|_| std::thread::spawn(create.clone())).collect();
    let began = Instant::now();
    assert!(server.stop().success());
    assert!(began.elapsed() < Duration::from_secs(100), "{:?}", began.elapsed());
    for thread in busy {
        thread.join().expect("no panic");
    }
}

/// A list whose items have to be made anew took the thread of its connection, and the other streams waited.
#[test]
fn a_long_list_holds_up_no_other_stream_of_its_connection() {
    let server = shared();
    let namespace = server.namespace("long-list");
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let data: serde_json::Map<String, serde_json::Value> =
        (0..2_000).map(|at| (format!("key-{at}"), json!("a value"))).collect();
    let http = server.http();
    for at in 0..100 {
        let object = json!({"metadata": {"name": format!("long-{at}")}, "data": data});
        http.post(&path, &object).expect(201);
    }
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let lists = [
        (path.clone(), "application/yaml"),
        (path.clone(), "application/vnd.kubernetes.protobuf"),
        (format!("{path}?pretty=true"), "application/json"),
        (format!("{path}?includeObject=Object"), table),
    ];
    for (list, accept) in lists {
        // Windows that no answer fills.
        let window = [&[0, 4][..], &(i32::MAX as u32).to_be_bytes()].concat();
        let mut frames = Frames::open(&http, &window, Duration::from_mins(1));
        frames.send(WINDOW_UPDATE, 0, 0, &1_000_000_000_u32.to_be_bytes()).expect("written");
        let block = [get(&list), literal("accept", accept.as_bytes())].concat();
        let mut requests = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block);
        for stream in [3, 5, 7] {
            requests.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &get("/livez")));
        }
        frames.write(&requests).expect("written");
        let (mut ended, mut bytes) = (Vec::new(), 0);
        while ended.len() < 4 {
            let frame = frames.read_one_of(&[HEADERS, DATA]).expect("the server answers");
            bytes += if frame.stream == 1 { frame.payload.len() } else { 0 };
            if frame.flags & END_STREAM != 0 {
                ended.push(frame.stream);
            }
        }
        assert!(bytes > 2_000_000, "{accept}: {bytes} bytes");
        assert_eq!(ended.last(), Some(&1), "{accept}: {ended:?}");
    }
}

#[test]
fn always_allow_has_no_anonymous_client() {
    let server = Server::with(Flavour::from_env(), &["--authorization-mode=AlwaysAllow"]);
    assert_eq!(server.http().anonymous().get("/api/v1/secrets").code, 401);
    assert_eq!(server.http().get("/api/v1/secrets").code, 200);
    let object = json!({"metadata": {"name": "anonymous"}});
    assert_eq!(server.http().anonymous().post("/api/v1/namespaces", &object).code, 401);
}
