//! How policies and their bindings show parameters.

use meta::{Map, Value};

use crate::printer_cells::UNSET;

/// `v1/ConfigMap`: what a policy takes its parameters from.
pub(super) fn param_kind(policy: &Value) -> String {
    match policy.at(&["spec", "paramKind"]).filter(|kind| !kind.is_null()) {
        Some(kind) => format!("{}/{}", kind.str_at(&["apiVersion"]), kind.str_at(&["kind"])),
        None => UNSET.to_owned(),
    }
}

/// `namespace/name`, or a selector.
pub(super) fn param_ref(binding: &Value) -> String {
    let Some(param) = binding.at(&["spec", "paramRef"]) else { return UNSET.to_owned() };
    match (param.str_at(&["namespace"]), param.str_at(&["name"])) {
        (_, "") => {
            let selector = param.get("selector").filter(|selector| !selector.is_null());
            selector.map_or(UNSET.to_owned(), go_selector)
        }
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// Compat: kube-apiserver shows a selector as Go prints the struct.
fn go_selector(selector: &Value) -> String {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let labels = labels.into_iter().flat_map(Map::iter);
    let labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect();
    let expressions = selector.items_at(&["matchExpressions"]).iter();
    let expressions: Vec<String> = expressions.map(go_requirement).collect();
    let (labels, expressions) = (labels.concat(), expressions.concat());
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

fn go_requirement(expression: &Value) -> String {
    let values: Vec<&str> =
        expression.items_at(&["values"]).iter().filter_map(Value::as_str).collect();
    let (key, operator) = (expression.str_at(&["key"]), expression.str_at(&["operator"]));
    let values = values.join(" ");
    format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
}
