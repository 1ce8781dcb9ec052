//! APIServices that another server answers for, a stand-in of which the test decides every answer.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use integration::aggregated_server::{AnswerBody, Seen, answer, discovery};
use integration::{AggregatedServer, Http, Protocol, Server, eventually, shared};
use serde_json::{Value, json};

/// An aggregated server, and the APIService that leads to it.
pub(crate) struct Aggregated {
    pub(crate) group: String,
    pub(crate) namespace: String,
    pub(crate) backend: AggregatedServer,
    http: Http,
}

/// HTTP/1.1 only, or HTTP/2 as well.
pub(crate) const HTTP1: &[&str] = &["http/1.1"];
pub(crate) const HTTP2: &[&str] = &["h2", "http/1.1"];

impl Aggregated {
    /// Available when this returns. `respond` answers what is not discovery.
    pub(crate) fn start(
        server: &Server,
        purpose: &str,
        alpn: &[&str],
        respond: impl Fn(&Seen) -> Response<AnswerBody> + Send + Sync + 'static,
    ) -> Self {
        let namespace = server.namespace(purpose);
        let group = format!("{namespace}.example.com");
        let own = group.clone();
        let below = format!("/apis/{group}/v1/");
        let backend =
            AggregatedServer::start(&format!("backend.{namespace}.svc"), alpn, move |seen| {
                if seen.path.starts_with(&below)
                    || !seen.path.starts_with("/apis") && !seen.path.starts_with("/openapi")
                {
                    respond(seen)
                } else {
                    discovery(&own, seen)
                }
            });
        let aggregated = Self { group, namespace, backend, http: server.http() };
        aggregated.register();
        aggregated.wait_for("True", "Passed");
        // The condition is written a moment before it counts.
        eventually("requests are proxied", || {
            (aggregated.http.get(&format!("/apis/{}/v1", aggregated.group)).code == 200)
                .then_some(())
        });
        aggregated.backend.forget();
        aggregated
    }

