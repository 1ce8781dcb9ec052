//! A control plane as kubeadm makes it: the server with kubeadm's flags, kube-controller-manager and
//! kube-scheduler with certificates of their own and delegated authentication and authorization.
//!
//! `make control-plane` builds the two; without them there is nothing to test.

use std::{fs, net::TcpListener, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use integration::{Authority, Flavour, Pair, Server, Version, eventually};
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

#[test]
fn a_deployment_runs_on_kubeadms_control_plane() {
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
        return;
    }
    let http = server.http();
    let node = json!({"metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}}});
    let mut node = http.post("/api/v1/nodes", &node).expect(201);
    node["status"] = json!({
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    });
    http.put("/api/v1/nodes/n1/status", &node).expect(200);
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    eventually("the namespace has its account", || (http.get(account).code == 200).then_some(()));
    let kubectl = server.kubectl(Version::Current).in_namespace("default");
    kubectl.ok("create deployment web --image=nginx --replicas=2");
    eventually("the pods are bound to the node", || {
        let nodes = kubectl.ok("get pods -l app=web -o jsonpath={.items[*].spec.nodeName}");
        (nodes == "n1 n1").then_some(())
    });
    kubectl.ok("rollout restart deployment web");
    kubectl.ok("expose deployment web --port=80");
    eventually("the service has its endpoints object", || {
        let slices = kubectl.ok("get endpointslices -l kubernetes.io/service-name=web -o name");
        (!slices.is_empty()).then_some(())
    });

    // Delegated: the components ask the server who a client is, and what it may do.
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
