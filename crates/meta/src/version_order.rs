//! Which of two API versions is the better one, by name alone.

use std::cmp::Ordering;

/// Stable before beta before alpha, newer before older; names that don't follow the pattern come
/// last, in the order of the alphabet. The better one is the greater.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (Parsed::of(a), Parsed::of(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// The order of the fields is the order in which they count.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Parsed {
    stage: Stage,
    major: u32,
    minor: u32,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Alpha,
    Beta,
    Stable,
}

impl Parsed {
    /// `v1`, `v1beta2`, `v1alpha3`; nothing else.
    fn of(version: &str) -> Option<Self> {
        let rest = version.strip_prefix('v')?;
        for (word, stage) in [("alpha", Stage::Alpha), ("beta", Stage::Beta)] {
            if let Some((major, minor)) = rest.split_once(word) {
                return Some(Self { stage, major: digits(major)?, minor: digits(minor)? });
            }
        }
        Some(Self { stage: Stage::Stable, major: digits(rest)?, minor: 0 })
    }
}

fn digits(text: &str) -> Option<u32> {
    // `parse` alone would allow a sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kubernetes_orders_them() {
        let best_first =
            ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2"];
        let others = ["foo1", "foo10", "v", "v1betax", "v1gamma1", "v+1"];
        let mut versions: Vec<_> = best_first.into_iter().chain(others).collect();
        versions.sort_by(|a, b| compare_versions(b, a));
        let mut expected: Vec<_> = best_first.to_vec();
        expected.extend(["foo1", "foo10", "v", "v+1", "v1betax", "v1gamma1"]);
        assert_eq!(versions, expected);
    }
}
