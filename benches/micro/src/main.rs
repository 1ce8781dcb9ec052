//! `pintle-micro` runs one small, fixed piece of the server's work a number of times, so that a tool that counts
//! instructions can be put around it: `tools/bench-check`.
//!
//! A count is the difference between a run of `n` rounds and one of `2n`, divided by `n`: what happens before the
//! first round cancels out. So a workload prepares everything it can, uses one thread and no socket, and does not
//! depend on the time of day. The allocator is the C library's and not the server's mimalloc, which gives memory
//! back to the kernel by the clock.
//!
//! [`workloads`] is the table; [`server`] is the registry over a store in memory, for those that are whole requests.

mod server;
mod workloads;

use std::process::ExitCode;

use self::workloads::{WORKLOADS, Workload};

const USAGE: &str = "usage: pintle-micro list | run NAME ROUNDS\n";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["list"] => {
            for workload in WORKLOADS {
                println!("{}\t{}", workload.name, workload.rounds);
            }
            ExitCode::SUCCESS
        }
        ["run", name, rounds] => {
            let workload = WORKLOADS.iter().find(|workload| workload.name == name);
            match (workload, rounds.parse()) {
                (Some(workload), Ok(rounds)) => {
                    run(workload, rounds);
                    ExitCode::SUCCESS
                }
                (None, _) => failed(&format!("there is no workload {name:?}\n")),
                (_, Err(_)) => failed(&format!("ROUNDS is not a number: {rounds:?}\n")),
            }
        }
        _ => failed(USAGE),
    }
}

fn failed(why: &str) -> ExitCode {
    eprint!("{why}");
    ExitCode::FAILURE
}

fn run(workload: &Workload, rounds: usize) {
    let mut round = (workload.prepare)();
    for number in 0..rounds {
        round(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_runs() {
        for workload in WORKLOADS {
            run(workload, 2);
        }
    }

    /// Otherwise only `make bench-check` would say so, which is not part of `make test`.
    #[test]
    fn every_workload_has_a_committed_count() {
        let committed = include_str!("../../instructions.tsv").lines();
        let committed = committed.filter(|line| !line.starts_with('#'));
        let committed: Vec<&str> =
            committed.map(|line| line.split('\t').next().unwrap_or_default()).collect();
        let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        assert_eq!(committed, names, "tools/bench-check --update");
    }
}