    fn register(&self) {
        let services = format!("/api/v1/namespaces/{}/services", self.namespace);
        // Loopback is no address of a Service, but a name can lead there.
        let service = json!({
            "metadata": {"name": "backend"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        self.http.post(&services, &service).expect(201);
        self.http.post(API_SERVICES, &self.api_service()).expect(201);
    }

    fn api_service(&self) -> Value {
        json!({
            "metadata": {"name": self.name()},
            "spec": {
                "group": self.group,
                "version": "v1",
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
                "service": {
                    "namespace": self.namespace,
                    "name": "backend",
                    "port": self.backend.port(),
                },
                "caBundle": self.backend.ca_bundle,
            },
        })
    }

    fn name(&self) -> String {
        format!("v1.{}", self.group)
    }

    pub(crate) fn path(&self, below: &str) -> String {
        format!("/apis/{}/v1/{below}", self.group)
    }

    /// Any change of the APIService has its server looked at, before its time comes.
    fn touch(&self) {
        let touch = json!({"metadata": {"labels": {"touched": "1"}}});
        let path = format!("{API_SERVICES}/{}", self.name());
        self.http.patch(&path, "application/merge-patch+json", &touch).expect(200);
    }

    fn condition(&self) -> Value {
        let object = self.http.get(&format!("{API_SERVICES}/{}", self.name())).expect(200);
        object["status"]["conditions"][0].clone()
    }

    pub(crate) fn wait_for(&self, status: &str, reason: &str) -> Value {
        eventually(&format!("{} is {status} ({reason})", self.name()), || {
            let condition = self.condition();
            let reached = condition["status"] == status && condition["reason"] == reason;
            reached.then_some(condition)
        })
    }
}

impl Drop for Aggregated {
    fn drop(&mut self) {
        self.http.delete(&format!("{API_SERVICES}/{}", self.name()));
    }
}

pub(crate) const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

fn ok(_: &Seen) -> Response<AnswerBody> {
    answer(200, "application/json", r#"{"kind":"FlunderList"}"#)
}

/// The versions of a group in aggregated discovery.
fn discovered(http: &Http, group: &str) -> Option<Value> {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request = Request::get("/apis").header("accept", accept).body(Bytes::new());
    let list = http.request(request.expect("a valid request")).expect(200);
    let items = list["items"].as_array().expect("a list").clone();
    items.into_iter().find(|item| item["metadata"]["name"] == group)
}

#[test]
fn a_remote_group_version_is_answered_by_its_server() {
    let server = shared();
    for alpn in [HTTP1, HTTP2] {
        let aggregated = Aggregated::start(&server, "remote", alpn, |seen| {
            answer(201, "application/json", format!("{{\"length\":{}}}", seen.body.len()))
        });
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let http = server.http().over(protocol);
            let path = aggregated.path("namespaces/a/flunders?fieldManager=x%20y");
            let answer = http.post(&path, &json!({"a": "b"}));
            assert_eq!(answer.expect(201), json!({"length": 9}));
            let seen = aggregated.backend.seen().pop().expect("a request");
            assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", path.as_str()));
            assert_eq!(seen.body, r#"{"a":"b"}"#);
            assert_eq!(seen.http2, alpn == HTTP2);
            assert!(seen.certificate.is_some(), "the front proxy shows who it is");
        }
    }
}

#[test]
fn discovery_has_remote_group_versions() {
    let server = shared();
    let http = server.http();
    let mut aggregated = Aggregated::start(&server, "discovered", HTTP2, ok);
    let group = aggregated.group.clone();
    let found = eventually("aggregated discovery has the group", || {
        let found = discovered(&http, &group)?;
        (found["versions"][0]["freshness"] == "Current").then_some(found)
    });
    let resource = &found["versions"][0]["resources"][0];
    assert_eq!(resource["resource"], "flunders");
    assert_eq!(resource["scope"], "Namespaced");
    assert_eq!(resource["responseKind"]["kind"], "Flunder");
    let groups = http.get("/apis").expect(200);
    let listed =
        groups["groups"].as_array().expect("a list").iter().any(|item| item["name"] == group);
    assert!(listed, "legacy discovery has the group");
    let one = http.get(&format!("/apis/{group}")).expect(200);
    assert_eq!(one["preferredVersion"]["groupVersion"], format!("{group}/v1"));
    let resources = http.get(&format!("/apis/{group}/v1")).expect(200);
    assert_eq!(resources["resources"][0]["name"], "flunders");

    // Away: what it said last stays, marked.
    let other = AggregatedServer::start("x", HTTP1, ok);
    drop(std::mem::replace(&mut aggregated.backend, other));
    aggregated.touch();
    eventually("aggregated discovery says that the group is stale", || {
        let found = discovered(&http, &group)?;
        let version = &found["versions"][0];
        (version["freshness"] == "Stale" && version["resources"][0]["resource"] == "flunders")
            .then_some(())
    });
    http.delete(&format!("{API_SERVICES}/v1.{group}")).expect(200);
    eventually("the group is gone", || discovered(&http, &group).is_none().then_some(()));
    eventually("its paths are gone", || {
        (http.get(&format!("/apis/{group}/v1")).code == 404).then_some(())
    });
}

#[test]
fn an_api_service_says_what_is_missing() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("missing");
    let group = format!("{namespace}.example.com");
    let name = format!("v1.{group}");
    let service = |port: u16| json!({"namespace": namespace, "name": "backend", "port": port});
    let object = json!({
        "metadata": {"name": name},
        "spec": {
            "group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": service(443), "insecureSkipTLSVerify": true,
        },
    });
    http.post(API_SERVICES, &object).expect(201);
    let reason = |expected: &str| {
        eventually(expected, || {
            let object = http.get(&format!("{API_SERVICES}/{name}")).expect(200);
            let condition = object["status"]["conditions"][0].clone();
            (condition["reason"] == expected)
                .then(|| condition["message"].as_str().unwrap_or("").to_owned())
        })
    };
    let quoted = format!("service/backend in \"{namespace}\"");
    assert_eq!(reason("ServiceNotFound"), format!("{quoted} is not present"));
    let answer = http.get(&format!("/apis/{group}/v1/flunders"));
    assert_eq!((answer.code, answer.text().as_str()), (503, "service unavailable\n"));
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));

    let services = format!("/api/v1/namespaces/{namespace}/services");
    let cluster_ip = json!({
        "metadata": {"name": "backend"},
        "spec": {"ports": [{"name": "https", "port": 8443}]},
    });
    http.post(&services, &cluster_ip).expect(201);
    assert_eq!(reason("ServicePortError"), format!("{quoted} is not listening on port 443"));
    let patch = json!({"spec": {"service": service(8443)}});
    let path = format!("{API_SERVICES}/{name}");
    http.patch(&path, "application/merge-patch+json", &patch).expect(200);
    assert_eq!(reason("EndpointsNotFound"), format!("cannot find endpointslices for {quoted}"));
    let slice = json!({
        "metadata": {"name": "backend-1", "labels": {"kubernetes.io/service-name": "backend"}},
        "addressType": "IPv4",
        "ports": [{"name": "other", "port": 1}],
        "endpoints": [{"addresses": ["192.0.2.1"]}],
    });
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    http.post(&slices, &slice).expect(201);
    assert_eq!(
        reason("MissingEndpoints"),
        format!("endpointslices for {quoted} have no addresses with port name \"https\"")
    );
    let metrics = http.get("/metrics").text();
    assert!(metrics.contains(&format!("aggregator_unavailable_apiservice{{name=\"{name}\"}} 1")));
    http.delete(&path).expect(200);
}

#[test]
fn a_server_that_goes_and_comes_back_is_noticed() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("away");
    let mut aggregated = Aggregated::start(&server, "away", HTTP2, ok);
    let path = aggregated.path(&format!("namespaces/{namespace}/flunders"));
    http.get(&path).expect(200);
    let other = AggregatedServer::start("x", HTTP1, ok);
    let port = aggregated.backend.port();
    drop(std::mem::replace(&mut aggregated.backend, other));
    // Until the next check, the connection fails; from then on it is not even tried.
    let answer = http.get(&path);
    assert_eq!(answer.code, 503, "{}", answer.text());
    assert!(answer.text().starts_with("error trying to reach service: "), "{}", answer.text());
    aggregated.touch();
    let condition = aggregated.wait_for("False", "FailedDiscoveryCheck");
    let message = condition["message"].as_str().unwrap_or_default();
    let url = format!("https://localhost:{port}/apis/{}/v1", aggregated.group);
    assert!(
        message.starts_with(&format!("failing or missing response from {url}: Get \"{url}\": ")),
        "{message}"
    );
    assert_eq!(http.get(&path).text(), "service unavailable\n");
    // A server at another port; its certificate is another one, too.
    let own = aggregated.group.clone();
    let name = format!("backend.{}.svc", aggregated.namespace);
    aggregated.backend = AggregatedServer::start(&name, HTTP2, move |seen| {
        if seen.path.ends_with("/flunders") { ok(seen) } else { discovery(&own, seen) }
    });
    let spec = aggregated.api_service()["spec"].clone();
    let object = format!("{API_SERVICES}/{}", aggregated.name());
    http.patch(&object, "application/merge-patch+json", &json!({"spec": spec})).expect(200);
    aggregated.wait_for("True", "Passed");
    eventually("it answers again", || (http.get(&path).code == 200).then_some(()));
}

