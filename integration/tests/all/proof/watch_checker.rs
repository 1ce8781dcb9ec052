//! Checks what the clients that watch and list have seen.
//!
//! Together they have seen the history: every change has a resourceVersion, under which every client must
//! have seen the same change. Each guarantee of a watch or a list is a comparison with that history:
//!
//! | guarantee | check |
//! |---|---|
//! | ordered, unique | versions only grow within a watch, and a version is one change |
//! | atomic, reliable | a watch has every change of the history between its first and last version |
//! | resumable | a watch from version r has exactly what follows r |
//! | bookmarkable | what comes behind a bookmark is newer than it, and nothing before it is missing |
//! | filtered | a watch by label has what the label makes of the history |
//! | initial events | end with exactly the state at the version they name |
//! | lists | show exactly the state at their version |
//! | kind of event | added, modified and deleted fit what was there before; a uid belongs to one object |
//! | persistent | what was acknowledged is in the history, under the acknowledged version |

use std::collections::{BTreeMap, HashSet};

/// The parts of an object that the checker compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) version: u64,
    pub(super) value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A deletion shows the object as it was, under the version of the deletion.
    Change(Kind, Object),
    /// Everything up to this version has been delivered.
    Bookmark(u64),
    /// The bookmark behind the initial events.
    InitialEnd(u64),
}

/// One watch, from its first to its last event.
#[derive(Clone, Debug)]
pub(super) struct Session {
    /// The version that it was asked to start behind; none if it began with initial events.
    pub(super) from: Option<u64>,
    /// Which objects it wanted, by their value.
    pub(super) wants: fn(u64) -> bool,
    pub(super) events: Vec<Event>,
}

/// Everything that is known in the end.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// The state at the start, and its resourceVersion. Nothing earlier is checked.
    pub(super) start: (u64, Vec<Object>),
    pub(super) sessions: Vec<Session>,
    /// Complete lists and the versions they name.
    pub(super) lists: Vec<(u64, Vec<Object>)>,
    /// Acknowledged creations and updates.
    pub(super) written: Vec<Object>,
    /// Acknowledged deletions, by uid.
    pub(super) deleted: Vec<String>,
}

type State = BTreeMap<String, Object>;

/// How much was compared.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verified {
    /// Up to which resourceVersion there is no gap: a watcher has to relist when it missed too much.
    pub(super) end: u64,
    pub(super) changes: usize,
    pub(super) events: usize,
    pub(super) lists: usize,
}

/// For watches that want everything.
pub(super) fn everything(_value: u64) -> bool {
    true
}

/// What is wrong with what was seen, if anything.
pub(super) fn verify(record: &Record) -> Result<Verified, String> {
    let history = History::of(record)?;
    let (end, changes) = (history.end, history.changes.len());
    let mut verified = Verified { end, changes, ..Verified::default() };
    for session in &record.sessions {
        history
            .verify_session(session)
            .map_err(|wrong| format!("{wrong}\nin the watch from {:?}", session.from))?;
        verified.events += session.events.len();
    }
    verified.lists = history.verify_lists(record)?;
    history.verify_promises(record)?;
    Ok(verified)
}

/// The history of all events, joined from the watches that see everything.
struct History<'a> {
    start: u64,
    start_state: State,
    /// By version; `before` is what the object was until then.
    changes: BTreeMap<u64, Change<'a>>,
    /// The last resourceVersion of the history: later observations cannot be checked.
    end: u64,
}

struct Change<'a> {
    kind: Kind,
    object: &'a Object,
    before: Option<Object>,
}

