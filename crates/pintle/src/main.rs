//! `pintle`: flags become options, options become a server.

mod access;
mod flags;
mod follow;
mod gates;
mod help;
mod hooks;
mod in_process;
mod logging;
mod options;
mod run;
mod storage_metrics;
mod version;

use std::io::Write;
use std::process::ExitCode;

use tracing::{info, warn};

use flags::{Parsed, VersionFlag};
use options::Options;

/// The group/versions that `--runtime-config` may name: those that Kubernetes serves by default.
/// Naming any other is an error, because enabling it would change nothing.
const API_VERSIONS: &[&str] = &[
    "v1",
    "admissionregistration.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "apiregistration.k8s.io/v1",
    "apps/v1",
    "authentication.k8s.io/v1",
    "authorization.k8s.io/v1",
    "autoscaling/v1",
    "autoscaling/v2",
    "batch/v1",
    "certificates.k8s.io/v1",
    "coordination.k8s.io/v1",
    "discovery.k8s.io/v1",
    "events.k8s.io/v1",
    "flowcontrol.apiserver.k8s.io/v1",
    "networking.k8s.io/v1",
    "node.k8s.io/v1",
    "policy/v1",
    "rbac.authorization.k8s.io/v1",
    "resource.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "storage.k8s.io/v1",
];

/// Many small allocations of the same sizes from several threads are what the server does all day.
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

/// Everything up to the running server. What is wrong is returned one line each.
fn start() -> Result<(), Vec<String>> {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
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

    let options = Options::new(&parsed, API_VERSIONS, &options::default_route)?;
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
    run::run(&options, verbosity).map_err(|error| vec![error])
}

/// Empty arguments are forgiven, as scripts with unset variables produce them.
fn refuse_arguments(parsed: &Parsed) -> Result<(), Vec<String>> {
    if parsed.arguments.iter().all(String::is_empty) {
        return Ok(());
    }
    let quoted: Vec<_> = parsed.arguments.iter().map(|argument| flags::quote(argument)).collect();
    Err(vec![format!("\"pintle\" does not take any arguments, got [{}]", quoted.join(" "))])
}

/// To standard output, where a reader that has seen enough (`| head`) is no error.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
