//! Checks linearizability of concurrent reads and writes of an object: there must be a sequential order in
//! which every operation takes effect between its request and its response.
//!
//! The search is Wing and Gong's with Lowe's memoization: operations are placed one by one, with
//! backtracking. Objects are checked one by one, which is enough: a history is linearizable if that of
//! each object is.

use std::collections::{BTreeMap, HashMap, HashSet};

/// What a client asked for, and what it knows of the outcome. Times come from one clock.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) key: String,
    pub(super) began: u64,
    /// [`NEVER`] when no answer came, and it may still happen.
    pub(super) ended: u64,
    pub(super) what: What,
    pub(super) outcome: Outcome,
    /// The version that the answer showed.
    pub(super) version: Option<u64>,
}

pub(super) const NEVER: u64 = u64::MAX;

/// Values are never written twice, so that a value is a state of the object. Updates and deletions may
/// name the state that they build on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// What was there; nothing if there was nothing.
    Read(Option<u64>),
    Create(u64),
    Update {
        from: Option<u64>,
        to: u64,
    },
    Delete {
        from: Option<u64>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// There was one already.
    Exists,
    /// There was none.
    Missing,
    /// It was not in the state that was named.
    Conflict,
    /// No answer, or one that leaves it open.
    Unknown,
}

/// What is wrong with a history, if anything.
pub(super) fn verify(history: &[Operation]) -> Result<(), String> {
    let versions = versions(history)?;
    let mut objects: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in history {
        objects.entry(&operation.key).or_default().push(operation);
    }
    for (key, mut operations) in objects {
        operations.sort_by_key(|operation| operation.began);
        let mut search = Search::new(operations, &versions);
        search.run().map_err(|wrong| format!("{key}: {wrong}"))?;
    }
    Ok(())
}

/// The version of every value. A value has one version, and no version is given twice.
fn versions(history: &[Operation]) -> Result<HashMap<u64, u64>, String> {
    let (mut versions, mut values) = (HashMap::new(), HashMap::new());
    for operation in history {
        let value = match (operation.what, operation.outcome) {
            (What::Read(Some(value)), _) => value,
            (What::Create(to) | What::Update { to, .. }, Outcome::Done) => to,
            _ => continue,
        };
        let Some(version) = operation.version else { continue };
        let before = (versions.insert(value, version), values.insert(version, value));
        if before.0.is_some_and(|known| known != version)
            || before.1.is_some_and(|known| known != value)
        {
            return Err(format!("{operation:?} shows a version that is another's, or another"));
        }
    }
    Ok(versions)
}

/// What the object is like, and the newest version that was given to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    value: Option<u64>,
    version: u64,
}

struct Search<'a> {
    /// By the time they began.
    operations: Vec<&'a Operation>,
    versions: &'a HashMap<u64, u64>,
    placed: Vec<u64>,
    /// How many of those with a known outcome have no place yet.
    left: usize,
    /// The furthest that the search came: how many were left, and what stood in the way.
    furthest: (usize, String),
}

/// A way to go on: an operation, and the state behind it.
struct Step {
    operation: usize,
    state: State,
}

/// Far more than a good history needs. A bad one that takes longer passes as a good one,
/// and counts as bad.
const STEPS_MAX: usize = 3_000_000;

impl<'a> Search<'a> {
    fn new(operations: Vec<&'a Operation>, versions: &'a HashMap<u64, u64>) -> Self {
        let left = operations.iter().filter(|one| one.outcome != Outcome::Unknown).count();
        let placed = vec![0; operations.len().div_ceil(64)];
        Self { operations, versions, placed, left, furthest: (usize::MAX, String::new()) }
    }

