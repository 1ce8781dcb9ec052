//! Every authenticator over TLS, with real certificates, tokens and issuers.

use std::{fs, path::Path, sync::Arc, sync::Mutex};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use http::Request;
use integration::{Answer, Authority, Flavour, Http, Server, Version, Webhook, eventually};
use serde_json::{Value, json};

use crate::assert_contains;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn write(directory: &Path, name: &str, content: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, content).expect("a file in a temporary directory");
    path.display().to_string()
}

fn start(flags: &[String]) -> Server {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Server::with(Flavour::Embedded, &flags)
}

/// A SelfSubjectReview with these headers.
fn review(http: &Http, headers: &[(&str, &str)]) -> Answer {
    let body = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let mut request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    http.request(request.body(Bytes::from(body.to_string())).expect("a valid request"))
}

/// The user that the server sees in a client.
#[track_caller]
fn whoami(http: &Http) -> Value {
    review(http, &[]).expect(201)["status"]["userInfo"].clone()
}

/// A 401 says nothing about its cause.
#[track_caller]
fn assert_unauthorized(answer: &Answer) {
    let status = answer.expect(401);
    assert_eq!(status["message"], "Unauthorized");
    assert_eq!(status["reason"], "Unauthorized");
    assert!(status.get("details").is_none(), "{status}");
}

/// The flags of a front proxy, as kubeadm writes them.
fn front_proxy(directory: &Path, authority: &Authority) -> Vec<String> {
    vec![
        format!(
            "--requestheader-client-ca-file={}",
            write(directory, "front-proxy-ca.crt", &authority.pem)
        ),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-uid-headers=X-Remote-Uid".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
    ]
}

#[test]
fn kubeadms_files_and_flags_start_the_server() {
    let files = directory();
    let (front, kubelet) = (Authority::new("front-proxy-ca"), Authority::new("kubernetes"));
    let mut flags = front_proxy(files.path(), &front);
    let pairs = [
        ("kubelet-client-certificate", "kubelet-client-key", kubelet.client("kubelet-client", &[])),
        (
            "proxy-client-cert-file",
            "proxy-client-key-file",
            front.client("front-proxy-client", &[]),
        ),
    ];
    for (certificate, key, pair) in pairs {
        let [certificate_file, key_file] = pair.write(files.path(), certificate);
        flags.push(format!("--{certificate}={}", certificate_file.display()));
        flags.push(format!("--{key}={}", key_file.display()));
    }
    flags.extend(
        [
            "--allow-privileged=true",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--enable-bootstrap-token-auth=true",
            "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--service-cluster-ip-range=10.96.0.0/12",
        ]
        .map(str::to_owned),
    );
    let server = start(&flags);
    assert_eq!(server.http().get("/readyz").code, 200);
}

#[test]
fn a_key_that_does_not_belong_to_its_certificate_stops_the_start() {
    let files = directory();
    let authority = Authority::new("a");
    let [certificate, _] = authority.client("one", &[]).write(files.path(), "one");
    let [_, key] = authority.client("two", &[]).write(files.path(), "two");
    let flags = [
        format!("--kubelet-client-certificate={}", certificate.display()),
        format!("--kubelet-client-key={}", key.display()),
    ];
    let output = refused(&flags);
    assert_contains(&output, &["--kubelet-client-certificate", "one.crt", "two.key"]);
}

