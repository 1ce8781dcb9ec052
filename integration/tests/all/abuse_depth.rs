//! The deepest object that is accepted goes through every walk over a tree: all decoders and encoders,
//! all patches, apply and managedFields, pruning, defaults, validation with expressions, conversion,
//! tables and watches. The threads have the stacks of the release binary, and a debug build takes
//! several times as much for a call: a walk that recurses deeper than the stack would end the server.

use bytes::Bytes;
use http::{Method, Request};
use integration::{Answer, Flavour, Http, Server, eventually};
use serde_json::{Value, json};

const GROUP: &str = "depth.example.com";
/// Levels of a free tree: with the object around it just below what is accepted (1 000).
const LEVELS: usize = 990;
/// The same for YAML (250).
const YAML_LEVELS: usize = 240;
/// Levels of a schema, of 128 that are accepted.
const SCHEMA_LEVELS: usize = 60;

const FORMATS: [&str; 6] = [
    "application/json",
    "application/yaml",
    "application/cbor",
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
];

#[test]
fn the_deepest_object_passes_every_walk() {
    let server = Server::with(
        Flavour::from_env(),
        &["--feature-gates=CBORServingAndStorage=true", "--default-watch-cache-size=100"],
    );
    let http = server.http();
    define(&http);
    let deeps = |version: &str| format!("/apis/{GROUP}/{version}/namespaces/default/deeps");
    let path = |version: &str, name: &str| format!("{}/{name}", deeps(version));
    let send = |method: Method, path: &str, content_type: &str, body: Vec<u8>, codes: &[u16]| {
        let answer = http.send(method.clone(), path, Some(content_type), body);
        let text = answer.text();
        let shown = &text[..text.floor_char_boundary(600)];
        assert!(codes.contains(&answer.code), "{method} {path} {content_type}: {shown}");
    };

    // Every decoder, and one level too many for each.
    let json = |name: &str, levels| object(name, &nested(levels)).into_bytes();
    for (name, content_type, body, code) in [
        ("json", "application/json", json("json", LEVELS), 201),
        ("json-deeper", "application/json", json("json-deeper", LEVELS + 40), 400),
        ("yaml", "application/yaml", yaml("yaml", YAML_LEVELS), 201),
        ("yaml-deeper", "application/yaml", yaml("yaml-deeper", YAML_LEVELS + 40), 400),
        ("json-as-yaml", "application/yaml", json("json-as-yaml", LEVELS), 201),
        ("cbor", "application/cbor", cbor("cbor", LEVELS), 201),
        ("cbor-deeper", "application/cbor", cbor("cbor-deeper", LEVELS + 40), 400),
    ] {
        send(Method::POST, &deeps("v1"), content_type, body, &[code]);
        assert_eq!(http.get(&path("v1", name)).code, if code == 201 { 200 } else { 404 }, "{name}");
    }

    // Every update, in both versions.
    for version in ["v1", "v2"] {
        let path = path(version, "json");
        // Custom resources are updated only from a known version.
        let current = http.get(&path).text();
        let current =
            current.split("\"resourceVersion\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let known = format!(r#""resourceVersion":"{}","name""#, current.expect("a version"));
        let replaced =
            object("json", &nested_as("b", LEVELS)).replace("/v1\"", &format!("/{version}\""));
        let replaced = replaced.replacen("\"name\"", &known, 1);
        send(Method::PUT, &path, "application/json", replaced.into_bytes(), &[200]);
        let merge = format!(r#"{{"spec":{{"free":{}}}}}"#, nested_as("c", LEVELS));
        send(Method::PATCH, &path, "application/merge-patch+json", merge.into_bytes(), &[200]);
        let add = r#"[{"op":"copy","from":"/spec/free/c","path":"/spec/free/d"},{"op":"test","path":"/spec/free/e","value":null},{"op":"add","path":"/spec/free/e","value":1}]"#;
        let patch = "application/json-patch+json";
        send(Method::PATCH, &path, patch, add.as_bytes().to_vec(), &[200, 422]);
        for leaf in ["1", "2"] {
            let tree = nested_as("c", LEVELS).replace("\"leaf\"", leaf);
            let applied = object("json", &tree).replace("/v1\"", &format!("/{version}\""));
            let query = format!("{path}?fieldManager=m&force=true");
            let apply = "application/apply-patch+yaml";
            send(Method::PATCH, &query, apply, applied.into_bytes(), &[200]);
        }
    }

    // Every encoder, of one object and of a list, and a watch.
    for version in ["v1", "v2"] {
        for accept in FORMATS {
            for path in
                [path(version, "json"), deeps(version), format!("{}?pretty=true", deeps(version))]
            {
                let answer = get(&http, &path, accept);
                assert!(matches!(answer.code, 200 | 406), "{path} {accept}: {}", answer.code);
            }
            let watch = format!("{}?watch=1&resourceVersion=0&timeoutSeconds=1", deeps(version));
            let answer = get(&http, &watch, accept);
            assert!(matches!(answer.code, 200 | 406), "{watch} {accept}: {}", answer.code);
        }
    }

    // A schema is nested too, and its expressions compare what is there.
    let leaf = json!({"metadata": {"name": "typed"}, "spec": {}, "apiVersion": format!("{GROUP}/v1"), "kind": "Deep"});
    let mut typed = leaf;
    typed["spec"]["nested"] = serde_json::from_str(&nested_as("n", SCHEMA_LEVELS)).expect("JSON");
    send(Method::POST, &deeps("v1"), "application/json", typed.to_string().into_bytes(), &[201]);
    let merge = br#"{"metadata":{"labels":{"a":"b"}}}"#.to_vec();
    send(Method::PATCH, &path("v1", "typed"), "application/merge-patch+json", merge, &[200]);

    let all = http.delete(&deeps("v1"));
    assert_eq!(all.code, 200, "{}", all.text().len());
    assert_eq!(http.get("/version").code, 200, "{}", server.log());
}

fn get(http: &Http, path: &str, accept: &str) -> Answer {
    let request = Request::get(path).header("accept", accept);
    http.request(request.body(Bytes::new()).expect("a valid request"))
}

fn nested(levels: usize) -> String {
    nested_as("a", levels)
}

fn nested_as(key: &str, levels: usize) -> String {
    let open = format!(r#"{{"{key}":"#);
    format!(r#"{}"leaf"{}"#, open.repeat(levels), "}".repeat(levels))
}

fn object(name: &str, tree: &str) -> String {
    format!(
        r#"{{"apiVersion":"{GROUP}/v1","kind":"Deep","metadata":{{"name":"{name}"}},"spec":{{"free":{tree}}}}}"#
    )
}

fn yaml(name: &str, levels: usize) -> Vec<u8> {
    let head =
        format!("apiVersion: {GROUP}/v1\nkind: Deep\nmetadata: {{name: {name}}}\nspec:\n free:\n");
    let levels = (0..levels).map(|level| format!("{}a:\n", " ".repeat(level + 2)));
    format!("{head}{}", levels.collect::<String>()).into_bytes()
}

/// The same object in CBOR.
fn cbor(name: &str, levels: usize) -> Vec<u8> {
    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend([0x78, u8::try_from(text.len()).expect("a short text")]);
        out.extend(text.as_bytes());
    }
    let mut out = vec![0xd9, 0xd9, 0xf7, 0xa4];
    for (key, value) in [("apiVersion", format!("{GROUP}/v1")), ("kind", "Deep".to_owned())] {
        text(&mut out, key);
        text(&mut out, &value);
    }
    text(&mut out, "metadata");
    out.push(0xa1);
    text(&mut out, "name");
    text(&mut out, name);
    text(&mut out, "spec");
    out.push(0xa1);
    text(&mut out, "free");
    for _ in 0..levels {
        out.push(0xa1);
        text(&mut out, "a");
    }
    out.push(0xf5);
    out
}

/// Two versions, a free field, and a schema that is nested as well.
fn define(http: &Http) {
    let mut nested = json!({"type": "string", "default": "x", "maxLength": 10});
    for _ in 0..SCHEMA_LEVELS {
        nested = json!({"type": "object", "properties": {"n": nested}});
    }
    let version = |name: &str, storage: bool| -> Value {
        json!({"name": name, "served": true, "storage": storage,
        "additionalPrinterColumns": [
            {"name": "free", "type": "string", "jsonPath": ".spec.free"},
            {"name": "any", "type": "string", "jsonPath": ".spec.free..c"},
        ],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
            "type": "object",
            "properties": {
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "nested": nested,
            },
            "x-kubernetes-validations": [
                {"rule": "!has(self.nested) || self.nested == self.nested"},
                {"rule": "!has(oldSelf.nested) || self.nested == oldSelf.nested"},
            ],
        }}}}})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("deeps.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "deeps", "kind": "Deep"},
            "versions": [version("v1", true), version("v2", false)],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made =
        http.send(Method::POST, definitions, Some("application/json"), definition.to_string());
    assert_eq!(made.code, 201, "{}", made.text());
    let deeps = format!("/apis/{GROUP}/v2/deeps");
    eventually("the kind is served", || (http.get(&deeps).code == 200).then_some(()));
}