impl<'a> History<'a> {
    fn of(record: &'a Record) -> Result<Self, String> {
        let mut seen: BTreeMap<u64, (Kind, &Object)> = BTreeMap::new();
        let complete = |session: &&Session| (session.wants)(0) && (session.wants)(1);
        for session in record.sessions.iter().filter(complete) {
            for (kind, object) in session.followed() {
                match seen.insert(object.version, (kind, object)) {
                    Some(other) if other != (kind, object) => {
                        return Err(format!(
                            "two changes under one version: {:?} and {other:?}",
                            (kind, object)
                        ));
                    }
                    _ => {}
                }
            }
        }
        // From one watch to the next that began before it ended.
        let mut end = record.start.0;
        let mut stretches: Vec<(u64, u64)> = record
            .sessions
            .iter()
            .filter(complete)
            .filter_map(|session| Some((session.from?, session.reached()?)))
            .collect();
        stretches.sort_unstable();
        for (from, to) in stretches {
            end = if from <= end { end.max(to) } else { end };
        }
        seen.retain(|version, _| *version <= end);

        let mut changes = BTreeMap::new();
        let start_state = by_name(&record.start.1);
        let mut state = start_state.clone();
        let mut uids: HashSet<&str> =
            record.start.1.iter().map(|object| object.uid.as_str()).collect();
        for (version, (kind, object)) in seen {
            if version <= record.start.0 {
                return Err(format!("{kind:?} {object:?} is older than where it began"));
            }
            let before = match kind {
                Kind::Deleted => state.remove(&object.name),
                _ => state.insert(object.name.clone(), object.clone()),
            };
            let fits = match (kind, &before) {
                (Kind::Added, before) => before.is_none() && uids.insert(&object.uid),
                (Kind::Modified, Some(before)) => {
                    before.uid == object.uid && before.value != object.value
                }
                (Kind::Deleted, Some(before)) => {
                    before.uid == object.uid && before.value == object.value
                }
                (_, None) => false,
            };
            if !fits {
                return Err(format!("{kind:?} {object:?} does not fit what was there: {before:?}"));
            }
            changes.insert(version, Change { kind, object, before });
        }
        Ok(Self { start: record.start.0, start_state, changes, end })
    }

    /// The event of a change in a watch with a selector.
    fn delivered(change: &Change<'_>, wants: fn(u64) -> bool) -> Option<(Kind, Object)> {
        let wanted = |object: Option<&Object>| object.is_some_and(|object| wants(object.value));
        let now = (change.kind != Kind::Deleted).then_some(change.object);
        match (wanted(change.before.as_ref()), wanted(now)) {
            (false, false) => None,
            (false, true) => Some((Kind::Added, change.object.clone())),
            (true, true) => Some((Kind::Modified, change.object.clone())),
            // Gone, or out of sight: shown as it was, under the version of the change.
            (true, false) => {
                let before = change.before.clone()?;
                Some((Kind::Deleted, Object { version: change.object.version, ..before }))
            }
        }
    }

    fn verify_session(&self, session: &Session) -> Result<(), String> {
        let mut at = session.from.unwrap_or_default();
        if session.from.is_none() {
            at = self.verify_initial_events(session)?;
        }
        let from = at;
        let mut delivered = Vec::new();
        for event in session.later_events() {
            match event {
                Event::Change(kind, object) => {
                    if object.version <= at {
                        return Err(format!("{kind:?} {object:?} came after version {at}"));
                    }
                    at = object.version;
                    delivered.push((*kind, object.clone()));
                }
                Event::Bookmark(version) | Event::InitialEnd(version) => {
                    if *version < at {
                        return Err(format!("a bookmark of {version} came after version {at}"));
                    }
                    at = *version;
                }
            }
        }
        // A watch by label may know of a later version than the watches of everything.
        let to = at.min(self.end);
        delivered.retain(|(_, object)| object.version <= to);
        let behind = self.changes.range(from.max(self.start) + 1..);
        let expected: Vec<(Kind, Object)> = behind
            .take_while(|(version, _)| **version <= to)
            .filter_map(|(_, change)| Self::delivered(change, session.wants))
            .collect();
        if delivered != expected {
            let longest = delivered.len().max(expected.len());
            let differs = (0..longest).find(|n| delivered.get(*n) != expected.get(*n));
            let differs = differs.unwrap_or_default();
            return Err(format!(
                "event {differs} of those behind {from} up to {to} is {:?}, and should be {:?}",
                delivered.get(differs),
                expected.get(differs)
            ));
        }
        Ok(())
    }

