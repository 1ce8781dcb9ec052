//! `pintle-bench fairness`: one client floods the server with full lists; what do others notice?
//!
//! The clients differ by user, so that API Priority and Fairness gives each its own flow; the admin whose
//! credentials are given impersonates them, because an admin is exempt. The flood runs in a thread of
//! its own, so that it does not add to the latency that is measured.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use futures_util::future::join_all;
use http::Method;
use serde_json::json;

use crate::args::{RunArgs, ServerArgs};
use crate::block_on;
use crate::client::{Call, Client, Failure, Identity, JSON, Keep, Target};
use crate::kubeconfig::Credentials;
use crate::load::{Measured, Plan, closed_loop};
use crate::proc;

const NAMESPACE: &str = "bench-fairness";
const NOISY: Identity = Identity { user: "bench-noisy", group: "system:authenticated" };
const QUIET: Identity = Identity { user: "bench-quiet", group: "system:authenticated" };
const NODE: Identity = Identity { user: "system:node:bench-node", group: "system:nodes" };
const LEADER: Identity =
    Identity { user: "system:kube-controller-manager", group: "system:authenticated" };
const NODE_LEASE: &str = "kube-node-lease/leases/bench-node";
const LEADER_LEASE: &str = "kube-system/leases/bench-leader";

/// Between the GETs of the quiet client.
const PAUSE: Duration = Duration::from_millis(20);
/// Between heartbeats.
const BEAT: Duration = Duration::from_millis(200);
/// The flood has to be there before it is measured.
const WARM_UP: Duration = Duration::from_secs(3);

pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let columns = [
        "server",
        "GET p99 idle",
        "GET p99 flooded",
        "ratio",
        "lists/s",
        "lists refused",
        "heartbeats failed",
        "elections failed",
        "memory idle",
        "memory peak",
    ];
    println!("| {} |\n|---{}|", columns.join(" | "), "|---:".repeat(columns.len() - 1));
    for server in &args.servers {
        one(args, server).with_context(|| format!("server {}", server.name))?;
    }
    Ok(())
}

fn one(args: &RunArgs, server: &ServerArgs) -> Result<()> {
    let target = Target::new(&server.url, &Credentials::load(&server.credentials)?)?;
    let plan = Plan { at_once: 1, count: usize::MAX, cap: Duration::from_secs(args.seconds) };
    let mut idle = block_on(async {
        let client = Client::ready(&target).await?;
        prepare(&client, args.pods).await?;
        Ok(quiet(&client, plan).await)
    })?;
    let memory_idle = proc::rss_mb(&server.pids);
    let stop = AtomicBool::new(false);
    let (flood, mut flooded) = std::thread::scope(|scope| {
        let noisy = scope.spawn(|| block_on(flood(&target, args.connections, &stop)));
        let flooded = block_on(measure(&target, plan, &server.pids));
        stop.store(true, Ordering::Relaxed);
        let noisy = noisy.join().map_err(|_| anyhow!("the flooding thread panicked"))??;
        Ok::<_, anyhow::Error>((noisy, flooded?))
    })?;
    let idle_p99 = idle.latencies.quantile_ms(0.99);
    let flooded_p99 = flooded.gets.latencies.quantile_ms(0.99);
    let ratio = idle_p99.zip(flooded_p99).map(|(idle, flooded)| flooded / idle);
    let cell = |value: Option<f64>, unit: &str| {
        value.map_or("n/a".to_owned(), |value| format!("{value:.1}{unit}"))
    };
    let failed =
        |measured: &Measured| format!("{} of {}", measured.failed, measured.done + measured.failed);
    let cells = [
        server.name.clone(),
        cell(idle_p99, " ms"),
        cell(flooded_p99, " ms"),
        cell(ratio, ""),
        cell(Some(flood.done as f64 / flood.elapsed.as_secs_f64()), ""),
        failed(&flood),
        failed(&flooded.heartbeats),
        failed(&flooded.elections),
        cell(memory_idle, " MB"),
        cell(flooded.memory_peak, " MB"),
    ];
    println!("| {} |", cells.join(" | "));
    let all = [
        ("lists", &flood),
        ("GETs", &flooded.gets),
        ("heartbeats", &flooded.heartbeats),
        ("elections", &flooded.elections),
    ];
    for (what, measured) in all {
        if let Some(failure) = &measured.first_failure {
            eprintln!("{}: first failure of {what}: {failure}", server.name);
        }
    }
    Ok(())
}

struct Flooded {
    gets: Measured,
    heartbeats: Measured,
    elections: Measured,
    memory_peak: Option<f64>,
}

