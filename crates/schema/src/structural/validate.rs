//! Validation of the OpenAPI v3 keywords, with kube-apiserver's error messages.
//!
//! A valid object costs one walk and no allocation. Errors are collected bottom-up, because `anyOf`
//! and `oneOf` only report the alternative that matched best.

mod enumeration;
mod number;

use std::collections::HashSet;

use meta::{
    FieldError, FieldErrors, FieldPath, Map, Number, Str, Value,
    field::{FIELD_ERRORS_BYTES_MAX, FIELD_ERRORS_MAX, FieldReason, quote, show},
};

pub(super) use self::enumeration::EnumIndex;
use super::{
    correlate::Correlated,
    list_type,
    node::{AdditionalProperties, JsonType, StructuralNode, ValueValidation},
    pattern::Pattern,
    timing::compare,
    value_path::ValuePath,
};

/// Validates a value; errors at values that are unchanged from `old` are ratcheted (ignored).
pub(super) fn validate(
    value: &Value,
    old: Option<&Value>,
    node: &StructuralNode,
    at: &FieldPath,
    errors: &mut FieldErrors,
) {
    let root = ValuePath::root(at);
    let mut outcome = check(value, node, &root, None);
    if let (false, Some(old)) = (outcome.failures.is_empty(), old) {
        // Most objects are valid, so the old one is only compared for invalid ones.
        let correlated = Correlated { new: value, old, node };
        outcome = check_correlated(node, &root, &correlated);
    }
    outcome.report(at, errors);
}

/// Checks a default of a schema.
pub(super) fn validate_default(
    default: &Value,
    node: &StructuralNode,
    at: &FieldPath,
    errors: &mut FieldErrors,
) {
    let outcome = check(default, node, &ValuePath::root_of_default(at), None);
    outcome.report(at, errors);
}

/// The errors of a value, and the number of checks that passed.
#[derive(Default)]
struct Outcome {
    failures: Vec<Failure>,
    /// The texts of the failures: of those with equal text the first is reported.
    texts: HashSet<Str>,
    /// The bytes of all messages and texts.
    bytes: usize,
    /// Failures that were not kept.
    omitted: usize,
    /// The number of checks that were evaluated; selects the alternative that matched best.
    matches: u32,
}

struct Failure {
    /// The path in the object, dotted; empty for the root.
    name: String,
    reason: FieldReason,
    /// The error text after the field.
    message: String,
    /// Failures with equal text are reported once.
    text: Str,
}

impl Outcome {
    /// Adds a failure that is only formatted below the bound.
    fn fail(&mut self, failure: impl FnOnce() -> Failure) {
        if self.failures.len() >= FIELD_ERRORS_MAX || self.bytes >= FIELD_ERRORS_BYTES_MAX {
            self.omitted += 1;
            return;
        }
        self.keep(failure());
    }

    fn keep(&mut self, failure: Failure) {
        if self.texts.insert(failure.text.clone()) {
            self.bytes += failure.name.len() + failure.message.len();
            self.failures.push(failure);
        }
    }

    fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        self.omitted += other.omitted;
        if self.failures.is_empty() {
            (self.failures, self.texts, self.bytes) = (other.failures, other.texts, other.bytes);
            return;
        }
        for failure in other.failures {
            self.fail(|| failure);
        }
    }

    fn is_valid(&self) -> bool {
        self.failures.is_empty()
    }

    fn report(self, at: &FieldPath, errors: &mut FieldErrors) {
        for failure in self.failures {
            errors.add(failure.into_error(at));
        }
        // Whether these are about the spec makes no difference to custom resources.
        errors.omit(at, self.omitted);
    }
}

impl Failure {
    /// An invalid value error: the value and what is expected.
    fn invalid(at: &ValuePath<'_>, value: &Value, should: &str) -> Self {
        let name = at.dotted();
        let text = format!("{name} in body {should}");
        let message = format!("Invalid value: {}: {text}", show(value));
        Self { name, reason: FieldReason::Invalid, message, text: text.into() }
    }

    fn wrong_type(at: &ValuePath<'_>, expected: &str, found: &str) -> Self {
        let name = at.dotted();
        let found = show(&Value::from(found));
        let text = format!("{name} in body must be of type {expected}: {found}");
        let message = format!("Invalid value: {found}: {text}");
        Self { name, reason: FieldReason::TypeInvalid, message, text: text.into() }
    }

    /// An error that upstream reports without a field.
    fn unplaced(text: String) -> Self {
        let message = format!("Invalid value: \"\": {text}");
        Self { name: String::new(), reason: FieldReason::Invalid, message, text: text.into() }
    }

