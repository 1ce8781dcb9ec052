//! The binary `pintle`: parses flags into `Options` and runs the server.

mod access;
mod apiservice_autoregistration;
mod auth_stack;
mod build_metrics;
mod cache_informer;
mod commands;
mod discovery_publisher;
mod dynamic_admission;
mod egress;
mod encryption_at_rest;
mod feature_gates;
mod flags;
mod help;
mod in_process;
mod logging;
mod measured_store;
mod migrate;
mod node_relations;
mod object_counts;
mod options;
mod post_start_hooks;
mod prepare_run;
mod quotas;
mod roles;
mod run;
mod servers;
mod service_objects;
mod serving;
mod standalone_controllers;
mod storage_metrics;
mod stores;
mod tokens;
mod version;

use std::io::Write;
use std::process::ExitCode;

use builtin::Definitions;
use tracing::{info, warn};

use flags::{Parsed, VersionFlag};
use options::Options;

/// The server makes many small allocations of the same sizes from several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(errors) => {
            for error in errors {
                eprintln!("Error: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Parses the flags and runs the server. Returns one line per error.
fn start() -> Result<(), Vec<String>> {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let args: Vec<String> = args.collect();
    if let Some(done) = commands::run(&args) {
        print(&done.map_err(|error| vec![error])?);
        return Ok(());
    }
    let parsed = flags::parse(args).map_err(|error| vec![error.to_string()])?;
    for deprecation in &parsed.deprecations {
        eprintln!("{deprecation}");
    }
    if parsed.bool("help") {
        print(&help::text(help::terminal_width()));
        return Ok(());
    }
    refuse_arguments(&parsed)?;
    match parsed.version("version") {
        VersionFlag::Print => {
            print(&version::info(None).line());
            return Ok(());
        }
        VersionFlag::PrintRaw => {
            print(&version::info(None).raw());
            return Ok(());
        }
        VersionFlag::Off | VersionFlag::Report(_) => {}
    }

    let definitions = Definitions::load();
    // The group-versions that `--runtime-config` may name.
    let served = definitions.group_versions.iter().filter(|facts| !facts.internal);
    let api_versions: Vec<String> = served.map(|facts| facts.group_version.to_string()).collect();
    let api_versions: Vec<&str> = api_versions.iter().map(String::as_str).collect();
    let options = Options::new(&parsed, &api_versions, &options::default_route)?;
    let verbosity = logging::start(&options.logging);
    for warning in &options.warnings {
        warn!("{warning}");
    }
    if verbosity.get() >= 1 {
        for flag in flags::all() {
            info!(v = 1, "FLAG: --{}={:?}", flag.name, parsed.value(flag.name).to_string());
        }
    }
    info!("Version: {}", options.version.git_version);
    run::run(options, definitions, verbosity).map_err(|error| vec![error])
}

/// Empty arguments are ignored: scripts with unset variables produce them.
fn refuse_arguments(parsed: &Parsed) -> Result<(), Vec<String>> {
    if parsed.arguments.iter().all(String::is_empty) {
        return Ok(());
    }
    let quoted: Vec<_> = parsed.arguments.iter().map(|argument| flags::quote(argument)).collect();
    Err(vec![format!("\"pintle\" does not take any arguments, got [{}]", quoted.join(" "))])
}

/// Prints to standard output; a closed pipe (`| head`) is not an error.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
