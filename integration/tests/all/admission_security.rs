//! What attackers have tried on the way through admission, each as a test; docs/security.md has the
//! table.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, Request, Response};
use integration::{Answer, Flavour, Http, Reply, Server, Webhook, eventually, shared};
use serde_json::{Value, json};

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const MERGE: &str = "application/merge-patch+json";

/// A webhook configuration for what happens in a namespace, removed at the end of the test.
struct Configured {
    http: Http,
    at: String,
}

impl Configured {
    fn new(http: &Http, path: &str, name: &str, webhook: Value) -> Self {
        let mut complete = json!({
            "name": "decide.example.com",
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "Namespaced"}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
        });
        // The test's own namespace only: other tests use the server, too.
        for (field, value) in webhook.as_object().expect("a webhook is an object") {
            complete[field] = value.clone();
        }
        let configuration = json!({"metadata": {"name": name}, "webhooks": [complete]});
        http.post(path, &configuration).expect(201);
        Self { http: http.clone(), at: format!("{path}/{name}") }
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        self.http.delete(&self.at);
    }
}

fn in_namespace(namespace: &str) -> Value {
    json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}})
}

fn client_config(webhook: &Webhook) -> Value {
    json!({"url": webhook.url("/decide"), "caBundle": webhook.ca_bundle})
}

fn answer(review: &Value, mut response: Value) -> Value {
    response["uid"] = review["request"]["uid"].clone();
    json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
}

/// Allows everything, and keeps what it was asked.
fn recording() -> (Webhook, Arc<Mutex<Vec<Value>>>) {
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let noted = seen.clone();
    let webhook = Webhook::start(move |review| {
        noted.lock().expect("no panic").push(review["request"].clone());
        answer(&review, json!({"allowed": true}))
    });
    (webhook, seen)
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "automountServiceAccountToken": false, "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
    }})
}

fn wait_for_account(server: &Server, namespace: &str) {
    if server.has_controllers() {
        eventually("the default service account", || {
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
            (server.http().get(&path).code == 200).then_some(())
        });
    }
}

/// A01 (CVE-2021-25735): a plugin that changed the new Node had changed the old one as well.
#[test]
fn a_review_has_the_old_object_exactly_as_it_is_stored() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("old-object");
    let node = format!("n-{namespace}");
    let labels = json!({"team": namespace});
    http.post("/api/v1/nodes", &json!({"metadata": {"name": node, "labels": labels}})).expect(201);
    let config_maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    http.post(&config_maps, &json!({"metadata": {"name": "c", "labels": labels}})).expect(201);
    let (webhook, seen) = recording();
    let selected = json!({
        "clientConfig": client_config(&webhook),
        "objectSelector": {"matchLabels": labels},
        "rules": [{
            "operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["nodes", "nodes/status", "configmaps"],
        }],
    });
    let _configured = Configured::new(&http, VALIDATING, &namespace, selected);
    let nodes = format!("/api/v1/nodes/{node}");
    let condition = json!([{"type": "Ready", "status": "True"}]);
    let cases = [
        (
            nodes.clone(),
            "",
            json!({"spec": {"unschedulable": true}, "metadata": {"labels": {"a": "b"}}}),
        ),
        (nodes.clone(), "/status", json!({"status": {"conditions": condition}})),
        (format!("{config_maps}/c"), "", json!({"data": {"a": "b"}})),
    ];
    for (path, subresource, patch) in cases {
        let before = eventually("the webhook is called", || {
            let before = http.get(&path).expect(200);
            seen.lock().expect("no panic").clear();
            let dry_run = format!("{path}{subresource}?dryRun=All");
            http.patch(&dry_run, MERGE, &patch).expect(200);
            (!seen.lock().expect("no panic").is_empty()).then_some(before)
        });
        let seen = seen.lock().expect("no panic");
        let review = seen.last().expect("a review");
        let without_kind = |object: &Value| {
            let mut object = object.clone();
            object["metadata"].as_object_mut().expect("metadata").remove("managedFields");
            object
        };
        assert_eq!(
            without_kind(&review["oldObject"]),
            without_kind(&before),
            "{path}{subresource}"
        );
        assert_ne!(review["object"], review["oldObject"]);
    }
    http.delete(&nodes);
}

