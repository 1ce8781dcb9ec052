//! Feeds a target until the time is up.

use std::{
    collections::HashSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use crate::{Random, Target, mutate::mutate};

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub inputs: usize,
    /// Inputs that ended in a way no other had before.
    pub kept: usize,
}

/// Feeds a target with its seeds, and then with damaged ones, until `time` is up. An input that ends differently from all before
/// is damaged further: that is how the search gets somewhere without instruments.
///
/// Panics with the input if the target does, if it takes too long, or if memory grows too far.
pub fn drive(target: &Target, seed: u64, time: Duration) -> Report {
    let mut random = Random::new(seed);
    let mut corpus = (target.seeds)(&mut random);
    assert!(!corpus.is_empty(), "{} has nothing to begin with", target.name);
    let seeds = corpus.len();
    let mut endings = HashSet::new();
    let mut report = Report::default();
    let before = peak_memory();
    let began = Instant::now();
    while report.inputs < seeds || began.elapsed() < time {
        let input = if report.inputs < seeds {
            corpus[report.inputs].clone()
        } else {
            mutate(&corpus[random.below(corpus.len())], target.words, &corpus, &mut random)
        };
        let ending = run(target, seed, &input);
        report.inputs += 1;
        if endings.len() < ENDINGS_MAX && endings.insert(ending) {
            report.kept += 1;
            corpus.push(input);
        }
        if report.inputs.is_multiple_of(256) {
            let grown = peak_memory().saturating_sub(before);
            assert!(grown < GROWTH_BYTES_MAX, "{}: {}", target.name, failed("memory", seed, &[]));
        }
    }
    report
}

/// The number of distinct outcomes that are kept; an unbounded corpus finds less.
const ENDINGS_MAX: usize = 2000;

/// Generous, because test machines are busy; quadratic behaviour takes longer still.
const INPUT_TIME_MAX: Duration = Duration::from_secs(10);

/// All targets of a test run side by side in one process.
const GROWTH_BYTES_MAX: u64 = 2 << 30;

fn run(target: &Target, seed: u64, input: &[u8]) -> String {
    let began = Instant::now();
    let ended = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let took = began.elapsed();
    assert!(took < INPUT_TIME_MAX, "{}: {took:?} for {}", target.name, failed("time", seed, input));
    ended.unwrap_or_else(|_| panic!("{}: {}", target.name, failed("panic", seed, input)))
}

/// How to have it again.
fn failed(what: &str, seed: u64, input: &[u8]) -> String {
    format!("{what}, seed {seed}, input b\"{}\"", input.escape_ascii())
}

/// The peak memory of this process; 0 if the system does not report it.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
    kilobytes.unwrap_or(0_u64) * 1024
}