/// What a server says that does not start.
fn refused(flags: &[String]) -> String {
    let data = directory();
    let output = std::process::Command::new("timeout")
        .arg("60")
        .arg(integration::pintle_program())
        .arg(format!("--data-dir={}", data.path().display()))
        .arg("--secure-port=0")
        .args(flags)
        .output()
        .expect("pintle can be started");
    assert_eq!(output.status.code(), Some(1), "it started");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Security cases I02 and I03.
#[test]
fn only_a_front_proxy_may_name_users_in_headers() {
    let files = directory();
    let front = Authority::new("front-proxy-ca");
    let server = start(&front_proxy(files.path(), &front));
    let clients = Authority::load(&server.data_directory().join("pki"));
    let headers = [
        ("X-Remote-User", "jane"),
        ("X-Remote-Uid", "42"),
        ("X-Remote-Group", "dev"),
        ("X-Remote-Group", "system:masters"),
        ("X-Remote-Extra-Acme.com%2Fproject", "p"),
    ];
    let proxy = server.http().with_certificate(&front.client("front-proxy-client", &[]));
    let user = review(&proxy, &headers).expect(201)["status"]["userInfo"].clone();
    assert_eq!(user["username"], "jane");
    assert_eq!(user["uid"], "42");
    assert_eq!(user["groups"], json!(["dev", "system:masters", "system:authenticated"]));
    assert_eq!(user["extra"], json!({"acme.com/project": ["p"]}));

    // A proxy that names no user is no user itself: its CA signs none.
    assert_unauthorized(&review(&proxy, &[]));
    let other = server.http().with_certificate(&front.client("another-proxy", &[]));
    assert_unauthorized(&review(&other, &headers));
    let stranger = Authority::new("front-proxy-ca").client("front-proxy-client", &[]);
    assert_unauthorized(&review(&server.http().with_certificate(&stranger), &headers));
    // The headers of any other client are ignored.
    let bob = server.http().with_certificate(&clients.client("bob", &["ops"]));
    let user = review(&bob, &headers).expect(201)["status"]["userInfo"].clone();
    assert_eq!((&user["username"], &user["groups"][0]), (&json!("bob"), &json!("ops")));
    let named = clients.client("front-proxy-client", &[]);
    let named = review(&server.http().with_certificate(&named), &headers).expect(201);
    assert_eq!(named["status"]["userInfo"]["username"], "front-proxy-client");
    let anonymous = review(&server.http().anonymous(), &headers);
    assert_contains(&anonymous.text(), &["system:anonymous"]);
    assert_eq!(anonymous.code, 403);
}

#[test]
fn one_authority_for_clients_and_front_proxies_needs_allowed_names() {
    let files = directory();
    let authority = Authority::new("both");
    let file = write(files.path(), "ca.crt", &authority.pem);
    let flags =
        [format!("--client-ca-file={file}"), format!("--requestheader-client-ca-file={file}")];
    assert_contains(&refused(&flags), &["--requestheader-allowed-names must be specified"]);
}

#[test]
fn extension_apiserver_authentication_is_kept_current() {
    let files = directory();
    let (front, next) = (Authority::new("front"), Authority::new("next"));
    let server = start(&front_proxy(files.path(), &front));
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let data = || server.http().get(path).json()["data"].clone();
    let first = data();
    assert_eq!(first["requestheader-username-headers"], r#"["X-Remote-User"]"#);
    assert_eq!(first["requestheader-uid-headers"], r#"["X-Remote-Uid"]"#);
    assert_eq!(first["requestheader-group-headers"], r#"["X-Remote-Group"]"#);
    assert_eq!(first["requestheader-extra-headers-prefix"], r#"["X-Remote-Extra-"]"#);
    assert_eq!(first["requestheader-allowed-names"], r#"["front-proxy-client"]"#);
    let has = |text: &Value, pem: &str| {
        text.as_str().is_some_and(|text| text.contains(pem.replace("\r\n", "\n").trim()))
    };
    assert!(has(&first["requestheader-client-ca-file"], &front.pem), "{first}");
    let own = fs::read_to_string(server.data_directory().join("pki/ca.crt")).expect("its CA");
    assert!(has(&first["client-ca-file"], &own), "{first}");

    server.http().delete(path).expect(200);
    eventually("it is created again", || (data() == first).then_some(()));

    // The CA is rotated: the new one is published and trusted, the old one stays published.
    write(files.path(), "front-proxy-ca.crt", &next.pem);
    let both = eventually("the new CA is published", || {
        let now = data();
        has(&now["requestheader-client-ca-file"], &next.pem).then_some(now)
    });
    assert!(has(&both["requestheader-client-ca-file"], &front.pem), "{both}");
    let proxy = server.http().with_certificate(&next.client("front-proxy-client", &[]));
    eventually("the new CA is trusted", || {
        (review(&proxy, &[("X-Remote-User", "jane")]).code == 201).then_some(())
    });
}

#[test]
fn bootstrap_tokens_authenticate_while_their_secret_says_so() {
    let server = start(&["--enable-bootstrap-token-auth".to_owned(), "--v=10".to_owned()]);
    let secret = |id: &str, extra: Value| {
        let mut data = json!({
            "token-id": id,
            "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        });
        for (key, value) in extra.as_object().expect("an object") {
            data[key] = value.clone();
        }
        let object = json!({
            "metadata": {"name": format!("bootstrap-token-{id}")},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": data,
        });
        let path = "/api/v1/namespaces/kube-system/secrets";
        server.http().post(path, &object).expect(201);
        server.http().anonymous().with_token(&format!("{id}.0123456789abcdef"))
    };
    let node = secret("abcdef", json!({}));
    let user = whoami(&node);
    assert_eq!(user["username"], "system:bootstrap:abcdef");
    let groups = [
        "system:bootstrappers",
        "system:bootstrappers:kubeadm:default-node-token",
        "system:authenticated",
    ];
    assert_eq!(user["groups"], json!(groups));
    let wrong = [
        secret("expire", json!({"expiration": "2020-01-01T00:00:00Z"})),
        secret("nousag", json!({"usage-bootstrap-authentication": "false"})),
        secret("master", json!({"auth-extra-groups": "system:masters"})),
        server.http().anonymous().with_token("abcdef.0123456789abcdee"),
        server.http().anonymous().with_token("nobody.0123456789abcdef"),
    ];
    for client in &wrong {
        assert_unauthorized(&review(client, &[]));
    }
    let path = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef";
    server.http().delete(path).expect(200);
    assert_unauthorized(&review(&node, &[]));
    // Security case I09: right or wrong, a token is never logged.
    let log = server.log();
    assert!(!log.contains("0123456789abcde"), "a token is in the log");
}

#[test]
fn a_bad_credential_is_401_even_where_none_would_do() {
    let files = directory();
    let tokens = write(files.path(), "tokens.csv", "good,jane,1,\"dev,ops\"\n");
    let server = start(&[format!("--token-auth-file={tokens}")]);
    assert_eq!(whoami(&server.http().anonymous().with_token("good"))["username"], "jane");
    assert_eq!(server.http().anonymous().get("/livez").code, 200);
    assert_unauthorized(&server.http().anonymous().with_token("bad").get("/livez"));
    let stranger = Authority::new("stranger").client("admin", &["system:masters"]);
    assert_unauthorized(&server.http().with_certificate(&stranger).get("/livez"));
    // A good token makes up for a bad certificate, and a good certificate for a bad token.
    let bearer = |token: &str| [("Authorization", format!("Bearer {token}"))];
    let [(name, good)] = bearer("good");
    let jane = review(&server.http().with_certificate(&stranger), &[(name, &good)]).expect(201);
    assert_eq!(jane["status"]["userInfo"]["username"], "jane");
    let [(name, bad)] = bearer("bad");
    let admin = review(&server.http(), &[(name, &bad)]).expect(201);
    assert_eq!(admin["status"]["userInfo"]["username"], "kubernetes-admin");
}

#[test]
fn anonymous_requests_can_be_switched_off_or_limited_to_paths() {
    let off = start(&["--anonymous-auth=false".to_owned()]);
    assert_unauthorized(&off.http().anonymous().get("/livez"));
    let files = directory();
    let config = write(
        files.path(),
        "authn.yaml",
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous:\n  \
         enabled: true\n  conditions:\n  - path: /livez\n  - path: /readyz\n",
    );
    let limited = start(&[format!("--authentication-config={config}")]);
    let anonymous = limited.http().anonymous();
    assert_eq!(anonymous.get("/livez").code, 200);
    for path in ["/healthz", "/livez/ping", "/api/v1/pods", "/version"] {
        assert_unauthorized(&anonymous.get(path));
    }
    let both = [format!("--authentication-config={config}"), "--anonymous-auth=true".to_owned()];
    assert_contains(
        &refused(&both),
        &["anonymous: Forbidden: --anonymous-auth flag cannot be set"],
    );
}

#[test]
fn a_webhook_knows_tokens() {
    let files = directory();
    let hook = Webhook::start(|asked| {
        let version = asked["apiVersion"].clone();
        let status = match asked["spec"]["token"].as_str() {
            Some("good") => json!({"authenticated": true, "user": {
                "username": "jane", "uid": "7", "groups": ["dev"], "extra": {"k": ["v"]}}}),
            _ => json!({"authenticated": false, "error": "secret-reason"}),
        };
        json!({"kind": "TokenReview", "apiVersion": version, "status": status})
    });
    let kubeconfig = write(files.path(), "hook.yaml", &hook.kubeconfig("/authenticate"));
    for version in ["v1", "v1beta1"] {
        let server = start(&[
            format!("--authentication-token-webhook-config-file={kubeconfig}"),
            format!("--authentication-token-webhook-version={version}"),
        ]);
        let jane = server.http().anonymous().with_token("good");
        let user = whoami(&jane);
        assert_eq!(user["username"], "jane");
        assert_eq!(user["groups"], json!(["dev", "system:authenticated"]));
        let before = hook.calls();
        whoami(&jane);
        assert_eq!(hook.calls(), before, "it is remembered");
        assert_unauthorized(&review(&server.http().anonymous().with_token("bad"), &[]));
        // What the server's own authenticators know is not sent out.
        let account = server.kubectl(Version::Current).ok("create token default");
        let before = hook.calls();
        whoami(&server.http().anonymous().with_token(account.trim()));
        assert_eq!(hook.calls(), before);
    }
}

/// An OpenID issuer whose key can be replaced.
pub(crate) struct Issuer {
    server: Webhook,
    keys: Arc<Mutex<Vec<Value>>>,
}

pub(crate) struct Key {
    id: String,
    pair: EcdsaKeyPair,
}

impl Key {
    pub(crate) fn new(id: &str) -> Self {
        let random = aws_lc_rs::rand::SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref()).expect("a key");
        Self { id: id.to_owned(), pair }
    }

    fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..65]].map(|part| URL_SAFE_NO_PAD.encode(part));
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id, "x": x, "y": y})
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "kid": self.id});
        let message =
            [&header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        let random = aws_lc_rs::rand::SystemRandom::new();
        let signature = self.pair.sign(&random, message.as_bytes()).expect("it signs");
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

impl Issuer {
    pub(crate) fn start(key: &Key) -> Self {
        let keys = Arc::new(Mutex::new(vec![key.jwk()]));
        let own = Arc::new(Mutex::new(String::new()));
        let (served, url) = (keys.clone(), own.clone());
        let server = Webhook::by_path(move |path, _| {
            let url = url.lock().expect("no panic").clone();
            if path.ends_with("/.well-known/openid-configuration") {
                json!({"issuer": url, "jwks_uri": format!("{url}/keys")})
            } else {
                json!({"keys": *served.lock().expect("no panic")})
            }
        });
        *own.lock().expect("no panic") = server.url("");
        Self { server, keys }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url("")
    }

    pub(crate) fn authority(&self) -> String {
        let pem = STANDARD.decode(&self.server.ca_bundle).expect("base64");
        String::from_utf8(pem).expect("PEM")
    }

    pub(crate) fn claims(&self) -> Value {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.expect("after 1970").as_secs();
        json!({"iss": self.url(), "aud": ["pintle"], "sub": "jane", "groups": ["dev"],
            "email": "jane@example.com", "email_verified": true, "iat": now, "exp": now + 600})
    }
}

/// Security case I04, and the rotation of keys.
#[test]
fn openid_tokens_by_flags() {
    let files = directory();
    let (key, next) = (Key::new("one"), Key::new("two"));
    let issuer = Issuer::start(&key);
    let ca = write(files.path(), "issuer.crt", &issuer.authority());
    let server = start(&[
        format!("--oidc-issuer-url={}", issuer.url()),
        "--oidc-client-id=pintle".to_owned(),
        format!("--oidc-ca-file={ca}"),
        "--oidc-groups-claim=groups".to_owned(),
        "--oidc-groups-prefix=oidc:".to_owned(),
        "--oidc-signing-algs=ES256".to_owned(),
        "--oidc-required-claim=email=jane@example.com".to_owned(),
    ]);
    let client = |token: &str| server.http().anonymous().with_token(token);
    let good = key.sign(&issuer.claims());
    eventually("the issuer is found", || (review(&client(&good), &[]).code == 201).then_some(()));
    let user = whoami(&client(&good));
    assert_eq!(user["username"], format!("{}#jane", issuer.url()));
    assert_eq!(user["groups"], json!(["oidc:dev", "system:authenticated"]));
    let changed = |name: &str, value: Value| {
        let mut claims = issuer.claims();
        claims[name] = value;
        key.sign(&claims)
    };
    let (message, signature) = good.rsplit_once('.').expect("a token has parts");
    let unsigned = {
        let payload = URL_SAFE_NO_PAD.encode(issuer.claims().to_string());
        format!("{}.{payload}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#))
    };
    let wrong = [
        changed("aud", json!("another")),
        changed("exp", json!(1)),
        changed("nbf", json!(4_000_000_000_u64)),
        changed("iss", json!("https://elsewhere")),
        changed("email", json!("joe@example.com")),
        unsigned,
        format!("{message}.{}", URL_SAFE_NO_PAD.encode([1; 64])),
        format!("{message}{signature}"),
        Key::new("one").sign(&issuer.claims()),
        format!("{good}.{}", "a".repeat(70_000)),
        ".".repeat(60_000),
    ];
    for token in &wrong {
        assert_unauthorized(&review(&client(token), &[]));
    }
    *issuer.keys.lock().expect("no panic") = vec![next.jwk()];
    let rotated = next.sign(&issuer.claims());
    eventually("the new key is fetched", || {
        (review(&client(&rotated), &[]).code == 201).then_some(())
    });
}

#[test]
fn openid_tokens_by_a_file_that_changes() {
    let files = directory();
    let (first_key, second_key) = (Key::new("one"), Key::new("two"));
    let (first, second) = (Issuer::start(&first_key), Issuer::start(&second_key));
    let jwt = |issuer: &Issuer, rest: Value| {
        let mut jwt = json!({
            "issuer": {"url": issuer.url(), "audiences": ["pintle", "other"],
                "audienceMatchPolicy": "MatchAny", "certificateAuthority": issuer.authority()},
            "claimMappings": {"username": {"expression": "claims.email_verified ? claims.email : ''"},
                "groups": {"expression": "claims.groups.map(group, 'g:' + group)"},
                "extra": [{"key": "example.com/sub", "valueExpression": "claims.sub"}]},
            "userValidationRules": [
                {"expression": "!user.username.startsWith('system:')", "message": "no system users"}],
        });
        for (name, value) in rest.as_object().expect("an object") {
            jwt[name] = value.clone();
        }
        jwt
    };
    let file = |jwt: Value| {
        json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
            "jwt": jwt})
        .to_string()
    };
    let one = file(json!([jwt(&first, json!({}))]));
    let config = write(files.path(), "authn.yaml", &one);
    let server = start(&[format!("--authentication-config={config}")]);
    let client = |token: &str| server.http().anonymous().with_token(token);
    let of_first = first_key.sign(&first.claims());
    let of_second = second_key.sign(&second.claims());
    eventually("the issuer is found", || {
        (review(&client(&of_first), &[]).code == 201).then_some(())
    });
    let user = whoami(&client(&of_first));
    assert_eq!(user["username"], "jane@example.com");
    assert_eq!(user["groups"], json!(["g:dev", "system:authenticated"]));
    assert_eq!(user["extra"]["example.com/sub"], json!(["jane"]));
    let mut system = first.claims();
    system["email"] = json!("system:admin");
    assert_unauthorized(&review(&client(&first_key.sign(&system)), &[]));
    assert_unauthorized(&review(&client(&of_second), &[]));

    // A wrong file changes nothing, and is counted.
    write(files.path(), "authn.yaml", &one.replace("claims.email_verified", "nothing"));
    let reloads = "apiserver_authentication_config_controller_automatic_reloads_total";
    let counted = |status: &str| {
        let metrics = server.http().get("/metrics").text();
        let mut lines = metrics.lines().filter(|line| line.starts_with(reloads));
        lines.any(|line| line.contains(&format!("status=\"{status}\"")))
    };
    eventually("the error is counted", || counted("failure").then_some(()));
    assert_eq!(whoami(&client(&of_first))["username"], "jane@example.com");
    assert!(server.log().contains("failed to load authentication config"), "it is logged");

    let rules = json!({"claimValidationRules": [
        {"expression": "claims.sub == 'jane'", "message": "only jane"}]});
    write(files.path(), "authn.yaml", &file(json!([jwt(&first, json!({})), jwt(&second, rules)])));
    eventually("the second issuer is known", || {
        (review(&client(&of_second), &[]).code == 201).then_some(())
    });
    assert!(counted("success"));
    whoami(&client(&of_first));
    let mut joe = second.claims();
    joe["sub"] = json!("joe");
    assert_unauthorized(&review(&client(&second_key.sign(&joe)), &[]));
}

#[test]
fn a_configuration_with_an_error_stops_the_start_and_names_it() {
    let files = directory();
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    let cases = [
        ("jwt: [", "yaml: line "),
        ("jwt: []\nanonymos: {}", "unknown field \\\"anonymos\\\""),
        ("jwt: [{}]", "jwt[0].issuer.url: Required value"),
        ("jwt: [{issuer: {url: 7}}]", "jwt[0].issuer.url of type string"),
    ];
    for (text, expected) in cases {
        let file = write(files.path(), "authn.yaml", &format!("{head}{text}"));
        let output = refused(&[format!("--authentication-config={file}")]);
        let expected = expected.replace("\\\"", "\"");
        assert_contains(&output, &[&expected]);
    }
}

#[test]
fn kubectl_sees_who_it_is() {
    let server = integration::shared();
    let kubectl = server.kubectl(Version::Current);
    assert_contains(&kubectl.ok("auth whoami"), &["kubernetes-admin", "system:masters"]);
    let shown = kubectl.ok("auth whoami --as jane --as-group dev --as-uid 7");
    assert_contains(&shown, &["jane", "dev", "system:authenticated", "7"]);
}

/// Security case I01.
#[test]
fn certificates_that_are_not_good_are_401() {
    let server = integration::shared();
    if server.flavour().is_peer() {
        return;
    }
    let clients = Authority::load(&server.data_directory().join("pki"));
    let who = |pair| review(&server.http().with_certificate(&pair), &[]);
    assert_eq!(who(clients.client("bob", &[])).code, 201);
    // An authority of the same name with another key, and a user that signs others.
    let bad = [
        clients.server_only("bob"),
        clients.valid_between("bob", 2001, 2002),
        clients.valid_between("bob", 2090, 2091),
        Authority::new("kubernetes").client("bob", &["system:masters"]),
        // Groups without a user: it was a cluster administrator without a name.
        clients.client("", &["system:masters"]),
    ];
    for pair in bad {
        assert_unauthorized(&who(pair));
    }
}

/// Security case I05.
#[test]
fn absurd_tokens_are_401_at_once() {
    let server = integration::shared();
    let encrypted = URL_SAFE_NO_PAD.encode(
        r#"{"alg":"PBES2-HS256+A128KW","enc":"A128CBC-HS256","p2c":1000000000,"zip":"DEF"}"#,
    );
    let tokens = [
        ".".repeat(500_000),
        "x".repeat(900_000),
        format!("{encrypted}.a.b.c.d"),
        format!("{}.e30.e30", "e30".repeat(10_000)),
    ];
    for token in tokens {
        let began = std::time::Instant::now();
        let answer = review(&server.http().anonymous().with_token(&token), &[]);
        assert!(matches!(answer.code, 401 | 431), "{}", answer.code);
        assert!(began.elapsed() < std::time::Duration::from_secs(5));
    }
    assert_eq!(server.http().get("/livez").code, 200);
}
