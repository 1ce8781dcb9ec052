//! Runs one target or all of them for the given time; the library has the documentation.

use std::{env, process::ExitCode, time::Duration};

use fuzz::{TARGETS, drive};

const USAGE: &str = "usage: fuzz <target>|all|list [--seconds N] [--seed N]";

/// For each target, unless `--seconds` says otherwise.
const SECONDS: u64 = 60;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut words = env::args().skip(1);
    let name = words.next().ok_or(USAGE)?;
    let (mut seconds, mut seed) = (SECONDS, None);
    while let Some(flag) = words.next() {
        let number = words.next().and_then(|word| word.parse().ok()).ok_or(USAGE)?;
        match flag.as_str() {
            "--seconds" => seconds = number,
            "--seed" => seed = Some(number),
            _ => return Err(USAGE.to_owned()),
        }
    }
    let targets: Vec<_> =
        TARGETS.iter().filter(|target| name == "all" || name == target.name).collect();
    if name == "list" || targets.is_empty() {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        return Err(format!("{USAGE}\ntargets: {}", names.join(" ")));
    }
    for target in targets {
        // A new seed each time, unless one is given.
        let seed = seed.unwrap_or_else(from_clock);
        let report = drive(target, seed, Duration::from_secs(seconds));
        println!("{}: {} inputs, {} endings, seed {seed}", target.name, report.inputs, report.kept);
    }
    Ok(())
}

fn from_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| since.as_nanos() as u64)
}
