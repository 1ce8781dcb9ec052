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

/// I13: a certificate for administrators is not requested by anyone, and the requester is who asked.
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
