//! Defaulting: whether a field counts as unset depends on whether it is a pointer in Go.

use meta::{Map, Value, quantity::Quantity};

pub(crate) trait SetDefault {
    /// For a pointer: only null and absent count as unset.
    fn set_default(&mut self, key: &str, default: impl Into<Value>);

    /// For a plain string, number, list or map: its zero value counts as unset, too.
    fn set_default_if_empty(&mut self, key: &str, default: impl Into<Value>);

    /// The object that a pointer points to, if it does.
    fn given(&mut self, key: &str) -> Option<&mut Map>;

    /// A struct, which is created if the client did not send it.
    fn part(&mut self, key: &str) -> &mut Map;

    /// The structs in a list.
    fn each(&mut self, key: &str) -> impl Iterator<Item = &mut Map>;
}

impl SetDefault for Map {
    fn set_default(&mut self, key: &str, default: impl Into<Value>) {
        if self.get(key).is_none_or(Value::is_null) {
            self.insert(key, default);
        }
    }

    fn set_default_if_empty(&mut self, key: &str, default: impl Into<Value>) {
        if self.get(key).is_none_or(is_empty) {
            self.insert(key, default);
        }
    }

    fn given(&mut self, key: &str) -> Option<&mut Map> {
        self.get_mut(key)?.as_object_mut()
    }

    fn part(&mut self, key: &str) -> &mut Map {
        self.entry(key).object_at_mut(&[])
    }

    fn each(&mut self, key: &str) -> impl Iterator<Item = &mut Map> {
        let items = self.get_mut(key).and_then(Value::as_array_mut);
        items.into_iter().flatten().map(|item| item.object_at_mut(&[]))
    }
}

/// Whether a Go field without a pointer reads as its zero value.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) | Value::Number(meta::Number::Float(_)) | Value::Raw(_) => false,
        Value::Number(meta::Number::Int(number)) => *number == 0,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Rounds the quantities of each of these resource lists up to thousandths: nothing finer is counted.
pub(crate) fn round_resources(owner: &mut Map, lists: &[&str]) {
    for list in lists {
        let Some(list) = owner.given(list) else { continue };
        for (_, amount) in list.iter_mut() {
            // Most amounts are whole, or thousandths; they need not be read.
            let Some(text) = amount.as_str().filter(|text| text.contains(FINE)) else { continue };
            let Ok(mut quantity) = Quantity::parse(text) else { continue };
            quantity.round_up(-3);
            *amount = quantity.to_string().into();
        }
    }
}

/// What the text of an amount has if it may be finer than thousandths.
const FINE: [char; 5] = ['.', 'n', 'u', 'e', 'E'];

/// What a resource list lacks, it gets from another one.
pub(crate) fn fill_resources(owner: &mut Map, list: &str, from: &str) {
    let Some(from) = owner.get(from).and_then(Value::as_object) else { return };
    if from.is_empty() {
        return;
    }
    let from = from.clone();
    let list = owner.part(list);
    for (name, amount) in from {
        if !list.contains_key(&name) {
            list.insert(name, amount);
        }
    }
}

/// The port of a service that is called, wherever a `ServiceReference` is.
pub(crate) fn default_service_reference(client_config: &mut Map) {
    if let Some(service) = client_config.given("service") {
        service.set_default("port", 443i64);
    }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn a_zero_counts_as_left_out_unless_it_is_behind_a_pointer() {
        let mut object = value!({"a": 0i64, "b": 0i64, "c": null, "d": "", "e": [], "f": "x"});
        let map = object.as_object_mut().unwrap();
        map.set_default("a", 1i64);
        map.set_default_if_empty("b", 1i64);
        map.set_default("c", 1i64);
        map.set_default_if_empty("d", "d");
        map.set_default_if_empty("e", vec!["e"]);
        map.set_default_if_empty("f", "f");
        assert_eq!(
            object,
            value!({"a": 0i64, "b": 1i64, "c": 1i64, "d": "d", "e": ["e"], "f": "x"})
        );
    }

    #[test]
    fn amounts_are_rounded_up_to_thousandths() {
        let cases = [
            ("1", "1"),
            ("1500m", "1500m"),
            ("100u", "1m"),
            ("1n", "1m"),
            ("1100u", "2m"),
            ("2Gi", "2Gi"),
            ("1e3", "1e3"),
            ("nonsense", "nonsense"),
        ];
        for (given, expected) in cases {
            let mut object = value!({"limits": {"cpu": (given)}});
            round_resources(object.object_at_mut(&[]), &["limits", "requests"]);
            assert_eq!(object, value!({"limits": {"cpu": (expected)}}));
        }
    }
}