/// A05: a standard is checked again by whatever changes a pod later.
#[test]
fn a_standard_is_checked_on_updates_and_subresources() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("later");
    wait_for_account(&server, &namespace);
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    http.post(&pods, &pod("before")).expect(201);
    let labels =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    http.patch(&format!("/api/v1/namespaces/{namespace}"), MERGE, &labels).expect(200);
    let strategic = "application/strategic-merge-patch+json";
    let privileged = json!({"spec": {"ephemeralContainers": [
        {"name": "e", "image": "i", "securityContext": {"privileged": true}}]}});
    let refused = [
        http.patch(&format!("{pods}/before/ephemeralcontainers"), strategic, &privileged),
        http.patch(
            &format!("{pods}/before"),
            strategic,
            &json!({"spec": {"containers": [{"name": "c", "image": "j"}]}}),
        ),
        http.post(&pods, &pod("after")),
    ];
    for refused in refused {
        let status = refused.expect(403);
        let message = status["message"].as_str().expect("a message");
        assert!(message.contains("violates PodSecurity \"restricted:latest\""), "{message}");
    }
    // What is not about the standard may be changed.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    http.patch(&format!("{pods}/before"), MERGE, &label).expect(200);
}

/// A07: a webhook changes the object. It may name a new one; it cannot put it elsewhere, make it one of another
/// kind, or choose what the server fills in.
#[test]
fn a_patch_cannot_forge_the_identity_of_an_object() {
    let server = shared();
    let http = server.http();
    let replace = |path: &str, value: &str| json!([{"op": "add", "path": path, "value": value}]);
    let forged = "11111111-1111-1111-1111-111111111111";
    let cases = [
        (replace("/metadata/name", "other"), 201),
        (replace("/metadata/namespace", "kube-system"), 400),
        (replace("/metadata/uid", forged), 201),
        (replace("/kind", "Secret"), 500),
        (replace("/apiVersion", "v2"), 500),
        (
            json!([{"op": "add", "path": "/metadata/managedFields", "value": [{"manager": "root"}]}]),
            201,
        ),
        (replace("/metadata/resourceVersion", "7"), 500),
    ];
    for (at, (operations, code)) in cases.iter().enumerate() {
        let namespace = server.namespace("identity");
        let patch = STANDARD.encode(operations.to_string());
        let webhook = Webhook::start(move |review| {
            answer(&review, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
        });
        let selected = json!({
            "clientConfig": client_config(&webhook), "namespaceSelector": in_namespace(&namespace),
        });
        let _configured = Configured::new(&http, MUTATING, &namespace, selected);
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let object = json!({"metadata": {"name": format!("c{at}")}});
        let created = eventually("the webhook is called", || {
            let created = http.post(&path, &object);
            let is_seen = webhook.calls() > 0;
            if !is_seen {
                http.delete(&format!("{path}/c{at}"));
            }
            is_seen.then_some(created)
        });
        assert_eq!(created.code, *code, "{operations}: {}", created.text());
        if *code == 201 {
            let name = created.json()["metadata"]["name"].as_str().expect("a name").to_owned();
            let stored = http.get(&format!("{path}/{name}")).expect(200);
            assert_eq!(stored["metadata"]["name"], name.as_str());
            let text = stored.to_string();
            assert!(!text.contains("\"root\"") && !text.contains(forged), "{text}");
        }
    }
}

/// P04 (GO-2022-0965): nesting that overflows a stack, in what a webhook adds.
#[test]
fn a_patch_with_deep_values_is_refused() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("deep");
    let patches = [20_000, 500_000].map(|depth| {
        let value = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        STANDARD.encode(format!(r#"[{{"op":"add","path":"/data","value":{value}}}]"#))
    });
    for patch in patches {
        let webhook = Webhook::start(move |review| {
            answer(&review, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
        });
        let selected = json!({
            "clientConfig": client_config(&webhook), "namespaceSelector": in_namespace(&namespace),
        });
        let _configured = Configured::new(&http, MUTATING, &namespace, selected);
        let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
        eventually("the webhook is called", || {
            let created = http.post(&path, &json!({"metadata": {"name": "c"}}));
            (created.code == 500).then_some(())
        });
    }
    assert_eq!(http.get("/readyz").code, 200);
}

/// A08: warnings are cut, and cannot become headers of their own; annotations carry the webhook's name.
#[test]
fn warnings_of_a_webhook_are_bounded_and_stay_in_their_header() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("warnings");
    let mut warnings: Vec<String> =
        (0..100).map(|n| format!("{n:03}{}", "w".repeat(5_000))).collect();
    warnings.insert(0, "first\r\nX-Injected: yes\r\n\r\nbody".to_owned());
    let webhook = Webhook::start(move |review| {
        answer(
            &review,
            json!({"allowed": true, "warnings": warnings, "auditAnnotations": {"k": "v"}}),
        )
    });
    let selected = json!({
        "clientConfig": client_config(&webhook), "namespaceSelector": in_namespace(&namespace),
    });
    let _configured = Configured::new(&http, VALIDATING, &namespace, selected);
    let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
    let created = eventually("the webhook is called", || {
        let created = http.post(&path, &json!({"metadata": {"name": "c"}}));
        created.headers.contains_key("warning").then_some(created)
    });
    assert_eq!(created.code, 201);
    assert!(created.header("x-injected").is_none());
    let sizes: Vec<usize> =
        created.headers.get_all("warning").iter().map(http::HeaderValue::len).collect();
    assert!(sizes.iter().all(|size| *size < 400), "{sizes:?}");
    assert!(sizes.iter().sum::<usize>() < 8_192, "{sizes:?}");
}

/// A08: a webhook annotates audit events under its own name, and not those of other parts of the server.
#[test]
fn audit_annotations_of_a_webhook_are_named_after_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let (policy, log) = (directory.path().join("policy.yaml"), directory.path().join("audit.log"));
    let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
    fs::write(&policy, rules).expect("a file");
    let flags = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::with(Flavour::from_env(), &flags);
    let (http, namespace) = (server.http(), server.namespace("annotations"));
    let webhook = Webhook::start(|review| {
        let annotations = json!({"k": "v", "authorization.k8s.io/decision": "forged"});
        answer(&review, json!({"allowed": true, "auditAnnotations": annotations}))
    });
    let selected = json!({
        "clientConfig": client_config(&webhook), "namespaceSelector": in_namespace(&namespace),
        "timeoutSeconds": 30,
    });
    let _configured = Configured::new(&http, VALIDATING, &namespace, selected);
    let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
    let created = eventually("the webhook is called", || {
        let created = http.post(&path, &json!({"metadata": {"name": "c"}}));
        (webhook.calls() > 0).then_some(created)
    });
    assert_eq!(created.code, 201);
    let id = created.header("audit-id").expect("an ID").to_owned();
    let event = eventually("the request is recorded", || {
        let events = fs::read_to_string(&log).expect("the log");
        let events = events.lines().filter(|line| line.contains(&id));
        let mut events = events.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.find(|event| event["stage"] == "ResponseComplete")
    });
    let annotations = &event["annotations"];
    assert_eq!(annotations["decide.example.com/k"], "v", "{event}");
    assert_eq!(annotations["authorization.k8s.io/decision"], "allow", "{event}");
    assert!(annotations["k"].is_null(), "{event}");
}

/// P15: two readings of one body would let a webhook allow what is not stored.
#[test]
fn webhooks_see_what_is_stored_of_ambiguous_bodies() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("ambiguous");
    let (webhook, seen) = recording();
    let selected = json!({
        "clientConfig": client_config(&webhook), "namespaceSelector": in_namespace(&namespace),
        "objectSelector": {"matchLabels": {"seen": "yes"}},
    });
    let _configured = Configured::new(&http, VALIDATING, &namespace, selected);
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    eventually("the webhook is called", || {
        let probe = json!({"metadata": {"name": "probe", "labels": {"seen": "yes"}}});
        http.post(&format!("{path}?dryRun=All"), &probe).expect(201);
        (!seen.lock().expect("no panic").is_empty()).then_some(())
    });
    let bodies = [
        r#"{"metadata":{"name":"N","labels":{"seen":"yes"}},"data":{"a":"first"},"Data":{"a":"folded"},"DATA":{"b":"c"}}"#,
        r#"{"metadata":{"name":"N","labels":{"seen":"yes"}},"data":{"a":"first"},"data":{"a":"last"}}"#,
        r#"{"metadata":{"name":"N","labels":{"x":"y"}},"data":{"a":"b","a":"c"},"metadata":{"name":"N","labels":{"seen":"yes"}}}"#,
        r#"{"metadata":{"name":"N","Name":"other","labels":{"seen":"yes"}},"data":{"k":"v"}}"#,
    ];
    for (at, body) in bodies.iter().enumerate() {
        let name = format!("c{at}");
        let body = body.replace("\"N\"", &format!("\"{name}\""));
        seen.lock().expect("no panic").clear();
        let created =
            http.send(Method::POST, &path, Some("application/json"), body.clone()).expect(201);
        let reviewed = seen.lock().expect("no panic").last().expect("a review")["object"].clone();
        let stored = http.get(&format!("{path}/{name}")).expect(200);
        for part in ["data", "metadata"] {
            let of = |object: &Value| {
                let mut part = object[part].clone();
                if let Some(part) = part.as_object_mut() {
                    part.remove("resourceVersion");
                    part.remove("managedFields");
                }
                part
            };
            assert_eq!(of(&reviewed), of(&stored), "{body}");
            assert_eq!(of(&created), of(&stored), "{body}");
        }
        let strict = format!("{path}?fieldValidation=Strict&dryRun=All");
        http.send(Method::POST, &strict, Some("application/json"), body).expect(400);
    }
}

