use crate::testing::TestServer;

const PUT: &str = "PUT /v1/namespaces/ns/widgets/a";
const MODIFIED: &str = "the object has been modified; please apply your changes to the latest \
                        version and try again";

/// A widget `a` at revision 2.
async fn server() -> TestServer {
    let server = TestServer::start().await;
    let body = "{metadata: {name: a}, spec: {color: red}, frozen: yes-it-is}";
    server.check("POST /v1/namespaces/ns/widgets", body, "201 metadata.resourceVersion=2").await;
    server
}

#[tokio::test]
async fn a_put_with_a_stale_version_conflicts() {
    let server = server().await;
    let body = |version: &str, color: &str| {
        format!(
            "{{metadata: {{name: a, resourceVersion: '{version}'}}, spec: {{color: {color}}}, frozen: yes-it-is}}"
        )
    };
    server.check(PUT, &body("2", "blue"), "200 metadata.resourceVersion=3").await;
    let conflict = format!(
        "409 Conflict: Operation cannot be fulfilled on widgets.example.com \"a\": {MODIFIED}"
    );
    server.check(PUT, &body("2", "green"), &conflict).await;
    server.check(PUT, &body("", "green"), "200 metadata.resourceVersion=4").await;
    let bad = "500 : strconv.ParseUint: parsing \"x\": invalid syntax";
    server.check(PUT, &body("x", "green"), bad).await;
}

#[tokio::test]
async fn a_put_with_the_uid_of_another_object_conflicts() {
    let server = server().await;
    let uid = server.check("GET /v1/namespaces/ns/widgets/a", "", "200").await.at("metadata.uid");
    let body = "{metadata: {name: a, uid: other}, frozen: yes-it-is}";
    let conflict = format!(
        "409 Conflict: Operation cannot be fulfilled on widgets.example.com \"a\": StorageError: \
         invalid object, Code: 4, Key: /registry/example.com/widgets/ns/a, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: UID in precondition: other, UID in object meta: \
         {uid}"
    );
    server.check(PUT, body, &conflict).await;
    let body = format!("{{metadata: {{name: a, uid: {uid}}}, frozen: yes-it-is}}");
    server.check(PUT, &body, "200 metadata.resourceVersion=3").await;
}

#[tokio::test]
async fn a_put_that_changes_nothing_is_not_written() {
    let server = server().await;
    let body = "{metadata: {name: a}, spec: {color: red}, frozen: yes-it-is}";
    server.check(PUT, body, "200 metadata.resourceVersion=2 metadata.generation=1").await;
    assert_eq!(server.revision().await, 2);
}

#[tokio::test]
async fn generation_counts_changes_of_the_spec() {
    let server = server().await;
    let labels = "{metadata: {name: a, labels: {x: z}}, spec: {color: red}, frozen: yes-it-is}";
    server.check(PUT, labels, "200 metadata.generation=1").await;
    let spec = "{metadata: {name: a}, spec: {color: blue}, frozen: yes-it-is}";
    server.check(PUT, spec, "200 metadata.generation=2").await;
}

#[tokio::test]
async fn a_dry_run_of_a_put_writes_nothing() {
    let server = server().await;
    let body = "{metadata: {name: a}, spec: {color: blue}, frozen: yes-it-is}";
    let expected = "200 spec.color=blue metadata.resourceVersion=2";
    server.check(&format!("{PUT}?dryRun=All"), body, expected).await;
    server.check("GET /v1/namespaces/ns/widgets/a", "", "200 spec.color=red").await;
}

#[tokio::test]
async fn a_put_has_to_name_the_object_of_its_path() {
    let server = server().await;
    let cases = [
        (
            PUT,
            "{metadata: {name: b}}",
            "400 BadRequest: the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            PUT,
            "{metadata: {}}",
            "400 BadRequest: the name of the object (a based on URL) was undeterminable: name \
             must be provided",
        ),
        (
            "PUT /v1/namespaces/ns/widgets/b",
            "{metadata: {name: b}}",
            r#"404 NotFound: widgets.example.com "b" not found"#,
        ),
    ];
    server.check_all(&cases).await;
}

