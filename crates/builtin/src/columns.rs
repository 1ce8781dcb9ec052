//! What is said about the columns of tables: mostly what is said about the field that a column shows.

use std::{collections::HashMap, sync::LazyLock};

use meta::Str;
use registry::Column;

type Pair = (&'static str, &'static str);

/// By kind and name of the column: a definition and its field, or `-` and a text.
static ROWS: LazyLock<HashMap<Pair, Pair>> = LazyLock::new(|| {
    let rows = include_str!("columns.tsv").lines().filter(|line| !line.starts_with('#'));
    let row = |line: &'static str| {
        let mut cells = line.split('\t');
        Some(((cells.next()?, cells.next()?), (cells.next()?, cells.next()?)))
    };
    rows.filter_map(row).collect()
});

/// Says what a column of a kind is about. Names and ages have it said already.
pub(crate) fn describe(kind: &str, column: &mut Column) {
    match ROWS.get(&(kind, column.name.as_str())) {
        Some(&("-", text)) => column.description = Str::new_static(text),
        Some(&(definition, field)) => column.described_by = Some((definition, field)),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use meta::Str;

    use super::{Column, describe};
    use crate::{FeatureGates, strategies};

    #[test]
    fn a_column_is_described_by_a_field_or_a_text() {
        let strategy = strategies::of("", "Pod", FeatureGates::default(), &strategies::crd());
        let any = strategy.columns().into_iter().next().expect("pods have columns");
        let named = |name: &str| Column {
            name: Str::new(name),
            description: Str::default(),
            described_by: None,
            ..any.clone()
        };
        let (mut by_field, mut by_text) = (0, 0);
        for row in include_str!("columns.tsv").lines().filter(|row| !row.starts_with('#')) {
            let cells: Vec<&str> = row.split('\t').collect();
            let mut column = named(cells[1]);
            describe(cells[0], &mut column);
            if cells[2] == "-" {
                assert_eq!(column.description, cells[3], "{row}");
                by_text += 1;
            } else {
                assert_eq!(column.described_by, Some((cells[2], cells[3])), "{row}");
                by_field += 1;
            }
            let mut other = named("No Such");
            describe(cells[0], &mut other);
            assert!(other.description.is_empty() && other.described_by.is_none(), "{row}");
        }
        assert!(by_field > 0 && by_text > 0);
    }

    #[test]
    fn every_row_is_about_a_column_that_there_is() {
        let definitions = crate::Definitions::load();
        let mut known = BTreeSet::new();
        let crd = strategies::crd();
        for facts in &definitions.resources {
            let gvk = &facts.kind;
            let strategy = strategies::of(&gvk.group, &gvk.kind, FeatureGates::default(), &crd);
            for column in strategy.columns() {
                known.insert(format!("{}\t{}", facts.kind.kind, column.name));
            }
        }
        let mut wrong = Vec::new();
        for row in include_str!("columns.tsv").lines().filter(|row| !row.starts_with('#')) {
            let cells: Vec<&str> = row.split('\t').collect();
            let [_, _, definition, field] = cells[..] else { panic!("four columns: {row}") };
            let ty = definitions.schema.by_name(definition).map(|ty| definitions.schema.get(ty));
            let described = definition == "-" || ty.is_some_and(|ty| ty.field(field).is_some());
            if !known.contains(&cells[..2].join("\t")) || !described {
                wrong.push(row);
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