/// The quiet client, a node and a leader, all at once.
async fn measure(target: &Target, plan: Plan, pids: &[u32]) -> Result<Flooded> {
    tokio::time::sleep(WARM_UP).await;
    let client = Client::connect(target, 3).await?;
    let memory = async {
        let (begun, mut peak) = (Instant::now(), None);
        while begun.elapsed() < plan.cap {
            peak = proc::rss_mb(pids).map(|now| peak.map_or(now, |peak: f64| peak.max(now)));
            tokio::time::sleep(PAUSE).await;
        }
        peak
    };
    let (gets, heartbeats, elections, memory_peak) = tokio::join!(
        quiet(&client, plan),
        renew(&client, plan, NODE_LEASE, NODE),
        renew(&client, plan, LEADER_LEASE, LEADER),
        memory,
    );
    Ok(Flooded { gets, heartbeats, elections, memory_peak })
}

/// GETs of one object. The pause is not part of the latency.
async fn quiet(client: &Client, plan: Plan) -> Measured {
    let call = Call::get(format!("{}/object-0", objects())).identity(QUIET);
    spaced(client, plan, PAUSE, &call).await
}

/// Updates of a lease, as a kubelet or a leader sends them.
async fn renew(client: &Client, plan: Plan, path: &str, who: Identity) -> Measured {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "spec": {"holderIdentity": who.user},
    });
    let patch = "application/merge-patch+json";
    let path = format!("{LEASES}/{path}");
    let call = Call::send(Method::PATCH, path, patch, lease.to_string()).identity(who);
    spaced(client, plan, BEAT, &call).await
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces";

async fn spaced(client: &Client, plan: Plan, pause: Duration, call: &Call) -> Measured {
    let (mut measured, begun) = (Measured::default(), Instant::now());
    while begun.elapsed() < plan.cap {
        tokio::time::sleep(pause).await;
        let sent = Instant::now();
        let outcome = client.ok(call, Keep::Nothing).await;
        measured.note(sent.elapsed(), outcome.map(|answer| answer.bytes));
    }
    measured.elapsed = begun.elapsed();
    measured
}

/// Full lists on so many connections, one after the other on each, until `stop` is set.
async fn flood(target: &Target, connections: usize, stop: &AtomicBool) -> Result<Measured> {
    let client = Client::connect(target, connections).await?;
    let call = Call::get(objects()).identity(NOISY);
    let (measured, begun) = (RefCell::new(Measured::default()), Instant::now());
    let worker = async || {
        while !stop.load(Ordering::Relaxed) {
            let sent = Instant::now();
            let outcome = client.ok(&call, Keep::Nothing).await;
            // A client that retries a 429 at once would measure how fast the server refuses.
            let refused = outcome.is_err();
            measured.borrow_mut().note(sent.elapsed(), outcome.map(|answer| answer.bytes));
            if refused {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    };
    join_all((0..connections).map(|_| worker())).await;
    let mut measured = measured.into_inner();
    measured.elapsed = begun.elapsed();
    Ok(measured)
}

fn objects() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps")
}

/// A namespace with `count` objects of 2 KB, the leases, and the users' rights.
async fn prepare(client: &Client, count: usize) -> Result<()> {
    let create = async |path: String, object: serde_json::Value| -> Result<(), Failure> {
        let call = Call::send(Method::POST, path, JSON, object.to_string());
        match client.ok(&call, Keep::Nothing).await {
            // Left by an earlier run.
            Ok(_) | Err(Failure { code: Some(409), .. }) => Ok(()),
            Err(failure) => Err(failure),
        }
    };
    create("/api/v1/namespaces".into(), json!({"metadata": {"name": NAMESPACE}})).await?;
    for user in [NOISY, QUIET, NODE, LEADER].map(|identity| identity.user) {
        let name = format!("bench-fairness-{}", user.replace(':', "-"));
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{
                "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user,
            }],
        });
        create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".into(), binding).await?;
    }
    for lease in [NODE_LEASE, LEADER_LEASE] {
        let (collection, name) = lease.rsplit_once('/').unwrap_or_default();
        create(format!("{LEASES}/{collection}"), json!({"metadata": {"name": name}})).await?;
    }
    let text = "x".repeat(2000);
    let plan = Plan { at_once: 32, count, cap: Duration::from_mins(10) };
    let filled = closed_loop(plan, async |_, number| {
        let object = json!({"metadata": {"name": format!("object-{number}")}, "data": {"x": text}});
        create(objects(), object).await.map(|()| 0)
    })
    .await;
    match filled.first_failure {
        None => Ok(()),
        Some(failure) => Err(anyhow!("cannot create objects: {failure}")),
    }
}