#[test]
fn a_watch_is_passed_on_event_by_event() {
    let server = shared();
    for alpn in [HTTP1, HTTP2] {
        let (sender, receiver) = tokio::sync::mpsc::channel(4);
        let receiver = std::sync::Mutex::new(Some(receiver));
        let aggregated = Aggregated::start(&server, "watch", alpn, move |_| {
            let mut events = receiver.lock().expect("not poisoned").take().expect("one watch");
            let body =
                StreamBody::new(futures_util::stream::poll_fn(move |cx| events.poll_recv(cx)));
            let response = Response::builder().header("content-type", "application/json");
            response.body(body.boxed_unsync()).expect("a valid answer")
        });
        let event = |name: &str| {
            let line = format!("{{\"type\":\"ADDED\",\"object\":{{\"name\":\"{name}\"}}}}\n");
            Ok(hyper::body::Frame::data(Bytes::from(line)))
        };
        sender.try_send(event("a")).expect("received");
        let mut watch = server.http().stream(&aggregated.path("flunders?watch=1"));
        assert_eq!(watch.expect("ADDED")["name"], "a");
        sender.try_send(event("b")).expect("received");
        assert_eq!(watch.expect("ADDED")["name"], "b");
        drop(watch);
        eventually("the server learns that the client is gone", || {
            sender.is_closed().then_some(())
        });
    }
}

#[test]
fn an_upgrade_is_passed_on() {
    let server = shared();
    let aggregated = Aggregated::start(&server, "upgrade", HTTP2, |_| {
        let response = Response::builder().status(101);
        let response = response.header("connection", "Upgrade").header("upgrade", "echo");
        response.body(http_body_util::Empty::new().boxed_unsync()).expect("a valid answer")
    });
    let mut raw = server.http().raw().expect("a connection");
    let path = aggregated.path("namespaces/a/flunders/x/connect");
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    raw.write(request.as_bytes()).expect("written");
    let head = raw.read_until(|read| read.ends_with(b"\r\n\r\n")).expect("an answer");
    let head = String::from_utf8_lossy(&head).into_owned();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    raw.write(b"hello").expect("written");
    let echo = raw.read_until(|read| read.len() >= 5).expect("an echo");
    assert_eq!(echo, b"hello");
}

