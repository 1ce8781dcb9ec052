//! Patches and applies to objects that the attacker may write.

use http::Method;
use integration::Http;
use serde_json::{Map, Value, json};

use super::{Case, Client, NAMESPACE, Outcome, custom, sized};

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn config_map(name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")
}

/// A patch of an object that is created first.
fn patch(
    name: &'static str,
    codes: &'static [u16],
    (path, query, content_type): (String, &'static str, &'static str),
    object: impl Fn() -> Value + 'static,
    patch: impl Fn() -> String + 'static,
) -> Case {
    Case::new(name, Client::NamespaceAdmin, codes, move |http| {
        create(http, &path, &object());
        let answer =
            http.send(Method::PATCH, &format!("{path}{query}"), Some(content_type), patch());
        let outcome = Outcome::from(&answer);
        http.delete(&path);
        outcome
    })
}

fn create(http: &Http, path: &str, object: &Value) {
    let (collection, name) = path.rsplit_once('/').expect("the path of an object");
    let mut object = object.clone();
    object["metadata"]["name"] = name.into();
    let answer = http.post(collection, &object);
    assert!(matches!(answer.code, 201), "{}: {}", answer.code, answer.text());
}

fn data(entries: usize) -> Value {
    let data: Map<_, _> = (0..entries).map(|i| (format!("{i:x}"), "".into())).collect();
    json!({"metadata": {}, "data": data})
}

fn widget(spec: Value) -> Value {
    json!({"apiVersion": custom::API_VERSION, "kind": "Widget", "metadata": {}, "spec": spec})
}

fn operations(operation: &str, count: usize) -> String {
    format!("[{}{operation}]", format!("{operation},").repeat(count - 1))
}

