//! A control plane as kubeadm makes it: the server with kubeadm's flags, kube-controller-manager and
//! kube-scheduler with certificates of their own and delegated authentication and authorization.
//!
//! `make tools` builds the two. A plain `cargo test` without them leaves the test out; with
//! `PINTLE_CONTROL_PLANE` (`make test`) it fails.

use std::{fs, net::TcpListener, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use integration::{Authority, Flavour, Kubectl, Pair, Server, StandInNodes, Version, eventually};
use serde_json::json;

/// A kubeconfig of a component.
fn kubeconfig(directory: &Path, name: &str, server: &str, ca: &str, pair: &Pair) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": "kubernetes", "cluster": {
            "server": server, "certificate-authority-data": STANDARD.encode(ca),
        }}],
        "contexts": [{"name": name, "context": {"cluster": "kubernetes", "user": name}}],
        "users": [{"name": name, "user": {
            "client-certificate-data": STANDARD.encode(&pair.certificate),
            "client-key-data": STANDARD.encode(&pair.key),
        }}],
    });
    let file = directory.join(format!("{name}.conf"));
    fs::write(&file, config.to_string()).expect("a file");
    file.display().to_string()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn a_deployment_is_updated_to_the_end(kubectl: &Kubectl<'_>) {
    kubectl.ok("create deployment web --image=nginx:1 --replicas=3");
    kubectl.ok(&format!("rollout status deployment web {PATIENTLY}"));
    kubectl.ok("expose deployment web --port=80");
    eventually("the service has the addresses of the pods", || {
        let ready = "{.items[*].endpoints[*].conditions.ready}";
        let slices = "get endpointslices -l kubernetes.io/service-name=web -o jsonpath=";
        (kubectl.ok(&format!("{slices}{ready}")) == "true true true").then_some(())
    });
    kubectl.ok("set image deployment/web nginx=nginx:2");
    kubectl.ok(&format!("rollout status deployment web {PATIENTLY}"));
    eventually("only pods of the new template are left", || {
        let images = "get pods -l app=web -o jsonpath={.items[*].spec.containers[0].image}";
        (kubectl.ok(images) == "nginx:2 nginx:2 nginx:2").then_some(())
    });
    let sets = kubectl.ok("get replicasets -l app=web -o jsonpath={.items[*].status.replicas}");
    let mut sets: Vec<&str> = sets.split(' ').collect();
    sets.sort_unstable();
    assert_eq!(sets, ["0", "3"]);
    kubectl.ok("rollout undo deployment web");
    kubectl.ok(&format!("rollout status deployment web {PATIENTLY}"));
    let image = "get deployment web -o jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(kubectl.ok(image), "nginx:1");
}

fn a_job_completes(kubectl: &Kubectl<'_>) {
    kubectl.ok_with_yaml(
        "create -f -",
        "
apiVersion: batch/v1
kind: Job
metadata: {name: sums}
spec:
  completions: 4
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: sum, image: busybox}]
",
    );
    kubectl.ok(&format!("wait --for=condition=complete job/sums {PATIENTLY}"));
    assert_eq!(kubectl.ok("get job sums -o jsonpath={.status.succeeded}"), "4");
}

fn a_stateful_set_is_updated_in_order(kubectl: &Kubectl<'_>) {
    kubectl.ok_with_yaml(
        "create -f -",
        "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: 'postgres:1'}]}
",
    );
    kubectl.ok(&format!("rollout status statefulset db {PATIENTLY}"));
    assert_eq!(
        kubectl.ok("get pods -l app=db -o jsonpath={.items[*].metadata.name}"),
        "db-0 db-1 db-2"
    );
    kubectl.ok("set image statefulset/db db=postgres:2");
    kubectl.ok(&format!("rollout status statefulset db {PATIENTLY}"));
    let images = "get pods -l app=db -o jsonpath={.items[*].spec.containers[0].image}";
    assert_eq!(kubectl.ok(images), "postgres:2 postgres:2 postgres:2");
    kubectl.ok(&format!("delete statefulset db {PATIENTLY}"));
    eventually("the pods are collected", || {
        kubectl.ok("get pods -l app=db -o name").is_empty().then_some(())
    });
}

/// For what takes some seconds when the machine has nothing else to do.
const PATIENTLY: &str = "--timeout=3m";

