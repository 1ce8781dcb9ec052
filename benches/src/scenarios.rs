//! The work itself: a table of scenarios, in the order they run.
//!
//! The order matters: first what needs exactly 1 000 pods, then the creates that bring the rest, then
//! everything that reads or changes them, and at the end the deletes.

mod admission;
mod aggregation;
mod custom;
mod floor;
mod nodes;
mod reads;
mod watch;
mod world;
mod writes;

use std::time::Duration;

use crate::client::{Call, Client, Failure, JSON, Keep, PROTOBUF};
use crate::echo::Way;
use crate::load::{Measured, Plan, closed_loop};
use crate::proc::{Cost, Probe};
use crate::report::Row;
use crate::verify::Expect;
use admission::Configured;
use aggregation::Aggregated;
use custom::Size;
use nodes::NodeEcho;
pub(crate) use world::{Sizes, World};

/// One line of the table.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// `{pods}` and `{customs}` stand for the numbers of this run.
    title: &'static str,
    stage: Stage,
    at_once: usize,
    /// How often at most; the time cap may end it sooner.
    count: usize,
    work: Work,
}

/// The data set that a scenario needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Exactly 1 000 pods.
    Thousand,
    /// All pods.
    All,
    /// None: the scenario creates its objects itself.
    Own,
}

#[derive(Clone, Copy)]
enum Work {
    Create,
    CreateMore,
    Get { protobuf: bool },
    List(List),
    Floor,
    Page,
    Update,
    MergePatch,
    StrategicPatch,
    ApplyCreate,
    ApplyChange,
    ApplySame,
    Watch { writes_per_s: Option<u32> },
    CustomCreate(Size),
    CustomGet(Size),
    CustomList(Size),
    CustomPatch(Size),
    Install,
    Admission(Configured),
    Aggregation(Aggregated),
    Nodes(NodeEcho),
    Delete,
    DeleteCollection,
}

/// A list of pods and what must come back.
#[derive(Clone, Copy)]
struct List {
    query: &'static str,
    accept: &'static str,
    gzip: bool,
    kind: &'static str,
    matches: Matches,
}

#[derive(Clone, Copy)]
enum Matches {
    Everything,
    OnePercent,
    SpreadNode,
    FixedNode,
}

const PLAIN: List =
    List { query: "", accept: JSON, gzip: false, kind: "PodList", matches: Matches::Everything };
const ANY_VERSION: List = List { query: "resourceVersion=0", ..PLAIN };
const AS_PROTOBUF: List = List { accept: PROTOBUF, ..PLAIN };
const COMPRESSED: List = List { gzip: true, ..PLAIN };
const BY_LABEL: List =
    List { query: "labelSelector=bench-one-percent%3Dyes", matches: Matches::OnePercent, ..PLAIN };
const BY_NODE: List =
    List { query: "fieldSelector=spec.nodeName%3Dnode-042", matches: Matches::SpreadNode, ..PLAIN };
const BY_FIXED_NODE: List = List {
    query: "fieldSelector=spec.nodeName%3Dnode-fixed",
    matches: Matches::FixedNode,
    ..PLAIN
};
const AS_TABLE: List =
    List { accept: "application/json;as=Table;v=v1;g=meta.k8s.io", kind: "Table", ..PLAIN };
const METADATA_ONLY: List = List {
    accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    kind: "PartialObjectMetadataList",
    ..PLAIN
};

const fn scenario(
    name: &'static str,
    title: &'static str,
    stage: Stage,
    at_once: usize,
    count: usize,
    work: Work,
) -> Scenario {
    Scenario { name, title, stage, at_once, count, work }
}

const fn direct(way: Way) -> Work {
    Work::Nodes(NodeEcho { way, direct: true })
}

const fn through(way: Way) -> Work {
    Work::Nodes(NodeEcho { way, direct: false })
}

