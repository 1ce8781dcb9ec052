//! Patches of every kind, applied to an object that has something of everything.

use codec::json::{self, DecodeOptions};
use meta::Value;
use patch::{
    apply::{self, Filter, Manager, Set, SingleVersion, TypeContext},
    json_patch::JsonPatch,
    merge, strategic,
};
use schema::TypeId;

use super::{Target, ending};
use crate::{Random, definitions};

pub(super) const JSON_PATCH: Target = Target {
    name: "json_patch",
    seeds: json_patch_seeds,
    words: JSON_PATCH_WORDS,
    run: run_json_patch,
};
pub(super) const MERGE_PATCH: Target =
    Target { name: "merge_patch", seeds: object_seeds, words: PATCH_WORDS, run: run_merge_patch };
pub(super) const STRATEGIC_PATCH: Target = Target {
    name: "strategic_patch",
    seeds: object_seeds,
    words: PATCH_WORDS,
    run: run_strategic_patch,
};
pub(super) const APPLY: Target =
    Target { name: "apply", seeds: object_seeds, words: PATCH_WORDS, run: run_apply };
pub(super) const FIELDS_V1: Target =
    Target { name: "fields_v1", seeds: fields_seeds, words: FIELDS_WORDS, run: run_fields };

const JSON_PATCH_WORDS: &[&str] = &[
    r#"{"op":"add","path":"/spec/containers/0","value":{}},"#,
    r#"{"op":"remove","path":"/metadata/labels"},"#,
    r#"{"op":"test","path":"","value":null},"#,
    r#"{"op":"copy","from":"/spec","path":"/spec/volumes"},"#,
    r#"{"op":"move","from":"/spec","path":"/metadata/x"},"#,
    "/-",
    "/~0",
    "/~1",
    "~2",
    "/00",
    "/-1",
    "/18446744073709551616",
    "replace",
    "[",
    "]",
    "{",
    "}",
    "\"op\":",
    "null",
];

const PATCH_WORDS: &[&str] = &[
    "\"$patch\":\"replace\",",
    "\"$patch\":\"delete\",",
    "\"$patch\":\"merge\",",
    "\"$retainKeys\":[\"name\"],",
    "\"$setElementOrder/containers\":[{\"name\":\"b\"},{\"name\":\"a\"}],",
    "\"$deleteFromPrimitiveList/finalizers\":[\"f\"],",
    "\"$setElementOrder/finalizers\":[\"g\"],",
    "\"containers\":[{\"name\":\"a\"}],",
    "\"ports\":[{\"containerPort\":1}],",
    "null",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\"name\":\"a\"",
    "1",
    "\"a\":",
    "\"tolerations\":[],",
    "\"volumes\":null,",
];

const FIELDS_WORDS: &[&str] = &[
    "\"f:a\":{},",
    "\".\":{},",
    "\"k:{\\\"name\\\":\\\"a\\\"}\":{},",
    "\"v:1\":{},",
    "\"i:0\":{},",
    "{",
    "}",
    "\"f:\":",
    "\"k:\":",
    "\\\"",
    "1.5",
    "null",
    "\"x:\":{}",
];

/// What is patched.
const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":{"a":"1","b":"2"},"finalizers":["f","g"]},
"spec":{"containers":[{"name":"a","image":"x","ports":[{"containerPort":80,"protocol":"TCP"}],"env":[{"name":"E","value":"1"}]},
{"name":"b","image":"y","resources":{"limits":{"cpu":"1"}}}],"volumes":[{"name":"v","emptyDir":{}}],"tolerations":[{"key":"k"}],
"nodeSelector":{"n":"m"}},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"podIPs":[{"ip":"1.2.3.4"}]}}"#;

fn pod() -> (TypeId, Value) {
    let ty = definitions()
        .type_of(&meta::GroupVersionKind::new("", "v1", "Pod"))
        .expect("a built-in kind");
    (ty, tree(POD.as_bytes()).expect("the pod above"))
}

fn tree(input: &[u8]) -> Result<Value, String> {
    let decoded = json::decode_any(input, DecodeOptions { strict: false });
    decoded.map(|decoded| decoded.value).map_err(ending)
}