    /// The initial events are exactly the state at the version that their end names.
    fn verify_initial_events(&self, session: &Session) -> Result<u64, String> {
        let Some((initial, version)) = session.initial_events() else {
            // It broke off before they had all come: nothing was promised.
            return Ok(self.end);
        };
        let mut objects = Vec::new();
        for event in initial {
            match event {
                Event::Change(Kind::Added, object) => objects.push(object.clone()),
                other => return Err(format!("{other:?} among the initial events")),
            }
        }
        if version <= self.end {
            self.verify_state(version, &objects, session.wants)?;
        }
        Ok(version)
    }

    fn verify_lists(&self, record: &Record) -> Result<usize, String> {
        let known = |(version, _): &&(u64, Vec<Object>)| (self.start..=self.end).contains(version);
        let lists: Vec<_> = record.lists.iter().filter(known).collect();
        for (version, objects) in &lists {
            self.verify_state(*version, objects, everything)
                .map_err(|wrong| format!("{wrong}\nin a list"))?;
        }
        Ok(lists.len())
    }

    /// Compares an observation with the state at a resourceVersion.
    fn verify_state(
        &self,
        version: u64,
        objects: &[Object],
        wants: fn(u64) -> bool,
    ) -> Result<(), String> {
        let seen = by_name(objects);
        if seen.len() != objects.len() {
            return Err(format!("an object is there twice at {version}"));
        }
        // The last change of an object up to the version decides, or how it was at the start.
        let mut expected: BTreeMap<&str, Option<&Object>> =
            self.start_state.iter().map(|(name, object)| (name.as_str(), Some(object))).collect();
        for change in self.changes.range(..=version).map(|(_, change)| change) {
            let now = (change.kind != Kind::Deleted).then_some(change.object);
            expected.insert(&change.object.name, now);
        }
        let expected: BTreeMap<&str, &Object> = expected
            .into_iter()
            .filter_map(|(name, object)| Some((name, object?)))
            .filter(|(_, object)| wants(object.value))
            .collect();
        for name in seen.keys().map(String::as_str).chain(expected.keys().copied()) {
            let (is, should) = (seen.get(name), expected.get(name).copied());
            if is != should {
                return Err(format!("at {version} {name} is {is:?}, and should be {should:?}"));
            }
        }
        Ok(())
    }

    fn verify_promises(&self, record: &Record) -> Result<(), String> {
        for written in &record.written {
            let there = self.changes.get(&written.version).map(|change| change.object);
            if written.version <= self.end && there != Some(written) {
                return Err(format!("{written:?} was acknowledged; there is {there:?}"));
            }
        }
        if record.written.iter().any(|written| written.version > self.end) {
            // A deletion has no version of its own that would tell whether it should be known.
            return Ok(());
        }
        let gone: HashSet<&str> = self
            .changes
            .values()
            .filter(|change| change.kind == Kind::Deleted)
            .map(|change| change.object.uid.as_str())
            .collect();
        match record.deleted.iter().find(|uid| !gone.contains(uid.as_str())) {
            Some(uid) => Err(format!("the deletion of {uid} was acknowledged, and not delivered")),
            None => Ok(()),
        }
    }
}

impl Session {
    /// The last version that this watch has reached.
    pub(super) fn reached(&self) -> Option<u64> {
        if self.from.is_none() && self.initial_events().is_none() {
            return None;
        }
        let version = |event: &Event| match event {
            Event::Change(_, object) => object.version,
            Event::Bookmark(version) | Event::InitialEnd(version) => *version,
        };
        self.events.last().map(version).or(self.from)
    }

