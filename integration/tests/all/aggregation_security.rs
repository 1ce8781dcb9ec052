//! Attacks on the aggregator and through it: by clients on aggregated servers, and by those on clients
//! and on the aggregator.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use integration::aggregated_server::{AnswerBody, Seen, answer};
use integration::{Authority, Flavour, Server, eventually, shared};
use serde_json::json;

use crate::aggregation::{API_SERVICES, Aggregated, HTTP1, HTTP2};

fn ok(_: &Seen) -> Response<AnswerBody> {
    answer(200, "application/json", "{}")
}

fn get(path: &str, headers: &[(&str, &str)]) -> Request<Bytes> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Bytes::new()).expect("a valid request")
}

#[test]
fn c03_a_redirect_of_an_aggregated_server_is_refused() {
    let server = shared();
    for code in [301, 302, 303, 307, 308] {
        let aggregated = Aggregated::start(&server, "redirect", HTTP2, move |_| {
            let mut answer = answer(code, "text/plain", "");
            answer
                .headers_mut()
                .insert("location", "https://evil.example/".parse().expect("a value"));
            answer
        });
        let answer = server.http().get(&aggregated.path("flunders"));
        assert_eq!(answer.code, 502);
        assert_eq!(answer.header("location"), None);
        let refused = "the backend attempted to redirect this request, which is not permitted";
        assert_eq!(answer.text(), refused);
    }
}

