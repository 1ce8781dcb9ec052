//! Custom resources whose versions differ in their fields: a webhook converts between them.

use integration::{Http, Shared, Webhook, eventually, shared};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// `ports` have `hostPort` in v1, which is what is stored, and `host` and `port` in v2.
fn definition(group: &str, webhook: &Webhook) -> Value {
    let version = |name: &str, storage: bool, fields: &[&str]| {
        let text = |name: &&str| ((*name).to_owned(), json!({"type": "string"}));
        let fields: serde_json::Map<String, Value> = fields.iter().map(text).collect();
        let selectable = fields.keys().map(|name| json!({"jsonPath": format!(".spec.{name}")}));
        let columns = fields.keys().map(
            |name| json!({"name": name, "type": "string", "jsonPath": format!(".spec.{name}")}),
        );
        json!({
            "name": name, "served": true, "storage": storage,
            "selectableFields": selectable.collect::<Vec<_>>(),
            "additionalPrinterColumns": columns.collect::<Vec<_>>(),
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": fields},
            }}},
        })
    };
    json!({
        "metadata": {"name": format!("ports.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "ports", "kind": "Port"},
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"url": webhook.url("/convert"), "caBundle": webhook.ca_bundle},
            }},
            "versions": [version("v1", true, &["hostPort"]), version("v2", false, &["host", "port"])],
        },
    })
}

/// What a careful author would write; objects with certain names show what a careless one does.
fn convert(review: Value) -> Value {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap_or_default().to_owned();
    let mut result = json!({"status": "Success"});
    let mut converted = request["objects"].as_array().cloned().unwrap_or_default();
    for object in &mut converted {
        let spec = object["spec"].as_object().cloned().unwrap_or_default();
        let text = |name: &str| spec.get(name).and_then(Value::as_str).map(str::to_owned);
        let mut next = serde_json::Map::new();
        if wanted.ends_with("/v2") {
            if let Some((host, port)) = text("hostPort").as_deref().and_then(|t| t.split_once(':'))
            {
                next.insert("host".into(), host.into());
                next.insert("port".into(), port.into());
            }
        } else if let (Some(host), Some(port)) = (text("host"), text("port")) {
            next.insert("hostPort".into(), format!("{host}:{port}").into());
        }
        object["spec"] = next.into();
        object["apiVersion"] = wanted.clone().into();
        object["metadata"]["generation"] = 77.into();
        object["metadata"]["labels"] = json!({"converted-to": wanted.rsplit('/').next()});
        match object["metadata"]["name"].as_str() {
            Some("refused") => {
                result = json!({"status": "Failed", "message": "this port is closed"});
            }
            Some("renamed") => object["metadata"]["name"] = "another".into(),
            Some("retyped") => object["kind"] = "Starboard".into(),
            _ => {}
        }
    }
    json!({
        "apiVersion": review["apiVersion"],
        "kind": review["kind"],
        "response": {"uid": request["uid"], "result": result, "convertedObjects": converted},
    })
}

struct Harbour {
    _server: Shared,
    http: Http,
    webhook: Webhook,
    group: String,
    /// Of the ports in each version.
    v1: String,
    v2: String,
}

fn harbour(purpose: &str) -> Harbour {
    let server = shared();
    let http = server.http();
    let webhook = Webhook::start(convert);
    let group = format!("{purpose}.conversion.example.com");
    http.post(DEFINITIONS, &definition(&group, &webhook)).expect(201);
    let namespace = server.namespace(purpose);
    let [v1, v2] =
        ["v1", "v2"].map(|version| format!("/apis/{group}/{version}/namespaces/{namespace}/ports"));
    for path in [&v1, &v2] {
        eventually("ports are served", || (http.get(path).code == 200).then_some(()));
    }
    Harbour { _server: server, http, webhook, group, v1, v2 }
}

