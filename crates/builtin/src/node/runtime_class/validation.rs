//! Validation of runtime classes.

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_label, validate_labels},
};

use crate::validation::{
    cursor::Field,
    pod_spec::{container_resource_name, requirements, tolerations},
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    root.get("handler").require_rule(errors, is_dns1123_label);
    let overhead = root.get("overhead");
    if let Some(fixed) = overhead.value_at(&["podFixed"]) {
        let limits = Value::Object([("limits", fixed.clone())].into_iter().collect());
        requirements(&overhead.with(Some(&limits)), container_resource_name, errors);
    }
    let scheduling = root.get("scheduling");
    let selector = scheduling.get("nodeSelector");
    validate_labels(selector.value(), &selector.path(), errors);
    let list = scheduling.get("tolerations");
    tolerations(&list, errors);
    let items = object.items_at(&["scheduling", "tolerations"]);
    let key = |toleration: &Value| {
        ["key", "operator", "value", "effect"].map(|part| toleration.str_at(&[part]).to_owned())
    };
    let mut seen = std::collections::HashSet::new();
    for (at, toleration) in list.items().enumerate() {
        if !seen.insert(key(&items[at])) {
            let part = |name: &str| meta::json::to_string(&items[at].str_at(&[name]).into());
            let seconds = items[at].i64_at(&["tolerationSeconds"]);
            let message = format!(
                "Duplicate value: {{\"Key\":{},\"Operator\":{},\"Value\":{},\"Effect\":{},\
                 \"TolerationSeconds\":{}}}",
                part("key"),
                part("operator"),
                part("value"),
                part("effect"),
                seconds.map_or_else(|| "null".to_owned(), |seconds| seconds.to_string())
            );
            errors.push(meta::field::FieldReason::Duplicate, toleration.path(), message);
        }
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
    let (root, old) = (Field::root(object), Field::root(old));
    root.get("handler").immutable(&old.get("handler"), errors);
}