    fn too_many(at: &ValuePath<'_>, count: usize, max: i64, of: &str) -> Self {
        let name = at.dotted();
        let items = if max == 1 { "item" } else { "items" };
        Self {
            reason: FieldReason::TooMany,
            message: format!("Too many: {count}: must have at most {max} {items}"),
            text: format!("{name} in body should have at most {max} {of}").into(),
            name,
        }
    }

    fn into_error(self, above: &FieldPath) -> FieldError {
        let name = self.name.strip_prefix('.').unwrap_or(&self.name);
        let field = if name.is_empty() { above.clone() } else { above.child(name) };
        FieldError::new(self.reason, &field, self.message)
    }
}

/// Validates a value with its old value: errors at unchanged values are ratcheted.
fn check_correlated(
    node: &StructuralNode,
    at: &ValuePath<'_>,
    correlated: &Correlated<'_>,
) -> Outcome {
    let mut outcome = check(correlated.new, node, at, Some(correlated));
    if !outcome.is_valid() && compare(|| correlated.is_unchanged()) {
        outcome = Outcome { matches: outcome.matches, ..Outcome::default() };
    }
    outcome
}

fn check_member(
    value: &Value,
    node: &StructuralNode,
    at: &ValuePath<'_>,
    parent: &ValuePath<'_>,
    name: &str,
    correlated: Option<&Correlated<'_>>,
) -> Outcome {
    // `apiVersion` is converted on the way, so a change of it is not visible here.
    let is_type = parent.is_root() && matches!(name, "apiVersion" | "kind");
    match correlated.filter(|_| !is_type).and_then(|correlated| correlated.key(name)) {
        Some(child) => check_correlated(node, at, &child),
        None => check(value, node, at, None),
    }
}

fn check(
    value: &Value,
    node: &StructuralNode,
    at: &ValuePath<'_>,
    correlated: Option<&Correlated<'_>>,
) -> Outcome {
    meta::cancel::checkpoint();
    let mut outcome = Outcome::default();
    let value_validation = node.value_validation.as_deref();
    check_type(value, node, value_validation, at, &mut outcome);
    if value.is_null() {
        check_enum(value, value_validation, at, &mut outcome);
        return outcome;
    }
    if let Some(value_validation) = value_validation {
        check_alternatives(value, value_validation, at, &mut outcome);
    }
    outcome.matches += 2;
    match value {
        Value::String(text) => {
            outcome.matches += 1;
            if let Some(value_validation) = value_validation {
                check_text(text, node, value_validation, at, &mut outcome);
            }
        }
        Value::Number(number) => {
            number::check(*number, node, value_validation, at, &mut outcome);
            outcome.matches += 2;
        }
        Value::Array(items) => {
            check_items(items, node, value_validation, at, correlated, &mut outcome);
            outcome.matches += 2;
        }
        _ => {}
    }
    check_enum(value, value_validation, at, &mut outcome);
    if let Value::Object(map) = value {
        check_members(map, node, value_validation, at, correlated, &mut outcome);
        outcome.matches += 1;
    }
    outcome.matches += 2;
    outcome
}

fn check_type(
    value: &Value,
    node: &StructuralNode,
    value_validation: Option<&ValueValidation>,
    at: &ValuePath<'_>,
    outcome: &mut Outcome,
) {
    // Compat: defaults are validated against the schema as written, objects against a corrected
    // one.
    let int_or_string = node.int_or_string && !at.is_default();
    let written = |value_validation| super::format::kept(node, value_validation);
    let format = match value_validation {
        Some(value_validation) if at.is_default() => value_validation.format.as_str(),
        value_validation => value_validation.map_or("", written),
    };
    let expected = if int_or_string { "integer,string" } else { node.ty.as_str() };
    let untyped = node.ty == JsonType::None && !int_or_string;
    if value.is_null() {
        if untyped || node.nullable || expected == "null" {
            outcome.matches += 1;
        } else {
            outcome.fail(|| Failure::wrong_type(at, expected, "null"));
        }
        return;
    }
    if untyped && format.is_empty() {
        return;
    }
    outcome.matches += 1;
    let integer = int_or_string || node.ty == JsonType::Integer;
    let number = !int_or_string && node.ty == JsonType::Number;
    let (found, found_format) = match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Number(Number::Int(_)) => ("integer", "int64"),
        Value::Number(Number::Float(_)) => ("number", "float64"),
        Value::Array(_) => ("array", ""),
        Value::Object(_) | Value::Raw(_) => ("object", ""),
    };
    let is_whole = |float: f64| number::is_integer(float) && integer;
    let fits = match value {
        Value::Number(Number::Float(float)) => number || is_whole(*float),
        Value::Number(Number::Int(_)) => integer || number,
        _ if int_or_string => found == "string",
        _ => found == expected,
    };
    let textual = matches!(value, Value::String(_) | Value::Array(_));
    if !format.is_empty() && !textual && !fits && found_format != format {
        outcome.fail(|| Failure::wrong_type(at, format, found_format));
    } else if fits || (!format.is_empty() && textual && !integer && !number) {
        outcome.matches += 1;
    } else {
        outcome.fail(|| Failure::wrong_type(at, expected, found));
    }
}

