//! How cells of `kubectl get` are put into words: what several kinds show alike.
//!
//! Absent fields read as Go's zero values; `<none>`, `<unset>` and `<unknown>` differ, because
//! scripts look for them.

use meta::{Value, selector::LabelSelector, time::Time};
use registry::{Cell, Column};

pub(crate) const NONE: &str = "<none>";
pub(crate) const UNSET: &str = "<unset>";
pub(crate) const UNKNOWN: &str = "<unknown>";

/// A column of booleans.
pub(crate) const fn boolean(name: &'static str, cell: fn(&Value, Time) -> Cell) -> Column {
    Column::boolean(name, cell)
}

/// The text at a path, empty where there is none.
pub(crate) fn text(object: &Value, path: &[&str]) -> Cell {
    Cell::text(object.str_at(path))
}

/// The text at a path, or `otherwise` where the field is absent.
pub(crate) fn text_or(object: &Value, path: &[&str], otherwise: &str) -> Cell {
    Cell::text(object.at(path).and_then(Value::as_str).unwrap_or(otherwise))
}

/// The text at a path, or `otherwise` where it is absent or empty.
pub(crate) fn filled_or(object: &Value, path: &[&str], otherwise: &str) -> Cell {
    let text = object.str_at(path);
    Cell::text(if text.is_empty() { otherwise } else { text })
}

/// The number at a path, zero where there is none.
pub(crate) fn number(object: &Value, path: &[&str]) -> Cell {
    Cell::Integer(object.i64_at(path).unwrap_or_default())
}

/// How many items the list at a path has.
pub(crate) fn count(object: &Value, path: &[&str]) -> Cell {
    Cell::Integer(object.items_at(path).len() as i64)
}

/// How many keys the map at a path has.
pub(crate) fn keys(object: &Value, path: &[&str]) -> i64 {
    object.at(path).and_then(Value::as_object).map_or(0, |map| map.len() as i64)
}

/// The flag at a path.
pub(crate) fn flag(object: &Value, path: &[&str]) -> Cell {
    Cell::Bool(object.bool_at(path))
}

/// `2/3`
pub(crate) fn ratio(object: &Value, part: &[&str], whole: &[&str]) -> Cell {
    let number = |path| object.i64_at(path).unwrap_or_default();
    format!("{}/{}", number(part), number(whole)).into()
}

/// The quantity at a path, `0` where there is none.
pub(crate) fn quantity<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    let text = object.str_at(path);
    if text.is_empty() { "0" } else { text }
}

/// The texts of a list, with a comma between them.
pub(crate) fn joined(object: &Value, path: &[&str]) -> String {
    let items: Vec<&str> = object.items_at(path).iter().filter_map(Value::as_str).collect();
    items.join(",")
}

/// `a=1,b=2`, or `<none>`. Sorted as pairs, not by key: `a-b=1` comes before `a=1`.
pub(crate) fn labels(object: &Value, path: &[&str]) -> Cell {
    let labels = object.at(path).and_then(Value::as_object);
    let labels = labels.into_iter().flat_map(meta::Map::iter);
    let mut pairs: Vec<String> = labels
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() {
        return NONE.into();
    }
    pairs.sort_unstable();
    pairs.join(",").into()
}

/// A label selector in its text form, or `<none>`.
pub(crate) fn selector(object: &Value, path: &[&str]) -> Cell {
    match LabelSelector::from_object(object.at(path)).map(|selector| selector.to_string()) {
        Ok(text) if text.is_empty() => NONE.into(),
        Ok(text) => text.into(),
        Err(_) => "<error>".into(),
    }
}

/// One field of every container: names or images.
pub(crate) fn of_containers(object: &Value, path: &[&str], field: &str) -> Cell {
    let containers = object.items_at(path).iter();
    let texts: Vec<&str> = containers.map(|container| container.str_at(&[field])).collect();
    texts.join(",").into()
}

/// The first few texts, and how many there are beyond them.
pub(crate) fn with_more(texts: &[String], shown_max: usize, separator: &str) -> String {
    let shown = texts[..texts.len().min(shown_max)].join(separator);
    match texts.len().saturating_sub(shown_max) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

/// How many addresses, ports or hosts are shown before the rest is only counted.
pub(crate) const SHOWN_MAX: usize = 3;

/// Where a load balancer can be reached: addresses first, names where there is none; each once, sorted.
pub(crate) fn load_balancer(object: &Value) -> String {
    let points = object.items_at(&["status", "loadBalancer", "ingress"]).iter();
    let mut places: Vec<&str> = points
        .map(|point| match point.str_at(&["ip"]) {
            "" => point.str_at(&["hostname"]),
            ip => ip,
        })
        .filter(|place| !place.is_empty())
        .collect();
    places.sort_unstable();
    places.dedup();
    places.join(",")
}

/// The first condition of a type under `status.conditions`.
pub(crate) fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = object.items_at(&["status", "conditions"]).iter();
    conditions.into_iter().find(|condition| condition.str_at(&["type"]) == name)
}

/// Whether the first condition of a type says `True`.
pub(crate) fn condition_is_true(object: &Value, name: &str) -> bool {
    condition(object, name).is_some_and(|condition| condition.str_at(&["status"]) == "True")
}

pub(crate) fn is_being_deleted(object: &Value) -> bool {
    !object.str_at(&["metadata", "deletionTimestamp"]).is_empty()
}

/// The name, marked where an annotation makes it the default of its kind.
pub(crate) fn name_or_default(object: &Value, annotations: &[&str]) -> Cell {
    let name = object.str_at(&["metadata", "name"]);
    let is_default = |key: &&str| object.str_at(&["metadata", "annotations", key]) == "true";
    if annotations.iter().any(is_default) {
        format!("{name} (default)").into()
    } else {
        name.into()
    }
}

/// `deployment.apps`: a kind or resource with its group, in lower case.
pub(crate) fn with_group(name: &str, group: &str) -> String {
    let full = if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") };
    full.to_lowercase()
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let texts: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let cases =
            [(0, ""), (1, "a"), (3, "a,b,c"), (4, "a,b,c + 1 more..."), (5, "a,b,c + 2 more...")];
        for (len, expected) in cases {
            assert_eq!(with_more(&texts[..len], SHOWN_MAX, ","), expected);
        }
    }

    #[test]
    fn labels_are_sorted_as_pairs() {
        let cases = [
            (value!({}), "<none>"),
            (value!({"l": {"a": "1", "a-b": "2", "c": ""}}), "a-b=2,a=1,c="),
        ];
        for (object, expected) in cases {
            assert_eq!(labels(&object, &["l"]), Cell::from(expected));
        }
    }

    #[test]
    fn selectors_that_select_nothing_or_everything_show_none() {
        let cases = [
            (value!({}), "<none>"),
            (value!({"s": {}}), "<none>"),
            (
                value!({"s": {"matchLabels": {"b": "1"}, "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["y", "x"]},
                    {"key": "c", "operator": "DoesNotExist"}]}}),
                "a in (x,y),b=1,!c",
            ),
            (value!({"s": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}), "<error>"),
        ];
        for (object, expected) in cases {
            assert_eq!(selector(&object, &["s"]), Cell::from(expected));
        }
    }
}
