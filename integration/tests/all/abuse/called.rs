//! Servers that the API server calls, and that answer a byte at a time or without an end: webhooks, aggregated
//! servers, an OpenID issuer. Every call has one deadline from its first byte to its last.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use integration::{Authority, Behaviour, CraftedServer, Http, eventually, http2};
use serde_json::{Value, json};

use super::aggregated::{add_service, api_service, remove, wait};
use super::hooks::{DEFINITIONS, MUTATING};
use super::{Case, Client, NAMESPACE, Outcome, request, sized};

/// Longer than any call may take.
const PAUSE: Duration = Duration::from_millis(200);

fn trickle() -> Behaviour {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n";
    let bytes = [head.as_bytes(), &[b' '; 2_000]].concat();
    Behaviour::Trickle { bytes, pause: PAUSE }
}

/// Heads of responses 103, one behind the other.
pub(super) fn informational() -> Behaviour {
    Behaviour::Flood(|stream| {
        let status = http2::literal(":status", b"103");
        http2::frame(http2::HEADERS, http2::END_HEADERS, stream, &status)
    })
}

pub(super) fn pings() -> Behaviour {
    Behaviour::Flood(|_| http2::frame(http2::PING, 0, 0, &[7; 8]))
}

fn window_updates() -> Behaviour {
    Behaviour::Flood(|stream| http2::frame(http2::WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1]))
}

/// An OpenID issuer, which the server is told about when it starts.
pub(super) struct Issuer {
    server: CraftedServer,
    ca_file: String,
}

impl Issuer {
    pub(super) fn start(directory: &Path) -> Self {
        let authority = Authority::new("issuers");
        let ca_file = directory.join("issuer.crt");
        std::fs::write(&ca_file, &authority.pem).expect("a file");
        let server = CraftedServer::start(&authority.server(&["127.0.0.1"]), trickle());
        Self { server, ca_file: ca_file.display().to_string() }
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.server.port())
    }

    pub(super) fn flags(&self) -> Vec<String> {
        vec![
            format!("--oidc-issuer-url={}", self.url()),
            "--oidc-client-id=pintle".to_owned(),
            format!("--oidc-ca-file={}", self.ca_file),
        ]
    }
}

pub(super) fn cases(issuer: Issuer) -> Vec<Case> {
    vec![
        webhook("webhook: 30 answers of a byte at a time", trickle()),
        webhook("webhook: informational responses without end over HTTP/2", informational()),
        webhook("webhook: pings without end over HTTP/2", pings()),
        webhook("webhook: window updates without end over HTTP/2", window_updates()),
        converted("conversion: 30 answers of a byte at a time", trickle()),
        converted("conversion: informational responses without end over HTTP/2", informational()),
        aggregated("aggregated server: a byte at a time", trickle()),
        aggregated(
            "aggregated server: informational responses without end over HTTP/2",
            informational(),
        ),
        aggregated("aggregated server: pings without end over HTTP/2", pings()),
        tokens(issuer),
    ]
}

fn client_config(server: &CraftedServer, authority: &Authority) -> Value {
    use base64::Engine as _;
    let bundle = base64::engine::general_purpose::STANDARD.encode(&authority.pem);
    json!({"url": format!("https://127.0.0.1:{}/", server.port()), "caBundle": bundle})
}

/// Writes that a webhook is asked about, with a second for it.
fn webhook(name: &'static str, behaviour: Behaviour) -> Case {
    let authority = Authority::new("webhooks");
    let server = CraftedServer::start(&authority.server(&["127.0.0.1"]), behaviour);
    let configuration = json!({"metadata": {"name": "slow"}, "webhooks": [{
        "name": "slow.example.com",
        "clientConfig": client_config(&server, &authority),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"],
            "operations": ["CREATE"]}],
    }]});
    Case::new(name, Client::ClusterAdmin, &[500], move |http| {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets?dryRun=All");
        let object = json!({"metadata": {"generateName": "hooked-"}});
        let first = eventually("the webhook is called", || {
            let answer = http.post(&path, &object);
            (server.requests() > 0).then(|| Outcome::from(&answer))
        });
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..30 {
                scope.spawn(|| drop(http.post(&path, &object)));
            }
        });
        // Each has a second, and a busy machine some more.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        first
    })
    .before(move |admin| drop(admin.post(MUTATING, &configuration).expect(201)))
    .after(|admin| drop(admin.delete(&format!("{MUTATING}/slow")).expect(200)))
}

