//! Namespaces and owners whose objects another server keeps: they are deleted like local ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use integration::aggregated_server::{AnswerBody, Seen, answer};
use integration::{AggregatedServer, Http, Server, eventually, shared};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::aggregation::{API_SERVICES, HTTP2};

/// What a small API server keeps: objects by path, and the watches that follow them.
#[derive(Default)]
struct Flunders {
    objects: BTreeMap<String, Value>,
    watches: Vec<mpsc::Sender<Bytes>>,
    /// All events with their versions, for watches that begin in the past.
    history: Vec<(u64, Bytes)>,
    version: u64,
}

impl Flunders {
    fn put(&mut self, path: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let kind = if self.objects.contains_key(path) { "MODIFIED" } else { "ADDED" };
        self.objects.insert(path.to_owned(), object.clone());
        self.tell(kind, &object);
    }

    fn remove(&mut self, path: &str) -> bool {
        let Some(mut object) = self.objects.remove(path) else { return false };
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.tell("DELETED", &object);
        true
    }

    fn tell(&mut self, kind: &str, object: &Value) {
        let line = Bytes::from(format!("{}\n", json!({"type": kind, "object": object})));
        self.watches.retain(|watch| watch.try_send(line.clone()).is_ok());
        self.history.push((self.version, line));
    }

    fn watch(&mut self, query: &str) -> Response<AnswerBody> {
        let (sender, mut events) = mpsc::channel(WATCH_EVENTS_MAX);
        let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        let from: u64 = from.and_then(|version| version.parse().ok()).unwrap_or(0);
        for (_, line) in self.history.iter().filter(|(version, _)| *version > from) {
            sender.try_send(line.clone()).expect("the receiver is here, with room");
        }
        self.watches.push(sender);
        let lines = futures_util::stream::poll_fn(move |cx| {
            events.poll_recv(cx).map(|line| line.map(|line| Ok(Frame::data(line))))
        });
        let response = Response::builder().header("content-type", "application/json");
        response.body(StreamBody::new(lines).boxed_unsync()).expect("a valid answer")
    }

    fn answer(&mut self, seen: &Seen) -> Response<AnswerBody> {
        let (path, query) = seen.path.split_once('?').unwrap_or((&seen.path, ""));
        let json = |code: u16, object: &Value| answer(code, "application/json", object.to_string());
        let is_collection = path.ends_with("/flunders");
        let collection = path.trim_end_matches("flunders").to_owned();
        let inside =
            |key: &str| key.starts_with(&collection) || !collection.contains("/namespaces/");
        match seen.method.as_str() {
            "GET" if query.contains("watch=1") => self.watch(query),
            "GET" if is_collection => {
                let found = self.objects.iter().filter(|(key, _)| inside(key));
                let items: Vec<&Value> = found.map(|(_, object)| object).collect();
                let version = json!({"resourceVersion": self.version.to_string()});
                json(200, &json!({"kind": "FlunderList", "metadata": version, "items": items}))
            }
            "GET" => match self.objects.get(path) {
                Some(object) => json(200, object),
                None => json(404, &json!({"kind": "Status", "code": 404, "message": "none"})),
            },
            "DELETE" if is_collection => {
                let found: Vec<String> =
                    self.objects.keys().filter(|key| inside(key)).cloned().collect();
                for key in &found {
                    self.remove(key);
                }
                json(200, &json!({"kind": "FlunderList", "items": []}))
            }
            "DELETE" if self.remove(path) => json(200, &json!({"kind": "Status"})),
            _ => json(404, &json!({"kind": "Status", "code": 404, "message": "none"})),
        }
    }
}

/// An aggregated server that keeps flunders, with verbs of the test's choice.
struct Backend {
    group: String,
    namespace: String,
    flunders: Arc<Mutex<Flunders>>,
    server: AggregatedServer,
    http: Http,
}

fn start_backend(
    group: &str,
    namespace: &str,
    verbs: &'static [&str],
    flunders: &Arc<Mutex<Flunders>>,
) -> AggregatedServer {
    let (group, flunders) = (group.to_owned(), flunders.clone());
    AggregatedServer::start(&format!("backend.{namespace}.svc"), HTTP2, move |seen| {
        if seen.path.starts_with(&format!("/apis/{group}/v1/")) {
            return flunders.lock().expect("not poisoned").answer(seen);
        }
        if seen.path != format!("/apis/{group}/v1") {
            return answer(404, "text/plain", "404 page not found\n");
        }
        let list = json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/v1"),
            "resources": [{
                "name": "flunders", "singularName": "flunder", "namespaced": true,
                "kind": "Flunder", "verbs": verbs,
            }],
        });
        answer(200, "application/json", list.to_string())
    })
}

