//! What the flags of the start do, and what a start does that cannot go on.

use std::process::{Command, Output, Stdio};
use std::thread;

use integration::{Flavour, KmsPlugin, Server, eventually, pintle_program};
use serde_json::json;

/// Runs Pintle with flags that it refuses.
fn refused(flags: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(pintle_program());
    command.arg(format!("--data-dir={}", directory.path().display())).arg("--secure-port=0");
    command.args(flags).stdin(Stdio::null()).output().expect("pintle can be started")
}

/// The health checks of kube-apiserver v1.36 with its default flags, in its order.
const READYZ: &str = include_str!("readyz-checks.txt");

#[test]
fn health_checks_have_kube_apiservers_names_and_order() {
    let server = Server::start();
    let http = server.http();
    let names = |path: &str| -> Vec<String> {
        let verbose = http.get(&format!("{path}?verbose"));
        assert_eq!(verbose.code, 200, "{}", verbose.text());
        let text = verbose.text();
        let lines = text.lines().filter_map(|line| line.strip_prefix("[+]"));
        lines.filter_map(|line| line.strip_suffix(" ok")).map(str::to_owned).collect()
    };
    let expected = |letter: char| -> Vec<String> {
        let rows = READYZ.lines().filter_map(|line| line.split_once('\t'));
        let rows = rows.filter(|(endpoints, _)| endpoints.contains(letter));
        rows.map(|(_, name)| name.to_owned()).collect()
    };
    assert_eq!(names("/readyz"), expected('r'));
    assert_eq!(names("/livez"), expected('l'));
    assert_eq!(names("/healthz"), expected('h'));
    for name in expected('l') {
        assert_eq!(http.get(&format!("/livez/{name}")).text(), "ok", "{name}");
    }
}

#[test]
fn any_api_may_be_off_or_the_start_says_why_not() {
    let server = Server::start();
    if server.flavour().is_peer() {
        return;
    }
    let services = server.http().get("/apis/apiregistration.k8s.io/v1/apiservices").expect(200);
    let versions = services["items"].as_array().expect("a list").iter().map(|service| {
        let spec = |field: &str| service["spec"][field].as_str().unwrap_or_default().to_owned();
        match spec("group") {
            group if group.is_empty() => spec("version"),
            group => format!("{group}/{}", spec("version")),
        }
    });
    let mut versions: Vec<String> = versions.collect();
    versions.push("apiregistration.k8s.io/v1".to_owned());
    assert!(versions.len() > 15, "{versions:?}");
    thread::scope(|scope| {
        for versions in versions.chunks(versions.len().div_ceil(4)) {
            scope.spawn(move || versions.iter().for_each(|version| start_without(version)));
        }
    });
}

