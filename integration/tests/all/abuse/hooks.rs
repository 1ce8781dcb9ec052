//! Webhooks of admission and of conversion that answer hugely, falsely, slowly or not at all.

use std::thread;

use bytes::Bytes;
use http::Response;
use integration::{Http, Reply, Webhook, eventually};
use serde_json::{Value, json};

use super::{Case, Client, NAMESPACE, Outcome, sized};

pub(super) const MUTATING: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(super) fn cases() -> Vec<Case> {
    let patch = |operations: fn() -> Value| {
        move |review: Value| {
            let patch = base64(operations().to_string().as_bytes());
            respond(&review, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
        }
    };
    vec![
        hooked("webhook: an answer of 64 MB", &[500], |_| raw(vec![b' '; sized(64_000_000)])),
        hooked("webhook: an answer of nested lists", &[500], |_| raw(vec![b'['; sized(2_000_000)])),
        hooked("webhook: an answer of a million objects", &[500, 201], |review| {
            let objects = vec![json!({}); sized(1_000_000)];
            respond(&review, json!({"allowed": true, "x": objects}))
        }),
        hooked("webhook: garbage", &[500], |_| raw(vec![0xff; sized(1_000_000)])),
        hooked("webhook: an answer for another request", &[500], |review| {
            let mut answer = review.clone();
            answer["response"] = json!({"uid": "u".repeat(sized(1_000_000)), "allowed": true});
            Reply::Json(answer)
        }),
        hooked("webhook: 100 000 warnings", &[201], |review| {
            respond(&review, json!({"allowed": true, "warnings": vec!["w"; sized(100_000)]}))
        }),
        hooked("webhook: 20 000 audit annotations", &[201], |review| {
            let pair = |at: usize| (format!("k{at}"), json!("v".repeat(20)));
            let annotations: serde_json::Map<String, Value> =
                (0..sized(20_000)).map(pair).collect();
            respond(&review, json!({"allowed": true, "auditAnnotations": annotations}))
        }),
        hooked("webhook: a refusal of 2 MB", &[400, 403], |review| {
            let message = "m".repeat(sized(2_000_000));
            respond(&review, json!({"allowed": false, "status": {"message": message}}))
        }),
        hooked(
            "webhook: a patch that doubles the object",
            &[413, 500],
            patch(|| {
                let mut operations =
                    vec![json!({"op": "add", "path": "/data", "value": {"x": "y".repeat(1024)}})];
                operations.extend((0..5_000).map(|round| {
                    json!({"op": "copy", "from": "/data", "path": format!("/data/x{round}")})
                }));
                json!(operations)
            }),
        ),
        hooked(
            "webhook: a patch of 50 000 operations",
            &[413, 500],
            patch(|| json!(vec![json!({"op": "add", "path": "/data/a", "value": "b"}); 50_000])),
        ),
        hooked("webhook: a patch with a value of 100 000 levels", &[400, 413, 500], |review| {
            let levels = sized(100_000);
            let value = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            let patch = format!(r#"[{{"op":"add","path":"/metadata/x","value":{value}}}]"#);
            let patch = base64(patch.as_bytes());
            respond(&review, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
        }),
        hooked(
            "webhook: a patch that nests 900 levels, one by one",
            &[201, 400, 413, 422, 500],
            patch(|| {
                let add = |at: usize| {
                    let path = format!("/metadata/annotations{}", "/a".repeat(at));
                    json!({"op": "add", "path": path, "value": {}})
                };
                json!((0..900).map(add).collect::<Vec<Value>>())
            }),
        ),
        hooked("webhook: 30 writes that it never answers", &[500], |_| Reply::Never),
        converted("conversion: an answer of 64 MB", &[500], |_| raw(vec![b' '; sized(64_000_000)])),
        converted("conversion: garbage", &[500], |_| raw(vec![b'['; sized(2_000_000)])),
        converted("conversion: objects of nested lists", &[500], |review| {
            convert(&review, |object| {
                object["spec"] = (0..1_500).fold(json!([]), |inner, _| Value::Array(vec![inner]));
            })
        }),
        converted("conversion: objects of 3 MB each", &[500], |review| {
            convert(&review, |object| object["spec"] = json!({"text": "x".repeat(3_000_000)}))
        }),
        converted("conversion: a million objects for one", &[500], |review| {
            let mut answer = review.clone();
            let objects = vec![json!({}); sized(1_000_000)];
            answer["response"] = json!({"uid": review["request"]["uid"],
                "result": {"status": "Success"}, "convertedObjects": objects});
            Reply::Json(answer)
        }),
        converted("conversion: other objects than were asked for", &[500], |review| {
            convert(&review, |object| object["metadata"]["uid"] = json!("x".repeat(100_000)))
        }),
        converted("conversion: an answer for another request", &[500], |review| {
            let mut answer = review.clone();
            let objects = review["request"]["objects"].clone();
            answer["response"] = json!({"uid": "u".repeat(sized(1_000_000)),
                "result": {"status": "Success"}, "convertedObjects": objects});
            Reply::Json(answer)
        }),
        converted("conversion: a failure of 2 MB", &[500], |review| {
            let mut answer = review.clone();
            answer["response"] = json!({"uid": review["request"]["uid"],
                "result": {"status": "Failed", "message": "m".repeat(sized(2_000_000))}});
            Reply::Json(answer)
        }),
        // Its timeout is half a minute, so the clients leave before.
        converted("conversion: 30 reads that it never answers", &[0, 500], |_| Reply::Never),
    ]
}

fn raw(body: Vec<u8>) -> Reply {
    let response = Response::builder().header("content-type", "application/json");
    Reply::Raw(response.body(Bytes::from(body)).expect("a response"))
}

/// Writes to an object that a webhook is asked about.
fn hooked(
    name: &'static str,
    codes: &'static [u16],
    reply: impl Fn(Value) -> Reply + Send + Sync + 'static,
) -> Case {
    let never = name.contains("never");
    let webhook = Webhook::start_with(reply);
    let configuration = json!({"metadata": {"name": "hostile"}, "webhooks": [{
        "name": "hostile.example.com",
        "clientConfig": {"url": webhook.url("/"), "caBundle": webhook.ca_bundle},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": if never { 1 } else { 10 },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"],
            "operations": ["CREATE"]}],
    }]});
    Case::new(name, Client::ClusterAdmin, codes, move |http| {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets?dryRun=All");
        let object = json!({"metadata": {"generateName": "hooked-"}});
        let before = webhook.calls();
        let first = eventually("the webhook is called", || {
            let answer = http.post(&path, &object);
            (webhook.calls() > before).then(|| Outcome::from(&answer))
        });
        if never {
            let write = |http: &Http| drop(http.post(&path, &object));
            thread::scope(|scope| {
                for _ in 0..30 {
                    scope.spawn(|| write(http));
                }
            });
        }
        first
    })
    .before(move |admin| drop(admin.post(MUTATING, &configuration).expect(201)))
    .after(|admin| drop(admin.delete(&format!("{MUTATING}/hostile")).expect(200)))
}