#[test]
fn c11_c13_c14_i03_identity_is_the_servers_to_tell() {
    let server = shared();
    let http = server.http();
    let aggregated = Aggregated::start(&server, "identity", HTTP1, ok);
    let hostile = [
        ("connection", "X-Remote-User, X-Remote-Group, close"),
        ("x-remote-user", "root"),
        ("X-Remote-Group", "system:masters"),
        ("x-remote-uid", "7"),
        ("x-remote-extra-scopes", "all"),
        ("x_remote_user", "root"),
        ("X_Remote-Group", "system:masters"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-uri", "/elsewhere"),
        ("x-real-ip", "192.0.2.1"),
        ("cookie", "kept=1"),
    ];
    assert_eq!(http.request(get(&aggregated.path("flunders"), &hostile)).code, 200);
    let seen = aggregated.backend.seen().pop().expect("a request");
    assert_eq!(seen.all("x-remote-user"), ["kubernetes-admin"]);
    assert!(seen.all("x-remote-group").contains(&"system:authenticated"));
    assert_eq!(seen.header("x-remote-extra-scopes"), None);
    assert_ne!(seen.header("x-remote-uid"), Some("7"));
    assert_eq!(seen.header("x_remote_user"), None);
    assert_eq!(seen.header("x_remote-group"), None);
    assert_eq!(seen.header("authorization"), None);
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-uri"), Some(&*aggregated.path("flunders")));
    assert_eq!(seen.header("x-real-ip"), None);
    assert_eq!(seen.header("cookie"), Some("kept=1"));

    // Impersonation is resolved before.
    let headers = [
        ("impersonate-user", "jane"),
        ("impersonate-uid", "u-1"),
        ("impersonate-group", "system:masters"),
        ("impersonate-extra-example.org%2fscope", "some"),
    ];
    assert_eq!(http.request(get(&aggregated.path("flunders"), &headers)).code, 200);
    let seen = aggregated.backend.seen().pop().expect("a request");
    assert_eq!(seen.all("x-remote-user"), ["jane"]);
    assert_eq!(seen.header("x-remote-uid"), Some("u-1"));
    assert_eq!(seen.all("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert_eq!(seen.all("x-remote-extra-example.org%2fscope"), ["some"]);
    assert!(seen.headers.keys().all(|name| !name.as_str().starts_with("impersonate")));
}

#[test]
fn r03_r04_a_request_without_permission_does_not_reach_the_server() {
    let server = shared();
    if server.flavour().is_peer() {
        return;
    }
    let aggregated = Aggregated::start(&server, "denied", HTTP2, ok);
    let authority = Authority::load(&server.data_directory().join("pki"));
    let nobody = server.http().with_certificate(&authority.client("nobody", &[]));
    for path in ["flunders", "namespaces/a/flunders/x/status", "namespaces/a/flunders/x/exec"] {
        assert_eq!(nobody.get(&aggregated.path(path)).code, 403, "{path}");
        let upgrade = [("connection", "Upgrade"), ("upgrade", "websocket")];
        assert_eq!(nobody.request(get(&aggregated.path(path), &upgrade)).code, 403, "{path}");
    }
    assert_eq!(server.http().anonymous().get(&aggregated.path("flunders")).code, 403);
    assert!(aggregated.backend.seen().is_empty());
}

#[test]
fn c12_h25_k02_a_path_reaches_the_server_as_it_was_authorized_or_not_at_all() {
    let server = shared();
    if server.flavour().is_peer() {
        // kube-apiserver v1.36 forwards them as they come.
        return;
    }
    let aggregated = Aggregated::start(&server, "paths", HTTP1, ok);
    let group = &aggregated.group;
    let refused = [
        format!("/apis/{group}/v1/../../../api/v1/secrets"),
        format!("/apis/{group}/v1/%2e%2e/%2e%2e/%2e%2e/api/v1/secrets"),
        format!("/apis/{group}/v1/namespaces/../flunders"),
        format!("/apis/{group}/v1/namespaces/%2E%2E/flunders"),
        format!("/apis/{group}/v1/namespaces/..%2fflunders"),
        format!("/apis/{group}/v1/./flunders"),
    ];
    for path in &refused {
        let mut raw = server.http().raw().expect("a connection");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        raw.write(request.as_bytes()).expect("written");
        let answer = raw.read_until(|_| false).expect("an answer");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
    }
    assert!(aggregated.backend.seen().is_empty());
    let passed = [
        (format!("/apis/{group}/v1/namespaces/a%2Fflunders/x"), "namespaces/a/flunders/x"),
        (format!("/apis/{group}/v1/flunders/%41%20b"), "flunders/A%20b"),
        (format!("/apis/{group}/v1/flunders/x?a=..%2f"), "flunders/x?a=..%2f"),
    ];
    for (sent, expected) in &passed {
        server.http().get(sent);
        let seen = aggregated.backend.seen().pop().expect("a request");
        assert_eq!(seen.path, aggregated.path(expected));
    }
}

#[test]
fn c10_p16_an_endless_or_compressed_answer_to_the_aggregator_is_cut_off() {
    let server = shared();
    let http = server.http();
    let endless = |_: &Seen| {
        let chunk = || Ok(hyper::body::Frame::data(Bytes::from(vec![b' '; 1 << 20])));
        let body = StreamBody::new(futures_util::stream::repeat_with(chunk));
        Response::new(body.boxed_unsync())
    };
    // An aggregated server that was good, and turns bad: all its documents are endless.
    let namespace = server.namespace("endless");
    let group = format!("{namespace}.example.com");
    let backend = integration::AggregatedServer::start(
        &format!("backend.{namespace}.svc"),
        HTTP2,
        move |seen| {
            if seen.path.contains("openapi") {
                let mut answer = answer(200, "application/json", vec![0; 1 << 10]);
                answer.headers_mut().insert("content-encoding", "gzip".parse().expect("a value"));
                return answer;
            }
            endless(seen)
        },
    );
    let services = format!("/api/v1/namespaces/{namespace}/services");
    let service = json!({
        "metadata": {"name": "backend"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    http.post(&services, &service).expect(201);
    let name = format!("v1.{group}");
    let object = json!({
        "metadata": {"name": name},
        "spec": {
            "group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"namespace": namespace, "name": "backend", "port": backend.port()},
            "caBundle": backend.ca_bundle,
        },
    });
    http.post(API_SERVICES, &object).expect(201);
    eventually("the check of its discovery fails", || {
        let object = http.get(&format!("{API_SERVICES}/{name}")).expect(200);
        let condition = &object["status"]["conditions"][0];
        (condition["reason"] == "FailedDiscoveryCheck").then_some(())
    });
    // The rest is as it was.
    assert_eq!(http.get("/apis").code, 200);
    assert_eq!(http.get("/openapi/v3").code, 200);
    http.delete(&format!("{API_SERVICES}/{name}")).expect(200);
}

#[test]
fn c15_h10_an_upload_that_does_not_come_costs_the_next_request_nothing() {
    let server = shared();
    let aggregated = Aggregated::start(&server, "expect", HTTP1, ok);
    let path = aggregated.path("namespaces/a/flunders");
    let ambiguous = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
    ];
    for headers in ambiguous {
        let mut raw = server.http().raw().expect("a connection");
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n0\r\n\r\nGET /smuggled");
        raw.write(request.as_bytes()).expect("written");
        let answer = raw.read_until(|_| false).expect("an answer");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(
            answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.1 501 "),
            "{answer}"
        );
    }
    assert!(aggregated.backend.seen().is_empty());
    for _ in 0..3 {
        let mut raw = server.http().raw().expect("a connection");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n"
        );
        raw.write(head.as_bytes()).expect("written");
        drop(raw);
        assert_eq!(server.http().get(&path).code, 200);
    }
}

#[test]
fn c18_an_api_service_of_a_local_group_is_put_right() {
    // Of its own: for a moment the group is not what others expect.
    let server = Server::of(Flavour::Embedded);
    let http = server.http();
    let path = format!("{API_SERVICES}/v1.coordination.k8s.io");
    let hostile = json!({"spec": {
        "service": {"namespace": "default", "name": "evil", "port": 443},
        "insecureSkipTLSVerify": true,
    }});
    http.patch(&path, "application/merge-patch+json", &hostile).expect(200);
    eventually("it is local again", || {
        let object = http.get(&path).expect(200);
        let condition = &object["status"]["conditions"][0];
        (object["spec"]["service"].is_null() && condition["reason"] == "Local").then_some(())
    });
    eventually("its resources are served", || {
        (http.get("/apis/coordination.k8s.io/v1/leases").code == 200).then_some(())
    });
    http.delete(&path).expect(200);
    eventually("it is there again", || (http.get(&path).code == 200).then_some(()));
    let both = json!({"spec": {"service": {"namespace": "a", "name": "b"}, "caBundle": "YQ==", "insecureSkipTLSVerify": true}});
    assert_eq!(http.patch(&path, "application/merge-patch+json", &both).code, 422);
}

#[test]
fn servers_that_are_away_slow_no_other_request() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("slow");
    let services = format!("/api/v1/namespaces/{namespace}/services");
    // Takes connections, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let service = json!({
        "metadata": {"name": "silent"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    http.post(&services, &service).expect(201);
    let names: Vec<String> = (0..20).map(|n| format!("v1.{n}.{namespace}.example.com")).collect();
    for name in &names {
        let object = json!({
            "metadata": {"name": name},
            "spec": {
                "group": &name[3..], "version": "v1", "groupPriorityMinimum": 1000,
                "versionPriority": 15, "insecureSkipTLSVerify": true,
                "service": {"namespace": namespace, "name": "silent", "port": port},
            },
        });
        http.post(API_SERVICES, &object).expect(201);
    }
    let aggregated = Aggregated::start(&server, "fast", HTTP2, ok);
    let began = std::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(http.get(&aggregated.path("flunders")).code, 200);
        assert_eq!(http.get("/api/v1/namespaces/default").code, 200);
        assert_eq!(http.get(&format!("/apis/0.{namespace}.example.com/v1/x")).code, 503);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    for name in &names {
        http.delete(&format!("{API_SERVICES}/{name}")).expect(200);
    }
}