    fn run(&mut self) -> Result<(), String> {
        let mut state = State { value: None, version: 0 };
        let mut tried: HashSet<(Vec<u64>, State)> = HashSet::new();
        // Per place the ways that are left to try, and what was placed to get here.
        let mut path: Vec<(Vec<Step>, Option<usize>)> = vec![(self.steps(state), None)];
        for _ in 0..STEPS_MAX {
            if self.left == 0 {
                return Ok(());
            }
            let Some((steps, placed)) = path.last_mut() else {
                return Err(format!("no order explains this: {}", self.furthest.1));
            };
            if let Some(step) = steps.pop() {
                self.place(step.operation);
                if tried.insert((self.placed.clone(), step.state)) {
                    state = step.state;
                    path.push((self.steps(state), Some(step.operation)));
                } else {
                    self.take_back(step.operation);
                }
            } else {
                let placed = *placed;
                path.pop();
                if let Some(operation) = placed {
                    self.take_back(operation);
                }
            }
        }
        Err(format!("undecided after {STEPS_MAX} steps; so far: {}", self.furthest.1))
    }

    /// The ways to go on from a state, the most promising last.
    fn steps(&mut self, state: State) -> Vec<Step> {
        let candidates = self.candidates();
        // What changes nothing and fits can go first without harm to any other order.
        for &operation in &candidates {
            let one = self.operations[operation];
            if one.outcome != Outcome::Unknown && self.after(one, state) == Some(state) {
                return vec![Step { operation, state }];
            }
        }
        let ends_first = candidates.iter().map(|n| self.operations[*n].ended).min();
        let (mut doubtful, mut known) = (Vec::new(), Vec::new());
        for &operation in &candidates {
            let one = self.operations[operation];
            let unknown = one.outcome == Outcome::Unknown;
            if unknown && Some(one.ended) == ends_first && one.ended < NEVER {
                // Its time is up: it did not happen.
                doubtful.insert(0, Step { operation, state });
            }
            if let Some(state) = self.after(one, state) {
                if unknown { &mut doubtful } else { &mut known }.push(Step { operation, state });
            }
        }
        if self.left < self.furthest.0 && doubtful.is_empty() && known.is_empty() {
            let waiting: Vec<_> = candidates.iter().map(|n| self.operations[*n]).collect();
            self.furthest = (self.left, format!("at {state:?} none of these fits: {waiting:#?}"));
        }
        known.sort_by_key(|step| std::cmp::Reverse(self.operations[step.operation].ended));
        doubtful.extend(known);
        doubtful
    }

    /// The operations that may come next: those that began before any other one had ended.
    fn candidates(&self) -> Vec<usize> {
        let (mut candidates, mut ends_first) = (Vec::new(), NEVER);
        // Of a long history most have a place.
        let first = 64 * self.placed.iter().take_while(|word| **word == u64::MAX).count();
        for (n, operation) in self.operations.iter().enumerate().skip(first) {
            if operation.began > ends_first {
                break;
            }
            if self.placed[n / 64] & (1 << (n % 64)) == 0 {
                candidates.push(n);
                ends_first = ends_first.min(operation.ended);
            }
        }
        candidates.retain(|n| self.operations[*n].began <= ends_first);
        candidates
    }

    /// The state behind an operation, if it can happen in this one with the outcome that it had.
    fn after(&self, operation: &Operation, state: State) -> Option<State> {
        let is = |from: Option<u64>| from.is_none() || from == state.value;
        let fits = match (operation.what, operation.outcome) {
            (What::Read(value), _) => return (value == state.value).then_some(state),
            (What::Create(_), Outcome::Done | Outcome::Unknown) => state.value.is_none(),
            (
                What::Update { from, .. } | What::Delete { from },
                Outcome::Done | Outcome::Unknown,
            ) => state.value.is_some() && is(from),
            (What::Create(_), Outcome::Exists) => return state.value.map(|_| state),
            (What::Update { .. } | What::Delete { .. }, Outcome::Missing) => {
                return state.value.is_none().then_some(state);
            }
            (What::Update { from, .. } | What::Delete { from }, Outcome::Conflict) => {
                return (state.value.is_some() && !is(from)).then_some(state);
            }
            (What::Create(_), Outcome::Missing | Outcome::Conflict)
            | (What::Update { .. } | What::Delete { .. }, Outcome::Exists) => return None,
        };
        if !fits {
            return None;
        }
        let to = match operation.what {
            What::Create(to) | What::Update { to, .. } => to,
            What::Read(_) | What::Delete { .. } => return Some(State { value: None, ..state }),
        };
        match self.versions.get(&to) {
            // Versions only ever grow.
            Some(version) if *version <= state.version => None,
            Some(version) => Some(State { value: Some(to), version: *version }),
            None => Some(State { value: Some(to), ..state }),
        }
    }