#[test]
fn openapi_has_the_documents_of_remote_servers() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("openapi");
    let group = format!("{namespace}.example.com");
    let own = group.clone();
    let backend =
        AggregatedServer::start(&format!("backend.{namespace}.svc"), HTTP2, move |seen| {
            let path = format!("/openapi/v3/apis/{own}/v1");
            match seen.path.as_str() {
                "/openapi/v3" => {
                    let url = json!({"serverRelativeURL": format!("{path}?hash=1")});
                    let stolen = json!({"serverRelativeURL": "/openapi/v3/version?hash=stolen"});
                    let index =
                        json!({"paths": {format!("apis/{own}/v1"): url, "version": stolen}});
                    answer(200, "application/json", index.to_string())
                }
                "/openapi/v2" => {
                    let paths = json!({
                        format!("/apis/{own}/v1/flunders"): {"get": {
                            "operationId": "listFlunder",
                            "responses": {"200": {"schema": {"$ref": "#/definitions/Flunder"}}},
                        }},
                        "/version/": {"get": {"operationId": "stolen"}},
                    });
                    let definitions = json!({"Flunder": {"type": "object"}, "Unused": {}});
                    let document =
                        json!({"swagger": "2.0", "paths": paths, "definitions": definitions});
                    answer(200, "application/json", document.to_string())
                }
                asked if asked.starts_with(&path) => {
                    answer(200, "application/json", r#"{"openapi":"3.0.0"}"#)
                }
                _ => discovery(&own, seen),
            }
        });
    let aggregated = Aggregated { group: group.clone(), namespace, backend, http: http.clone() };
    aggregated.register();
    aggregated.wait_for("True", "Passed");
    let index = eventually("the index has the group", || {
        let index = http.get("/openapi/v3").json();
        let url = index["paths"][format!("apis/{group}/v1")]["serverRelativeURL"].as_str()?;
        assert_eq!(url, format!("/openapi/v3/apis/{group}/v1?hash=1"));
        Some(index)
    });
    assert_ne!(index["paths"]["version"]["serverRelativeURL"], "/openapi/v3/version?hash=stolen");
    let document = http.get(&format!("/openapi/v3/apis/{group}/v1?hash=1")).expect(200);
    assert_eq!(document["openapi"], "3.0.0");
    let document = eventually("OpenAPI v2 has the group", || {
        let document = http.get("/openapi/v2").json();
        (!document["paths"][format!("/apis/{group}/v1/flunders")].is_null()).then_some(document)
    });
    assert!(document["definitions"]["Flunder"].is_object());
    assert!(document["definitions"]["Unused"].is_null());
    assert_ne!(document["paths"]["/version/"]["get"]["operationId"], "stolen");
    let request = Request::get("/openapi/v2")
        .header("accept", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
        .body(Bytes::new());
    let binary = http.request(request.expect("a valid request"));
    let has = |text: &str| binary.body.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has("listFlunder"), "the binary form has it as well");
}

#[test]
fn openapi_v3_is_converted_for_servers_that_have_v2_only() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("openapi-v2");
    let group = format!("{namespace}.example.com");
    let own = group.clone();
    let name = format!("backend.{namespace}.svc");
    let backend = AggregatedServer::start(&name, HTTP2, move |seen| {
        if seen.path != "/openapi/v2" {
            return discovery(&own, seen);
        }
        let operation = json!({
            "operationId": "listFlunder",
            "produces": ["application/json"],
            "parameters": [{"name": "limit", "in": "query", "type": "integer"}],
            "responses": {"200": {
                "description": "OK", "schema": {"$ref": "#/definitions/Flunder"},
            }},
        });
        let document = json!({
            "swagger": "2.0",
            "info": {"title": "Flunders", "version": "v7"},
            "paths": {
                format!("/apis/{own}/v1/flunders"): {"get": operation},
                "/apis/other/v1/x": {"get": {"operationId": "stolen"}},
            },
            "definitions": {"Flunder": {"type": "object"}, "Unused": {}},
        });
        answer(200, "application/json", document.to_string())
    });
    let aggregated = Aggregated { group: group.clone(), namespace, backend, http: http.clone() };
    aggregated.register();
    aggregated.wait_for("True", "Passed");
    let url = eventually("the index has the group", || {
        let index = http.get("/openapi/v3").json();
        let path = &index["paths"][format!("apis/{group}/v1")]["serverRelativeURL"];
        path.as_str().map(str::to_owned)
    });
    assert!(url.starts_with(&format!("/openapi/v3/apis/{group}/v1?hash=")), "{url}");
    let document = http.get(&url).expect(200);
    assert_eq!(document["openapi"], "3.0.0");
    assert_eq!(document["info"]["title"], "Flunders");
    let paths = document["paths"].as_object().expect("an object");
    assert_eq!(paths.keys().collect::<Vec<_>>(), [&format!("/apis/{group}/v1/flunders")]);
    let get = &document["paths"][format!("/apis/{group}/v1/flunders")]["get"];
    assert_eq!(get["parameters"][0]["schema"]["type"], "integer");
    let answer = &get["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(answer["$ref"], "#/components/schemas/Flunder");
    assert_eq!(document["components"]["schemas"], json!({"Flunder": {"type": "object"}}));
}