#[rustfmt::skip]
pub(crate) const SCENARIOS: &[Scenario] = {
    use Stage::{All, Own, Thousand};
    &[
        scenario("list-1k", "LIST 1 000 pods, JSON, 1 at once", Thousand, 1, 200, Work::List(PLAIN)),
        scenario("list-1k-x8", "LIST 1 000 pods, JSON, 8 at once", Thousand, 8, 400, Work::List(PLAIN)),
        scenario("linear-get-1k", "linear: GET a pod of 1 000", Thousand, 32, 20_000, Work::Get { protobuf: false }),
        scenario("linear-page-1k", "linear: page of 500 of 1 000", Thousand, 8, 400, Work::Page),
        scenario("linear-node-1k", "linear: by spec.nodeName, 100 of 1 000", Thousand, 8, 2_000, Work::List(BY_FIXED_NODE)),

        scenario("create", "create a pod, 32 at once", Thousand, 32, 100_000, Work::Create),
        scenario("get", "GET a pod, 32 at once", All, 32, 50_000, Work::Get { protobuf: false }),
        scenario("get-proto", "GET a pod, protobuf, 32 at once", All, 32, 50_000, Work::Get { protobuf: true }),
        scenario("linear-get", "linear: GET a pod of {pods}", All, 32, 20_000, Work::Get { protobuf: false }),
        scenario("linear-page", "linear: page of 500 of {pods}", All, 8, 400, Work::Page),
        scenario("linear-node", "linear: by spec.nodeName, 100 of {pods}", All, 8, 2_000, Work::List(BY_FIXED_NODE)),
        scenario("list-rv0", "LIST {pods} pods, JSON, resourceVersion=0, 1 at once", All, 1, 40, Work::List(ANY_VERSION)),
        scenario("list-rv0-x8", "LIST {pods} pods, JSON, resourceVersion=0, 8 at once", All, 8, 80, Work::List(ANY_VERSION)),
        scenario("list", "LIST {pods} pods, JSON, resourceVersion unset, 1 at once", All, 1, 40, Work::List(PLAIN)),
        scenario("list-x8", "LIST {pods} pods, JSON, resourceVersion unset, 8 at once", All, 8, 80, Work::List(PLAIN)),
        scenario("floor", "as many bytes as LIST {pods} pods, JSON, from memory by a thread of the bench", All, 1, 40, Work::Floor),
        scenario("list-proto", "LIST {pods} pods, protobuf, 1 at once", All, 1, 40, Work::List(AS_PROTOBUF)),
        scenario("list-proto-x8", "LIST {pods} pods, protobuf, 8 at once", All, 8, 80, Work::List(AS_PROTOBUF)),
        scenario("list-gzip-x8", "LIST {pods} pods, JSON, gzip, 8 at once", All, 8, 80, Work::List(COMPRESSED)),
        scenario("list-label-x8", "LIST by label, 1 % of {pods} match, 8 at once", All, 8, 5_000, Work::List(BY_LABEL)),
        scenario("list-node-x8", "LIST by spec.nodeName, 1 % of {pods} match, 8 at once", All, 8, 5_000, Work::List(BY_NODE)),
        scenario("list-page-x8", "LIST page of 500 of {pods} (continue), 8 at once", All, 8, 1_000, Work::Page),
        scenario("list-table-x8", "LIST {pods} pods as Table, 8 at once", All, 8, 80, Work::List(AS_TABLE)),
        scenario("list-meta-x8", "LIST {pods} pods, metadata only, JSON, 8 at once", All, 8, 80, Work::List(METADATA_ONLY)),
        scenario("update", "update (GET + PUT), 32 at once", All, 32, 10_000, Work::Update),
        scenario("merge-patch", "merge patch, 32 at once", All, 32, 10_000, Work::MergePatch),
        scenario("strategic-patch", "strategic merge patch, 32 at once", All, 32, 10_000, Work::StrategicPatch),

        scenario("apply-create", "server-side apply, create a Deployment, 32 at once", Own, 32, 3_000, Work::ApplyCreate),
        scenario("apply-change", "server-side apply, change, 32 at once", Own, 32, 3_000, Work::ApplyChange),
        scenario("apply-same", "server-side apply, no change, 32 at once", Own, 32, 3_000, Work::ApplySame),
        scenario("watch-20", "watch: {watchers} watchers, 20 writes/s (per delivered event)", Own, 32, 0, Work::Watch { writes_per_s: Some(20) }),
        scenario("watch-100", "watch: {watchers} watchers, 100 writes/s asked", Own, 32, 0, Work::Watch { writes_per_s: Some(100) }),
        scenario("watch-max", "watch: {watchers} watchers, as fast as it can", Own, 32, 1_000, Work::Watch { writes_per_s: None }),
        scenario("cr-create", "create a custom resource (schema, one CEL rule), 32 at once", Own, 32, 100_000, Work::CustomCreate(Size::Small)),
        scenario("cr-get", "GET a custom resource, 32 at once", Own, 32, 20_000, Work::CustomGet(Size::Small)),
        scenario("cr-list-x8", "LIST {customs} custom resources, 8 at once", Own, 8, 200, Work::CustomList(Size::Small)),
        scenario("cr-large-create", "create a custom resource of 2 KB (200 fields, 5 CEL rules), 32 at once", Own, 32, 100_000, Work::CustomCreate(Size::Large)),
        scenario("cr-large-get", "GET a custom resource of 2 KB, 32 at once", Own, 32, 20_000, Work::CustomGet(Size::Large)),
        scenario("cr-large-list", "LIST {customs} custom resources of 2 KB, 1 at once", Own, 1, 100, Work::CustomList(Size::Large)),
        scenario("cr-large-patch", "merge patch of a custom resource of 2 KB, 32 at once", Own, 32, 10_000, Work::CustomPatch(Size::Large)),

        scenario("admission-none", "create a ConfigMap, 32 at once", Own, 32, 20_000, Work::Admission(Configured::Nothing)),
        scenario("admission-other", "… with 50 policies and 20 webhooks that do not match", Own, 32, 20_000, Work::Admission(Configured::NotMatching)),
        scenario("admission-policy", "… with a policy", Own, 32, 20_000, Work::Admission(Configured::Policy)),
        scenario("admission-expressions", "… with a policy of 100 expressions", Own, 32, 20_000, Work::Admission(Configured::Expressions)),
        scenario("admission-webhook", "… with a webhook on loopback, 1 at once", Own, 1, 20_000, Work::Admission(Configured::Webhook)),
        scenario("admission-none-x1", "create a ConfigMap, 1 at once", Own, 1, 20_000, Work::Admission(Configured::Nothing)),
        scenario("admission-quota", "create a ConfigMap in a namespace with a quota, 64 at once", Own, 64, 20_000, Work::Admission(Configured::Quota)),

        scenario("aggregated-direct", "GET an object of an aggregated server, directly, 1 at once", Own, 1, 20_000, Work::Aggregation(Aggregated::Direct)),
        scenario("aggregated-get", "… through the server, 1 at once", Own, 1, 20_000, Work::Aggregation(Aggregated::Proxied)),
        scenario("aggregated-stream", "1 GiB of an aggregated server through the server", Own, 1, 1, Work::Aggregation(Aggregated::Stream)),
        scenario("apiservices-none", "GET a namespace, 32 at once", Own, 32, 20_000, Work::Aggregation(Aggregated::OthersAlone)),
        scenario("apiservices-100", "… with 100 APIServices, half of them down", Own, 32, 20_000, Work::Aggregation(Aggregated::OthersBeside)),

        scenario("exec-direct", "exec: echo of 64 bytes, SPDY, directly to a kubelet", Own, 1, 20_000, direct(Way::ExecSpdy)),
        scenario("exec-spdy", "… SPDY, through the server", Own, 1, 20_000, through(Way::ExecSpdy)),
        scenario("exec-websocket", "… WebSocket, through the server", Own, 1, 20_000, through(Way::ExecWebSocket)),
        scenario("port-forward-direct", "port-forward: echo of 64 bytes, SPDY, directly to a kubelet", Own, 1, 20_000, direct(Way::PortForwardSpdy)),
        scenario("port-forward-spdy", "… SPDY, through the server", Own, 1, 20_000, through(Way::PortForwardSpdy)),
        scenario("port-forward-websocket", "… WebSocket, through the server", Own, 1, 20_000, through(Way::PortForwardWebSocket)),

        scenario("delete", "delete a pod, 32 at once", All, 32, 3_000, Work::Delete),
        scenario("delete-collection", "deletecollection, per pod", All, 1, 4, Work::DeleteCollection),
        scenario("create-64", "create a pod, 64 at once", Own, 64, 20_000, Work::CreateMore),
        scenario("crd-install", "install 500 definitions until their objects are served, 8 at once", Own, 8, 500, Work::Install),
    ]
};

