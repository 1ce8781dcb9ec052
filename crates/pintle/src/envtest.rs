//! `pintle envtest`: a directory of programs for `KUBEBUILDER_ASSETS`, so that controller-runtime's envtest
//! needs neither etcd nor a download.
//!
//! All programs in it are this one, and act by the name that they are called by. `etcd` is a stand-in that
//! only says that it is healthy: `kube-apiserver` beside it keeps its objects in memory.

use std::{
    convert::Infallible,
    ffi::{OsStr, OsString},
    fs,
    net::SocketAddr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::flags::Parsed;

pub(crate) const USAGE: &str = "  pintle envtest DIR [--copy]                    make DIR a value of KUBEBUILDER_ASSETS: kube-apiserver, etcd
                                                 and kubectl, if one is found, as links or with a copy
";

/// What the program is, by the name that it was called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Whatever the arguments say.
    Pintle,
    /// `kube-apiserver` of a directory that `pintle envtest` has made.
    ApiServer,
    /// `etcd` of such a directory.
    Etcd,
}

impl Role {
    /// `program` is how the process was started: `argv[0]`.
    pub(crate) fn of(program: Option<&OsStr>) -> Self {
        let Some(program) = program.map(Path::new) else { return Self::Pintle };
        let name = program.file_name().and_then(OsStr::to_str);
        match name {
            Some("etcd") => Self::Etcd,
            Some("kube-apiserver") if etcd_is_stand_in(program) => Self::ApiServer,
            _ => Self::Pintle,
        }
    }
}

/// Whether the `etcd` beside this `kube-apiserver` is the same program. Beside a real etcd, or alone, it is
/// a kube-apiserver like any other.
fn etcd_is_stand_in(program: &Path) -> bool {
    let same = |one: &Path, other: &Path| matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other);
    // Found through PATH it has no directory, and then no etcd beside it.
    let dir = program.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.is_some_and(|dir| same(program, &dir.join("etcd")))
}

