//! Metrics in the shape that v1's annotations have: flat, with the measure in the name of the field.

use meta::Value;

use super::{listed, ordered, text_of};

/// What is wished for, or what is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Spec,
    Status,
}

impl Place {
    /// The member of a metric of v2 that has the numbers.
    fn member(self) -> &'static str {
        match self {
            Self::Spec => "target",
            Self::Status => "current",
        }
    }
}

const KINDS: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];

pub(super) fn write_metrics(metrics: &[Value], place: Place) -> String {
    listed(metrics.iter().map(|metric| {
        let mut fields = vec![("type", text_of(metric.get("type")))];
        for kind in KINDS {
            let source = metric.get(kind).filter(|source| !source.is_null());
            fields.push((kind, source.map(|source| write_source(kind, source, place))));
        }
        ordered(&fields)
    }))
}

fn write_source(kind: &str, source: &Value, place: Place) -> String {
    let of = |name: &str| text_of(source.at(&[place.member(), name]));
    let or_zero = |text: Option<String>| text.or_else(|| Some("\"0\"".to_owned()));
    let name = text_of(source.at(&["metric", "name"]));
    let selector = source.at(&["metric", "selector"]).filter(|own| !own.is_null()).map(selector);
    let is_spec = place == Place::Spec;
    match kind {
        "object" => ordered(&[
            ("target", source.get("describedObject").map(reference)),
            ("metricName", name),
            (if is_spec { "targetValue" } else { "currentValue" }, or_zero(of("value"))),
            ("selector", selector),
            ("averageValue", of("averageValue")),
        ]),
        "pods" => ordered(&[
            ("metricName", name),
            (average_value(place), or_zero(of("averageValue"))),
            ("selector", selector),
        ]),
        "external" => ordered(&[
            ("metricName", name),
            ("metricSelector", selector),
            if is_spec {
                ("targetValue", of("value"))
            } else {
                ("currentValue", or_zero(of("value")))
            },
            (average_value(place), of("averageValue")),
        ]),
        _ => {
            let value = of("averageValue");
            let value = if is_spec { value } else { or_zero(value) };
            ordered(&[
                ("name", text_of(source.get("name"))),
                (average_utilization(place), of("averageUtilization")),
                (average_value(place), value),
                ("container", text_of(source.get("container"))),
            ])
        }
    }
}

fn average_value(place: Place) -> &'static str {
    if place == Place::Spec { "targetAverageValue" } else { "currentAverageValue" }
}

fn average_utilization(place: Place) -> &'static str {
    if place == Place::Spec { "targetAverageUtilization" } else { "currentAverageUtilization" }
}

fn reference(object: &Value) -> String {
    let text = |name: &str| text_of(object.get(name));
    ordered(&[("kind", text("kind")), ("name", text("name")), ("apiVersion", text("apiVersion"))])
}

fn selector(selector: &Value) -> String {
    let text = |name: &str| text_of(selector.get(name));
    ordered(&[("matchLabels", text("matchLabels")), ("matchExpressions", text("matchExpressions"))])
}

/// None: it is not a list.
pub(super) fn read_metrics(metrics: &Value, place: Place) -> Option<Vec<Value>> {
    let metrics = metrics.as_array()?;
    let metrics = meta::cancel::interruptible(metrics.iter());
    Some(metrics.map(|metric| read_metric(metric, place)).collect())
}

fn read_metric(metric: &Value, place: Place) -> Value {
    let mut read = Value::object();
    read.set_at(&["type"], metric.str_at(&["type"]));
    for kind in KINDS {
        if let Some(source) = metric.get(kind).filter(|source| !source.is_null()) {
            read.set_at(&[kind], read_source(kind, source, place));
        }
    }
    read
}

fn read_source(kind: &str, source: &Value, place: Place) -> Value {
    let given = |name: &str| source.get(name).filter(|value| !value.is_null()).cloned();
    let or_zero = |value: Option<Value>| value.or_else(|| Some(Value::from("0")));
    let is_spec = place == Place::Spec;
    let value = given(if is_spec { "targetValue" } else { "currentValue" });
    let average = given(average_value(place));
    let mut read = Value::object();
    let mut set = |path: &[&str], value: Option<Value>| {
        if let Some(value) = value {
            read.set_at(path, value);
        }
    };
    let member = place.member();
    // The type of a target follows from which of its numbers is there.
    let kind_of_target;
    match kind {
        "object" => {
            let average = given("averageValue");
            let is_zero = value.as_ref().and_then(Value::as_str).is_none_or(|text| text == "0");
            let value = if average.is_none() || !is_spec {
                or_zero(value)
            } else {
                value.filter(|_| !is_zero)
            };
            kind_of_target = if average.is_some() { "AverageValue" } else { "Value" };
            set(&["describedObject"], given("target"));
            set(&["metric", "name"], given("metricName"));
            set(&["metric", "selector"], given("selector"));
            set(&[member, "value"], value);
            set(&[member, "averageValue"], average);
        }
        "pods" => {
            kind_of_target = "AverageValue";
            set(&["metric", "name"], given("metricName"));
            set(&["metric", "selector"], given("selector"));
            set(&[member, "averageValue"], or_zero(average));
        }
        "external" => {
            kind_of_target = if value.is_some() { "Value" } else { "AverageValue" };
            set(&["metric", "name"], given("metricName"));
            set(&["metric", "selector"], given("metricSelector"));
            set(&[member, "value"], if is_spec { value } else { or_zero(value) });
            set(&[member, "averageValue"], average);
        }
        _ => {
            let used = given(average_utilization(place));
            kind_of_target = if used.is_some() { "Utilization" } else { "AverageValue" };
            set(&["name"], given("name"));
            set(&["container"], given("container"));
            set(&[member, "averageUtilization"], used);
            set(&[member, "averageValue"], if is_spec { average } else { or_zero(average) });
        }
    }
    if is_spec {
        set(&[member, "type"], Some(kind_of_target.into()));
    }
    read
}