pub(super) fn cases() -> Vec<Case> {
    let small = || json!({"metadata": {}, "data": {"a": "b"}});
    let tree = || widget(json!({"free": {"a": {"b": "c"}}}));
    let widgets = custom::path;
    let copy = r#"{"op":"copy","from":"/spec/free","path":"/spec/free/a"}"#;
    // Compat: an object that is too large for the store is a 500.
    vec![
        patch(
            "json patch: a value copied into itself, 1 000 times",
            &[400, 413, 422],
            (widgets("copied"), "", JSON_PATCH),
            tree,
            move || operations(copy, 1_000),
        ),
        patch(
            "json patch: the same, dry run",
            &[400, 413, 422],
            (widgets("copied-dry"), "?dryRun=All", JSON_PATCH),
            tree,
            move || operations(copy, 1_000),
        ),
        patch(
            "json patch: a list that doubles, 60 times",
            &[400, 413, 422],
            (widgets("doubled"), "", JSON_PATCH),
            || widget(json!({"free": {"l": [["x".repeat(1_000)]]}})),
            || operations(r#"{"op":"copy","from":"/spec/free/l","path":"/spec/free/l/-"}"#, 60),
        ),
        patch(
            "json patch: 2 000 inserts at the front of 400 000",
            &[200, 413, 422],
            (widgets("inserted"), "", JSON_PATCH),
            || widget(json!({"numbers": vec![1; sized(400_000)]})),
            || operations(r#"{"op":"add","path":"/spec/numbers/0","value":1}"#, 2_000),
        ),
        patch(
            "json patch: 2 000 removals from the front of 400 000",
            &[200, 413, 422],
            (widgets("removed"), "", JSON_PATCH),
            || widget(json!({"numbers": vec![1; sized(400_000)]})),
            || operations(r#"{"op":"remove","path":"/spec/numbers/0"}"#, 2_000),
        ),
        patch(
            "json patch: 10 001 operations",
            &[413],
            (config_map("many"), "", JSON_PATCH),
            small,
            || operations(r#"{"op":"test","path":"/data/a","value":"b"}"#, 10_001),
        ),
        patch(
            "json patch: 10 000 tests of a large value",
            &[200, 413, 422],
            (config_map("tests"), "", JSON_PATCH),
            || json!({"metadata": {}, "data": {"a": "b".repeat(900_000)}}),
            || {
                let test = r#"{"op":"copy","from":"/data/a","path":"/data/b"}"#;
                operations(test, 10_000)
            },
        ),
        patch(
            "json patch: a path of 100 000 parts",
            &[400, 422],
            (config_map("path"), "", JSON_PATCH),
            small,
            || format!(r#"[{{"op":"add","path":"{}","value":1}}]"#, "/a".repeat(100_000)),
        ),
        patch(
            "json patch: a failed test of a secret value quotes little of it",
            &[422],
            (config_map("quoted"), "", JSON_PATCH),
            || json!({"metadata": {}, "data": {"a": "s".repeat(900_000)}}),
            || {
                r#"[{"op":"test","path":"/data/a","value":"x"},{"op":"remove","path":"/q"}]"#
                    .to_owned()
            },
        ),
        patch(
            "merge patch: 20 000 keys into 60 000",
            &[200, 413, 422, 500],
            (config_map("merged"), "", MERGE_PATCH),
            || data(sized(60_000)),
            || {
                let keys: Vec<_> = (0..sized(20_000)).map(|i| format!(r#""z{i}":"v""#)).collect();
                format!(r#"{{"data":{{{}}}}}"#, keys.join(","))
            },
        ),
        patch(
            "merge patch: nested 9 000 levels",
            &[400, 413, 422],
            (widgets("deep"), "", MERGE_PATCH),
            tree,
            || {
                format!(
                    r#"{{"spec":{{"free":{}1{}}}}}"#,
                    r#"{"a":"#.repeat(9_000),
                    "}".repeat(9_000)
                )
            },
        ),
        patch(
            "merge patch: nested deeper than JSON may be",
            &[400],
            (config_map("deeper"), "", MERGE_PATCH),
            small,
            || format!("{}1{}", r#"{"a":"#.repeat(400_000), "}".repeat(400_000)),
        ),
        patch(
            "strategic merge patch: 60 000 containers",
            &[422, 400, 413],
            (format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/wide"), "", STRATEGIC_PATCH),
            || {
                json!({"metadata": {}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "a", "image": "b"}]}}}})
            },
            || {
                let containers: Vec<_> =
                    (0..sized(60_000)).map(|i| format!(r#"{{"name":"c{i}"}}"#)).collect();
                let list = containers.join(",");
                format!(r#"{{"spec":{{"template":{{"spec":{{"containers":[{list}]}}}}}}}}"#)
            },
        ),
        patch(
            "strategic merge patch: 50 000 deletions from a list",
            &[200, 400, 422],
            (config_map("finalized"), "", STRATEGIC_PATCH),
            || small_with_finalizers(2_000),
            || {
                let gone: Vec<_> =
                    (0..sized(50_000)).map(|i| format!(r#""example.com/f{i}""#)).collect();
                let gone = gone.join(",");
                format!(r#"{{"metadata":{{"$deleteFromPrimitiveList/finalizers":[{gone}]}}}}"#)
            },
        ),
        patch(
            "strategic merge patch: an order of 50 000 elements",
            &[200, 400, 422, 500],
            (config_map("ordered"), "", STRATEGIC_PATCH),
            small,
            || {
                let order: Vec<_> =
                    (0..sized(50_000)).map(|i| format!(r#""example.com/f{i}""#)).collect();
                let order = order.join(",");
                format!(
                    r#"{{"metadata":{{"$setElementOrder/finalizers":[{order}],"finalizers":[]}}}}"#
                )
            },
        ),
        patch(
            "apply: 60 000 keys",
            &[200, 409, 413, 422, 500],
            (config_map("applied"), "?fieldManager=m&force=true", APPLY),
            small,
            || {
                let mut object = data(sized(60_000));
                object["metadata"]["name"] = "applied".into();
                object["apiVersion"] = "v1".into();
                object["kind"] = "ConfigMap".into();
                object.to_string()
            },
        ),
        patch(
            "apply: 8 000 owners",
            &[200, 422],
            (config_map("owned"), "?fieldManager=m&force=true", APPLY),
            small,
            || {
                let owners: Vec<_> = (0..sized(8_000))
                    .map(|i| json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": format!("u{i}")}))
                    .collect();
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned",
                    "ownerReferences": owners}})
                .to_string()
            },
        ),
        patch(
            "apply: YAML aliases",
            &[400],
            (config_map("aliased"), "?fieldManager=m&force=true", APPLY),
            small,
            || {
                let aliases: String = "  - *a\n".repeat(900);
                format!(
                    "apiVersion: v1\nkind: ConfigMap\na: &a {}\nx:\n{aliases}",
                    "s".repeat(200_000)
                )
            },
        ),
        deep_apply(),
    ]
}

fn small_with_finalizers(count: usize) -> Value {
    let finalizers: Vec<_> = (0..count).map(|i| format!("example.com/f{i}")).collect();
    json!({"metadata": {"finalizers": finalizers}, "data": {}})
}

/// What was applied 900 levels deep can be applied to again, and deleted.
fn deep_apply() -> Case {
    Case::new("apply: 900 levels, twice", Client::NamespaceAdmin, &[200], |http| {
        let path = custom::path("deep-applied");
        let object = |leaf: &str| {
            let tree = format!("{}{leaf}{}", r#"{"a":"#.repeat(900), "}".repeat(900));
            format!(
                r#"{{"apiVersion":"{}","kind":"Widget","metadata":{{"name":"deep-applied"}},"spec":{{"free":{tree}}}}}"#,
                custom::API_VERSION
            )
        };
        let query = "?fieldManager=m&force=true";
        let apply =
            |body: String| http.send(Method::PATCH, &format!("{path}{query}"), Some(APPLY), body);
        let first = apply(object("1"));
        assert_eq!(first.code, 201, "{}", first.text());
        let second = apply(object("2"));
        http.delete(&path);
        Outcome::from(&second)
    })
}
