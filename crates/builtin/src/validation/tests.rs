//! Broken objects and what kube-apiserver v1.36 says about them, in `tests/validation/*.yaml`.

use std::{fs, path::Path, sync::Arc};

use meta::{ApiError, User, Value, time::Time};
use registry::{Kind, WriteContext};

use crate::{Definitions, behaviour, restrict, strategies};

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
    let (behaviour, strategy) = (behaviour::of(group, version, name), strategies::of(group, name));
    Kind::new(facts.clone(), schema.clone(), behaviour, strategy, None, None, None)
        .restricted(restrict::of(name, false, &[]))
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
    let cx = WriteContext { kind, user: &user, now: Time::from_unix(1, 0) };
    let mut old = without_nulls(object);
    let mut metadata = vec![("uid", "the-uid"), ("creationTimestamp", "2026-01-01T00:00:00Z")];
    if kind.namespaced() {
        metadata.push(("namespace", "default"));
    }
    for (field, text) in metadata {
        old.set_at(&["metadata", field], text);
    }
    registry::prepare_create(kind, &mut old, &cx)?;
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
