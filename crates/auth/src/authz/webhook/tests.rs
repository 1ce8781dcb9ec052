//! The authorization webhook against servers that answer well, badly, or not at all.

use std::sync::{Arc, Mutex};

use meta::Str;

use super::*;
use crate::testing::{Answer as Response, TestServer};

const VERSION: &str = "authorization.k8s.io/v1";

fn review(status: &str) -> String {
    format!(r#"{{"kind":"SubjectAccessReview","apiVersion":"{VERSION}","status":{status}}}"#)
}

fn webhook(server: &TestServer, edit: impl FnOnce(&mut WebhookConfig)) -> WebhookAuthorizer {
    let mut config = WebhookConfig {
        kubeconfig: server.kubeconfig(),
        timeout: Duration::from_secs(3),
        version: "v1".to_owned(),
        ..WebhookConfig::default()
    };
    edit(&mut config);
    let made = WebhookAuthorizer::load("hook", &config, &Metrics::new("test"), None);
    made.unwrap().without_pauses()
}

fn jane() -> User {
    User {
        name: Str::new("jane"),
        uid: Str::new("42"),
        groups: vec![Str::new("dev"), Str::new("system:authenticated")],
        extra: vec![(Str::new("scopes"), vec![Str::new("a"), Str::new("b")])],
    }
}

#[tokio::test]
async fn a_review_has_the_attributes_of_the_request() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let server = TestServer::start(move |_, _, body| {
        seen.lock().unwrap().push(meta::json::to_string(&body));
        let version = body.str_at(&["apiVersion"]).to_owned();
        Response::ok(review(r#"{"allowed":true,"reason":"why"}"#).replace(VERSION, &version))
    })
    .await;
    let user = jane();
    let resource = Attributes {
        namespace: "ns",
        name: "x",
        version: "v1",
        subresource: "status",
        field_selector: "metadata.name=x,spec.nodeName!=n",
        label_selector: "app in (a,b),!gone,tier,x>3",
        ..Attributes::of_resource(&user, "list", "apps", "deployments")
    };
    let path = Attributes::of_path(&user, "get", "/metrics");
    for version in ["v1", "v1beta1"] {
        let webhook = webhook(&server, |config| version.clone_into(&mut config.version));
        let verdict = webhook.authorize(&resource).await;
        assert_eq!((verdict.decision, verdict.reason.as_str()), (Decision::Allow, "why"));
        assert!(webhook.authorize(&path).await.is_allowed());
    }
    let user = r#""extra":{"scopes":["a","b"]},"GROUPS":["dev","system:authenticated"]"#;
    let attributes = r#""resourceAttributes":{"fieldSelector":{"requirements":[{"key":"metadata.name","operator":"In","values":["x"]},{"key":"spec.nodeName","operator":"NotIn","values":["n"]}]},"group":"apps","labelSelector":{"requirements":[{"key":"app","operator":"In","values":["a","b"]},{"key":"gone","operator":"DoesNotExist"},{"key":"tier","operator":"Exists"}]},"name":"x","namespace":"ns","resource":"deployments","subresource":"status","verb":"list","version":"v1"}"#;
    let asked = asked.lock().unwrap();
    for (at, version, groups) in [(0, "v1", "groups"), (2, "v1beta1", "group")] {
        let user = user.replace("GROUPS", groups);
        let head = format!(
            r#"{{"apiVersion":"authorization.k8s.io/{version}","kind":"SubjectAccessReview""#
        );
        assert!(asked[at].starts_with(&head), "{}", asked[at]);
        let spec = format!(r#""spec":{{{user},{attributes},"uid":"42","user":"jane"}}"#);
        assert!(asked[at].contains(&spec), "{}\n{spec}", asked[at]);
        let path = format!(
            r#""spec":{{{user},"nonResourceAttributes":{{"path":"/metrics","verb":"get"}},"uid":"42","user":"jane"}}"#
        );
        assert!(asked[at + 1].contains(&path), "{}\n{path}", asked[at + 1]);
    }
}

/// Security case R13: no error, and no answer that is not a clear yes, is a permission.
#[tokio::test]
async fn an_error_is_never_a_permission() {
    use Decision::{Deny, NoOpinion};
    let moved = "HTTP/1.1 302 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
    let endless = "HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n{";
    let cases: Vec<(Response, Decision, Option<&str>)> = vec![
        (Response::ok(review("{}")), NoOpinion, None),
        (Response::ok(review(r#"{"allowed":false,"denied":true}"#)), Deny, None),
        (
            Response::ok(review(r#"{"allowed":true,"denied":true}"#)),
            Deny,
            Some("both allow and deny"),
        ),
        (Response::ok(review(r#"{"allowed":"yes"}"#)), NoOpinion, Some("not a boolean")),
        (Response::ok(review(r#"{"allowed":1}"#)), NoOpinion, Some("not a boolean")),
        (Response::ok(review("[true]")), NoOpinion, Some("not an object")),
        (
            Response::ok(review(r#"{"allowed":true}"#).replace("SubjectAccessReview", "Pod")),
            NoOpinion,
            Some("answered with kind"),
        ),
        (
            Response::ok(review(r#"{"allowed":true}"#).replace("/v1", "/v2")),
            NoOpinion,
            Some("answered with kind"),
        ),
        (Response::ok(r#"{"status":{"allowed":true}}"#), NoOpinion, Some("answered with kind")),
        (Response::ok("allowed: true"), NoOpinion, Some("not JSON")),
        (Response::Json(403, review(r#"{"allowed":true}"#)), NoOpinion, Some("")),
        (Response::Raw(moved.to_owned()), NoOpinion, Some("redirect")),
        (Response::Raw(endless.to_owned()), NoOpinion, Some("length limit exceeded")),
        (Response::Close, NoOpinion, Some("")),
        (Response::Json(500, String::new()), NoOpinion, Some("")),
    ];
    let user = jane();
    let attributes = Attributes::of_path(&user, "get", "/");
    for (response, expected, error) in cases {
        let response = Mutex::new(Some(response));
        let server = TestServer::start(move |_, _, _| {
            response.lock().unwrap().take().unwrap_or(Response::Close)
        })
        .await;
        let verdict = webhook(&server, |_| {}).authorize(&attributes).await;
        assert_eq!(verdict.decision, expected, "{verdict:?}");
        let told = verdict.error.as_deref();
        assert_eq!(told.is_some(), error.is_some(), "{verdict:?}");
        assert!(told.unwrap_or_default().contains(error.unwrap_or_default()), "{verdict:?}");
    }
    let server = TestServer::start(|_, _, _| Response::Json(404, String::new())).await;
    let denies = webhook(&server, |config| config.denies_on_failure = true);
    assert_eq!(denies.authorize(&attributes).await.decision, Deny);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_hangs_is_given_up_after_its_timeout() {
    let server = TestServer::start(|_, _, _| Response::Hang).await;
    let user = jane();
    let attributes = Attributes::of_path(&user, "get", "/");
    let began = tokio::time::Instant::now();
    let verdict = webhook(&server, |_| {}).authorize(&attributes).await;
    assert_eq!((verdict.decision, began.elapsed().as_secs()), (Decision::NoOpinion, 3));
    assert!(verdict.error.unwrap().contains("context deadline exceeded"));
}

#[tokio::test]
async fn answers_are_remembered_as_long_as_configured() {
    let server = TestServer::start(|_, _, asked| {
        let verb = asked.str_at(&["spec", "nonResourceAttributes", "verb"]).to_owned();
        Response::ok(review(if verb == "get" { r#"{"allowed":true}"# } else { "{}" }))
    })
    .await;
    let user = jane();
    let long = format!("/{}", "x".repeat(REMEMBERED_BYTES_MAX));
    let webhook = webhook(&server, |config| config.authorized_ttl = Duration::from_mins(1));
    for (verb, path, calls) in [("get", "/", 1), ("post", "/", 3), ("get", long.as_str(), 5)] {
        let attributes = Attributes::of_path(&user, verb, path);
        for _ in 0..2 {
            webhook.authorize(&attributes).await;
        }
        assert_eq!(server.calls(), calls, "{verb}");
    }
    let attributes = Attributes::of_path(&user, "get", "/");
    assert!(matches!(webhook.authorize(&attributes), Authorize::Ready(_)), "from memory");
}

#[tokio::test]
async fn conditions_decide_whether_the_webhook_is_asked() {
    let server = TestServer::start(|_, _, _| Response::ok(review(r#"{"allowed":true}"#))).await;
    let user = jane();
    let list = Attributes { namespace: "ns", ..Attributes::of_resource(&user, "list", "", "pods") };
    let selected = Attributes { field_selector: "spec.nodeName=n", ..list };
    let path = Attributes::of_path(&user, "get", "/livez");
    let in_ns = "has(request.resourceAttributes) && request.resourceAttributes.namespace == 'ns'";
    let by_node = "request.?resourceAttributes.fieldSelector.requirements.orValue([]).exists(r, r.key \
                   == 'spec.nodeName' && r.operator == 'In' && r.values == ['n'])";
    let cases = [
        (vec![in_ns], &list, Decision::Allow, 1),
        (vec![in_ns], &path, Decision::NoOpinion, 0),
        (vec!["request.user == 'jane'", "'dev' in request.groups"], &list, Decision::Allow, 1),
        (
            vec!["request.extra['scopes'] == ['a', 'b']", "request.uid == '42'"],
            &path,
            Decision::Allow,
            1,
        ),
        (vec!["request.user == 'jane'", "'ops' in request.groups"], &list, Decision::NoOpinion, 0),
        (vec![by_node], &selected, Decision::Allow, 1),
        (vec![by_node], &list, Decision::NoOpinion, 0),
        // A false one outweighs an error.
        (vec!["request.extra['no'] == []", "false"], &list, Decision::NoOpinion, 0),
    ];
    for (conditions, attributes, expected, calls) in cases {
        let before = server.calls();
        let webhook = webhook(&server, |config| {
            config.match_conditions = conditions.iter().map(|text| (*text).to_owned()).collect();
        });
        let verdict = webhook.authorize(attributes).await;
        assert_eq!((verdict.decision, verdict.error), (expected, None), "{conditions:?}");
        assert_eq!(server.calls() - before, calls, "{conditions:?}");
    }
    for denies in [false, true] {
        let webhook = webhook(&server, |config| {
            config.match_conditions = vec!["request.extra['no'] == []".to_owned()];
            config.denies_on_failure = denies;
        });
        let verdict = webhook.authorize(&list).await;
        let expected = if denies { Decision::Deny } else { Decision::NoOpinion };
        assert_eq!(verdict.decision, expected);
        assert!(verdict.error.unwrap().contains("cel evaluation error"));
    }
}
