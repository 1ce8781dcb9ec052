//! Service accounts and their tokens: issued, accepted, refused.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use integration::{Flavour, Server, Version, eventually, shared};
use serde_json::{Value, json};

use crate::assert_contains;

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

fn account(server: &Server, namespace: &str, name: &str) -> Value {
    let object = json!({"metadata": {"name": name}});
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    server.http().post(&path, &object).expect(201)
}

fn token_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token")
}

fn issue(server: &Server, namespace: &str, name: &str, spec: &Value) -> String {
    let answer = server.http().post(&token_path(namespace, name), &json!({"spec": spec}));
    answer.expect(201)["status"]["token"].as_str().expect("a token").to_owned()
}

fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).expect("a JWT has three parts");
    let json = URL_SAFE_NO_PAD.decode(payload).expect("base64");
    serde_json::from_slice(&json).expect("JSON")
}

/// The user that a TokenReview returns for a token; None if it is not authenticated.
fn whoami(server: &Server, token: &str) -> Option<Value> {
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = server.http().anonymous().with_token(token).post(path, &review);
    (answer.code == 201).then(|| answer.json()["status"]["userInfo"].clone())
}

/// What a `TokenReview` says.
fn review(server: &Server, token: &str, audiences: &[&str]) -> Value {
    let review = json!({"spec": {"token": token, "audiences": audiences}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    server.http().post(path, &review).expect(201)["status"].clone()
}

#[test]
fn a_token_authenticates_as_its_service_account() {
    let server = shared();
    let namespace = server.namespace("token");
    let robot = account(&server, &namespace, "robot");
    let kubectl = server.kubectl(Version::Current).in_namespace(&namespace);
    let token = kubectl.ok("create token robot");
    let token = token.trim();
    let claims = claims(token);
    assert_eq!(claims["iss"], ISSUER);
    assert_eq!(claims["aud"], json!([ISSUER]));
    assert_eq!(claims["sub"], format!("system:serviceaccount:{namespace}:robot"));
    assert_eq!(claims["exp"].as_i64().zip(claims["iat"].as_i64()).map(|(e, i)| e - i), Some(3600));
    assert_eq!(claims["nbf"], claims["iat"]);
    let expected = json!({"namespace": namespace,
        "serviceaccount": {"name": "robot", "uid": robot["metadata"]["uid"]}});
    assert_eq!(claims["kubernetes.io"], expected);

    let user = whoami(&server, token).expect("the token is good");
    assert_eq!(user["username"], claims["sub"]);
    assert_eq!(user["uid"], robot["metadata"]["uid"]);
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    assert_eq!(user["groups"], json!(groups));
    let id = format!("JTI={}", claims["jti"].as_str().expect("every token has an id"));
    assert_eq!(user["extra"]["authentication.kubernetes.io/credential-id"], json!([id]));

    let reviewed = review(&server, token, &[]);
    assert_eq!(
        (&reviewed["authenticated"], &reviewed["audiences"]),
        (&json!(true), &json!([ISSUER]))
    );
    server
        .http()
        .delete(&format!("/api/v1/namespaces/{namespace}/serviceaccounts/robot"))
        .expect(200);
    eventually("the token ends with its account", || {
        whoami(&server, token).is_none().then_some(())
    });
    account(&server, &namespace, "robot");
    assert!(whoami(&server, token).is_none(), "another account of the same name");
}

#[test]
fn a_token_ends_with_its_pod() {
    let server = shared();
    let (namespace, http) = (server.namespace("bound"), server.http());
    account(&server, &namespace, "robot");
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}});
    let uid = http.post(&pods, &pod).expect(201)["metadata"]["uid"].clone();
    let bound = json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"},
        "expirationSeconds": 3607});
    let token = issue(&server, &namespace, "robot", &bound);
    let claims = claims(&token);
    assert_eq!(claims["kubernetes.io"]["pod"], json!({"name": "p", "uid": uid}));
    let seconds = |name: &str| claims[name].as_i64().expect("a number");
    assert_eq!(seconds("exp") - seconds("iat"), 365 * 24 * 3600, "tokens of pods get a year");
    assert_eq!(
        claims["kubernetes.io"]["warnafter"].as_i64().expect("a number") - seconds("iat"),
        3607
    );
    let user = whoami(&server, &token).expect("the token is good");
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-uid"], json!([uid]));
    http.delete(&format!("{pods}/p?gracePeriodSeconds=0")).expect(200);
    eventually("the token ends with its pod", || whoami(&server, &token).is_none().then_some(()));
}

