//! JWT authenticators against an issuer of the test's own.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use meta::value;

use super::{config::ClaimOrExpression, *};
use crate::{
    authn::jwt::SigningKey,
    testing::{Answer, TestServer},
};

fn key() -> SigningKey {
    let pair = rcgen::KeyPair::generate().expect("a key");
    SigningKey::from_pem(pair.serialize_pem().as_bytes()).expect("a P-256 key")
}

type Edit = Box<dyn Fn(&mut Value)>;

/// An issuer whose keys can be replaced.
struct Issuer {
    server: TestServer,
    keys: Arc<Mutex<String>>,
}

impl Issuer {
    async fn start(keys: &[&SigningKey]) -> Self {
        let set = Arc::new(Mutex::new(jwks(keys)));
        let address = Arc::new(Mutex::new(String::new()));
        let (served, own) = (set.clone(), address.clone());
        let server = TestServer::start(move |_, path, _| {
            let base = own.lock().unwrap().clone();
            match path {
                "/.well-known/openid-configuration" => {
                    Answer::ok(format!(r#"{{"issuer":"{base}","jwks_uri":"{base}/keys"}}"#))
                }
                _ => Answer::ok(served.lock().unwrap().clone()),
            }
        })
        .await;
        *address.lock().unwrap() = server.url("");
        Self { server, keys: set }
    }

    fn url(&self) -> String {
        self.server.url("")
    }

    fn config(&self) -> JwtConfig {
        JwtConfig {
            url: self.url(),
            audiences: vec!["this".to_owned()],
            username: config::ClaimOrExpression {
                claim: "sub".to_owned(),
                prefix: Some("oidc:".to_owned()),
                ..config::ClaimOrExpression::default()
            },
            groups: config::ClaimOrExpression {
                claim: "groups".to_owned(),
                prefix: Some(String::new()),
                ..config::ClaimOrExpression::default()
            },
            ..JwtConfig::default()
        }
    }

    fn claims(&self) -> Value {
        let now = Time::now().unix_seconds();
        value!({
            "iss": (self.url()),
            "aud": "this",
            "sub": "jane",
            "groups": ["dev", "ops"],
            "jti": "id-1",
            "iat": (now),
            "exp": (now + 600),
        })
    }

    async fn authenticators(&self, config: JwtConfig) -> JwtAuthenticators {
        let config = AuthenticationConfig { jwt: vec![config], anonymous: None };
        let algorithms = SIGNING_ALGORITHMS.map(str::to_owned).to_vec();
        let made = JwtAuthenticators::new(
            &config,
            algorithms,
            &Metrics::new("test"),
            crate::Egress::default(),
            &Tasks::default(),
        )
        .unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let provider = made.current.load_full().issuers[0].provider.clone();
        provider.ready_before(deadline).await.unwrap();
        made
    }
}

fn jwks(keys: &[&SigningKey]) -> String {
    let keys: Vec<String> = keys.iter().map(|key| key.public().to_jwk()).collect();
    format!(r#"{{"keys":[{}]}}"#, keys.join(","))
}

/// A token with a header and a signature of the test's choice.
fn forged(header: &str, claims: &Value, signature: &[u8]) -> String {
    let claims = meta::json::to_string(claims);
    [header.as_bytes(), claims.as_bytes(), signature].map(|part| BASE64URL.encode(part)).join(".")
}

#[tokio::test]
async fn a_token_of_the_issuer_is_a_user() {
    let key = key();
    let issuer = Issuer::start(&[&key]).await;
    let authenticators = issuer.authenticators(issuer.config()).await;
    let token = key.token(&issuer.claims()).unwrap();
    let user = authenticators.user(&token).await.unwrap().expect("the issuer is known").user;
    assert_eq!(user.name, "oidc:jane");
    assert_eq!(user.groups, ["dev", "ops"]);
    let id = ("authentication.kubernetes.io/credential-id".into(), vec!["JTI=id-1".into()]);
    assert_eq!(user.extra, [id]);
    let calls = issuer.server.calls();
    for _ in 0..3 {
        authenticators.user(&token).await.unwrap().unwrap();
    }
    assert_eq!(issuer.server.calls(), calls, "the keys are known, and the user is remembered");
}

#[tokio::test]
async fn tokens_that_are_not_good_are_refused() {
    let (key, other) = (key(), key());
    let issuer = Issuer::start(&[&key]).await;
    let authenticators = issuer.authenticators(issuer.config()).await;
    let now = Time::now().unix_seconds();
    let with = |name: &str, value: Value| {
        let mut claims = issuer.claims();
        claims.set_at(&[name], value);
        key.token(&claims).unwrap()
    };
    let without = |name: &str| {
        let mut claims = issuer.claims();
        claims.remove_at(&[name]);
        key.token(&claims).unwrap()
    };
    let good = key.token(&issuer.claims()).unwrap();
    let (message, signature) = good.rsplit_once('.').unwrap();
    let tampered = {
        let (header, _) = message.split_once('.').unwrap();
        let mut claims = issuer.claims();
        claims.set_at(&["groups"], vec!["system:masters"]);
        let payload = BASE64URL.encode(meta::json::to_string(&claims));
        format!("{header}.{payload}.{signature}")
    };
    let jwk = key.public().to_jwk();
    let hmac = {
        let head = forged(r#"{"alg":"HS256"}"#, &issuer.claims(), b"");
        let head = head.trim_end_matches('.').to_owned();
        let secret = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, jwk.as_bytes());
        let signature = aws_lc_rs::hmac::sign(&secret, head.as_bytes());
        format!("{head}.{}", BASE64URL.encode(signature))
    };
    let claims = issuer.claims();
    let unsupported = "unsupported algorithm";
    let unsigned = "failed to verify id token signature";
    let cases = [
        (with("exp", (now - 1).into()), "token is expired"),
        (without("exp"), "token is expired"),
        (with("exp", "never".into()), "token is expired"),
        (with("nbf", (now + 301).into()), "before the nbf"),
        (with("aud", "another".into()), "expected audience"),
        (with("aud", vec!["another", "that"].into()), "expected audience"),
        (without("aud"), "expected audience"),
        (without("sub"), "claim not present"),
        (with("sub", 7i64.into()), "not a string"),
        (with("groups", 7i64.into()), "parse groups claim"),
        (tampered, unsigned),
        (other.token(&claims).unwrap(), unsigned),
        (forged(r#"{"alg":"none"}"#, &claims, b""), unsupported),
        (forged(r#"{"alg":"None"}"#, &claims, b""), unsupported),
        (hmac, unsupported),
        (forged(r#"{"alg":"ES384"}"#, &claims, &[1; 96]), unsigned),
        (forged(r#"{"alg":"RS256"}"#, &claims, &[1; 256]), unsigned),
        (forged(r#"{"alg":"ES256"}"#, &claims, &[0; 64]), unsigned),
        (forged(r#"{"alg":"ES256","kid":"../../keys"}"#, &claims, &[1; 64]), unsigned),
        // A key in the token itself is no key of the issuer.
        (forged(&format!(r#"{{"alg":"ES256","jwk":{jwk}}}"#), &claims, &[1; 64]), unsigned),
        (format!("{message}."), unsigned),
    ];
    for (token, expected) in cases {
        let why = authenticators.user(&token).await.expect_err(expected);
        assert!(why.contains(expected), "{why} instead of {expected}");
    }
    assert!(authenticators.user(&with("nbf", (now + 200).into())).await.unwrap().is_some());
}

#[tokio::test]
async fn what_is_no_token_of_the_issuer_is_left_to_others() {
    let key = key();
    let issuer = Issuer::start(&[&key]).await;
    let authenticators = issuer.authenticators(issuer.config()).await;
    let mut foreign = issuer.claims();
    foreign.set_at(&["iss"], "https://elsewhere");
    let dots = ".".repeat(500_000);
    let large = format!("a.{}.b", "x".repeat(900_000));
    let twice = forged(r#"{"alg":"ES256","alg":"none"}"#, &issuer.claims(), b"");
    let critical = forged(r#"{"alg":"ES256","crit":["b64"]}"#, &issuer.claims(), b"");
    for token in ["", "abc", "a.b", "a.b.c.d.e", &dots, &large, &twice, &critical] {
        assert_eq!(authenticators.user(token).await, Ok(None), "{}", &token[..token.len().min(40)]);
    }
    assert_eq!(authenticators.user(&key.token(&foreign).unwrap()).await, Ok(None));
    assert_eq!(issuer.server.calls(), 1, "only discovery");
}

#[tokio::test]
async fn new_keys_are_fetched_but_not_for_every_forged_token() {
    let (old, new) = (key(), key());
    let issuer = Issuer::start(&[&old]).await;
    let authenticators = issuer.authenticators(issuer.config()).await;
    let token = new.token(&issuer.claims()).unwrap();
    authenticators.user(&token).await.unwrap_err();
    let calls = issuer.server.calls();
    for _ in 0..20 {
        authenticators.user(&token).await.unwrap_err();
    }
    assert_eq!(issuer.server.calls(), calls, "the issuer is not asked again at once");
    *issuer.keys.lock().unwrap() = jwks(&[&old, &new]);
    let generation = authenticators.current.load_full();
    let provider = &generation.issuers[0].provider;
    provider.forget_last_fetch().await;
    authenticators.user(&token).await.unwrap().expect("the new key is known now");
    authenticators.user(&old.token(&issuer.claims()).unwrap()).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_issuer_that_says_it_is_another_one_is_not_used() {
    let lies = TestServer::start(|_, _, _| {
        Answer::ok(r#"{"issuer":"https://elsewhere","jwks_uri":"http://127.0.0.1:1/"}"#)
    })
    .await;
    let config = JwtConfig { url: lies.url(""), ..JwtConfig::default() };
    let provider = Provider::start(&config, Metrics::new("test"), None, &Tasks::default()).unwrap();
    let deadline = Instant::now() + Duration::from_millis(300);
    let why = provider.ready_before(deadline).await.unwrap_err();
    assert!(why.contains("issuer did not match the issuer returned by provider"), "{why}");
}

/// Panics at the first call, then dials as always.
struct PanicsOnce(AtomicBool);

impl client::Dial for PanicsOnce {
    fn dial<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> client::BoxFuture<'a, Result<Box<dyn client::Stream>, client::DialError>> {
        assert!(self.0.swap(true, Ordering::SeqCst), "asked for");
        Box::pin(async move { client::TcpDial::default().dial(host, port).await })
    }
}

#[tokio::test]
async fn an_issuer_is_found_although_its_discovery_panicked() {
    let issuer = Issuer::start(&[&key()]).await;
    let config = JwtConfig { url: issuer.url(), ..JwtConfig::default() };
    let dial = Some(Arc::new(PanicsOnce(AtomicBool::new(false))) as Arc<dyn client::Dial>);
    let tasks = Tasks::default();
    let provider = Provider::start(&config, Metrics::new("test"), dial, &tasks).unwrap();
    provider.ready_before(Instant::now() + Duration::from_secs(30)).await.unwrap();
    assert_eq!(tasks.panics("openid-discovery"), 1);
    while tasks.running("openid-discovery") > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_document_without_end_is_not_read() {
    let asked = Arc::new(AtomicBool::new(false));
    let seen = asked.clone();
    let server = TestServer::start(move |_, _, _| {
        seen.store(true, Ordering::SeqCst);
        Answer::Raw("HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n{".to_owned())
    })
    .await;
    let config = JwtConfig { url: server.url(""), ..JwtConfig::default() };
    let provider = Provider::start(&config, Metrics::new("test"), None, &Tasks::default()).unwrap();
    let deadline = Instant::now() + Duration::from_millis(300);
    let why = provider.ready_before(deadline).await.unwrap_err();
    assert!(asked.load(Ordering::SeqCst) && why.contains("length limit exceeded"), "{why}");
}

#[tokio::test]
async fn expressions_map_and_validate() {
    let yaml = r#"
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: https://a, audiences: [this]}
  claimValidationRules:
  - {claim: hd, requiredValue: example.com}
  - {expression: "claims.exp - claims.iat <= 86400", message: "lifetime is at most a day"}
  claimMappings:
    username: {expression: "claims.email_verified ? 'u:' + claims.email : ''"}
    groups: {expression: "claims.roles.split(',')"}
    uid: {expression: "claims.sub"}
    extra:
    - {key: example.com/tenant, valueExpression: "claims.?tenant.orValue('')"}
    - {key: example.com/all, valueExpression: "claims.list"}
  userValidationRules:
  - {expression: "!user.username.startsWith('system:')", message: "no system user"}
  - {expression: "user.groups.all(group, !group.startsWith('system:'))"}
"#;
    let config = config::parse(yaml.as_bytes()).unwrap();
    assert!(config.validate(&[]).is_empty());
    let mapper = Mapper::new(&config.jwt[0]).unwrap();
    let claims = |edit: &dyn Fn(&mut Value)| {
        let mut claims = value!({
            "sub": "1", "email": "jane@example.com", "email_verified": true, "hd": "example.com",
            "roles": "dev,ops", "list": ["a", "", "b"], "iat": 0i64, "exp": 600i64,
        });
        edit(&mut claims);
        mapper.user(&claims)
    };
    let user = claims(&|_| {}).unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("u:jane@example.com", "1"));
    assert_eq!(user.groups, ["dev", "ops"]);
    assert_eq!(user.extra, [("example.com/all".into(), vec!["a".into(), "b".into()])]);
    let set = |name: &'static str, value: Value| -> Edit {
        Box::new(move |claims| claims.set_at(&[name], value.clone()))
    };
    let cases = [
        (set("email_verified", false.into()), "empty username"),
        (set("email", 7i64.into()), "username claim expression"),
        (set("hd", "evil.com".into()), "required claim hd value does not match"),
        (set("exp", 100_000i64.into()), "lifetime is at most a day"),
        (set("roles", "dev,system:masters".into()), "user info validation rule"),
        (set("list", vec![1i64, 2].into()), "must return a string or a list of strings"),
        (set("sub", true.into()), "uid claim expression must return a string"),
    ];
    for (edit, expected) in cases {
        let why = claims(&edit).expect_err(expected);
        assert!(why.contains(expected), "{why} instead of {expected}");
    }
}

#[test]
fn configurations_are_validated_with_the_paths_of_kube_apiserver() {
    let jwt = |rest: &str| {
        format!(
            "{{issuer: {{url: 'https://a', audiences: [x]}}, claimMappings: {{username: {{claim: sub, prefix: ''}}}}{rest}}}"
        )
    };
    let cases = [
        (format!("jwt: [{}]", jwt("")), String::new()),
        (
            "jwt: [{}]".to_owned(),
            "[jwt[0].issuer.url: Required value, jwt[0].issuer.audiences: Required value: at least \
             one jwt[0].issuer.audiences is required, jwt[0].claimMappings.username: Required value: \
             claim or expression is required]"
                .to_owned(),
        ),
        (
            "jwt: [{issuer: {url: 'http://u:p@a?q#f', audiences: [x, x]}, claimMappings: {username: {claim: sub}}}]".to_owned(),
            "jwt[0].issuer.url: Invalid value: \"http://u:p@a?q#f\": URL scheme must be https"
                .to_owned(),
        ),
        (
            "jwt: [{issuer: {url: 'https://sa', audiences: [x, z]}, claimMappings: {username: {claim: sub, prefix: ''}}}]".to_owned(),
            "[jwt[0].issuer.url: Invalid value: \"https://sa\": URL must not overlap with disallowed \
             issuers: [https://sa], jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": \
             audienceMatchPolicy must be MatchAny for multiple audiences]"
                .to_owned(),
        ),
        (
            format!("jwt: [{0}, {0}]", jwt("")),
            "jwt[1].issuer.url: Duplicate value: \"https://a\"".to_owned(),
        ),
        (
            "jwt: [{issuer: {url: 'https://a', audiences: [x]}, claimMappings: {username: {expression: 'claims.email'}, extra: [{key: Foo, valueExpression: ''}, {key: a.k8s.io/x, valueExpression: 'x'}]}}]".to_owned(),
            "jwt[0].claimMappings.extra[0].key: Invalid value: \"Foo\": must be a domain-prefixed path"
                .to_owned(),
        ),
        (
            format!("jwt: [{}]", jwt(", userValidationRules: [{expression: 'user.username'}]")),
            "jwt[0].userValidationRules[0].expression: Invalid value: \"user.username\": must \
             evaluate to bool"
                .to_owned(),
        ),
        (
            "anonymous: {enabled: false, conditions: [{path: /livez}]}".to_owned(),
            "anonymous.conditions: Invalid value: [\"/livez\"]: enabled should be set to true when \
             conditions are defined"
                .to_owned(),
        ),
    ];
    for (text, expected) in cases {
        let file = format!(
            "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n{text}"
        );
        let config = config::parse(file.as_bytes()).unwrap();
        let errors = config.validate(&[Str::new("https://sa")]);
        let errors = if errors.is_empty() { String::new() } else { errors.to_string() };
        if expected.is_empty() || expected.starts_with('[') {
            assert_eq!(errors, expected, "{text}");
        } else {
            assert!(errors.contains(&expected), "{errors} instead of {expected}");
        }
    }
}

#[tokio::test]
async fn groups_that_another_server_knows_are_fetched_and_verified() {
    let (key, other) = (key(), key());
    let issuer = Issuer::start(&[&key]).await;
    let authenticators = issuer.authenticators(issuer.config()).await;
    // The server that knows the groups signs with keys of its own.
    let directory = Issuer::start(&[&other]).await;
    let answers = Arc::new(Mutex::new(String::new()));
    let served = answers.clone();
    let endpoint =
        TestServer::start(move |_, _, _| Answer::ok(served.lock().unwrap().clone())).await;
    let token = |url: &str| {
        let mut claims = issuer.claims();
        claims.remove_at(&["groups"]);
        let access = Time::now().unix_seconds().to_string();
        claims.set_at(&["_claim_names"], value!({"groups": "d"}));
        let source = value!({"d": {"endpoint": (url), "access_token": (access)}});
        claims.set_at(&["_claim_sources"], source);
        claims.set_at(&["jti"], url);
        key.token(&claims).unwrap()
    };
    let groups = |edit: &dyn Fn(&mut Value)| {
        let mut claims = directory.claims();
        claims.set_at(&["groups"], vec!["far"]);
        edit(&mut claims);
        claims
    };
    let expired = |claims: &mut Value| claims.set_at(&["exp"], 1i64);
    let without = |claims: &mut Value| drop(claims.remove_at(&["groups"]));
    let audience = |claims: &mut Value| claims.set_at(&["aud"], "another");
    let insecure = |claims: &mut Value| claims.set_at(&["iss"], "file://keys");
    let cases = [
        (other.token(&groups(&|_| {})).unwrap(), Ok(vec!["far"])),
        (key.token(&groups(&|_| {})).unwrap(), Err("failed to verify id token signature")),
        (other.token(&groups(&expired)).unwrap(), Err("token is expired")),
        (other.token(&groups(&audience)).unwrap(), Err("expected audience")),
        (other.token(&groups(&without)).unwrap(), Err("did not contain claim: groups")),
        (other.token(&groups(&insecure)).unwrap(), Err("untrusted issuer file://keys")),
        ("{}".to_owned(), Err("not a token")),
    ];
    for (at, (answer, expected)) in cases.into_iter().enumerate() {
        *answers.lock().unwrap() = answer;
        let found = authenticators.user(&token(&endpoint.url(&format!("/{at}")))).await;
        match (found, expected) {
            (Ok(user), Ok(groups)) => assert_eq!(user.expect("a user").user.groups, groups),
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}: {expected}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }
    let nowhere = authenticators.user(&token("ftp://127.0.0.1:1/")).await.unwrap_err();
    assert!(nowhere.contains("must be https"), "{nowhere}");
}

/// Names that are no identifiers are escaped, in nested claims and in the user's extra as well.
#[test]
fn escaped_names_find_claims_and_extra() {
    let claims = value!({
        "sub": "jane",
        "plain__name": "kept",
        "kubernetes.io": {"namespace": "ns", "pod-name": ["p"], "serviceaccount": {"name": "robot"}},
        "list": [{"a/b": "slash"}],
    });
    let expression = |text: &str| ClaimOrExpression {
        expression: text.to_owned(),
        ..ClaimOrExpression::default()
    };
    let name = |text: &str| {
        let config = JwtConfig { username: expression(text), ..JwtConfig::default() };
        let user = Mapper::new(&config).and_then(|mapper| mapper.user(&claims));
        user.map(|user| user.name.to_string())
    };
    let cases = [
        ("claims.kubernetes__dot__io.serviceaccount.name", Some("robot")),
        ("claims.kubernetes__dot__io.pod__dash__name[0]", Some("p")),
        ("claims[\"kubernetes.io\"].namespace", Some("ns")),
        ("claims.list[0].a__slash__b", Some("slash")),
        ("claims.plain__name", Some("kept")),
        ("has(claims.kubernetes__dot__io.namespace) ? 'there' : 'not'", Some("there")),
        ("has(claims.kubernetes__dash__io) ? 'there' : 'not'", Some("not")),
        ("claims.kubernetes__dot__io.missing", None),
    ];
    for (text, expected) in cases {
        assert_eq!(name(text).ok().as_deref(), expected, "{text}");
    }
    let config = JwtConfig {
        username: expression("claims.sub"),
        extra: vec![("example.org/team-x".to_owned(), "['a']".to_owned())],
        user_rules: vec![(
            "user.extra.example__dot__org__slash__team__dash__x[0] == 'a'".to_owned(),
            String::new(),
        )],
        ..JwtConfig::default()
    };
    let user = Mapper::new(&config).and_then(|mapper| mapper.user(&claims));
    assert_eq!(user.expect("the rule holds").name, "jane");
}
