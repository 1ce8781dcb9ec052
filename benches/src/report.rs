//! Results: kept as JSON, shown as Markdown, compared as ratios.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// One server's figures.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) server: String,
    /// What the server says it is.
    pub(crate) version: String,
    pub(crate) cores: usize,
    pub(crate) rows: Vec<Row>,
}

/// One line of the table. A figure that could not be taken is absent, never zero.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) ops: usize,
    pub(crate) ops_per_s: Option<f64>,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) cpu_ms_per_op: Option<f64>,
    pub(crate) rss_mb: Option<f64>,
    /// Peak memory above what it was before the scenario.
    pub(crate) rss_extra_mb: Option<f64>,
    pub(crate) bytes_per_op: Option<f64>,
    /// The generator's share of one core: near 1 the generator was the limit.
    pub(crate) client_load: Option<f64>,
    /// Why there are no figures, or what to know about them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
}

impl Row {
    pub(crate) fn not_available(name: &str, title: &str, why: &str) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            note: format!("n/a: {why}"),
            ..Self::default()
        }
    }
}

impl Results {
    /// A file holds the results of one or more servers; this takes the first.
    pub(crate) fn read(file: impl AsRef<Path>) -> Result<Self> {
        let file = file.as_ref();
        let text = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        let all: Vec<Self> = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not a result file", file.display()))?;
        all.into_iter().next().with_context(|| format!("{} is empty", file.display()))
    }

    pub(crate) fn write(all: &[Self], file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(all)?;
        std::fs::write(file, text + "\n").with_context(|| format!("writing {}", file.display()))
    }

    fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// All rows of one server, as Markdown.
pub(crate) fn table(results: &Results) -> String {
    let mut out = format!(
        "### {} ({}, {} cores)\n\n\
         | work | ops/s | p50 ms | p99 ms | server CPU ms/op | RSS MB | extra RSS MB | KB/op | note |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---|\n",
        results.server, results.version, results.cores
    );
    for row in &results.rows {
        let _ = writeln!(out, "{}", line(row));
    }
    out
}

/// One row of [`table`].
pub(crate) fn line(row: &Row) -> String {
    let mut note = row.note.clone();
    if row.client_load.is_some_and(|load| load > CLIENT_BOUND) {
        note = format!("the generator was at its limit; {note}");
    }
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        row.title,
        figure(row.ops_per_s),
        figure(row.p50_ms),
        figure(row.p99_ms),
        figure(row.cpu_ms_per_op),
        figure(row.rss_mb),
        figure(row.rss_extra_mb),
        figure(row.bytes_per_op.map(|bytes| bytes / 1024.0)),
        note.trim_end_matches("; ").replace(['|', '\n'], " "),
    )
}

/// Candidate against baseline: every ratio is "how many times better", so above 1 the candidate wins.
pub(crate) fn ratio_table(baseline: &Results, candidate: &Results) -> String {
    let mut out = format!(
        "### {} against {} (above 1: {} is better)\n\n\
         | work | ops/s | p50 | p99 | CPU/op | RSS | extra RSS | {} CPU ms/op | {} CPU ms/op |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        candidate.server, baseline.server, candidate.server, candidate.server, baseline.server
    );
    for old in &baseline.rows {
        // What only one of them was asked to do cannot be compared.
        let Some(new) = candidate.row(&old.name) else { continue };
        let more = |of: fn(&Row) -> Option<f64>| ratio(of(new), of(old));
        let less = |of: fn(&Row) -> Option<f64>| ratio(of(old), of(new));
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            old.title,
            more(|row| row.ops_per_s),
            less(|row| row.p50_ms),
            less(|row| row.p99_ms),
            less(|row| row.cpu_ms_per_op),
            less(|row| row.rss_mb),
            less(|row| row.rss_extra_mb.map(|mb| mb.max(EXTRA_MB_FLOOR))),
            figure(new.cpu_ms_per_op),
            figure(old.cpu_ms_per_op),
        );
    }
    let noted: Vec<String> = [candidate, baseline]
        .iter()
        .flat_map(|results| results.rows.iter().map(move |row| (results, row)))
        .filter(|(_, row)| !row.note.is_empty())
        .map(|(results, row)| format!("- {}, {}: {}", results.server, row.title, row.note))
        .collect();
    if !noted.is_empty() {
        let _ = writeln!(out, "\n{}", noted.join("\n"));
    }
    out
}

