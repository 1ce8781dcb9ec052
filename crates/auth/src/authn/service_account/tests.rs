use std::{collections::HashMap, sync::Mutex};

use meta::value;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};

use super::*;
use crate::{Metrics, authn::jwt::SigningKey};

/// Objects by kind, namespace and name.
#[derive(Default)]
struct Fake {
    objects: Mutex<HashMap<(Bound, String, String), Value>>,
    used: Mutex<Vec<String>>,
}

impl Fake {
    fn put(&self, kind: Bound, namespace: &str, name: &str, object: Option<Value>) {
        let key = (kind, namespace.to_owned(), name.to_owned());
        let mut objects = self.objects.lock().unwrap();
        match object {
            Some(object) => drop(objects.insert(key, object)),
            None => drop(objects.remove(&key)),
        }
    }
}

impl Objects for Fake {
    fn find<'a>(
        &'a self,
        kind: Bound,
        namespace: &'a str,
        name: &'a str,
        _fresh: bool,
    ) -> BoxFuture<'a, Option<Value>> {
        let key = (kind, namespace.to_owned(), name.to_owned());
        let found = self.objects.lock().unwrap().get(&key).cloned();
        Box::pin(std::future::ready(found))
    }

    fn account_names_secret<'a>(
        &'a self,
        _namespace: &'a str,
        _account: &'a str,
        secret: &'a str,
    ) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(secret == "auto"))
    }

    fn note_use(&self, secret: &Value) {
        self.used.lock().unwrap().push(secret.str_at(&["metadata", "name"]).to_owned());
    }
}

fn object(uid: &str) -> Value {
    value!({"metadata": {"uid": (uid)}})
}

struct Setup {
    objects: Arc<Fake>,
    key: SigningKey,
    accounts: ServiceAccounts,
}

fn setup() -> Setup {
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let key = SigningKey::from_pem(pair.serialize_pem().as_bytes()).unwrap();
    let objects = Arc::new(Fake::default());
    objects.put(Bound::ServiceAccount, "ns", "robot", Some(object("u1")));
    let options = Options {
        issuers: vec!["https://me".into(), "https://old".into()],
        keys: Arc::new(vec![key.public().clone()]),
        audiences: vec!["api".into()],
        lookup: true,
        metrics: Metrics::new("test"),
    };
    let accounts = ServiceAccounts::new(options, objects.clone());
    Setup { objects, key, accounts }
}

fn claims(more: &[(&str, Value)]) -> Value {
    let now = Time::now().unix_seconds();
    let mut claims = value!({
        "iss": "https://me", "aud": ["api", "vault"], "exp": (now + 600), "nbf": (now), "iat": (now),
        "jti": "id", "sub": "system:serviceaccount:ns:robot",
        "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "robot", "uid": "u1"}},
    });
    for (name, value) in more {
        claims.set_at(&[name], value.clone());
    }
    claims
}

fn bound(part: &str, uid: &str) -> Value {
    let mut bound = value!({"namespace": "ns", "serviceaccount": {"name": "robot", "uid": "u1"}});
    bound.set_at(&[part], value!({"name": "x", "uid": (uid)}));
    bound
}

