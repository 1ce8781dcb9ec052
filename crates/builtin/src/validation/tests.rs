//! Broken objects and what kube-apiserver v1.36 says about them, in `tests/validation/*.yaml`.

use std::{collections::HashMap, fs, path::Path, sync::Arc};

use meta::{ApiError, User, Value, Warnings, time::Time};
use registry::{Kind, WriteContext};

use crate::{Definitions, FeatureGates, feature_gated_fields, kind_facts, strategies};

/// Each document has an object, what changes of it (a merge patch, perhaps of a subresource), and the
/// error of the last step, as the real server gave it.
#[test]
fn errors_are_those_of_kube_apiserver() {
    let definitions = Definitions::load();
    let schema = Arc::new(Definitions::load().schema);
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/validation");
    let mut differences = Vec::new();
    let mut count = 0;
    for file in fs::read_dir(directory).expect("the cases are there") {
        let text = fs::read_to_string(file.expect("readable").path()).expect("the cases are text");
        for document in text.split("---\n").filter(|document| !document.trim().is_empty()) {
            let case = codec::yaml::load(document.as_bytes()).expect(document).value;
            let object = case.get("object").expect("a case has an object");
            let kind = kind(&definitions, &schema, object);
            let ours = outcome(&kind, &case, object);
            let expected = case.str_at(&["error"]);
            count += 1;
            if ours != expected {
                let lines = document.lines().filter(|line| !line.starts_with("error:"));
                let lines: Vec<&str> = lines.collect();
                differences
                    .push(format!("{}\n  theirs: {expected}\n  ours:   {ours}", lines.join("\n")));
            }
        }
    }
    assert!(count > 0, "there are cases");
    assert!(
        differences.is_empty(),
        "{} of {count} differ:\n{}",
        differences.len(),
        differences.join("\n\n")
    );
}

/// Valid objects of every kind with one thing changed, in `tests/mutations/*.tsv`: the base (one of
/// `tools/hunt/bases`), the operation, where and what is changed (`-`: removed), and the error.
#[test]
fn one_change_leads_to_the_errors_of_kube_apiserver() {
    let definitions = Definitions::load();
    let schema = Arc::new(Definitions::load().schema);
    let bases = bases();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutations");
    let mut differences = Vec::new();
    let mut count = 0;
    for file in fs::read_dir(directory).expect("the cases are there") {
        let text = fs::read_to_string(file.expect("readable").path()).expect("the cases are text");
        for line in text.lines() {
            let columns: Vec<&str> = line.split('\t').collect();
            let [base, operation, path, change, expected] = columns[..] else {
                panic!("five columns: {line}")
            };
            let base = bases.get(base).unwrap_or_else(|| panic!("a base: {base}"));
            let case =
                mutation(base, operation, &json(path), (change != "-").then(|| json(change)));
            let kind = kind(&definitions, &schema, base);
            let ours = outcome(&kind, &case, case.get("object").expect("made above"));
            count += 1;
            if ours != json(expected).as_str().expect("a text") {
                differences.push(format!("{line}\n  ours: {ours}"));
            }
        }
    }
    assert!(count > 0, "there are cases");
    let shown: Vec<&str> = differences.iter().map(String::as_str).take(200).collect();
    let (wrong, shown) = (differences.len(), shown.join("\n\n"));
    assert!(differences.is_empty(), "{wrong} of {count} differ:\n{shown}");
}

/// By kind and name.
pub(crate) fn bases() -> HashMap<String, Value> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/hunt/bases");
    let mut bases = HashMap::new();
    for file in fs::read_dir(directory).expect("the bases are there") {
        let text = fs::read_to_string(file.expect("readable").path()).expect("the bases are text");
        for document in text.split("---\n").filter(|document| !document.trim().is_empty()) {
            let object = codec::yaml::load(document.as_bytes()).expect(document).value;
            let name = object.str_at(&["metadata", "name"]);
            bases.insert(format!("{}/{name}", object.str_at(&["kind"])), object.clone());
        }
    }
    bases
}

fn json(text: &str) -> Value {
    let options = codec::json::DecodeOptions { strict: false };
    codec::json::decode_any(text.as_bytes(), options).expect(text).value
}

