//! Resources that only another API server of the cluster has: its identity lease says that it is there, a lease in
//! etcd where it is, its discovery what it has.

use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use integration::aggregated_server::{AnswerBody, Seen, answer};
use integration::{AggregatedServer, Authority, Flavour, Http, Server, eventually};
use serde_json::{Value, json};

use crate::aggregation::HTTP2;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PEER: &str = "apiserver-peer";
const PROXIED: &str = "x-kubernetes-peer-proxied";

fn group(name: &str, resource: &str, kind: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "versions": [{"version": "v1", "freshness": "Current", "resources": [{
            "resource": resource, "scope": "Cluster", "singularResource": "",
            "responseKind": {"group": name, "version": "v1", "kind": kind},
            "verbs": ["get", "list"],
        }]}],
    })
}

/// The other API server: it has `things` and `widgets`, and says that it has namespaces as well.
fn respond(seen: &Seen) -> http::Response<AnswerBody> {
    let list = |groups: Value| {
        let kind = "APIGroupDiscoveryList";
        let list = json!({"kind": kind, "apiVersion": "apidiscovery.k8s.io/v2", "items": groups});
        answer(200, AGGREGATED, list.to_string())
    };
    match seen.path.as_str() {
        "/api" => list(json!([group("", "namespaces", "Namespace")])),
        "/apis" => list(json!([
            group("new.example.com", "things", "Thing"),
            group("widgets.example.com", "widgets", "Widget"),
        ])),
        _ => answer(200, "application/json", r#"{"kind":"AnswerOfThePeer"}"#),
    }
}

/// A server, another one that it knows, and where their certificates are.
struct Cluster {
    server: Server,
    peer: AggregatedServer,
    _files: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        Self::with(respond)
    }

    fn with(respond: impl Fn(&Seen) -> http::Response<AnswerBody> + Send + Sync + 'static) -> Self {
        let files = tempfile::tempdir().expect("a directory");
        let write = |name: &str, bytes: &[u8]| {
            let path = files.path().join(name);
            std::fs::write(&path, bytes).expect("a file");
            path.display().to_string()
        };
        let peer = AggregatedServer::start("kubernetes.default.svc", HTTP2, respond);
        let peer_ca = STANDARD.decode(&peer.ca_bundle).expect("base64");
        let front_proxy = Authority::new("front-proxy-ca");
        let client = front_proxy.client("front-proxy-client", &[]).write(files.path(), "client");
        let flags = [
            format!("--peer-ca-file={}", write("peer-ca.crt", &peer_ca)),
            format!(
                "--requestheader-client-ca-file={}",
                write("front-proxy-ca.crt", front_proxy.pem.as_bytes())
            ),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            format!("--proxy-client-cert-file={}", client[0].display()),
            format!("--proxy-client-key-file={}", client[1].display()),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let server = Server::with(Flavour::Etcd, &flags);
        let cluster = Self { server, peer, _files: files };
        cluster.put_endpoint(&json!([{
            "addresses": [{"ip": "127.0.0.1"}],
            "ports": [{"name": "https", "port": cluster.peer.port(), "protocol": "TCP"}],
        }]));
        let lease = json!({
            "metadata": {
                "name": PEER,
                "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
            },
            "spec": {"holderIdentity": format!("{PEER}_1"), "leaseDurationSeconds": 3600},
        });
        cluster.http().post(LEASES, &lease).expect(201);
        cluster
    }

    fn http(&self) -> Http {
        self.server.http()
    }

    /// What the other server says about itself, past every API server.
    fn put_endpoint(&self, subsets: &Value) {
        let key = format!("{}/peerserverleases/{PEER}", self.server.storage_prefix());
        let lease = json!({
            "kind": "Endpoints", "apiVersion": "v1",
            "metadata": {"labels": {"apiserverIdentity": PEER}}, "subsets": subsets,
        });
        self.server.etcd().expect("it is on etcd").put(&key, lease.to_string().as_bytes());
    }

    fn is_answered_by_peer(&self, path: &str) -> bool {
        let answer = self.http().get(path);
        answer.code == 200 && answer.json()["kind"] == "AnswerOfThePeer"
    }

    /// The last request for something else than discovery.
    fn seen(&self) -> Option<Seen> {
        self.peer.seen().into_iter().rfind(|seen| seen.path.split('/').count() > 2)
    }
}

fn groups(http: &Http, accept: &str) -> Vec<String> {
    let request = Request::get("/apis").header("accept", accept);
    let list = http.request(request.body(bytes::Bytes::new()).expect("a request")).expect(200);
    let items = list["items"].as_array().expect("a list").iter();
    items.map(|group| group["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_resource_that_only_a_peer_has_is_answered_by_the_peer() {
    let cluster = Cluster::start();
    let http = cluster.http();
    let things = "/apis/new.example.com/v1/things";
    eventually("the peer is asked", || cluster.is_answered_by_peer(things).then_some(()));

    // In the name of the user, with the front proxy's certificate, and marked.
    assert!(cluster.is_answered_by_peer(&format!("{things}/a?x=1&y=%2f")));
    let seen = cluster.seen().expect("a request");
    assert_eq!(seen.path, format!("{things}/a?x=1&y=%2f"));
    assert_eq!(seen.header(PROXIED), Some("true"));
    let review = http.post(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        &json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}),
    );
    let user = review.expect(201)["status"]["userInfo"].clone();
    assert_eq!(seen.header("x-remote-user"), user["username"].as_str());
    assert!(seen.all("x-remote-group").contains(&"system:masters"), "{seen:?}");
    assert_eq!(seen.header("authorization"), None);
    assert!(seen.certificate.is_some());

    // A request that was sent on once is answered here, and so is what this server has.
    let marked = Request::get(things).header(PROXIED, "true");
    let answer = http.request(marked.body(bytes::Bytes::new()).expect("a request"));
    assert_eq!(answer.code, 404, "{}", answer.text());
    assert_eq!(http.get("/api/v1/namespaces/default").expect(200)["kind"], "Namespace");
    // A user without rights gets no further than elsewhere.
    assert_eq!(http.clone().anonymous().get(things).code, 403);

    // Discovery has it, unless a client wants this server's alone.
    let has_it = |accept: &str| groups(&http, accept).iter().any(|name| name == "new.example.com");
    eventually("discovery has the group", || has_it(AGGREGATED).then_some(()));
    assert!(!has_it(&format!("{AGGREGATED};profile=nopeer")));

    let metrics = http.get("/metrics").text();
    let counted = r#"apiserver_rerouted_request_total{code="200",group="new.example.com",resource="things",version="v1"}"#;
    assert!(metrics.contains(counted), "{counted}");
    let checks = http.get("/readyz?verbose").text();
    for hook in
        ["mixed-version-proxy-handler", "local-discovery-cache-sync", "peer-discovery-workers"]
    {
        assert!(checks.contains(&format!("[+]poststarthook/{hook} ok\n")), "{checks}");
    }
}

#[test]
fn a_write_reaches_the_peer_once_and_with_its_body() {
    let cluster = Cluster::with(|seen| match seen.method.as_str() {
        "POST" => answer(201, "application/json", seen.body.clone()),
        "PATCH" => answer(409, "application/json", r#"{"kind":"Status","code":409}"#),
        _ => respond(seen),
    });
    let http = cluster.http();
    let things = "/apis/new.example.com/v1/things";
    eventually("the peer is asked", || cluster.is_answered_by_peer(things).then_some(()));
    cluster.peer.forget();

    // Longer than a frame and than a buffer, so that it is passed on in pieces.
    let thing = json!({"metadata": {"name": "a"}, "data": "x".repeat(300_000)});
    let created = http.post(&format!("{things}?fieldManager=me&dryRun=All"), &thing);
    assert_eq!(created.expect(201), thing);
    let kind = "application/merge-patch+json";
    let patched = http.patch(&format!("{things}/a"), kind, &json!({"data": "y"}));
    assert_eq!(patched.code, 409, "{}", patched.text());

    let writes: Vec<Seen> =
        cluster.peer.seen().into_iter().filter(|seen| seen.method != "GET").collect();
    let [post, patch] = &writes[..] else { panic!("each write is sent once: {writes:?}") };
    assert_eq!(post.path, format!("{things}?fieldManager=me&dryRun=All"));
    assert_eq!(post.header("content-type"), Some("application/json"));
    assert_eq!(post.header(PROXIED), Some("true"));
    assert_eq!(post.body, thing.to_string().as_bytes());
    assert_eq!((patch.method.as_str(), patch.header("content-type")), ("PATCH", Some(kind)));
    assert_eq!(patch.body, json!({"data": "y"}).to_string().as_bytes());

    // Without rights nothing is sent.
    assert_eq!(http.clone().anonymous().post(things, &thing).code, 403);
    assert_eq!(cluster.peer.seen().iter().filter(|seen| seen.method == "POST").count(), 1);
}

#[test]
fn a_watch_through_a_peer_is_passed_on_event_by_event() {
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let receiver = Mutex::new(Some(receiver));
    let cluster = Cluster::with(move |seen| {
        if !seen.path.contains("watch=1") {
            return respond(seen);
        }
        let mut events = receiver.lock().expect("not poisoned").take().expect("one watch");
        let body = StreamBody::new(futures_util::stream::poll_fn(move |cx| events.poll_recv(cx)));
        let answer = http::Response::builder().header("content-type", "application/json");
        answer.body(body.boxed_unsync()).expect("a valid answer")
    });
    let things = "/apis/new.example.com/v1/things";
    eventually("the peer is asked", || cluster.is_answered_by_peer(things).then_some(()));
    let send = |name: &str| {
        let event = json!({"type": "ADDED", "object": {"name": name}});
        sender.try_send(Ok(Frame::data(Bytes::from(format!("{event}\n")))))
    };
    send("a").expect("there is room");
    let mut watch = cluster.http().stream(&format!("{things}?watch=1&timeoutSeconds=300"));
    assert_eq!(watch.code, 200);
    assert_eq!(watch.expect("ADDED")["name"], "a");
    // The next event exists only after the last one has arrived: nothing gathers them.
    send("b").expect("there is room");
    assert_eq!(watch.expect("ADDED")["name"], "b");
    let seen = cluster.seen().expect("a request");
    assert_eq!(seen.path, format!("{things}?watch=1&timeoutSeconds=300"));
    drop(watch);
    // The client is gone, and so is its request to the peer.
    eventually("the peer's watch ends", || sender.is_closed().then_some(()));
}

#[test]
fn a_peer_that_does_not_say_where_it_is_is_503_and_one_that_is_gone_404() {
    let cluster = Cluster::start();
    let http = cluster.http();
    let things = "/apis/new.example.com/v1/things";
    eventually("the peer is asked", || cluster.is_answered_by_peer(things).then_some(()));
    cluster.put_endpoint(&json!([]));
    let answer = http.get(things);
    assert_eq!(answer.code, 503);
    let message = "Error getting ip and port info of the remote server while proxying";
    assert!(answer.text().contains(message), "{}", answer.text());
    http.delete(&format!("{LEASES}/{PEER}")).expect(200);
    eventually("no server has it", || (http.get(things).code == 404).then_some(()));
}

/// Every server learns of definitions by itself: what a peer said of one some time ago would bring a deleted
/// one back.
#[test]
fn a_deleted_definition_does_not_come_back_from_a_peer() {
    let cluster = Cluster::start();
    let http = cluster.http();
    let widgets = "/apis/widgets.example.com/v1/widgets";
    eventually("the peer is asked", || cluster.is_answered_by_peer(widgets).then_some(()));
    let definition = json!({
        "metadata": {"name": "widgets.widgets.example.com"},
        "spec": {
            "group": "widgets.example.com", "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    http.post(CRDS, &definition).expect(201);
    eventually("the definition is served here", || {
        (http.get(widgets).json()["kind"] == "WidgetList").then_some(())
    });
    // Published, so that its group-version is this server's to answer.
    eventually("discovery has it once", || {
        let named = groups(&http, AGGREGATED);
        let count = named.iter().filter(|name| *name == "widgets.example.com").count();
        (count == 1).then_some(())
    });
    http.delete(&format!("{CRDS}/widgets.widgets.example.com")).expect(200);
    eventually("it is gone", || (http.get(widgets).code == 404).then_some(()));
    let named = groups(&http, AGGREGATED);
    assert!(!named.iter().any(|name| name == "widgets.example.com"), "{named:?}");
    assert!(cluster.is_answered_by_peer("/apis/new.example.com/v1/things"));
}
