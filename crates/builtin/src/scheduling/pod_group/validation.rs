//! Validation of pod groups.

use std::collections::BTreeSet;

use meta::{
    FieldErrors, Value,
    names::{is_long_name, is_qualified_name, is_short_name},
};

use crate::validation::{conditions, cursor::Field};

pub(crate) fn validate(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    if let Some(old) = old {
        for name in [
            "podGroupTemplateRef",
            "schedulingPolicy",
            "schedulingConstraints",
            "resourceClaims",
            "disruptionMode",
            "priorityClassName",
            "priority",
        ] {
            let is_given = |value: &&Value| {
                !value.is_null() && !value.as_object().is_some_and(meta::Map::is_empty)
            };
            let (field, before) = (spec.get(name), old.at(&["spec", name]).filter(is_given));
            match field.value().filter(is_given) {
                value if value == before => {}
                // Compat: what came or went is not shown.
                Some(_) if before.is_some() => {
                    field.invalid(errors, crate::validation::cursor::IMMUTABLE);
                }
                _ => field.with(None).invalid(errors, crate::validation::cursor::IMMUTABLE),
            }
        }
        return;
    }
    let origin = spec.get("podGroupTemplateRef");
    if origin.is_set() {
        one_of(&origin, &["workload"], errors);
        let workload = origin.get("workload");
        if workload.is_set() {
            workload.get("workloadName").require_rule(errors, is_long_name);
            workload.get("podGroupTemplateName").require_rule(errors, is_short_name);
        }
    }
    group_template(&spec, errors);
}

/// What groups and the templates of groups share.
pub(crate) fn group_template(group: &Field<'_>, errors: &mut FieldErrors) {
    let policy = group.get("schedulingPolicy");
    one_of(&policy, &["basic", "gang"], errors);
    let gang = policy.get("gang");
    if gang.is_set() {
        let count = gang.get("minCount");
        match count.int_or_zero() {
            0 => count.required(errors, ""),
            1.. => {}
            _ => count.invalid(errors, "must be greater than or equal to 1"),
        }
    }
    let constraints = group.get("schedulingConstraints");
    let topology = constraints.get("topology");
    if topology.len() > 1 {
        errors.too_many(topology.path(), topology.len(), 1);
    } else {
        for constraint in topology.items() {
            constraint.get("key").require_rule(errors, is_qualified_name);
        }
    }
    resource_claims(&group.get("resourceClaims"), errors);
    group.get("disruptionMode").one_of(errors, &["Pod", "PodGroup"]);
    group.get("priorityClassName").rule_if_filled(errors, is_long_name);
    let priority = group.get("priority");
    if priority.int_or_zero() > 1_000_000_000 {
        priority.invalid(errors, "must be less than or equal to 1000000000");
    }
}

pub(crate) fn resource_claims(claims: &Field<'_>, errors: &mut FieldErrors) {
    if claims.len() > CLAIMS_MAX {
        return errors.too_many(claims.path(), claims.len(), CLAIMS_MAX);
    }
    unique_names(claims, errors);
    for claim in claims.items() {
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        one_of(&claim, &sources, errors);
        claim.get("name").require_rule(errors, is_short_name);
        for source in sources.map(|source| claim.get(source)) {
            if source.is_set() {
                source.rule(errors, is_long_name);
            }
        }
    }
}

pub(crate) const CLAIMS_MAX: usize = 4;

pub(crate) fn validate_status(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let status = root.get("status");
    conditions(&status.get("conditions"), errors);
    let claims = object.items_at(&["spec", "resourceClaims"]).iter();
    let claims: std::collections::HashSet<&str> =
        claims.map(|claim| claim.str_at(&["name"])).collect();
    let statuses = status.get("resourceClaimStatuses");
    for item in statuses.items() {
        let name = item.get("name");
        if !claims.contains(name.str()) {
            let why = "must match the name of an entry in `spec.resourceClaims`";
            name.invalid_value(errors, name.str(), why);
        }
    }
    if statuses.len() > CLAIMS_MAX {
        return errors.too_many(statuses.path(), statuses.len(), CLAIMS_MAX);
    }
    unique_names(&statuses, errors);
    for item in statuses.items() {
        let name = item.get("resourceClaimName");
        if name.is_set() {
            name.rule(errors, is_long_name);
        }
    }
}

pub(crate) fn unique_names(list: &Field<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for item in list.items() {
        if !seen.insert(item.str_at(&["name"])) {
            item.duplicate(errors);
        }
    }
}

/// Exactly one of the members of a union.
pub(crate) fn one_of(union: &Field<'_>, members: &[&str], errors: &mut FieldErrors) {
    let given: Vec<&str> =
        members.iter().copied().filter(|member| union.value_at(&[member]).is_some()).collect();
    let all: Vec<String> = members.iter().map(|member| format!("`{member}`")).collect();
    let all = all.join(", ");
    match given.len() {
        0 => union.invalid_value(errors, "", &format!("must specify one of: {all}")),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", given.join(", "));
            union.invalid_value(errors, shown, &format!("must specify exactly one of: {all}"));
        }
    }
}
