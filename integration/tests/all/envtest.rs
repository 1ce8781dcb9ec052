//! `pintle envtest`: controller-runtime's envtest without etcd and without a download.

use std::process::{Command, Stdio};

use integration::{envtest, pintle_program};

/// The suite of `tools/envtest`, which starts the environment twice. It fails if a program of the directory
/// does not do what envtest needs, if a round finds objects of the one before, or if owned objects and
/// namespaces stay.
#[test]
fn a_suite_runs_with_the_programs_of_the_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let (assets, scratch) = (directory.path().join("assets"), directory.path().join("scratch"));
    std::fs::create_dir(&scratch).expect("can be made");
    let made = Command::new(pintle_program()).arg("envtest").arg(&assets).output();
    let made = made.expect("pintle can be started");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let printed = String::from_utf8_lossy(&made.stdout).into_owned();
    let path = printed.trim().strip_prefix("export KUBEBUILDER_ASSETS=").expect("what to type");

    let (suite, definitions) = envtest();
    let ran = Command::new(suite)
        .arg(definitions)
        .env("KUBEBUILDER_ASSETS", path)
        .env("TMPDIR", &scratch)
        .current_dir(&scratch)
        .stdin(Stdio::null())
        .output()
        .expect("the suite can be started");
    let (out, log) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{log}");
    assert_eq!(out.lines().count(), 2, "{out}");
    println!("{out}");
    let left: Vec<_> = std::fs::read_dir(&scratch).expect("readable").collect();
    assert!(left.is_empty(), "files are left: {left:?}");
}
