//! The defaults of every kind, held against what kube-apiserver fills in.

use std::{fs, path::Path};

use codec::json::DecodeOptions;
use meta::{GroupVersion, Value};

use super::{crd, of};
use crate::{Definitions, FeatureGates};

/// Each document of `tests/defaults/*.yaml` has an object as a client gave it and as kube-apiserver
/// v1.36 served it, without what isn't a default: allocated addresses, managedFields.
#[test]
fn defaults_are_those_of_kube_apiserver() {
    let definitions = Definitions::load();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/defaults");
    let mut differences = Vec::new();
    for file in fs::read_dir(directory).expect("the cases are there") {
        let text = fs::read_to_string(file.expect("readable").path()).expect("the cases are text");
        for document in text.split("---\n").filter(|document| !document.trim().is_empty()) {
            let case = codec::yaml::load(document.as_bytes()).expect(document).value;
            let given = case.get("given").expect("a case has what was given");
            let expected = case.get("defaulted").expect("a case has what was served");
            let name = given.str_at(&["metadata", "name"]);
            let (ours, again) = defaulted(&definitions, given);
            let title = format!("{} {name}", given.str_at(&["kind"]));
            compare(&title, expected, &ours, &mut differences);
            compare(&format!("{title}, again"), &ours, &again, &mut differences);
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

/// The object with its defaults, as a client reads it, and what becomes of it when it is written back.
fn defaulted(definitions: &Definitions, given: &Value) -> (Value, Value) {
    let version = GroupVersion::parse(given.str_at(&["apiVersion"])).expect("a version");
    let gvk = version.with_kind(given.str_at(&["kind"]));
    let ty = definitions.type_of(&gvk).expect("a kind");
    let strict = DecodeOptions { strict: true };
    let read = |object: &Value| {
        let text = meta::json::to_string(object);
        let decoded = codec::json::decode(text.as_bytes(), &definitions.schema, ty, strict);
        let mut object = decoded.expect(&text).value;
        definitions.schema.apply_defaults(ty, &mut object);
        of(&gvk.group, &gvk.kind, FeatureGates::default(), &crd()).default(&mut object);
        codec::json::remove_empty_fields(&mut object, &definitions.schema, ty);
        let mut served = Vec::new();
        codec::json::encode(&object, &definitions.schema, ty, &mut served);
        let mut served = codec::json::decode_any(&served, strict).expect("our own JSON").value;
        // How often a template has changed is counted, not defaulted.
        served.remove_at(&["metadata", "annotations", "deprecated.daemonset.template.generation"]);
        if served
            .at(&["metadata", "annotations"])
            .is_some_and(|left| left.as_object().is_some_and(meta::Map::is_empty))
        {
            served.remove_at(&["metadata", "annotations"]);
        }
        // A struct that is neither given nor defaulted prints as empty.
        for part in ["spec", "status"] {
            if object.get(part).is_none() {
                served.remove_at(&[part]);
            }
        }
        served
    };
    let once = read(given);
    let twice = read(&once);
    (once, twice)
}

/// The paths at which two trees differ.
fn compare(path: &str, expected: &Value, ours: &Value, differences: &mut Vec<String>) {
    match (expected, ours) {
        (Value::Object(expected), Value::Object(ours)) => {
            for (key, value) in expected.iter() {
                let ours = ours.get(key).unwrap_or(&Value::Null);
                compare(&format!("{path}.{key}"), value, ours, differences);
            }
            for (key, value) in ours.iter().filter(|(key, _)| !expected.contains_key(key)) {
                compare(&format!("{path}.{key}"), &Value::Null, value, differences);
            }
        }
        (Value::Array(expected), Value::Array(ours)) if expected.len() == ours.len() => {
            for (at, (expected, ours)) in expected.iter().zip(ours).enumerate() {
                compare(&format!("{path}[{at}]"), expected, ours, differences);
            }
        }
        _ if expected == ours => {}
        _ => {
            let [expected, ours] = [expected, ours].map(meta::json::to_string);
            differences.push(format!("{path}\n  expected {expected}\n      ours {ours}"));
        }
    }
}
