//! The `pattern` keyword, in Go's dialect of regular expressions.

use std::sync::OnceLock;

use cel::regex::Regex;
use meta::Str;

/// Compiled on first use: a cluster's CRDs contain thousands of patterns, and most are never
/// evaluated.
#[derive(Debug)]
pub struct Pattern {
    text: Str,
    compiled: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.into(), compiled: OnceLock::new() }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether some part of the text matches; the error of Go's regexp if the pattern is invalid.
    pub(super) fn matches(&self, text: &str) -> Result<bool, &str> {
        self.regex().map(|regex| regex.is_match(text))
    }

    pub(super) fn check(&self) -> Result<(), &str> {
        self.regex().map(|_| ())
    }

    fn regex(&self) -> Result<&Regex, &str> {
        let compiled = self.compiled.get_or_init(|| Regex::new(&self.text));
        compiled.as_ref().map_err(String::as_str)
    }
}
