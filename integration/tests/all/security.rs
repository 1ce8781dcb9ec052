//! Security cases of the chain that belong to no single feature; `docs/security.md` has the table of all.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Request, Response};
use integration::{Flavour, Http, Reply, Server, Webhook, shared};
use serde_json::{Value, json};

fn send(http: &Http, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> u16 {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    http.request(request.body(Bytes::from(body.to_owned())).expect("a request")).code
}

/// L01, C09: at the highest verbosity neither the credentials of clients nor what other servers
/// answer is in the log.
#[test]
fn no_secret_is_in_the_log_at_any_verbosity() {
    const SECRETS: [&str; 7] = [
        "hunter2-file",
        "hunter2-wrong",
        "hunter2-query",
        "hunter2-protocol",
        "hunter2-basic",
        "hunter2-cookie",
        "hunter2-answer",
    ];
    let files = tempfile::tempdir().expect("a directory");
    let tokens = files.path().join("tokens.csv");
    fs::write(&tokens, "hunter2-file,jane,1\n").expect("a file");
    let hook = Webhook::start_with(|_| {
        let body = Bytes::from_static(b"{\"kind\":\"TokenReview\",\"x\":\"hunter2-answer\"");
        Reply::Raw(Response::builder().status(500).body(body).expect("a response"))
    });
    let kubeconfig = files.path().join("hook.yaml");
    fs::write(&kubeconfig, hook.kubeconfig("/tokens")).expect("a file");
    let flags = [
        "--v=10".to_owned(),
        format!("--token-auth-file={}", tokens.display()),
        format!("--authentication-token-webhook-config-file={}", kubeconfig.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::with(Flavour::Embedded, &flags);
    let http = server.http();
    let anonymous = server.http().anonymous();
    assert_eq!(
        send(&anonymous, "GET", "/version", &[("authorization", "Bearer hunter2-file")], ""),
        200
    );
    assert_eq!(
        send(&anonymous, "GET", "/version", &[("authorization", "Bearer hunter2-wrong")], ""),
        401
    );
    assert!(hook.calls() > 0, "the webhook was asked about it");
    assert_eq!(send(&http, "GET", "/version?access_token=hunter2-query", &[], ""), 200);
    let basic = [("authorization", "Basic hunter2-basic"), ("cookie", "token=hunter2-cookie")];
    assert_eq!(send(&anonymous, "GET", "/version", &basic, ""), 200);
    let encoded = URL_SAFE_NO_PAD.encode("hunter2-protocol");
    let protocol = format!("base64url.bearer.authorization.k8s.io.{encoded}, v4.channel.k8s.io");
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-protocol", protocol.as_str()),
    ];
    let path = "/api/v1/namespaces/default/configmaps?watch=1";
    let over_http1 = server.http().anonymous().over(integration::Protocol::Http1);
    assert_eq!(send(&over_http1, "GET", path, &upgrade, ""), 401);
    // An admission webhook that answers with what must not be logged either.
    let configuration = json!({"metadata": {"name": "leaky"}, "webhooks": [{
        "name": "leaky.example.com",
        "clientConfig": {"url": hook.url("/admit"), "caBundle": hook.ca_bundle},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                   "resources": ["configmaps"]}],
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    }]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    http.post(hooks, &configuration).expect(201);
    let answer = http.post(
        "/api/v1/namespaces/default/configmaps",
        &json!({"metadata": {"name": "x"}, "data": {"a": "hunter2-body"}}),
    );
    assert_eq!(answer.code, 500);
    let log = server.log();
    assert!(log.contains("\"HTTP\" verb="), "the log is on");
    for secret in SECRETS.iter().chain(&["hunter2-body", encoded.as_str()]) {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
}

/// L02: a file with secrets that cannot be read is named, and nothing of it quoted.
#[test]
fn files_with_secrets_are_not_quoted_in_errors() {
    let marker = "hunter2secret";
    let cases = [
        ("--token-auth-file", format!("\"{marker},jane\n")),
        ("--token-auth-file", format!("{marker}\n")),
        (
            "--encryption-provider-config",
            format!(
                "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
                 - resources: [secrets]\n  providers:\n  - aescbc: {{keys: [{{name: a, secret: {marker}}}]}}\n"
            ),
        ),
        ("--encryption-provider-config", format!("{marker}: [\n")),
        (
            "--authentication-token-webhook-config-file",
            format!(
                "apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user: {{token: [{marker}]}}\n"
            ),
        ),
        ("--service-account-signing-key-file", format!("-----BEGIN {marker}")),
    ];
    for (flag, content) in cases {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("given");
        fs::write(&file, &content).expect("a file");
        let mut command = Command::new("timeout");
        command.arg("60").arg(integration::pintle_program());
        command.arg(format!("--data-dir={}", directory.path().join("data").display()));
        command.args(["--secure-port=0", &format!("{flag}={}", file.display())]);
        if flag.starts_with("--service-account") {
            command.arg(format!("--service-account-key-file={}", file.display()));
            command.arg("--service-account-issuer=https://issuer");
        }
        let output = command.output().expect("pintle can be started");
        assert_eq!(output.status.code(), Some(1), "{flag}: {content}");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(!said.contains(marker), "{flag}: {said}");
    }
}

/// L07: what the server writes is for its own user only.
#[test]
fn files_of_the_server_are_its_own() {
    fn walk(directory: &Path, found: &mut Vec<(String, u32)>) {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("a file");
            let mode = metadata.permissions().mode() & 0o777;
            found.push((path.display().to_string(), mode));
            if metadata.is_dir() {
                walk(&path, found);
            }
        }
    }
    let server = Server::with(Flavour::Embedded, &[]);
    let path = "/api/v1/namespaces/default/secrets";
    server.http().post(path, &json!({"metadata": {"name": "s"}})).expect(201);
    let mut found = Vec::new();
    walk(&server.data_directory(), &mut found);
    assert!(found.len() > 5, "{found:?}");
    for (path, mode) in found {
        // Certificates are public.
        let kind = Path::new(&path).extension();
        let public = kind.is_some_and(|kind| kind == "crt" || kind == "pub");
        let others = mode & 0o077;
        assert!(public || others == 0, "{path} has mode {mode:o}");
    }
}

/// L05, H26: there is no way to files, and a path of many dots costs nothing.
#[test]
fn paths_lead_to_no_file() {
    let http = shared().http();
    for path in
        ["/logs/", "/logs/../etc/passwd", "/logs/%2e%2e/%2e%2e/etc/passwd", "/../etc/passwd"]
    {
        let answer = http.get(path);
        assert!(matches!(answer.code, 400 | 404), "{path}: {}", answer.code);
        assert!(!answer.text().contains("root:"), "{path}");
    }
    let long = format!("/api/v1/{}", "../".repeat(20_000));
    let began = std::time::Instant::now();
    assert!(matches!(http.get(&long).code, 400 | 404 | 414));
    // Longer than this client can say.
    let mut connection =
        http.raw_blocking(std::time::Duration::from_secs(5)).expect("a connection");
    let head = format!("GET /api/v1/{} HTTP/1.1\r\nHost: x\r\n\r\n", "../".repeat(300_000));
    let _ = connection.write_all(head.as_bytes());
    let mut answer = [0; 12];
    if connection.read_exact(&mut answer).is_ok() {
        assert!(answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    }
    assert!(began.elapsed().as_secs() < 5);
}

/// R12: no user below an administrator points a Service at other namespaces.
#[test]
fn built_in_roles_do_not_write_endpoints() {
    let http = shared().http();
    for role in ["admin", "edit", "view"] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}");
        let role = http.get(&path).expect(200);
        for rule in role["rules"].as_array().expect("rules") {
            let has = |field: &str, any: &[&str]| {
                let values = rule[field].as_array().cloned().unwrap_or_default();
                values.iter().any(|value| any.iter().any(|wanted| value == wanted))
            };
            let endpoints = has("resources", &["endpoints", "endpointslices", "*"]);
            let writes =
                has("verbs", &["create", "update", "patch", "delete", "deletecollection", "*"]);
            assert!(!(endpoints && writes), "{role}: {rule}");
        }
    }
}

/// R11: addresses that are the machine's own divert no traffic, for any user.
#[test]
fn services_refuse_addresses_of_the_machine_itself() {
    let server = shared();
    let namespace = server.namespace("external-ips");
    let path = format!("/api/v1/namespaces/{namespace}/services");
    for ip in ["127.0.0.1", "::1", "169.254.1.1", "0.0.0.0", "::", "224.0.0.1", "fe80::1"] {
        let service = json!({
            "metadata": {"generateName": "s-"},
            "spec": {"ports": [{"port": 80}], "externalIPs": [ip]},
        });
        let answer = server.http().post(&path, &service);
        assert_eq!(answer.code, 422, "{ip}: {}", answer.text());
    }
}

/// I13: no user may request a certificate of `system:masters`, and a request names its requester.
#[test]
fn certificate_requests_name_their_sender_and_no_administrators() {
    let http = shared().http();
    let csr = |organization: &str| -> String {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "jane");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, organization);
        let key = rcgen::KeyPair::generate().expect("a key");
        let request = params.serialize_request(&key).expect("a request").pem().expect("PEM");
        base64::engine::general_purpose::STANDARD.encode(request)
    };
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let object = |organization: &str| {
        json!({
            "metadata": {"generateName": "security-"},
            "spec": {
                "request": csr(organization),
                "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["client auth"],
                "username": "system:admin", "groups": ["system:masters"],
            },
        })
    };
    let refused = http.post(path, &object("system:masters"));
    assert_eq!(refused.code, 403, "{}", refused.text());
    let made: Value = http.post(path, &object("dev")).expect(201);
    assert_eq!(made["spec"]["username"], "kubernetes-admin", "not who the client says");
    let name = made["metadata"]["name"].as_str().expect("a name");
    http.delete(&format!("{path}/{name}")).expect(200);
}