impl Harbour {
    fn port(&self, version: &str, name: &str, spec: &Value) -> Value {
        let api_version = format!("{}/{version}", self.group);
        json!({"apiVersion": api_version, "kind": "Port", "metadata": {"name": name}, "spec": spec})
    }
}

#[test]
fn a_webhook_converts_what_is_read_and_written() {
    let at = harbour("both");
    let http = &at.http;
    let made = http.post(&at.v1, &at.port("v1", "a", &json!({"hostPort": "h:1"}))).expect(201);
    let read = http.get(&format!("{}/a", at.v2)).expect(200);
    assert_eq!(read["spec"], json!({"host": "h", "port": "1"}));
    // Of the metadata only labels and annotations are the webhook's.
    assert_eq!(read["metadata"]["labels"], json!({"converted-to": "v2"}));
    assert_eq!(read["metadata"]["generation"], 1);
    assert_eq!(read["metadata"]["uid"], made["metadata"]["uid"]);
    let made =
        http.post(&at.v2, &at.port("v2", "b", &json!({"host": "x", "port": "2"}))).expect(201);
    assert_eq!(made["apiVersion"], format!("{}/v2", at.group));
    assert_eq!(http.get(&format!("{}/b", at.v1)).expect(200)["spec"], json!({"hostPort": "x:2"}));
    let patched = http
        .patch(
            &format!("{}/a", at.v2),
            "application/merge-patch+json",
            &json!({"spec": {"port": "9"}}),
        )
        .expect(200);
    assert_eq!(patched["spec"], json!({"host": "h", "port": "9"}));
    assert_eq!(http.get(&format!("{}/a", at.v1)).expect(200)["spec"], json!({"hostPort": "h:9"}));
    let specs: Vec<Value> = http.get(&at.v2).expect(200)["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| item["spec"].clone())
        .collect();
    assert_eq!(specs, [json!({"host": "h", "port": "9"}), json!({"host": "x", "port": "2"})]);
    http.delete(&format!("{}/b", at.v2)).expect(200);
    http.get(&format!("{}/b", at.v1)).expect(404);
}

#[test]
fn selectors_and_columns_are_those_of_the_version_that_is_asked_for() {
    let at = harbour("selected");
    let http = &at.http;
    for (name, host_port) in [("a", "h:1"), ("b", "x:1"), ("c", "h:2")] {
        http.post(&at.v1, &at.port("v1", name, &json!({"hostPort": host_port}))).expect(201);
    }
    let names = |path: &str, selector: &str| -> Vec<String> {
        let list = http.get(&format!("{path}?fieldSelector={selector}")).expect(200);
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap_or("?").to_owned())
            .collect()
    };
    assert_eq!(names(&at.v2, "spec.host%3Dh"), ["a", "c"]);
    assert_eq!(names(&at.v2, "spec.host%3Dh,spec.port!%3D1"), ["c"]);
    assert_eq!(names(&at.v1, "spec.hostPort%3Dx:1"), ["b"]);
    let refused = http.get(&format!("{}?fieldSelector=spec.host%3Dh", at.v1)).expect(400);
    assert_eq!(refused["message"], "field label not supported: spec.host");
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let request = http::Request::get(&at.v2).header("accept", accept).body(bytes::Bytes::new());
    let table = http.request(request.expect("a valid request")).expect(200);
    assert_eq!(table["rows"][1]["cells"], json!(["b", "x", "1"]));

    // What starts and stops to match comes and goes, seen from the version that is watched.
    let mut watch = http.stream(&format!("{}?watch=1&fieldSelector=spec.host%3Dh", at.v2));
    for name in ["a", "c"] {
        assert_eq!(watch.expect("ADDED")["metadata"]["name"], name);
    }
    let merge = "application/merge-patch+json";
    let moved = |host_port: &str| json!({"spec": {"hostPort": host_port}});
    http.patch(&format!("{}/b", at.v1), merge, &moved("h:5")).expect(200);
    let added = watch.expect("ADDED");
    assert_eq!((&added["metadata"]["name"], &added["spec"]["port"]), (&json!("b"), &json!("5")));
    http.patch(&format!("{}/a", at.v1), merge, &moved("y:5")).expect(200);
    assert_eq!(watch.expect("DELETED")["metadata"]["name"], "a");
    http.patch(&format!("{}/c", at.v1), merge, &moved("h:6")).expect(200);
    assert_eq!(watch.expect("MODIFIED")["spec"], json!({"host": "h", "port": "6"}));
}

