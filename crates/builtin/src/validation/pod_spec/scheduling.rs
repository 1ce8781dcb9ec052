//! Tolerations, topology spread and scheduling gates.

use std::collections::{BTreeSet, HashMap, HashSet};

use meta::{
    FieldErrors, Value,
    field::RuleId,
    names::{is_label_value, is_qualified_name},
};

use super::affinity::{label_keys, taint_effect};
use crate::validation::{cursor::Field, label_selector};

pub(crate) fn tolerations(tolerations: &Field<'_>, errors: &mut FieldErrors) {
    for toleration in tolerations.items() {
        let key = toleration.get("key");
        let (operator, value) = (toleration.get("operator"), toleration.get("value"));
        let effect = toleration.get("effect");
        key.rule_if_filled(errors, is_qualified_name);
        if key.is_empty() && !operator.is("Exists") {
            let why = "operator must be Exists when `key` is empty, which means \"match all \
                       values and all keys\"";
            operator.invalid_value(errors, operator.str(), why);
        }
        if toleration.get("tolerationSeconds").is_set() && !effect.is("NoExecute") {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            effect.invalid_value(errors, effect.str(), why);
        }
        match operator.str() {
            "Equal" | "" => {
                let wrong = is_label_value(value.str());
                if !wrong.is_empty() {
                    operator.invalid_value(errors, value.str(), &wrong.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                let why = "value must be empty when `operator` is 'Exists'";
                operator.invalid_value(errors, value.str(), why);
            }
            "Exists" => {}
            "Lt" | "Gt" => operator.not_supported(errors, &["Equal", "Exists", "Lt", "Gt"]),
            _ => operator.not_supported(errors, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            taint_effect(&effect, errors);
        }
    }
}

/// A pod that exists may get more tolerations, but keeps those it has.
pub(crate) fn added_tolerations_only(new: &Field<'_>, old: &Field<'_>, errors: &mut FieldErrors) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.remove_at(&["tolerationSeconds"]);
        meta::json::to_string(&toleration)
    };
    let kept: HashSet<String> =
        new.items().filter_map(|t| t.value()).map(without_seconds).collect();
    for toleration in old.items().filter_map(|toleration| toleration.value()) {
        if !kept.contains(&without_seconds(toleration)) {
            let why = "existing toleration can not be modified except its tolerationSeconds";
            return new.forbidden(errors, why);
        }
    }
    tolerations(new, errors);
}

pub(crate) fn gates(gates: &Field<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for gate in gates.items() {
        let name = gate.str_at(&["name"]);
        for why in is_qualified_name(name) {
            gate.invalid_value(errors, name, &why);
        }
        if !seen.insert(name) {
            errors.duplicate(gate.path(), name);
        }
    }
}

/// Gates are opened, never put up again.
pub(crate) fn removed_gates_only(new: &Field<'_>, old: &Field<'_>, errors: &mut FieldErrors) {
    let before: HashSet<&str> = old.items().map(|gate| gate.str_at(&["name"])).collect();
    let names = new.items().map(|gate| gate.str_at(&["name"])).enumerate();
    // Of two with one name the last is reported.
    let last: HashMap<&str, usize> = names.map(|(at, name)| (name, at)).collect();
    for (at, gate) in new.items().enumerate() {
        let name = gate.get("name");
        if last.get(name.str()) == Some(&at) && !before.contains(name.str()) {
            let why =
                format!("only deletion is allowed, but found new scheduling gate '{}'", name.str());
            name.forbidden(errors, &why);
        }
    }
}

pub(crate) fn topology_spread(constraints: &Field<'_>, errors: &mut FieldErrors) {
    let pair = |constraint: &Field<'_>| {
        ["topologyKey", "whenUnsatisfiable"].map(|part| constraint.str_at(&[part]).to_owned())
    };
    let last: HashMap<[String; 2], usize> =
        constraints.items().enumerate().map(|(at, constraint)| (pair(&constraint), at)).collect();
    for (at, constraint) in constraints.items().enumerate() {
        constraint.get("maxSkew").positive(errors);
        let key = constraint.get("topologyKey");
        if key.is_empty() {
            key.required(errors, "can not be empty");
        }
        let action = constraint.get("whenUnsatisfiable");
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action.str()) {
            action.not_supported(errors, &actions);
        }
        if last.get(&pair(&constraint)).is_some_and(|last| *last > at) {
            let pair = constraint.get("{topologyKey, whenUnsatisfiable}");
            errors.duplicate(pair.path(), format!("{{{}, {}}}", key.str(), action.str()));
        }
        let min = constraint.get("minDomains");
        if min.is_set() {
            min.positive(errors);
            if !action.is("DoNotSchedule") {
                let why = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    action.str()
                );
                min.invalid(errors, &why);
            }
        }
        for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            constraint.get(name).one_of(errors, &["Honor", "Ignore"]);
        }
        label_keys(&constraint, errors);
        label_selector(&constraint.get("labelSelector"), TOPOLOGY_SPREAD_SELECTOR_VALUE, errors);
    }
}

/// The values of the label selector of a topology spread constraint.
pub(crate) const TOPOLOGY_SPREAD_SELECTOR_VALUE: RuleId =
    RuleId::new("topology spread selector value");