/// H15 (CVE-2026-32283): some updates of the keys are served, a flood of them ends the connection.
#[test]
fn h15_floods_of_key_updates_end_the_connection() {
    let http = shared().http();
    let mut stream = http.raw_blocking(PATIENCE).expect("a connection");
    let request = format!("GET /version HTTP/1.1\r\nHost: {}\r\n\r\n", http.host());
    let mut answer = [0; 12];
    for round in 0..5 {
        // The handshake ends with the first request.
        for _ in 0..10.min(10 * round) {
            stream.conn.refresh_traffic_keys().expect("TLS 1.3");
        }
        stream.write_all(request.as_bytes()).expect("the server reads");
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer, *b"HTTP/1.1 200");
        // The rest of the answer.
        let mut rest = Vec::new();
        while !rest.ends_with(b"}") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("the body");
            rest.extend(byte);
        }
    }
    for _ in 0..1_000 {
        if stream.conn.refresh_traffic_keys().is_err() || stream.flush().is_err() {
            break;
        }
    }
    let _ = stream.write_all(request.as_bytes());
    assert!(stream.read_exact(&mut answer).is_err(), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(http.get("/version").code, 200);
}

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// DER that is nested as deep as its bytes allow, or that claims to be longer than it is.
fn hostile_der() -> Vec<(&'static str, Vec<u8>)> {
    // From the inside out, so that each length is known; turned around at the end.
    let mut nested: Vec<u8> = Vec::new();
    while nested.len() < 40_000 {
        let length = nested.len();
        match length {
            0..128 => nested.push(length as u8),
            128..256 => nested.extend([length as u8, 0x81]),
            _ => nested.extend([length as u8, (length >> 8) as u8, 0x82]),
        }
        nested.push(0x30);
    }
    nested.reverse();
    vec![
        ("nested", nested),
        ("nested without lengths", [0x30, 0x80].repeat(20_000)),
        ("4 GB", vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0x30]),
        ("2^64 bytes", vec![0x30, 0x88, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ("a length of 127 bytes", [&[0x30, 0xff][..], &[0xff; 127]].concat()),
        ("a tag without end", [vec![0x3f], vec![0xff; 30_000]].concat()),
        ("nothing", Vec::new()),
    ]
}

/// H18 (CVE-2025-58185): certificates and requests whose DER asks for stack or memory.
#[test]
fn h18_hostile_der_is_refused_and_costs_nothing() {
    let server = shared();
    let http = server.http();
    let began = std::time::Instant::now();
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    for (name, der) in hostile_der() {
        let pem = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
            base64::engine::general_purpose::STANDARD.encode(&der)
        );
        let object = json!({
            "metadata": {"generateName": "der-"},
            "spec": {
                "request": base64::engine::general_purpose::STANDARD.encode(pem),
                "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["client auth"],
            },
        });
        let answer = http.post(path, &object);
        assert!(matches!(answer.code, 400 | 422), "{name}: {} {}", answer.code, answer.text());
        // As a client certificate: the handshake fails, or the request is a 401.
        let client = server.http().with_certificate_bytes(vec![der.clone()]);
        let request = Request::get("/version").body(Bytes::new()).expect("a request");
        if let Ok(answer) = client.try_request(request) {
            assert_eq!(answer.code, 401, "{name}");
        }
        // As one of many in the chain.
        let client = server.http().with_certificate_bytes(vec![der; 3]);
        let request = Request::get("/version").body(Bytes::new()).expect("a request");
        if let Ok(answer) = client.try_request(request) {
            assert_eq!(answer.code, 401, "{name} thrice");
        }
    }
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    assert_eq!(http.get("/version").code, 200);
}