impl Backend {
    fn start(server: &Server, purpose: &str, verbs: &'static [&str]) -> Self {
        let namespace = server.namespace(purpose);
        let group = format!("{namespace}.example.com");
        let flunders = Arc::<Mutex<Flunders>>::default();
        let backend = start_backend(&group, &namespace, verbs, &flunders);
        let own = Self { group, namespace, flunders, server: backend, http: server.http() };
        let service = json!({
            "metadata": {"name": "backend"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        let services = format!("/api/v1/namespaces/{}/services", own.namespace);
        own.http.post(&services, &service).expect(201);
        let object = json!({"metadata": {"name": own.name()}, "spec": own.spec()});
        own.http.post(API_SERVICES, &object).expect(201);
        own.wait_until_current();
        own
    }

    fn name(&self) -> String {
        format!("v1.{}", self.group)
    }

    fn spec(&self) -> Value {
        json!({
            "group": self.group, "version": "v1",
            "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {
                "namespace": self.namespace, "name": "backend", "port": self.server.port(),
            },
            "caBundle": self.server.ca_bundle,
        })
    }

    /// Until aggregated discovery has what the server says now.
    fn wait_until_current(&self) {
        self.wait_for_freshness("Current");
    }

    fn wait_for_freshness(&self, freshness: &str) {
        eventually(&format!("discovery of {} is {freshness}", self.group), || {
            let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            let request = http::Request::get("/apis").header("accept", accept);
            let list = self.http.request(request.body(Bytes::new()).expect("a request")).json();
            let mut groups = list["items"].as_array()?.iter();
            let group = groups.find(|group| group["metadata"]["name"] == self.group.as_str())?;
            (group["versions"][0]["freshness"] == freshness).then_some(())
        });
    }

    /// Points the APIService to the server as it is now.
    fn point_to_server(&self) {
        let path = format!("{API_SERVICES}/{}", self.name());
        let patch = json!({"spec": self.spec()});
        self.http.patch(&path, "application/merge-patch+json", &patch).expect(200);
    }

    fn path(&self, namespace: &str, name: &str) -> String {
        format!("/apis/{}/v1/namespaces/{namespace}/flunders/{name}", self.group)
    }

    fn put(&self, namespace: &str, name: &str, owners: &Value) {
        let object = json!({
            "apiVersion": format!("{}/v1", self.group), "kind": "Flunder",
            "metadata": {
                "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"),
                "ownerReferences": owners,
            },
        });
        let path = self.path(namespace, name);
        self.flunders.lock().expect("not poisoned").put(&path, object);
    }

    fn has(&self, namespace: &str, name: &str) -> bool {
        let flunders = self.flunders.lock().expect("not poisoned");
        flunders.objects.contains_key(&self.path(namespace, name))
    }

    /// The deletions that arrived: method, path and user.
    fn deletions(&self) -> Vec<(String, String)> {
        let seen = self.server.seen().into_iter().filter(|seen| seen.method == "DELETE");
        let told = seen.map(|seen| {
            let user = seen.header("x-remote-user").unwrap_or_default().to_owned();
            (seen.path.clone(), user)
        });
        told.collect()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.http.delete(&format!("{API_SERVICES}/{}", self.name()));
    }
}

/// More events than a test makes.
const WATCH_EVENTS_MAX: usize = 1_000;

const ALL: &[&str] = &["get", "list", "watch", "create", "update", "delete", "deletecollection"];
/// Without `deletecollection`, objects are deleted one by one.
const SINGLE: &[&str] = &["get", "list", "delete"];
/// Nothing of it can be deleted: metrics.k8s.io is like that.
const READ_ONLY: &[&str] = &["get", "list"];

#[test]
fn a_namespace_is_deleted_with_its_objects_of_aggregated_servers() {
    let server = shared();
    if !server.has_controllers() {
        return;
    }
    let http = server.http();
    for (purpose, verbs) in [("remote-all", ALL), ("remote-single", SINGLE)] {
        let backend = Backend::start(&server, purpose, verbs);
        let (doomed, other) = (server.namespace("doomed"), server.namespace("other"));
        for name in ["a", "b"] {
            backend.put(&doomed, name, &json!([]));
        }
        backend.put(&other, "stays", &json!([]));
        http.delete(&format!("/api/v1/namespaces/{doomed}")).expect(200);
        eventually("the namespace is gone", || {
            (http.get(&format!("/api/v1/namespaces/{doomed}")).code == 404).then_some(())
        });
        assert!(!backend.has(&doomed, "a") && !backend.has(&doomed, "b"));
        assert!(backend.has(&other, "stays"));
        let below = format!("/apis/{}/v1/namespaces/{doomed}/flunders", backend.group);
        let expected: Vec<String> = match verbs {
            ALL => vec![below],
            _ => vec![format!("{below}/a"), format!("{below}/b")],
        };
        let deletions = backend.deletions();
        let paths: Vec<&String> = deletions.iter().map(|(path, _)| path).collect();
        assert_eq!(paths, expected.iter().collect::<Vec<_>>());
        if !server.flavour().is_peer() {
            assert!(deletions.iter().all(|(_, user)| user == "system:apiserver"));
        }
    }
    let backend = Backend::start(&server, "remote-read-only", READ_ONLY);
    let doomed = server.namespace("doomed");
    backend.put(&doomed, "a", &json!([]));
    http.delete(&format!("/api/v1/namespaces/{doomed}")).expect(200);
    eventually("what cannot be deleted does not block", || {
        (http.get(&format!("/api/v1/namespaces/{doomed}")).code == 404).then_some(())
    });
    assert_eq!(backend.deletions(), []);
}

#[test]
fn a_namespace_waits_for_an_aggregated_server_that_is_away() {
    // Alone: an APIService whose server is away keeps the namespaces of all other tests.
    let server = Server::start();
    if !server.has_controllers() {
        return;
    }
    let http = server.http();
    let mut backend = Backend::start(&server, "remote-away", ALL);
    let doomed = server.namespace("doomed");
    backend.put(&doomed, "a", &json!([]));
    let other = AggregatedServer::start("x", HTTP2, |_| answer(404, "text/plain", ""));
    drop(std::mem::replace(&mut backend.server, other));
    backend.point_to_server();
    backend.wait_for_freshness("Stale");
    let path = format!("/api/v1/namespaces/{doomed}");
    http.delete(&path).expect(200);
    let condition = eventually("the namespace says what it waits for", || {
        let namespace = http.get(&path).expect(200);
        let mut conditions = namespace["status"]["conditions"].as_array()?.clone().into_iter();
        conditions.find(|condition| {
            condition["type"] == "NamespaceDeletionDiscoveryFailure"
                && condition["status"] == "True"
        })
    });
    assert_eq!(condition["reason"], "DiscoveryFailed");
    let version = format!("{}/v1", backend.group);
    assert_eq!(
        condition["message"],
        format!(
            "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of \
             server APIs: {version}: stale GroupVersion discovery: {version}"
        )
    );
    backend.server = start_backend(&backend.group, &backend.namespace, ALL, &backend.flunders);
    backend.point_to_server();
    eventually("the namespace is gone", || (http.get(&path).code == 404).then_some(()));
    assert!(!backend.has(&doomed, "a"));
}

#[test]
fn owners_and_dependents_may_be_on_aggregated_servers() {
    let server = shared();
    if !server.has_controllers() {
        return;
    }
    let http = server.http();
    let backend = Backend::start(&server, "remote-owner", ALL);
    let namespace = backend.namespace.clone();
    let config_maps = format!("/api/v1/namespaces/{namespace}/configmaps");

    // A flunder that a ConfigMap owns.
    let owner = http.post(&config_maps, &json!({"metadata": {"name": "owner"}})).expect(201);
    let owners = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
        "uid": owner["metadata"]["uid"],
    }]);
    backend.put(&namespace, "dependent", &owners);
    // A ConfigMap that a flunder owns.
    backend.put(&namespace, "owner", &json!([]));
    let owned = json!({"metadata": {"name": "dependent", "ownerReferences": [{
        "apiVersion": format!("{}/v1", backend.group), "kind": "Flunder", "name": "owner",
        "uid": format!("{namespace}-owner"),
    }]}});
    http.post(&config_maps, &owned).expect(201);
    eventually("the owner has been looked at", || {
        let asked = |seen: &Seen| seen.method == "GET" && seen.path.ends_with("/flunders/owner");
        backend.server.seen().iter().any(asked).then_some(())
    });
    http.get(&format!("{config_maps}/dependent")).expect(200);
    assert!(backend.has(&namespace, "dependent"));

    http.delete(&format!("{config_maps}/owner")).expect(200);
    eventually("the flunder is gone with its owner", || {
        (!backend.has(&namespace, "dependent")).then_some(())
    });
    let path = backend.path(&namespace, "owner");
    http.delete(&path).expect(200);
    eventually("the ConfigMap is gone with its owner", || {
        (http.get(&format!("{config_maps}/dependent")).code == 404).then_some(())
    });
}
