//! `pintle-bench` puts the same work on any Kubernetes API server and prints what it cost.
//!
//! The load generator shares the machine with the server under test, so it is built to be cheap: one
//! thread, four HTTP/2 connections, response bodies counted instead of parsed. What a server does not
//! support is reported as `n/a`, never as fast.
//!
//! Reading order: [`args`], [`kubeconfig`], [`client`] (how to talk to a server), [`proc`] and [`load`]
//! (how to measure), [`bodies`] and [`verify`] (what is sent, and whether the answer was right),
//! [`scenarios`] (the work itself) and [`webhook`] (that servers call), [`start`] (time to ready), [`cluster`] (a
//! simulated cluster), [`report`] (tables and ratios).

mod args;
mod bodies;
mod client;
mod cluster;
mod echo;
mod fairness;
mod kubeconfig;
mod kubelet;
mod load;
mod proc;
mod remote_server;
mod report;
mod run;
mod scenarios;
mod start;
mod tls_server;
mod verify;
mod webhook;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pintle-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let Some((command, rest)) = arguments.split_first() else {
        print!("{}", args::USAGE);
        return Ok(());
    };
    match command.as_str() {
        "run" => block_on(run::run(&args::run(rest)?)),
        "fairness" => fairness::run(&args::run(rest)?),
        "cluster" => cluster::run(&args::cluster(rest)?),
        "start" => block_on(start::start(&args::start(rest)?)),
        "compare" => compare(rest),
        "scenarios" => {
            scenarios::print_names();
            Ok(())
        }
        "help" | "--help" | "-h" => {
            print!("{}", args::USAGE);
            Ok(())
        }
        other => bail!("unknown command {other:?}; see pintle-bench help"),
    }
}

/// One thread: the generator can never take more than one core from the server, and needs no locks.
fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?
        .block_on(work)
}

fn compare(files: &[String]) -> Result<()> {
    let [baseline, candidate] = files else {
        bail!("compare takes two result files: the baseline, then the candidate");
    };
    let baseline = report::Results::read(baseline)?;
    let candidate = report::Results::read(candidate)?;
    println!("{}", report::ratio_table(&baseline, &candidate));
    Ok(())
}
