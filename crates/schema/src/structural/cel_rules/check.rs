//! Checks rules when a schema is written: their types, and what they may cost.

use std::sync::Arc;

use cel::Decl;
use meta::{FieldErrors, FieldPath, field::FieldReason};

use super::{Compiled, child_decl};
use crate::structural::{
    cel_decl::declare,
    node::{AdditionalProperties, JsonType, StructuralNode},
};

/// How rules are checked.
#[derive(Clone, Copy, Debug)]
pub struct RuleOptions<'a> {
    /// The schema is as it was: its rules may cost what they cost.
    pub suppress_cost: bool,
    /// The errors of the schema: rules of nodes with errors in their subtree are not compiled.
    pub broken: &'a FieldErrors,
}

/// The most that one rule may cost by its estimate.
const COST_MAX: u64 = 10_000_000;
/// The same for all rules of a schema together.
const TOTAL_COST_MAX: u64 = 100_000_000;

pub(in crate::structural) fn check(
    root: &StructuralNode,
    path: &FieldPath,
    how: &RuleOptions<'_>,
    errors: &mut FieldErrors,
) {
    if root.validations.is_empty() && !root.subtree.rules {
        return;
    }
    let mut walk = RuleChecker { how, total: 0, expensive: Vec::new(), errors };
    let place = SchemaLocation {
        node: root,
        path: path.clone(),
        decl: None,
        cardinality: Some(1),
        uncorrelatable: None,
        is_root: true,
    };
    walk.visit(place);
    if walk.total > TOTAL_COST_MAX {
        let (total, expensive) = (walk.total, std::mem::take(&mut walk.expensive));
        for (path, _) in expensive {
            let why = "contributed to estimated rule cost total exceeding cost limit for entire \
                       OpenAPIv3 schema";
            walk.errors.forbidden(path, why);
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        walk.errors.forbidden(path, &exceeds(what, total, TOTAL_COST_MAX));
    }
}

struct RuleChecker<'a> {
    how: &'a RuleOptions<'a>,
    total: u64,
    /// The four most expensive rules, those first.
    expensive: Vec<(FieldPath, u64)>,
    errors: &'a mut FieldErrors,
}

struct SchemaLocation<'a> {
    node: &'a StructuralNode,
    path: FieldPath,
    /// The declaration, if an ancestor has one.
    decl: Option<Arc<Decl>>,
    /// The maximum number of occurrences of the node; none: unbounded.
    cardinality: Option<u64>,
    /// The closest ancestor whose items cannot be correlated.
    uncorrelatable: Option<FieldPath>,
    is_root: bool,
}

impl SchemaLocation<'_> {
    fn child<'a>(
        &self,
        node: &'a StructuralNode,
        name: Option<&str>,
        path: FieldPath,
    ) -> SchemaLocation<'a> {
        let most = most_elements(self.node);
        let uncorrelated = match name {
            // The merge semantics of any other map type are unknown.
            Some(_) => !matches!(self.node.map_type.as_deref(), None | Some("granular" | "atomic")),
            None => {
                self.node.ty == JsonType::Array && self.node.list_type.as_deref() != Some("map")
            }
        };
        let here = uncorrelated.then(|| self.path.clone());
        SchemaLocation {
            node,
            path,
            decl: self.decl.as_ref().and_then(|decl| child_decl(Some(decl), name, node)),
            cardinality: self.cardinality.zip(most).map(|(own, most)| own.saturating_mul(most)),
            uncorrelatable: self.uncorrelatable.clone().or(here),
            is_root: false,
        }
    }
}

/// The factor by which a node multiplies the occurrences of its children.
fn most_elements(node: &StructuralNode) -> Option<u64> {
    let value_validation = node.value_validation.as_deref();
    let bound = |max: Option<i64>| max.map(|max| u64::try_from(max).unwrap_or_default());
    match (&node.ty, &node.additional_properties) {
        (JsonType::Object, AdditionalProperties::None) => Some(1),
        (JsonType::Object, _) => {
            bound(value_validation.and_then(|value_validation| value_validation.max_properties))
        }
        (JsonType::Array, _) => {
            bound(value_validation.and_then(|value_validation| value_validation.max_items))
        }
        _ => Some(1),
    }
}

