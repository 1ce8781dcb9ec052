//! exec, attach, port-forward, logs and proxies with a real kubectl, through a kubelet stand-in that
//! streams with the code of real ones.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread;

use http::Method;
use integration::{Kubectl, NodeNetwork, Version};
use serde_json::json;

/// One server with a node, for all tests here that do not change it.
fn network() -> &'static NodeNetwork {
    static NETWORK: OnceLock<NodeNetwork> = OnceLock::new();
    NETWORK.get_or_init(NodeNetwork::start)
}

/// Every client: both versions of kubectl, with WebSockets and with SPDY.
fn clients<'a>(network: &'a NodeNetwork, namespace: &str) -> Vec<(String, Kubectl<'a>)> {
    let mut clients = Vec::new();
    for version in [Version::Current, Version::Old] {
        for websockets in ["true", "false"] {
            let kubectl = network
                .server
                .kubectl(version)
                .in_namespace(namespace)
                .with_env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
                .with_env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets);
            clients.push((format!("{version:?}, WebSockets {websockets}"), kubectl));
        }
    }
    clients
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn exec_has_input_outputs_and_exit_codes() {
    let network = network();
    let namespace = network.namespace_with_pod("exec", &["app", "side"]);
    for (client, kubectl) in clients(network, &namespace) {
        let both = "exec web -c app -- sh -c 'echo out; echo err >&2; exit 7'";
        let output = kubectl.run_with_stdin(both, Vec::new());
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(stdout, "out\n", "{client}: {stderr}");
        assert!(stderr.starts_with("err\n"), "{client}: {stderr}");
        assert!(stderr.contains("command terminated with exit code 7"), "{client}: {stderr}");
        assert_eq!(output.status.code(), Some(7), "{client}");
        // Input that is longer than any buffer comes back whole, and its end ends the command.
        let input: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let output = kubectl.run_with_stdin("exec -i web -c app -- cat", input.clone());
        assert!(output.status.success(), "{client}: {}", text(&output.stderr));
        assert!(output.stdout == input, "{client}: {} bytes", output.stdout.len());
        let output = kubectl.run_with_stdin("exec web -c app -- /no/such/program", Vec::new());
        assert!(!output.status.success(), "{client}");
        assert!(
            text(&output.stderr).contains("no such file"),
            "{client}: {}",
            text(&output.stderr)
        );
    }
    let path = format!("/exec/{namespace}/web/app?");
    let asked = integration::eventually("the kubelet has said what it was asked", || {
        let log = network.kubelet.log();
        let asked = log.lines().filter(|line| line.contains(&path)).map(str::to_owned);
        let asked: Vec<String> = asked.collect();
        (asked.len() == 12).then_some(asked)
    });
    let expected = r#"by "kube-apiserver-kubelet-client" upgrade "SPDY/3.1""#;
    assert!(
        asked.iter().all(|line| line.starts_with("POST ") && line.ends_with(expected)),
        "{asked:?}"
    );
}

#[test]
fn attach_carries_both_directions() {
    let network = network();
    let namespace = network.namespace_with_pod("attach", &["app"]);
    for (client, kubectl) in clients(network, &namespace) {
        let output = kubectl.run_with_stdin("attach -i web -c app", b"hello\n".to_vec());
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(stdout.contains("attached to app of web\n"), "{client}: {stdout} {stderr}");
        assert!(stdout.ends_with("hello\n"), "{client}: {stdout}");
        assert!(stderr.contains("this is stderr"), "{client}: {stderr}");
    }
}

/// Sends back what it gets, until the test ends.
fn echo_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut reader = stream.try_clone().expect("a socket can be cloned");
                let mut writer = stream;
                let _ = std::io::copy(&mut reader, &mut writer);
            });
        }
    });
    port
}

