use schema::openapi::{CUSTOM_PATCHES, PATCHES};

use super::{MEDIA_TYPES, PatchType};
use crate::testing::TestServer;

const A: &str = "/v1/namespaces/ns/widgets/a";

/// A widget `a` with parts x and q, at revision 2.
async fn server() -> TestServer {
    let server = TestServer::start().await;
    let body = "{metadata: {name: a, labels: {k: v}}, spec: {color: red, replicas: 1, \
                parts: [{name: x, value: '1'}, {name: q, value: '2'}], tags: [t]}}";
    server.check("POST /v1/namespaces/ns/widgets", body, "201").await;
    server
}

async fn check(patch: &str, body: &str, expected: &str) {
    server().await.check(&format!("{patch} {A}"), body, expected).await;
}

#[tokio::test]
async fn a_json_patch_goes_step_by_step() {
    let body = "[{op: test, path: /spec/color, value: red}, \
                {op: replace, path: /spec/color, value: blue}, {op: remove, path: /spec/parts/0}, \
                {op: add, path: /metadata/labels/n, value: m}]";
    let expected = r#"200 spec.color=blue spec.parts=[{"name":"q","value":"2"}] metadata.labels={"k":"v","n":"m"}"#;
    check("JSON-PATCH", body, expected).await;
}

#[tokio::test]
async fn a_json_patch_whose_test_fails_changes_nothing() {
    let body = "[{op: replace, path: /spec/color, value: blue}, \
                {op: test, path: /spec/color, value: red}]";
    let server = server().await;
    let answer = server.send(&format!("JSON-PATCH {A}"), body).await;
    assert_eq!(answer.code, 422);
    server.check(&format!("GET {A}"), "", "200 spec.color=red metadata.resourceVersion=2").await;
}

#[tokio::test]
async fn a_merge_patch_replaces_lists_and_removes_with_null() {
    let body = "{metadata: {labels: {k: null}}, spec: {parts: [{name: z}], replicas: null}}";
    let expected =
        r#"200 metadata.labels.k= spec.parts=[{"name":"z"}] spec.replicas= spec.color=red"#;
    check("MERGE-PATCH", body, expected).await;
}

