//! Values as text: in error messages, and as `string()` converts them.

use crate::value::{List, Map, Val};

/// Go's `%v` of a CEL value.
pub(crate) fn show(value: &Val<'_>) -> String {
    match value {
        Val::Null => "NULL_VALUE".into(),
        Val::Bool(value) => value.to_string(),
        Val::Int(int) => int.to_string(),
        Val::Uint(uint) => uint.to_string(),
        Val::Double(double) => shortest(*double),
        Val::String(text) => text.as_str().to_owned(),
        Val::Bytes(bytes) => {
            let bytes: Vec<String> = bytes.iter().map(u8::to_string).collect();
            format!("[{}]", bytes.join(" "))
        }
        Val::Duration(duration) => duration.text(),
        Val::Timestamp(time) => time.text(time.offset),
        Val::List(list) => show_list(list),
        Val::Map(map) => show_map(map),
        Val::Optional(None) => "optional.none()".into(),
        Val::Optional(Some(value)) => format!("optional({})", show(value)),
        Val::Type(ty) => ty.name().to_owned(),
        Val::Kubernetes(value) => value.text(),
        Val::Preserved(value) => format!("{value:?}"),
    }
}

fn show_list(list: &List<'_>) -> String {
    let items: Vec<String> =
        list.iter().map(|item| item.map_or_else(|error| error.to_string(), |i| show(&i))).collect();
    format!("[{}]", items.join(", "))
}

fn show_map(map: &Map<'_>) -> String {
    let entries: Vec<String> = map
        .keys()
        .iter()
        .map(|key| {
            let value = map.find(key).ok().flatten();
            format!("{}: {}", show(key), value.map_or(String::new(), |value| show(&value)))
        })
        .collect();
    format!("{{{}}}", entries.join(", "))
}

/// Go's `%g` (and `%v`) of a float.
pub(crate) fn shortest(double: f64) -> String {
    if double.is_nan() {
        return "NaN".into();
    }
    if double.is_infinite() {
        return if double > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    if double == 0.0 {
        return if double.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    let scientific = format!("{double:e}");
    let (digits, exponent) = scientific.split_once('e').expect("written with an exponent");
    let exponent: i32 = exponent.parse().expect("written as a number");
    if (-4..6).contains(&exponent) {
        return format!("{double}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
