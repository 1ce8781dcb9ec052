use meta::Cause;

use super::*;

fn event() -> Event {
    Event {
        level: AuditLevel::Metadata,
        audit_id: "id-1".to_owned(),
        stage: Stage::RequestReceived,
        request_uri: "/api/v1/namespaces/default/configmaps?watch=1&limit=1".to_owned(),
        verb: "watch".into(),
        user: User {
            name: "admin".into(),
            groups: vec!["system:masters".into(), "system:authenticated".into()],
            extra: vec![("key".into(), vec!["a".into(), "b".into()])],
            ..User::default()
        },
        impersonated_user: None,
        impersonation_constraint: Str::default(),
        source_ips: vec!["127.0.0.1".parse().unwrap()],
        user_agent: "curl/7.88.1".to_owned(),
        object_ref: Some(ObjectReference {
            resource: "configmaps".into(),
            namespace: "default".into(),
            api_version: "v1".into(),
            ..ObjectReference::default()
        }),
        response_status: None,
        request_object: None,
        response_object: None,
        request_received: Time::from_unix(1_794_907_562, 123_456_789),
        stage_time: Time::from_unix(1_794_907_562, 200_000_000),
        annotations: BTreeMap::new(),
    }
}

#[track_caller]
fn check(event: &Event, expected: &str) {
    let mut out = Vec::new();
    event.write_line(&mut out);
    assert_eq!(String::from_utf8(out).unwrap(), format!("{expected}\n"));
}

/// The expected lines were written by kube-apiserver v1.36.4, with other names and times.
#[test]
fn events_have_the_bytes_of_kube_apiserver() {
    let mut event = event();
    check(
        &event,
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id-1","stage":"RequestReceived","requestURI":"/api/v1/namespaces/default/configmaps?watch=1\u0026limit=1","verb":"watch","user":{"username":"admin","groups":["system:masters","system:authenticated"],"extra":{"key":["a","b"]}},"sourceIPs":["127.0.0.1"],"userAgent":"curl/7.88.1","objectRef":{"resource":"configmaps","namespace":"default","apiVersion":"v1"},"requestReceivedTimestamp":"2026-11-17T09:26:02.123456Z","stageTimestamp":"2026-11-17T09:26:02.200000Z"}"#,
    );
    event.stage = Stage::ResponseComplete;
    event.level = AuditLevel::RequestResponse;
    event.impersonated_user =
        Some(User { name: "bob".into(), groups: vec!["g".into()], ..User::default() });
    event.impersonation_constraint = "impersonate:user-info".into();
    event.source_ips.clear();
    event.user_agent.clear();
    event.object_ref = Some(ObjectReference {
        resource: "deployments".into(),
        namespace: "default".into(),
        name: "web".into(),
        uid: "u".into(),
        api_group: "apps".into(),
        api_version: "v1".into(),
        resource_version: "7".into(),
        subresource: "scale".into(),
    });
    event.response_status = Some(ResponseStatus {
        status: "Failure".into(),
        message: "no <way>".to_owned(),
        reason: "Invalid".to_owned(),
        details: Some(Details {
            name: "web".to_owned(),
            group: "apps".to_owned(),
            kind: "deployments".to_owned(),
            uid: "u".to_owned(),
            causes: vec![Cause {
                reason: "FieldValueInvalid".to_owned(),
                message: "m".to_owned(),
                field: "spec".to_owned(),
            }],
            retry_after_seconds: 3,
        }),
        code: 422,
    });
    event.request_object = Some(br#"{"a":1}"#.to_vec());
    event.response_object = Some(br#"{"b":2}"#.to_vec());
    event.annotations.insert("authorization.k8s.io/reason".to_owned(), String::new());
    event.annotations.insert("authorization.k8s.io/decision".to_owned(), "allow".to_owned());
    check(
        &event,
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"id-1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/default/configmaps?watch=1\u0026limit=1","verb":"watch","user":{"username":"admin","groups":["system:masters","system:authenticated"],"extra":{"key":["a","b"]}},"impersonatedUser":{"username":"bob","groups":["g"]},"authenticationMetadata":{"impersonationConstraint":"impersonate:user-info"},"objectRef":{"resource":"deployments","namespace":"default","name":"web","uid":"u","apiGroup":"apps","apiVersion":"v1","resourceVersion":"7","subresource":"scale"},"responseStatus":{"metadata":{},"status":"Failure","message":"no \u003cway\u003e","reason":"Invalid","details":{"name":"web","group":"apps","kind":"deployments","uid":"u","causes":[{"reason":"FieldValueInvalid","message":"m","field":"spec"}],"retryAfterSeconds":3},"code":422},"requestObject":{"a":1},"responseObject":{"b":2},"requestReceivedTimestamp":"2026-11-17T09:26:02.123456Z","stageTimestamp":"2026-11-17T09:26:02.200000Z","annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}}"#,
    );
    event.truncate();
    let mut out = Vec::new();
    event.write_item(&mut out);
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with(r#"{"level":"RequestResponse","auditID""#), "{text}");
    assert!(text.ends_with(r#""audit.k8s.io/truncated":"true","authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}}"#), "{text}");
    assert!(!text.contains("requestObject") && !text.contains("responseObject"), "{text}");
}

#[test]
fn an_unauthenticated_request_has_an_empty_user() {
    let mut event = event();
    event.user = User::default();
    event.object_ref = None;
    event.response_status = Some(ResponseStatus::code(401));
    check(
        &event,
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id-1","stage":"RequestReceived","requestURI":"/api/v1/namespaces/default/configmaps?watch=1\u0026limit=1","verb":"watch","user":{},"sourceIPs":["127.0.0.1"],"userAgent":"curl/7.88.1","responseStatus":{"metadata":{},"code":401},"requestReceivedTimestamp":"2026-11-17T09:26:02.123456Z","stageTimestamp":"2026-11-17T09:26:02.200000Z"}"#,
    );
}

#[test]
fn legacy_lines_are_those_of_kube_apiserver() {
    let mut event = event();
    assert_eq!(
        event.to_legacy(),
        r#"2026-11-17T09:26:02.123456789Z AUDIT: id="id-1" stage="RequestReceived" ip="127.0.0.1" method="watch" user="admin" groups="\"system:masters\",\"system:authenticated\"" as="<self>" asgroups="<lookup>" user-agent="curl/7.88.1" namespace="default" uri="/api/v1/namespaces/default/configmaps?watch=1&limit=1" response="<deferred>""#
    );
    event.user = User::default();
    event.source_ips.clear();
    event.object_ref = None;
    event.impersonated_user =
        Some(User { name: "bob".into(), groups: vec!["g".into()], ..User::default() });
    event.response_status = Some(ResponseStatus::code(200));
    event.request_received = Time::from_unix(1_794_907_562, 0);
    assert_eq!(
        event.to_legacy(),
        r#"2026-11-17T09:26:02Z AUDIT: id="id-1" stage="RequestReceived" ip="<unknown>" method="watch" user="<none>" groups="<none>" as="bob" asgroups="\"g\"" user-agent="curl/7.88.1" namespace="<none>" uri="/api/v1/namespaces/default/configmaps?watch=1&limit=1" response="200""#
    );
}

#[test]
fn a_long_user_agent_is_cut() {
    assert_eq!(user_agent(&[b'a'; 1024]), "a".repeat(1024));
    assert_eq!(user_agent(&[b'a'; 1025]), "a".repeat(1024) + "...TRUNCATED");
    assert_eq!(user_agent(&[b'a', 0xff]), "a\u{fffd}");
}
