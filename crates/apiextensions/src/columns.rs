//! `additionalPrinterColumns`: what `kubectl get` shows of a custom resource.

use std::sync::Arc;

use meta::{Number, Str, Value, jsonpath::JsonPath, time::Time};
use registry::{Cell, CellOf, Column};

use crate::crd::{ColumnSpec, Version};

/// The columns of a version: the name, then the declared ones, or the age if none is declared.
pub(crate) fn columns(version: &Version) -> Vec<Column> {
    let age;
    let declared = if version.columns.is_empty() {
        age = [default_age()];
        &age[..]
    } else {
        &version.columns[..]
    };
    let mut columns = vec![Column::NAME];
    for spec in declared {
        // Compat: columns from the first invalid path on are omitted.
        let Ok(path) = JsonPath::parse(&spec.path) else { break };
        let mut column = column(spec, path);
        if version.columns.is_empty() {
            column.described_by = Column::AGE.described_by;
        }
        columns.push(column);
    }
    columns
}

fn default_age() -> ColumnSpec {
    ColumnSpec {
        name: Str::new_static("Age"),
        ty: Str::new_static("date"),
        path: Str::new_static(".metadata.creationTimestamp"),
        ..ColumnSpec::default()
    }
}

fn column(spec: &ColumnSpec, path: JsonPath) -> Column {
    let description = if spec.description.is_empty() {
        format!("Custom resource definition column (in JSONPath format): {}", spec.path).into()
    } else {
        spec.description.clone()
    };
    let ty = spec.ty.clone();
    Column {
        name: spec.name.clone(),
        kind: spec.ty.clone(),
        format: spec.format.clone(),
        priority: spec.priority,
        defined: true,
        description,
        described_by: None,
        cell: CellOf::Defined(Arc::new(move |object, now| cell(&path, &ty, object, now))),
    }
}

fn cell(path: &JsonPath, ty: &str, object: &Value, now: Time) -> Cell {
    let Ok(found) = path.find(object) else { return Cell::Null };
    let Some(value) = found.first() else { return Cell::Null };
    match (ty, value) {
        ("string", Value::Null) => Cell::text("<no value>"),
        ("string", value) => Cell::text(text(value)),
        ("integer", Value::Number(Number::Int(int))) => Cell::Integer(*int),
        ("integer", Value::Number(Number::Float(float))) => Cell::Integer(go_integer(*float)),
        ("number", Value::Number(Number::Int(int))) => Cell::Number(*int as f64),
        ("number", Value::Number(Number::Float(float))) => Cell::Number(*float),
        ("boolean", Value::Bool(flag)) => Cell::Bool(*flag),
        ("date", Value::String(time)) if matches!(&**time, "" | "null") => Cell::text("<unknown>"),
        ("date", Value::String(time)) => match Time::parse(time) {
            Ok(time) => Cell::text(now.since(time).human()),
            Err(_) => Cell::text("<invalid>"),
        },
        _ => Cell::Null,
    }
}

/// As Go prints it; lists and objects as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Number(Number::Int(int)) => int.to_string(),
        Value::Number(Number::Float(float)) => go_float(*float),
        other => meta::json::to_string(other),
    }
}

/// Compat: numbers above the int64 range become the minimum, as in Go on amd64.
fn go_integer(float: f64) -> i64 {
    if float < -(i64::MIN as f64) { float as i64 } else { i64::MIN }
}

/// Go's `%v`: the shortest text, with an exponent from 1e21 on and below 1e-4.
fn go_float(float: f64) -> String {
    let size = float.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{float:e}");
        let Some((digits, exponent)) = text.split_once('e') else { return text };
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    float.to_string()
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn cells_follow_the_declared_type() {
        let object = value!({"spec": {
            "int": 7i64, "text": "t", "flag": true, "list": ["a"], "null": null,
            "time": "2024-01-01T00:00:00Z", "float": (Value::Number(Number::Float(2.5))),
            "large": (Value::Number(Number::Float(1e21))), "empty": "",
        }});
        let now = Time::parse("2024-01-03T00:00:00Z").unwrap();
        let cases = [
            ("int", "integer", Cell::Integer(7)),
            ("int", "string", Cell::text("7")),
            ("int", "number", Cell::Number(7.0)),
            ("int", "boolean", Cell::Null),
            ("text", "string", Cell::text("t")),
            ("text", "integer", Cell::Null),
            ("text", "date", Cell::text("<invalid>")),
            ("float", "integer", Cell::Integer(2)),
            ("float", "string", Cell::text("2.5")),
            ("large", "integer", Cell::Integer(i64::MIN)),
            ("flag", "boolean", Cell::Bool(true)),
            ("list", "string", Cell::text(r#"["a"]"#)),
            ("null", "string", Cell::text("<no value>")),
            ("null", "integer", Cell::Null),
            ("time", "date", Cell::text("2d")),
            ("empty", "date", Cell::text("<unknown>")),
            ("missing", "string", Cell::Null),
        ];
        for (field, ty, expected) in cases {
            let path = JsonPath::parse(&format!(".spec.{field}")).unwrap();
            assert_eq!(cell(&path, ty, &object, now), expected, "{field} as {ty}");
        }
        assert_eq!(go_float(1e21), "1e+21");
        assert_eq!(go_float(1e-7), "1e-07");
    }

    #[test]
    fn a_version_without_columns_shows_the_age() {
        let names = |columns: Vec<Column>| {
            columns.iter().map(|column| column.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(columns(&Version::default())), ["Name", "Age"]);
        let spec = ColumnSpec {
            name: "X".into(),
            ty: "string".into(),
            path: ".x".into(),
            ..ColumnSpec::default()
        };
        let version = Version { columns: vec![spec], ..Version::default() };
        assert_eq!(names(columns(&version)), ["Name", "X"]);
    }
}
