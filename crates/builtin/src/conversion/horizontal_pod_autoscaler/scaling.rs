//! Behaviour and conditions as v1's annotations have them.

use meta::Value;

use super::{listed, ordered, text_of};

pub(super) fn write_behavior(behavior: &Value) -> String {
    let rules = |name: &str| {
        Some(behavior.get(name).filter(|rules| !rules.is_null()).map_or_else(null, write_rules))
    };
    ordered(&[("ScaleUp", rules("scaleUp")), ("ScaleDown", rules("scaleDown"))])
}

fn null() -> String {
    "null".to_owned()
}

/// Compat: upstream prints a struct that is not meant to be printed, with everything that it has.
fn write_rules(rules: &Value) -> String {
    let text = |name: &str| Some(text_of(rules.get(name)).unwrap_or_else(null));
    let policies = rules.get("policies").and_then(Value::as_array).map(|policies| {
        listed(policies.iter().map(|policy| {
            let text = |name: &str| text_of(policy.get(name));
            ordered(&[
                ("Type", text("type")),
                ("Value", text("value")),
                ("PeriodSeconds", text("periodSeconds")),
            ])
        }))
    });
    ordered(&[
        ("StabilizationWindowSeconds", text("stabilizationWindowSeconds")),
        ("SelectPolicy", text("selectPolicy")),
        ("Policies", Some(policies.unwrap_or_else(null))),
        ("Tolerance", text("tolerance")),
    ])
}

/// None: it says nothing.
pub(super) fn read_behavior(behavior: &Value) -> Option<Value> {
    let mut read = Value::object();
    for name in ["scaleUp", "scaleDown"] {
        if let Some(rules) = member(behavior, name) {
            read.set_at(&[name], read_rules(rules));
        }
    }
    let is_empty = read.as_object().is_none_or(meta::Map::is_empty);
    (!is_empty).then_some(read)
}

fn read_rules(rules: &Value) -> Value {
    let mut read = Value::object();
    for name in ["stabilizationWindowSeconds", "selectPolicy", "tolerance"] {
        if let Some(value) = member(rules, name) {
            read.set_at(&[name], value.clone());
        }
    }
    if let Some(policies) = member(rules, "policies").and_then(Value::as_array) {
        let policies: Vec<Value> = policies
            .iter()
            .map(|policy| {
                let mut read = Value::object();
                for name in ["type", "value", "periodSeconds"] {
                    if let Some(value) = member(policy, name) {
                        read.set_at(&[name], value.clone());
                    }
                }
                read
            })
            .collect();
        read.set_at(&["policies"], policies);
    }
    read
}

/// Go reads names without regard to case.
fn member<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let mut entries = object.as_object()?.iter();
    let found = entries.find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value).filter(|value| !value.is_null())
}

pub(super) fn write_conditions(conditions: &[Value]) -> String {
    listed(conditions.iter().map(|condition| {
        let text = |name: &str| text_of(condition.get(name));
        ordered(&[
            ("type", text("type")),
            ("status", text("status")),
            ("lastTransitionTime", Some(text("lastTransitionTime").unwrap_or_else(null))),
            ("reason", text("reason")),
            ("message", text("message")),
        ])
    }))
}