/// `pintle-bench scenarios`.
pub(crate) fn print_names() {
    for scenario in SCENARIOS {
        println!("{:22} {}", scenario.name, scenario.title);
    }
}

/// The scenarios a run was asked for, in the order of the table. Unknown names are an error.
pub(crate) fn chosen(patterns: &[String]) -> anyhow::Result<Vec<&'static Scenario>> {
    let matches = |pattern: &String, name: &str| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    };
    for pattern in patterns {
        anyhow::ensure!(
            SCENARIOS.iter().any(|scenario| matches(pattern, scenario.name)),
            "no scenario is called {pattern:?}; see pintle-bench scenarios"
        );
    }
    let wanted =
        |name: &str| patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern, name));
    Ok(SCENARIOS.iter().filter(|scenario| wanted(scenario.name)).collect())
}

/// The outcome of a scenario.
enum Outcome {
    Measured {
        measured: Measured,
        cost: Cost,
        /// What one call counts for: a deletecollection is so many pods.
        ops_per_call: usize,
        /// What to know about the figures; mostly nothing.
        note: String,
    },
    NotAvailable(String),
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        let what = if failure.is_unsupported() { "not supported: " } else { "failed: " };
        Self::NotAvailable(format!("{what}{failure}"))
    }
}

impl Scenario {
    /// Brings the data, does the work, and makes a row of it. Never an error: a scenario that cannot
    /// run is a row without figures.
    pub(crate) async fn run(&self, world: &mut World) -> Row {
        let title = world.sizes.fill(self.title);
        let outcome = match self.prepare(world).await {
            Ok(()) => self.work(world).await,
            Err(failure) => failure.into(),
        };
        match outcome {
            Outcome::Measured { measured, cost, ops_per_call, note } => {
                row(self.name, &title, measured, &cost, ops_per_call, note)
            }
            Outcome::NotAvailable(why) => Row::not_available(self.name, &title, &why),
        }
    }