/// P16: neither requests nor answers of webhooks are decompressed beyond a bound.
#[test]
fn compressed_bodies_are_refused_and_compressed_answers_bounded() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("compressed");
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let gzip = STANDARD.decode(GZIP_OF_ZEROS).expect("base64");
    let request = Request::post(&path)
        .header("Content-Type", "application/json")
        .header("Content-Encoding", "gzip")
        .body(Bytes::from(gzip.clone()))
        .expect("a valid request");
    assert_eq!(http.request(request).code, 400);
    let webhook = Webhook::start_with(move |_| {
        let response = Response::builder()
            .header("content-type", "application/json")
            .header("content-encoding", "gzip");
        Reply::Raw(response.body(Bytes::from(gzip.clone())).expect("a response"))
    });
    let selected = json!({
        "clientConfig": client_config(&webhook), "namespaceSelector": in_namespace(&namespace),
    });
    let _configured = Configured::new(&http, VALIDATING, &namespace, selected);
    let status = eventually("the webhook is called", || {
        let created = http.post(&format!("{path}?dryRun=All"), &json!({"metadata": {"name": "c"}}));
        (created.code == 500).then(|| created.json())
    });
    let message = status["message"].as_str().expect("a message");
    assert!(message.contains("failed calling webhook"), "{message}");
    // Nothing is decompressed, so that nothing needs a bound. kube-apiserver decompresses up to its limit.
    if !server.flavour().is_peer() {
        assert!(message.contains("unrequested Content-Encoding"), "{message}");
    }
}

