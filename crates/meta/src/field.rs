//! Field paths and the errors collected on them, worded as Kubernetes words them.

use std::fmt::{self, Write as _};

use crate::{Number, Str, Value, json};

/// A path into an object: `spec.containers[0].env[NAME].value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath {
    text: String,
    /// The length of the first element.
    root_bytes: usize,
}

impl FieldPath {
    /// A field, or a dotted path.
    pub fn new(name: impl Into<String>) -> Self {
        let text = name.into();
        let root_bytes = text.find(['.', '[']).unwrap_or(text.len());
        Self { text, root_bytes }
    }

    /// The nothing above the first field.
    pub fn root() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.text.is_empty() { Self::new(name) } else { self.with(format!(".{name}")) }
    }

    #[must_use]
    pub fn index(&self, at: usize) -> Self {
        self.with(format!("[{at}]"))
    }

    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.with(format!("[{key}]"))
    }

    fn with(&self, step: String) -> Self {
        Self { text: self.text.clone() + &step, root_bytes: self.root_bytes }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The top-level field: `spec`.
    pub fn root_field(&self) -> &str {
        &self.text[..self.root_bytes]
    }
}

/// A path without a parent; `.child()` leads on.
pub fn path(name: &str) -> FieldPath {
    FieldPath::new(name)
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.text.is_empty() { "<nil>" } else { &self.text })
    }
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub reason: FieldReason,
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
    pub fn new(reason: FieldReason, path: &FieldPath, message: String) -> Self {
        let root_field = Str::new(path.root_field());
        Self { reason, field: path.to_string(), root_field, message, rule: None }
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

/// Collected, so that a client sees everything that is wrong at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldErrors(pub Vec<FieldError>);

impl FieldErrors {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn required(&mut self, field: impl AsRef<FieldPath>, why: &str) {
        let message = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        self.push(FieldReason::Required, field, message);
    }

    pub fn invalid(&mut self, field: impl AsRef<FieldPath>, value: impl Into<Value>, why: &str) {
        let message = format!("Invalid value: {}: {why}", show(&value.into()));
        self.push(FieldReason::Invalid, field, message);
    }

    pub fn not_supported(&mut self, field: impl AsRef<FieldPath>, value: &str, valid: &[&str]) {
        let mut message = format!("Unsupported value: {}", quote(value));
        if !valid.is_empty() {
            let valid: Vec<String> = valid.iter().map(|v| quote(v)).collect();
            let _ = write!(message, ": supported values: {}", valid.join(", "));
        }
        self.push(FieldReason::NotSupported, field, message);
    }

    pub fn duplicate(&mut self, field: impl AsRef<FieldPath>, value: impl Into<Value>) {
        let message = format!("Duplicate value: {}", show(&value.into()));
        self.push(FieldReason::Duplicate, field, message);
    }

    pub fn forbidden(&mut self, field: impl AsRef<FieldPath>, why: &str) {
        self.push(FieldReason::Forbidden, field, format!("Forbidden: {why}"));
    }

    pub fn not_found(&mut self, field: impl AsRef<FieldPath>, value: &str) {
        self.push(FieldReason::NotFound, field, format!("Not found: {}", quote(value)));
    }

    pub fn too_long(&mut self, field: impl AsRef<FieldPath>, bytes_max: usize) {
        let message = format!("Too long: may not be more than {bytes_max} bytes");
        self.push(FieldReason::TooLong, field, message);
    }

    pub fn too_many(&mut self, field: impl AsRef<FieldPath>, count: usize, max: usize) {
        let items = if max == 1 { "item" } else { "items" };
        let message = format!("Too many: {count}: must have at most {max} {items}");
        self.push(FieldReason::TooMany, field, message);
    }

    pub fn push(&mut self, reason: FieldReason, field: impl AsRef<FieldPath>, message: String) {
        self.0.push(FieldError::new(reason, field.as_ref(), message));
    }

    /// Runs `check` and marks the errors it adds as breaches of `rule`.
    pub fn with_rule(&mut self, rule: RuleId, check: impl FnOnce(&mut Self)) {
        let before = self.0.len();
        check(self);
        for error in &mut self.0[before..] {
            error.rule = Some(rule);
        }
    }

    pub fn extend(&mut self, others: FieldErrors) {
        self.0.extend(others.0);
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
        let mut said: Vec<String> = Vec::new();
        for error in &self.0 {
            let error = error.to_string();
            if !said.contains(&error) {
                said.push(error);
            }
        }
        match said.as_slice() {
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
    for c in text.chars() {
        match c {
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
        let roots: Vec<&str> = errors.0.iter().map(|error| error.root_field.as_str()).collect();
        assert_eq!(roots, ["spec", "spec", "spec", "specials", "", "spec", "status"]);
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
