//! The policy of a namespace: for each mode a level of the Pod Security Standards and a version of it.

use std::fmt;

use meta::{FieldErrors, Value, field::path};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// v1.x
    Minor(u64),
    Latest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LevelVersion {
    pub(crate) level: Level,
    pub(crate) version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) enforce: LevelVersion,
    pub(crate) audit: LevelVersion,
    pub(crate) warn: LevelVersion,
}

pub(crate) const LABEL_PREFIX: &str = "pod-security.kubernetes.io/";

impl Level {
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "privileged" => Ok(Self::Privileged),
            "baseline" => Ok(Self::Baseline),
            "restricted" => Ok(Self::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

impl Version {
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let wrong = Err("must be \"latest\" or \"v1.x\"");
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let Some(minor) = text.strip_prefix("v1.") else { return wrong };
        let is_number = minor.bytes().all(|byte| byte.is_ascii_digit())
            && (minor.len() == 1 || !minor.starts_with('0'));
        match minor.parse::<i64>() {
            Ok(minor) if is_number => Ok(Self::Minor(minor.unsigned_abs())),
            _ => wrong,
        }
    }

    /// Whether the rules of v1.`minor` apply.
    pub(crate) fn is_at_least(self, minor: u64) -> bool {
        match self {
            Self::Minor(own) => own >= minor,
            Self::Latest => true,
        }
    }
}

impl LevelVersion {
    pub(crate) const PRIVILEGED: Self = Self { level: Level::Privileged, version: Version::Latest };

    fn is_equivalent(self, other: Self) -> bool {
        self == other || (self.level == Level::Privileged && other.level == Level::Privileged)
    }
}

impl Policy {
    pub(crate) const PRIVILEGED: Self = Self {
        enforce: LevelVersion::PRIVILEGED,
        audit: LevelVersion::PRIVILEGED,
        warn: LevelVersion::PRIVILEGED,
    };

    pub(crate) fn is_fully_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|mode| mode.level == Level::Privileged)
    }

    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        self.enforce.is_equivalent(other.enforce)
            && self.audit.is_equivalent(other.audit)
            && self.warn.is_equivalent(other.warn)
    }

    /// The policy that the labels of a namespace ask for. There always is one: what cannot be read is
    /// enforced as restricted, and not audited or warned about.
    pub(crate) fn of_namespace(namespace: &Value, defaults: &Self) -> (Self, FieldErrors) {
        let (mut policy, mut errors) = (*defaults, FieldErrors::default());
        let mut labels = Labels { namespace, errors: &mut errors };
        let enforce = labels.level("enforce", Level::Restricted, &mut policy.enforce);
        labels.version("enforce-version", &mut policy.enforce);
        labels.level("audit", Level::Privileged, &mut policy.audit);
        labels.version("audit-version", &mut policy.audit);
        let warn = labels.level("warn", Level::Privileged, &mut policy.warn);
        let warn_version = labels.version("warn-version", &mut policy.warn);
        // A namespace that enforces a level warns about workloads, whose pods would not start.
        if warn == Label::Missing
            && enforce == Label::Valid
            && policy.enforce.level > policy.warn.level
        {
            policy.warn.level = policy.enforce.level;
            if warn_version == Label::Missing {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Missing,
    Valid,
    Invalid,
}

/// The labels of a namespace, and what is wrong with them.
struct Labels<'a> {
    namespace: &'a Value,
    errors: &'a mut FieldErrors,
}

impl Labels<'_> {
    fn level(&mut self, name: &str, otherwise: Level, mode: &mut LevelVersion) -> Label {
        self.read(name, Level::parse, otherwise, &mut mode.level)
    }

    fn version(&mut self, name: &str, mode: &mut LevelVersion) -> Label {
        self.read(name, Version::parse, Version::Latest, &mut mode.version)
    }

    fn read<T>(
        &mut self,
        name: &str,
        parse: fn(&str) -> Result<T, &'static str>,
        otherwise: T,
        into: &mut T,
    ) -> Label {
        let key = format!("{LABEL_PREFIX}{name}");
        let value = self.namespace.at(&["metadata", "labels", &key]).and_then(Value::as_str);
        let Some(value) = value else { return Label::Missing };
        match parse(value) {
            Ok(parsed) => {
                *into = parsed;
                Label::Valid
            }
            Err(why) => {
                *into = otherwise;
                self.errors.invalid(path("metadata").child("labels").key(&key), value, why);
                Label::Invalid
            }
        }
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.level.as_str();
        match self.version {
            Version::Minor(minor) => write!(f, "{level}:v1.{minor}"),
            Version::Latest => write!(f, "{level}:latest"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::yaml;

    #[test]
    fn labels_make_a_policy() {
        let level = "must be one of privileged, baseline, restricted";
        let version = "must be \"latest\" or \"v1.x\"";
        let wrong = |label: &str, value: &str, why: &str| {
            format!(
                "metadata.labels[pod-security.kubernetes.io/{label}]: Invalid value: \"{value}\": {why}"
            )
        };
        let cases = [
            ("", "privileged:latest privileged:latest privileged:latest", String::new()),
            (
                "enforce: baseline",
                "baseline:latest privileged:latest baseline:latest",
                String::new(),
            ),
            (
                "enforce: restricted, enforce-version: v1.20",
                "restricted:v1.20 privileged:latest restricted:v1.20",
                String::new(),
            ),
            (
                "enforce: restricted, enforce-version: v1.20, warn: baseline",
                "restricted:v1.20 privileged:latest baseline:latest",
                String::new(),
            ),
            (
                "enforce: baseline, warn-version: v1.30, audit: restricted, audit-version: v1.0",
                "baseline:latest restricted:v1.0 baseline:v1.30",
                String::new(),
            ),
            (
                "enforce: high",
                "restricted:latest privileged:latest privileged:latest",
                wrong("enforce", "high", level),
            ),
            (
                "audit: x, warn: ''",
                "privileged:latest privileged:latest privileged:latest",
                format!("[{}, {}]", wrong("audit", "x", level), wrong("warn", "", level)),
            ),
            (
                "enforce-version: v1.01",
                "privileged:latest privileged:latest privileged:latest",
                wrong("enforce-version", "v1.01", version),
            ),
            (
                "warn-version: v2.0",
                "privileged:latest privileged:latest privileged:latest",
                wrong("warn-version", "v2.0", version),
            ),
            (
                "warn-version: v1.",
                "privileged:latest privileged:latest privileged:latest",
                wrong("warn-version", "v1.", version),
            ),
            (
                "warn-version: v1.99999999999999999999",
                "privileged:latest privileged:latest privileged:latest",
                wrong("warn-version", "v1.99999999999999999999", version),
            ),
        ];
        for (labels, expected, errors) in cases {
            let labels: Vec<String> = labels
                .split(", ")
                .filter(|label| !label.is_empty())
                .map(|label| format!("{LABEL_PREFIX}{label}"))
                .collect();
            let namespace = yaml(&format!("{{metadata: {{labels: {{{}}}}}}}", labels.join(", ")));
            let (policy, found) = Policy::of_namespace(&namespace, &Policy::PRIVILEGED);
            let Policy { enforce, audit, warn } = policy;
            assert_eq!(format!("{enforce} {audit} {warn}"), expected, "{labels:?}");
            let found = if found.is_empty() { String::new() } else { found.to_string() };
            assert_eq!(found, errors, "{labels:?}");
        }
    }
}
