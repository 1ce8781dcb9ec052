//! `events.k8s.io/v1` shows the events that are stored as `v1`, under newer names.

use std::borrow::Cow;

use meta::Value;
use registry::Conversion;

pub(super) struct EventsV1;

/// events.k8s.io/v1, v1
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

impl Conversion for EventsV1 {
    fn to_stored(&self, object: Value) -> Value {
        rename(object, |(served, stored)| (served, stored))
    }

    fn to_served(&self, object: Value) -> Value {
        rename(object, |(served, stored)| (stored, served))
    }

    fn stored_path<'a>(&self, path: &'a str) -> Cow<'a, str> {
        let (first, rest) =
            path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        match (NAMES.iter().find(|(served, _)| *served == first), rest) {
            (Some((_, stored)), Some(rest)) => Cow::Owned(format!("{stored}.{rest}")),
            (Some((_, stored)), None) => Cow::Borrowed(stored),
            (None, _) => Cow::Borrowed(path),
        }
    }
}

fn rename(
    mut object: Value,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> Value {
    let Some(map) = object.as_object_mut() else { return object };
    for (from, to) in NAMES.map(direction) {
        if let Some(value) = map.remove(from) {
            map.insert(to, value);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn an_event_reads_the_same_in_both_versions() {
        let served = value!({"regarding": {"kind": "Pod"}, "note": "n", "deprecatedCount": 2i64, "type": "Normal"});
        let stored = value!({"involvedObject": {"kind": "Pod"}, "message": "n", "count": 2i64, "type": "Normal"});
        assert_eq!(EventsV1.to_stored(served.clone()), stored);
        assert_eq!(EventsV1.to_served(stored), served);
        assert_eq!(EventsV1.stored_path("regarding.kind"), "involvedObject.kind");
        assert_eq!(EventsV1.stored_path("reportingController"), "reportingComponent");
        assert_eq!(EventsV1.stored_path("type"), "type");
    }
}
