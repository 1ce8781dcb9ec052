//! Events, in both shapes that they are served in: the core group's, and that of `events.k8s.io`, which
//! gave most fields a new name.

mod validation;

use meta::{FieldErrors, Value, time::Time};
use registry::{Cell, Column, Strategy, since};

use crate::printer_cells::text;

pub(crate) struct Event;

impl Strategy for Event {
    fn validate(&self, event: &Value, errors: &mut FieldErrors) {
        validation::validate(event, errors);
    }

    fn validate_update(&self, event: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(event, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::new("Last Seen", |event, now| since(last_seen(event), now)),
            Column::new("Type", |event, _| text(event, &["type"])),
            Column::new("Reason", |event, _| text(event, &["reason"])),
            Column::new("Object", |event, _| object(event).into()),
            Column::new("Subobject", |event, _| text(about(event), &["fieldPath"])).wide(),
            Column::new("Source", |event, _| source(event).into()).wide(),
            Column::new("Message", |event, _| message(event).into()),
            Column::new("First Seen", |event, now| since(first_seen(event), now)).wide(),
            Column::new("Count", count).wide(),
            Column::NAME.wide(),
        ]
    }
}

/// The text in the first of the fields that has any.
fn first<'a>(event: &'a Value, paths: &[&[&str]]) -> &'a str {
    let texts = paths.iter().map(|path| event.str_at(path));
    texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

fn first_seen(event: &Value) -> &str {
    first(event, &[&["firstTimestamp"], &["deprecatedFirstTimestamp"], &["eventTime"]])
}

fn last_seen(event: &Value) -> &str {
    if let Some(series) = series(event) {
        return series.str_at(&["lastObservedTime"]);
    }
    match first(event, &[&["lastTimestamp"], &["deprecatedLastTimestamp"]]) {
        "" => first_seen(event),
        last => last,
    }
}

/// An event of the new kind that happened once has no count.
fn count(event: &Value, _now: Time) -> Cell {
    if let Some(series) = series(event) {
        return Cell::Integer(series.i64_at(&["count"]).unwrap_or_default());
    }
    let count = event.i64_at(&["count"]).or_else(|| event.i64_at(&["deprecatedCount"]));
    Cell::Integer(count.filter(|count| *count != 0).unwrap_or(1))
}

fn series(event: &Value) -> Option<&Value> {
    event.get("series").filter(|series| !series.is_null())
}

/// What the event is about.
fn about(event: &Value) -> &Value {
    event.get("involvedObject").or_else(|| event.get("regarding")).unwrap_or(&Value::Null)
}

fn object(event: &Value) -> String {
    let kind = about(event).str_at(&["kind"]).to_lowercase();
    match about(event).str_at(&["name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source(event: &Value) -> String {
    let component = first(
        event,
        &[
            &["source", "component"],
            &["deprecatedSource", "component"],
            &["reportingComponent"],
            &["reportingController"],
        ],
    );
    let hosts: [&[&str]; 3] =
        [&["source", "host"], &["deprecatedSource", "host"], &["reportingInstance"]];
    match first(event, &hosts) {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    }
}

fn message(event: &Value) -> &str {
    first(event, &[&["message"], &["note"]]).trim()
}