#[tokio::test]
async fn a_put_creates_where_the_kind_allows_it() {
    let server = TestServer::start().await;
    let put = "PUT /v1/gadgets/g";
    let cases = [
        (put, "{metadata: {name: g}, data: {k: v}}", "201 metadata.resourceVersion=2"),
        (
            put,
            "{metadata: {name: g}, data: {k: w}}",
            "422 Invalid: gadgets.example.com \"g\" is invalid: metadata.resourceVersion: Invalid \
             value: 0: must be specified for an update",
        ),
        (put, "{metadata: {name: g, resourceVersion: '2'}, data: {k: w}}", "200 data.k=w"),
        // It was there when the client saw it.
        (
            "PUT /v1/gadgets/h",
            "{metadata: {name: h, resourceVersion: '2'}}",
            r#"404 NotFound: gadgets.example.com "h" not found"#,
        ),
    ];
    server.check_all(&cases).await;
}

#[tokio::test]
async fn a_change_of_an_immutable_field_is_refused() {
    let refused =
        "422 Invalid: Widget.example.com \"a\" is invalid: frozen: Forbidden: field is immutable";
    server().await.check(PUT, "{metadata: {name: a}, frozen: no-more}", refused).await;
}

#[tokio::test]
async fn status_and_spec_are_written_at_their_own_endpoints() {
    let server = server().await;
    let status = "PUT /v1/namespaces/ns/widgets/a/status";
    let body =
        "{metadata: {name: a}, spec: {color: blue}, status: {phase: Ready}, frozen: yes-it-is}";
    let cases = [
        (status, body, "200 spec.color=red status.phase=Ready metadata.generation=1"),
        (
            PUT,
            "{metadata: {name: a}, spec: {color: blue}, status: {phase: Gone}, frozen: yes-it-is}",
            "200 spec.color=blue status.phase=Ready metadata.generation=2",
        ),
    ];
    server.check_all(&cases).await;
}

/// Errors used to be classified by the prefix of their field's text.
#[tokio::test]
async fn a_status_is_not_refused_for_its_spec_but_for_everything_else() {
    let server = TestServer::start().await;
    // As an older release let it pass.
    let old = r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"a","namespace":"ns","uid":"u","creationTimestamp":"2020-01-01T00:00:00Z"},"spec":{"replicas":500}}"#;
    server.write_raw("widgets", "a", old).await;
    let status = "PUT /v1/namespaces/ns/widgets/a/status";
    let good = "{metadata: {name: a}, status: {phase: Ready}}";
    server.check(status, good, "200 spec.replicas=500 status.phase=Ready").await;
    let bad = "{metadata: {name: a}, status: {phase: Broken}}";
    let refused = "422 Invalid: Widget.example.com \"a\" is invalid: status.phase: Invalid value: \
                   \"Broken\": must not be broken";
    server.check(status, bad, refused).await;
    // A field whose name only begins with `spec` is not the spec.
    let old = old.replace(r#""spec":{"replicas":500}"#, r#""specials":"x""#);
    server.write_raw("widgets", "a", &old).await;
    let refused =
        "422 Invalid: Widget.example.com \"a\" is invalid: specials: Forbidden: must not be set";
    server.check(status, good, refused).await;
}

#[tokio::test]
async fn an_object_goes_with_its_last_finalizer() {
    let server = TestServer::start().await;
    let create = "{metadata: {name: a, finalizers: [x/y]}}";
    let cases = [
        ("POST /v1/namespaces/ns/widgets", create, "201"),
        ("DELETE /v1/namespaces/ns/widgets/a", "", "200 metadata.finalizers=[\"x/y\"]"),
        (
            PUT,
            "{metadata: {name: a, finalizers: [x/y], labels: {k: v}}}",
            "200 metadata.labels.k=v",
        ),
        (PUT, "{metadata: {name: a}}", "200 metadata.name=a"),
        (
            "GET /v1/namespaces/ns/widgets/a",
            "",
            r#"404 NotFound: widgets.example.com "a" not found"#,
        ),
    ];
    server.check_all(&cases).await;
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_an_error_and_not_made_twice() {
    let server = server().await;
    server.backend.fail_next_write(crate::testing::WriteFault::AnswerLost);
    let body = "{metadata: {name: a}, spec: {color: blue}, frozen: yes-it-is}";
    server.check(PUT, body, "500 : request timed out").await;
    assert_eq!(server.revision().await, 3);
}
