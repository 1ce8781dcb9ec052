//! What clients see of a server that is asked to stop, phase by phase.

use integration::{Flavour, Http, RawConnection, Server, eventually};
use serde_json::json;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// An object whose upload has begun: the head and half of the body are sent.
struct Upload {
    connection: RawConnection,
    rest: Vec<u8>,
}

impl Upload {
    fn begin(http: &Http, name: &str) -> Self {
        let body = json!({"metadata": {"name": name}, "data": {"k": "v".repeat(4000)}}).to_string();
        let head = format!(
            "POST {CONFIG_MAPS} HTTP/1.1\r\nHost: {}\r\nAuthorization: {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            http.host(),
            http.authorization(),
            body.len()
        );
        let (begun, rest) = body.split_at(body.len() / 2);
        let mut connection = http.raw().expect("a connection");
        connection.write(head.as_bytes()).expect("written");
        connection.write(begun.as_bytes()).expect("written");
        Self { connection, rest: rest.as_bytes().to_vec() }
    }

    fn finish(mut self) -> String {
        self.connection.write(&self.rest).expect("still open");
        let is_head = |read: &[u8]| read.windows(4).any(|bytes| bytes == b"\r\n\r\n");
        let answer = self.connection.read_until(is_head).expect("an answer");
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    }
}

/// Waits until as many requests are inside as uploads were begun.
fn wait_for_uploads(http: &Http, count: usize) {
    eventually("the uploads are in flight", || {
        let metrics = http.get("/metrics").text();
        let line = r#"apiserver_current_inflight_requests{request_kind="mutating"} "#;
        let inside = metrics.lines().find_map(|found| found.strip_prefix(line))?;
        (inside.parse() == Ok(count)).then_some(())
    });
}

#[test]
fn a_shutdown_loses_neither_requests_nor_watches() {
    let flags = ["--shutdown-watch-termination-grace-period=20s"];
    let mut server = Server::with(Flavour::from_env(), &flags);
    if server.flavour().is_peer() {
        return;
    }
    let http = server.http();
    let mut watches: Vec<_> =
        (0..20).map(|_| http.stream(&format!("{CONFIG_MAPS}?watch=true"))).collect();
    let uploads: Vec<Upload> =
        (0..4).map(|n| Upload::begin(&http, &format!("upload-{n}"))).collect();
    wait_for_uploads(&http, uploads.len());

    server.signal("TERM");
    eventually("no connection is accepted any more", || http.raw().is_err().then_some(()));
    for upload in uploads {
        assert_eq!(upload.finish(), "HTTP/1.1 201 Created");
    }
    for watch in &mut watches {
        while let Some(event) = watch.next_event() {
            assert_ne!(event["type"], "ERROR", "a watch ends, it does not fail");
        }
    }
    assert!(server.wait().success());
    server.start_again();
    for n in 0..4 {
        server.http().get(&format!("{CONFIG_MAPS}/upload-{n}")).expect(200);
    }
}

#[test]
fn while_it_drains_clients_are_told_to_try_again_and_probes_are_answered() {
    let mut server = Server::with(Flavour::from_env(), &["--shutdown-send-retry-after=true"]);
    let http = server.http();
    let upload = Upload::begin(&http, "slow");
    wait_for_uploads(&http, 1);
    server.signal("TERM");
    let answer = eventually("requests are refused", || {
        Some(http.get("/api/v1/namespaces/default/configmaps")).filter(|answer| answer.code == 429)
    });
    assert_eq!(answer.header("retry-after"), Some("5"));
    assert_eq!(answer.text(), "The apiserver is shutting down, please try again later.\n");
    assert_eq!(http.get("/livez").code, 200);
    let ready = http.get("/readyz");
    assert_eq!(ready.code, 500);
    assert!(ready.text().contains("[-]shutdown failed: reason withheld"), "{}", ready.text());
    assert_eq!(http.get("/metrics").code, 200);
    let request = http::Request::get("/version").body(bytes::Bytes::new()).expect("a request");
    let one = http.connect().expect("it still listens").request(request).expect("an answer");
    assert_eq!((one.code, one.header("connection")), (429, Some("close")), "over HTTP/1.1");

    assert_eq!(upload.finish(), "HTTP/1.1 201 Created");
    assert!(server.wait().success());
}

#[test]
fn during_the_delay_only_readiness_fails_and_a_second_signal_ends_it() {
    let flags = ["--shutdown-delay-duration=1m"];
    let mut server = Server::with(Flavour::from_env(), &flags);
    let http = server.http();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let of_servers = format!("{leases}?labelSelector=apiserver.kubernetes.io/identity");
    let count = |http: &Http| http.get(&of_servers).expect(200)["items"].as_array().map(Vec::len);
    assert_eq!(count(&http), Some(1));

    server.signal("TERM");
    eventually("it is not ready", || (http.get("/readyz").code == 500).then_some(()));
    assert_eq!(http.get("/livez").code, 200);
    assert_eq!(http.get("/healthz").code, 200);
    http.post(CONFIG_MAPS, &json!({"metadata": {"name": "late"}})).expect(201);
    // The pre-shutdown hooks run beside the delay.
    eventually("the identity lease is gone", || (count(&http) == Some(0)).then_some(()));

    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(1));
    server.start_again();
    server.http().get(&format!("{CONFIG_MAPS}/late")).expect(200);
    assert_eq!(count(&server.http()), Some(1));
}
