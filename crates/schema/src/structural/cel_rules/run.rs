//! Runs rules on objects.

use std::sync::Arc;

use cel::{Bound, Decl, EvalError, PER_CALL_LIMIT};
use meta::{FieldError, FieldErrors, FieldPath, Str, Value, field::FieldReason, field::show};

use super::{Compiled, child_decl};
use crate::structural::{
    cel_decl::declare,
    correlate::{Correlated, OldList},
    node::{AdditionalProperties, JsonType, StructuralNode},
    timing::compare,
    value_path::ValuePath,
};

/// The rules of a node and of its subtree.
#[derive(Debug)]
pub(in crate::structural) struct Rules {
    here: Vec<Compiled>,
    /// None: the schema is too unspecific for CEL.
    decl: Option<Arc<Decl>>,
    items: Option<Box<Rules>>,
    additional_properties: Option<Box<Rules>>,
    properties: Vec<(Str, Rules)>,
}

/// A value with its old value, as far as it can be correlated.
#[derive(Clone, Copy)]
struct ValueWithOld<'a> {
    value: &'a Value,
    /// The old value, if it can be correlated.
    old: Option<&'a Value>,
    /// The closest ancestor whose old value is known.
    above: Option<Correlated<'a>>,
    /// Whether errors of unchanged values are ratcheted.
    ratchet: bool,
}

/// The cost budget of the object is exceeded; no further rules are evaluated.
struct OutOfBudget;

impl Rules {
    /// Compiles the rules of an object's schema; none if there are none.
    pub(in crate::structural) fn compile(root: &StructuralNode) -> Option<Self> {
        Self::of(root, declare(root, true))
    }

    fn of(node: &StructuralNode, decl: Option<Arc<Decl>>) -> Option<Self> {
        if node.validations.is_empty() && !node.subtree.rules {
            return None;
        }
        let below = |name: Option<&str>, child: &StructuralNode| {
            // Most nodes have no rules in their subtree and need no declaration.
            let has_rules = child.subtree.rules || !child.validations.is_empty();
            has_rules.then(|| Self::of(child, child_decl(decl.as_ref(), name, child))).flatten()
        };
        let items = node.items.as_deref().and_then(|items| below(None, items));
        let additional = node.additional_properties.schema().and_then(|schema| below(None, schema));
        let properties = node
            .properties
            .iter()
            .filter_map(|(name, property)| Some((name.clone(), below(Some(name), property)?)));
        let properties = properties.collect();
        let rules = decl.as_ref().map_or(&[][..], |_| &node.validations);
        let compile = |decl: &Arc<Decl>| {
            let compiled = rules.iter().map(|rule| {
                meta::cancel::checkpoint();
                Compiled::new(rule, node, decl)
            });
            compiled.collect::<Vec<_>>()
        };
        Some(Self {
            here: decl.as_ref().map(compile).unwrap_or_default(),
            decl,
            items: items.map(Box::new),
            additional_properties: additional.map(Box::new),
            properties,
        })
    }

    /// Evaluates all rules on an object within one cost budget. Errors of unchanged values are
    /// ratcheted.
    pub(in crate::structural) fn validate(
        &self,
        object: &Value,
        old: Option<&Value>,
        node: &StructuralNode,
        path: &FieldPath,
        errors: &mut FieldErrors,
    ) {
        let mut budget = cel::PER_OBJECT_BUDGET;
        let place = ValueWithOld { value: object, old, above: None, ratchet: true };
        // The exceeded budget has been reported where it was detected.
        let _ = self.visit(place, node, &ValuePath::root(path), &mut budget, errors);
    }

    /// Checks a default: as an object that stays as it is, and as one that is new.
    pub(in crate::structural) fn validate_default(
        default: &Value,
        node: &StructuralNode,
        resource: bool,
        path: &FieldPath,
        errors: &mut FieldErrors,
    ) {
        let has_rules = node.subtree.rules || !node.validations.is_empty();
        let rules = has_rules.then(|| Self::of(node, declare(node, resource))).flatten();
        let Some(rules) = rules else { return };
        let before = errors.count();
        for old in [Some(default), None] {
            let mut budget = cel::PER_OBJECT_BUDGET;
            let place = ValueWithOld { value: default, old, above: None, ratchet: false };
            let _ = rules.visit(place, node, &ValuePath::root(path), &mut budget, errors);
            if errors.count() > before {
                return;
            }
        }
    }

