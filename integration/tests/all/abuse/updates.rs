//! Updates whose refusal shows how two objects differ, and keys and certificates that are long lists.

use http::Method;
use integration::Http;
use serde_json::{Value, json};

use super::{Case, Client, JSON, NAMESPACE, Outcome, sized};

pub(super) fn cases() -> Vec<Case> {
    let containers = |count: usize, variables: usize, step: usize| {
        let container = |at: usize| json!({"name": format!("c{at}"), "image": "i", "env": environment(variables, step)});
        (0..count).map(container).collect::<Value>()
    };
    let pod = |containers: Value| {
        json!({"metadata": {"name": "updated"}, "spec": {"containers": containers,
            "automountServiceAccountToken": false}})
    };
    vec![
        updated(
            "pod: an update in which 4 500 lines have moved",
            "",
            pod(containers(1, 900, 7)),
            pod(containers(1, 900, 11)),
        ),
        updated(
            "pod: an update of 40 000 lines",
            "",
            pod(containers(sized(80), 100, 7)),
            pod(containers(sized(80), 100, 11)),
        ),
        updated(
            "pod: 40 changed ephemeral containers",
            "/ephemeralcontainers",
            with_ephemeral(pod(containers(1, 1, 1)), sized(40), 7),
            with_ephemeral(pod(containers(1, 1, 1)), sized(40), 11),
        ),
        secret("secret: a key that is 380 000 nulls", || sequence(&[5, 0].repeat(sized(380_000)))),
        secret("secret: a key of 250 000 numbers", || sequence(&[2, 1, 5].repeat(sized(250_000)))),
        secret("secret: a key of 50 000 levels", || [0x30, 0x80].repeat(sized(50_000))),
        tls_secret("secret: 20 000 certificates that are none", || {
            let block =
                "-----BEGIN CERTIFICATE REQUEST-----\nYQ==\n-----END CERTIFICATE REQUEST-----\n";
            block.repeat(sized(12_000))
        }),
    ]
}

/// Variables with few names, so that each line is found in many places and no long run of lines matches.
fn environment(count: usize, step: usize) -> Value {
    let names = 100;
    let variable = |at: usize| {
        let number = (at * step + at / 7) % names;
        json!({"name": format!("N{number}"), "value": format!("{}", (number * 31) % names)})
    };
    (0..count).map(variable).collect()
}

fn with_ephemeral(mut pod: Value, count: usize, step: usize) -> Value {
    let container =
        |at: usize| json!({"name": format!("e{at}"), "image": "i", "env": environment(700, step)});
    pod["spec"]["ephemeralContainers"] = (0..count).map(container).collect();
    pod
}

/// A pod that is there, and an update that is refused.
fn updated(name: &'static str, subresource: &'static str, before: Value, after: Value) -> Case {
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let (path, all) = (format!("{pods}/updated"), pods.clone());
    let put = format!("{path}{subresource}");
    Case::new(name, Client::ClusterAdmin, &[422], move |http| {
        Outcome::from(&http.send(Method::PUT, &put, Some(JSON), after.to_string()))
    })
    .before(move |admin| {
        let mut first = before.clone();
        first["spec"].as_object_mut().expect("a spec").remove("ephemeralContainers");
        admin.post(&all, &first).expect(201);
        if subresource.is_empty() {
            return;
        }
        let put = format!("{all}/updated{subresource}");
        admin.send(Method::PUT, &put, Some(JSON), before.to_string()).expect(200);
    })
    .after(move |admin| drop(admin.delete(&format!("{path}?gracePeriodSeconds=0")).expect(200)))
}

/// A long sequence of DER.
fn sequence(members: &[u8]) -> Vec<u8> {
    let length = (members.len() as u32).to_be_bytes();
    [&[0x30, 0x83], &length[1..], members].concat()
}

fn secret(name: &'static str, key: impl Fn() -> Vec<u8> + 'static) -> Case {
    let key = move || {
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", base64(&key()))
    };
    // What is wrong with the pair is a warning.
    Case::new(name, Client::NamespaceAdmin, &[201], move |http| {
        send(http, include_str!("../../../../crates/builtin/tests/key-pairs/rsa.crt"), &key())
    })
}

fn tls_secret(name: &'static str, certificate: impl Fn() -> String + 'static) -> Case {
    Case::new(name, Client::NamespaceAdmin, &[201], move |http| send(http, &certificate(), "x"))
}

fn send(http: &Http, certificate: &str, key: &str) -> Outcome {
    let secret = json!({"metadata": {"name": "hostile"}, "type": "kubernetes.io/tls", "data": {
        "tls.crt": base64(certificate.as_bytes()), "tls.key": base64(key.as_bytes())}});
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets?dryRun=All");
    Outcome::from(&http.post(&path, &secret))
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
