//! The server: parses flags into `Options` and runs it. The binary `pintle` is [`command_line`]; inside another
//! process it is a [`HostedServer`].

mod access;
mod admission_manifests;
mod apiservice_autoregistration;
mod auth_stack;
mod build_metrics;
mod cache_follower;
mod cache_informer;
mod commands;
mod consistency_checks;
mod discovery_publisher;
mod dynamic_admission;
mod egress;
mod encryption_at_rest;
mod envtest;
mod feature_gates;
mod flags;
mod foreign_charges;
mod help;
mod hosted;
mod in_process;
mod logging;
mod man_page;
mod measured_store;
mod migrate;
mod node_connections;
mod node_relations;
mod object_counts;
mod open_id;
mod options;
mod post_start_hooks;
mod prepare_run;
mod quotas;
mod roles;
mod run;
mod schema_metrics;
mod servers;
mod service_objects;
mod serving;
mod shell_completion;
mod span_export;
mod standalone_controllers;
mod storage_metrics;
mod stores;
mod tokens;
mod version;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use builtin::Definitions;
use tracing::{info, warn};

use envtest::Role;
use flags::{Parsed, VersionFlag};
use options::Options;

pub use hosted::{HostOptions, HostedServer};

/// What the program does with its arguments; the first is its name.
pub fn command_line(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let role = Role::of(args.next().as_deref());
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    let ended = match role {
        Role::Etcd => envtest::run_etcd(&args).map_err(|error| vec![error]),
        Role::Pintle | Role::ApiServer => start(&args, role),
    };
    logging::flush();
    match ended {
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
fn start(args: &[String], role: Role) -> Result<(), Vec<String>> {
    if let Some(done) = commands::run(args) {
        print(&done.map_err(|error| vec![error])?);
        return Ok(());
    }
    let parsed = flags::parse(args.iter().cloned());
    let mut parsed = parsed.map_err(|error| vec![error.to_string()])?;
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

    if role == Role::ApiServer {
        envtest::keep_in_memory(&mut parsed).map_err(|error| vec![error])?;
    }
    let definitions = Definitions::load();
    let mut options = Options::from_parsed(&parsed, &definitions)?;
    if role == Role::ApiServer {
        options.namespace_grace = envtest::NAMESPACE_GRACE;
    }
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
    if role == Role::ApiServer {
        info!("objects are kept in memory: etcd in the same directory is a stand-in");
    }
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