    fn place(&mut self, n: usize) {
        self.placed[n / 64] |= 1 << (n % 64);
        self.left -= usize::from(self.operations[n].outcome != Outcome::Unknown);
    }

    fn take_back(&mut self, n: usize) {
        self.placed[n / 64] &= !(1 << (n % 64));
        self.left += usize::from(self.operations[n].outcome != Outcome::Unknown);
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome::{Conflict, Done, Exists, Missing, Unknown};
    use super::What::{Create, Delete, Read, Update};
    use super::*;

    type Line = (u64, u64, What, Outcome);

    const MADE: Line = (0, 1, Create(1), Done);
    const fn swap(from: u64, to: u64) -> What {
        Update { from: Some(from), to }
    }

    fn history(lines: &[Line]) -> Vec<Operation> {
        let of = |(began, ended, what, outcome): &Line| Operation {
            key: "k".to_owned(),
            began: *began,
            ended: *ended,
            what: *what,
            outcome: *outcome,
            // Written in this order, unless a case says otherwise.
            version: match what {
                Read(value) => *value,
                Create(to) | Update { to, .. } if *outcome == Done => Some(*to),
                _ => None,
            },
        };
        lines.iter().map(of).collect()
    }

    #[test]
    fn good_and_bad_histories_are_distinguished() {
        #[rustfmt::skip]
        let cases: &[(&str, &[Line], bool)] = &[
            ("nothing there", &[(0, 1, Read(None), Done)], true),
            ("one after the other", &[MADE, (2, 3, Read(Some(1)), Done)], true),
            ("a write that is lost", &[MADE, (2, 3, Read(None), Done)], false),
            ("a read during a write sees the old or the new",
                &[MADE, (2, 9, swap(1, 2), Done), (3, 4, Read(Some(1)), Done), (5, 6, Read(Some(2)), Done)], true),
            ("but not first the new and then the old",
                &[MADE, (2, 9, swap(1, 2), Done), (3, 4, Read(Some(2)), Done), (5, 6, Read(Some(1)), Done)], false),
            ("a stale read", &[MADE, (2, 3, swap(1, 2), Done), (4, 5, Read(Some(1)), Done)], false),
            ("a read from the future", &[(0, 1, Read(Some(1)), Done), (2, 3, Create(1), Done)], false),
            ("a value that was not written", &[MADE, (2, 3, Read(Some(7)), Done)], false),
            ("two updates of the same state", &[MADE, (2, 5, swap(1, 2), Done), (3, 6, swap(1, 3), Done)], false),
            ("a conflict with a reason", &[MADE, (2, 5, swap(1, 2), Done), (3, 6, swap(1, 3), Conflict)], true),
            ("a conflict without one", &[MADE, (2, 3, swap(1, 2), Conflict)], false),
            ("a conflict with what came only later", &[MADE, (2, 3, swap(1, 2), Conflict), (4, 5, swap(1, 3), Done)], false),
            ("two creations", &[MADE, (0, 1, Create(2), Done)], false),
            ("the second is refused", &[MADE, (0, 1, Create(2), Exists)], true),
            ("refused, but there is none", &[(0, 1, Create(2), Exists), (0, 1, Read(None), Done)], false),
            ("made again", &[MADE, (2, 3, Delete { from: None }, Done), (4, 5, Create(2), Done)], true),
            ("made again while it was there", &[MADE, (2, 3, Create(2), Done), (4, 5, Delete { from: None }, Done)], false),
            ("deleted twice", &[MADE, (2, 5, Delete { from: None }, Done), (3, 6, Delete { from: None }, Done)], false),
            ("deleted by one of two", &[MADE, (2, 5, Delete { from: None }, Done), (3, 6, Delete { from: None }, Missing)], true),
            ("back from the dead", &[MADE, (2, 3, Delete { from: Some(1) }, Done), (4, 5, Read(Some(1)), Done)], false),
            ("an update of what is not there", &[(0, 1, Update { from: None, to: 2 }, Done)], false),
            ("that is refused", &[(0, 1, Update { from: None, to: 2 }, Missing)], true),
            ("an unknown write that was not seen", &[MADE, (2, NEVER, swap(1, 2), Unknown), (3, 4, Read(Some(1)), Done)], true),
            ("one that was seen", &[MADE, (2, NEVER, swap(1, 2), Unknown), (3, 4, Read(Some(2)), Done)], true),
            ("one that happened late",
                &[MADE, (2, NEVER, swap(1, 2), Unknown), (3, 4, Read(Some(1)), Done), (5, 6, Read(Some(2)), Done)], true),
            ("one that came and went",
                &[MADE, (2, NEVER, swap(1, 2), Unknown), (3, 4, Read(Some(2)), Done), (5, 6, Read(Some(1)), Done)], false),
            ("one that was seen before it was asked for",
                &[MADE, (2, 3, Read(Some(2)), Done), (4, NEVER, swap(1, 2), Unknown)], false),
            ("one that cannot happen any more, and does",
                &[MADE, (2, 4, swap(1, 2), Unknown), (5, 6, Read(Some(1)), Done), (7, 8, Read(Some(2)), Done)], false),
            ("one that could have, and did not", &[MADE, (2, 4, swap(1, 2), Unknown), (5, 6, Read(Some(1)), Done)], true),
            ("an unknown deletion explains what is missing",
                &[MADE, (2, 4, Delete { from: None }, Unknown), (5, 6, Read(None), Done)], true),
            ("but only once",
                &[MADE, (2, 4, Delete { from: None }, Unknown), (5, 6, Read(None), Done), (7, 8, Create(2), Done), (9, 10, Read(None), Done)], false),
            ("many at once, in an order that has to be found",
                &[MADE, (2, 20, swap(1, 4), Done), (2, 20, swap(6, 7), Done), (2, 20, swap(4, 5), Done), (2, 20, swap(5, 6), Done)], true),
            ("many at once, one too many",
                &[MADE, (2, 20, swap(1, 4), Done), (2, 20, swap(6, 7), Done), (2, 20, swap(4, 5), Done), (2, 20, swap(5, 6), Done), (2, 20, swap(5, 8), Done)], false),
        ];
        for (name, lines, good) in cases {
            let verified = verify(&history(lines));
            assert_eq!(verified.is_ok(), *good, "{name}: {verified:?}");
        }
    }

    #[test]
    fn versions_belong_to_one_value_and_grow() {
        let version = |n: usize, version: u64| {
            let lines = [MADE, (2, 3, swap(1, 2), Done), (4, 5, Read(Some(2)), Done)];
            let mut history = history(&lines);
            history[n].version = Some(version);
            verify(&history).is_ok()
        };
        assert!(version(2, 2));
        assert!(!version(2, 3), "read at another version than written");
        assert!(!version(1, 1), "the version of another value");
        assert!(!version(0, 9), "a later version for the earlier write");
    }

    /// A good history of many clients stays good, and is found bad when one answer is exchanged.
    #[test]
    fn long_histories_are_decided() {
        let mut lines = vec![MADE];
        let mut now = 1;
        for n in 1..1000 {
            // Five at the same time: one wins, three hear that, one never hears anything.
            let (began, ended) = (now + 1, now + 5);
            lines.push((began, ended, swap(n, n + 1), Done));
            lines.extend((0..3).map(|at| (began + at % 2, ended, swap(n, 10_000 + n), Conflict)));
            lines.push((began, NEVER, swap(n, 20_000 + n), Unknown));
            now = ended;
        }
        lines.push((now + 1, now + 2, Read(Some(1000)), Done));
        assert_eq!(verify(&history(&lines)), Ok(()));
        let middle = lines.len() / 2;
        let lost = lines[middle..].iter().position(|line| line.3 == Done).expect("there is one");
        lines.remove(middle + lost);
        assert!(verify(&history(&lines)).is_err());
    }
}