    fn visit(
        &self,
        place: ValueWithOld<'_>,
        node: &StructuralNode,
        at: &ValuePath<'_>,
        budget: &mut u64,
        errors: &mut FieldErrors,
    ) -> Result<(), OutOfBudget> {
        if place.value.is_null() {
            return Ok(());
        }
        meta::cancel::checkpoint();
        if !self.here.is_empty() {
            self.run(place, node, at, budget, errors)?;
        }
        let above = match place.old {
            Some(old) => Some(Correlated { new: place.value, old, node }),
            None => place.above,
        };
        match place.value {
            Value::Object(map) => {
                if let (Some(rules), AdditionalProperties::Schema(node)) =
                    (&self.additional_properties, &node.additional_properties)
                {
                    for (key, value) in map.iter() {
                        let old = place.old.and_then(|old| old.get(key));
                        let place = ValueWithOld { value, old, above, ..place };
                        rules.visit(place, node, &at.key(key), budget, errors)?;
                    }
                }
                for (name, rules) in &self.properties {
                    let (Some(value), Some(node)) = (map.get(name), node.property(name)) else {
                        continue;
                    };
                    let old = place.old.and_then(|old| old.get(name));
                    // A change of the type is not visible here, so nothing is ratcheted.
                    let is_type = at.is_root() && matches!(name.as_str(), "apiVersion" | "kind");
                    let above = above.filter(|_| !is_type);
                    let place = ValueWithOld { value, old, above, ..place };
                    rules.visit(place, node, &at.field(name), budget, errors)?;
                }
            }
            Value::Array(items) => {
                let (Some(rules), Some(node_of_items)) = (&self.items, node.items.as_deref())
                else {
                    return Ok(());
                };
                let old_items = place.old.and_then(|old| OldList::of(old, node));
                for (index, value) in items.iter().enumerate() {
                    let old = old_items.as_ref().and_then(|old| old.get(value));
                    let place = ValueWithOld { value, old, above, ..place };
                    rules.visit(place, node_of_items, &at.index(index), budget, errors)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn run(
        &self,
        place: ValueWithOld<'_>,
        node: &StructuralNode,
        at: &ValuePath<'_>,
        budget: &mut u64,
        errors: &mut FieldErrors,
    ) -> Result<(), OutOfBudget> {
        let Some(decl) = self.decl.as_deref() else { return Ok(()) };
        let ty = node.ty.as_str();
        let invalid = |errors: &mut FieldErrors, why: &str| errors.invalid(at.path(), ty, why);
        if *budget == 0 {
            invalid(errors, OUT_OF_BUDGET);
            return Err(OutOfBudget);
        }
        let old = place.old.filter(|old| !old.is_null());
        let old_data = old.map(|old| (old, decl));
        for compiled in &self.here {
            let program = match &compiled.program {
                None => continue,
                Some(Err(why)) => {
                    invalid(errors, &format!("rule compile error: {why}"));
                    continue;
                }
                Some(Ok(program)) => program,
            };
            let optional = compiled.rule.optional_old_self == Some(true);
            if compiled.uses_old_self && old.is_none() && !optional {
                continue;
            }
            let old_self = match old_data {
                old if optional => Bound::Optional(old),
                Some((old, decl)) => Bound::Data(old, decl),
                None => Bound::Missing,
            };
            let variables = [Bound::Data(place.value, decl), old_self];
            let outcome = program.evaluate(&variables, PER_CALL_LIMIT);
            if outcome.cost > *budget {
                invalid(errors, OUT_OF_BUDGET);
                return Err(OutOfBudget);
            }
            *budget -= outcome.cost;
            match outcome.result {
                Ok(value) if value.as_bool() == Some(true) => {}
                Ok(_) => report_violation(compiled, place, node, at, &variables, budget, errors)?,
                Err(fault) => report_eval_error(compiled, &fault, ty, at, errors)?,
            }
        }
        Ok(())
    }
}

/// A rule evaluated to false.
fn report_violation(
    compiled: &Compiled,
    place: ValueWithOld<'_>,
    node: &StructuralNode,
    at: &ValuePath<'_>,
    variables: &[Bound<'_>],
    budget: &mut u64,
    errors: &mut FieldErrors,
) -> Result<(), OutOfBudget> {
    let unchanged = || match place.old {
        Some(old) => compare(|| Correlated { new: place.value, old, node }.is_unchanged()),
        None => place.above.is_some_and(|above| compare(|| above.is_unchanged())),
    };
    let ratcheted = place.ratchet && !compiled.uses_old_self && unchanged();
    let path = match &compiled.field_path {
        Some(below) => at.path().child(below),
        None => at.path(),
    };
    let message = match message_of(compiled, variables, budget) {
        Ok(message) => message,
        Err(why) => {
            let message = format!("Invalid value: {}: {why}", show(&node.ty.as_str().into()));
            add(errors, ratcheted, FieldReason::Invalid, &path, message);
            return Err(OutOfBudget);
        }
    };
    let shown = match node.ty {
        JsonType::Object | JsonType::Array => String::new(),
        _ => format!(": {}", show(place.value)),
    };
    let (reason, message) = match compiled.rule.reason.as_str() {
        "FieldValueForbidden" => (FieldReason::Forbidden, format!("Forbidden: {message}")),
        "FieldValueRequired" => (FieldReason::Required, format!("Required value: {message}")),
        "FieldValueDuplicate" => (FieldReason::Duplicate, format!("Duplicate value{shown}")),
        _ => (FieldReason::Invalid, format!("Invalid value{shown}: {message}")),
    };
    add(errors, ratcheted, reason, &path, message);
    Ok(())
}

/// An error, or a warning about what an update leaves as it was.
fn add(
    errors: &mut FieldErrors,
    ratcheted: bool,
    reason: FieldReason,
    path: &FieldPath,
    message: String,
) {
    if ratcheted {
        errors.warn(&FieldError::new(reason, path, message));
    } else {
        errors.push(reason, path, message);
    }
}

fn report_eval_error(
    compiled: &Compiled,
    fault: &EvalError,
    ty: &str,
    at: &ValuePath<'_>,
    errors: &mut FieldErrors,
) -> Result<(), OutOfBudget> {
    let shown = compiled.shown();
    let text = fault.to_string();
    let why = match fault {
        EvalError::CostLimit => format!(
            "'{text}': no further validation rules will be run due to call cost exceeds limit for \
             rule: {shown}"
        ),
        EvalError::NoSuchOverload(_) => format!(
            "'{text}': call arguments did not match a supported operator, function or macro \
             signature for rule: {shown}"
        ),
        // Rules of custom resources have no authorizer, so none is undecided.
        EvalError::Failed(_) | EvalError::Undecided => format!("{text} evaluating rule: {shown}"),
    };
    errors.invalid(at.path(), ty, &why);
    if *fault == EvalError::CostLimit { Err(OutOfBudget) } else { Ok(()) }
}

/// What to say about a rule that failed: its message expression's text, its message, or itself. An
/// error if that costs too much.
fn message_of(
    compiled: &Compiled,
    variables: &[Bound<'_>],
    budget: &mut u64,
) -> Result<String, String> {
    if let Some(Ok(program)) = &compiled.message {
        let outcome = program.evaluate(variables, PER_CALL_LIMIT);
        if outcome.cost > *budget {
            let why = "messageExpression evaluation failed due to running out of cost budget, no \
                       further validation rules will be run";
            return Err(why.to_owned());
        }
        match outcome.result {
            Err(EvalError::CostLimit) => {
                let expression = meta::field::quote(&compiled.rule.message_expression);
                return Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for \
                     messageExpression: {expression}"
                ));
            }
            result => {
                *budget -= outcome.cost;
                let text = result.ok().and_then(|value| value.as_str().map(ToOwned::to_owned));
                let text = text.as_deref().map(str::trim).filter(|text| is_usable(text));
                if let Some(text) = text {
                    return Ok(text.to_owned());
                }
            }
        }
    }
    Ok(match compiled.rule.message.as_str() {
        "" => format!("failed rule: {}", compiled.shown()),
        message => message.trim().to_owned(),
    })
}

fn is_usable(message: &str) -> bool {
    const MESSAGE_BYTES_MAX: usize = 5 * 1024;
    !message.is_empty() && message.len() <= MESSAGE_BYTES_MAX && !message.contains('\n')
}

const OUT_OF_BUDGET: &str = "validation failed due to running out of cost budget, no further \
    validation rules will be run";
