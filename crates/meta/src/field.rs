//! Field paths and the errors collected on them, worded as Kubernetes words them.

use std::{
    collections::HashSet,
    fmt::{self, Write as _},
    sync::Arc,
};

use crate::{Number, Str, Value, json};

/// How many errors about one object are kept; the rest is counted. A client that has a thousand errors to
/// mend is not helped by more, and an object of 3 MiB can have millions.
pub const FIELD_ERRORS_MAX: usize = 1_000;

/// How many bytes the kept errors of one object have, as they are written in JSON. A `Status` has them twice,
/// so that the answer stays below 2 MB.
pub const FIELD_ERRORS_BYTES_MAX: usize = 700 * 1024;

/// The longest path and the longest message of one error, as they are written in JSON; the rest is cut.
pub const FIELD_ERROR_BYTES_MAX: usize = 64 * 1024;

/// A path into an object: `spec.containers[0].env[NAME].value`. It is a list of steps that is written out for
/// an error only, so that walking down an object with long keys copies no path.
#[derive(Clone, Debug, Default)]
pub struct FieldPath(Option<Arc<Element>>);

#[derive(Debug)]
struct Element {
    parent: FieldPath,
    step: Step,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// A field, or a dotted path.
    Name(Str),
    Index(usize),
    Key(Str),
}

impl FieldPath {
    /// A field, or a dotted path.
    pub fn new(name: impl Into<String>) -> Self {
        Self::root().with(Step::Name(name.into().into()))
    }

    /// The nothing above the first field.
    pub fn root() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        self.with(Step::Name(name.into()))
    }

    #[must_use]
    pub fn index(&self, at: usize) -> Self {
        self.with(Step::Index(at))
    }

    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.with(Step::Key(key.into()))
    }

    fn with(&self, step: Step) -> Self {
        Self(Some(Arc::new(Element { parent: self.clone(), step })))
    }

    /// From the first step to the last.
    fn steps(&self) -> Vec<&Step> {
        let elements = std::iter::successors(self.0.as_deref(), |last| last.parent.0.as_deref());
        let mut steps: Vec<&Step> = elements.map(|element| &element.step).collect();
        steps.reverse();
        steps
    }

    /// Whether this is `ancestor` or a path below it, step by step.
    pub fn is_within(&self, ancestor: &Self) -> bool {
        self.steps().starts_with(&ancestor.steps())
    }

    fn is_of_spec(&self) -> bool {
        self.root_field() == SPEC
    }

    /// The top-level field: `spec`.
    pub fn root_field(&self) -> Str {
        let elements = std::iter::successors(self.0.as_deref(), |last| last.parent.0.as_deref());
        match elements.last().map(|first| &first.step) {
            Some(Step::Name(name)) => Str::new(name.split(['.', '[']).next().unwrap_or_default()),
            _ => Str::default(),
        }
    }
}

