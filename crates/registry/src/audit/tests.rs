use meta::{AuditAnnotations, AuditLevel, AuditRecord};

use super::*;
use crate::testing::TestServer;

fn record(level: AuditLevel, omit_managed_fields: bool) -> AuditRecord {
    AuditRecord::new(level, omit_managed_fields, AuditAnnotations::recorded())
}

const JSON: &str = "application/json";
const WIDGETS: &str = "/v1/namespaces/ns/widgets";

fn text(json: Option<Vec<u8>>) -> String {
    json.map(|json| String::from_utf8(json).unwrap()).unwrap_or_default()
}

#[tokio::test]
async fn bodies_are_recorded_up_to_the_level() {
    let server = TestServer::start().await;
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    // Method and path, body, the request and what the response begins with.
    let cases = [
        (
            JSON,
            format!("POST {WIDGETS}"),
            "{metadata: {name: a}, spec: {color: red}}",
            r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"a"},"spec":{"color":"red","mode":"auto"}}"#,
            r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"a","namespace":"ns","uid":""#,
        ),
        (
            JSON,
            format!("MERGE-PATCH {WIDGETS}/a"),
            r#"{"spec": {"color":  "<b>"}}"#,
            r#"{"spec":{"color":"\u003cb\u003e"}}"#,
            r#"{"kind":"Widget""#,
        ),
        (
            JSON,
            format!("APPLY {WIDGETS}/a?fieldManager=m&force=true"),
            "apiVersion: example.com/v1\nkind: Widget\nspec: {color: c}",
            r#"{"apiVersion":"example.com/v1","kind":"Widget","spec":{"color":"c"}}"#,
            r#"{"kind":"Widget""#,
        ),
        (JSON, format!("GET {WIDGETS}/a"), "", "", r#"{"kind":"Widget""#),
        (JSON, format!("GET {WIDGETS}"), "", "", r#"{"kind":"WidgetList""#),
        (table, format!("GET {WIDGETS}"), "", "", r#"{"kind":"Table""#),
        (
            "application/vnd.kubernetes.protobuf",
            format!("GET {WIDGETS}"),
            "",
            "",
            r#"{"kind":"WidgetList""#,
        ),
        ("application/yaml", format!("GET {WIDGETS}/a"), "", "", r#"{"kind":"Widget""#),
        (
            JSON,
            format!("DELETE {WIDGETS}/a"),
            "{propagationPolicy: Background}",
            r#"{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/__internal","propagationPolicy":"Background"}"#,
            "{\"kind\":\"",
        ),
    ];
    for (accept, line, body, request, response) in cases {
        let levels =
            if line.starts_with("GET") { &AuditLevel::ALL[..] } else { &AuditLevel::ALL[3..] };
        for level in levels {
            let recorded = server.record(record(*level, true), accept, &line, body).await;
            let content = recorded.take_content();
            let (sent, answered) = (text(content.request_object), text(content.response_object));
            assert_eq!(sent, if *level >= AuditLevel::Request { request } else { "" }, "{line}");
            let wanted = *level == AuditLevel::RequestResponse;
            assert!(answered.is_empty() != wanted, "{line} {level:?}: {answered}");
            assert!(!wanted || answered.starts_with(response), "{line}: {answered}");
            assert!(!answered.contains("managedFields") && !answered.contains('\n'), "{answered}");
        }
    }
}

#[tokio::test]
async fn the_body_completes_the_identity_of_the_object() {
    let server = TestServer::start().await;
    let line = format!("POST {WIDGETS}");
    let recorded = record(AuditLevel::Metadata, false);
    let body = "{metadata: {name: a}, spec: {color: red}}";
    let recorded = server.record(recorded, JSON, &line, body).await;
    let content = recorded.take_content();
    assert_eq!((content.object.name.as_str(), content.object.namespace.as_str()), ("a", ""));
    assert_eq!((content.request_object, content.response_object), (None, None));
    let kept = record(AuditLevel::RequestResponse, false);
    let kept = server.record(kept, JSON, &format!("GET {WIDGETS}/a"), "").await;
    assert!(text(kept.take_content().response_object).contains("managedFields"));
}

#[tokio::test]
async fn a_patch_that_is_no_json_is_recorded_as_text() {
    let server = TestServer::start().await;
    let parts =
        crate::testing::Parts::read("MERGE-PATCH /v1/namespaces/ns/widgets/a", JSON, "{ \"".into());
    let warnings = meta::Warnings::default();
    let mut parts = parts;
    parts.audit = record(AuditLevel::Request, false);
    request_patch(&parts.request(&server, &warnings), PatchType::Merge);
    assert_eq!(text(parts.audit.take_content().request_object), r#""{ \"""#);
}

#[tokio::test]
async fn tokens_are_never_recorded() {
    let server = TestServer::start().await;
    let cases = [
        (("", "serviceaccounts", "token"), r#"{"status":{"token":"s3cret","x":1}}"#),
        (("authentication.k8s.io", "tokenreviews", ""), r#"{"spec":{"token":"s3cret"}}"#),
    ];
    for ((group, resource, subresource), json) in cases {
        let warnings = meta::Warnings::default();
        let mut parts =
            crate::testing::Parts::read("POST /v1/namespaces/ns/widgets", JSON, "".into());
        parts.audit = record(AuditLevel::RequestResponse, false);
        let info = meta::RequestInfo {
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            ..parts.info.clone()
        };
        let request = ResourceRequest { info: &info, ..parts.request(&server, &warnings) };
        response_object(&request, json.as_bytes());
        let recorded = text(parts.audit.take_content().response_object);
        assert!(recorded.contains("REDACTED") && !recorded.contains("s3cret"), "{recorded}");
    }
}
