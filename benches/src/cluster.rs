//! `pintle-bench cluster`: the steady API load of a cluster with so many nodes, and what it costs.
//!
//! A hollow node is what an API server sees of a kubelet and a kube-proxy: one connection, a lease that is
//! renewed, a status that is patched, and watches. Beside the nodes there are the informers of a controller
//! manager and a scheduler, pods that come and go, endpoint slices that change, people with kubectl, and a
//! GitOps client. Nothing runs the pods: the simulator itself writes what controllers and kubelets would.
//!
//! The numbers of `--nodes` are stages of one run: each adds nodes to those of the stage before.

mod control_plane;
mod node;
mod objects;
mod stats;

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::task::LocalSet;

use crate::args::{ClusterArgs, ServerArgs};
use crate::block_on;
use crate::client::{Client, Target};
use crate::kubeconfig::Credentials;
use crate::proc::{self, Probe};

use self::objects::Objects;
use self::stats::{Objective, Stats};

pub(crate) fn run(args: &ClusterArgs) -> Result<()> {
    for server in &args.servers {
        block_on(LocalSet::new().run_until(simulate(args, server)))
            .with_context(|| format!("server {}", server.name))?;
    }
    Ok(())
}

/// What all parts of the simulation share.
struct Cluster {
    target: Target,
    /// Of the control plane and of the simulator's own writes.
    client: Client,
    stats: Stats,
    load: Load,
}

/// How much happens, besides what each node does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) pods_per_node: usize,
    /// Pods created per second, each of which is bound, gets four status patches and is deleted.
    pub(crate) churn: f64,
    /// Endpoint slices changed per second: every node gets every change.
    pub(crate) slice_updates: f64,
}

async fn simulate(args: &ClusterArgs, server: &ServerArgs) -> Result<()> {
    let target = Target::new(&server.url, &Credentials::load(&server.credentials)?)?;
    Client::ready(&target).await?;
    let client = Client::connect(&target, CONNECTIONS).await?;
    let stats = Stats::default();
    let bulk = node::Bulk::spawn(target.clone(), &stats, args.load);
    let cluster = Rc::new(Cluster { target, client, stats, load: args.load });
    let mut objects = Objects::default();
    let mut held = None;
    control_plane::prepare(&cluster, &mut objects).await?;
    for (stage, &nodes) in args.nodes.iter().enumerate() {
        eprintln!(
            "{}: making {nodes} nodes with {} pods each",
            server.name, args.load.pods_per_node
        );
        objects.grow(&cluster, nodes).await?;
        let began = Instant::now();
        node::start(&cluster, &bulk, objects.started..nodes).await?;
        objects.started = nodes;
        if stage == 0 {
            control_plane::start(&cluster);
        }
        cluster.stats.set_nodes(nodes);
        // What the new nodes list and watch at first is not part of the steady load.
        while cluster.stats.starting() > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let left = cluster.stats.starting();
            ensure!(began.elapsed() < START_TIMEOUT, "{left} watches have no initial events");
        }
        let started = began.elapsed();
        tokio::time::sleep(WARM_UP).await;
        cluster.stats.restart();
        let probe = Probe::begin(&server.pids);
        tokio::time::sleep(Duration::from_secs(args.seconds)).await;
        let cost = probe.end();
        let verdict = cluster.stats.verdict();
        println!("{}", cluster.stats.report(&server.name, nodes, &cost));
        println!(
            "all watches of the new nodes had their initial events after {:.1} s",
            started.as_secs_f64()
        );
        println!("memory {}", megabytes(proc::rss_mb(&server.pids)));
        for objective in [Objective::KUBERNETES, Objective::OWN] {
            let misses = verdict.misses(objective);
            let name = objective.name;
            match &misses[..] {
                [] => println!("holds the {name} objectives"),
                misses => println!("misses the {name} objectives: {}", misses.join("; ")),
            }
        }
        if verdict.misses(Objective::KUBERNETES).is_empty() {
            held = Some(nodes);
        } else {
            break;
        }
    }
    match held {
        Some(nodes) => println!("\n{}: {nodes} nodes hold the Kubernetes objectives", server.name),
        None => println!("\n{}: no stage holds the Kubernetes objectives", server.name),
    }
    Ok(())
}

fn megabytes(mb: Option<f64>) -> String {
    mb.map_or("n/a".to_owned(), |mb| format!("{mb:.0} MB"))
}

/// Of everything that is no node.
const CONNECTIONS: usize = 4;
const WARM_UP: Duration = Duration::from_secs(10);
/// For the watches of a stage to begin.
const START_TIMEOUT: Duration = Duration::from_mins(10);