#[test]
fn port_forward_carries_many_connections() {
    let network = network();
    let namespace = network.namespace_with_pod("forward", &["app"]);
    let echo = echo_server();
    for (client, kubectl) in clients(network, &namespace) {
        let mut forward = kubectl.follow(&format!("port-forward pod/web :{echo}"));
        let line = forward.wait_for("its port", |line| line.starts_with("Forwarding from 127."));
        let port = line.split([':', ' ']).nth(3).expect("a port").to_owned();
        let connections: Vec<_> = (0..3_u8)
            .map(|number| {
                let address = format!("127.0.0.1:{port}");
                thread::spawn(move || {
                    let mut stream = TcpStream::connect(address).expect("it listens");
                    let sent = vec![number; 300_000];
                    let mut writer = stream.try_clone().expect("a socket can be cloned");
                    let bytes = sent.clone();
                    let writing = thread::spawn(move || writer.write_all(&bytes));
                    let mut received = vec![0; sent.len()];
                    stream.read_exact(&mut received).expect("all comes back");
                    writing.join().expect("no panic").expect("all is sent");
                    assert!(received == sent);
                })
            })
            .collect();
        for connection in connections {
            connection.join().unwrap_or_else(|_| panic!("{client}"));
        }
    }
}

#[test]
fn logs_are_read_and_followed() {
    let network = network();
    let namespace = network.namespace_with_pod("logs", &["app", "broken"]);
    for version in [Version::Current, Version::Old] {
        let kubectl = network.server.kubectl(version).in_namespace(&namespace);
        let all = kubectl.ok("logs web -c app");
        assert_eq!(all.lines().count(), 10);
        assert!(all.starts_with("app: line 1\n") && all.ends_with("app: line 10\n"), "{all}");
        assert_eq!(kubectl.ok("logs web -c app --tail=2"), "app: line 9\napp: line 10\n");
        assert!(kubectl.ok("logs web -c app --previous").starts_with("app: previous line 1\n"));
        let mut following = kubectl.follow("logs -f web -c app --tail=1");
        following.wait_for("line 10", |line| line == "app: line 10");
        following.wait_for("line 13", |line| line == "app: line 13");
        drop(following);
        let refused = kubectl.fail("logs web -c broken");
        assert!(refused.contains("the container is broken"), "{refused}");
    }
    integration::eventually("the kubelet sees that its reader is gone", || {
        network.kubelet.log().contains("the reader of the logs is gone").then_some(())
    });
}

#[test]
fn logs_and_exec_check_what_is_asked_for() {
    let network = network();
    let namespace = network.namespace_with_pod("checks", &["app", "side"]);
    network.add_pod(&namespace, "unscheduled", "", &["app"]);
    network.add_pod(&namespace, "lost", "no-such-node", &["app"]);
    let http = network.server.http();
    let cases = [
        (
            "pods/web/log",
            400,
            "a container name must be specified for pod web, choose one of: [app side]",
        ),
        ("pods/web/log?container=x", 400, "container x is not valid for pod web"),
        ("pods/web/log?container=../../x", 400, "container ../../x is not valid for pod web"),
        ("pods/web/log?container=a%2Fb", 400, "container a/b is not valid for pod web"),
        (
            "pods/web/log?tailLines=-1",
            422,
            "PodLogOptions \"web\" is invalid: tailLines: Invalid value: -1: must be greater than or \
             equal to 0",
        ),
        ("pods/web/log?tailLines=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax"),
        (
            "pods/web/log?stream=Stdout&container=app",
            422,
            "PodLogOptions \"web\" is invalid: stream: Forbidden: may not be specified",
        ),
        ("pods/none/log", 404, "pods \"none\" not found"),
        ("pods/lost/log", 404, "nodes \"no-such-node\" not found"),
        ("pods/web/exec?container=app&command=ls&stdout=1", 400, "Upgrade request required"),
        ("pods/web/exec?container=x&command=ls", 400, "container x is not valid for pod web"),
        ("pods/unscheduled/exec?command=ls", 400, "pod unscheduled does not have a host assigned"),
        ("pods/unscheduled/portforward", 400, "pod unscheduled does not have a host assigned"),
        (
            "pods/web/portforward?ports=x",
            400,
            "cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
        ("pods/web/attach?dryRun=All", 400, "dryRun is not supported"),
    ];
    for (path, code, message) in cases {
        let answer = http.get(&format!("/api/v1/namespaces/{namespace}/{path}"));
        assert_eq!(
            (answer.code, answer.json()["message"].as_str()),
            (code, Some(message)),
            "{path}"
        );
    }
    let answer = http.get(&format!("/api/v1/namespaces/{namespace}/pods/unscheduled/log"));
    assert_eq!((answer.code, answer.text().as_str()), (204, ""));
    for (method, path, code) in [
        (Method::PUT, "pods/web/exec?command=ls", 405),
        (Method::POST, "pods/web/log", 405),
        (Method::GET, "pods/web/exec/more", 404),
    ] {
        let path = format!("/api/v1/namespaces/{namespace}/{path}");
        assert_eq!(http.send(method, &path, None, "").code, code, "{path}");
    }
}

/// A pod that serves HTTP: it answers with what it was asked.
fn web_server(respond: impl Fn(&str) -> String + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let respond = std::sync::Arc::new(respond);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let respond = respond.clone();
            thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                    head.push(byte[0]);
                }
                let _ = stream.write_all(respond(&text(&head)).as_bytes());
            });
        }
    });
    port
}

