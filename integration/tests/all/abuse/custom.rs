//! CustomResourceDefinitions, and objects of one that every attacker of the namespace may write.

use http::Method;
use integration::{Http, eventually};
use serde_json::{Value, json};

use super::{Case, Client, JSON, NAMESPACE, Outcome, sized};

pub(super) const GROUP: &str = "abuse.example.com";
pub(super) const API_VERSION: &str = "abuse.example.com/v1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The path of a widget.
pub(super) fn path(name: &str) -> String {
    format!("/apis/{API_VERSION}/namespaces/{NAMESPACE}/widgets/{name}")
}

fn definition(plural: &str, spec_schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind(plural)},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "properties": {"spec": spec_schema}},
            }}],
        },
    })
}

fn kind(plural: &str) -> String {
    let singular = plural.trim_end_matches('s');
    singular[..1].to_uppercase() + &singular[1..]
}

pub(super) fn install(admin: &Http) {
    let widget = definition(
        "widgets",
        json!({
            "type": "object",
            "properties": {
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "numbers": {"type": "array", "items": {"type": "integer"}},
                "items": {"type": "array", "items": {
                    "type": "object",
                    "required": ["a", "b", "c"],
                    "properties": {"a": {"type": "string", "maxLength": 3, "pattern": "^[a-z]+$"},
                        "b": {"type": "integer", "maximum": 3}, "c": {"type": "string"}},
                }},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "map": {"type": "array", "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "required": ["k"], "properties": {
                        "k": {"type": "string"}}}},
                "text": {"type": "string", "pattern": "^(a+)+$"},
                "named": {"type": "object", "additionalProperties": {
                    "type": "object", "properties": {"a": {"type": "string"}}}},
                "defaulted": {"type": "array", "items": {"type": "object", "properties": {
                    "list": {"type": "array", "items": {"type": "string"},
                        "default": ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]}}}},
            },
        }),
    );
    admin.post(DEFINITIONS, &widget).expect(201);
    let widgets = format!("/apis/{API_VERSION}/widgets");
    eventually("widgets are served", || (admin.get(&widgets).code == 200).then_some(()));
}

/// Creates a definition as the administrator, and deletes it if it was accepted.
fn define(
    name: &'static str,
    codes: &'static [u16],
    schema: impl Fn() -> String + 'static,
) -> Case {
    Case::new(name, Client::ClusterAdmin, codes, move |http| {
        let definition = definition("hostiles", json!("SCHEMA")).to_string();
        let body = definition.replace("\"SCHEMA\"", &schema());
        outcome_of_definition(http, body)
    })
}

fn define_whole(
    name: &'static str,
    codes: &'static [u16],
    change: impl Fn(&mut Value) + 'static,
) -> Case {
    Case::new(name, Client::ClusterAdmin, codes, move |http| {
        let mut definition = definition("hostiles", json!({"type": "object"}));
        change(&mut definition);
        outcome_of_definition(http, definition.to_string())
    })
}

fn outcome_of_definition(http: &Http, body: String) -> Outcome {
    let answer = http.send(Method::POST, DEFINITIONS, Some(JSON), body);
    let outcome = Outcome::from(&answer);
    if answer.code == 201 {
        let path = format!("{DEFINITIONS}/hostiles.{GROUP}");
        http.delete(&path);
        eventually("the definition is gone", || (http.get(&path).code == 404).then_some(()));
    }
    outcome
}

fn object(name: &'static str, codes: &'static [u16], spec: impl Fn() -> String + 'static) -> Case {
    let widgets = format!("/apis/{API_VERSION}/namespaces/{NAMESPACE}/widgets");
    Case::new(name, Client::NamespaceAdmin, codes, move |http| {
        let body = format!(
            r#"{{"apiVersion":"{API_VERSION}","kind":"Widget","metadata":{{"name":"hostile"}},"spec":{}}}"#,
            spec()
        );
        let answer = http.send(Method::POST, &widgets, Some(JSON), body);
        if answer.code == 201 {
            http.delete(&path("hostile"));
        }
        Outcome::from(&answer)
    })
}