#[test]
fn a_token_is_good_for_its_audience_only() {
    let server = shared();
    let namespace = server.namespace("audience");
    account(&server, &namespace, "robot");
    let token = issue(&server, &namespace, "robot", &json!({"audiences": ["vault", "other"]}));
    assert!(whoami(&server, &token).is_none());
    let elsewhere = review(&server, &token, &["vault", "x"]);
    assert_eq!(elsewhere["authenticated"], json!(true));
    assert_eq!(elsewhere["audiences"], json!(["vault"]));
    let here = review(&server, &token, &[]);
    assert!(here["authenticated"].is_null());
    assert_contains(
        here["error"].as_str().expect("a reason"),
        &["is invalid for the target audiences"],
    );
}

#[test]
fn requests_for_tokens_are_checked() {
    let server = shared();
    let (namespace, http) = (server.namespace("request"), server.http());
    account(&server, &namespace, "robot");
    let path = token_path(&namespace, "robot");
    let bound = |kind: &str| json!({"spec": {"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": "x"}}});
    let cases = [
        (
            json!({"spec": {"expirationSeconds": 599}}),
            422,
            "may not specify a duration less than 10 minutes",
        ),
        (json!({"spec": {"expirationSeconds": 4_294_967_297i64}}), 422, "larger than 2^32 seconds"),
        (
            json!({"metadata": {"name": "other"}}),
            422,
            "must match the service account name if specified",
        ),
        (
            json!({"metadata": {"uid": "other"}}),
            409,
            "does not match the UID of the service account",
        ),
        (bound("Pod"), 404, "pods \"x\" not found"),
        (bound("Secret"), 404, "secrets \"x\" not found"),
        (bound("Node"), 404, "nodes \"x\" not found"),
        (bound("ConfigMap"), 400, "cannot bind token to object of type /v1, Kind=ConfigMap"),
    ];
    for (body, code, says) in cases {
        let answer = http.post(&path, &body).expect(code);
        assert_contains(answer["message"].as_str().expect("a message"), &[says]);
    }
    http.post(&token_path(&namespace, "nobody"), &json!({})).expect(404);
}

#[test]
fn forged_tokens_are_refused() {
    let server = shared();
    let namespace = server.namespace("forged");
    account(&server, &namespace, "robot");
    account(&server, &namespace, "other");
    let (one, two) = (
        issue(&server, &namespace, "robot", &json!({})),
        issue(&server, &namespace, "other", &json!({})),
    );
    assert!(whoami(&server, &one).is_some());
    let part = |token: &str, at: usize| token.split('.').nth(at).expect("three parts").to_owned();
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    let hmac = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    let cases = [
        format!("{}.{}.{}", part(&one, 0), part(&two, 1), part(&one, 2)),
        format!("{none}.{}.", part(&one, 1)),
        format!("{none}.{}.{}", part(&one, 1), part(&one, 2)),
        format!("{hmac}.{}.{}", part(&one, 1), part(&one, 2)),
        format!("{}.{}.", part(&one, 0), part(&one, 1)),
        format!("{}.{}", part(&one, 0), part(&one, 1)),
        ".".repeat(100_000),
        "a".repeat(500_000),
    ];
    for token in cases {
        assert!(whoami(&server, &token).is_none(), "{token:.60}");
    }
}

