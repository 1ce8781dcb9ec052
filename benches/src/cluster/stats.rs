//! What the simulator sees: latency by verb and resource, failures, and how late watch events come.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::client::{Answer, Call, Client, Failure, Keep};
use crate::load::Latencies;
use crate::proc::Cost;

/// Shared by the threads of the simulator.
#[derive(Clone)]
pub(super) struct Stats {
    seen: Arc<Mutex<Seen>>,
    /// The moments that events carry count from here, for the whole run.
    epoch: Instant,
    /// Whether latencies count. Those of a thread that receives the events of thousands of nodes are its own.
    is_timed: bool,
}

struct Seen {
    since: Instant,
    nodes: usize,
    rows: BTreeMap<Work, Row>,
    lag: Latencies,
    events: u64,
    event_bytes: u64,
    watches_ended: u64,
    /// Watches that have not had their initial events, and threads and processes that have not begun to watch.
    starting: usize,
}

/// What is timed together. Lists have an objective of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    Single(&'static str),
    List(&'static str),
}

#[derive(Default)]
struct Row {
    latencies: Latencies,
    succeeded: usize,
    failed: usize,
    first_failure: Option<Failure>,
}

impl Default for Stats {
    fn default() -> Self {
        let seen = Seen {
            since: Instant::now(),
            nodes: 0,
            rows: BTreeMap::new(),
            lag: Latencies::default(),
            events: 0,
            event_bytes: 0,
            watches_ended: 0,
            starting: 0,
        };
        Self { seen: Arc::new(Mutex::new(seen)), epoch: Instant::now(), is_timed: true }
    }
}