/// 64 KB of zeros.
const GZIP_OF_ZEROS: &str = "H4sIAPtR/GoC/+3BAQEAAACAkP6v7ggKAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAauuOl9cAAAEA";

/// H09 (CVE-2026-33814): a webhook over HTTP/2 whose settings allow no frame at all.
#[test]
fn settings_that_allow_no_frames_end_the_call() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("settings");
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = rustls_pki_types::PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS")
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .expect("they belong together");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("a bound socket has an address");
    thread::spawn(move || {
        while let Ok((tcp, _)) = listener.accept() {
            let config = config.clone();
            thread::spawn(move || {
                tcp.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
                let tls = rustls::ServerConnection::new(config).expect("a connection");
                let mut stream = rustls::StreamOwned::new(tls, tcp);
                // SETTINGS_MAX_FRAME_SIZE = 0.
                let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0];
                if stream.write_all(&settings).is_ok() {
                    let mut rest = [0; 1024];
                    while matches!(stream.read(&mut rest), Ok(1..)) {}
                }
            });
        }
    });
    let selected = json!({
        "clientConfig": {
            "url": format!("https://{address}/"), "caBundle": STANDARD.encode(own.cert.pem()),
        },
        "namespaceSelector": in_namespace(&namespace),
        "timeoutSeconds": 2,
    });
    let _configured = Configured::new(&http, VALIDATING, &namespace, selected);
    let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
    let status = eventually("the webhook is called", || {
        let created = http.post(&path, &json!({"metadata": {"name": "c"}}));
        (created.code == 500).then(|| created.json())
    });
    let message = status["message"].as_str().expect("a message");
    assert!(message.contains("failed calling webhook"), "{message}");
}