/// I10: the server's own identity is in no file, no argument, no variable and no log, because
/// controllers reach the API without the network.
#[test]
fn i10_the_identity_of_the_server_is_not_on_the_network() {
    let server = Server::with(Flavour::from_env(), &["--v=10"]);
    let process = std::path::PathBuf::from(format!("/proc/{}", server.id()));
    let read = |name: &str| {
        String::from_utf8_lossy(&fs::read(process.join(name)).expect("a file of /proc"))
            .into_owned()
    };
    let mut texts = vec![
        ("arguments".to_owned(), read("cmdline")),
        ("environment".to_owned(), read("environ")),
        ("log".to_owned(), server.log()),
    ];
    let mut certificates = Vec::new();
    for directory in [server.data_directory(), server.data_directory().join("pki")] {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let Ok(text) = fs::read_to_string(&path) else { continue };
            if path.extension().is_some_and(|end| end == "crt") {
                certificates.push((path.clone(), text.clone()));
            }
            texts.push((path.display().to_string(), text));
        }
    }
    assert!(texts.len() > 6, "the data directory was read");
    let token = regex::Regex::new(r"eyJ[\w-]{10,}\.[\w-]{10,}\.|(?i:bearer) \w|token: *\S")
        .expect("a pattern");
    for (place, text) in &texts {
        assert!(!token.is_match(text), "{place} has a token");
    }
    // No generated certificate is of the server's own user.
    assert!(certificates.len() > 3, "the certificates were found");
    for (path, pem) in certificates {
        for block in pem.split("-----END CERTIFICATE-----").filter(|block| block.contains("BEGIN"))
        {
            let body: String = block.lines().filter(|line| !line.starts_with('-')).collect();
            let der = base64::engine::general_purpose::STANDARD.decode(body).expect("PEM");
            let named = der.windows(16).any(|bytes| bytes == b"system:apiserver");
            assert!(!named, "{}", path.display());
        }
    }
    // What a client may guess is no credential either.
    for token in ["system:apiserver", "loopback", "apiserver-loopback-client"] {
        let client = server.http().with_token(token);
        assert_eq!(client.get("/api/v1/namespaces").code, 401, "{token:?}");
    }
    let loopback = Request::get("/api/v1/namespaces")
        .header("host", "apiserver-loopback-client")
        .body(Bytes::new())
        .expect("a request");
    assert_eq!(server.http().anonymous().request(loopback).code, 403);
}