fn check_alternatives(
    value: &Value,
    value_validation: &ValueValidation,
    at: &ValuePath<'_>,
    outcome: &mut Outcome,
) {
    if !value_validation.any_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let fitting =
            value_validation.any_of.iter().map(|node| check(value, node, at, None)).find_map(
                |one| {
                    if one.is_valid() {
                        return Some(one);
                    }
                    keep_closest(&mut best, one);
                    None
                },
            );
        if fitting.is_none() {
            outcome.fail(|| {
                let name = quote(&at.dotted());
                Failure::unplaced(format!("{name} must validate at least one schema (anyOf)"))
            });
        }
        outcome.merge(fitting.or(best).unwrap_or_default());
    }
    if !value_validation.one_of.is_empty() {
        let (mut best, mut fitting, mut count) = (None, None, 0);
        for node in &value_validation.one_of {
            let one = check(value, node, at, None);
            if one.is_valid() {
                count += 1;
                fitting.get_or_insert(one);
            } else if count == 0 {
                keep_closest(&mut best, one);
            }
        }
        if count == 1 {
            outcome.merge(fitting.unwrap_or_default());
        } else {
            let found = match count {
                0 => "Found none valid".to_owned(),
                _ => format!("Found {count} valid alternatives"),
            };
            outcome.fail(|| {
                let name = quote(&at.dotted());
                let why = "must validate one and only one schema (oneOf)";
                Failure::unplaced(format!("{name} {why}. {found}"))
            });
            outcome.merge(best.filter(|_| count == 0).unwrap_or_default());
        }
    }
    let mut valid = 0;
    for node in &value_validation.all_of {
        let one = check(value, node, at, None);
        valid += usize::from(one.is_valid());
        outcome.merge(one);
    }
    if valid != value_validation.all_of.len() {
        let none = if valid == 0 { ". None validated" } else { "" };
        outcome.fail(|| {
            let name = quote(&at.dotted());
            Failure::unplaced(format!("{name} must validate all the schemas (allOf){none}"))
        });
    }
    if let Some(not) = &value_validation.not
        && check(value, not, at, None).is_valid()
    {
        outcome.fail(|| {
            let name = quote(&at.dotted());
            Failure::unplaced(format!("{name} must not validate the schema (not)"))
        });
    }
}

/// If all alternatives fail, the first of those that matched best is reported.
fn keep_closest(best: &mut Option<Outcome>, one: Outcome) {
    if best.as_ref().is_none_or(|best| one.matches > best.matches) {
        *best = Some(one);
    }
}

fn check_text(
    text: &str,
    node: &StructuralNode,
    value_validation: &ValueValidation,
    at: &ValuePath<'_>,
    outcome: &mut Outcome,
) {
    if let Some(wrong) = wrong_text(text, value_validation) {
        outcome.fail(|| wrong.into_failure(text, at));
    }
    if let Some(format) = super::format::of(node, value_validation) {
        outcome.matches += 1;
        if !format.fits(text) {
            outcome.fail(|| Failure::wrong_type(at, &value_validation.format, text));
        }
    }
}

enum WrongText<'a> {
    TooLong(i64),
    TooShort(i64),
    Pattern(&'a Pattern, Option<&'a str>),
}

/// Only the first of these errors is reported.
fn wrong_text<'a>(text: &str, value_validation: &'a ValueValidation) -> Option<WrongText<'a>> {
    let is_measured =
        value_validation.max_length.is_some() || value_validation.min_length.is_some();
    let length = if is_measured { text.chars().count() as i64 } else { 0 };
    if let Some(max) = value_validation.max_length.filter(|max| length > *max) {
        return Some(WrongText::TooLong(max));
    }
    if let Some(min) = value_validation.min_length.filter(|min| length < *min) {
        return Some(WrongText::TooShort(min));
    }
    let pattern = value_validation.pattern.as_ref()?;
    match pattern.matches(text) {
        Ok(true) => None,
        Ok(false) => Some(WrongText::Pattern(pattern, None)),
        Err(why) => Some(WrongText::Pattern(pattern, Some(why))),
    }
}