    /// The initial events and the version that their end names.
    fn initial_events(&self) -> Option<(&[Event], u64)> {
        let end = self.events.iter().position(|event| matches!(event, Event::InitialEnd(_)))?;
        match self.events[end] {
            Event::InitialEnd(version) => Some((&self.events[..end], version)),
            _ => None,
        }
    }

    fn later_events(&self) -> &[Event] {
        match (self.from, self.initial_events()) {
            (Some(_), _) => &self.events,
            (None, Some((initial, _))) => &self.events[initial.len() + 1..],
            (None, None) => &[],
        }
    }

    /// The changes behind where it began.
    fn followed(&self) -> impl Iterator<Item = (Kind, &Object)> {
        self.later_events().iter().filter_map(|event| match event {
            Event::Change(kind, object) => Some((*kind, object)),
            _ => None,
        })
    }
}

fn by_name(objects: &[Object]) -> State {
    objects.iter().map(|object| (object.name.clone(), object.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, version: u64, value: u64) -> Object {
        Object { name: name.to_owned(), uid: format!("uid-{name}"), version, value }
    }

    fn added(name: &str, version: u64, value: u64) -> Event {
        Event::Change(Kind::Added, object(name, version, value))
    }

    fn modified(name: &str, version: u64, value: u64) -> Event {
        Event::Change(Kind::Modified, object(name, version, value))
    }

    fn deleted(name: &str, version: u64, value: u64) -> Event {
        Event::Change(Kind::Deleted, object(name, version, value))
    }

    fn even(value: u64) -> bool {
        value.is_multiple_of(2)
    }

    /// a is made, changed and deleted, b is made in between.
    fn all() -> Vec<Event> {
        vec![added("a", 11, 1), modified("a", 12, 2), added("b", 14, 3), deleted("a", 15, 2)]
    }

    fn record() -> Record {
        let session =
            |from: u64, events: Vec<Event>| Session { from: Some(from), wants: everything, events };
        Record {
            start: (10, vec![object("old", 5, 9)]),
            sessions: vec![
                session(10, all()),
                session(12, all()[2..].to_vec()),
                session(11, vec![all()[1].clone(), Event::Bookmark(13), all()[2].clone()]),
                Session {
                    from: Some(10),
                    wants: even,
                    events: vec![added("a", 12, 2), deleted("a", 15, 2)],
                },
                Session {
                    from: None,
                    wants: everything,
                    events: vec![
                        added("old", 5, 9),
                        added("a", 12, 2),
                        Event::InitialEnd(13),
                        all()[2].clone(),
                    ],
                },
            ],
            lists: vec![
                (10, vec![object("old", 5, 9)]),
                (13, vec![object("old", 5, 9), object("a", 12, 2)]),
                (15, vec![object("old", 5, 9), object("b", 14, 3)]),
            ],
            written: vec![object("a", 11, 1), object("a", 12, 2), object("b", 14, 3)],
            deleted: vec!["uid-a".to_owned()],
        }
    }

    #[test]
    fn what_fits_together_is_good() {
        let verified = verify(&record()).expect("is good");
        assert_eq!(verified, Verified { end: 15, changes: 4, events: 15, lists: 3 });
    }

    /// A watcher that had to relist is checked up to there, and the others as before.
    #[test]
    fn nothing_is_checked_after_a_gap() {
        let mut record = record();
        record.sessions.retain(|session| session.from.is_some_and(|from| from > 10));
        record.sessions[0].from = Some(13);
        let from_start = Session { from: Some(10), wants: everything, events: all()[..1].to_vec() };
        record.sessions = vec![from_start, record.sessions[0].clone()];
        let verified = verify(&record).expect("is good as far as it goes");
        assert_eq!((verified.end, verified.changes, verified.lists), (11, 1, 1));
        record.sessions[1].events.swap(0, 1);
        assert!(verify(&record).is_err(), "versions still only grow");
    }

    #[test]
    fn every_broken_promise_is_found() {
        type Break = fn(&mut Record);
        let cases: &[(&str, Break, &str)] = &[
            (
                "a lost event",
                |r| drop(r.sessions[1].events.remove(0)),
                "event 0 of those behind 12",
            ),
            (
                "a lost event in the middle",
                |r| drop(r.sessions[0].events.remove(1)),
                "should be Some((Modified",
            ),
            (
                "lost by all watches",
                |r| {
                    r.sessions[0].events.remove(1);
                    r.sessions[2].events.remove(0);
                    r.sessions.truncate(3);
                    r.lists.clear();
                    r.written.clear();
                },
                "does not fit what was there",
            ),
            (
                "an event twice",
                |r| r.sessions[0].events.insert(1, added("a", 11, 1)),
                "came after version 11",
            ),
            ("out of order", |r| r.sessions[0].events.swap(1, 2), "came after version 14"),
            (
                "before its start",
                |r| r.sessions[1].events.insert(0, modified("a", 12, 2)),
                "came after version 12",
            ),
            (
                "another content",
                |r| r.sessions[1].events[0] = added("b", 14, 4),
                "two changes under one version",
            ),
            (
                "another kind",
                |r| r.sessions[1].events[0] = modified("b", 14, 3),
                "two changes under one version",
            ),
            (
                "a late bookmark",
                |r| r.sessions[2].events[1] = Event::Bookmark(14),
                "came after version 14",
            ),
            (
                "an early bookmark",
                |r| r.sessions[2].events[1] = Event::Bookmark(11),
                "a bookmark of 11",
            ),
            (
                "a bookmark that skips",
                |r| r.sessions[2].events.push(Event::Bookmark(15)),
                "should be Some((Deleted",
            ),
            (
                "what was not wanted",
                |r| r.sessions[3].events.insert(0, added("a", 11, 1)),
                "event 0",
            ),
            (
                "a move out of sight that is not delivered",
                |r| r.sessions[3].events.insert(1, modified("a", 13, 4)),
                "event 1",
            ),
            (
                "an initial event missing",
                |r| drop(r.sessions[4].events.remove(1)),
                "at 13 a is None",
            ),
            (
                "an initial event too new",
                |r| r.sessions[4].events.insert(2, added("b", 14, 3)),
                "at 13 b is Some",
            ),
            (
                "an initial event twice",
                |r| r.sessions[4].events.insert(1, added("a", 12, 2)),
                "is there twice",
            ),
            (
                "the end named too late",
                |r| r.sessions[4].events[2] = Event::InitialEnd(14),
                "at 14 b is None",
            ),
            ("a list without an object", |r| drop(r.lists[2].1.pop()), "in a list"),
            ("a list without what was always there", |r| drop(r.lists[2].1.remove(0)), "in a list"),
            ("a list with what never was", |r| r.lists[2].1.push(object("c", 12, 4)), "in a list"),
            ("a list from the past", |r| r.lists[2].1 = r.lists[1].1.clone(), "in a list"),
            (
                "an acknowledged write is lost",
                |r| r.written.push(object("c", 13, 7)),
                "was acknowledged",
            ),
            ("under another version", |r| r.written[0].version = 13, "was acknowledged"),
            ("a lost deletion", |r| r.deleted.push("uid-b".to_owned()), "not delivered"),
            (
                "a uid for two objects",
                |r| {
                    let again = Object { uid: "uid-a".to_owned(), ..object("c", 16, 8) };
                    r.sessions[0].events.push(Event::Change(Kind::Added, again));
                },
                "does not fit",
            ),
            (
                "another object of the name",
                |r| r.sessions[0].events.push(added("b", 16, 8)),
                "does not fit",
            ),
        ];
        for (name, break_it, wrong) in cases {
            let mut record = record();
            break_it(&mut record);
            let verified = verify(&record).expect_err(name);
            assert!(verified.contains(wrong), "{name}: {verified}");
        }
    }
}