/// O11: connections do not take the descriptors that the store and other servers need; those beyond
/// the limit are closed, and clients come in again once others leave.
#[test]
fn o11_connections_leave_descriptors_for_the_store() {
    let mut server = Server::with(Flavour::Embedded, &[]);
    assert!(server.stop().success());
    server.limit_descriptors(256);
    server.start_again();
    let http = server.http();
    let mut admitted = http.connect().expect("a connection");
    let mut write = |name: &str| {
        let body = json!({"metadata": {"name": name}, "data": {"a": "b".repeat(100_000)}});
        let request = Request::post("/api/v1/namespaces/default/configmaps")
            .header("content-type", "application/json")
            .body(Bytes::from(body.to_string()));
        admitted.request(request.expect("a request")).expect("an answer").code
    };
    assert_eq!(write("before"), 201);
    let silent: Vec<_> = (0..400)
        .map(|_| std::net::TcpStream::connect(http.host()).expect("the kernel accepts"))
        .collect();
    // Enough for a new segment of the log, which is a new file.
    for at in 0..200 {
        assert_eq!(write(&format!("during-{at}")), 201, "write {at}");
    }
    let open = fs::read_dir(format!("/proc/{}/fd", server.id())).expect("a directory").count();
    assert!(open < 256, "{open} descriptors are open");
    assert!(!server.log().contains("Too many open files"), "{}", server.log());
    drop(silent);
    integration::eventually("clients come in again", || {
        let request = Request::get("/version").body(Bytes::new()).expect("a request");
        http.try_request(request).is_ok_and(|answer| answer.code == 200).then_some(())
    });
}

