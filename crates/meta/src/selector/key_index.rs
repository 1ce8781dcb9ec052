//! Selectors of many requirements: the labels of an object are looked up in them, so that an object costs its own
//! labels and not the requirements of every watch.

use std::{cmp::Ordering, ops::Range};

use super::label::{Operator, Requirement};
use crate::Str;

/// Selectors of so many requirements have an index.
pub(super) const KEYS_INDEXED: usize = 16;

/// The requirements of a selector by their keys.
#[derive(Clone, Debug)]
pub(super) struct KeyIndex {
    // Invariant: sorted by key, as the requirements are.
    keys: Vec<KeyTest>,
    /// How many of the keys must be among the labels of an object.
    needed: usize,
}

/// The requirements of one key: those from `start` on, until the next key's.
#[derive(Clone, Debug)]
struct KeyTest {
    start: u32,
    /// Its absence fulfils not all of them.
    needed: bool,
    /// Where there are many.
    merged: Option<Box<MergedTest>>,
}

/// Many requirements of one key as one, for a label that is there.
#[derive(Clone, Debug, Default)]
struct MergedTest {
    /// The label must not be there.
    refused: bool,
    /// Sorted. None: any.
    allowed: Option<Vec<Str>>,
    /// Sorted.
    denied: Vec<Str>,
    above: Option<i64>,
    below: Option<i64>,
}

impl KeyIndex {
    pub(super) fn of(requirements: &[Requirement]) -> Self {
        let (mut keys, mut needed, mut start) = (Vec::new(), 0, 0);
        for same in requirements.chunk_by(|a, b| a.key() == b.key()) {
            let merged = (same.len() >= KEYS_INDEXED).then(|| Box::new(MergedTest::of(same)));
            let is_needed = same.iter().any(|one| one.operator().needs_label());
            let at = u32::try_from(start).expect("a selector has the size of a URL or an object");
            keys.push(KeyTest { start: at, needed: is_needed, merged });
            needed += usize::from(is_needed);
            start += same.len();
        }
        keys.shrink_to_fit();
        Self { keys, needed }
    }

    /// `labels` have each key once; a value that is no text is none.
    pub(super) fn matches<'a>(
        &self,
        requirements: &[Requirement],
        labels: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    ) -> bool {
        let mut found = 0;
        for (key, value) in labels {
            let Some(value) = value else { continue };
            let order = |test: &KeyTest| requirements[test.start as usize].key().cmp(key);
            let Ok(at) = self.keys.binary_search_by(order) else { continue };
            let test = &self.keys[at];
            let fulfilled = match &test.merged {
                Some(merged) => merged.matches(value),
                None => {
                    let same = &requirements[self.range(at, requirements.len())];
                    same.iter().all(|requirement| requirement.matches(Some(value)))
                }
            };
            if !fulfilled {
                return false;
            }
            found += usize::from(test.needed);
        }
        found == self.needed
    }

    fn range(&self, at: usize, end: usize) -> Range<usize> {
        let next = self.keys.get(at + 1).map_or(end, |next| next.start as usize);
        self.keys[at].start as usize..next
    }
}

impl MergedTest {
    fn of(requirements: &[Requirement]) -> Self {
        let mut merged = Self::default();
        for requirement in requirements {
            let number = || requirement.values().first().and_then(|value| value.parse().ok());
            match requirement.operator() {
                Operator::Exists => {}
                Operator::DoesNotExist => merged.refused = true,
                Operator::NotEquals | Operator::NotIn => {
                    merged.denied.extend_from_slice(requirement.values());
                }
                Operator::Equals | Operator::DoubleEquals | Operator::In => {
                    let mut values = requirement.values().to_vec();
                    values.sort_unstable();
                    merged.allowed = Some(match merged.allowed.take() {
                        Some(allowed) => intersection(&allowed, &values),
                        None => values,
                    });
                }
                // A bound that is no number is refused when the requirement is made.
                Operator::GreaterThan => merged.above = merged.above.max(number()),
                Operator::LessThan => {
                    merged.below = merged.below.into_iter().chain(number()).min();
                }
            }
        }
        merged.denied.sort_unstable();
        merged.denied.dedup();
        merged
    }

    fn matches(&self, value: &str) -> bool {
        let is_in = |values: &[Str]| values.binary_search_by(|own| own.as_str().cmp(value)).is_ok();
        let number = value.parse::<i64>().ok();
        !self.refused
            && self.allowed.as_deref().is_none_or(is_in)
            && !is_in(&self.denied)
            && self.above.is_none_or(|above| number.is_some_and(|number| number > above))
            && self.below.is_none_or(|below| number.is_some_and(|number| number < below))
    }
}

/// Of sorted values; costs no more than both together.
fn intersection(a: &[Str], b: &[Str]) -> Vec<Str> {
    let (mut left, mut right, mut both) = (a, b, Vec::new());
    while let ([first, rest @ ..], [other, others @ ..]) = (left, right) {
        match first.cmp(other) {
            Ordering::Less => left = rest,
            Ordering::Greater => right = others,
            Ordering::Equal => {
                both.push(first.clone());
                (left, right) = (rest, others);
            }
        }
    }
    both
}