#[tokio::test]
async fn a_strategic_patch_merges_lists_by_their_key() {
    let body = "{spec: {parts: [{name: q, value: '3'}, {name: z}, {name: x, $patch: delete}]}}";
    let answer = server().await.send(&format!("STRATEGIC-PATCH {A}"), body).await;
    assert_eq!(answer.code, 200, "{:?}", answer.body);
    let parts = answer.at("spec.parts");
    assert!(parts.contains(r#"{"name":"q","value":"3"}"#), "{parts}");
    assert!(parts.contains(r#"{"name":"z"}"#) && !parts.contains(r#""x""#), "{parts}");
    assert_eq!(answer.at("spec.tags"), r#"["t"]"#);
}

#[tokio::test]
async fn a_patch_that_changes_nothing_is_not_written() {
    for patch in ["MERGE-PATCH", "STRATEGIC-PATCH"] {
        check(patch, "{spec: {color: red}}", "200 metadata.resourceVersion=2").await;
    }
    check("JSON-PATCH", "[]", "200 metadata.resourceVersion=2").await;
}

#[tokio::test]
async fn a_patch_needs_its_object() {
    let server = TestServer::start().await;
    let missing = r#"404 NotFound: widgets.example.com "a" not found"#;
    for (patch, body) in [
        ("JSON-PATCH", "[]"),
        ("MERGE-PATCH", "{}"),
        ("STRATEGIC-PATCH", "{}"),
        ("MERGE-PATCH", "["),
    ] {
        server.check(&format!("{patch} {A}"), body, missing).await;
    }
}

#[tokio::test]
async fn a_patch_can_ask_for_a_version() {
    let server = server().await;
    let line = format!("MERGE-PATCH {A}");
    let body = "{metadata: {resourceVersion: '2'}, spec: {color: blue}}";
    server.check(&line, body, "200 metadata.resourceVersion=3").await;
    assert_eq!(server.send(&line, body).await.code, 409);
}

#[tokio::test]
async fn a_patch_cannot_rename_its_object() {
    let expected =
        "400 BadRequest: the name of the object (b) does not match the name on the URL (a)";
    check("MERGE-PATCH", "{metadata: {name: b}}", expected).await;
}

#[tokio::test]
async fn a_patched_object_is_validated() {
    let expected = "422 Invalid: Widget.example.com \"a\" is invalid: spec.replicas: Invalid value: \
                    101: must be at most 100";
    for patch in ["MERGE-PATCH", "STRATEGIC-PATCH"] {
        check(patch, "{spec: {replicas: 101}}", expected).await;
    }
}

/// The text of the decoder's error was taken apart to make this one.
#[tokio::test]
async fn a_strategic_patch_with_a_wrong_type_is_refused_as_go_refuses_it() {
    let cases = [
        ("{spec: {color: 1}}", "cannot convert int64 to string"),
        ("{spec: {color: 1.5}}", "unrecognized type: string"),
        ("{\"spec\": {\"color\": 1.0}}", "unrecognized type: string"),
        ("{spec: {color: true}}", "unrecognized type: string"),
        ("{spec: {color: [a]}}", "unrecognized type: string"),
        ("{spec: {replicas: '1'}}", "unrecognized type: int32"),
        ("{spec: {replicas: 1.5}}", "cannot convert float64 to int32"),
        ("{spec: {replicas: {a: b}}}", "unrecognized type: int32"),
        ("{spec: {tags: t}}", "cannot restore slice from string"),
        ("{spec: x}", "cannot restore struct from: string"),
        ("{spec: 7}", "cannot restore struct from: int64"),
        ("{metadata: {labels: {k: 1}}}", "cannot convert int64 to string"),
        ("{metadata: {labels: [x]}}", "cannot restore map from slice"),
        ("{spec: {parts: [{name: z, value: 1.5}]}}", "unrecognized type: string"),
        ("{spec: {parts: [{name: z, value: 1}]}}", "cannot convert int64 to string"),
    ];
    let server = server().await;
    for (body, expected) in cases {
        let answer = server.send(&format!("STRATEGIC-PATCH {A}"), body).await;
        let message = answer.at("message");
        assert_eq!(answer.code, 422, "{body}: {message}");
        assert!(message.ends_with(&format!(": {expected}")), "{body}: {message}");
    }
}

#[tokio::test]
async fn a_merge_patch_with_a_wrong_type_is_refused_in_the_words_of_the_decoder() {
    let answer = server().await.send(&format!("MERGE-PATCH {A}"), "{spec: {color: 1}}").await;
    let expected =
        "json: cannot unmarshal number into Go struct field WidgetSpec.spec.color of type string";
    assert!(answer.at("message").ends_with(expected), "{:?}", answer.body);
}

#[tokio::test]
async fn unknown_fields_of_a_patch_are_warned_about_or_refused() {
    let server = server().await;
    let body = "{spec: {size: 1}}";
    let answer = server.check(&format!("MERGE-PATCH {A}"), body, "200 spec.size=").await;
    assert_eq!(answer.warnings, ["unknown field \"spec.size\""]);
    let strict = server.send(&format!("MERGE-PATCH {A}?fieldValidation=Strict"), body).await;
    assert_eq!(strict.code, 422);
    assert!(strict.at("message").ends_with("strict decoding error: unknown field \"spec.size\""));
}

#[tokio::test]
async fn a_status_is_patched_at_its_own_endpoint() {
    let server = server().await;
    let body = "{spec: {color: blue}, status: {phase: Ready}}";
    let line = "MERGE-PATCH /v1/namespaces/ns/widgets/a/status";
    server.check(line, body, "200 spec.color=red status.phase=Ready").await;
}

const APPLY: &str = "APPLY /v1/namespaces/ns/widgets/a";

fn config(spec: &str) -> String {
    format!("{{apiVersion: example.com/v1, kind: Widget, metadata: {{name: a}}, spec: {spec}}}")
}

#[tokio::test]
async fn an_apply_creates_what_is_missing() {
    let server = TestServer::start().await;
    let line = format!("{APPLY}?fieldManager=m");
    let expected = "201 spec.color=red metadata.managedFields.0.manager=m \
                    metadata.managedFields.0.operation=Apply";
    server.check(&line, &config("{color: red}"), expected).await;
    server.check(&line, &config("{color: red}"), "200 metadata.resourceVersion=2").await;
}

#[tokio::test]
async fn an_apply_removes_what_its_manager_no_longer_says() {
    let server = TestServer::start().await;
    let line = format!("{APPLY}?fieldManager=m");
    let first = config("{color: red, parts: [{name: x}, {name: q}], tags: [t, u]}");
    server.check(&line, &first, "201").await;
    let second = config("{parts: [{name: q}], tags: [u]}");
    let expected = r#"200 spec.color= spec.parts=[{"name":"q"}] spec.tags=["u"]"#;
    server.check(&line, &second, expected).await;
}

#[tokio::test]
async fn an_apply_of_what_another_manager_owns_conflicts_unless_it_is_forced() {
    let server = TestServer::start().await;
    server.check(&format!("{APPLY}?fieldManager=m"), &config("{color: red}"), "201").await;
    let other = format!("{APPLY}?fieldManager=n");
    let conflict = "409 Conflict: Apply failed with 1 conflict: conflict with \"m\": .spec.color";
    server.check(&other, &config("{color: blue}"), conflict).await;
    // Agreement is shared ownership.
    server.check(&other, &config("{color: red, replicas: 2}"), "200 spec.replicas=2").await;
    let forced = format!("{other}&force=true");
    server.check(&forced, &config("{color: blue}"), "200 spec.color=blue spec.replicas=").await;
}

#[tokio::test]
async fn an_apply_needs_a_manager_and_an_object() {
    let server = TestServer::start().await;
    let required = "422 Invalid: PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required \
                    value: is required for apply patch";
    server.check(APPLY, &config("{}"), required).await;
    let line = format!("{APPLY}?fieldManager=m");
    assert_eq!(server.send(&line, "[1]").await.code, 400);
    let forced = format!("MERGE-PATCH {A}?force=true");
    let refused = "422 Invalid: PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may \
                   not be specified for non-apply patch";
    server.check(&forced, "{}", refused).await;
}

#[tokio::test]
async fn an_apply_with_a_uid_finds_its_object_or_conflicts() {
    let server = TestServer::start().await;
    let body = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, uid: u}}";
    let conflict = "409 Conflict: Operation cannot be fulfilled on widgets.example.com \"a\": uid \
                    mismatch: the provided object specified uid u, and no existing object was found";
    server.check(&format!("{APPLY}?fieldManager=m"), body, conflict).await;
}

/// A patch type that OpenAPI does not know is one that clients do not find.
#[test]
fn openapi_has_the_media_types_of_patches() {
    let without = |left_out: &[PatchType]| -> Vec<&str> {
        let rest = MEDIA_TYPES.iter().filter(|(_, patch_type)| !left_out.contains(patch_type));
        rest.map(|(media_type, _)| *media_type).collect()
    };
    // Compat: CBOR is not in the documents, even where it is served.
    assert_eq!(without(&[PatchType::ApplyCbor]), PATCHES);
    assert_eq!(without(&[PatchType::ApplyCbor, PatchType::Strategic]), CUSTOM_PATCHES);
}
