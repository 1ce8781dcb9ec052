//! The columns and rows of every kind, held against what kube-apiserver answers.

use std::{collections::BTreeSet, fs, path::Path};

use meta::{Value, time::Time};
use registry::Cell;

use super::{FeatureGates, crd, of};

/// Group (`core` for none), version, resource, kind, position, column, type, format, priority.
const COLUMNS: &str = include_str!("../../tests/table-columns.tsv");

#[test]
fn columns_are_those_of_kube_apiserver() {
    let mut expected: Vec<(Endpoint, Vec<String>)> = Vec::new();
    for line in COLUMNS.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let endpoint = Endpoint::read(&fields);
        if expected.last().is_none_or(|(last, _)| *last != endpoint) {
            expected.push((endpoint, Vec::new()));
        }
        expected.last_mut().expect("pushed above").1.push(fields[4..].join("\t"));
    }
    for (endpoint, expected) in expected {
        let columns = of(endpoint.group, endpoint.kind, FeatureGates::default(), &crd()).columns();
        let ours: Vec<String> = columns
            .iter()
            .filter(|column| column.defined)
            .enumerate()
            .map(|(at, column)| {
                let format = if column.format.is_empty() { "-" } else { &column.format };
                let (name, kind, priority) = (&column.name, &column.kind, column.priority);
                format!("{}\t{name}\t{kind}\t{format}\t{priority}", at + 1)
            })
            .collect();
        assert_eq!(ours, expected, "{endpoint:?}");
    }
}

/// Each document of `tests/table-rows/*.yaml` has an object as kube-apiserver v1.36 served it (without
/// defaults that no column reads), the cells it showed for it, and the time it did so.
#[test]
fn rows_are_those_of_kube_apiserver() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/table-rows");
    let mut seen = BTreeSet::new();
    let mut differences = Vec::new();
    for file in fs::read_dir(directory).expect("the rows are there") {
        let text = fs::read_to_string(file.expect("readable").path()).expect("the rows are text");
        for document in text.split("---\n").filter(|document| !document.trim().is_empty()) {
            let case = codec::yaml::load(document.as_bytes()).expect(document).value;
            let object = case.get("object").expect("a case has an object");
            let (api_version, kind) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"]));
            let group = api_version.split_once('/').map_or("", |(group, _)| group);
            seen.insert((group.to_owned(), kind.to_owned()));
            let now = Time::parse(case.str_at(&["now"])).expect("a case has its time");
            let ours = Value::Array(row(group, kind, object, now));
            let expected = case.get("cells").expect("a case has cells");
            if ours != *expected {
                let name = object.str_at(&["metadata", "name"]);
                let [ours, expected] = [&ours, expected].map(meta::json::to_string);
                differences
                    .push(format!("{kind} {name}\n  expected {expected}\n      ours {ours}"));
            }
            let conditions = Value::Array(
                of(group, kind, FeatureGates::default(), &crd()).row_conditions(object),
            );
            assert_eq!(case.get("conditions").unwrap_or(&Value::Array(Vec::new())), &conditions);
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let endpoints =
        COLUMNS.lines().skip(1).map(|line| Endpoint::read(&line.split('\t').collect::<Vec<_>>()));
    let without: BTreeSet<_> = endpoints
        .map(|endpoint| (endpoint.group.to_owned(), endpoint.kind.to_owned()))
        .filter(|kind| !seen.contains(kind))
        .collect();
    assert!(without.is_empty(), "kinds without a row: {without:?}");
}

fn row(group: &str, kind: &str, object: &Value, now: Time) -> Vec<Value> {
    let cells = of(group, kind, FeatureGates::default(), &crd())
        .columns()
        .into_iter()
        .map(|column| column.cell.read(object, now));
    let values = cells.map(|cell| match cell {
        Cell::Text(text) => Value::String(text),
        Cell::Integer(number) => number.into(),
        Cell::Number(number) => Value::Number(meta::Number::Float(number)),
        Cell::Bool(flag) => flag.into(),
        Cell::Null => Value::Null,
    });
    values.collect()
}

#[derive(Debug, PartialEq)]
struct Endpoint<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

impl<'a> Endpoint<'a> {
    fn read(fields: &[&'a str]) -> Self {
        let group = if fields[0] == "core" { "" } else { fields[0] };
        Self { group, version: fields[1], kind: fields[3] }
    }
}