impl RuleChecker<'_> {
    fn visit(&mut self, mut place: SchemaLocation<'_>) {
        meta::cancel::checkpoint();
        let node = place.node;
        if !node.validations.is_empty() && place.decl.is_none() {
            place.decl = declare(node, place.is_root || node.embedded_resource);
        }
        let has_rules = |node: &StructuralNode| node.subtree.rules || !node.validations.is_empty();
        if let Some(additional) = node.additional_properties.schema().filter(|node| has_rules(node))
        {
            let path = place.path.child("additionalProperties");
            self.visit(place.child(additional, None, path));
        }
        for (name, property) in node.properties.iter().filter(|(_, node)| has_rules(node)) {
            let path = place.path.child("properties").key(name);
            self.visit(place.child(property, Some(name), path));
        }
        if let Some(items) = node.items.as_deref().filter(|node| has_rules(node)) {
            self.visit(place.child(items, None, place.path.child("items")));
        }
        if node.validations.is_empty() || self.is_broken(&place.path) {
            return;
        }
        let path = place.path.child("x-kubernetes-validations");
        let Some(decl) = place.decl.clone() else {
            let why = "Internal error: internal error: failed to construct type information for \
                       x-kubernetes-validations rules: unable to convert structural schema to CEL \
                       declarations";
            return self.errors.push(FieldReason::Internal, path, why.to_owned());
        };
        for (at, rule) in node.validations.iter().enumerate() {
            self.check_rule(&Compiled::new(rule, node, &decl), &decl, &place, &path.index(at));
        }
    }

    fn is_broken(&self, path: &FieldPath) -> bool {
        self.how.broken.iter().any(|error| error.path.is_within(path))
    }

    fn check_rule(
        &mut self,
        compiled: &Compiled,
        decl: &Decl,
        place: &SchemaLocation<'_>,
        path: &FieldPath,
    ) {
        let rule_path = path.child("rule");
        let cost = match &compiled.program {
            Some(Ok(program)) => {
                let times = place.cardinality.unwrap_or_else(|| decl.max_cardinality());
                program.estimate().max.saturating_mul(times)
            }
            _ => 0,
        };
        self.observe(&rule_path, cost, "estimated rule cost");
        if let Some(Err(why)) = &compiled.program {
            self.invalid_rule(compiled, &rule_path, why);
        }
        let message_path = path.child("messageExpression");
        match &compiled.message {
            Some(Err(why)) => self.invalid_rule(compiled, &message_path, why),
            Some(Ok(message)) => {
                let cost = message.estimate().max;
                self.observe(&message_path, cost, "estimated messageExpression cost");
            }
            None => {}
        }
        if compiled.uses_old_self {
            if let Some(above) = &place.uncorrelatable {
                let why = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within \
                     {above}"
                );
                self.errors.invalid(&rule_path, compiled.rule.rule.clone(), &why);
            }
        } else if let Some(flag) = compiled.rule.optional_old_self {
            let why = "may not be set if oldSelf is not used in rule";
            self.errors.invalid(path.child("optionalOldSelf"), flag, why);
        }
    }

    fn invalid_rule(&mut self, compiled: &Compiled, path: &FieldPath, why: &str) {
        let message = format!("Invalid value: {}: {why}", compiled.rule.show());
        self.errors.push(FieldReason::Invalid, path, message);
    }

    fn observe(&mut self, path: &FieldPath, cost: u64, what: &str) {
        if !self.how.suppress_cost && cost > COST_MAX {
            self.errors.forbidden(path, &exceeds(what, cost, COST_MAX));
        }
        self.total = self.total.saturating_add(cost);
        // Cheap ones are not to blame.
        if cost >= TOTAL_COST_MAX / 100 {
            self.expensive.push((path.clone(), cost));
            self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(4);
        }
    }
}

fn exceeds(what: &str, cost: u64, max: u64) -> String {
    let factor = cost as f64 / max as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding \
         maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