fn json_patch_seeds(_: &mut Random) -> Vec<Vec<u8>> {
    let words = JSON_PATCH_WORDS.iter().filter(|word| word.starts_with("{\""));
    words.map(|word| format!("[{}]", word.trim_end_matches(',')).into_bytes()).collect()
}

fn object_seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let mut seeds = super::documents::json_seeds(random);
    seeds.truncate(1);
    seeds.push(POD.into());
    let directives = PATCH_WORDS.iter().filter(|word| word.starts_with("\"$"));
    seeds.extend(directives.map(|word| {
        format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{{word}"name":"p"}},"spec":{{{word}"containers":[{{{word}"name":"a"}}]}}}}"#)
            .into_bytes()
    }));
    seeds
}

fn fields_seeds(_: &mut Random) -> Vec<Vec<u8>> {
    vec![
        br#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{}}}}}"#.to_vec(),
        br#"{"f:a":{"v:1":{},"v:\"x\"":{},"v:true":{},"v:null":{},"i:3":{}},"k:{\"a\":1,\"b\":\"c\"}":{}}"#.to_vec(),
    ]
}

fn run_json_patch(input: &[u8]) -> String {
    let (_, pod) = pod();
    let patch = match tree(input).map(|patch| JsonPatch::decode(&patch)) {
        Ok(Ok(patch)) => patch,
        Ok(Err(error)) => return ending(error),
        Err(error) => return error,
    };
    match patch.apply(&pod) {
        Ok(patched) => {
            assert_eq!(patch.apply(&pod).as_ref(), Ok(&patched), "the same patch does the same");
            format!("ok {}", patch.strict_errors().len())
        }
        Err(error) => ending(error),
    }
}

fn run_merge_patch(input: &[u8]) -> String {
    let (_, pod) = pod();
    let patch = match tree(input) {
        Ok(patch) => patch,
        Err(error) => return error,
    };
    let apply = |object: &Value| merge::apply(object, &patch);
    match apply(&pod) {
        Ok(once) => {
            // A list that kept its nulls meets a list the second time, and loses them.
            let twice = apply(&once).expect("as above");
            assert_eq!(apply(&twice).expect("as above"), twice);
            "ok".to_owned()
        }
        Err(error) => ending(error),
    }
}

fn run_strategic_patch(input: &[u8]) -> String {
    let (ty, pod) = pod();
    match tree(input).map(|patch| strategic::apply(&pod, &patch, &definitions().schema, ty)) {
        Ok(Ok(_)) => "ok".to_owned(),
        Ok(Err(error)) => ending(error),
        Err(error) => error,
    }
}

fn run_apply(input: &[u8]) -> String {
    let (ty, pod) = pod();
    let config = match tree(input) {
        Ok(config) => config,
        Err(error) => return error,
    };
    let typing = TypeContext {
        schema: &definitions().schema,
        ty,
        fields: &Filter::All,
        versions: &SingleVersion,
    };
    let manager =
        |name| Manager { name, api_version: "v1", subresource: "", now: "2001-02-03T04:05:06Z" };
    let mut live = pod.clone();
    apply::update(None, &mut live, &typing, &manager("creator"));
    match apply::apply(Some(&live), &config, &typing, &manager("applier"), true) {
        Ok(applied) => {
            let again = apply::apply(Some(&applied), &config, &typing, &manager("applier"), false);
            assert_eq!(
                again.expect("no conflict with oneself"),
                applied,
                "the second time nothing happens"
            );
            "ok".to_owned()
        }
        Err(error) => ending(error),
    }
}

fn run_fields(input: &[u8]) -> String {
    match tree(input).map(|fields| (Set::from_value(&fields), fields)) {
        Ok((Ok((set, canonical)), fields)) => {
            let text = set.to_json();
            let written = tree(&text).expect("what was written can be read");
            if canonical {
                assert_eq!(written, fields, "{}", super::as_text(&text));
            }
            let again = Set::from_value(&written).expect("what was written is a set");
            assert_eq!(again, (set.clone(), true), "{}", super::as_text(&text));
            assert_eq!(set.clone().union(set.clone()), set);
            assert!(set.clone().difference(&set).is_empty());
            "ok".to_owned()
        }
        Ok((Err(error), _)) => ending(error),
        Err(error) => error,
    }
}