impl PartialEq for FieldPath {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for FieldPath {}

/// Dropping the last path of a deep object would otherwise recurse once for each of its levels.
impl Drop for FieldPath {
    fn drop(&mut self) {
        let mut last = self.0.take();
        while let Some(mut element) = last.and_then(Arc::into_inner) {
            last = element.parent.0.take();
        }
    }
}

const SPEC: &str = "spec";

/// A path without a parent; `.child()` leads on.
pub fn path(name: &str) -> FieldPath {
    FieldPath::new(name)
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_none() {
            return f.write_str("<nil>");
        }
        for (at, step) in self.steps().into_iter().enumerate() {
            match step {
                Step::Name(name) if at == 0 => f.write_str(name)?,
                Step::Name(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub reason: FieldReason,
    pub path: FieldPath,
    /// The path as text; a long one is cut.
    pub field: String,
    /// The top-level field that the error is about; empty where it is about the whole object.
    pub root_field: Str,
    /// Without the field: `Invalid value: "x": must be …`.
    pub message: String,
    /// Set where code that gets the error treats the breaches of this rule differently.
    pub rule: Option<RuleId>,
}

/// The identity of a validation rule, declared as a constant beside the check. Ratcheting compares these, so
/// that rewording a message or a path never changes what an update may leave as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(&'static str);

impl RuleId {
    /// `name` is unique in the workspace.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }
}

impl FieldError {
    pub fn new(reason: FieldReason, path: &FieldPath, mut message: String) -> Self {
        let mut field = path.to_string();
        cut(&mut field, FIELD_ERROR_BYTES_MAX);
        cut(&mut message, FIELD_ERROR_BYTES_MAX);
        let root_field = path.root_field();
        Self { reason, path: path.clone(), field, root_field, message, rule: None }
    }

    fn json_bytes(&self) -> usize {
        json::escaped_bytes(&self.field) + json::escaped_bytes(&self.message)
    }
}

/// Cuts a text that has more bytes in JSON than a response may have, and says so.
pub fn cut(text: &mut String, json_bytes_max: usize) {
    if let Some(end) = json::escaped_prefix(text, json_bytes_max) {
        let more = text.len() - end;
        text.truncate(end);
        let _ = write!(text, "... ({more} more bytes)");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldReason {
    Required,
    Invalid,
    NotSupported,
    Duplicate,
    Forbidden,
    NotFound,
    TooLong,
    TooMany,
    TypeInvalid,
    Internal,
}

impl FieldReason {
    /// The `reason` of a cause in a `Status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }
}

/// Collected, so that a client sees everything that is wrong at once, up to [`FIELD_ERRORS_MAX`] and
/// [`FIELD_ERRORS_BYTES_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldErrors {
    kept: Vec<FieldError>,
    kept_json_bytes: usize,
    /// How many errors were not kept, by what ratcheting and updates of the status drop errors by. There are
    /// few of these.
    omitted: Vec<(Omitted, usize)>,
    /// A validator gave up because there were too many errors: the number of the omitted ones is not known.
    stopped_early: bool,
    /// The rule that is being checked.
    rule: Option<RuleId>,
    /// For the client, about errors that an update may leave as they were.
    warnings: Vec<String>,
}

/// How many warnings about one object are kept: the header has no more room than for some of them.
const FIELD_WARNINGS_MAX: usize = 100;

/// What is remembered of errors that were not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Omitted {
    rule: Option<RuleId>,
    /// Whether the top-level field is `spec`.
    of_spec: bool,
}

impl<'a> IntoIterator for &'a FieldErrors {
    type Item = &'a FieldError;
    type IntoIter = std::slice::Iter<'a, FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut FieldErrors {
    type Item = &'a mut FieldError;
    type IntoIter = std::slice::IterMut<'a, FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl FieldErrors {
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.omitted.is_empty()
    }

    /// How many there are, with those that were not kept.
    pub fn count(&self) -> usize {
        self.kept.len() + self.omitted_count()
    }

    fn omitted_count(&self) -> usize {
        self.omitted.iter().map(|(_, count)| count).sum()
    }

    /// The errors that were kept.
    pub fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.kept.iter()
    }

    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, FieldError> {
        self.kept.iter_mut()
    }

    /// Sorts the errors that were kept by their text.
    pub fn sort(&mut self) {
        self.kept.sort_by_cached_key(ToString::to_string);
    }

    /// The rules that code treats differently and that were broken.
    pub fn broken_rules(&self) -> impl Iterator<Item = RuleId> {
        let kept = self.kept.iter().filter_map(|error| error.rule);
        kept.chain(self.omitted.iter().filter_map(|(omitted, _)| omitted.rule))
    }

    /// Drops the errors about rules for which `keep` is false.
    pub fn retain_rules(&mut self, keep: impl Fn(RuleId) -> bool) {
        self.kept.retain(|error| error.rule.is_none_or(&keep));
        self.omitted.retain(|(omitted, _)| omitted.rule.is_none_or(&keep));
        self.kept_json_bytes = self.kept.iter().map(FieldError::json_bytes).sum();
    }

    /// Drops the errors about `spec` and all below it.
    pub fn drop_spec(&mut self) {
        self.kept.retain(|error| error.root_field != SPEC);
        self.omitted.retain(|(omitted, _)| !omitted.of_spec);
        self.kept_json_bytes = self.kept.iter().map(FieldError::json_bytes).sum();
    }

    /// Notes an error that does not count, because the client has not made it.
    pub fn warn(&mut self, error: &FieldError) {
        if self.warnings.len() < FIELD_WARNINGS_MAX {
            self.warnings.push(error.to_string());
        }
    }

    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Whether the next error is only counted.
    pub fn is_full(&self) -> bool {
        self.kept.len() >= FIELD_ERRORS_MAX || self.kept_json_bytes >= FIELD_ERRORS_BYTES_MAX
    }

    /// Whether validators of long lists should give up: true once many errors were omitted. Errors about
    /// rules that code treats differently don't count, because ratcheting may remove them all.
    #[must_use]
    pub fn stop_early(&mut self) -> bool {
        let of_no_rule = self.omitted.iter().filter(|(omitted, _)| omitted.rule.is_none());
        let stop = of_no_rule.map(|(_, count)| count).sum::<usize>() >= FIELD_ERRORS_MAX;
        self.stopped_early |= stop;
        stop
    }

    /// Says how many errors were not kept.
    pub fn omitted_text(&self) -> Option<String> {
        let count = self.omitted_count();
        let at_least = if self.stopped_early { "at least " } else { "" };
        let errors = if count == 1 { "error" } else { "errors" };
        (count > 0).then(|| format!("{at_least}{count} more {errors}"))
    }

    /// Counts errors below `field` that were found and not kept.
    pub fn omit(&mut self, field: &FieldPath, count: usize) {
        if count > 0 {
            self.add_omitted(Omitted { rule: self.rule, of_spec: field.is_of_spec() }, count);
        }
    }

    fn add_omitted(&mut self, what: Omitted, more: usize) {
        match self.omitted.iter_mut().find(|(known, _)| *known == what) {
            Some((_, count)) => *count += more,
            None => self.omitted.push((what, more)),
        }
    }

    pub fn required(&mut self, field: impl AsRef<FieldPath>, why: &str) {
        self.push_with(FieldReason::Required, field, || match why {
            "" => "Required value".to_owned(),
            why => format!("Required value: {why}"),
        });
    }

    pub fn invalid(&mut self, field: impl AsRef<FieldPath>, value: impl Into<Value>, why: &str) {
        let message = || format!("Invalid value: {}: {why}", show(&value.into()));
        self.push_with(FieldReason::Invalid, field, message);
    }

    pub fn not_supported(&mut self, field: impl AsRef<FieldPath>, value: &str, valid: &[&str]) {
        self.push_with(FieldReason::NotSupported, field, || {
            let mut message = format!("Unsupported value: {}", quote(value));
            if !valid.is_empty() {
                let valid: Vec<String> = valid.iter().map(|v| quote(v)).collect();
                let _ = write!(message, ": supported values: {}", valid.join(", "));
            }
            message
        });
    }

    pub fn duplicate(&mut self, field: impl AsRef<FieldPath>, value: impl Into<Value>) {
        let message = || format!("Duplicate value: {}", show(&value.into()));
        self.push_with(FieldReason::Duplicate, field, message);
    }

    pub fn forbidden(&mut self, field: impl AsRef<FieldPath>, why: &str) {
        self.push_with(FieldReason::Forbidden, field, || format!("Forbidden: {why}"));
    }

    pub fn not_found(&mut self, field: impl AsRef<FieldPath>, value: &str) {
        self.push_with(FieldReason::NotFound, field, || format!("Not found: {}", quote(value)));
    }

    pub fn too_long(&mut self, field: impl AsRef<FieldPath>, bytes_max: usize) {
        let message = || format!("Too long: may not be more than {bytes_max} bytes");
        self.push_with(FieldReason::TooLong, field, message);
    }

    pub fn too_many(&mut self, field: impl AsRef<FieldPath>, count: usize, max: usize) {
        let items = if max == 1 { "item" } else { "items" };
        let message = || format!("Too many: {count}: must have at most {max} {items}");
        self.push_with(FieldReason::TooMany, field, message);
    }

    pub fn push(&mut self, reason: FieldReason, field: impl AsRef<FieldPath>, message: String) {
        self.push_with(reason, field, || message);
    }

    /// Adds an error whose message is only formatted below the bound.
    pub fn push_with(
        &mut self,
        reason: FieldReason,
        field: impl AsRef<FieldPath>,
        message: impl FnOnce() -> String,
    ) {
        let field = field.as_ref();
        if self.is_full() {
            return self.omit(field, 1);
        }
        self.add(FieldError::new(reason, field, message()));
    }

    /// Adds an error that was made elsewhere.
    pub fn add(&mut self, error: FieldError) {
        let rule = self.rule.or(error.rule);
        if self.is_full() {
            self.add_omitted(Omitted { rule, of_spec: error.root_field == SPEC }, 1);
        } else {
            self.keep(FieldError { rule, ..error });
        }
    }

    fn keep(&mut self, error: FieldError) {
        self.kept_json_bytes += error.json_bytes();
        self.kept.push(error);
    }

    /// Runs `check` and marks the errors it adds as breaches of `rule`.
    pub fn with_rule(&mut self, rule: RuleId, check: impl FnOnce(&mut Self)) {
        let outer = self.rule;
        self.rule = outer.or(Some(rule));
        check(self);
        self.rule = outer;
    }

    pub fn extend(&mut self, others: FieldErrors) {
        for error in others.kept {
            self.add(error);
        }
        for (omitted, count) in others.omitted {
            self.add_omitted(Omitted { rule: self.rule.or(omitted.rule), ..omitted }, count);
        }
        self.stopped_early |= others.stopped_early;
        self.warnings.extend(others.warnings);
    }
}

impl AsRef<FieldPath> for FieldPath {
    fn as_ref(&self) -> &FieldPath {
        self
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// One error as it is, several in brackets. Equal ones are said once.
impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut seen = HashSet::new();
        let errors = self.kept.iter().map(ToString::to_string);
        let mut texts: Vec<String> = errors.filter(|text| seen.insert(text.clone())).collect();
        texts.extend(self.omitted_text());
        match texts.as_slice() {
            [one] => f.write_str(one),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}

/// A value as Go's field errors show it: strings quoted, floats by `%v`, the rest as JSON.
pub fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(Number::Float(float)) => json::show_float(*float),
        other => json::to_string(other),
    }
}

/// Go's `%q`.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    // Most texts are plain ASCII, which is copied as it is.
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    let plain = text.bytes().take_while(|byte| is_plain(byte)).count();
    let (plain, rest) = text.split_at(plain);
    out.push_str(plain);
    for c in rest.chars() {
        match c {
            ' '..='~' if is_plain(&(c as u8)) => out.push(c),
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{b}' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if !crate::names::is_printable(c) => {
                let _ = match c as u32 {
                    code @ 0..=0xffff => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_knows_its_top_level_field() {
        let mut errors = FieldErrors::default();
        let spec = path("spec");
        let paths = [spec.clone(), spec.child("a").index(0), spec.key("k"), path("specials")];
        for at in paths.into_iter().chain([FieldPath::root(), FieldPath::new("spec.a")]) {
            errors.forbidden(at, "no");
        }
        errors.forbidden(FieldPath::root().child("status").child("x"), "no");
        let roots: Vec<&str> = errors.iter().map(|error| error.root_field.as_str()).collect();
        assert_eq!(roots, ["spec", "spec", "spec", "specials", "", "spec", "status"]);
    }

    #[test]
    fn more_errors_than_a_client_can_read_are_counted() {
        let mut errors = FieldErrors::default();
        for at in 0..FIELD_ERRORS_MAX + 5 {
            errors.forbidden(path("list").index(at), "no");
        }
        let text = errors.to_string();
        assert_eq!(errors.count(), FIELD_ERRORS_MAX + 5);
        assert!(text.ends_with("list[999]: Forbidden: no, 5 more errors]"), "{text}");
        assert!(!errors.stop_early());
        let mut both = errors.clone();
        both.extend(errors);
        assert!(both.to_string().ends_with(", 1010 more errors]"));
        assert!(both.stop_early());
        assert!(both.to_string().ends_with(", at least 1010 more errors]"));
    }

    #[test]
    fn long_errors_are_cut_and_their_bytes_bounded() {
        let long = "\u{1}".repeat(1 << 20);
        let mut errors = FieldErrors::default();
        for at in 0..100 {
            errors.invalid(path(&long).index(at), long.as_str(), "no");
        }
        let bytes: usize = errors.iter().map(FieldError::json_bytes).sum();
        assert!(bytes < FIELD_ERRORS_BYTES_MAX + 2 * FIELD_ERROR_BYTES_MAX + 100, "{bytes}");
        assert_eq!(errors.count(), 100);
        let first = errors.iter().next().unwrap();
        assert!(first.message.ends_with(" more bytes)"), "{}", first.message.len());
        assert!(first.message.len() < FIELD_ERROR_BYTES_MAX + 40);
    }

    #[test]
    fn errors_of_a_ratcheted_rule_are_dropped_although_they_were_not_kept() {
        const RULE: RuleId = RuleId::new("a rule of a test");
        let mut errors = FieldErrors::default();
        errors.with_rule(RULE, |errors| {
            for at in 0..5 * FIELD_ERRORS_MAX {
                errors.forbidden(path("list").index(at), "no");
            }
        });
        assert!(!errors.stop_early(), "an error without a rule could follow");
        assert!(errors.broken_rules().all(|rule| rule == RULE));
        errors.required(path("name"), "");
        errors.retain_rules(|rule| rule != RULE);
        assert_eq!((errors.is_empty(), errors.to_string().as_str()), (false, "1 more error"));
    }

    #[test]
    fn errors_about_the_spec_are_dropped_although_they_were_not_kept() {
        let mut errors = FieldErrors::default();
        for at in 0..2 * FIELD_ERRORS_MAX {
            errors.forbidden(path("spec").child("list").index(at), "no");
        }
        let mut with_status = errors.clone();
        with_status.forbidden(path("status"), "no");
        errors.drop_spec();
        assert!(errors.is_empty());
        with_status.drop_spec();
        assert_eq!(with_status.to_string(), "1 more error");
    }

    #[test]
    fn a_path_of_any_depth_is_written_and_dropped_without_recursion() {
        let small = std::thread::Builder::new().stack_size(64 * 1024);
        let walk = || {
            let mut at = path("spec");
            for _ in 0..100_000 {
                at = at.child("a");
            }
            at.to_string().len()
        };
        assert_eq!(small.spawn(walk).unwrap().join().unwrap(), 200_004);
    }

    #[test]
    fn errors_read_as_in_kubernetes() {
        let mut errors = FieldErrors::default();
        errors.required(path("spec").child("containers"), "");
        assert_eq!(errors.to_string(), "spec.containers: Required value");
        errors.invalid(path("metadata").child("name"), "A", "must be lower case");
        errors.not_supported(path("type"), "Foo", &["A", "B"]);
        errors.duplicate(path("ports").index(1), "a");
        errors.too_many(path("x").key("k"), 3, 2);
        assert_eq!(
            errors.to_string(),
            "[spec.containers: Required value, \
             metadata.name: Invalid value: \"A\": must be lower case, \
             type: Unsupported value: \"Foo\": supported values: \"A\", \"B\", \
             ports[1]: Duplicate value: \"a\", x[k]: Too many: 3: must have at most 2 items]"
        );
    }
}