/// Creates an object, and replaces it by itself.
fn update(name: &'static str, codes: &'static [u16], spec: impl Fn() -> String + 'static) -> Case {
    let widgets = format!("/apis/{API_VERSION}/namespaces/{NAMESPACE}/widgets");
    Case::new(name, Client::NamespaceAdmin, codes, move |http| {
        let body = format!(
            r#"{{"apiVersion":"{API_VERSION}","kind":"Widget","metadata":{{"name":"replaced"}},"spec":{}}}"#,
            spec()
        );
        let made = http.send(Method::POST, &widgets, Some(JSON), body.clone());
        // Custom resources are updated only from a known version.
        let text = made.text();
        let version =
            text.split("\"resourceVersion\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let version =
            format!(r#""resourceVersion":"{}","name":"replaced""#, version.unwrap_or_default());
        let body = body.replacen(r#""name":"replaced""#, &version, 1);
        let answer = http.send(Method::PUT, &path("replaced"), Some(JSON), body);
        http.delete(&path("replaced"));
        Outcome::from(if made.code == 201 { &answer } else { &made })
    })
}

fn nested(field: &'static str, leaf: &str, depth: usize) -> String {
    format!("{}{leaf}{}", format!("{{{field}").repeat(depth), "}".repeat(depth))
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        define("definition: 800 nested `not`", &[400, 422], || {
            nested(r#""type":"object","not":"#, "{}", 800)
        }),
        define("definition: 4 000 nested `not`", &[400, 422], || nested(r#""not":"#, "{}", 4_000)),
        define("definition: 2 000 nested `allOf`", &[400, 422], || {
            format!("{}{{}}{}", r#"{"allOf":["#.repeat(2_000), "]}".repeat(2_000))
        }),
        define("definition: 2 000 nested `items`", &[400, 422], || {
            nested(r#""type":"array","items":"#, r#"{"type":"string"}"#, 2_000)
        }),
        define("definition: 1 500 nested properties", &[400, 422], || {
            let open = r#"{"type":"object","properties":{"a":"#.repeat(1_500);
            format!(r#"{open}{{"type":"string"}}{}"#, "}}".repeat(1_500))
        }),
        define("definition: 40 000 properties", &[201, 413, 422], || {
            let properties: Vec<_> =
                (0..sized(40_000)).map(|i| format!(r#""p{i}":{{"type":"string"}}"#)).collect();
            format!(r#"{{"type":"object","properties":{{{}}}}}"#, properties.join(","))
        }),
        define("definition: 100 000 wrong properties", &[422], || {
            let properties: Vec<_> =
                (0..sized(100_000)).map(|i| format!(r#""p{i}":{{"type":"x"}}"#)).collect();
            format!(r#"{{"type":"object","properties":{{{}}}}}"#, properties.join(","))
        }),
        define("definition: an enum of 200 000", &[201, 413, 422, 500], || {
            let values: Vec<_> = (0..sized(200_000)).map(|i| format!("\"{i}\"")).collect();
            format!(r#"{{"type":"string","enum":[{}]}}"#, values.join(","))
        }),
        define("definition: a pattern of nested repetitions", &[422], || {
            r#"{"type":"string","pattern":"((((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}){1,1000})"}"#
                .to_owned()
        }),
        define("definition: a pattern of 100 000 groups", &[201, 422], || {
            format!(
                r#"{{"type":"string","pattern":"{}{}"}}"#,
                "(".repeat(sized(100_000)),
                ")".repeat(sized(100_000))
            )
        }),
        define("definition: 10 000 rules", &[201, 422], || {
            let rules: Vec<_> =
                (0..sized(10_000)).map(|i| format!(r#"{{"rule":"self == {i}"}}"#)).collect();
            format!(r#"{{"type":"integer","x-kubernetes-validations":[{}]}}"#, rules.join(","))
        }),
        define("definition: a rule of nested parentheses", &[422], || {
            let rule = format!("{}true{}", "(".repeat(50_000), ")".repeat(50_000));
            format!(r#"{{"type":"integer","x-kubernetes-validations":[{{"rule":"{rule}"}}]}}"#)
        }),
        define("definition: a rule of 100 000 negations", &[422], || {
            let rule = format!("{}true", "!".repeat(100_000));
            format!(r#"{{"type":"integer","x-kubernetes-validations":[{{"rule":"{rule}"}}]}}"#)
        }),
        define("definition: a rule of 100 000 sums", &[422], || {
            let rule = format!("self == 0{}", "+1".repeat(100_000));
            format!(r#"{{"type":"integer","x-kubernetes-validations":[{{"rule":"{rule}"}}]}}"#)
        }),
        define("definition: nested comprehensions over unbounded lists", &[422], || {
            let list = r#"{"type":"array","items":{"type":"string"}}"#;
            let rule = "self.a.all(x, self.a.all(y, self.a.all(z, self.a.all(w, x+y+z+w != ''))))";
            format!(
                r#"{{"type":"object","properties":{{"a":{list}}},"x-kubernetes-validations":[{{"rule":"{rule}"}}]}}"#
            )
        }),
        define("definition: a default nested 900 levels", &[201, 400, 422], || {
            let default = nested(r#""a":"#, "1", 900);
            format!(
                r#"{{"type":"object","x-kubernetes-preserve-unknown-fields":true,"default":{default}}}"#
            )
        }),
        define_whole("definition: 3 000 versions", &[422], |definition| {
            let version = definition["spec"]["versions"][0].clone();
            let versions = (0..sized(3_000)).map(|i| {
                let mut version = version.clone();
                version["name"] = format!("v{}", i + 1).into();
                version
            });
            definition["spec"]["versions"] = versions.collect();
        }),
        define_whole(
            "definition: two versions with 20 000 properties, none stored",
            &[422],
            |definition| {
                let version = |name: &str| {
                    let properties: serde_json::Map<_, _> = (0..sized(20_000))
                        .map(|i| (format!("{name}{i}"), json!({"type": "string"})))
                        .collect();
                    json!({"name": name, "served": true, "storage": false, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}})
                };
                definition["spec"]["versions"] = json!([version("v1"), version("v2")]);
            },
        ),
        define_whole("definition: 20 000 printer columns", &[201, 422], |definition| {
            let columns: Vec<_> = (0..sized(20_000))
                .map(|i| json!({"name": format!("c{i}"), "type": "string", "jsonPath": ".spec.a"}))
                .collect();
            definition["spec"]["versions"][0]["additionalPrinterColumns"] = columns.into();
        }),
        define_whole("definition: a nested JSONPath", &[201, 422], |definition| {
            let path = format!(".a{}{}", "[?(@.b".repeat(5_000), ")]".repeat(5_000));
            definition["spec"]["versions"][0]["additionalPrinterColumns"] =
                json!([{"name": "c", "type": "string", "jsonPath": path}]);
        }),
        define_whole("definition: 50 000 short names", &[422, 201], |definition| {
            definition["spec"]["names"]["shortNames"] =
                (0..sized(50_000)).map(|_| json!("sn")).collect();
        }),
        object("custom object: 40 000 wrong items", &[422], || {
            format!(r#"{{"items":[{}{{}}]}}"#, "{},".repeat(sized(40_000)))
        }),
        object("custom object: 40 000 items with three errors each", &[422], || {
            let item = r#"{"a":"ABCDE","b":9}"#;
            format!(r#"{{"items":[{}{item}]}}"#, format!("{item},").repeat(sized(40_000)))
        }),
        object("custom object: 500 000 numbers of the wrong type", &[422], || {
            format!(r#"{{"numbers":[{}""]}}"#, r#""","#.repeat(sized(500_000)))
        }),
        object("custom object: a set of 150 000", &[201, 413, 422, 500], || {
            let values: Vec<_> = (0..sized(150_000)).map(|i| format!("\"{i}\"")).collect();
            format!(r#"{{"set":[{}]}}"#, values.join(","))
        }),
        object("custom object: a set of 300 000 equal items", &[422], || {
            format!(r#"{{"set":[{}"a"]}}"#, r#""a","#.repeat(sized(300_000)))
        }),
        object("custom object: a map list of 100 000 equal keys", &[422], || {
            format!(r#"{{"map":[{}{{"k":"a"}}]}}"#, r#"{"k":"a"},"#.repeat(sized(100_000)))
        }),
        object("custom object: a text that makes a pattern backtrack", &[422], || {
            format!(r#"{{"text":"{}b"}}"#, "a".repeat(sized(500_000)))
        }),
        object(
            "custom object: 100 000 unknown fields below a key of 1 MB",
            &[201, 413, 422, 500],
            || {
                let unknown: Vec<_> = (0..sized(100_000)).map(|i| format!(r#""u{i}":0"#)).collect();
                let key = "k".repeat(sized(1_000_000));
                format!(r#"{{"named":{{"{key}":{{{}}}}}}}"#, unknown.join(","))
            },
        ),
        object(
            "custom object: 400 000 small objects in a free field",
            &[201, 400, 413, 500],
            || format!(r#"{{"free":{{"l":[{}{{}}]}}}}"#, r#"{"":0},"#.repeat(sized(400_000))),
        ),
        object(
            "custom object: 500 000 items that get defaults",
            &[201, 400, 413, 422, 500],
            || format!(r#"{{"defaulted":[{}{{}}]}}"#, "{},".repeat(sized(500_000))),
        ),
        object("custom object: 200 000 free fields", &[201, 400, 413, 500], || {
            let fields: Vec<_> = (0..sized(200_000)).map(|i| format!(r#""{i}":"""#)).collect();
            format!(r#"{{"free":{{{}}}}}"#, fields.join(","))
        }),
        update("custom object: 650 000 numbers over themselves", &[200, 413, 500], || {
            format!(r#"{{"numbers":[{}1]}}"#, "1,".repeat(sized(650_000)))
        }),
        object("custom object: 1 000 levels of free fields", &[400, 422], || {
            format!(r#"{{"free":{}}}"#, nested(r#""a":"#, "1", 1_100))
        }),
    ]
}
