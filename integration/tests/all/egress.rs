//! `--egress-selector-config-file`: which proxy connections of the server take.

use std::fs;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use integration::{
    ConnectProxy, Flavour, NodeNetwork, Server, Version, Way, Webhook, etcd_url, eventually,
    own_address, stranger,
};
use serde_json::{Value, json};

use crate::authentication::{Issuer, Key};

/// `127.0.0.1:port` of a URL on this machine.
fn address(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default().to_owned()
}

/// Lets a proxy reach this URL.
fn route(proxy: &ConnectProxy, url: &str) {
    let address = address(url);
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    proxy.route(&address, port);
}

/// Says yes to every review.
fn answer(path: &str, asked: &Value) -> Value {
    let (kind, version) = (&asked["kind"], &asked["apiVersion"]);
    let status = match path.split('?').next().unwrap_or_default() {
        "/tokens" => json!({"authenticated": true, "user": {"username": "jane"}}),
        "/authorize" => json!({"allowed": asked["spec"]["user"] == "jane"}),
        "/admit" => {
            return json!({"kind": kind, "apiVersion": version,
                "response": {"uid": asked["request"]["uid"], "allowed": true}});
        }
        _ => json!({}),
    };
    json!({"kind": kind, "apiVersion": version, "status": status})
}

#[test]
fn webhooks_and_issuers_take_the_proxy_of_the_control_plane() {
    let files = tempfile::tempdir().expect("a directory");
    let write = |name: &str, content: &str| {
        let path = files.path().join(name);
        fs::write(&path, content).expect("a file");
        path.display().to_string()
    };
    let control_plane = ConnectProxy::start(&files.path().join("c"));
    let cluster = ConnectProxy::start(&files.path().join("k"));
    let hook = || Webhook::by_path(|path, asked| answer(path, &asked));
    let (tokens, authorize, audit, admit) = (hook(), hook(), hook(), hook());
    let keys = ["by-control-plane", "by-cluster", "direct"].map(Key::new);
    let issuers = keys.each_ref().map(Issuer::start);
    for url in [&tokens, &authorize, &audit, &admit].map(|hook| hook.url("")) {
        route(&control_plane, &url);
    }
    route(&control_plane, &issuers[0].url());
    route(&cluster, &issuers[1].url());

    let jwt = |issuer: &Issuer, egress: Option<&str>| {
        let mut jwt = json!({
            "issuer": {"url": issuer.url(), "audiences": ["pintle"],
                "certificateAuthority": issuer.authority()},
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
        });
        if let Some(egress) = egress {
            jwt["issuer"]["egressSelectorType"] = json!(egress);
        }
        jwt
    };
    let authentication = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [jwt(&issuers[0], Some("controlplane")), jwt(&issuers[1], Some("cluster")),
            jwt(&issuers[2], None)],
    });
    let selections = [control_plane.selection("controlplane"), cluster.selection("cluster")];
    let flags = [
        ("egress-selector-config-file", write("egress", &ConnectProxy::configuration(&selections))),
        ("authentication-config", write("authn", &authentication.to_string())),
        (
            "authentication-token-webhook-config-file",
            write("tokens", &tokens.kubeconfig("/tokens")),
        ),
        ("authorization-mode", "RBAC,Webhook".to_owned()),
        ("authorization-webhook-config-file", write("authz", &authorize.kubeconfig("/authorize"))),
        ("audit-webhook-config-file", write("audit", &audit.kubeconfig("/audit"))),
        ("audit-webhook-mode", "blocking".to_owned()),
        (
            "audit-policy-file",
            write(
                "policy",
                "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]",
            ),
        ),
    ];
    let flags = flags.map(|(flag, value)| format!("--{flag}={value}"));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::with(Flavour::from_env(), &flags);
    let http = server.http();
    let configuration = json!({"metadata": {"name": "by-url"}, "webhooks": [{
        "name": "by-url.example.com",
        "clientConfig": {"url": admit.url("/admit"), "caBundle": admit.ca_bundle},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                   "resources": ["configmaps"]}],
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    }]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    http.post(hooks, &configuration).expect(201);
    // The webhooks know this token and its user; admission is asked about the write.
    let path = "/api/v1/namespaces/default/configmaps";
    let client = http.clone().with_token("of-the-webhook");
    client.post(path, &json!({"metadata": {"name": "a"}})).expect(201);
    for (key, issuer) in keys.iter().zip(&issuers) {
        let client = http.clone().with_token(&key.sign(&issuer.claims()));
        eventually("the issuer is found", || (client.get(path).code == 200).then_some(()));
    }

    let through = |proxy: &ConnectProxy, url: &str| proxy.targets().contains(&address(url));
    for (name, url) in [
        ("token webhook", tokens.url("")),
        ("authorization webhook", authorize.url("")),
        ("audit webhook", audit.url("")),
        ("admission webhook", admit.url("")),
        ("issuer", issuers[0].url()),
    ] {
        assert!(through(&control_plane, &url), "{name}: {:?}", control_plane.targets());
        assert!(!through(&cluster, &url), "{name}: {:?}", cluster.targets());
    }
    assert!(through(&cluster, &issuers[1].url()), "{:?}", cluster.targets());
    let direct = issuers[2].url();
    assert!(!through(&cluster, &direct) && !through(&control_plane, &direct));
    let text = http.get("/metrics").text();
    assert!(text.contains("apiserver_egress_dialer_dial_start_total{"), "dials are counted");
}

