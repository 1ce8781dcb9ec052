//! Semantic versions as LeaseCandidates have them: `1.36`, `v1.36.4-beta.1`.

use std::cmp::Ordering;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Version {
    numbers: [u64; 3],
    /// Empty: a release.
    prerelease: Vec<Identifier>,
}

/// Numbers are before words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

impl Version {
    /// Tolerant: a leading `v`, leading zeros, and missing numbers.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, build) = match text.split_once('+') {
            Some((text, build)) => (text, Some(build)),
            None => (text, None),
        };
        let is_word = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if build.is_some_and(|build| !build.split('.').all(is_word)) {
            return None;
        }
        let (core, prerelease) = match text.split_once('-') {
            Some((core, prerelease)) => (core, Some(prerelease)),
            None => (text, None),
        };
        let parts: Vec<&str> = core.split('.').collect();
        // Without all three numbers there is nothing that they could be followed by.
        if parts.len() > 3 || (parts.len() < 3 && (prerelease.is_some() || build.is_some())) {
            return None;
        }
        let mut numbers = [0; 3];
        for (number, part) in numbers.iter_mut().zip(&parts) {
            if !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            *number = part.parse().ok()?;
        }
        let prerelease = prerelease.map(|text| text.split('.').map(identifier).collect());
        Some(Self { numbers, prerelease: prerelease.unwrap_or(Some(Vec::new()))? })
    }
}

fn identifier(text: &str) -> Option<Identifier> {
    let is_valid =
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_valid {
        return None;
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Identifier::Word(text.to_owned()));
    }
    let has_zero = text.len() > 1 && text.starts_with('0');
    (!has_zero).then(|| text.parse().ok().map(Identifier::Number))?
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        numbers.then_with(|| match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.prerelease.cmp(&other.prerelease),
        })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_semantic_versions() {
        let ascending = [
            "0",
            "v1.30",
            "1.31.0-alpha",
            "1.31.0-alpha.1",
            "1.31.0-alpha.beta",
            "1.31.0-beta.2",
            "1.31.0-beta.11",
            "1.31.0-rc.1",
            "1.31",
            "1.31.1",
            "1.200.0",
            "2",
        ];
        let versions = ascending.map(|text| Version::parse(text).expect(text));
        assert!(versions.is_sorted_by(|a, b| a < b));
        for (a, b) in [("1.31", "v1.31.0"), ("01.031.0", "1.31.0"), ("1.31.0+a", "1.31.0+b")] {
            assert_eq!(Version::parse(a), Version::parse(b));
        }
        let invalid = [
            "",
            "v",
            "1.",
            "1.2.3.4",
            "a",
            "1.2-beta",
            "1.2.3-",
            "1.2.3-01",
            "1.2.3-a_b",
            "1.2.3+",
            "-1",
        ];
        for text in invalid {
            assert_eq!(Version::parse(text), None, "{text:?}");
        }
    }
}
