//! `--service-account-signing-endpoint`: another program signs the tokens of service accounts.

use std::process::{Command, Stdio};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use integration::{Answer, ExternalSigner, Flavour, Server, SignerKey, eventually, pintle_program};
use serde_json::{Value, json};

use crate::assert_contains;

fn start(signer: &ExternalSigner, flags: &[&str]) -> Server {
    let endpoint = format!("--service-account-signing-endpoint={}", signer.socket().display());
    let mut all = vec![endpoint.as_str()];
    all.extend(flags);
    Server::with(Flavour::from_env(), &all)
}

/// Asks for a token of `default/robot`.
fn request(server: &Server, spec: &Value) -> Answer {
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    server.http().post(path, &json!({"spec": spec}))
}

fn token(server: &Server, spec: &Value) -> String {
    let answer = request(server, spec).expect(201);
    answer["status"]["token"].as_str().expect("a token").to_owned()
}

fn part(token: &str, at: usize) -> Value {
    let part = token.split('.').nth(at).expect("a JWT has three parts");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).expect("base64")).expect("JSON")
}

/// The code of a request with this token: 403 for a good one, the account has no rights.
fn code(server: &Server, token: &str) -> u16 {
    server.http().with_token(token).get("/api/v1/namespaces/default/secrets").code
}

fn published_ids(server: &Server) -> Vec<String> {
    let keys = server.http().get("/openid/v1/jwks").expect(200);
    let keys = keys["keys"].as_array().expect("a list").clone();
    keys.iter().map(|key| key["kid"].as_str().unwrap_or_default().to_owned()).collect()
}

fn metric(server: &Server, line: &str) -> Option<f64> {
    let text = server.http().get("/metrics").text();
    let found = text.lines().find_map(|found| found.strip_prefix(line))?;
    found.trim().parse().ok()
}