fn start_without(version: &str) {
    let config = format!("--runtime-config={version}=false");
    let needed = match version {
        "v1" => "which the server itself needs",
        "rbac.authorization.k8s.io/v1" => "which --authorization-mode=RBAC needs",
        "networking.k8s.io/v1" => "which the addresses of services are kept in",
        "flowcontrol.apiserver.k8s.io/v1" => "conflicts with --enable-priority-and-fairness=true",
        _ => {
            let server = Server::with(Flavour::Embedded, &[&config]);
            let http = server.http();
            let ready = http.get("/readyz?verbose");
            assert_eq!(ready.code, 200, "{version}: {}", ready.text());
            assert_eq!(http.get(&format!("/apis/{version}")).code, 404, "{version}");
            http.get("/api/v1/namespaces/default/services/kubernetes").expect(200);
            return;
        }
    };
    let output = refused(&[&config]);
    assert_eq!(output.status.code(), Some(1), "{version}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains(needed), "{version}: {error}");
}

#[test]
fn stages_may_be_off_or_the_start_says_why_not() {
    let cases = [
        ("api/all=false", "invalid runtime-config with only api/all=false"),
        ("api/ga=false", "turns v1 off"),
        ("api/all=false,v1=true", "which --authorization-mode=RBAC needs"),
    ];
    for (config, expected) in cases {
        let output = refused(&[&format!("--runtime-config={config}")]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{config}: {error}");
    }
    let config = "--runtime-config=api/all=false,api/beta=true,v1=true,\
                  rbac.authorization.k8s.io/v1=true,networking.k8s.io/v1=true";
    let server = Server::with(Flavour::Embedded, &[config, "--enable-priority-and-fairness=false"]);
    assert_eq!(server.http().get("/readyz").text(), "ok");
}

#[test]
fn feature_gates_of_any_stage_can_be_set() {
    for gates in ["AllAlpha=true,AllBeta=true", "AllBeta=false", "AllAlpha=false,AllBeta=true"] {
        let flag = format!("--feature-gates={gates}");
        let config = "--runtime-config=api/all=true";
        let server = Server::with(Flavour::Embedded, &[&flag, config]);
        let ready = server.http().get("/readyz?verbose");
        assert_eq!(ready.code, 200, "{gates}: {}", ready.text());
        let listed = ready.text().contains("start-kube-apiserver-identity-lease-controller");
        assert_eq!(listed, gates != "AllBeta=false", "the hooks of a gate go with it");
    }
}

#[test]
fn a_start_waits_for_a_kms_plugin_and_can_be_stopped_meanwhile() {
    let mut plugin = KmsPlugin::start("test", "key-one");
    let config = format!("--encryption-provider-config={}", plugin.config.display());
    let mut server = Server::with(Flavour::Embedded, &[&config]);
    let secrets = "/api/v1/namespaces/default/secrets";
    server.http().post(secrets, &json!({"metadata": {"name": "s"}})).expect(201);
    assert!(server.stop().success());

    plugin.stop();
    let waiting = thread::spawn(move || {
        server.start_again();
        server
    });
    plugin.start_again();
    let server = waiting.join().expect("the start goes on");
    server.http().get(&format!("{secrets}/s")).expect(200);

    plugin.stop();
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = Command::new(pintle_program())
        .arg(format!("--data-dir={}", directory.path().display()))
        .args(["--secure-port=0", &config])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(directory.path().join("log")).expect("a file"))
        .spawn()
        .expect("pintle can be started");
    eventually("it says what it waits for", || {
        let log = std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
        log.contains("waiting for it").then_some(())
    });
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(killed.expect("kill can be run").success());
    let status = eventually("it ends", || child.try_wait().expect("a child"));
    assert!(status.success(), "{status}");
}

#[test]
fn the_kubernetes_service_has_the_port_and_the_endpoints_of_the_flags() {
    let flags = [
        "--kubernetes-service-node-port=30443",
        "--advertise-address=192.0.2.7",
        "--endpoint-reconciler-type=master-count",
    ];
    let server = Server::with(Flavour::from_env(), &flags);
    let http = server.http();
    let service = http.get("/api/v1/namespaces/default/services/kubernetes").expect(200);
    assert_eq!(service["spec"]["type"], "NodePort");
    assert_eq!(service["spec"]["ports"][0]["nodePort"], 30443);
    let endpoints = http.get("/api/v1/namespaces/default/endpoints/kubernetes").expect(200);
    assert_eq!(endpoints["subsets"][0]["addresses"], json!([{"ip": "192.0.2.7"}]));
}

#[test]
fn versions_to_emulate_are_checked() {
    let cases = [
        ("--emulated-version=1.35", "it has the behaviour of 1.36 only"),
        ("--emulated-version=kube=1.20", "emulation version 1.20 is not between [1.33, 1.36]"),
        ("--min-compatibility-version=1.37", "is not between [1.33, 1.36]"),
        ("--emulation-forward-compatible=true", "the same as the binary version"),
        ("--peer-advertise-ip=nowhere", "is not an IP address"),
    ];
    for (flag, expected) in cases {
        let output = refused(&[flag]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{flag}: {error}");
    }
    let flags = ["--emulated-version=kube=1.36", "--min-compatibility-version=kube=1.34"];
    let server = Server::with(Flavour::from_env(), &flags);
    let version = server.http().get("/version").expect(200);
    assert_eq!(version["emulationMinor"], "36");
    assert_eq!(version["minCompatibilityMinor"], "34");
}
