//! C08, C10, R13: webhooks of authentication and authorization, and OpenID issuers, that redirect, answer
//! without end, lie, hang or are down. Each is bounded, and none is ever a permission.

use std::{
    fs,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Response;
use integration::{Flavour, Reply, Server, Webhook, eventually};
use serde_json::{Value, json};

/// What the hostile server does at the moment.
type Behaviour = Arc<Mutex<Box<dyn Fn(&Value) -> Reply + Send + Sync>>>;

fn raw(code: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
    let mut response = Response::builder().status(code).header("content-type", "application/json");
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    Reply::Raw(response.body(body.into()).expect("a response"))
}

fn resident_bytes(server: &Server) -> f64 {
    let text = server.http().get("/metrics").text();
    let line = text.lines().find(|line| line.starts_with("process_resident_memory_bytes "));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("the metric")
}

/// Makes an answer of the question.
type Lie = Box<dyn Fn(&Value) -> Reply + Send + Sync>;

/// A yes to whatever is asked, but in a form that is no valid answer.
fn lies() -> Vec<(&'static str, Lie)> {
    fn yes() -> Value {
        json!({"allowed": true, "authenticated": true,
            "user": {"username": "root", "groups": ["system:masters"]}})
    }
    let huge = Bytes::from(vec![b' '; 64 << 20]);
    vec![
        ("500", Box::new(|_: &Value| raw(500, &[], yes().to_string()))),
        ("403", Box::new(|_: &Value| raw(403, &[], yes().to_string()))),
        ("nothing", Box::new(|_: &Value| raw(200, &[], ""))),
        ("no JSON", Box::new(|_: &Value| raw(200, &[], "allowed: true"))),
        ("half of it", Box::new(|_: &Value| raw(200, &[], "{\"status\":{\"allowed\":true"))),
        (
            "another kind",
            Box::new(|asked: &Value| {
                Reply::Json(
                    json!({"kind": "Pod", "apiVersion": asked["apiVersion"], "status": yes()}),
                )
            }),
        ),
        (
            "another version",
            Box::new(|asked: &Value| {
                Reply::Json(json!({"kind": asked["kind"], "apiVersion": "v7", "status": yes()}))
            }),
        ),
        (
            "texts for booleans",
            Box::new(|asked: &Value| {
                Reply::Json(json!({"kind": asked["kind"], "apiVersion": asked["apiVersion"],
                "status": {"allowed": "true", "authenticated": "true"}}))
            }),
        ),
        (
            "allowed and denied",
            Box::new(|asked: &Value| {
                Reply::Json(json!({"kind": asked["kind"], "apiVersion": asked["apiVersion"],
                "status": {"allowed": true, "denied": true, "authenticated": true, "error": "no"}}))
            }),
        ),
        ("64 MB", Box::new(move |_: &Value| raw(200, &[], huge.clone()))),
    ]
}

#[test]
fn c08_c10_r13_hostile_reviews_are_bounded_and_no_permission() {
    let files = tempfile::tempdir().expect("a directory");
    let write = |name: &str, content: &str| {
        let path = files.path().join(name);
        fs::write(&path, content).expect("a file");
        path.display().to_string()
    };
    let trap = Webhook::start(|asked| {
        json!({"kind": asked["kind"], "apiVersion": asked["apiVersion"],
            "status": {"allowed": true, "authenticated": true, "user": {"username": "root"}}})
    });
    let behaviour: Behaviour = Arc::new(Mutex::new(Box::new(|_: &Value| Reply::Never)));
    let current = behaviour.clone();
    let hook = Webhook::start_with(move |asked| current.lock().expect("no panic")(&asked));
    let policy = write("authz.yaml", &{
        let kubeconfig = write("authorize", &hook.kubeconfig("/authorize"));
        json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration",
            "authorizers": [{"type": "Webhook", "name": "hostile", "webhook": {
                "timeout": "1s", "subjectAccessReviewVersion": "v1", "failurePolicy": "NoOpinion",
                "authorizedTTL": "1s", "unauthorizedTTL": "1s",
                "matchConditionSubjectAccessReviewVersion": "v1",
                "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig}}}]})
        .to_string()
    });
    let flags = [
        format!("--token-auth-file={}", write("tokens.csv", "known,jane,1\n")),
        format!("--authorization-config={policy}"),
        format!(
            "--authentication-token-webhook-config-file={}",
            write("review", &hook.kubeconfig("/review"))
        ),
        "--authentication-token-webhook-cache-ttl=0s".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::with(Flavour::from_env(), &flags);
    let known = server.http().with_token("known");
    let unknown = server.http().with_token("unknown");
    let path = "/api/v1/namespaces/default/secrets";
    let redirects = [301, 302, 303, 307, 308].map(|code| {
        let to = trap.url("/yes");
        let redirect = move |_: &Value| raw(code, &[("location", to.as_str())], "");
        ("redirect", Box::new(redirect) as Box<dyn Fn(&Value) -> Reply + Send + Sync>)
    });
    let before = resident_bytes(&server);
    for (name, lie) in lies().into_iter().chain(redirects) {
        *behaviour.lock().expect("no panic") = lie;
        let (calls, began) = (hook.calls(), Instant::now());
        let answer = known.get(path);
        assert!(matches!(answer.code, 403 | 500), "{name}: {} {}", answer.code, answer.text());
        assert_eq!(unknown.get(path).code, 401, "{name}");
        assert!(hook.calls() > calls, "{name}: the webhook was asked");
        // With its retries a review has a minute; none of these takes all of it.
        assert!(began.elapsed() < Duration::from_mins(1), "{name} took {:?}", began.elapsed());
    }
    assert_eq!(trap.calls(), 0, "no redirect was followed");
    let grown = resident_bytes(&server) - before;
    assert!(grown < 60e6, "the server has grown by {grown} bytes");

    // One that hangs, and one that is down.
    *behaviour.lock().expect("no panic") = Box::new(|_: &Value| Reply::Never);
    let began = Instant::now();
    assert!(matches!(known.get(path).code, 403 | 500));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    drop(hook);
    assert!(matches!(known.get(path).code, 403 | 500));
    assert_eq!(unknown.get(path).code, 401);
    // Administrators get in all the while.
    assert_eq!(server.http().get(path).code, 200);
}

#[test]
fn c08_c10_hostile_issuers_authenticate_no_user() {
    let files = tempfile::tempdir().expect("a directory");
    let trap = Webhook::start(|_| json!({"keys": []}));
    let to = trap.url("/.well-known/openid-configuration");
    let redirecting = Webhook::start_with(move |_| raw(302, &[("location", to.as_str())], ""));
    let endless = Webhook::start_with(|_| raw(200, &[], Bytes::from(vec![b'['; 64 << 20])));
    let jwt = |issuer: &Webhook| {
        let pem =
            base64::Engine::decode(&base64::engine::general_purpose::STANDARD, &issuer.ca_bundle);
        json!({"issuer": {"url": issuer.url(""), "audiences": ["pintle"],
                "certificateAuthority": String::from_utf8(pem.expect("base64")).expect("PEM")},
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}}})
    };
    let file = files.path().join("authn.yaml");
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration", "jwt": [jwt(&redirecting), jwt(&endless)]});
    fs::write(&file, config.to_string()).expect("a file");
    let flag = format!("--authentication-config={}", file.display());
    let server = Server::with(Flavour::from_env(), &[&flag]);
    eventually("both were asked", || {
        (redirecting.calls() > 0 && endless.calls() > 0).then_some(())
    });
    for issuer in [&redirecting, &endless] {
        let key = crate::authentication::Key::new("any");
        let token = key.sign(&json!({"iss": issuer.url(""), "aud": ["pintle"], "sub": "root",
            "exp": 4_000_000_000_u64}));
        let began = Instant::now();
        assert_eq!(server.http().with_token(&token).get("/version").code, 401);
        assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    }
    assert_eq!(trap.calls(), 0, "the redirect was not followed");
    let grown = resident_bytes(&server);
    assert!(grown < 600e6, "{grown} bytes");
}