#[test]
fn tokens_are_signed_by_the_external_signer_and_follow_its_keys() {
    let signer = ExternalSigner::start();
    let server = start(&signer, &[]);
    let robot = json!({"metadata": {"name": "robot"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    server.http().post(accounts, &robot).expect(201);

    let first = token(&server, &json!({}));
    assert_eq!(part(&first, 0), json!({"alg": "ES256", "kid": "first", "typ": "JWT"}));
    assert_eq!(part(&first, 1)["sub"], "system:serviceaccount:default:robot");
    assert_eq!(code(&server, &first), 403, "the token is good");
    let configuration = server.http().get("/.well-known/openid-configuration");
    assert_eq!(
        configuration.expect(200)["id_token_signing_alg_values_supported"],
        json!(["ES256"])
    );
    let age = configuration.header("cache-control").unwrap_or_default().to_owned();
    let age: u64 = age.strip_prefix("public, max-age=").expect("an age").parse().expect("seconds");
    assert!((3000..=3600).contains(&age), "until the next fetch: {age}");
    assert_eq!(published_ids(&server), ["first"]);

    // What the signer allows bounds the life of tokens.
    let answer = request(&server, &json!({"expirationSeconds": 90_000}));
    let warning = answer.header("warning").unwrap_or_default().to_owned();
    assert_contains(&warning, &["requested expiration of 90000 seconds shortened to 7200 seconds"]);
    assert_eq!(answer.expect(201)["spec"]["expirationSeconds"], 7200);

    // A new key is fetched with the first token that names it. The old one stays good for tokens that
    // were issued, and is not published.
    signer.change(|state| {
        state.keys.push(SignerKey::new("second \"quoted\""));
        state.keys[0].excluded_from_discovery = true;
        state.signs_with = 1;
        state.header = Some(r#"{"alg":"ES256","kid":"second \"quoted\"","typ":"JWT"}"#.to_owned());
    });
    let second = token(&server, &json!({}));
    assert_eq!((code(&server, &first), code(&server, &second)), (403, 403));
    assert_eq!(published_ids(&server), ["second \"quoted\""]);

    // A key that the signer has no longer verifies nothing, also for tokens that were good before.
    signer.change(|state| {
        state.keys.remove(0);
        state.keys.push(SignerKey::new("third"));
        state.signs_with = 1;
        state.header = None;
    });
    let third = token(&server, &json!({}));
    assert_eq!(code(&server, &first), 401);
    assert_eq!((code(&server, &second), code(&server, &third)), (403, 403));

    // Without a private key there are no tokens for Secrets.
    let text = server.http().get("/metrics").text();
    assert!(!text.contains("task=\"serviceaccount-token-controller\""), "{text}");
    assert!(metric(&server, "apiserver_externaljwt_sign_request_total{code=\"OK\"}") >= Some(4.0));
    let fetches = "apiserver_externaljwt_fetch_keys_request_total{code=\"OK\"}";
    assert!(metric(&server, fetches) >= Some(3.0));
    assert!(metric(&server, "apiserver_externaljwt_fetch_keys_success_timestamp") > Some(1.7e9));
    assert!(metric(&server, "apiserver_externaljwt_fetch_keys_data_timestamp") > Some(1.7e9));
    let durations = "apiserver_externaljwt_request_duration_seconds_count{code=\"OK\",\
                     method=\"/v1.ExternalJWTSigner/Metadata\"}";
    assert_eq!(metric(&server, durations), Some(1.0));
}

#[test]
fn a_signer_that_fails_or_lies_makes_no_token() {
    let mut signer = ExternalSigner::start();
    let server = start(&signer, &["--service-account-max-token-expiration=1h"]);
    let robot = json!({"metadata": {"name": "robot"}});
    server.http().post("/api/v1/namespaces/default/serviceaccounts", &robot).expect(201);
    let good = token(&server, &json!({}));
    let header = |header: &str| {
        let header = Some(header.to_owned());
        signer.change(|state| state.header = header);
        let message = request(&server, &json!({})).expect(500)["message"].clone();
        message.as_str().unwrap_or_default().to_owned()
    };
    let failed = "Internal error occurred: failed to generate token: while validating header: ";
    let cases = [
        (r#"{"alg":"none","kid":"first","typ":"JWT"}"#, "bad signing algorithm \"none\""),
        (r#"{"alg":"ES256","kid":"","typ":"JWT"}"#, "key id missing"),
        (r#"{"alg":"ES256","kid":"first"}"#, "bad type"),
        (
            r#"{"alg":"ES256","kid":"first","typ":"JWT","x":1}"#,
            "while parsing header JSON: json: unknown field \"x\"",
        ),
    ];
    for (given, expected) in cases {
        assert_eq!(header(given), format!("{failed}{expected}"));
    }
    signer.change(|state| {
        state.keys[0].excluded_from_discovery = true;
        state.keys.push(SignerKey::new("new"));
        state.header = Some(r#"{"alg":"ES256","kid":"new","typ":"JWT"}"#.to_owned());
    });
    // Fetches the keys, so that the exclusion is known.
    request(&server, &json!({}));
    assert_eq!(
        header(r#"{"alg":"ES256","kid":"first","typ":"JWT"}"#),
        format!(
            "{failed}key used for signing JWT (kid: first) is excluded from OIDC discovery docs"
        )
    );
    signer.change(|state| state.failure = Some("no power".to_owned()));
    assert_eq!(
        request(&server, &json!({})).expect(500)["message"],
        "Internal error occurred: failed to generate token: while signing jwt: rpc error: code = \
         Unknown desc = no power"
    );
    let failures = "apiserver_externaljwt_sign_request_total{code=";
    assert_eq!(metric(&server, &format!("{failures}\"Unknown\"}}")), Some(1.0));
    assert!(metric(&server, &format!("{failures}\"unknown-non-grpc\"}}")) >= Some(5.0));

    // Tokens with unknown keys do not make the server ask again and again.
    let before = signer.calls("/FetchKeys");
    let (head, rest) = good.split_once('.').expect("a JWT");
    let head = String::from_utf8(URL_SAFE_NO_PAD.decode(head).expect("base64")).expect("text");
    for at in 0..50 {
        let head = head.replace("first", &format!("unknown-{at}"));
        assert_eq!(code(&server, &format!("{}.{rest}", URL_SAFE_NO_PAD.encode(head))), 401);
    }
    // One in a second, and the fifty take less than twenty.
    let asked = signer.calls("/FetchKeys") - before;
    assert!(asked <= 20, "{asked} fetches");

    // While the signer is away tokens stay good; when it is back, new ones are made.
    signer.stop();
    assert_eq!(code(&server, &good), 403);
    signer.change(|state| {
        state.failure = None;
        state.header = None;
        state.signs_with = 1;
    });
    signer.start_again();
    eventually("the signer is found again", || {
        (request(&server, &json!({})).code == 201).then_some(())
    });
}

#[test]
fn keys_are_fetched_when_the_signer_hints() {
    let signer = ExternalSigner::start();
    signer.change(|state| state.refresh_hint_seconds = 1);
    let server = start(&signer, &[]);
    let before = signer.calls("/FetchKeys");
    signer.change(|state| state.keys.push(SignerKey::new("next")));
    eventually("the key is published", || {
        (published_ids(&server) == ["first", "next"]).then_some(())
    });
    assert!(signer.calls("/FetchKeys") > before);
    // An answer that is no good keeps the keys.
    signer.change(|state| state.keys.clear());
    eventually("the fetch has failed", || {
        metric(&server, "apiserver_externaljwt_fetch_keys_request_total{code=\"unknown-non-grpc\"}")
    });
    assert_eq!(published_ids(&server), ["first", "next"]);
}

/// What a start with these flags says before it exits.
fn refused(flags: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let output = Command::new("timeout")
        .arg("100")
        .arg(pintle_program())
        .arg(format!("--data-dir={}", directory.path().display()))
        .arg("--secure-port=0")
        .args(flags)
        .stdin(Stdio::null())
        .output()
        .expect("pintle can be started");
    assert_eq!(output.status.code(), Some(1), "{flags:?}");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn a_start_with_a_signer_that_does_not_fit_fails() {
    let signer = ExternalSigner::start();
    let endpoint = format!("--service-account-signing-endpoint={}", signer.socket().display());
    let exclusive = "can't set `--service-account-signing-key-file` and/or \
                     `--service-account-key-file` with `--service-account-signing-endpoint` (They \
                     are mutually exclusive)";
    assert_contains(
        &refused(&[&endpoint, "--service-account-signing-key-file=/nowhere"]),
        &[exclusive],
    );
    assert_contains(&refused(&[&endpoint, "--service-account-key-file=/nowhere"]), &[exclusive]);
    assert_contains(
        &refused(&["--service-account-signing-endpoint=@not a name"]),
        &["when prefixed with @ must be a valid abstract socket name"],
    );
    assert_contains(
        &refused(&[&endpoint, "--service-account-max-token-expiration=3h"]),
        &["service-account-max-token-expiration cannot be set longer than the token expiration \
           supported by service-account-signing-endpoint: 3h0m0s > 2h0m0s"],
    );
    signer.change(|state| state.max_token_expiration_seconds = 599);
    assert_contains(
        &refused(&[&endpoint]),
        &["max token life supported by external-jwt-signer (599s) is less than acceptable (min \
           600s)"],
    );
    signer.change(|state| state.keys.clear());
    assert_contains(
        &refused(&[&endpoint]),
        &["while setting up external-jwt-signer: while initially filling key cache: while \
           performing initial cache fill: while fetching token verification keys: found no keys"],
    );
}

/// A start with a signer that is not there yet goes on when it is.
#[test]
fn a_signer_that_is_away_at_the_start_is_waited_for() {
    let mut signer = ExternalSigner::start();
    signer.stop();
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str| std::fs::File::create(directory.path().join(name)).expect("a file");
    let said = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("a file");
    let mut process = Command::new(pintle_program())
        .arg(format!("--data-dir={}", directory.path().join("data").display()))
        .arg(format!("--service-account-signing-endpoint={}", signer.socket().display()))
        .args(["--secure-port=0", "--bind-address=127.0.0.1"])
        .stdin(Stdio::null())
        .stdout(file("out"))
        .stderr(file("log"))
        .spawn()
        .expect("pintle can be started");
    eventually("it says that it waits", || {
        said("log").contains("The external signer has not answered yet").then_some(())
    });
    assert_eq!(said("out"), "", "it is not ready");
    assert!(process.try_wait().expect("a child").is_none(), "it runs: {}", said("log"));
    signer.start_again();
    eventually("it is ready", || said("out").starts_with("Ready at ").then_some(()));
    process.kill().expect("a child");
    process.wait().expect("a child");
}