const CONVERTED: &str = "slow.abuse.example.com";

/// Reads in a version that a webhook has to make.
fn converted(name: &'static str, behaviour: Behaviour) -> Case {
    let authority = Authority::new("webhooks");
    let server = CraftedServer::start(&authority.server(&["127.0.0.1"]), behaviour);
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let definition = json!({
        "metadata": {"name": format!("things.{CONVERTED}")},
        "spec": {
            "group": CONVERTED, "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": client_config(&server, &authority),
            }},
            "versions": [version("v1", true), version("v2", false)],
        },
    });
    let path = |version: &str| format!("/apis/{CONVERTED}/{version}/namespaces/{NAMESPACE}/things");
    let (stored, served) = (path("v1"), path("v2"));
    Case::new(name, Client::ClusterAdmin, &[0], move |http| {
        // Its timeout is half a minute, so the clients leave before.
        let head = get(http, &served);
        let open: Vec<_> = (0..30).map(|_| super::open(http, &head)).collect();
        eventually("the webhook is called", || (server.requests() > 0).then_some(()));
        wait(Duration::from_secs(1));
        drop(open);
        Outcome::code(0)
    })
    .before(move |admin| {
        admin.post(DEFINITIONS, &definition).expect(201);
        eventually("the resource is served", || (admin.get(&stored).code == 200).then_some(()));
        let object = json!({"apiVersion": format!("{CONVERTED}/v1"), "kind": "Thing",
            "metadata": {"name": "thing"}});
        admin.post(&stored, &object).expect(201);
    })
    .after(|admin| {
        let definition = format!("{DEFINITIONS}/things.{CONVERTED}");
        admin.delete(&definition).expect(200);
        eventually("it is gone", || (admin.get(&definition).code == 404).then_some(()));
    })
}

fn get(http: &Http, path: &str) -> String {
    let (host, authorization) = (http.host(), http.authorization());
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{authorization}\r\n")
}

const GROUP: &str = "huge.example.com";

/// A server that is registered: its availability, discovery and OpenAPI are read.
fn aggregated(name: &'static str, behaviour: Behaviour) -> Case {
    let authority = Authority::new("aggregated servers");
    let host = format!("huge.{NAMESPACE}.svc");
    let server = CraftedServer::start(&authority.server(&[host.as_str()]), behaviour);
    Case::new(name, Client::ClusterAdmin, &[200], move |http| {
        http.post("/apis/apiregistration.k8s.io/v1/apiservices", &{
            api_service(GROUP, "huge", server.port())
        })
        .expect(201);
        eventually("the aggregator calls it", || (server.requests() > 0).then_some(()));
        let head = get(http, &format!("/apis/{GROUP}/v1/flunders"));
        let open: Vec<_> = (0..30).map(|_| super::open(http, &head)).collect();
        wait(Duration::from_secs(2));
        drop(open);
        request(http, "/apis", &[])
    })
    .before(add_service)
    .after(remove)
}

/// Tokens of an issuer whose keys are not known yet: each is refused at once, and fetches nothing.
fn tokens(issuer: Issuer) -> Case {
    Case::new(
        "token: 1 000 of an issuer that answers a byte at a time",
        Client::Anonymous,
        &[401],
        move |http| {
            use base64::Engine as _;
            let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
            let part = |value: Value| engine.encode(value.to_string());
            let mut last = Outcome::code(0);
            for at in 0..sized(1_000) {
                let header = part(json!({"alg": "RS256", "kid": format!("key-{at}")}));
                let claims = part(json!({"iss": issuer.url(), "aud": "pintle", "sub": "jane",
                    "exp": 4_000_000_000_u64}));
                let token = format!("{header}.{claims}.{}", engine.encode([7; 256]));
                let authorization = [("authorization", format!("Bearer {token}"))];
                last = request(http, "/version", &authorization);
            }
            let asked = issuer.server.requests();
            assert!(asked < 20, "the issuer was asked {asked} times");
            last
        },
    )
}
