//! Objects and what kube-apiserver v1.36 warns of, in `tests/warnings.yaml`.

use std::sync::Arc;

use meta::Value;

use crate::{
    Definitions,
    validation::tests::{kind, steps},
};

const CASES: &str = include_str!("../../tests/warnings.yaml");

/// Each document has an object, what changes of it (a merge patch, perhaps of a subresource), and the
/// warnings of the last step, as the real server gave them.
#[test]
fn warnings_are_those_of_kube_apiserver() {
    let definitions = Definitions::load();
    let schema = Arc::new(Definitions::load().schema);
    let mut differences = Vec::new();
    for document in CASES.split("---\n") {
        let case = codec::yaml::load(document.as_bytes()).expect(document).value;
        let object = case.get("object").expect("a case has an object");
        let kind = kind(&definitions, &schema, object);
        let (new, old) = steps(&kind, &case, object).expect(document);
        let subresource = case.str_at(&["subresource"]);
        let ours = kind.strategy.warnings(subresource, &new, old.as_ref());
        let expected = case.items_at(&["warnings"]).iter().filter_map(Value::as_str);
        let expected: Vec<&str> = expected.collect();
        if ours != expected {
            differences.push(format!("{document}\n  ours: {ours:#?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}
