//! Aggregated API servers whose discovery, OpenAPI and answers are huge, slow, endless or garbage, and floods of
//! their registrations.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, StreamBody};
use integration::aggregated_server::{AnswerBody, Seen, answer, discovery};
use integration::{AggregatedServer, Http, eventually};
use serde_json::{Value, json};

use super::{Case, Client, NAMESPACE, Outcome, open, request, sized};

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const GROUP: &str = "huge.example.com";

pub(super) fn cases() -> Vec<Case> {
    vec![
        of_discovery("aggregated server: discovery of 100 MB", || vec![b' '; sized(100_000_000)]),
        of_discovery("aggregated server: discovery of nested lists", || {
            vec![b'['; sized(2_000_000)]
        }),
        of_discovery("aggregated server: discovery that is garbage", || {
            vec![0xff; sized(1_000_000)]
        }),
        aggregated("aggregated server: discovery without an end", "/apis", endless),
        aggregated("aggregated server: OpenAPI without an end", "/openapi", endless),
        aggregated("aggregated server: OpenAPI of 8 MB of empty objects", "/openapi/v2", || {
            let objects = "{},".repeat(sized(2_600_000));
            answer(200, "application/json", format!("{{\"paths\":[{objects}{{}}]}}"))
        }),
        aggregated(
            "aggregated server: an index of OpenAPI of empty objects",
            "/openapi/v3",
            || {
                let objects = "{},".repeat(sized(330_000));
                answer(200, "application/json", format!("[{objects}{{}}]"))
            },
        ),
        aggregated("aggregated server: OpenAPI of nested lists", "/openapi/v2", || {
            answer(200, "application/json", vec![b'['; sized(2_000_000)])
        }),
        aggregated("aggregated server: 8 MB of OpenAPI of its own group", "/openapi/v2", || {
            let path = |at: usize| (format!("/apis/{GROUP}/v1/r{at}"), json!({"get": {}}));
            let paths: serde_json::Map<String, Value> = (0..sized(130_000)).map(path).collect();
            answer(200, "application/json", json!({"paths": paths}).to_string())
        }),
        aggregated("aggregated server: 100 000 references in a circle", "/openapi/v2", || {
            let to = |at: usize| json!({"$ref": format!("#/definitions/d{at}")});
            let count = sized(100_000);
            let definition = |at: usize| (format!("d{at}"), to((at + 1) % count));
            let definitions: serde_json::Map<String, Value> = (0..count).map(definition).collect();
            let paths = json!({format!("/apis/{GROUP}/v1/r"): to(0)});
            let document = json!({"paths": paths, "definitions": definitions});
            answer(200, "application/json", document.to_string())
        }),
        converted("aggregated server: a schema for 100 000 media types", || {
            let media: Vec<String> = (0..sized(100_000)).map(|at| format!("a/{at}")).collect();
            let properties: serde_json::Map<String, Value> = (0..sized(50_000))
                .map(|at| (format!("p{at}"), json!({"type": "string"})))
                .collect();
            let operation = json!({"produces": media, "responses": {
                "200": {"schema": {"type": "object", "properties": properties}}}});
            let paths = json!({format!("/apis/{GROUP}/v1/r"): {"get": operation}});
            answer(200, "application/json", json!({"paths": paths}).to_string())
        }),
        proxied("aggregated server: 64 MB, which are read", |http| {
            // What the client asked for, so it counts neither as an answer nor to its end.
            let mut stream = open(http, &get(http, "flunders"));
            let mut buffer = vec![0; 256 << 10];
            let mut rest = sized(64_000_000);
            while let Ok(count @ 1..) = std::io::Read::read(&mut stream, &mut buffer)
                && rest > count
            {
                rest -= count;
            }
            Outcome::code(200)
        }),
        proxied("aggregated server: 30 answers without an end, not read", |http| {
            let head = get(http, "flunders");
            let open: Vec<_> = (0..30).map(|_| open(http, &head)).collect();
            wait(Duration::from_secs(2));
            drop(open);
            Outcome::code(200)
        }),
        proxied("aggregated server: 100 requests without an answer", |http| {
            let head = get(http, "silent");
            let open: Vec<_> = (0..sized(800).min(100)).map(|_| open(http, &head)).collect();
            wait(Duration::from_secs(1));
            drop(open);
            Outcome::code(200)
        }),
        Case::new("api services: 100 that lead nowhere", Client::ClusterAdmin, &[201], |http| {
            let mut last = Outcome::code(0);
            for at in 0..sized(100) {
                let group = format!("g{at}.nowhere.example.com");
                last =
                    Outcome::from(&http.post(API_SERVICES, &api_service(&group, "nowhere", 443)));
            }
            last
        })
        .after(|admin| {
            for at in 0..sized(100) {
                admin.delete(&format!("{API_SERVICES}/v1.g{at}.nowhere.example.com")).expect(200);
            }
        }),
    ]
}

/// Servers with many resources. They are apart from the others because discovery shows the resources of a server that is
/// away for a while, which is work during the next cases.
pub(super) fn cases_of_many_resources() -> Vec<Case> {
    vec![
        of_discovery("aggregated server: discovery of 30 000 resources", || {
            let resource = |at: usize| {
                json!({"name": format!("r{at}"), "singularName": "", "namespaced": true,
                    "kind": "R", "verbs": ["get"]})
            };
            let resources: Vec<Value> = (0..sized(30_000)).map(resource).collect();
            let list = json!({"kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": format!("{GROUP}/v1"), "resources": resources});
            list.to_string().into()
        }),
        of_discovery("aggregated server: 30 000 resources to watch", || {
            let resource = |at: usize| {
                json!({"name": format!("r{at}"), "singularName": "", "namespaced": true,
                    "kind": "R", "verbs": ["list", "watch", "delete"]})
            };
            let resources: Vec<Value> = (0..sized(30_000)).map(resource).collect();
            let list = json!({"kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": format!("{GROUP}/v1"), "resources": resources});
            list.to_string().into()
        }),
        of_discovery("aggregated server: discovery of a million empty resources", || {
            let resources = "{},".repeat(sized(1_000_000));
            format!("{{\"resources\":[{resources}{{}}]}}").into()
        }),
    ]
}