#[test]
fn owners_in_another_version_keep_what_they_applied() {
    let at = harbour("owners");
    let http = &at.http;
    let apply = |version: &str, manager: &str, spec: Value| {
        let path = if version == "v1" { &at.v1 } else { &at.v2 };
        let to = format!("{path}/a?fieldManager={manager}");
        http.patch(&to, "application/apply-patch+yaml", &at.port(version, "a", &spec))
    };
    apply("v1", "one", json!({"hostPort": "h:1"})).expect(201);
    // The same in the words of another version is no conflict; something else is.
    let shared = apply("v2", "two", json!({"host": "h", "port": "1"})).expect(200);
    assert_eq!(shared["metadata"]["managedFields"].as_array().map(Vec::len), Some(2));
    let conflict = apply("v2", "two", json!({"host": "x", "port": "1"})).expect(409);
    let message = conflict["message"].to_string();
    assert!(message.contains("conflict with \\\"one\\\""), "{message}");
    assert!(message.contains(".spec.hostPort"), "{message}");
    let path = format!("{}/a?fieldManager=two&force=true", at.v2);
    let body = at.port("v2", "a", &json!({"host": "x", "port": "1"}));
    let forced = http.patch(&path, "application/apply-patch+yaml", &body).expect(200);
    assert_eq!(forced["spec"], json!({"host": "x", "port": "1"}));
    assert_eq!(http.get(&format!("{}/a", at.v1)).expect(200)["spec"], json!({"hostPort": "x:1"}));
}

#[test]
fn failures_of_a_conversion_webhook_are_reported() {
    let at = harbour("spoiled");
    let http = &at.http;
    let cases = [
        ("refused", "failed: this port is closed"),
        ("renamed", "returned invalid object: must have the same name: renamed != another"),
        (
            "retyped",
            "returned invalid object at index 0: invalid kind (expected Port, received Starboard)",
        ),
    ];
    for (name, why) in cases {
        let port = at.port("v2", name, &json!({"host": "h", "port": "1"}));
        let refused = http.post(&at.v2, &port).expect(500);
        let expected = format!("conversion webhook for {}/v2, Kind=Port {why}", at.group);
        assert_eq!(refused["message"], expected);
        http.get(&format!("{}/{name}", at.v1)).expect(404);
    }
}