#[test]
fn a_token_secret_gets_a_long_lived_token() {
    let server = shared();
    if !server.has_controllers() {
        return;
    }
    let (namespace, http) = (server.namespace("legacy"), server.http());
    let robot = account(&server, &namespace, "robot");
    let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
    let secret = json!({
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "kept", "annotations": {"kubernetes.io/service-account.name": "robot"}},
    });
    http.post(&secrets, &secret).expect(201);
    let filled = eventually("the secret is filled", || {
        let secret = http.get(&format!("{secrets}/kept")).expect(200);
        secret["data"]["token"].is_string().then_some(secret)
    });
    assert!(filled["data"]["ca.crt"].is_string() && filled["data"]["namespace"].is_string());
    let annotations = &filled["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/service-account.uid"], robot["metadata"]["uid"]);
    let encoded = filled["data"]["token"].as_str().expect("a token");
    let token = base64::engine::general_purpose::STANDARD.decode(encoded).expect("base64");
    let token = String::from_utf8(token).expect("text");
    let user = whoami(&server, &token).expect("the token is good");
    assert_eq!(user["username"], format!("system:serviceaccount:{namespace}:robot"));
    http.delete(&format!("/api/v1/namespaces/{namespace}/serviceaccounts/robot")).expect(200);
    eventually("the secret goes with its account", || {
        (http.get(&format!("{secrets}/kept")).code == 404).then_some(())
    });
    // kube-apiserver remembers a good token for some seconds.
    eventually("the token goes with it", || whoami(&server, &token).is_none().then_some(()));
}

#[test]
fn issuer_discovery_documents_are_served() {
    let server = shared();
    let http = server.http();
    let answer = http.get("/.well-known/openid-configuration");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("public, max-age=3600"));
    let configuration = answer.expect(200);
    assert_eq!(configuration["issuer"], ISSUER);
    assert!(configuration["jwks_uri"].as_str().is_some_and(|uri| uri.ends_with("/openid/v1/jwks")));
    let answer = http.get("/openid/v1/jwks");
    assert_eq!(answer.header("content-type"), Some("application/jwk-set+json"));
    let keys = answer.expect(200);
    assert_eq!(keys["keys"][0]["use"], "sig");
    let namespace = server.namespace("jwks");
    account(&server, &namespace, "robot");
    let token = issue(&server, &namespace, "robot", &json!({}));
    let header =
        URL_SAFE_NO_PAD.decode(token.split('.').next().expect("a header")).expect("base64");
    let header: Value = serde_json::from_slice(&header).expect("JSON");
    assert_eq!(header["kid"], keys["keys"][0]["kid"]);
    assert_eq!(header["alg"], keys["keys"][0]["alg"]);
    // Service accounts may read it, the anonymous may not.
    assert_eq!(http.anonymous().with_token(&token).get("/openid/v1/jwks").code, 200);
}

#[test]
fn tokens_can_be_signed_on_the_largest_curve() {
    let key =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/auth/src/authn/jwt/testdata/p521.pem");
    let flags = ["signing-key", "key"].map(|kind| format!("--service-account-{kind}-file={key}"));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::with(Flavour::from_env(), &flags);
    account(&server, "default", "robot");
    let token = issue(&server, "default", "robot", &json!({}));
    let user = whoami(&server, &token).expect("the token is good");
    assert_eq!(user["username"], "system:serviceaccount:default:robot");
    let keys = server.http().get("/openid/v1/jwks").expect(200);
    let keys = keys["keys"].as_array().expect("a list").clone();
    let own = keys.iter().find(|key| key["crv"] == "P-521").expect("it is published");
    // As kube-apiserver names this very key.
    assert_eq!(own["kid"], "B5qosV_qXh8iXYSxJpBRQrKJVZ9a06zEOkzbgmLChcs");
    assert_eq!(own["alg"], "ES512");
}