#[test]
fn workloads_run_on_kubeadms_control_plane() {
    let required = std::env::var_os("PINTLE_CONTROL_PLANE").is_some();
    let files = tempfile::tempdir().expect("a directory");
    let front = Authority::new("front-proxy-ca");
    let front_ca = files.path().join("front-proxy-ca.crt");
    fs::write(&front_ca, &front.pem).expect("a file");
    let [proxy_cert, proxy_key] =
        front.client("front-proxy-client", &[]).write(files.path(), "front-proxy-client");
    let flags = [
        "--allow-privileged=true".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--enable-bootstrap-token-auth=true".to_owned(),
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname".to_owned(),
        format!("--proxy-client-cert-file={}", proxy_cert.display()),
        format!("--proxy-client-key-file={}", proxy_key.display()),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        format!("--requestheader-client-ca-file={}", front_ca.display()),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/12".to_owned(),
        // Everything else is kube-controller-manager's.
        "--standalone-controllers=".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut server = Server::with(Flavour::Embedded, &flags);
    let pki = server.data_directory().join("pki");
    let clients = Authority::load(&pki);
    let url = server.url().to_owned();
    let ca = fs::read_to_string(pki.join("ca.crt")).expect("the CA of the server");
    let config = |user: &str| {
        kubeconfig(files.path(), &user.replace(':', "-"), &url, &ca, &clients.client(user, &[]))
    };
    let (manager, scheduler) =
        (config("system:kube-controller-manager"), config("system:kube-scheduler"));
    let file = |name: &str| pki.join(name).display().to_string();
    let delegated = |config: &str, port: u16| {
        vec![
            format!("--authentication-kubeconfig={config}"),
            format!("--authorization-kubeconfig={config}"),
            format!("--kubeconfig={config}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--leader-elect=true".to_owned(),
            format!("--secure-port={port}"),
        ]
    };
    let ports = [free_port(), free_port()];
    let mut of_manager = delegated(&manager, ports[0]);
    of_manager.extend([
        format!("--client-ca-file={}", file("ca.crt")),
        "--cluster-name=kubernetes".to_owned(),
        format!("--cluster-signing-cert-file={}", file("ca.crt")),
        format!("--cluster-signing-key-file={}", file("ca.key")),
        "--controllers=*,bootstrapsigner,tokencleaner".to_owned(),
        format!("--requestheader-client-ca-file={}", front_ca.display()),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--service-account-private-key-file={}", file("sa.key")),
        "--use-service-account-credentials=true".to_owned(),
    ]);
    let started = server.run_component("kube-controller-manager", &of_manager).is_some()
        && server.run_component("kube-scheduler", &delegated(&scheduler, ports[1])).is_some();
    if !started {
        assert!(!required, "`tools/build kube-controller-manager kube-scheduler` comes first");
        eprintln!(
            "left out: there is no kube-controller-manager or no kube-scheduler in tools/bin"
        );
        return;
    }
    let http = server.http();
    let _nodes = StandInNodes::start(&http, &["n1", "n2"]);
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    eventually("the namespace has its account", || (http.get(account).code == 200).then_some(()));
    let kubectl = server.kubectl(Version::Current).in_namespace("default");
    a_deployment_is_updated_to_the_end(&kubectl);
    a_job_completes(&kubectl);
    a_stateful_set_is_updated_in_order(&kubectl);

    // Delegated authentication and authorization: the components post TokenReviews and SubjectAccessReviews.
    kubectl.ok("create serviceaccount reader");
    kubectl.ok("create serviceaccount nobody");
    let metrics = "create clusterrole metrics --verb=get --non-resource-url=/metrics";
    kubectl.ok(metrics);
    kubectl.ok(
        "create clusterrolebinding metrics --clusterrole=metrics --serviceaccount=default:reader",
    );
    let reader = kubectl.ok("create token reader").trim().to_owned();
    let nobody = kubectl.ok("create token nobody").trim().to_owned();
    for port in ports {
        let get = |token: &str| {
            let bare = files.path().join("bare.conf");
            fs::write(&bare, "apiVersion: v1\nkind: Config\n").expect("a file");
            let line = format!(
                "--kubeconfig={} --server=https://127.0.0.1:{port} --insecure-skip-tls-verify=true \
                 --token={token} get --raw /metrics",
                bare.display()
            );
            let output = kubectl.run(&line, "");
            let said = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8_lossy(&said).into_owned())
        };
        let (allowed, said) = get(&reader);
        assert!(allowed && said.contains("rest_client_requests_total"), "{port}: {said:.500}");
        let (allowed, said) = get(&nobody);
        assert!(!allowed && said.contains("orbidden"), "{port}: {said:.500}");
        let (allowed, said) = get("forged");
        assert!(!allowed && said.contains("nauthorized"), "{port}: {said:.500}");
    }
    for name in ["kube-controller-manager", "kube-scheduler"] {
        let log = server.component_log(name);
        for complaint in ["is forbidden", "Failed to watch", "the server could not find", "panic"] {
            let found: Vec<&str> = log.lines().filter(|line| line.contains(complaint)).collect();
            assert!(found.is_empty(), "{name}: {found:#?}");
        }
    }
}