impl WrongText<'_> {
    fn into_failure(self, text: &str, at: &ValuePath<'_>) -> Failure {
        let should = match self {
            Self::TooLong(max) => {
                let (name, bytes) = (at.dotted(), if max == 1 { "byte" } else { "bytes" });
                return Failure {
                    reason: FieldReason::TooLong,
                    message: format!("Too long: may not be more than {max} {bytes}"),
                    text: format!("{name} in body should be at most {max} chars long").into(),
                    name,
                };
            }
            Self::TooShort(min) => format!("should be at least {min} chars long"),
            Self::Pattern(pattern, None) => format!("should match '{}'", pattern.as_str()),
            Self::Pattern(pattern, Some(why)) => {
                format!("should match '{}, but pattern is invalid: {why}'", pattern.as_str())
            }
        };
        Failure::invalid(at, &Value::from(text), &should)
    }
}

fn check_items(
    items: &[Value],
    node: &StructuralNode,
    value_validation: Option<&ValueValidation>,
    at: &ValuePath<'_>,
    correlated: Option<&Correlated<'_>>,
    outcome: &mut Outcome,
) {
    if let Some(node) = node.items.as_deref() {
        let correlated = correlated.and_then(Correlated::items);
        for (index, item) in items.iter().enumerate() {
            let at = at.index(index);
            let child = correlated.as_ref().and_then(|list| list.item(item));
            outcome.merge(match child {
                Some(child) => check_correlated(node, &at, &child),
                None => check(item, node, &at, None),
            });
        }
    }
    let Some(value_validation) = value_validation else { return };
    let count = items.len() as i64;
    if let Some(min) = value_validation.min_items.filter(|min| count < *min) {
        let should = || format!("should have at least {min} items");
        outcome.fail(|| Failure::invalid(at, &Value::from(count), &should()));
    }
    if let Some(max) = value_validation.max_items.filter(|max| count > *max) {
        outcome.fail(|| Failure::too_many(at, items.len(), max, "items"));
    }
    if value_validation.unique_items && !list_type::all_unique(items) {
        outcome.fail(|| Failure::invalid(at, &Value::from(""), "shouldn't contain duplicates"));
    }
}

fn check_enum(
    value: &Value,
    value_validation: Option<&ValueValidation>,
    at: &ValuePath<'_>,
    outcome: &mut Outcome,
) {
    let Some(value_validation) =
        value_validation.filter(|value_validation| !value_validation.enumeration.is_empty())
    else {
        return;
    };
    if enumeration::allows(value_validation, value) {
        return;
    }
    let enumeration = &value_validation.enumeration;
    outcome.fail(|| {
        let allowed = enumeration.iter().map(|allowed| match allowed {
            Value::String(text) => quote(text),
            other => quote(&meta::json::to_string(other)),
        });
        let allowed = allowed.collect::<Vec<_>>().join(", ");
        let name = at.dotted();
        Failure {
            reason: FieldReason::NotSupported,
            message: format!("Unsupported value: {}: supported values: {allowed}", show(value)),
            text: format!("{name} in body should be one of {allowed}").into(),
            name,
        }
    });
}

fn check_members(
    map: &Map,
    node: &StructuralNode,
    value_validation: Option<&ValueValidation>,
    at: &ValuePath<'_>,
    correlated: Option<&Correlated<'_>>,
    outcome: &mut Outcome,
) {
    let count = map.len() as i64;
    if let Some(value_validation) = value_validation {
        if let Some(min) = value_validation.min_properties.filter(|min| count < *min) {
            let should = || format!("should have at least {min} properties");
            outcome.fail(|| Failure::invalid(at, &Value::from(count), &should()));
        }
        if let Some(max) = value_validation.max_properties.filter(|max| count > *max) {
            outcome.fail(|| Failure::too_many(at, map.len(), max, "properties"));
        }
    }
    for (key, value) in map.iter() {
        if let Some(property) = node.property(key) {
            outcome.merge(check_member(value, property, &at.field(key), at, key, correlated));
            continue;
        }
        match &node.additional_properties {
            AdditionalProperties::Schema(additional) => {
                outcome.merge(check_member(value, additional, &at.key(key), at, key, correlated));
            }
            AdditionalProperties::Forbidden => outcome.fail(|| {
                let text = format!("{} in body is a forbidden property", at.key(key).dotted());
                Failure {
                    name: at.dotted(),
                    reason: FieldReason::Invalid,
                    message: format!("Invalid value: {}: {text}", quote(key)),
                    text: text.into(),
                }
            }),
            AdditionalProperties::None | AdditionalProperties::Any => {}
        }
    }
    let required = value_validation.map_or(&[][..], |value_validation| &value_validation.required);
    for name in required.iter().filter(|name| !map.contains_key(name)) {
        outcome.fail(|| {
            let name = format!("{}.{name}", at.dotted());
            Failure {
                reason: FieldReason::Required,
                message: "Required value".to_owned(),
                text: format!("{name} in body is required").into(),
                name,
            }
        });
    }
}
