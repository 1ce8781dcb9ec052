//! What is said about the columns of tables: mostly what is said about the field that a column shows.

use meta::Str;
use registry::Column;

/// Says what a column of a kind is about. Names and ages have it said already.
pub(crate) fn describe(kind: &str, column: &mut Column) {
    let rows = include_str!("columns.tsv").lines().filter(|line| !line.starts_with('#'));
    for row in rows {
        let mut cells = row.split('\t');
        if cells.next() != Some(kind) || cells.next() != Some(column.name.as_str()) {
            continue;
        }
        match (cells.next(), cells.next()) {
            (Some("-"), Some(text)) => column.description = Str::new_static(text),
            (Some(definition), Some(field)) => column.described_by = Some((definition, field)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::{FeatureGates, strategies};

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