/// R05 (CVE-2016-1905): every route that writes passes webhooks and policies; the other routes are in
/// `admission_webhooks::every_way_to_write_passes_the_webhooks`.
#[test]
fn subresources_that_write_pass_webhooks_and_policies() {
    let server = shared();
    let http = server.http();
    for kind in ["webhook", "policy"] {
        let namespace = server.namespace(&format!("routes-{kind}"));
        wait_for_account(&server, &namespace);
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        http.post(&pods, &pod("p")).expect(201);
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        let webhook = Webhook::start(|review| answer(&review, json!({"allowed": false})));
        let configured = if kind == "webhook" {
            let selected = json!({
                "clientConfig": client_config(&webhook),
                "namespaceSelector": in_namespace(&namespace),
            });
            vec![Configured::new(&http, VALIDATING, &namespace, selected)]
        } else {
            deny_by_policy(&http, &namespace)
        };
        let strategic = "application/strategic-merge-patch+json";
        let ephemeral = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}});
        let resize = json!({"spec": {"containers": [
            {"name": "c", "resources": {"requests": {"cpu": "2"}}}]}});
        let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
        let eviction =
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
        let status = json!({"status": {"phase": "Running"}});
        let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
        let ways: [(&str, Send<'_>); 8] = [
            ("create", Box::new(|| http.post(&pods, &pod("q")))),
            (
                "ephemeralcontainers",
                Box::new(|| {
                    http.patch(&format!("{pods}/p/ephemeralcontainers"), strategic, &ephemeral)
                }),
            ),
            ("resize", Box::new(|| http.patch(&format!("{pods}/p/resize"), strategic, &resize))),
            ("binding", Box::new(|| http.post(&format!("{pods}/p/binding"), &binding))),
            ("eviction", Box::new(|| http.post(&format!("{pods}/p/eviction"), &eviction))),
            ("status", Box::new(|| http.patch(&format!("{pods}/p/status"), MERGE, &status))),
            (
                "create by update",
                Box::new(|| {
                    let lease = json!({"metadata": {"name": "l"}, "spec": {}});
                    http.put(&format!("{leases}/l"), &lease)
                }),
            ),
            (
                "create by apply",
                Box::new(|| {
                    let path =
                        format!("/api/v1/namespaces/{namespace}/configmaps/new?fieldManager=m");
                    http.patch(&path, "application/apply-patch+yaml", &apply)
                }),
            ),
        ];
        for (way, send) in ways {
            let message = eventually(way, || {
                let status = send().json();
                let message = status["message"].as_str().unwrap_or_default().to_owned();
                message.contains("denied").then_some(message)
            });
            assert!(
                message.contains(if kind == "webhook" { "webhook" } else { "Policy" }),
                "{message}"
            );
        }
        drop(configured);
        http.get(&format!("{pods}/p")).expect(200);
    }
}

type Send<'a> = Box<dyn Fn() -> Answer + 'a>;

/// A policy that allows nothing in a namespace, with its binding.
fn deny_by_policy(http: &Http, namespace: &str) -> Vec<Configured> {
    policy(http, namespace, "false")
}

/// A policy with this expression for what happens in a namespace, with its binding.
fn policy(http: &Http, namespace: &str, expression: &str) -> Vec<Configured> {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let policies = format!("{group}/validatingadmissionpolicies");
    let bindings = format!("{group}/validatingadmissionpolicybindings");
    let rules = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "Namespaced"}]);
    let policy = json!({"metadata": {"name": namespace}, "spec": {
        "matchConstraints": {"resourceRules": rules, "namespaceSelector": in_namespace(namespace)},
        "validations": [{"expression": expression}],
    }});
    http.post(&policies, &policy).expect(201);
    let binding = json!({"metadata": {"name": namespace}, "spec": {
        "policyName": namespace, "validationActions": ["Deny"],
    }});
    http.post(&bindings, &binding).expect(201);
    let configured =
        |path: &str| Configured { http: http.clone(), at: format!("{path}/{namespace}") };
    vec![configured(&bindings), configured(&policies)]
}

