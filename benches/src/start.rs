//! `pintle-bench start`: how long from the launch of a server to ready, and what it holds when idle.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::args::StartArgs;
use crate::client::{Call, Client, Keep, Target};
use crate::kubeconfig::Credentials;
use crate::load::Latencies;
use crate::proc;
use crate::report::{self, Results, Row};

pub(crate) async fn start(args: &StartArgs) -> Result<()> {
    let mut launches = Vec::new();
    for number in 1..=args.runs {
        let launch = launch(args, number).await?;
        eprintln!(
            "{}: start {number}: ready after {:.0} ms, {:.0} ms of CPU; idle: {:.1} MB, {:.1} ms of CPU per s",
            args.name,
            launch.ready.as_secs_f64() * 1e3,
            launch.cpu_ms,
            launch.rss_mb,
            launch.idle_cpu_ms_per_s
        );
        launches.push(launch);
    }
    let results = summary(&args.name, &launches);
    println!("{}", report::table(&results));
    if let Some(file) = &args.json {
        Results::write(&[results], file)?;
    }
    Ok(())
}

/// The measurements of one launch.
struct Launch {
    version: String,
    ready: Duration,
    cpu_ms: f64,
    rss_mb: f64,
    idle_cpu_ms_per_s: f64,
}

async fn launch(args: &StartArgs, number: usize) -> Result<Launch> {
    let command = args.command.replace("{n}", &number.to_string());
    let begun = Instant::now();
    // `exec`, so that the child is the server and not a shell around it.
    let child = Command::new("sh")
        .args(["-c", &format!("exec {command}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("launching {command}"))?;
    let mut server = Server(child);
    let launch = observe(args, &mut server, begun).await;
    server.stop().await;
    launch
}

async fn observe(args: &StartArgs, server: &mut Server, begun: Instant) -> Result<Launch> {
    let client = wait_until_ready(args, server, begun).await?;
    let ready = begun.elapsed();
    let pid = server.0.id();
    let gone = "the server ended after it was ready";
    let cpu_ms = proc::fine_cpu_ms(pid).context(gone)?;

    let version = client.ok(&Call::get("/version"), Keep::All).await;
    let settle = Duration::from_secs(args.settle_seconds);
    let settling = Instant::now();
    tokio::time::sleep(settle).await;
    let idle_ms = proc::fine_cpu_ms(pid).context(gone)? - cpu_ms;
    Ok(Launch {
        version: version.ok().and_then(|answer| git_version(&answer.kept)).unwrap_or_default(),
        ready,
        cpu_ms,
        rss_mb: proc::rss_mb(&[pid]).context(gone)?,
        idle_cpu_ms_per_s: idle_ms / settling.elapsed().as_secs_f64().max(1e-3),
    })
}

/// Asks until `/readyz` answers 200. The credentials are read anew each time: a server may write its
/// kubeconfig while it starts.
async fn wait_until_ready(args: &StartArgs, server: &mut Server, begun: Instant) -> Result<Client> {
    let mut last = String::from("nothing tried");
    while begun.elapsed() < READY_MAX {
        if let Some(status) = server.0.try_wait()? {
            bail!("the server ended before it was ready: {status}");
        }
        match ask_ready(args).await {
            Ok(client) => return Ok(client),
            Err(error) => last = format!("{error:#}"),
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
    bail!("not ready after {} s: {last}", READY_MAX.as_secs())
}

async fn ask_ready(args: &StartArgs) -> Result<Client> {
    let credentials = Credentials::load(&args.credentials)?;
    let url = args.url.as_ref().or(credentials.server.as_ref()).context("no URL")?;
    Client::ready(&Target::new(url, &credentials)?).await
}

fn git_version(body: &[u8]) -> Option<String> {
    let version: serde_json::Value = serde_json::from_slice(body).ok()?;
    version["gitVersion"].as_str().map(str::to_owned)
}

/// The launched process.
struct Server(Child);

impl Server {
    /// Sends SIGTERM, and SIGKILL if it does not exit.
    async fn stop(mut self) {
        drop(Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status());
        let asked = Instant::now();
        while asked.elapsed() < STOP_MAX {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn summary(name: &str, launches: &[Launch]) -> Results {
    let mut ready = Latencies::default();
    for launch in launches {
        ready.push(launch.ready);
    }
    let median = |of: fn(&Launch) -> f64| {
        let mut values: Vec<f64> = launches.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        Some(values[values.len() / 2])
    };
    let start = Row {
        name: "start".to_owned(),
        title: "start to /readyz (p99: the slowest; RSS: idle)".to_owned(),
        ops: launches.len(),
        p50_ms: ready.quantile_ms(0.5),
        p99_ms: ready.quantile_ms(1.0),
        cpu_ms_per_op: median(|launch| launch.cpu_ms),
        rss_mb: median(|launch| launch.rss_mb),
        ..Row::default()
    };
    let idle = Row {
        name: "idle".to_owned(),
        title: "idle (CPU: ms per s)".to_owned(),
        ops: launches.len(),
        cpu_ms_per_op: median(|launch| launch.idle_cpu_ms_per_s),
        rss_mb: median(|launch| launch.rss_mb),
        ..Row::default()
    };
    Results {
        server: name.to_owned(),
        version: launches.first().map(|launch| launch.version.clone()).unwrap_or_default(),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        rows: vec![start, idle],
    }
}

/// A server that takes longer is broken, not slow.
const READY_MAX: Duration = Duration::from_mins(1);
/// Often enough for a server that starts in milliseconds.
const POLL_EVERY: Duration = Duration::from_millis(2);
const STOP_MAX: Duration = Duration::from_secs(20);