#[tokio::test]
async fn a_good_token_is_its_account() {
    let setup = setup();
    setup.objects.put(Bound::Pod, "ns", "x", Some(object("p1")));
    let mut bound = bound("pod", "p1");
    bound.set_at(&["node"], value!({"name": "n", "uid": "n1"}));
    let token = setup.key.token(&claims(&[("kubernetes.io", bound)])).unwrap();
    for _ in 0..2 {
        let found = setup
            .accounts
            .user(&token, &["api".into()], &mut TokenNotes::default())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(found.user.name, "system:serviceaccount:ns:robot");
        assert_eq!(found.user.uid, "u1");
        assert_eq!(found.user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns"]);
        let extra: Vec<String> =
            found.user.extra.iter().map(|(key, value)| format!("{key}={}", value[0])).collect();
        let expected =
            ["credential-id=JTI=id", "node-name=n", "node-uid=n1", "pod-name=x", "pod-uid=p1"];
        assert_eq!(extra, expected.map(|text| format!("authentication.kubernetes.io/{text}")));
        assert_eq!(found.audiences, ["api"]);
    }
    let elsewhere = setup
        .accounts
        .user(&token, &["vault".into(), "x".into()], &mut TokenNotes::default())
        .await
        .unwrap();
    assert_eq!(elsewhere.unwrap().audiences, ["vault"]);
}

#[tokio::test]
async fn a_bad_token_is_refused_and_its_sender_may_know_why() {
    let setup = setup();
    setup.objects.put(Bound::Pod, "ns", "x", Some(object("p1")));
    setup.objects.put(Bound::Secret, "ns", "x", Some(object("s1")));
    setup.objects.put(Bound::Node, "", "x", Some(object("n1")));
    let going = value!({"metadata": {"uid": "d1", "deletionTimestamp": "2020-01-01T00:00:00Z"}});
    setup.objects.put(Bound::Pod, "ns", "going", Some(going));
    let now = Time::now().unix_seconds();
    let account = |name: &str, uid: &str| value!({"namespace": "ns", "serviceaccount": {"name": (name), "uid": (uid)}});
    let mut at_going = bound("pod", "d1");
    at_going.set_at(&["pod", "name"], "going");
    let cases = [
        (vec![("exp", Value::from(now - 61))], "service account token has expired"),
        (vec![("exp", Value::from(now - 30))], ""),
        (vec![("nbf", Value::from(now + 120))], "service account token is not valid yet"),
        (vec![("iat", Value::from(now + 120))], "service account token is issued in the future"),
        (
            vec![("aud", value!(["vault"]))],
            "token audiences [\"vault\"] is invalid for the target audiences [\"api\"]",
        ),
        (vec![("aud", value!("api"))], ""),
        (vec![("iss", value!("https://old"))], ""),
        (vec![("kubernetes.io", account("gone", "u1"))], "serviceaccounts \"gone\" not found"),
        (
            vec![("kubernetes.io", account("robot", "u0"))],
            "service account UID (u1) does not match claim (u0)",
        ),
        (vec![("kubernetes.io", bound("pod", "p1"))], ""),
        (
            vec![("kubernetes.io", bound("pod", "p0"))],
            "pod UID (p1) does not match service account pod ref claim (p0)",
        ),
        (vec![("kubernetes.io", at_going)], "service account token has been invalidated"),
        (vec![("kubernetes.io", bound("secret", "s1"))], ""),
        (
            vec![("kubernetes.io", bound("secret", "s0"))],
            "secret UID (s1) does not match service account secret ref claim (s0)",
        ),
        (vec![("kubernetes.io", bound("node", "n1"))], ""),
        (
            vec![("kubernetes.io", bound("node", "n0"))],
            "node UID (n1) does not match service account node ref claim (n0)",
        ),
    ];
    for (more, error) in cases {
        let token = setup.key.token(&claims(&more)).unwrap();
        let answer = setup.accounts.user(&token, &["api".into()], &mut TokenNotes::default()).await;
        let said = answer.err().unwrap_or_default();
        assert_eq!(said, error, "{more:?}");
    }
    let foreign = setup.key.token(&claims(&[("iss", value!("https://other"))])).unwrap();
    assert_eq!(
        setup.accounts.user(&foreign, &["api".into()], &mut TokenNotes::default()).await,
        Ok(None)
    );
}

#[tokio::test]
async fn a_token_ends_with_what_it_is_bound_to() {
    let setup = setup();
    setup.objects.put(Bound::Pod, "ns", "x", Some(object("p1")));
    let token = setup.key.token(&claims(&[("kubernetes.io", bound("pod", "p1"))])).unwrap();
    let is_good = async || {
        setup.accounts.user(&token, &["api".into()], &mut TokenNotes::default()).await.is_ok()
    };
    assert!(is_good().await);
    setup.objects.put(Bound::Pod, "ns", "x", None);
    assert!(!is_good().await);
    setup.objects.put(Bound::Pod, "ns", "x", Some(object("p2")));
    assert!(!is_good().await, "another pod of the same name");
    setup.objects.put(Bound::Pod, "ns", "x", Some(object("p1")));
    assert!(is_good().await);
    setup.objects.put(Bound::ServiceAccount, "ns", "robot", Some(object("u2")));
    assert!(!is_good().await, "another account of the same name");
}

#[tokio::test]
async fn a_legacy_token_is_good_while_its_secret_holds_it() {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let setup = setup();
    let account = value!({"metadata": {"namespace": "ns", "name": "robot", "uid": "u1"}});
    let token = setup.key.token(&legacy_claims(&account, "kept")).unwrap();
    let check = async || {
        let answer = setup.accounts.user(&token, &["api".into()], &mut TokenNotes::default()).await;
        answer.map(|found| found.unwrap().user.name.to_string())
    };
    assert_eq!(check().await, Err("Token has been invalidated".to_owned()));
    let secret = |token: &str| value!({"metadata": {"name": "kept", "uid": "s"}, "data": {"token": (STANDARD.encode(token))}});
    setup.objects.put(Bound::Secret, "ns", "kept", Some(secret("other")));
    assert_eq!(check().await, Err("Token does not match server's copy".to_owned()));
    setup.objects.put(Bound::Secret, "ns", "kept", Some(secret(&token)));
    assert_eq!(check().await, Ok("system:serviceaccount:ns:robot".to_owned()));
    assert_eq!(*setup.objects.used.lock().unwrap(), ["kept"]);
    setup.objects.put(Bound::ServiceAccount, "ns", "robot", Some(object("u2")));
    let other = "ServiceAccount UID (u2) does not match claim (u1)";
    assert_eq!(check().await, Err(other.to_owned()));
}

/// Uses of tokens are counted, and told in the audit event and the response.
#[tokio::test]
async fn uses_of_old_and_legacy_tokens_are_noted() {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let setup = setup();
    let counters = setup.accounts.options.metrics.service_accounts.clone();
    let counts = || {
        let all = [
            &counters.legacy,
            &counters.legacy_manual,
            &counters.legacy_auto,
            &counters.legacy_auto_invalid,
            &counters.stale,
            &counters.valid,
        ];
        all.map(prometheus::IntCounter::get)
    };
    let used = async |token: &str| {
        let mut notes = TokenNotes::default();
        let found = setup.accounts.user(token, &["api".into()], &mut notes).await;
        (found.is_ok(), notes)
    };
    let now = Time::now().unix_seconds();
    for (warn_after, note, expected) in [
        (now + 100, None, [0, 0, 0, 0, 0, 1]),
        (now - 100, Some("authentication.k8s.io/stale-token"), [0, 0, 0, 0, 1, 1]),
    ] {
        let mut kubernetes =
            value!({"namespace": "ns", "serviceaccount": {"name": "robot", "uid": "u1"}});
        kubernetes.set_at(&["warnafter"], warn_after);
        let token = setup.key.token(&claims(&[("kubernetes.io", kubernetes)])).unwrap();
        let (good, notes) = used(&token).await;
        assert!(good);
        assert_eq!(notes.annotations.first().map(|(key, _)| *key), note);
        if let Some((_, text)) = notes.annotations.first() {
            let subject =
                "subject: system:serviceaccount:ns:robot, seconds after warning threshold: ";
            assert!(text.starts_with(subject), "{text}");
        }
        assert_eq!(counts(), expected);
    }
    let account = value!({"metadata": {"namespace": "ns", "name": "robot", "uid": "u1"}});
    let subject = "system:serviceaccount:ns:robot".to_owned();
    for (secret, invalid, note, expected) in [
        ("manual", false, "manual-secret", [1, 1, 0, 0, 1, 1]),
        ("auto", false, "autogenerated-secret", [2, 1, 1, 0, 1, 1]),
        ("auto", true, "invalidated", [3, 1, 1, 1, 1, 1]),
    ] {
        let token = setup.key.token(&legacy_claims(&account, secret)).unwrap();
        let mut object = value!({"metadata": {"name": (secret), "namespace": "ns", "uid": "s"}});
        object.set_at(&["data", "token"], STANDARD.encode(&token));
        if invalid {
            let label = "kubernetes.io/legacy-token-invalid-since";
            object.set_at(&["metadata", "labels", label], "2026-01-01");
        }
        setup.objects.put(Bound::Secret, "ns", secret, Some(object));
        let (good, notes) = used(&token).await;
        assert_eq!(good, !invalid, "{secret}");
        let value = if invalid { "auto/ns" } else { secret };
        let keys: Vec<(String, String)> = notes
            .annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect();
        let expected_keys = [
            ("authentication.k8s.io/legacy-token".to_owned(), subject.clone()),
            (format!("authentication.k8s.io/legacy-token-{note}"), value.to_owned()),
        ];
        assert_eq!(keys, expected_keys, "{secret}");
        assert_eq!(notes.warnings.len(), usize::from(note == "autogenerated-secret"));
        assert_eq!(counts(), expected, "{secret}");
    }
}

/// O09: clocks of two servers may differ by a minute, in both directions, and no more.
#[test]
fn o09_times_of_tokens_tolerate_steps_of_a_minute() {
    let made = Time::now().unix_seconds();
    let claims = value!({"nbf": (made), "iat": (made), "exp": (made + 600)});
    let at = |seconds: i64| check_times(&claims, Time::from_unix(made + seconds, 0)).is_ok();
    let cases = [(-61, false), (-59, true), (0, true), (600, true), (659, true), (661, false)];
    for (seconds, good) in cases {
        assert_eq!(at(seconds), good, "{seconds} seconds after it was made");
    }
}
