//! Watches over WebSocket, for browsers and clients without chunked responses.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::Request;
use integration::websocket::{BINARY, CLOSE, HANDSHAKE, PING, PONG, TEXT, WebSocket};
use integration::{Flavour, Http, Server, shared};
use serde_json::{Value, json};

type Headers<'a> = &'a [(&'a str, &'a str)];

/// Opens a watch that must be granted.
#[track_caller]
fn open(http: &Http, path: &str, more: &[(&str, &str)]) -> WebSocket {
    let headers = [&HANDSHAKE[..], more].concat();
    http.websocket(path, &headers)
        .unwrap_or_else(|answer| panic!("{path}: {} {}", answer.code, answer.text()))
}

/// Makes, changes and deletes an object; where a watch has to begin to see it.
fn history(http: &Http, path: &str) -> String {
    let before = http.get(path).expect(200)["metadata"]["resourceVersion"].clone();
    let object = json!({"metadata": {"name": "a"}, "data": {"key": "x".repeat(70_000)}});
    http.post(path, &object).expect(201);
    let patch = json!({"data": {"key": "short"}});
    http.patch(&format!("{path}/a"), "application/merge-patch+json", &patch).expect(200);
    http.delete(&format!("{path}/a")).expect(200);
    before.as_str().expect("a list has a version").to_owned()
}

/// Watches what happened to an object in both ways, in each of these forms.
fn check_messages(http: &Http, namespace: &str, cases: &[(&str, Framing)]) {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let from = history(http, &path);
    let watch = format!(
        "{path}?watch=1&resourceVersion={from}&timeoutSeconds=1&fieldSelector=metadata.name=a"
    );
    for (accept, framing) in cases {
        let request = Request::get(&watch).header("accept", *accept).body(Bytes::new());
        let streamed = http.request(request.expect("a valid request"));
        assert_eq!(streamed.code, 200);
        let opcode = if *framing == Framing::Lines { TEXT } else { BINARY };
        let messages = open(http, &watch, &[("accept", accept)]).until_goodbye(opcode);
        assert_eq!(messages.len(), 3, "{accept}: ADDED, MODIFIED, DELETED");
        let framed: Vec<u8> = messages
            .into_iter()
            .flat_map(|message| match framing {
                Framing::Lines | Framing::Sequence => message,
                Framing::Lengths => [&(message.len() as u32).to_be_bytes()[..], &message].concat(),
            })
            .collect();
        // Ages in tables may tick between the two.
        if !accept.contains("Table") {
            assert!(framed == streamed.body, "{accept}: the same bytes");
        }
    }
}

/// How one sees over HTTP where an event ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Lines,
    Lengths,
    /// Each event is complete by itself.
    Sequence,
}

#[test]
fn each_message_is_an_event_of_the_watch_over_http() {
    let server = shared();
    let cases = [
        ("application/json", Framing::Lines),
        ("application/json;as=Table;g=meta.k8s.io;v=v1", Framing::Lines),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Framing::Lines),
        ("application/vnd.kubernetes.protobuf", Framing::Lengths),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            Framing::Lengths,
        ),
    ];
    check_messages(&server.http(), &server.namespace("websocket"), &cases);
}