/// A13: `authorizer` and `request.userInfo` are about the user that the request acts as, and not about the one
/// that sent it or the author of the policy.
#[test]
fn expressions_ask_about_the_impersonated_user() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("asked-about");
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    let role = json!({"metadata": {"name": "maps"}, "rules": [{
        "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"],
    }]});
    http.post(&format!("{rbac}/roles"), &role).expect(201);
    let binding = json!({
        "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maps"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "limited"}],
    });
    http.post(&format!("{rbac}/rolebindings"), &binding).expect(201);
    // The administrator may delete, the impersonated user may not.
    let _configured = policy(
        &http,
        &namespace,
        "request.userInfo.username != 'limited' || \
         authorizer.requestResource.check('delete').allowed()",
    );
    let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
    let create = |user: Option<&str>| {
        let mut request = Request::post(&path).header("Content-Type", "application/json");
        if let Some(user) = user {
            request = request.header("Impersonate-User", user);
        }
        let body = json!({"metadata": {"name": "a"}}).to_string();
        http.request(request.body(body.into()).expect("a valid request")).code
    };
    eventually("the user may create and the policy counts", || {
        (create(Some("limited")) == 422).then_some(())
    });
    assert_eq!(create(None), 201);
}

/// A11 (GO-2026-6094): expressions see the fields that the API declares, and nothing else.
#[test]
fn expressions_see_declared_fields_only() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("private");
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    for (at, expression) in [
        "request.userInfo.token == ''",
        "namespaceObject.metadata.Labels == {}",
        "request.object == null",
        "authorizer.user == ''",
    ]
    .iter()
    .enumerate()
    {
        let policy = json!({"metadata": {"name": format!("{namespace}-{at}")}, "spec": {
            "matchConstraints": {"resourceRules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            }]},
            "validations": [{"expression": expression}],
        }});
        let status = http.post(policies, &policy).expect(422);
        let message = status["message"].as_str().expect("a message");
        assert!(message.contains("compilation failed"), "{expression}: {message}");
    }
}

/// A14, A15, R11: paths out of a volume, addresses of the node itself, and numbers that are read as octal.
#[test]
fn paths_and_addresses_that_lead_elsewhere_are_refused() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("elsewhere");
    wait_for_account(&server, &namespace);
    let at = |resource: &str| format!("/api/v1/namespaces/{namespace}/{resource}");
    let mount = |mount: Value, volume: Value| {
        let mut pod = pod("p");
        let mut mounted = json!({"name": "v", "mountPath": "/m"});
        for (field, value) in mount.as_object().expect("an object") {
            mounted[field] = value.clone();
        }
        pod["spec"]["containers"][0]["volumeMounts"] = json!([mounted]);
        let mut own = json!({"name": "v"});
        for (field, value) in volume.as_object().expect("an object") {
            own[field] = value.clone();
        }
        pod["spec"]["volumes"] = json!([own]);
        pod
    };
    let empty = json!({"emptyDir": {}});
    let projected = |path: &str| json!({"projected": {"sources": [{"configMap": {"name": "c", "items": [{"key": "k", "path": path}]}}]}});
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let slice = |address: &str| {
        json!({
            "metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [{"addresses": [address]}], "ports": [],
        })
    };
    let endpoints = |address: &str| {
        json!({
            "metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": 80}]}],
        })
    };
    let external = |address: &str| {
        json!({
            "metadata": {"name": "s"}, "spec": {"clusterIP": "None", "externalIPs": [address], "ports": [{"port": 80}]},
        })
    };
    let mut cases = vec![
        (at("pods"), mount(json!({"subPath": "../../etc"}), empty.clone())),
        (at("pods"), mount(json!({"subPath": "/etc"}), empty.clone())),
        (at("pods"), mount(json!({"subPathExpr": "$(POD)/../.."}), empty.clone())),
        (at("pods"), mount(json!({}), json!({"hostPath": {"path": "/var/../etc"}}))),
        (at("pods"), mount(json!({}), projected("../x"))),
        (at("pods"), mount(json!({}), projected("a/../../x"))),
    ];
    for address in ["127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "010.0.0.1"] {
        cases.push((slices.clone(), slice(address)));
        cases.push((at("endpoints"), endpoints(address)));
    }
    for address in ["127.0.0.1", "169.254.0.1", "0.0.0.0", "224.0.0.1", "010.0.0.1", "::1"] {
        cases.push((at("services"), external(address)));
    }
    for (path, object) in cases {
        let refused = http.post(&path, &object);
        assert_eq!(refused.code, 422, "{object}: {}", refused.text());
    }
    http.post(&at("services"), &external("192.0.2.1")).expect(201);
    let load_balancer = json!({"status": {"loadBalancer": {"ingress": [{"ip": "010.0.0.1"}]}}});
    http.patch(&format!("{}/s/status", at("services")), MERGE, &load_balancer).expect(422);
}
