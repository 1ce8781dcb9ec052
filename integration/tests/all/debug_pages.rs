//! The pages for operators: `/flagz`, `/statusz`, `/logs`, `/debug/pprof/`, `DELETE /metrics`.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use bytes::Bytes;
use http::{Method, Request};
use integration::{Answer, Flavour, Http, Server, eventually, shared};

fn get_as(http: &Http, path: &str, accept: &str) -> Answer {
    http.request(Request::get(path).header("accept", accept).body(Bytes::new()).expect("a request"))
}

#[test]
fn flags_and_status_are_shown_as_text_and_by_kind() {
    let server = shared();
    let http = server.http();
    let flags = http.get("/flagz");
    assert_eq!(flags.code, 200);
    assert!(flags.text().starts_with("\napiserver flagz\nWarning: "), "{}", flags.text());
    assert!(flags.text().contains("shutdown-delay-duration"), "{}", flags.text());
    let kind = "application/json;g=config.k8s.io;v=v1beta1;as=Flagz";
    let flags = get_as(&http, "/flagz", kind).expect(200);
    assert_eq!(
        (&flags["kind"], &flags["apiVersion"]),
        (&"Flagz".into(), &"config.k8s.io/v1beta1".into())
    );
    assert_eq!(flags["flags"]["livez-grace-period"], "0s");
    assert_eq!(get_as(&http, "/flagz", "application/json").code, 406);

    let status = http.get("/statusz").text();
    assert!(status.contains("apiserver statusz") && status.contains("/readyz"), "{status}");
    let old = get_as(&http, "/statusz", "application/json;g=config.k8s.io;v=v1alpha1;as=Statusz");
    assert!(old.header("warning").is_some_and(|text| text.contains("deprecated")));
    let status = old.expect(200);
    assert_eq!(status["emulationVersion"], "1.36");
    assert!(status["uptimeSeconds"].is_i64(), "{status}");
    assert_eq!(http.anonymous().get("/flagz").code, 403);
}

#[test]
fn pages_are_off_with_their_gates_and_flags() {
    let flags = [
        "--feature-gates=ComponentFlagz=false,ComponentStatusz=false",
        "--profiling=false",
        "--enable-logs-handler=true",
    ];
    let server = Server::with(Flavour::from_env(), &flags);
    let http = server.http();
    for path in ["/flagz", "/statusz", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v"] {
        assert_eq!(http.get(path).code, 404, "{path}");
    }
    let logs = http.get("/logs/");
    assert_eq!(logs.code, 200);
    assert!(logs.text().starts_with("<pre>"), "{}", logs.text());
    assert_eq!(http.get("/logs/%2e%2e/%2e%2e/etc/passwd").code, 404);
    assert_eq!(http.get("/logs/no-such-file").code, 404);
    assert_eq!(shared().http().get("/logs/").code, 404, "off by default");
}

#[test]
fn profiles_of_go_are_refused_with_the_reason() {
    let server = shared();
    if server.flavour().is_peer() {
        return;
    }
    let http = server.http();
    assert_eq!(http.get("/debug/pprof/").code, 200);
    let heap = http.get("/debug/pprof/heap");
    assert_eq!(heap.code, 501);
    assert!(heap.text().contains("allocator"), "{}", heap.text());
    assert_eq!(http.get("/debug/pprof/nonsense").code, 404);
}

#[test]
fn metrics_begin_anew_when_they_are_deleted() {
    let server = Server::start();
    let http = server.http();
    http.get("/api/v1/namespaces/default").expect(200);
    let count = |http: &Http| {
        let metrics = http.get("/metrics").text();
        let mut lines = metrics.lines();
        lines.any(|line| {
            line.starts_with("apiserver_request_total{")
                && line.contains(r#"resource="namespaces""#)
                && line.contains(r#"verb="GET""#)
        })
    };
    assert!(count(&http));
    let request = Request::builder().method(Method::DELETE).uri("/metrics").body(Bytes::new());
    let answer = http.request(request.expect("a request"));
    assert_eq!((answer.code, answer.text().as_str()), (200, "metrics reset\n"));
    assert!(!count(&http));
}

#[test]
fn the_debug_socket_answers_its_owner_without_authentication() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("debug.sock");
    let flag = format!("--debug-socket-path={}", path.display());
    let mut server = Server::with(Flavour::from_env(), &["--profiling=false", &flag]);
    let ask = |request: &str| -> String {
        let mut stream = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
        let head = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        let body = if request.starts_with("PUT") { "Content-Length: 1\r\n\r\n4" } else { "\r\n" };
        stream.write_all(format!("{head}{body}").as_bytes()).expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    let set =
        eventually("the socket is there", || path.exists().then(|| ask("PUT /debug/flags/v")));
    assert!(set.contains("successfully set klog.logging.verbosity to 4"), "{set}");
    assert!(ask("GET /debug/pprof/").starts_with("HTTP/1.1 200 "));
    for other in ["GET /api", "GET /metrics", "GET /debug/flags", "GET /readyz"] {
        assert!(ask(other).starts_with("HTTP/1.1 404 "), "{other}");
    }
    if !server.flavour().is_peer() {
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    // A socket that is left behind is replaced.
    server.kill();
    assert!(path.exists());
    server.start_again();
    assert!(
        eventually("it listens again", || path.exists().then(|| ask("GET /debug/pprof/")))
            .starts_with("HTTP/1.1 200 ")
    );
}