/// Replaces the etcd of envtest's flags by the store in memory. What envtest's users do without (namespaces
/// that end, owned objects that are collected) is on; controllers that create objects in every namespace are not:
/// suites count objects.
pub(crate) fn keep_in_memory(parsed: &mut Parsed) -> Result<(), String> {
    parsed.forget("etcd-servers");
    for (flag, value) in [
        ("storage-backend", "memory"),
        (
            "standalone-controllers",
            "*,-serviceaccount-controller,-root-ca-certificate-publisher-controller",
        ),
    ] {
        parsed.set_default(flag, value).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Compat: where no controller does it, suites delete namespaces by removing the finalizer themselves
/// (controller-runtime's read the namespace and write it back, and take a 404 in between for a failure). They come
/// first; those that rely on the controller wait a moment.
pub(crate) const NAMESPACE_GRACE: Duration = Duration::from_millis(250);

/// Makes the directory. Returns what to print.
pub(crate) fn make_assets(args: &[String]) -> Result<String, String> {
    let mut dir = None;
    let mut copy = false;
    for arg in args {
        match arg.as_str() {
            "--copy" => copy = true,
            flag if flag.starts_with('-') => return Err(format!("unknown flag: {flag}\n{USAGE}")),
            name if dir.is_none() => dir = Some(PathBuf::from(name)),
            _ => return Err(format!("too many arguments\n{USAGE}")),
        }
    }
    let dir = dir.ok_or_else(|| format!("a directory is needed\n{USAGE}"))?;
    let program = std::env::current_exe().map_err(|error| format!("own program: {error}"))?;
    let kubectl = find_program("kubectl", std::env::var_os("PATH").unwrap_or_default());
    let dir = write_assets(&dir, &program, kubectl.as_deref(), copy)
        .map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(format!("export KUBEBUILDER_ASSETS={}\n", dir.display()))
}

fn write_assets(
    dir: &Path,
    program: &Path,
    kubectl: Option<&Path>,
    copy: bool,
) -> std::io::Result<PathBuf> {
    fs::create_dir_all(dir)?;
    let dir = dir.canonicalize()?;
    let apiserver = dir.join("kube-apiserver");
    if copy {
        // Beside the old one and then renamed: a running one is not disturbed.
        let new = dir.join(".kube-apiserver.new");
        fs::copy(program, &new)?;
        refuse_other(&apiserver)?;
        fs::rename(&new, &apiserver)?;
        link(Path::new("kube-apiserver"), &dir.join("etcd"))?;
    } else {
        link(program, &apiserver)?;
        link(program, &dir.join("etcd"))?;
    }
    let own = dir.join("kubectl");
    if let Some(kubectl) = kubectl.filter(|kubectl| **kubectl != own)
        && !own.exists()
    {
        link(kubectl, &own)?;
    }
    Ok(dir)
}

fn link(to: &Path, at: &Path) -> std::io::Result<()> {
    refuse_other(at)?;
    match fs::remove_file(at) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(to, at)
}

/// A real etcd or kube-apiserver, which took a download, is not replaced: links and our own copies are.
fn refuse_other(at: &Path) -> std::io::Result<()> {
    let Ok(found) = fs::symlink_metadata(at) else { return Ok(()) };
    let own = at.file_name() == Some(OsStr::new("kube-apiserver")) && etcd_is_stand_in(at);
    if found.is_symlink() || own {
        return Ok(());
    }
    let name = at.file_name().unwrap_or_default().to_string_lossy();
    Err(std::io::Error::other(format!("there is another {name}; choose an empty directory")))
}

/// The first program of that name in the directories of `PATH`.
fn find_program(name: &str, path: OsString) -> Option<PathBuf> {
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

/// The flags of etcd that envtest gives, and that it looks for in `--help`.
const ETCD_FLAGS: [(&str, &str); 5] = [
    ("listen-client-urls", "Where to answer /health, as http://host:port."),
    ("advertise-client-urls", "No effect: there is one server."),
    ("listen-peer-urls", "No effect: there are no peers."),
    ("data-dir", "No effect: nothing is stored."),
    ("unsafe-no-fsync", "No effect: nothing is stored."),
];

/// Runs as envtest's etcd until a signal ends it.
pub(crate) fn run_etcd(args: &[String]) -> Result<(), String> {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        let flags = ETCD_FLAGS.map(|(name, help)| format!("  --{name}\n        {help}\n"));
        let text =
            "A stand-in for etcd: the kube-apiserver beside it keeps its objects in memory.\n";
        crate::print(&format!("{text}\n{}", flags.concat()));
        return Ok(());
    }
    if args.iter().any(|arg| arg == "--version") {
        crate::print("etcd Version: 3.6.0\nPintle's stand-in for tests\n");
        return Ok(());
    }
    let (address, ignored) = etcd_address(args)?;
    for flag in ignored {
        eprintln!("--{flag} has no effect: this etcd is a stand-in, and stores nothing");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.block_on(serve_etcd(address))
}

/// Where to listen, and the flags that would mean something to a real etcd.
fn etcd_address(args: &[String]) -> Result<(SocketAddr, Vec<&str>), String> {
    let (mut address, mut ignored) = (None, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(flag) = arg.strip_prefix("--") else {
            return Err(format!("unknown argument: {arg}"));
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, None),
        };
        match name {
            "listen-client-urls" => {
                let value = value.or_else(|| args.next().map(String::as_str)).unwrap_or_default();
                let host = value.strip_prefix("http://").map(|host| host.trim_end_matches('/'));
                let host = host.map(|host| host.replace("localhost:", "127.0.0.1:"));
                let parsed = host.and_then(|host| host.parse().ok());
                address = Some(parsed.ok_or_else(|| {
                    format!("--listen-client-urls: one http://address:port is needed, not {value}")
                })?);
            }
            known if ETCD_FLAGS.iter().any(|(flag, _)| *flag == known) => {
                if value.is_none() && known != "unsafe-no-fsync" {
                    args.next();
                }
            }
            other => ignored.push(other),
        }
    }
    let address = address.ok_or("--listen-client-urls is needed")?;
    Ok((address, ignored))
}

/// For the header of a request; a client that says nothing is not waited for.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

async fn serve_etcd(address: SocketAddr) -> Result<(), String> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| format!("failed to listen on {address}: {error}"))?;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        tokio::spawn(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service_fn(answer_as_etcd)),
        );
    }
}

async fn answer_as_etcd(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (code, body) = match request.uri().path() {
        "/health" => (StatusCode::OK, r#"{"health":"true","reason":""}"#),
        "/version" => (StatusCode::OK, r#"{"etcdserver":"3.6.0","etcdcluster":"3.6.0"}"#),
        _ => (
            StatusCode::NOT_FOUND,
            r#"{"error":"a stand-in for etcd: the kube-apiserver beside it keeps its objects in memory"}"#,
        ),
    };
    let response = Response::builder().status(code).header(CONTENT_TYPE, "application/json");
    Ok(response.body(Full::new(Bytes::from_static(body.as_bytes()))).expect("a valid response"))
}

#[cfg(test)]
mod tests;
