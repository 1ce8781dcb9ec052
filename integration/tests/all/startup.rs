//! What the flags of the start do, and what a start does that cannot go on.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use integration::{Flavour, Http, KmsPlugin, Server, etcd_url, eventually, pintle_program};
use serde_json::json;
use tempfile::TempDir;

/// Runs Pintle with flags that it refuses.
fn refused(flags: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(pintle_program());
    command.arg(format!("--data-dir={}", directory.path().display())).arg("--secure-port=0");
    command.args(flags).stdin(Stdio::null()).output().expect("pintle can be started")
}

/// A server in a working directory of its own; ends with SIGTERM.
struct Started {
    process: Child,
    directory: TempDir,
    url: String,
}

impl Started {
    fn new(flags: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let tokens = directory.path().join("tokens.csv");
        std::fs::write(&tokens, "secret,jane,1,system:masters\n").expect("writable");
        let mut process = Command::new(pintle_program())
            .current_dir(directory.path())
            .args(["--bind-address=127.0.0.1", "--secure-port=0"])
            .arg(format!("--token-auth-file={}", tokens.display()))
            .arg(format!("--cert-dir={}", directory.path().join("certs").display()))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("pintle can be started");
        let mut line = String::new();
        let output = process.stdout.take().expect("is piped");
        BufReader::new(output).read_line(&mut line).expect("readable");
        let url = line.trim().strip_prefix("Ready at ").unwrap_or_else(|| panic!("{line:?}"));
        Self { url: url.to_owned(), process, directory }
    }

    /// A client that trusts the certificate in `--cert-dir`.
    fn http(&self) -> Http {
        let kubeconfig = json!({
            "clusters": [{"name": "c", "cluster": {
                "server": self.url,
                "certificate-authority": self.directory.path().join("certs/apiserver.crt"),
            }}],
            "users": [{"name": "jane", "user": {"token": "secret"}}],
        });
        let file = self.directory.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig.to_string()).expect("writable");
        Http::new(&file)
    }

    fn files(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.directory.path()).expect("readable");
        let name = |file: std::io::Result<std::fs::DirEntry>| file.expect("readable").file_name();
        let mut names: Vec<_> =
            files.map(|file| name(file).to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn stop(mut self) -> Vec<String> {
        let id = self.process.id().to_string();
        let killed = Command::new("kill").args(["-TERM", &id]).status();
        assert!(killed.expect("kill can be run").success());
        let status = self.process.wait().expect("a child");
        assert!(status.success(), "{status}");
        self.files()
    }
}

/// Without flags there is `./pintle-data`. Otherwise the serving certificate is in `--cert-dir`; everything else is kept in memory or where a flag says.
#[test]
fn a_server_without_a_data_directory_leaves_no_trace() {
    let etcd = format!("--etcd-servers={}", etcd_url());
    let cases = [
        vec!["--storage-backend=memory".to_owned()],
        vec![etcd, "--etcd-prefix=/no-trace".to_owned()],
    ];
    for flags in cases {
        let server = Started::new(&flags);
        let http = server.http();
        let configmap = json!({"metadata": {"name": "a"}});
        http.post("/api/v1/namespaces/default/configmaps", &configmap).expect(201);
        let token = json!({"spec": {"audiences": ["x"]}});
        let account = json!({"metadata": {"name": "b"}});
        http.post("/api/v1/namespaces/default/serviceaccounts", &account).expect(201);
        let path = "/api/v1/namespaces/default/serviceaccounts/b/token";
        http.post(path, &token).expect(201);
        assert_eq!(server.stop(), ["certs", "kubeconfig", "tokens.csv"], "{flags:?}");
    }
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
        ("--emulated-version=1.32", "emulation version 1.32 is not between [1.33, 1.36]"),
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

#[test]
fn an_emulated_version_has_its_own_apis_and_gates() {
    let has = |server: &Server, path: &str| server.http().get(path).code == 200;
    let (classes, attributes) = (
        "/apis/resource.k8s.io/v1/deviceclasses",
        "/apis/storage.k8s.io/v1/volumeattributesclasses",
    );
    let policies = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
    let old = Server::with(Flavour::from_env(), &["--emulated-version=1.33"]);
    let version = old.http().get("/version").expect(200);
    let fields = ["minor", "emulationMinor", "minCompatibilityMinor"].map(|field| &version[field]);
    assert_eq!(fields, ["36", "33", "33"]);
    for path in [classes, attributes, policies, "/flagz"] {
        assert_eq!(old.http().get(path).code, 404, "{path}");
    }
    assert!(has(&old, "/apis/networking.k8s.io/v1/servicecidrs"));
    if !old.flavour().is_peer() {
        let log = old.log();
        assert!(
            log.contains("Pintle behaves as 1.36 in what these feature gates decide: "),
            "{log}"
        );
        assert!(log.contains("objects are stored in the versions of 1.35"), "{log}");
    }
    drop(old);
    let newer = Server::with(Flavour::from_env(), &["--emulated-version=1.35"]);
    assert!(has(&newer, classes) && has(&newer, attributes));
    assert!(!has(&newer, policies));
    drop(newer);

    // What is newer is refused or served, as the flags say.
    let config = "--runtime-config=resource.k8s.io/v1=true";
    if Flavour::from_env().is_peer() {
        return;
    }
    let output = refused(&["--emulated-version=1.33", config]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains(
            "cannot enable version resource.k8s.io/v1 in runtime-config because all the resources \
             have been introduced after the current version 1.33"
        ),
        "{error}"
    );
    let allowed = "--runtime-config-emulation-forward-compatible=true";
    let flags = ["--emulated-version=1.33", config, allowed];
    assert!(has(&Server::with(Flavour::from_env(), &flags), classes));
    let flags = [
        "--emulated-version=1.33",
        "--runtime-config=storage.k8s.io/v1beta1=true",
        "--emulation-forward-compatible=true",
    ];
    let forward = Server::with(Flavour::from_env(), &flags);
    assert!(has(&forward, attributes));
    assert!(!has(&forward, classes), "no older version of it is served");
}

/// kube-apiserver behaves in the same way: it ends at `scheduling/bootstrap-system-priority-classes` if there is
/// nothing yet, and serves what there is otherwise.
#[test]
fn always_deny_serves_what_there_is_and_ends_where_there_is_nothing() {
    let deny = ["--enable-admission-plugins=AlwaysDeny"];
    let flavour = Flavour::from_env();
    if !flavour.is_peer() {
        let output = refused(&deny);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        let expected = "PostStartHook \"scheduling/bootstrap-system-priority-classes\" failed: unable to add \
                        default system priority classes: priorityclasses.scheduling.k8s.io";
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("admission control is denying all modifications"), "{error}");
    }
    let mut server = Server::of(flavour);
    server.http().post("/api/v1/namespaces/default/configmaps", &config_map("kept")).expect(201);
    server.stop();
    server.set_flags(&deny);
    server.start_again();
    let http = server.http();
    for (path, object, name) in [
        ("/api/v1/namespaces/default/configmaps", config_map("a"), "configmaps \"a\""),
        (
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}),
            "selfsubjectaccessreviews.authorization.k8s.io \"Unknown\"",
        ),
    ] {
        let message =
            format!("{name} is forbidden: admission control is denying all modifications");
        assert_eq!(http.post(path, &object).expect(403)["message"], message);
    }
    http.delete("/api/v1/namespaces/default/configmaps/kept").expect(403);
    http.get("/api/v1/namespaces/default/configmaps/kept").expect(200);
}