fn of_discovery(name: &'static str, body: fn() -> Vec<u8>) -> Case {
    // Made before anything is measured: the test would keep the processor from the server.
    let body = Bytes::from(body());
    aggregated(name, "/apis", move || answer(200, "application/json", body.clone()))
}

/// Lets time pass in which the server could gather what it must not.
pub(super) fn wait(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::thread::park_timeout(time);
    }
}

fn endless() -> Response<AnswerBody> {
    let chunk = || Ok(hyper::body::Frame::data(Bytes::from(vec![b' '; 1 << 20])));
    let body = StreamBody::new(futures_util::stream::repeat_with(chunk));
    Response::builder()
        .header("content-type", "application/json")
        .body(body.boxed_unsync())
        .expect("a valid answer")
}

/// An APIService whose server answers with this below a path. What is measured is from its registration until the
/// aggregator has read it twice, or what else it wants of the server.
fn aggregated(
    name: &'static str,
    below: &'static str,
    document: impl Fn() -> Response<AnswerBody> + Send + Sync + 'static,
) -> Case {
    let document = Arc::new(document);
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = asked.clone();
    let server = AggregatedServer::start(&host(), &["http/1.1"], move |request| {
        if request.path.starts_with(below) {
            seen.fetch_add(1, Ordering::SeqCst);
            return document();
        }
        respond(request)
    });
    let port = server.port();
    Case::new(name, Client::ClusterAdmin, &[200], move |http| {
        // The server ends with its case.
        let _ = &server;
        http.post(API_SERVICES, &api_service(GROUP, "huge", port)).expect(201);
        let times = if below == "/apis" { 2 } else { 1 };
        eventually("the aggregator reads the document", || {
            (asked.load(Ordering::SeqCst) >= times).then_some(())
        });
        // It may still be at it: its answer to a client tells nothing about that.
        wait(Duration::from_secs(1));
        request(http, "/apis", &[])
    })
    .before(add_service)
    .after(remove)
}

/// The same with OpenAPI v2, which is read as v3.
fn converted(
    name: &'static str,
    document: impl Fn() -> Response<AnswerBody> + Send + Sync + 'static,
) -> Case {
    let case = aggregated(name, "/openapi/v2", document);
    let read = case.attack;
    Case {
        attack: Box::new(move |http| {
            read(http);
            // As long as its server makes it, up to a bound.
            eventually("it is converted", || {
                let outcome = request(http, &format!("/openapi/v3/apis/{GROUP}/v1"), &[]);
                assert!(outcome.bytes < 40_000_000, "{} bytes", outcome.bytes);
                (outcome.code == 200).then_some(())
            });
            Outcome::code(200)
        }),
        ..case
    }
}

/// Requests to a server that is fine, and whose `flunders` have no end.
fn proxied(name: &'static str, attack: impl Fn(&Http) -> Outcome + 'static) -> Case {
    let server = AggregatedServer::start(&host(), &["http/1.1"], |request| {
        if request.path.contains("/silent") {
            let silence = futures_util::stream::pending();
            return Response::new(StreamBody::new(silence).boxed_unsync());
        }
        if request.path.contains("/flunders") { endless() } else { respond(request) }
    });
    let port = server.port();
    Case::new(name, Client::ClusterAdmin, &[200], move |http| {
        let _ = &server;
        attack(http)
    })
    .before(move |admin| {
        add_service(admin);
        admin.post(API_SERVICES, &api_service(GROUP, "huge", port)).expect(201);
        let path = format!("{API_SERVICES}/v1.{GROUP}");
        eventually("it is available", || {
            let object = admin.get(&path).expect(200);
            (object["status"]["conditions"][0]["status"] == "True").then_some(())
        });
    })
    .after(remove)
}

fn respond(seen: &Seen) -> Response<AnswerBody> {
    discovery(GROUP, seen)
}

fn host() -> String {
    format!("huge.{NAMESPACE}.svc")
}

fn get(http: &Http, resource: &str) -> String {
    let (host, authorization) = (http.host(), http.authorization());
    format!("GET /apis/{GROUP}/v1/{resource} HTTP/1.1\r\nHost: {host}\r\n{authorization}\r\n")
}

pub(super) fn add_service(admin: &Http) {
    let service = json!({"metadata": {"name": "huge"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    admin.post(&format!("/api/v1/namespaces/{NAMESPACE}/services"), &service).expect(201);
}

pub(super) fn remove(admin: &Http) {
    admin.delete(&format!("{API_SERVICES}/v1.{GROUP}")).expect(200);
    admin.delete(&format!("/api/v1/namespaces/{NAMESPACE}/services/huge")).expect(200);
}

pub(super) fn api_service(group: &str, service: &str, port: u16) -> Value {
    json!({
        "metadata": {"name": format!("v1.{group}")},
        "spec": {
            "group": group, "version": "v1", "groupPriorityMinimum": 1000,
            "versionPriority": 15, "insecureSkipTLSVerify": true,
            "service": {"namespace": NAMESPACE, "name": service, "port": port},
        },
    })
}