#[test]
fn an_issuer_with_a_way_that_is_not_configured_stops_the_start() {
    let files = tempfile::tempdir().expect("a directory");
    let authentication = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": "https://127.0.0.1:1", "audiences": ["pintle"],
                "egressSelectorType": "cluster"},
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
        }],
    });
    let file = files.path().join("authn");
    fs::write(&file, authentication.to_string()).expect("a file");
    let output = std::process::Command::new("timeout")
        .arg("60")
        .arg(integration::pintle_program())
        .arg(format!("--data-dir={}", files.path().join("data").display()))
        .arg("--secure-port=0")
        .arg(format!("--authentication-config={}", file.display()))
        .output()
        .expect("pintle can be started");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "oidc: egress lookup required with egress selector type \"cluster\"";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn etcd_is_reached_through_its_proxy() {
    let files = tempfile::tempdir().expect("a directory");
    let proxy = ConnectProxy::start(&files.path().join("e"));
    route(&proxy, &etcd_url());
    let config = files.path().join("egress");
    fs::write(&config, ConnectProxy::configuration(&[proxy.selection("etcd")])).expect("a file");
    let flag = format!("--egress-selector-config-file={}", config.display());
    let server = Server::with(Flavour::Etcd, &[&flag]);
    let path = "/api/v1/namespaces/default/configmaps";
    let mut watch = server.http().stream(&format!("{path}?watch=true"));
    server.http().post(path, &json!({"metadata": {"name": "through"}})).expect(201);
    loop {
        let event = watch.next_event().expect("the write is seen");
        if event["object"]["metadata"]["name"] == "through" {
            break;
        }
    }
    assert!(proxy.targets().contains(&address(&etcd_url())), "{:?}", proxy.targets());
}

/// Logs, a proxied request, and a session with more input than any buffer holds.
fn reach_the_node(network: &NodeNetwork) {
    let namespace = network.namespace_with_pod("way", &["app"]);
    let kubectl = network.server.kubectl(Version::Current).in_namespace(&namespace);
    let logs = kubectl.ok("logs web -c app --tail=1");
    assert_eq!(logs, "app: line 10\n");
    let input: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let output = kubectl.run_with_stdin("exec -i web -c app -- cat", input.clone());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == input, "{} bytes", output.stdout.len());
    let path = format!("/api/v1/nodes/{}/proxy/echo", NodeNetwork::NODE);
    let answer = network.server.http().get(&path);
    let expected = "GET /echo by kube-apiserver-kubelet-client\n";
    assert_eq!((answer.code, answer.text().as_str()), (200, expected));
}

/// What a node without a route costs: an error that says so.
fn find_no_way_to_another_node(network: &NodeNetwork, expected: &str) {
    network.add_node("away", "192.0.2.77", &json!({}));
    let namespace = network.server.namespace("away");
    network.add_pod(&namespace, "web", "away", &["app"]);
    let path = format!("/api/v1/namespaces/{namespace}/pods/web/log");
    let answer = network.server.http().get(&path);
    assert_eq!(answer.code, 500, "{}", answer.text());
    assert!(answer.text().contains(expected), "{}", answer.text());
    assert!(network.targets().contains(&"192.0.2.77:10250".to_owned()));
}

fn assert_dials(network: &NodeNetwork, protocol: &str, transport: &str) {
    assert!(network.targets().contains(&format!("{}:10250", NodeNetwork::NODE_ADDRESS)));
    let metrics = network.server.http().get("/metrics").text();
    let line = format!(
        "apiserver_egress_dialer_dial_start_total{{protocol=\"{protocol}\",transport=\"{transport}\"}}"
    );
    assert!(metrics.contains(&line), "{line}");
}

#[test]
fn nodes_are_reached_through_an_http_connect_proxy_over_tls() {
    let network = NodeNetwork::by(&Way::ConnectTls, &[]);
    reach_the_node(&network);
    find_no_way_to_another_node(&network, "while dialing 192.0.2.77:10250, code 502");
    assert_dials(&network, "http_connect", "tcp");
}

#[test]
fn nodes_are_reached_through_a_konnectivity_server() {
    let network = NodeNetwork::by(&Way::Konnectivity, &[]);
    reach_the_node(&network);
    find_no_way_to_another_node(&network, "no route to 192.0.2.77:10250");
    assert_dials(&network, "grpc", "uds");
    // Its connection is opened again by the next request, after the server was away.
    let namespace = network.server.namespace("again");
    network.add_pod(&namespace, "web", NodeNetwork::NODE, &["app"]);
    let kubectl = network.server.kubectl(Version::Current).in_namespace(&namespace);
    assert_eq!(kubectl.ok("logs web -c app --tail=1"), "app: line 10\n");
}

