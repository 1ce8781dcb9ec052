//! `pintle-bench run`: the chosen scenarios on each server, one server after the other.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::args::{RunArgs, ServerArgs};
use crate::client::{Call, Client, Keep, Target};
use crate::kubeconfig::Credentials;
use crate::report::{self, Results};
use crate::scenarios::{self, Scenario, Sizes, World};

pub(crate) async fn run(args: &RunArgs) -> Result<()> {
    let chosen = scenarios::chosen(&args.scenarios)?;
    let sizes =
        Sizes { pods: args.pods, watchers: args.watchers, cap: Duration::from_secs(args.seconds) };
    let mut all = Vec::new();
    for server in &args.servers {
        let results = run_server(server, sizes, &chosen)
            .await
            .with_context(|| format!("on {} ({})", server.name, server.url))?;
        println!("{}", report::table(&results));
        if let Some(table) = report::linear_table(&results) {
            println!("{table}");
        }
        all.push(results);
    }
    if let [baseline, candidate] = &all[..] {
        println!("{}", report::ratio_table(baseline, candidate));
    }
    if let Some(file) = &args.json {
        Results::write(&all, file)?;
    }
    Ok(())
}

async fn run_server(server: &ServerArgs, sizes: Sizes, chosen: &[&Scenario]) -> Result<Results> {
    let credentials = Credentials::load(&server.credentials)?;
    let target = Target::new(&server.url, &credentials)?;
    wait_until_ready(&target).await?;
    let mut world = World::new(&target, &server.pids, sizes).await?;
    let version = version(&world).await?;
    world.reset().await.context("preparing the namespaces")?;
    let mut rows = Vec::new();
    for scenario in chosen {
        let row = scenario.run(&mut world).await;
        eprintln!("{}: {}", server.name, report::line(&row));
        rows.push(row);
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    Ok(Results { server: server.name.clone(), version, cores, rows })
}

/// A server that was launched a moment ago may be named as well.
async fn wait_until_ready(target: &Target) -> Result<()> {
    let begun = Instant::now();
    let mut tries = 0;
    while let Err(error) = Client::ready(target).await {
        tries += 1;
        anyhow::ensure!(begun.elapsed() < READY_MAX, "not ready: {error:#}");
        tokio::time::sleep(READY_POLL_EVERY).await;
    }
    if tries > 0 {
        // Its caches fill and its defaults are written in the first moments.
        tokio::time::sleep(SETTLE).await;
    }
    Ok(())
}

async fn version(world: &World) -> Result<String> {
    let answer = world.client.ok(&Call::get("/version"), Keep::All).await?;
    let version: serde_json::Value = serde_json::from_slice(&answer.kept)?;
    Ok(version["gitVersion"].as_str().unwrap_or("unknown version").to_owned())
}

const READY_MAX: Duration = Duration::from_mins(1);
const READY_POLL_EVERY: Duration = Duration::from_millis(200);
const SETTLE: Duration = Duration::from_secs(2);
