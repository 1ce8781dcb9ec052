//! Custom resources and what kube-apiserver v1.36 makes of them, in `objects.yaml`.

use std::fmt::Write as _;

use meta::{FieldErrors, Map, Value, field::quote};
use schema::structural::{Structural, UnknownFields};

const CASES: &str = include_str!("objects.yaml");

/// Each document has the schema of a `spec`, and what becomes of specs: `result` if that differs from
/// `new`, `error` where it is invalid, `refused` where it can't be read, `unknown` for what strict
/// field validation says.
#[test]
fn results_match_kube_apiserver() {
    let (mut count, mut differences) = (0, String::new());
    for document in CASES.split("---\n") {
        let document = codec::yaml::load(document.as_bytes()).expect("YAML").value;
        let schema = document.get("schema").expect("a schema").clone();
        let spec = Value::Object(Map::from_pairs(vec![("spec".into(), schema.clone())]));
        let mut root = meta::value!({"type": "object"});
        root.set_at(&["properties"], spec);
        let structural = Structural::new(&root).expect("a schema that can be read");
        for case in document.items_at(&["cases"]) {
            count += 1;
            let ours = fate(&structural, case);
            let mut theirs = case.clone();
            theirs.remove_at(&["old"]);
            theirs.remove_at(&["new"]);
            // Go prefixes the message with the kind.
            let refused = theirs.str_at(&["refused"]).split_once(" as a ");
            let refused = refused.and_then(|(_, rest)| rest.split_once(": "));
            if let Some((_, why)) = refused.map(|(a, b)| (a.to_owned(), b.to_owned())) {
                theirs.set_at(&["refused"], why);
            }
            let show = meta::json::to_string;
            // As text: Go prints 1.0 as 1.
            if show(&ours) != show(&theirs) {
                let _ = writeln!(
                    differences,
                    "{}\n  case:   {}\n  theirs: {}\n  ours:   {}\n",
                    show(&schema),
                    show(case),
                    show(&theirs),
                    show(&ours)
                );
            }
        }
    }
    assert!(count > 300, "there are cases");
    assert!(differences.is_empty(), "{differences}");
}

/// The result for a spec, in the format of the cases.
fn fate(structural: &Structural, case: &Value) -> Value {
    let object = |spec: Option<&Value>| {
        let mut object = meta::value!({"apiVersion": "crs.example.com/v1", "kind": "T"});
        object.set_at(&["metadata", "name"], "x");
        object.set_at(&["spec"], spec.cloned().unwrap_or_default());
        object
    };
    let mut fate = Value::object();
    let mut new = object(case.get("new"));
    let mut unknown = UnknownFields::default();
    structural.prune(&mut new, Some(&mut unknown));
    structural.drop_nulls(&mut new);
    if let Err(why) = structural.coerce_embedded(&mut new, false, Some(&mut unknown)) {
        fate.set_at(&["refused"], why.to_string());
        return fate;
    }
    structural.default(&mut new);
    let unknown = unknown.paths;
    if !unknown.is_empty() && case.get("old").is_none() {
        let unknown = unknown.iter().map(|field| format!("unknown field {}", quote(field)));
        fate.set_at(&["unknown"], unknown.collect::<Vec<_>>().join(", "));
    }
    let mut errors = FieldErrors::default();
    if let Some(old) = case.get("old") {
        let mut old = object(Some(old));
        structural.default(&mut old);
        structural.validate_update(&new, &old, |_| {}, &mut errors);
    } else {
        structural.validate(&new, |_| {}, &mut errors);
    }
    if !errors.is_empty() {
        fate.set_at(&["error"], errors.to_string());
    } else if new.get("spec") != case.get("new") {
        fate.set_at(&["result"], new.get("spec").cloned().unwrap_or_default());
    }
    fate
}