#[test]
fn each_message_is_an_event_in_cbor_too() {
    if Flavour::from_env().is_peer() {
        return; // It has no flags from here.
    }
    let gate = ["--feature-gates=CBORServingAndStorage=true"];
    let server = Server::with(Flavour::from_env(), &gate);
    let cases = [
        ("application/cbor", Framing::Sequence),
        ("application/cbor;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Framing::Sequence),
    ];
    check_messages(&server.http(), &server.namespace("websocket"), &cases);
}

#[test]
fn events_come_as_they_happen_and_pings_are_answered() {
    let server = shared();
    let http = server.http();
    let path = format!("/api/v1/namespaces/{}/configmaps", server.namespace("websocket"));
    let mut watch = open(&http, &format!("{path}?watch=1&labelSelector=mine"), &[]);
    assert_eq!(watch.headers["upgrade"], "websocket");
    assert_eq!(watch.headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert!(!watch.headers.contains_key("sec-websocket-protocol"));
    let mut expect = |http: &dyn Fn(), kind: &str| {
        http();
        let message = watch.next_message().expect("an event");
        assert_eq!(message.opcode, TEXT);
        let event: Value = serde_json::from_slice(&message.payload).expect("JSON");
        assert_eq!(event["type"], kind, "{event}");
    };
    let labelled = json!({"metadata": {"name": "a", "labels": {"mine": "yes"}}});
    expect(&|| drop(http.post(&path, &labelled).expect(201)), "ADDED");
    expect(&|| drop(http.delete(&format!("{path}/a")).expect(200)), "DELETED");

    watch.send(PING, b"are you there?");
    let pong = watch.next_message().expect("an answer");
    assert_eq!((pong.opcode, &pong.payload[..]), (PONG, &b"are you there?"[..]));
    // What else a client says changes nothing.
    watch.send(TEXT, b"hello");
    watch.send(PING, b"");
    assert_eq!(watch.next_message().expect("an answer").opcode, PONG);
    watch.send(CLOSE, &1000_u16.to_be_bytes());
    assert!(watch.until_goodbye(TEXT).is_empty());
}

#[test]
fn a_single_subprotocol_is_repeated() {
    let server = shared();
    let http = server.http();
    let path = "/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=";
    let protocol = [("sec-websocket-protocol", "binary.k8s.io")];
    let current = http.get("/api/v1/configmaps?limit=1").expect(200);
    let current = current["metadata"]["resourceVersion"].as_str().expect("a version");
    let mut watch = open(&http, &format!("{path}{current}"), &protocol);
    assert_eq!(watch.headers["sec-websocket-protocol"], "binary.k8s.io");
    watch.until_goodbye(TEXT);
}

#[test]
fn a_handshake_that_no_browser_would_do_is_refused() {
    let server = shared();
    let http = server.http();
    let path = "/api/v1/configmaps?watch=1&timeoutSeconds=1";
    let [key, version, origin] = HANDSHAKE;
    let cases: [(Headers<'_>, u16, &str); 6] = [
        (&[version, origin], 400, "mismatch challenge/response"),
        (&[key, origin], 400, "missing or bad WebSocket Version"),
        (&[key, ("sec-websocket-version", "8"), origin], 400, "missing or bad WebSocket Version"),
        (&[key, version], 403, ""),
        (&[key, version, ("origin", "null")], 403, ""),
        (&[key, version, origin, ("sec-websocket-protocol", "a, b")], 400, ""),
    ];
    for (headers, code, text) in cases {
        let answer = http.websocket(path, headers).err().expect("refused");
        assert_eq!((answer.code, &*answer.text()), (code, text), "{headers:?}");
    }
    // What is wrong with the watch is said as always.
    let answer = http.websocket("/api/v1/configmaps?watch=1&resourceVersion=x", &HANDSHAKE);
    assert_eq!(answer.err().expect("refused").code, 500);
    // Only watches change over.
    let list = http.websocket("/api/v1/configmaps?limit=1", &HANDSHAKE).err().expect("a list");
    assert_eq!(list.expect(200)["kind"], "ConfigMapList");
}

#[test]
fn a_browser_shows_its_token_as_a_subprotocol() {
    let server = shared();
    let (http, namespace) = (server.http(), server.namespace("websocket-token"));
    let path = format!("/api/v1/namespaces/{namespace}");
    http.post(&format!("{path}/serviceaccounts"), &json!({"metadata": {"name": "page"}}))
        .expect(201);
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    let binding = json!({
        "metadata": {"name": "page"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "page", "namespace": namespace}],
    });
    http.post(&format!("{rbac}/rolebindings"), &binding).expect(201);
    let token =
        http.post(&format!("{path}/serviceaccounts/page/token"), &json!({"spec": {}})).expect(201);
    let token = URL_SAFE_NO_PAD.encode(token["status"]["token"].as_str().expect("a token"));
    let token = format!("base64url.bearer.authorization.k8s.io.{token}");

    let anonymous = http.anonymous();
    let watch = format!("{path}/configmaps?watch=1&timeoutSeconds=1");
    let both = format!("{token}, binary.k8s.io");
    // A binding counts a moment later.
    let mut opened = integration::eventually("the token is good for a watch", || {
        let headers = [&HANDSHAKE[..], &[("sec-websocket-protocol", &*both)]].concat();
        anonymous.websocket(&watch, &headers).ok()
    });
    assert_eq!(opened.headers["sec-websocket-protocol"], "binary.k8s.io");
    opened.until_goodbye(TEXT);
    for (protocols, code) in
        [(token.as_str(), 401), ("base64url.bearer.authorization.k8s.io.eA, a", 401)]
    {
        let headers = [&HANDSHAKE[..], &[("sec-websocket-protocol", protocols)]].concat();
        let answer = anonymous.websocket(&watch, &headers).err().expect("refused");
        assert_eq!(answer.code, code, "{protocols}");
    }
}
