//! Values as Go prints them with `%v`, for error messages that quote them.

use meta::{Number, Value};

/// `map[a:1 b:[x y]]`; strings are bare.
pub fn show(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(Number::Int(value)) => value.to_string(),
        Value::Number(Number::Float(value)) => meta::json::show_float(*value),
        Value::String(text) => text.to_string(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" "))
        }
        Value::Object(map) => {
            let members = map.iter().map(|(key, value)| format!("{key}:{}", show(value)));
            format!("map[{}]", members.collect::<Vec<_>>().join(" "))
        }
    }
}

/// Go syntax, with `%#v`: `map[string]interface {}{"a":1}`.
pub(crate) fn show_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => meta::field::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(show_syntax).collect();
            format!("{}{{{}}}", type_name(value), items.join(", "))
        }
        Value::Object(map) => {
            let member = |(key, value): (&meta::Str, &Value)| {
                format!("{}:{}", meta::field::quote(key), show_syntax(value))
            };
            let members: Vec<String> = map.iter().map(member).collect();
            format!("{}{{{}}}", type_name(value), members.join(", "))
        }
        other => show(other),
    }
}

/// The name of the Go type that this JSON decodes into.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(Number::Int(_)) => "int64",
        Value::Number(Number::Float(_)) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Go's `%s`; for anything but a string Go reports a formatting error in the text.
pub(crate) fn show_as_string(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(show_as_string).collect::<Vec<_>>().join(" "))
        }
        Value::Object(map) => {
            let members = map.iter().map(|(key, value)| format!("{key}:{}", show_as_string(value)));
            format!("map[{}]", members.collect::<Vec<_>>().join(" "))
        }
        other => format!("%!s({}={})", type_name(other), show(other)),
    }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn values_are_printed_as_in_go() {
        let value = value!({"b": [1i64, 2.5, 1e21, 0.00001], "a": "x y", "c": null, "d": true});
        assert_eq!(show(&value), "map[a:x y b:[1 2.5 1e+21 1e-05] c:<nil> d:true]");
        assert_eq!(show_as_string(&value!(1i64)), "%!s(int64=1)");
        assert_eq!(show_as_string(&value!(["a", 1i64])), "[a %!s(int64=1)]");
        assert_eq!(
            show_syntax(&value!({"b": [1i64, "x"], "a": {}})),
            r#"map[string]interface {}{"a":map[string]interface {}{}, "b":[]interface {}{1, "x"}}"#
        );
    }
}
