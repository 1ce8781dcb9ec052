//! Semantic versions.

use std::cmp::Ordering;

use meta::field::quote;

use super::standard::text;
use crate::functions::Functions;
use crate::kubernetes_value::KubernetesValue;
use crate::types::Type;
use crate::value::{EvalError, EvalResult, NO_SUCH_OVERLOAD, Val, fail};

#[derive(Debug)]
pub struct Version {
    major: u64,
    minor: u64,
    patch: u64,
    pre: Vec<PrereleaseId>,
    build: Vec<String>,
}

/// An identifier of a pre-release. Numbers sort before texts.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PrereleaseId {
    Number(u64),
    Text(String),
}

pub(super) fn declare(f: &mut Functions) {
    use Type::{Bool, Int, String};
    let ty = Type::object("kubernetes.Semver");
    let one = [ty.clone()];
    let two = [ty.clone(), ty.clone()];
    f.global("semver", "string_to_semver", &[String], ty.clone(), make);
    f.global("semver", "string_bool_to_semver", &[String, Bool], ty, make);
    f.global("isSemver", "is_semver_string", &[String], Bool, |args| {
        Ok(Val::Bool(read(args)?.is_ok()))
    });
    f.global("isSemver", "is_semver_string_bool", &[String, Bool], Bool, |args| {
        Ok(Val::Bool(read(args)?.is_ok()))
    });
    f.member("isGreaterThan", "semver_is_greater_than", &two, Bool, |args| {
        Ok(Val::Bool(order(args)? == Ordering::Greater))
    });
    f.member("isLessThan", "semver_is_less_than", &two, Bool, |args| {
        Ok(Val::Bool(order(args)? == Ordering::Less))
    });
    f.member("compareTo", "semver_compare_to", &two, Int, |args| Ok(Val::Int(order(args)? as i64)));
    f.member("major", "semver_major", &one, Int, |args| {
        Ok(Val::Int(version(args, 0)?.major as i64))
    });
    f.member("minor", "semver_minor", &one, Int, |args| {
        Ok(Val::Int(version(args, 0)?.minor as i64))
    });
    f.member("patch", "semver_patch", &one, Int, |args| {
        Ok(Val::Int(version(args, 0)?.patch as i64))
    });
}

fn version<'v>(args: &'v [Val<'_>], at: usize) -> Result<&'v Version, EvalError> {
    match args.get(at) {
        Some(Val::Kubernetes(value)) => match &**value {
            KubernetesValue::Semver(version) => Ok(version),
            _ => Err(NO_SUCH_OVERLOAD),
        },
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

fn order(args: &[Val<'_>]) -> Result<Ordering, EvalError> {
    Ok(version(args, 0)?.compare(version(args, 1)?))
}

fn read(args: &[Val<'_>]) -> Result<Result<Version, String>, EvalError> {
    let text = text(args)?;
    Ok(match args.get(1) {
        Some(Val::Bool(true)) => normalize(text).and_then(|text| Version::parse(&text)),
        _ => Version::parse(text),
    })
}

fn make<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match read(args)? {
        Ok(version) => Ok(Val::kubernetes(KubernetesValue::Semver(version))),
        Err(message) => fail(message),
    }
}

/// `v01.2` as `1.2.0`.
fn normalize(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text
        .splitn(3, '.')
        .map(|part| {
            if part.len() <= 1 {
                return part.to_owned();
            }
            let trimmed = part.trim_start_matches('0');
            if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                trimmed.to_owned()
            } else {
                format!("0{trimmed}")
            }
        })
        .collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".into());
        }
        parts.resize(3, "0".into());
    }
    Ok(parts.join("."))
}

impl Version {
    /// Strictly `1.2.3-pre+build`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".into());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts.as_slice() else {
            return Err("No Major.Minor.Patch elements found".into());
        };
        let major = number("major", "Major", major)?;
        let minor = number("minor", "Minor", minor)?;
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (*rest, None),
        };
        let (patch, pre) = match rest.split_once('-') {
            Some((patch, pre)) => (patch, Some(pre)),
            None => (rest, None),
        };
        let patch = number("patch", "Patch", patch)?;
        let pre = match pre {
            Some(pre) => pre.split('.').map(PrereleaseId::parse).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        let build = match build {
            Some(build) => build.split('.').map(build_part).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        Ok(Self { major, minor, patch, pre, build })
    }

    /// Which of them comes first. Builds don't count.
    pub fn compare(&self, other: &Self) -> Ordering {
        let numbers =
            (self.major, self.minor, self.patch).cmp(&(other.major, other.minor, other.patch));
        // A pre-release comes before the release.
        numbers.then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.pre.cmp(&other.pre),
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}.{}.{}", self.major, self.minor, self.patch);
        let pre: Vec<String> = self
            .pre
            .iter()
            .map(|part| match part {
                PrereleaseId::Number(number) => number.to_string(),
                PrereleaseId::Text(text) => text.clone(),
            })
            .collect();
        if !pre.is_empty() {
            text.push_str(&format!("-{}", pre.join(".")));
        }
        if !self.build.is_empty() {
            text.push_str(&format!("+{}", self.build.join(".")));
        }
        text
    }
}

impl PrereleaseId {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Prerelease is empty".into());
        }
        if is_number(text) {
            if leading_zero(text) {
                let text = quote(text);
                return Err(format!(
                    "Numeric PreRelease version must not contain leading zeroes {text}"
                ));
            }
            return parse_number(text).map(Self::Number);
        }
        if !is_word(text) {
            return Err(format!("Invalid character(s) found in prerelease {}", quote(text)));
        }
        Ok(Self::Text(text.to_owned()))
    }
}

fn build_part(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("Build meta data is empty".into());
    }
    if !is_word(text) {
        return Err(format!("Invalid character(s) found in build meta data {}", quote(text)));
    }
    Ok(text.to_owned())
}

fn number(name: &str, title: &str, text: &str) -> Result<u64, String> {
    // Compat: no digit at all passes this test and fails as a number.
    if !is_number(text) {
        return Err(format!("Invalid character(s) found in {name} number {}", quote(text)));
    }
    if leading_zero(text) {
        return Err(format!("{title} number must not contain leading zeroes {}", quote(text)));
    }
    parse_number(text)
}

fn parse_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        let why = if text.is_empty() { "invalid syntax" } else { "value out of range" };
        format!("strconv.ParseUint: parsing {}: {why}", quote(text))
    })
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn leading_zero(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0')
}