    async fn prepare(&self, world: &mut World) -> Result<(), Failure> {
        world.client.heal().await.map_err(|error| Failure::local(&error))?;
        match self.stage {
            Stage::Thousand => world.ensure_pods(world::FEW_PODS).await,
            Stage::All => world.ensure_pods(world.sizes.pods).await,
            Stage::Own => Ok(()),
        }
    }

    async fn work(&self, world: &mut World) -> Outcome {
        let plan = Plan { at_once: self.at_once, count: self.count, cap: world.sizes.cap };
        match self.work {
            Work::Create => writes::create(world, plan).await,
            Work::CreateMore => writes::create_more(world, plan).await,
            Work::Get { protobuf } => reads::get(world, plan, protobuf).await,
            Work::List(list) => reads::list(world, plan, &list).await,
            Work::Floor => floor::send(world, plan).await,
            Work::Page => reads::page(world, plan).await,
            Work::Update => writes::update(world, plan).await,
            Work::MergePatch => writes::merge_patch(world, plan).await,
            Work::StrategicPatch => writes::strategic_patch(world, plan).await,
            Work::ApplyCreate => writes::apply_create(world, plan).await,
            Work::ApplyChange => writes::apply_change(world, plan).await,
            Work::ApplySame => writes::apply_same(world, plan).await,
            Work::Watch { writes_per_s } => watch::fan_out(world, plan, writes_per_s).await,
            Work::CustomCreate(size) => custom::create(world, plan, size).await,
            Work::CustomGet(size) => custom::get(world, plan, size).await,
            Work::CustomList(size) => custom::list(world, plan, size).await,
            Work::CustomPatch(size) => custom::merge_patch(world, plan, size).await,
            Work::Install => custom::install(world, plan).await,
            Work::Admission(configured) => admission::create(world, plan, configured).await,
            Work::Aggregation(what) => aggregation::measure(world, plan, what).await,
            Work::Nodes(what) => nodes::measure(world, plan, what).await,
            Work::Delete => writes::delete(world, plan).await,
            Work::DeleteCollection => writes::delete_collection(world, plan).await,
        }
    }
}

/// An answer to look at before anything is measured.
struct Check<'a> {
    call: &'a Call,
    expect: Expect,
}

/// Check, warm-up, then the measured loop. Numbers go on counting, so that a create is never sent
/// twice. The first operation goes alone: if it fails, the scenario is not available.
async fn drive(
    world: &World,
    plan: Plan,
    check: Option<Check<'_>>,
    warm_up: usize,
    operation: impl AsyncFn(&Client, usize, usize) -> Result<u64, Failure>,
) -> Outcome {
    let client = &world.client;
    // From here on memory is watched: the first list may be the one that grows it.
    let mut probe = Probe::begin(&world.pids);
    if let Some(check) = check
        && let Err(outcome) = check.run(client).await
    {
        return outcome;
    }
    if warm_up > 0 {
        if let Err(failure) = operation(client, 0, 0).await {
            return failure.into();
        }
        let rest = Plan { count: warm_up - 1, cap: WARM_UP_CAP, ..plan };
        closed_loop(rest, async |worker, number| operation(client, worker, number + 1).await).await;
    }
    probe.restart_clocks();
    let measured =
        closed_loop(plan, async |worker, number| operation(client, worker, number + warm_up).await)
            .await;
    Outcome::Measured { measured, cost: probe.end(), ops_per_call: 1, note: String::new() }
}

impl Check<'_> {
    /// Asks once and looks at the whole answer.
    async fn run(&self, client: &Client) -> Result<(), Outcome> {
        let answer = client.ok(self.call, Keep::All).await?;
        self.expect
            .check(&answer)
            .map_err(|wrong| Outcome::NotAvailable(format!("wrong answer: {wrong:#}")))
    }
}