fn respond(review: &Value, mut response: Value) -> Reply {
    response["uid"] = review["request"]["uid"].clone();
    Reply::Json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
    }))
}

const CONVERTED: &str = "converted.abuse.example.com";

/// Lists 20 objects in the version that a webhook makes of them.
fn converted(
    name: &'static str,
    codes: &'static [u16],
    reply: impl Fn(Value) -> Reply + Send + Sync + 'static,
) -> Case {
    let never = name.contains("never");
    let webhook = Webhook::start_with(reply);
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
                "clientConfig": {"url": webhook.url("/convert"), "caBundle": webhook.ca_bundle},
            }},
            "versions": [version("v1", true), version("v2", false)],
        },
    });
    let path = |version: &str| format!("/apis/{CONVERTED}/{version}/namespaces/{NAMESPACE}/things");
    let (stored, served) = (path("v1"), path("v2"));
    Case::new(name, Client::ClusterAdmin, codes, move |http| {
        if never {
            let head = format!(
                "GET {served} HTTP/1.1\r\nHost: {}\r\n{}\r\n",
                http.host(),
                http.authorization()
            );
            let open: Vec<_> = (0..30).map(|_| super::open(http, &head)).collect();
            eventually("the webhook is called", || (webhook.calls() > 0).then_some(()));
            drop(open);
            return Outcome::code(0);
        }
        let before = webhook.calls();
        let answer = http.get(&served);
        assert!(webhook.calls() > before, "the webhook was asked");
        Outcome::from(&answer)
    })
    .before(move |admin| {
        admin.post(DEFINITIONS, &definition).expect(201);
        eventually("the resource is served", || (admin.get(&stored).code == 200).then_some(()));
        for at in 0..20 {
            let object = json!({"apiVersion": format!("{CONVERTED}/v1"), "kind": "Thing",
                "metadata": {"name": format!("thing-{at}")}});
            admin.post(&stored, &object).expect(201);
        }
    })
    .after(|admin| {
        let definition = format!("{DEFINITIONS}/things.{CONVERTED}");
        admin.delete(&definition).expect(200);
        eventually("it is gone", || (admin.get(&definition).code == 404).then_some(()));
    })
}

/// A conversion with a change of every object.
fn convert(review: &Value, change: impl Fn(&mut Value)) -> Reply {
    let mut objects = review["request"]["objects"].as_array().cloned().unwrap_or_default();
    for object in &mut objects {
        object["apiVersion"] = review["request"]["desiredAPIVersion"].clone();
        change(object);
    }
    let mut answer = review.clone();
    answer["response"] = json!({"uid": review["request"]["uid"], "result": {"status": "Success"},
        "convertedObjects": objects});
    Reply::Json(answer)
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
