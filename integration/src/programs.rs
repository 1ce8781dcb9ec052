//! Where the programs are that the tests start. Each is brought up to date before its first use, so
//! that a plain `cargo test` works in a fresh clone.

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// The server under test: `PINTLE_BIN`, or built here with the profile of the running tests.
///
/// Cargo passes the path of a binary only to tests of the same package, and `cargo test --workspace`
/// does not promise to build it at all.
pub fn pintle() -> &'static Path {
    static PINTLE: OnceLock<PathBuf> = OnceLock::new();
    PINTLE.get_or_init(|| match env::var_os("PINTLE_BIN") {
        Some(path) => path.into(),
        None => build_pintle(),
    })
}

fn build_pintle() -> PathBuf {
    // <target>/<profile>/deps/<test binary>
    let test = env::current_exe().expect("a test knows its own path");
    let profile = test.ancestors().nth(2).expect("tests are built into <profile>/deps");
    let target = profile.parent().expect("a profile is a directory in the target directory");
    let name = match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    // `--workspace` only chooses the features of dependencies: the same as for `cargo test
    // --workspace`, so that nothing is compiled a second time.
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--workspace", "--bin", "pintle", "--profile", name])
        .arg("--target-dir")
        .arg(target)
        .current_dir(root())
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "pintle does not build");
    profile.join("pintle")
}

/// A tool of `tools/build`, built unless it is there.
pub(crate) fn tool(name: &'static str) -> PathBuf {
    static TOOLS: Mutex<Option<HashMap<&'static str, PathBuf>>> = Mutex::new(None);
    // The lock is held while building: tests that want the same tool wait for it.
    let mut tools = TOOLS.lock().expect("a tool that does not build ends all tests that need it");
    tools
        .get_or_insert_default()
        .entry(name)
        .or_insert_with(|| {
            let status = Command::new(root().join("tools/build"))
                .arg(name)
                .status()
                .expect("tools/build can be started");
            assert!(status.success(), "{name} does not build");
            root().join("tools/bin").join(name)
        })
        .clone()
}

/// The CustomResourceDefinitions that well-known projects publish: a directory for each of them.
pub fn published_definitions() -> PathBuf {
    tool("crds")
}

/// The pods that pass and fail the Pod Security Standards: `<level>/<version>/{pass,fail}/*.yaml`.
pub fn pod_security_fixtures() -> PathBuf {
    tool("pod-security")
}

/// What cert-manager is installed from: `crds/*.yaml` and `charts/cert-manager`.
pub fn cert_manager() -> PathBuf {
    tool("cert-manager")
}

/// client-go's informers, watching while they write; see `tools/informer`.
pub fn informer() -> PathBuf {
    tool("informer")
}

/// helm 3 or 4.
pub fn helm(version: u32) -> PathBuf {
    tool(if version == 3 { "helm-3" } else { "helm" })
}

/// A suite on controller-runtime's envtest, and the directory of its definitions; see `tools/envtest`.
pub fn envtest() -> (PathBuf, PathBuf) {
    (tool("envtest"), root().join("tools/envtest/crds"))
}

/// The real kube-apiserver, if there is one: `PINTLE_PEER`, or what `make peer` has built. It is not
/// built here: that takes many minutes.
pub fn peer() -> Option<PathBuf> {
    let built = root().join("tools/bin/kube-apiserver");
    env::var_os("PINTLE_PEER").map(PathBuf::from).or_else(|| built.exists().then_some(built))
}

/// The real kube-controller-manager, if `make tools` has built one.
pub(crate) fn controller_manager() -> Option<PathBuf> {
    component("kube-controller-manager")
}

/// A component of the control plane, if `make tools` has built it.
pub(crate) fn component(name: &str) -> Option<PathBuf> {
    let built = root().join("tools/bin").join(name);
    built.exists().then_some(built)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is in the workspace")
}
