//! Values as Go prints them with `%v`, for error messages that quote them. Long texts are cut.

use meta::{
    Number, Value,
    limits::{QUOTED_BYTES_MAX, cut},
};

/// `map[a:1 b:[x y]]`; strings are bare.
pub fn show(value: &Value) -> String {
    shown(|out| write(value, out))
}

/// As [`show`] of a list.
pub(crate) fn show_list(items: &[Value]) -> String {
    shown(|out| write_list(items, out, write))
}

fn shown(write: impl FnOnce(&mut String)) -> String {
    let mut out = String::new();
    write(&mut out);
    if out.len() > QUOTED_BYTES_MAX { cut(&out, QUOTED_BYTES_MAX).into_owned() } else { out }
}

/// Whether a text is long enough to be cut; what follows need not be written.
fn is_full(out: &str) -> bool {
    out.len() > QUOTED_BYTES_MAX
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(Number::Int(value)) => out.push_str(&value.to_string()),
        Value::Number(Number::Float(value)) => out.push_str(&meta::json::show_float(*value)),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => write_list(items, out, write),
        Value::Object(map) => write_map(map, out, write),
        Value::Raw(raw) => write(raw.tree(), out),
    }
}

fn write_list(items: &[Value], out: &mut String, write: fn(&Value, &mut String)) {
    out.push('[');
    for (at, item) in items.iter().enumerate() {
        if is_full(out) {
            return;
        }
        out.push_str(if at > 0 { " " } else { "" });
        write(item, out);
    }
    out.push(']');
}

fn write_map(map: &meta::Map, out: &mut String, write: fn(&Value, &mut String)) {
    out.push_str("map[");
    for (at, (key, value)) in map.iter().enumerate() {
        if is_full(out) {
            return;
        }
        out.push_str(if at > 0 { " " } else { "" });
        out.push_str(key);
        out.push(':');
        write(value, out);
    }
    out.push(']');
}

/// Go syntax, with `%#v`: `map[string]interface {}{"a":1}`.
pub(crate) fn show_syntax(value: &Value) -> String {
    shown(|out| write_syntax(value, out))
}

fn write_syntax(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::String(text) => out.push_str(&meta::field::quote(text)),
        Value::Array(items) => {
            out.push_str(type_name(value));
            out.push('{');
            for (at, item) in items.iter().enumerate() {
                if is_full(out) {
                    return;
                }
                out.push_str(if at > 0 { ", " } else { "" });
                write_syntax(item, out);
            }
            out.push('}');
        }
        Value::Object(map) => {
            out.push_str(type_name(value));
            out.push('{');
            for (at, (key, value)) in map.iter().enumerate() {
                if is_full(out) {
                    return;
                }
                out.push_str(if at > 0 { ", " } else { "" });
                out.push_str(&meta::field::quote(key));
                out.push(':');
                write_syntax(value, out);
            }
            out.push('}');
        }
        other => write(other, out),
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
        Value::Object(_) | Value::Raw(_) => "map[string]interface {}",
    }
}

/// Go's `%s`; for anything but a string Go reports a formatting error in the text.
pub(crate) fn show_as_string(value: &Value) -> String {
    shown(|out| write_as_string(value, out))
}

fn write_as_string(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => out.push_str(text),
        Value::Null => out.push_str("%!s(<nil>)"),
        Value::Array(items) => write_list(items, out, write_as_string),
        Value::Object(map) => write_map(map, out, write_as_string),
        other => {
            out.push_str("%!s(");
            out.push_str(type_name(other));
            out.push('=');
            write(other, out);
            out.push(')');
        }
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

    #[test]
    fn long_values_are_cut() {
        let list = Value::Array(vec![Value::from("0123456789"); 100_000]);
        for text in [show(&list), show_syntax(&list), show_as_string(&list)] {
            assert!(text.ends_with("bytes more)"), "{}", &text[text.len() - 40..]);
            assert!(text.len() < QUOTED_BYTES_MAX + 100);
        }
    }
}