/// Without a proxy; C06: neither the server itself, nor a kubelet of another authority.
#[test]
fn c06_nodes_are_reached_directly_and_the_server_itself_is_not() {
    let Some(address) = own_address() else {
        eprintln!("this machine has no address but loopback");
        return;
    };
    // On all addresses, so that it could be reached as a node is.
    let network = NodeNetwork::by(&Way::Direct(address), &["--bind-address=0.0.0.0"]);
    reach_the_node(&network);
    let http = network.server.http();
    let port: u16 = network.server.url().rsplit(':').next().unwrap_or("").parse().expect("a port");
    let endpoint = json!({"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}});
    network.add_node("itself", &address.to_string(), &endpoint);
    let namespace = network.server.namespace("itself");
    network.add_pod(&namespace, "web", "itself", &["app"]);
    let core = format!("/api/v1/namespaces/{namespace}/pods/web");
    for path in [
        format!("{core}/log"),
        "/api/v1/nodes/itself/proxy/api".to_owned(),
        format!("/api/v1/nodes/itself:{port}/proxy/api"),
        format!("/api/v1/nodes/https:itself:{port}/proxy/api/v1/secrets"),
    ] {
        let answer = http.get(&path);
        assert_eq!(answer.code, 400, "{path}: {}", answer.text());
        assert_eq!(answer.json()["message"], "address not allowed", "{path}");
    }
    for loopback in ["127.0.0.1", "::1", "localhost"] {
        network.set_node_status("itself", loopback, &endpoint);
        let answer = http.get(&format!("{core}/log"));
        assert_eq!(answer.code, 400, "{loopback}: {}", answer.text());
    }
    // Whatever is behind the address must have a certificate of the kubelets' authority for it.
    let stranger = stranger(address);
    let endpoint = json!({"daemonEndpoints": {"kubeletEndpoint": {"Port": stranger.port()}}});
    network.set_node_status("itself", &address.to_string(), &endpoint);
    let answer = http.get(&format!("{core}/log"));
    assert_eq!(answer.code, 500, "{}", answer.text());
    assert!(answer.text().contains("certificate"), "{}", answer.text());
    assert!(stranger.received().is_empty(), "no request was sent: {:?}", stranger.received());
}

/// C05, CVE-2020-8562: a name that means another address a moment later leads nowhere else.
#[test]
fn c05_a_name_that_changes_leads_to_no_address_of_the_server() {
    let Some(address) = own_address() else {
        eprintln!("this machine has no address but loopback");
        return;
    };
    let files = tempfile::tempdir().expect("a directory");
    let hosts = files.path().join("hosts");
    // One write of the same length each time, so that no half of a line is ever read.
    let resolve_to = |addresses: [&str; 2]| {
        let line = |address: &str| format!("{address:<39} rebind.example\n");
        let text = format!("127.0.0.1 localhost\n{}{}", line(addresses[0]), line(addresses[1]));
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&hosts);
        std::os::unix::fs::FileExt::write_all_at(&file.expect("a file"), text.as_bytes(), 0)
            .expect("written");
    };
    let own = address.to_string();
    resolve_to([&own, &own]);
    let Some(server) = Server::with_hosts(Flavour::from_env(), &[], &hosts) else {
        eprintln!("this user may not mount a file of host names");
        return;
    };
    // A kubelet at the address that is allowed, and a trap at the same port of loopback.
    let (kubelet, trap) = loop {
        let kubelet = stranger(address);
        if let Ok(trap) = TcpListener::bind(("127.0.0.1", kubelet.port())) {
            break (kubelet, trap);
        }
    };
    trap.set_nonblocking(true).expect("sockets can be non-blocking");
    let http = server.http();
    http.post("/api/v1/nodes", &json!({"metadata": {"name": "rebind"}})).expect(201);
    let status = json!({"status": {
        "addresses": [{"type": "Hostname", "address": "rebind.example"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port()}}}});
    let merge = "application/merge-patch+json";
    http.patch("/api/v1/nodes/rebind/status", merge, &status).expect(200);
    let ask = || http.get("/api/v1/nodes/rebind/proxy/healthz").code;
    assert_eq!(ask(), 200);
    for refused in [["127.0.0.1"; 2], [own.as_str(), "127.0.0.1"], ["127.0.0.1", own.as_str()]] {
        resolve_to(refused);
        assert_eq!(ask(), 400, "{refused:?}");
    }
    // While it changes all the time, each request is for one of the two.
    let stop = AtomicBool::new(false);
    let codes: Vec<u16> = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                resolve_to([&own, &own]);
                resolve_to(["127.0.0.1"; 2]);
            }
        });
        let codes = (0..150).map(|_| ask()).collect();
        stop.store(true, Ordering::Relaxed);
        codes
    });
    assert!(codes.iter().all(|code| matches!(code, 200 | 400)), "{codes:?}");
    assert!(codes.contains(&200) && codes.contains(&400), "it did change: {codes:?}");
    assert!(trap.accept().is_err(), "the server has connected to loopback");
}