fn page(kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
         access-control-allow-origin: *\r\nconnection: close\r\n\r\n{body}"
    )
}

#[test]
fn pods_and_services_are_proxied() {
    let network = network();
    let namespace = network.namespace_with_pod("proxy", &["app"]);
    let core = format!("/api/v1/namespaces/{namespace}");
    let http = network.server.http();
    let port = web_server(|head| {
        let line = head.lines().next().unwrap_or_default().to_owned();
        if line.contains("/html") {
            return page("text/html", "<a href=\"/x\">x</a>");
        }
        if line.contains("/redirect") {
            return "HTTP/1.1 302 Found\r\nlocation: /there\r\ncontent-length: 0\r\n\
                    connection: close\r\n\r\n"
                .to_owned();
        }
        let uri = head.lines().find(|line| line.to_lowercase().starts_with("x-forwarded-uri"));
        page("text/plain", &format!("{line}|{}", uri.unwrap_or_default()))
    });
    network.route("192.0.2.10:8080", port);
    let patch = json!({"status": {"podIP": "192.0.2.10", "podIPs": [{"ip": "192.0.2.10"}]}});
    let merge = "application/merge-patch+json";
    http.patch(&format!("{core}/pods/web/status"), merge, &patch).expect(200);
    http.post(
        &format!("{core}/services"),
        &json!({"metadata": {"name": "web"}, "spec": {
        "clusterIP": "None", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}),
    )
    .expect(201);
    let none = http.get(&format!("{core}/services/web:http/proxy/"));
    assert_eq!(none.code, 404, "{}", none.text());
    http.post(
        &format!("{core}/endpoints"),
        &json!({"metadata": {"name": "web"}, "subsets": [{
        "addresses": [{"ip": "192.0.2.10", "targetRef": {"kind": "Pod", "name": "web",
            "namespace": namespace}}],
        "ports": [{"name": "http", "port": 8080}]}]}),
    )
    .expect(201);
    for proxy in ["pods/web:8080/proxy", "services/web:http/proxy", "services/http:web:80/proxy"] {
        let at = |path: &str| http.get(&format!("{core}/{proxy}{path}"));
        let answer = at("/a/b?c=d&e");
        let expected = format!("GET /a/b?c=d&e HTTP/1.1|x-forwarded-uri: {core}/{proxy}/a/b");
        assert_eq!((answer.code, answer.text()), (200, expected), "{proxy}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
        assert!(at("/a/../../b//c").text().starts_with("GET /b/c HTTP"), "{proxy}");
        assert!(at("/a%20b/").text().starts_with("GET /a%20b/ HTTP"), "{proxy}");
        let bare = at("?x=y");
        assert_eq!(bare.code, 301, "{proxy}");
        assert_eq!(bare.header("location"), Some(format!("{core}/{proxy}/?x=y").as_str()));
        assert_eq!(at("/html").text(), format!("<a href=\"{core}/{proxy}/x\">x</a>"));
        let redirect = at("/redirect");
        assert_eq!(redirect.code, 302);
        assert_eq!(redirect.header("location"), Some(format!("{core}/{proxy}/there").as_str()));
    }
    let raw = network.server.kubectl(Version::Current);
    let raw = raw.ok(&format!("get --raw {core}/services/web:80/proxy/raw"));
    assert!(raw.starts_with("GET /raw HTTP/1.1|"), "{raw}");
    let cases = [
        ("pods/web:80:90:100/proxy/", 400, "invalid pod request \"web:80:90:100\""),
        ("services/ftp:web:80/proxy/", 400, "invalid service request \"ftp:web:80\""),
        ("services/web:81/proxy/", 503, "no service port 81 found for service \"web\""),
        ("services/web:other/proxy/", 503, "no endpoints available for service \"web:other\""),
    ];
    for (path, code, message) in cases {
        let answer = http.get(&format!("{core}/{path}"));
        assert_eq!(
            (answer.code, answer.json()["message"].as_str()),
            (code, Some(message)),
            "{path}"
        );
    }
}

#[test]
fn nodes_are_proxied_with_the_client_certificate_of_kubelets() {
    let network = network();
    let http = network.server.http();
    let node = NodeNetwork::NODE;
    for id in [node.to_owned(), format!("{node}:10250"), format!("https:{node}:10250")] {
        let answer = http.get(&format!("/api/v1/nodes/{id}/proxy/echo?a=b"));
        let expected = "GET /echo?a=b by kube-apiserver-kubelet-client\n";
        assert_eq!((answer.code, answer.text().as_str()), (200, expected), "{id}");
    }
    let path = format!("/api/v1/nodes/{node}/proxy/echo");
    let posted = http.post(&path, &json!({"sent": "whole"}));
    assert!(posted.text().ends_with(r#"{"sent":"whole"}"#), "{}", posted.text());
    assert_eq!(http.get(&format!("/api/v1/nodes/{node}/proxy/none")).code, 404);
    let unknown = http.get("/api/v1/nodes/none/proxy/").json();
    assert_eq!(unknown["message"], "nodes \"none\" not found");
}

/// CVE-2022-3294 and what belongs to it: addresses that the server does not connect to.
#[test]
fn c04_addresses_of_the_servers_own_machine_are_refused() {
    let network = network();
    let namespace = network.namespace_with_pod("ssrf", &["app"]);
    let core = format!("/api/v1/namespaces/{namespace}");
    let http = network.server.http();
    network.add_node("crafted", "192.0.2.1", &json!({}));
    network.add_pod(&namespace, "crafted", "crafted", &["app"]);
    for address in
        ["127.0.0.1", "::1", "169.254.1.1", "169.254.169.254", "::ffff:127.0.0.1", "localhost"]
    {
        network.set_node_status("crafted", address, &json!({}));
        for path in [
            "/api/v1/nodes/crafted/proxy/".to_owned(),
            "/api/v1/nodes/crafted:10250/proxy/".to_owned(),
            "/api/v1/nodes/https:crafted:6443/proxy/".to_owned(),
            "/api/v1/nodes/http:crafted:22/proxy/x".to_owned(),
            format!("{core}/pods/crafted/log"),
        ] {
            let answer = http.get(&path);
            let said = answer.json()["message"].as_str().map(str::to_owned);
            assert_eq!(
                (answer.code, said.as_deref()),
                (400, Some("address not allowed")),
                "{address} {path}"
            );
        }
        let patch = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
        let path = format!("{core}/pods/crafted/status");
        let patched = http.patch(&path, "application/merge-patch+json", &patch);
        if patched.code == 200 {
            let answer = http.get(&format!("{core}/pods/crafted:80/proxy/"));
            assert_eq!(answer.code, 400, "{address}: {}", answer.text());
        }
    }
}

/// R03: a user that may only `get` must not get a shell by a WebSocket, which is opened with GET; neither
/// by SPDY, nor by a plain GET.
#[test]
fn r03_exec_by_websocket_needs_create() {
    let network = network();
    let namespace = network.namespace_with_pod("create", &["app"]);
    let http = network.server.http();
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    http.post(
        &format!("{rbac}/roles"),
        &json!({"metadata": {"name": "r"}, "rules": [
        {"apiGroups": [""], "resources": ["pods/exec", "pods/attach", "pods/portforward"],
         "verbs": ["get"]}]}),
    )
    .expect(201);
    http.post(
        &format!("{rbac}/rolebindings"),
        &json!({"metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}]}),
    )
    .expect(201);
    let ask = |subresource: &str, user: &str| {
        let path =
            format!("/api/v1/namespaces/{namespace}/pods/web/{subresource}?command=ls&stdout=1");
        let request = http::Request::get(path).header("impersonate-user", user);
        let answer = http.request(request.body(bytes::Bytes::new()).expect("a valid request"));
        (answer.code, answer.json()["message"].as_str().unwrap_or_default().to_owned())
    };
    for subresource in ["exec", "attach", "portforward"] {
        integration::eventually("the role counts", || {
            let (code, message) = ask(subresource, "reader");
            (code == 403
                && message.starts_with("pods \"web\" is forbidden: ")
                && !message.contains("cannot get"))
            .then_some(())
        });
        // The role counts by now: an upgrade is refused for the missing `create` alone.
        for protocol in ["websocket", "SPDY/3.1"] {
            let mut connection = http.raw().expect("a connection");
            let path = format!(
                "/api/v1/namespaces/{namespace}/pods/web/{subresource}?command=ls&stdout=1"
            );
            let request = upgrade_and_more(network, &path, protocol);
            let request = String::from_utf8(request).expect("text");
            let request = request.replacen("\r\n", "\r\nimpersonate-user: reader\r\n", 1);
            connection.write(request.as_bytes()).expect("written");
            let answer = connection.read_until(|_| false).expect("read");
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.starts_with("HTTP/1.1 403 "), "{subresource} {protocol}: {answer}");
            assert!(answer.contains(r#""message":"pods \"web\" is forbidden: "#), "{answer}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
        }
    }
}

/// What a client sends to open an upgraded connection, and a request behind it that a kubelet would
/// serve if the connection were open to it.
fn upgrade_and_more(network: &NodeNetwork, path: &str, upgrade: &str) -> Vec<u8> {
    let http = network.server.http();
    format!(
        "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: {}\r\nconnection: upgrade\r\n\
         upgrade: {upgrade}\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nx-stream-protocol-version: v4.channel.k8s.io\r\n\
         \r\nGET /runningpods/ HTTP/1.1\r\nhost: x\r\n\r\n",
        http.host(),
        http.authorization()
    )
    .into_bytes()
}

/// CVE-2018-1002105: a kubelet that does not upgrade leaves no open connection behind.
#[test]
fn c01_bytes_flow_only_after_the_backend_has_agreed() {
    let network = network();
    let namespace = network.server.namespace("c01");
    let cases = [
        ("200 OK\r\ncontent-length: 0", 500, "invalid upgrade response: status code 200"),
        (
            "302 Found\r\nlocation: https://192.0.2.9/\r\ncontent-length: 0",
            500,
            "invalid upgrade response: status code 302",
        ),
        (
            "307 Temporary Redirect\r\nlocation: /x\r\ncontent-length: 0",
            500,
            "invalid upgrade response: status code 307",
        ),
        ("403 Forbidden\r\ncontent-length: 2", 403, ""),
        (
            "101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c",
            500,
            "invalid upgrade response",
        ),
    ];
    for (number, (answer, code, message)) in cases.iter().enumerate() {
        let (node, address) = (format!("c01-{number}"), format!("192.0.2.{}", 100 + number));
        let answer = format!("HTTP/1.1 {answer}\r\n\r\nno").into_bytes();
        let kubelet = network.add_crafted_node(&node, &address, answer);
        network.add_pod(&namespace, &node, &node, &["app"]);
        let exec = format!("/api/v1/namespaces/{namespace}/pods/{node}/exec?command=ls&stdout=1");
        let proxy = format!("/api/v1/nodes/{node}/proxy/run/");
        for path in [exec, proxy] {
            let mut connection = network.server.http().raw().expect("a connection");
            connection.write(&upgrade_and_more(network, &path, "SPDY/3.1")).expect("sent");
            let said = connection.read_until(|_| false).expect("an end");
            let said = text(&said);
            let first = said.lines().next().unwrap_or_default().to_owned();
            assert!(first.starts_with(&format!("HTTP/1.1 {code} ")), "{path}: {said}");
            assert!(said.contains(message), "{path}: {said}");
            assert!(!said.to_lowercase().contains("location:"), "{path}: {said}");
        }
        integration::eventually("the connections to the kubelet have ended", || {
            (kubelet.received().len() == 2).then_some(())
        });
        for received in kubelet.received() {
            assert!(
                !received.contains("runningpods"),
                "{answer:?}: {received}",
                answer = cases[number].0
            );
        }
    }
}

/// CVE-2018-1002102 and CVE-2020-8559: redirects of kubelets are neither followed nor passed on.
#[test]
fn c02_redirects_of_kubelets_are_refused() {
    let network = network();
    let namespace = network.server.namespace("c02");
    let statuses = ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"];
    for (number, status) in statuses.into_iter().enumerate() {
        let (node, address) = (format!("c02-{number}"), format!("192.0.2.{}", 120 + number));
        let answer = format!(
            "HTTP/1.1 {status}\r\nlocation: https://{address}:10250/elsewhere\r\n\
             content-length: 0\r\n\r\n"
        );
        let _kubelet = network.add_crafted_node(&node, &address, answer.into_bytes());
        network.add_pod(&namespace, &node, &node, &["app"]);
        let core = format!("/api/v1/namespaces/{namespace}/pods/{node}");
        let log = network.server.http().get(&format!("{core}/log"));
        let message = log.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(log.code, 500, "{message}");
        assert!(message.ends_with("\": redirects forbidden"), "{message}");
        assert_eq!(log.header("location"), None);
        for (subresource, protocol) in
            [("exec", "v5.channel.k8s.io"), ("portforward", "SPDY/3.1+portforward.k8s.io")]
        {
            let path = format!("{core}/{subresource}?command=ls&stdout=1");
            let headers = [
                ("sec-websocket-version", "13"),
                ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
                ("sec-websocket-protocol", protocol),
            ];
            match network.server.http().websocket(&path, &headers) {
                // The translator has accepted the client before it knows.
                Ok(mut websocket) => {
                    assert_eq!(websocket.next_message().expect("a greeting").payload, [1]);
                    let status = websocket.next_message().expect("a status");
                    let said = text(&status.payload[1..]);
                    assert!(
                        status.payload[0] == 3 && said.contains("redirect not allowed"),
                        "{said}"
                    );
                }
                Err(refused) => {
                    assert_eq!((subresource, refused.code), ("portforward", 500));
                    assert_eq!(refused.header("location"), None);
                }
            }
        }
    }
}

/// CVE-2026-35469: a kubelet whose SPDY frames claim absurd counts.
#[test]
fn c16_spdy_frames_of_a_kubelet_are_bounded() {
    let network = network();
    let namespace = network.server.namespace("c16");
    let upgraded =
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\
                     x-stream-protocol-version: v4.channel.k8s.io\r\n\r\n";
    let frames: [(&[u8], &str); 3] = [
        (
            b"\x80\x03\x00\x04\x00\x00\x00\x04\x01\x00\x00\x00",
            "control frame of type 4 is malformed",
        ),
        (
            b"\x80\x03\x00\x02\x00\xff\xff\xff\x00\x00\x00\x01",
            "a control frame of 16777215 bytes is too large",
        ),
        (b"\x80\x03\x00\x02\x00\x00\x00\x08\x00\x00\x00\x01zlib", "cannot be decompressed"),
    ];
    for (number, (frame, expected)) in frames.into_iter().enumerate() {
        let (node, address) = (format!("c16-{number}"), format!("192.0.2.{}", 140 + number));
        let answer = [&upgraded[..], frame].concat();
        let _kubelet = network.add_crafted_node(&node, &address, answer);
        network.add_pod(&namespace, &node, &node, &["app"]);
        let path = format!("/api/v1/namespaces/{namespace}/pods/{node}/exec?command=ls&stdout=1");
        let headers = [
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", "v5.channel.k8s.io"),
        ];
        let mut websocket = network.server.http().websocket(&path, &headers).expect("a WebSocket");
        assert_eq!(websocket.next_message().expect("a greeting").payload, [1]);
        let status = websocket.next_message().expect("a status");
        let said = text(&status.payload[1..]);
        assert!(said.contains(expected), "{said}");
    }
}

/// CVE-2020-27813: lengths that overflow, fragments without end, frames without a mask.
#[test]
fn c17_websocket_frames_of_a_client_are_bounded() {
    let network = network();
    let namespace = network.namespace_with_pod("c17", &["app"]);
    let frames: [&[u8]; 4] = [
        b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x01\x02\x03\x04",
        b"\x82\x05\x00hello",
        b"\x89\xfe\x00\x80\x01\x02\x03\x04",
        b"\x80\x81\x01\x02\x03\x04x",
    ];
    let path = format!("/api/v1/namespaces/{namespace}/pods/web/exec?command=cat&stdin=1&stdout=1");
    for frame in frames {
        let http = network.server.http();
        let mut connection = http.raw().expect("a connection");
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: {}\r\nconnection: upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             sec-websocket-protocol: v5.channel.k8s.io\r\n\r\n",
            http.host(),
            http.authorization()
        );
        connection.write(request.as_bytes()).expect("sent");
        let head = connection.read_until(|read| read.windows(4).any(|end| end == b"\r\n\r\n"));
        assert!(text(&head.expect("an answer")).starts_with("HTTP/1.1 101 "));
        connection.write(frame).expect("sent");
        let rest = connection.read_until(|_| false).expect("the server ends the connection");
        // A close frame that says: protocol error.
        assert!(rest.windows(4).any(|end| end == b"\x88\x02\x03\xea"), "{frame:?}: {rest:?}");
    }
}

/// Terminal sizes reach the command, over both protocols; kubectl needs a terminal for it, so they are
/// sent here.
#[test]
fn terminal_sizes_reach_the_command() {
    let network = network();
    let namespace = network.namespace_with_pod("resize", &["app"]);
    let path = format!(
        "/api/v1/namespaces/{namespace}/pods/web/exec?command=terminal-size&stdin=1&stdout=1&tty=1"
    );
    let headers = [
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "v5.channel.k8s.io"),
    ];
    let mut websocket = network.server.http().websocket(&path, &headers).expect("a WebSocket");
    assert_eq!(websocket.next_message().expect("a greeting").payload, [1]);
    websocket.send(integration::websocket::BINARY, b"\x04{\"Width\":80,\"Height\":24}");
    let message = websocket.next_message().expect("an output");
    assert_eq!(text(&message.payload), "\u{1}80x24\n");
    let status = websocket.next_message().expect("a status");
    assert_eq!(text(&status.payload), "\u{3}{\"metadata\":{},\"status\":\"Success\"}");
}

/// WebSockets of older protocols, and those for a kubelet that says it speaks them, are passed on as they
/// are.
#[test]
fn websockets_go_to_kubelets_that_speak_them() {
    let network = network();
    let namespace = network.namespace_with_pod("declared", &["app"]);
    let features = json!({"declaredFeatures": ["ExtendWebSocketsToKubelet"]});
    network.add_node("declared", NodeNetwork::OTHER_ADDRESS, &features);
    network.route(&format!("{}:10250", NodeNetwork::OTHER_ADDRESS), network.kubelet.port);
    network.add_pod(&namespace, "there", "declared", &["app"]);
    for (pod, protocol) in [("web", "v4.channel.k8s.io"), ("there", "v4.channel.k8s.io")] {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/exec?command=pwd&stdout=1");
        let headers = [
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", protocol),
        ];
        let mut websocket = network.server.http().websocket(&path, &headers).expect("a WebSocket");
        assert_eq!(websocket.headers["sec-websocket-protocol"], protocol);
        let mut output = String::new();
        while let Some(message) = websocket.next_message().filter(|message| message.opcode == 2) {
            output.push_str(&text(&message.payload));
        }
        assert!(output.contains("\u{1}/") && output.contains("\u{3}{"), "{pod}: {output:?}");
    }
    // The newest protocol too: whatever this kubelet makes of it, it is asked for a WebSocket.
    let path = format!("/api/v1/namespaces/{namespace}/pods/there/exec?command=newest&stdout=1");
    let headers = [
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "v5.channel.k8s.io"),
    ];
    drop(network.server.http().websocket(&path, &headers));
    let asked = integration::eventually("the kubelet is asked", || {
        let log = network.kubelet.log();
        log.lines().find(|line| line.contains("command=newest")).map(str::to_owned)
    });
    assert!(asked.starts_with("GET ") && asked.ends_with(r#"upgrade "websocket""#), "{asked}");
}

/// Admission sees the options of a CONNECT, and audit its beginning and its end.
#[test]
fn exec_is_admitted_by_its_options_and_audited() {
    let home = tempfile::tempdir().expect("a directory");
    let policy = home.path().join("policy.yaml");
    let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n  resources: \
                 [{group: '', resources: [pods/exec]}]\n";
    std::fs::write(&policy, rules).expect("a file");
    let log = home.path().join("audit.log");
    let network = NodeNetwork::with(&[
        &format!("--audit-policy-file={}", policy.display()),
        &format!("--audit-log-path={}", log.display()),
    ]);
    let namespace = network.namespace_with_pod("audit", &["app"]);
    let http = network.server.http();
    let group = "/apis/admissionregistration.k8s.io/v1";
    http.post(
        &format!("{group}/validatingadmissionpolicies"),
        &json!({
        "metadata": {"name": "no-rm"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CONNECT"], "resources": ["pods/exec"]}]},
            "validations": [{"expression":
                "object.kind == 'PodExecOptions' && object.command[0] != 'rm'"}],
        }}),
    )
    .expect(201);
    http.post(
        &format!("{group}/validatingadmissionpolicybindings"),
        &json!({
        "metadata": {"name": "no-rm"},
        "spec": {"policyName": "no-rm", "validationActions": ["Deny"]}}),
    )
    .expect(201);
    let kubectl = network.server.kubectl(Version::Current).in_namespace(&namespace);
    let denied = kubectl.fail("exec web -- rm x");
    assert!(denied.contains("ValidatingAdmissionPolicy 'no-rm'"), "{denied}");
    assert_eq!(kubectl.ok("exec web -- echo hello"), "hello\n");
    let events = || -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    integration::eventually("the session is audited to its end", || {
        events()
            .into_iter()
            .find(|event| {
                event["stage"] == "ResponseComplete"
                    && event["responseStatus"]["code"] == 101
                    && event["requestURI"].as_str().is_some_and(|uri| uri.contains("command=echo"))
            })
            .map(drop)
    });
    let metrics = http.get("/metrics").text();
    for line in [
        "apiserver_stream_translator_requests_total{code=\"200\"} 1",
        "apiserver_websocket_streaming_requests_total{proxy_type=\"translated_at_apiserver\",\
         subresource=\"exec\"} 1",
        "apiserver_egress_dialer_dial_start_total{protocol=\"http_connect\",transport=\"uds\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}