impl Stats {
    /// The same for a thread whose latencies do not count.
    pub(super) fn untimed(&self) -> Self {
        Self { is_timed: false, ..self.clone() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no thread panics while it counts")
    }

    /// Forgets what was seen so far.
    pub(super) fn restart(&self) {
        let mut seen = self.seen();
        seen.since = Instant::now();
        seen.rows.clear();
        seen.lag = Latencies::default();
        seen.events = 0;
        seen.event_bytes = 0;
        seen.watches_ended = 0;
    }

    /// A watch starts, or what will watch.
    pub(super) fn starts(&self) {
        self.seen().starting += 1;
    }

    /// A watch has its initial events.
    pub(super) fn started(&self) {
        self.seen().starting -= 1;
    }

    pub(super) fn starting(&self) -> usize {
        self.seen().starting
    }

    pub(super) fn set_nodes(&self, nodes: usize) {
        self.seen().nodes = nodes;
    }

    pub(super) fn nodes(&self) -> usize {
        self.seen().nodes
    }

    /// Sends a request and notes how long its answer took.
    pub(super) async fn timed(
        &self,
        work: Work,
        client: &Client,
        call: &Call,
        keep: Keep,
    ) -> Result<Answer, Failure> {
        let sent = Instant::now();
        let outcome = client.ok(call, keep).await;
        let latency = sent.elapsed();
        let mut seen = self.seen();
        let row = seen.rows.entry(work).or_default();
        match &outcome {
            Ok(_) => {
                row.succeeded += 1;
                if self.is_timed {
                    row.latencies.push(latency);
                }
            }
            Err(failure) => {
                row.failed += 1;
                row.first_failure.get_or_insert_with(|| failure.clone());
            }
        }
        outcome
    }

    /// The moment that a write carries to the watchers.
    pub(super) fn moment(&self) -> String {
        self.epoch.elapsed().as_micros().to_string()
    }

    pub(super) fn saw(&self, bytes: usize) {
        self.seen().event_bytes += bytes as u64;
    }

    /// An event has come that was written at this moment.
    pub(super) fn saw_event(&self, moment: u64) {
        let now = self.epoch.elapsed().as_micros() as u64;
        let mut seen = self.seen();
        // Written before this stage: part of what a new watch gets first.
        if u128::from(moment) < seen.since.duration_since(self.epoch).as_micros() {
            return;
        }
        seen.events += 1;
        if self.is_timed {
            seen.lag.push(Duration::from_micros(now.saturating_sub(moment)));
        }
    }

    pub(super) fn watch_ended(&self) {
        self.seen().watches_ended += 1;
    }

    pub(super) fn verdict(&self) -> Verdict {
        let mut seen = self.seen();
        let rows = seen.rows.iter_mut().map(|(work, row)| {
            let p99 = row.latencies.quantile_ms(0.99);
            let share = row.failed as f64 / (row.failed + row.succeeded).max(1) as f64;
            (*work, p99, share)
        });
        Verdict { rows: rows.collect(), lag_p99: seen.lag.quantile_ms(0.99) }
    }

    /// A Markdown table.
    pub(super) fn report(&self, server: &str, nodes: usize, cost: &Cost) -> String {
        let mut seen = self.seen();
        let seconds = seen.since.elapsed().as_secs_f64();
        let cores = cost.server_cpu_ms.map(|ms| ms / 1e3 / seconds);
        let mut out = format!(
            "\n### {server}: {nodes} nodes\n\n| work | per s | p50 ms | p99 ms | failed |\n|---|---:|---:|---:|---:|\n"
        );
        let figure =
            |value: Option<f64>| value.map_or("n/a".to_owned(), |value| format!("{value:.2}"));
        for (work, row) in &mut seen.rows {
            let (name, count) = (work.name(), row.succeeded);
            let [p50, p99] = [0.5, 0.99].map(|share| figure(row.latencies.quantile_ms(share)));
            let rate = count as f64 / seconds;
            let _ = writeln!(out, "| {name} | {rate:.1} | {p50} | {p99} | {} |", row.failed);
            if let Some(failure) = &row.first_failure {
                eprintln!("{server}: first failure of {name}: {failure}");
            }
        }
        let [p50, p99] = [0.5, 0.99].map(|share| figure(seen.lag.quantile_ms(share)));
        let rate = seen.events as f64 / seconds;
        let _ =
            writeln!(out, "| watch events (delay since the write) | {rate:.0} | {p50} | {p99} | |");
        let _ = write!(
            out,
            "\nserver: {} cores, peak memory {}; simulator: {} cores; watches: {:.1} MB/s, {} ended by the server",
            figure(cores),
            super::megabytes(cost.rss_peak_mb),
            figure(cost.client_load),
            seen.event_bytes as f64 / 1e6 / seconds,
            seen.watches_ended,
        );
        out
    }
}

impl Work {
    fn name(self) -> String {
        match self {
            Self::Single(name) => name.to_owned(),
            Self::List(name) => format!("list {name}"),
        }
    }
}

/// What users are promised.
#[derive(Clone, Copy)]
pub(super) struct Objective {
    pub(super) name: &'static str,
    /// Writes and reads of one object, p99.
    single_ms: f64,
    list_ms: f64,
    /// From a write to its event.
    lag_ms: f64,
}

impl Objective {
    /// Kubernetes' own service level objectives of API calls. It has none for watch events.
    pub(super) const KUBERNETES: Self =
        Self { name: "Kubernetes", single_ms: 1e3, list_ms: 30e3, lag_ms: f64::INFINITY };
    /// What Pintle aims at.
    pub(super) const OWN: Self =
        Self { name: "Pintle", single_ms: 50.0, list_ms: 1e3, lag_ms: 100.0 };
    /// The share of requests that may fail.
    const FAILURES_MAX: f64 = 0.001;
}

pub(super) struct Verdict {
    /// Work, p99 and the share that failed.
    rows: Vec<(Work, Option<f64>, f64)>,
    lag_p99: Option<f64>,
}

impl Verdict {
    /// Where an objective is missed, in words; empty if it is held.
    pub(super) fn misses(&self, objective: Objective) -> Vec<String> {
        let mut misses = Vec::new();
        for (work, p99, failed) in &self.rows {
            let bound = match work {
                Work::Single(_) => objective.single_ms,
                Work::List(_) => objective.list_ms,
            };
            // Work of which nothing succeeded has no latency, and failed.
            if let Some(p99) = p99.filter(|p99| *p99 > bound) {
                misses.push(format!("{} p99 {p99:.0} ms", work.name()));
            }
            if *failed > Objective::FAILURES_MAX {
                misses.push(format!("{}: {:.1} % failed", work.name(), failed * 100.0));
            }
        }
        if let Some(lag) = self.lag_p99.filter(|lag| *lag > objective.lag_ms) {
            misses.push(format!("watch events p99 {lag:.0} ms"));
        }
        misses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_is_missed_by_latency_by_failures_and_by_delay() {
        let verdict = Verdict {
            rows: vec![
                (Work::Single("create pods"), Some(60.0), 0.0),
                (Work::List("pods"), Some(900.0), 0.0),
                (Work::Single("renew leases"), None, 1.0),
            ],
            lag_p99: Some(150.0),
        };
        assert_eq!(verdict.misses(Objective::KUBERNETES), ["renew leases: 100.0 % failed"]);
        let own =
            ["create pods p99 60 ms", "renew leases: 100.0 % failed", "watch events p99 150 ms"];
        assert_eq!(verdict.misses(Objective::OWN), own);
    }

    #[test]
    fn events_from_before_a_stage_do_not_count() {
        let stats = Stats::default();
        let before_text = stats.moment();
        let before = before_text.parse().expect("a number");
        while stats.moment() == before_text {}
        stats.restart();
        stats.saw_event(before);
        assert_eq!(stats.seen().events, 0);
        stats.saw_event(stats.moment().parse().expect("a number"));
        assert_eq!(stats.seen().events, 1);
    }
}