/// As a case of the other table. A change within a list is one of the whole list.
fn mutation(base: &Value, operation: &str, path: &Value, change: Option<Value>) -> Value {
    let path = path.as_array().unwrap_or_default();
    let mut changed = base.clone();
    set(&mut changed, path, change.clone());
    let mut case = Value::object();
    if operation == "create" {
        case.set_at(&["object"], changed);
        return case;
    }
    let keys: Vec<&str> = path.iter().map_while(Value::as_str).collect();
    let value = if keys.len() == path.len() { change } else { changed.at(&keys).cloned() };
    let mut patch = value.unwrap_or(Value::Null);
    for key in keys.iter().rev() {
        let mut outer = Value::object();
        outer.object_at_mut(&[]).insert(*key, patch);
        patch = outer;
    }
    case.set_at(&["object"], base.clone());
    case.set_at(&["patch"], patch);
    if operation != "update" {
        case.set_at(&["subresource"], operation);
    }
    case
}

/// Sets or removes the value at a path of names and indexes.
fn set(value: &mut Value, path: &[Value], change: Option<Value>) {
    let Some((step, rest)) = path.split_first() else {
        *value = change.unwrap_or(Value::Null);
        return;
    };
    let next = match (step, &mut *value) {
        (Value::String(name), Value::Object(map)) if rest.is_empty() && change.is_none() => {
            map.remove(name);
            return;
        }
        (Value::String(name), Value::Object(map)) => map.entry(name),
        (Value::Number(_), Value::Array(items)) => {
            let at = step.as_i64().and_then(|at| usize::try_from(at).ok()).expect("an index");
            &mut items[at]
        }
        _ => panic!("no such path"),
    };
    set(next, rest, change);
}

pub(crate) fn kind(
    definitions: &Definitions,
    schema: &Arc<schema::Schema>,
    object: &Value,
) -> Kind {
    let (api_version, name) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"]));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let facts = definitions
        .resources
        .iter()
        .find(|facts| {
            facts.kind.group == *group && facts.kind.version == *version && facts.kind.kind == *name
        })
        .expect("a kind that is served");
    // A kind that waits for a gate was asked about with all of them open.
    let own = kind_facts::of(&facts.kind);
    let features = match own.feature_gate {
        Some(_) => FeatureGates::new(|_| true),
        None => FeatureGates::default(),
    };
    let strategy = strategies::of(group, name, features, &strategies::crd());
    Kind::new(facts.clone(), schema.clone(), own.behaviour, strategy, None, None, None)
        .with_gated_fields(feature_gated_fields::of(own, false, features))
}

/// The errors of the last step, as a client reads them.
fn outcome(kind: &Kind, case: &Value, object: &Value) -> String {
    words(steps(kind, case, object).map(drop))
}

/// Makes the object and changes it as the case says: what it is at last, and what it was before that.
pub(crate) fn steps(
    kind: &Kind,
    case: &Value,
    object: &Value,
) -> Result<(Value, Option<Value>), ApiError> {
    let user = User::default();
    let warnings = Warnings::default();
    let cx = WriteContext {
        kind,
        user: &user,
        now: Time::from_unix(1, 0),
        warnings: &warnings,
        has_sent_labels: false,
        sent_generation: None,
    };
    let mut old = without_nulls(object);
    let mut metadata = vec![("uid", "the-uid"), ("creationTimestamp", "2026-01-01T00:00:00Z")];
    if kind.namespaced() {
        metadata.push(("namespace", "default"));
    }
    for (field, text) in metadata {
        old.set_at(&["metadata", field], text);
    }
    registry::prepare_create(kind, &mut old, &cx)?;
    // As it is read.
    kind.strategy.default(&mut old);
    let Some(patch) = case.get("patch") else { return Ok((old, None)) };
    old.set_at(&["metadata", "resourceVersion"], "1");
    let mut new = old.clone();
    merge(&mut new, patch);
    registry::prepare_update(kind, case.str_at(&["subresource"]), &mut new, &old, &cx)?;
    Ok((new, Some(old)))
}

fn words(outcome: Result<(), ApiError>) -> String {
    match outcome {
        Ok(()) => String::new(),
        Err(ApiError::Invalid { errors, .. }) => errors.to_string(),
        Err(other) => other.to_string(),
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(changes) = patch.as_object() else {
        *target = without_nulls(patch);
        return;
    };
    let target = target.object_at_mut(&[]);
    for (key, change) in changes.iter() {
        if change.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key), change);
        }
    }
}

/// Decoding drops what is null, as Go does.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}