/// Scenarios `linear-X-1k` and `linear-X` do the same work with 1 000 and with all objects behind it:
/// near 1 the cost does not depend on what else is stored.
pub(crate) fn linear_table(results: &Results) -> Option<String> {
    let mut out = format!(
        "### {}: the same work with more objects behind it (many ÷ 1 000; 1 is ideal)\n\n\
         | work | CPU/op | p50 |\n|---|---:|---:|\n",
        results.server
    );
    let mut any = false;
    for few in &results.rows {
        let many = few.name.strip_suffix("-1k").filter(|name| name.starts_with("linear-"));
        let Some(many) = many.and_then(|name| results.row(name)) else { continue };
        any = true;
        let _ = writeln!(
            out,
            "| {} | {} | {} |",
            many.title,
            ratio(many.cpu_ms_per_op, few.cpu_ms_per_op),
            ratio(many.p50_ms, few.p50_ms)
        );
    }
    any.then_some(out)
}

fn ratio(of: Option<f64>, to: Option<f64>) -> String {
    match (of, to) {
        (Some(of), Some(to)) if to > 0.0 => format!("{:.2}", of / to),
        _ => NOT_AVAILABLE.to_owned(),
    }
}

/// Three significant digits or so: more would only be noise.
fn figure(value: Option<f64>) -> String {
    match value {
        None => NOT_AVAILABLE.to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) if value.abs() >= 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.3}"),
    }
}

const NOT_AVAILABLE: &str = "n/a";
/// From here on the generator, not the server, may have set the pace.
const CLIENT_BOUND: f64 = 0.95;
/// Below a megabyte extra memory is noise, and a ratio of it is nonsense.
const EXTRA_MB_FLOOR: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn results(server: &str, rows: &[(&str, f64, f64, f64)]) -> Results {
        let rows = rows
            .iter()
            .map(|&(name, ops, p50, cpu)| Row {
                name: name.to_owned(),
                title: format!("does {name}"),
                ops_per_s: Some(ops),
                p50_ms: Some(p50),
                cpu_ms_per_op: Some(cpu),
                ..Row::default()
            })
            .collect();
        Results { server: server.to_owned(), version: "v1".to_owned(), cores: 2, rows }
    }

    #[test]
    fn a_ratio_above_one_means_the_candidate_is_better() {
        let old = results("old", &[("get", 100.0, 8.0, 1.0), ("list", 1.0, 900.0, 50.0)]);
        let mut new = results("new", &[("get", 250.0, 2.0, 0.5)]);
        new.rows.push(Row::not_available("list", "does list", "415 | no"));
        expect![[r"
            ### new against old (above 1: new is better)

            | work | ops/s | p50 | p99 | CPU/op | RSS | extra RSS | new CPU ms/op | old CPU ms/op |
            |---|---:|---:|---:|---:|---:|---:|---:|---:|
            | does get | 2.50 | 4.00 | n/a | 2.00 | n/a | n/a | 0.500 | 1.00 |
            | does list | n/a | n/a | n/a | n/a | n/a | n/a | n/a | 50.0 |

            - new, does list: n/a: 415 | no
        "]]
        .assert_eq(&ratio_table(&old, &new));
    }

    #[test]
    fn what_was_not_measured_is_shown_as_such() {
        let row = Row::not_available("x", "does x", "406\nNot Acceptable | sorry");
        expect![
            "| does x | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a: 406 Not Acceptable   sorry |"
        ]
        .assert_eq(&line(&row));
    }

    #[test]
    fn linear_rows_are_paired_by_name() {
        let rows = [
            ("linear-get-1k", 1.0, 2.0, 1.0),
            ("get", 1.0, 1.0, 1.0),
            ("linear-get", 1.0, 3.0, 1.5),
        ];
        expect![[r"
            ### s: the same work with more objects behind it (many ÷ 1 000; 1 is ideal)

            | work | CPU/op | p50 |
            |---|---:|---:|
            | does linear-get | 1.50 | 1.50 |
        "]]
        .assert_eq(&linear_table(&results("s", &rows)).unwrap());
        assert!(linear_table(&results("s", &rows[..2])).is_none());
    }
}