fn config_map(name: &str) -> serde_json::Value {
    json!({"metadata": {"name": name}})
}

/// A webhook that is down must not keep a server from starting: it could not be deleted any more.
#[test]
fn a_webhook_that_is_down_does_not_stop_the_start() {
    const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let mut server = Server::start();
    let down = json!({
        "metadata": {"name": "down"},
        "webhooks": [{
            "name": "down.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{
                "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
            }],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    });
    server.http().post(WEBHOOKS, &down).expect(201);
    server.stop();
    server.start_again();
    let http = server.http();
    let configmaps = "/api/v1/namespaces/default/configmaps";
    // Against kube-apiserver, until it has read the configuration.
    eventually("the webhook is called", || {
        (http.post(configmaps, &config_map("a")).code == 500).then_some(())
    });
    http.delete(&format!("{WEBHOOKS}/down")).expect(200);
    eventually("the webhook is gone", || {
        (http.post(configmaps, &config_map("b")).code == 201).then_some(())
    });
}

/// Resources whose store is away are waited for so long; then the port opens, and the other resources are served.
#[test]
fn storage_that_stays_away_is_waited_for_no_longer_than_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let tokens = directory.path().join("tokens.csv");
    std::fs::write(&tokens, "secret,jane,1,system:masters\n").expect("writable");
    let log = directory.path().join("log");
    // Of a listener that is gone: the server says where it is only when it is ready.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let port = port.expect("a free port").port();
    let mut process = Command::new(pintle_program())
        .current_dir(directory.path())
        .args(["--bind-address=127.0.0.1", "--storage-initialization-timeout=3s"])
        .arg(format!("--secure-port={port}"))
        .arg(format!("--token-auth-file={}", tokens.display()))
        .arg(format!("--cert-dir={}", directory.path().join("certs").display()))
        .arg(format!("--etcd-servers={}", etcd_url()))
        .arg("--etcd-prefix=/stays-away")
        // Nothing listens at this port.
        .arg("--etcd-servers-overrides=/events#http://127.0.0.1:1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).expect("a file"))
        .spawn()
        .expect("pintle can be started");
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let kubeconfig = json!({
        "clusters": [{"name": "c", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": directory.path().join("certs/apiserver.crt"),
        }}],
        "users": [{"name": "jane", "user": {"token": "secret"}}],
    });
    let file = directory.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig.to_string()).expect("writable");
    let certificate = directory.path().join("certs/apiserver.crt");
    eventually("there is a certificate", || certificate.exists().then_some(()));
    let http = Http::new(&file);
    let get = |path: &str| {
        let request = http::Request::get(path).body(bytes::Bytes::new()).expect("valid");
        http.try_request(request)
    };
    eventually("the port opens", || get("/livez/ping").ok());
    let expected = "Deadline exceeded while waiting for storage readiness";
    assert!(said().contains(expected), "it has waited before: {}", said());
    eventually("other resources are served", || {
        let answer = get("/api/v1/namespaces/kube-system/configmaps").ok()?;
        (answer.code == 200).then_some(())
    });
    let ready = get("/readyz").expect("an answer");
    assert_eq!(ready.code, 500, "{}", ready.text());
    process.kill().expect("a child");
    process.wait().expect("a child");
}