fn row(
    name: &str,
    title: &str,
    mut measured: Measured,
    cost: &Cost,
    ops_per_call: usize,
    note: String,
) -> Row {
    let mut notes = vec![note];
    if let Some(failure) = &measured.first_failure {
        notes.push(format!("{} failed, the first: {failure}", measured.failed));
    }
    // No CPU time means that another process serves the requests: the figures would be wrong.
    let is_server = cost.server_cpu_ms.is_none_or(|cpu| cpu > 0.0);
    if !is_server {
        notes.push("the --pid processes did not work: is a wrapper named?".to_owned());
    }
    notes.retain(|note| !note.is_empty());
    let note = notes.join("; ");
    if measured.done == 0 {
        return Row::not_available(name, title, &format!("nothing succeeded; {note}"));
    }
    let ops = measured.done * ops_per_call;
    Row {
        name: name.to_owned(),
        title: title.to_owned(),
        ops,
        ops_per_s: Some(ops as f64 / measured.elapsed.as_secs_f64()),
        p50_ms: measured.latencies.quantile_ms(0.5),
        p99_ms: measured.latencies.quantile_ms(0.99),
        cpu_ms_per_op: cost.server_cpu_ms.filter(|_| is_server).map(|cpu| cpu / ops as f64),
        rss_mb: cost.rss_peak_mb.filter(|_| is_server),
        rss_extra_mb: cost.rss_extra_mb.filter(|_| is_server),
        bytes_per_op: Some(measured.bytes as f64 / ops as f64),
        client_load: cost.client_load,
        note,
    }
}

/// A warm-up never takes longer than this, however slow the server.
const WARM_UP_CAP: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_linear_scenario_has_its_pair() {
        for scenario in SCENARIOS {
            let same = SCENARIOS.iter().filter(|other| other.name == scenario.name).count();
            assert_eq!(same, 1, "{}", scenario.name);
            if let Some(few) = scenario.name.strip_suffix("-1k")
                && scenario.name.starts_with("linear-")
            {
                assert!(SCENARIOS.iter().any(|other| other.name == few), "{few}");
            }
        }
    }

    #[test]
    fn scenarios_that_need_fewer_pods_run_before_those_that_need_all() {
        let last_few = SCENARIOS.iter().rposition(|s| s.stage == Stage::Thousand).unwrap();
        let first_all = SCENARIOS.iter().position(|s| s.stage == Stage::All).unwrap();
        assert!(last_few < first_all);
    }

    #[test]
    fn scenarios_are_chosen_by_name_or_prefix() {
        let names = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(|&p| p.to_owned()).collect();
            chosen(&patterns).map(|chosen| chosen.iter().map(|s| s.name).collect::<Vec<_>>())
        };
        assert_eq!(
            names(&["watch-*", "get"]).unwrap(),
            ["get", "watch-20", "watch-100", "watch-max"]
        );
        assert_eq!(names(&[]).unwrap().len(), SCENARIOS.len());
        assert!(names(&["gte"]).is_err());
    }

    #[test]
    fn a_row_has_only_figures_that_mean_something() {
        let measured = |done, failed| Measured {
            done,
            failed,
            bytes: 1000,
            elapsed: Duration::from_secs(2),
            first_failure: (failed > 0).then(|| Failure { code: None, message: "no".to_owned() }),
            ..Measured::default()
        };
        let cost = |cpu| Cost {
            server_cpu_ms: cpu,
            rss_peak_mb: Some(50.0),
            rss_extra_mb: Some(1.0),
            client_load: None,
        };
        let cases = [
            (10, 0, Some(30.0), (Some(5.0), Some(3.0), Some(50.0)), ""),
            (10, 0, None, (Some(5.0), None, Some(50.0)), ""),
            (10, 2, Some(30.0), (Some(5.0), Some(3.0), Some(50.0)), "2 failed, the first: no"),
            (
                0,
                2,
                Some(30.0),
                (None, None, None),
                "n/a: nothing succeeded; 2 failed, the first: no",
            ),
            (
                10,
                0,
                Some(0.0),
                (Some(5.0), None, None),
                "the --pid processes did not work: is a wrapper named?",
            ),
        ];
        for (done, failed, cpu, figures, note) in cases {
            let row = row("x", "x", measured(done, failed), &cost(cpu), 1, String::new());
            assert_eq!((row.ops_per_s, row.cpu_ms_per_op, row.rss_mb), figures, "{note}");
            assert_eq!(row.note, note);
        }
    }
}