#[test]
fn stored_objects_follow_when_the_stored_version_changes() {
    let at = harbour("moving");
    let http = &at.http;
    http.post(&at.v1, &at.port("v1", "a", &json!({"hostPort": "h:1"}))).expect(201);
    let name = format!("{DEFINITIONS}/ports.{}", at.group);
    eventually("the other version is stored", || {
        let mut changed = http.get(&name).expect(200);
        changed["spec"]["versions"][0]["storage"] = false.into();
        changed["spec"]["versions"][1]["storage"] = true.into();
        let answer = http.put(&name, &changed);
        (answer.code == 200).then(|| answer.json())
    });
    let stored = || http.get(&name).expect(200)["status"]["storedVersions"].clone();
    assert_eq!(stored(), json!(["v1", "v2"]));
    // Neither version can be removed before the objects are migrated and storedVersions is updated.
    let mut without = http.get(&name).expect(200);
    without["spec"]["versions"].as_array_mut().expect("versions").remove(0);
    let refused = http.put(&name, &without).expect(422)["message"].to_string();
    assert!(refused.contains("missing from spec.versions; v1 was previously a storage version"));

    for (path, spec) in
        [(&at.v1, json!({"hostPort": "h:1"})), (&at.v2, json!({"host": "h", "port": "1"}))]
    {
        let read = http.get(&format!("{path}/a")).expect(200);
        assert_eq!(read["spec"], spec);
        // Written again as it is, which stores it in the new version.
        http.put(&format!("{path}/a"), &read).expect(200);
    }
    let merge = "application/merge-patch+json";
    let only_v2 = json!({"status": {"storedVersions": ["v2"]}});
    http.patch(&format!("{name}/status"), merge, &only_v2).expect(200);
    assert_eq!(stored(), json!(["v2"]));
    let mut without = http.get(&name).expect(200);
    without["spec"]["versions"].as_array_mut().expect("versions").remove(0);
    http.put(&name, &without).expect(200);
    eventually("v1 is served no more", || (http.get(&at.v1).code == 404).then_some(()));
    let read = eventually("v2 goes on", || {
        let answer = http.get(&format!("{}/a", at.v2));
        (answer.code == 200).then(|| answer.json())
    });
    assert_eq!(read["spec"], json!({"host": "h", "port": "1"}));
}

#[test]
fn lists_and_watches_are_converted_in_batches_over_few_connections() {
    let at = harbour("batches");
    let http = &at.http;
    for number in 0..20 {
        let spec = json!({"hostPort": format!("h:{number}")});
        http.post(&at.v1, &at.port("v1", &format!("p{number}"), &spec)).expect(201);
    }
    let list = http.get(&at.v2).expect(200);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(20));
    let mut watch = http.stream(&format!("{}?watch=1", at.v2));
    for _ in 0..20 {
        assert_eq!(watch.expect("ADDED")["spec"]["host"], "h");
    }
    // kube-apiserver converts one object after the other, each version on its own.
    if !shared().flavour().is_peer() {
        assert!(at.webhook.calls() < 10, "{} calls", at.webhook.calls());
    }
    let connections = at.webhook.connections();
    assert!(connections <= 4, "{connections} connections for {} calls", at.webhook.calls());
}

#[test]
fn a_definition_with_an_invalid_ca_bundle_is_not_established() {
    let server = shared();
    let http = server.http();
    let webhook = Webhook::start(convert);
    let group = "bundle.conversion.example.com";
    let mut definition = definition(group, &webhook);
    let place = "/spec/conversion/webhook/clientConfig/caBundle";
    *definition.pointer_mut(place).expect("a bundle") = "bm90IGEgY2VydGlmaWNhdGU=".into();
    http.post(DEFINITIONS, &definition).expect(201);
    let name = format!("{DEFINITIONS}/ports.{group}");
    let established = |reason: &str| {
        eventually(&format!("Established is {reason}"), || {
            let found = http.get(&name).expect(200);
            let conditions = found["status"]["conditions"].as_array()?.clone();
            conditions
                .iter()
                .any(|known| known["type"] == "Established" && known["reason"] == reason)
                .then_some(())
        });
    };
    established("InvalidCABundle");
    let bundle = |bundle: &str| {
        let config = json!({"clientConfig": {"caBundle": bundle}});
        let patch = json!({"spec": {"conversion": {"webhook": config}}});
        http.patch(&name, "application/merge-patch+json", &patch)
    };
    bundle(&webhook.ca_bundle).expect(200);
    established("InitialNamesAccepted");
    // From then on it stays good.
    let refused = bundle("bm90IGEgY2VydGlmaWNhdGU=").expect(422);
    let cause = &refused["details"]["causes"][0];
    assert_eq!(cause["field"], "spec.conversion.webhookClientConfig.caBundle");
    let why = "unable to load root certificates: unable to parse bytes as PEM block";
    assert!(cause["message"].to_string().contains(why), "{cause}");
}
