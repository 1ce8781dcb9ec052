//! `matchLabelKeys` and `mismatchLabelKeys`: a new pod's own labels become part of its selectors.

use meta::{Map, Value, value};

/// Merges the labels that the keys name into the selectors of affinity terms and spread constraints:
/// the scheduler looks at the selectors only.
pub(crate) fn merge_into_selectors(pod: &mut Value) {
    let labels = pod.at(&["metadata", "labels"]).and_then(Value::as_object).cloned();
    let (Some(labels), Some(spec)) = (labels, pod.get_mut("spec")) else { return };
    for affinity in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.at_mut(&["affinity", affinity]) else { continue };
        for term in items(affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = term.get_mut("podAffinityTerm") {
                merge(term, &labels);
            }
        }
        for term in items(affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
            merge(term, &labels);
        }
    }
    for constraint in items(spec, "topologySpreadConstraints") {
        merge(constraint, &labels);
    }
}

fn items<'a>(parent: &'a mut Value, list: &str) -> &'a mut [Value] {
    parent.get_mut(list).and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default()
}

fn merge(term: &mut Value, labels: &Map) {
    // Without a selector nothing is selected.
    if term.get("labelSelector").and_then(Value::as_object).is_none() {
        return;
    }
    let mut merged = Vec::new();
    for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term.items_at(&[list]).iter().filter_map(Value::as_str) {
            if let Some(label) = labels.get(key) {
                let values = vec![label.clone()];
                merged.push(value!({"key": key, "operator": operator, "values": (values)}));
            }
        }
    }
    if merged.is_empty() {
        return;
    }
    let path = ["labelSelector", "matchExpressions"];
    let mut expressions = term.items_at(&path).to_vec();
    expressions.extend(merged);
    term.set_at(&path, expressions);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_merged_into_selectors() {
        let term = |selector: Value| {
            value!({
                "labelSelector": (selector),
                "matchLabelKeys": ["a", "missing"],
                "mismatchLabelKeys": ["b"],
            })
        };
        let pod = |term: Value, constraint: Value| {
            value!({
                "metadata": {"labels": {"a": "1", "b": "2"}},
                "spec": {
                    "affinity": {
                        "podAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": [(term.clone())],
                        },
                        "podAntiAffinity": {
                            "preferredDuringSchedulingIgnoredDuringExecution": [
                                {"weight": 1i64, "podAffinityTerm": (term)},
                            ],
                        },
                    },
                    "topologySpreadConstraints": [(constraint)],
                },
            })
        };
        let constraint =
            |selector: Value| value!({"labelSelector": (selector), "matchLabelKeys": ["a"]});
        let (is_a, is_not_b) = (
            value!({"key": "a", "operator": "In", "values": ["1"]}),
            value!({"key": "b", "operator": "NotIn", "values": ["2"]}),
        );
        let own = value!({"key": "x", "operator": "Exists"});
        let cases = [
            (
                value!({}),
                value!({"matchExpressions": [(is_a.clone()), (is_not_b.clone())]}),
                value!({"matchExpressions": [(is_a.clone())]}),
            ),
            (
                value!({"matchExpressions": [(own.clone())]}),
                value!({"matchExpressions": [(own.clone()), (is_a.clone()), (is_not_b)]}),
                value!({"matchExpressions": [(own), (is_a)]}),
            ),
            (Value::Null, Value::Null, Value::Null),
        ];
        for (selector, of_terms, of_constraints) in cases {
            let mut changed = pod(term(selector.clone()), constraint(selector));
            merge_into_selectors(&mut changed);
            assert_eq!(changed, pod(term(of_terms), constraint(of_constraints)));
        }
    }
}