/// The tables of `docs/security.md` and `docs/compatibility.md` name tests that exist.
#[test]
fn every_test_of_the_tables_exists() {
    fn sources(directory: &Path, into: &mut String) {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                sources(&path, into);
            } else if path.extension().is_some_and(|end| end == "rs") {
                into.push_str(&fs::read_to_string(&path).expect("UTF-8"));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut code = String::new();
    for directory in ["crates", "integration"] {
        sources(&root.join(directory), &mut code);
    }
    let read = |file: &str| fs::read_to_string(root.join("docs").join(file)).expect("a file");
    let tables = ["security.md", "compatibility.md"].map(read).concat();
    let name =
        regex::Regex::new(r"`(?:([a-z0-9_]+)::)?([a-z0-9_]+_[a-z0-9_]+)`").expect("a pattern");
    let mut count = 0;
    for row in tables.lines().filter(|line| line.starts_with("| ")) {
        let tests = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        for found in name.captures_iter(tests) {
            let function = format!("fn {}(", &found[2]);
            assert!(code.contains(&function), "there is no {function}): {row}");
            if let Some(file) = found.get(1) {
                let file = root.join(format!("integration/tests/all/{}.rs", file.as_str()));
                let text = fs::read_to_string(&file).unwrap_or_default();
                assert!(text.contains(&function), "{} has no {function})", file.display());
            }
            count += 1;
        }
    }
    assert!(count > 250, "{count} tests were found");
}

/// H25: whatever form a target has, it reaches the route that was authorized or none.
#[test]
fn h25_odd_targets_reach_the_route_that_was_authorized() {
    let server = shared();
    let http = server.http();
    let namespace = server.namespace("targets");
    let core = format!("/api/v1/namespaces/{namespace}");
    let data = json!({"metadata": {"name": "open"}, "data": {"a": "what-readers-may-see"}});
    http.post(&format!("{core}/configmaps"), &data).expect(201);
    let hidden = json!({"metadata": {"name": "hidden"}, "stringData": {"a": "x"},
        "type": "example.com/what-no-reader-may-see"});
    http.post(&format!("{core}/secrets"), &hidden).expect(201);
    // A user with a right on one route.
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    http.post(
        &format!("{rbac}/roles"),
        &json!({"metadata": {"name": "one"}, "rules": [{"apiGroups": [""],
            "resources": ["configmaps"], "resourceNames": ["open"], "verbs": ["get"]}]}),
    )
    .expect(201);
    http.post(
        &format!("{rbac}/rolebindings"),
        &json!({"metadata": {"name": "one"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": namespace}]}),
    )
    .expect(201);
    http.post(&format!("{core}/serviceaccounts"), &json!({"metadata": {"name": "robot"}}))
        .expect(201);
    let token = http.post(&format!("{core}/serviceaccounts/robot/token"), &json!({})).expect(201);
    let robot = http.clone().with_token(token["status"]["token"].as_str().expect("a token"));
    let allowed = format!("{core}/configmaps/open");
    integration::eventually("the role counts", || (robot.get(&allowed).code == 200).then_some(()));
    let send = |http: &integration::Http, line: &str| {
        let mut connection = http.raw().expect("a connection");
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\n{}Connection: close\r\n\r\n",
            http.host(),
            http.authorization()
        );
        connection.write(request.as_bytes()).expect("written");
        let answer = connection.read_until(|_| false).expect("read");
        String::from_utf8_lossy(&answer).into_owned()
    };
    let host = robot.host();
    for target in
        [allowed.clone(), format!("https://{host}{allowed}"), format!("{allowed}?x=/../y")]
    {
        let answer = send(&robot, &format!("GET {target}"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{target}: {answer}");
        assert!(answer.contains("what-readers-may-see"), "{target}: {answer}");
    }
    let secret = format!("{core}/secrets/hidden");
    let odd = [
        secret.clone(),
        format!("https://{host}{secret}"),
        format!("//{secret}"),
        format!("{allowed}/../../secrets/hidden"),
        format!("{allowed}/%2e%2e/%2e%2e/secrets/hidden"),
        format!("{allowed}/..%2f..%2fsecrets%2fhidden"),
        format!("{allowed}%2f..%2f..%2fsecrets/hidden"),
        format!("{core}/configmaps/../secrets/hidden"),
        format!("{core}/configmaps/%2e%2e/secrets/hidden"),
        format!("{core}/./secrets/hidden"),
        format!("{core}//secrets/hidden"),
        format!("{core}/secrets/hidden%00"),
        format!("{core}/secrets%00/hidden"),
        format!("{core}/secrets/hidden/"),
        format!("{core}/secrets;configmaps/hidden"),
        format!("{core}/%73ecrets/hidden"),
        format!("{core}/secrets/%68idden"),
        format!("{core}/configmaps/open%2F..%2F..%2Fsecrets%2Fhidden"),
        format!("/healthz/..{secret}"),
        format!("/healthz/%2e%2e{secret}"),
        format!("/version/..{secret}"),
        format!("/api/v1/watch/namespaces/{namespace}/secrets/hidden?timeoutSeconds=1"),
        format!("/api/v1/proxy/..{secret}"),
        "*".to_owned(),
    ];
    for target in odd {
        let answer = send(&robot, &format!("GET {target}"));
        let code = answer.split(' ').nth(1).unwrap_or_default().to_owned();
        assert!(["301", "400", "403", "404"].contains(&code.as_str()), "{target}: {answer}");
        assert!(!answer.contains("what-no-reader-may-see"), "{target}: {answer}");
    }
    // An administrator's request for a path with dots reaches no other route either.
    for target in
        [format!("{core}/configmaps/../secrets/hidden"), format!("{core}/secrets/hidden%00")]
    {
        let answer = send(&http, &format!("GET {target}"));
        assert!(!answer.contains("what-no-reader-may-see"), "{target}: {answer}");
    }
    // No method makes a tunnel or an echo of a request.
    for line in
        [format!("TRACE {allowed}"), format!("CONNECT {host}"), format!("CONNECT {allowed}")]
    {
        let answer = send(&http, &line);
        let code = answer.split(' ').nth(1).unwrap_or_default().to_owned();
        assert!(code.starts_with('4'), "{line}: {answer}");
        assert!(!answer.to_lowercase().contains("authorization:"), "{line}: {answer}");
    }
}
