//! Broken objects and what kube-apiserver v1.36 says about them, in `tests/validation/*.yaml`.

use std::{fs, path::Path, sync::Arc};

use meta::{FieldErrors, User, Value, time::Time};
use registry::{Kind, WriteContext};

use crate::{Definitions, behaviour, strategies};

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

fn kind(definitions: &Definitions, schema: &Arc<schema::Schema>, object: &Value) -> Kind {
    let (api_version, name) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"]));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let facts = definitions
        .resources
        .iter()
        .find(|facts| {
            facts.kind.group == *group && facts.kind.version == *version && facts.kind.kind == *name
        })
        .expect("a kind that is served");
    let (behaviour, strategy) = (behaviour::of(group, name), strategies::of(group, name));
    Kind::new(facts.clone(), schema.clone(), behaviour, strategy, None, None, None)
}

/// The errors of the last step, as a client reads them.
fn outcome(kind: &Kind, case: &Value, object: &Value) -> String {
    let user = User::default();
    let cx = WriteContext { kind, user: &user, now: Time::from_unix(1, 0) };
    let mut errors = FieldErrors::default();
    let mut old = without_nulls(object);
    old.set_at(&["metadata", "uid"], "the-uid");
    apply_defaults(kind, &mut old);
    kind.strategy.prepare_for_create(&mut old, &cx);
    kind.strategy.validate(&old, &mut errors);
    let patch = case.get("patch");
    if let Some(patch) = patch.filter(|_| errors.is_empty()) {
        let subresource = case.str_at(&["subresource"]);
        let mut new = old.clone();
        merge(&mut new, patch);
        apply_defaults(kind, &mut new);
        if subresource.is_empty() {
            kind.strategy.prepare_for_update(&mut new, &old, &cx);
            kind.strategy.validate_update(&new, &old, &mut errors);
        } else {
            kind.strategy.prepare_for_subresource(subresource, &mut new, &old, &cx);
            kind.strategy.validate_subresource(subresource, &new, &old, &mut errors);
        }
    }
    if errors.is_empty() { String::new() } else { errors.to_string() }
}

fn apply_defaults(kind: &Kind, object: &mut Value) {
    kind.schema.apply_defaults(kind.ty(), object);
    kind.strategy.default(object);
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(changes) = patch.as_object() else {
        *target = without_nulls(patch);
        return;
    };
    for (key, change) in changes.iter() {
        if change.is_null() {
            target.remove_at(&[key]);
        } else {
            merge(target.object_at_mut(&[]).entry(key), change);
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
