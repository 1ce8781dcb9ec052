use crate::testing::TestServer;

const CREATE: &str = "POST /v1/namespaces/ns/widgets";

#[tokio::test]
async fn the_server_fills_in_what_clients_may_not_choose() {
    let server = TestServer::start().await;
    let body = "{metadata: {name: a, uid: mine, generation: 7, \
                deletionTimestamp: '2020-01-01T00:00:00Z'}, spec: {color: red}, \
                status: {phase: Ready}}";
    let expected = "201 kind=Widget apiVersion=example.com/v1 metadata.namespace=ns \
                    metadata.resourceVersion=2 metadata.generation=1 \
                    metadata.deletionTimestamp= spec.mode=auto status=";
    let created = server.check(CREATE, body, expected).await;
    assert_ne!(created.at("metadata.uid"), "mine");
    assert!(!created.at("metadata.creationTimestamp").is_empty());
    assert_eq!(created.at("metadata.managedFields.0.manager"), "test");
    assert_eq!(created.at("metadata.managedFields.0.operation"), "Update");
}

#[tokio::test]
async fn a_name_can_be_taken_once() {
    let server = TestServer::start().await;
    let taken = r#"409 AlreadyExists: widgets.example.com "a" already exists"#;
    let deleting =
        r#"409 AlreadyExists: object is being deleted: widgets.example.com "b" already exists"#;
    let b = "{metadata: {name: b, finalizers: [x/y]}}";
    let cases = [
        (CREATE, "{metadata: {name: a}}", "201"),
        (CREATE, "{metadata: {name: a}}", taken),
        ("POST /v1/namespaces/ns/widgets?dryRun=All", "{metadata: {name: a}}", taken),
        ("POST /v1/namespaces/other/widgets", "{metadata: {name: a}}", "201"),
        (CREATE, b, "201"),
        ("DELETE /v1/namespaces/ns/widgets/b", "", "200"),
        (CREATE, b, deleting),
    ];
    server.check_all(&cases).await;
}

#[tokio::test]
async fn a_generated_name_begins_as_it_was_asked_for() {
    let server = TestServer::start().await;
    let body = "{metadata: {generateName: a-}}";
    let created = server.check(CREATE, body, "201 metadata.generateName=a-").await;
    let name = created.at("metadata.name");
    assert!(name.starts_with("a-") && name.len() == 7, "{name}");
    server.check(&format!("GET /v1/namespaces/ns/widgets/{name}"), "", "200").await;
    // A name that is given counts.
    let both = "{metadata: {name: b, generateName: a-}}";
    server.check(CREATE, both, "201 metadata.name=b").await;
}

#[tokio::test]
async fn a_dry_run_answers_and_writes_nothing() {
    let server = TestServer::start().await;
    let line = "POST /v1/namespaces/ns/widgets?dryRun=All";
    let expected = "201 metadata.name=a spec.mode=auto metadata.resourceVersion=";
    server.check(line, "{metadata: {name: a}, spec: {color: red}}", expected).await;
    assert_eq!(server.revision().await, 1);
    server.check("GET /v1/namespaces/ns/widgets/a", "", NOT_FOUND).await;
    let refused = "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported \
                   value: [\"Some\"]: supported values: \"All\"";
    server
        .check("POST /v1/namespaces/ns/widgets?dryRun=Some", "{metadata: {name: a}}", refused)
        .await;
}

const NOT_FOUND: &str = r#"404 NotFound: widgets.example.com "a" not found"#;

#[tokio::test]
async fn all_that_is_wrong_is_said_at_once() {
    let server = TestServer::start().await;
    let body = "{metadata: {name: A_, finalizers: [x]}, spec: {replicas: 101}}";
    let answer = server.send(CREATE, body).await;
    assert_eq!(answer.code, 422);
    assert_eq!(answer.at("details.causes.0.field"), "metadata.name");
    assert_eq!(answer.at("details.causes.1.field"), "metadata.finalizers[0]");
    assert_eq!(answer.at("details.causes.2.field"), "spec.replicas");
    assert_eq!(server.revision().await, 1);
}

#[tokio::test]
async fn unknown_fields_are_dropped_warned_about_or_refused() {
    let server = TestServer::start().await;
    let body = r#"{"metadata":{"name":"a"},"spec":{"color":"red","color":"red","size":1}}"#;
    let strict = format!("{CREATE}?fieldValidation=Strict");
    let refused = "400 BadRequest: Widget in version \"v1\" cannot be handled as a Widget: strict \
                   decoding error: duplicate field \"spec.color\", unknown field \"spec.size\"";
    server.check(&strict, body, refused).await;
    let ignored = format!("{CREATE}?fieldValidation=Ignore&dryRun=All");
    let answer = server.check(&ignored, body, "201 spec.size=").await;
    assert!(answer.warnings.is_empty());
    let answer = server.check(CREATE, body, "201 spec.size=").await;
    let expected = ["duplicate field \"spec.color\"", "unknown field \"spec.size\""];
    assert_eq!(answer.warnings, expected);
}

#[tokio::test]
async fn a_body_has_to_be_of_the_kind_that_the_path_names() {
    let server = TestServer::start().await;
    let cases = [
        (
            CREATE,
            "{kind: Gadget, apiVersion: example.com/v1, metadata: {name: a}}",
            "400 BadRequest: Gadget in version \"v1\" cannot be handled as a Widget: converting \
             (v1.Gadget) to (example.Widget): unknown conversion",
        ),
        (
            CREATE,
            "{kind: Widget, apiVersion: example.com/v2, metadata: {name: a}}",
            "400 BadRequest: the API version in the data (example.com/v2) does not match the \
             expected API version (example.com/v1)",
        ),
        (
            CREATE,
            "{spec: {replicas: many}}",
            "400 BadRequest: Widget in version \"v1\" cannot be handled as a Widget: json: cannot \
             unmarshal string into Go struct field WidgetSpec.spec.replicas of type int32",
        ),
        (
            CREATE,
            "{metadata: {name: a, namespace: other}}",
            "400 BadRequest: the namespace of the provided object does not match the namespace \
             sent on the request",
        ),
    ];
    server.check_all(&cases).await;
    let answer = server.send(CREATE, "{\"kind\":").await;
    assert_eq!(answer.code, 400, "{:?}", answer.body);
}

#[tokio::test]
async fn an_object_of_the_cluster_loses_its_namespace() {
    let server = TestServer::start().await;
    let body = "{metadata: {name: g, namespace: ns}}";
    server.check("POST /v1/gadgets", body, "201 metadata.namespace=").await;
}

#[tokio::test]
async fn what_is_created_in_one_version_is_stored_in_another() {
    let server = TestServer::start().await;
    let body = "{metadata: {name: a}, spec: {colour: red}}";
    let expected = "201 apiVersion=example.com/v2 spec.colour=red";
    server.check("POST /v2/namespaces/ns/widgets", body, expected).await;
    let expected = "200 apiVersion=example.com/v1 spec.color=red spec.colour=";
    server.check("GET /v1/namespaces/ns/widgets/a", "", expected).await;
}

#[tokio::test]
async fn duplicate_owners_are_dropped_with_a_warning() {
    let server = TestServer::start().await;
    let owner = "{apiVersion: v1, kind: Pod, name: p, uid: u}";
    let body = format!("{{metadata: {{name: a, ownerReferences: [{owner}, {owner}]}}}}");
    let answer = server.check(CREATE, &body, "201 metadata.ownerReferences.1=").await;
    assert!(
        answer.warnings[0].starts_with(".metadata.ownerReferences contains duplicate entries;")
    );
}

#[tokio::test]
async fn a_strategy_can_warn() {
    let server = TestServer::start().await;
    let answer = server.check(CREATE, "{metadata: {name: a}, spec: {color: beige}}", "201").await;
    assert_eq!(answer.warnings, ["spec.color: beige is deprecated"]);
}

#[tokio::test]
async fn a_resource_version_cannot_be_chosen() {
    let server = TestServer::start().await;
    let body = "{metadata: {name: a, resourceVersion: '6'}}";
    let refused = "500 : resourceVersion should not be set on objects to be created";
    server.check(CREATE, body, refused).await;
}

/// Mutating admission saw the uid, the time and the generated name, and ran again for each name that was taken.
#[tokio::test]
async fn mutating_admission_comes_before_what_the_server_fills_in() {
    let server = TestServer::start().await;
    let body = "{metadata: {name: a, uid: mine, creationTimestamp: '2020-01-01T00:00:00Z', \
                annotations: {note: seen}}}";
    let created = server.send(CREATE, body).await;
    let noted = created.at("metadata.annotations.note");
    assert_eq!(noted, r#"seen named "a": uid false, creationTimestamp false, name true"#);
    let created = server.send(CREATE, "{metadata: {generateName: a-, annotations: {note: seen}}}");
    let noted = created.await.at("metadata.annotations.note");
    assert_eq!(noted, r#"seen named "": uid false, creationTimestamp false, name false"#);
}

#[tokio::test]
async fn an_object_is_stored_under_the_name_that_admission_gives_it() {
    let server = TestServer::start().await;
    let rename = |name: &str| format!("{{metadata: {{name: {name}, annotations: {{rename: b}}}}}}");
    server.check(CREATE, &rename("a"), "201 metadata.name=b").await;
    server.check("GET /v1/namespaces/ns/widgets/a", "", NOT_FOUND).await;
    server.check("GET /v1/namespaces/ns/widgets/b", "", "200 metadata.name=b").await;
    let taken = r#"409 AlreadyExists: widgets.example.com "b" already exists"#;
    server.check(CREATE, &rename("c"), taken).await;
    let generated = "{metadata: {generateName: c-, annotations: {rename: b}}}";
    let conflict =
        format!("{taken}, the server was not able to generate a unique name for the object");
    server.check(CREATE, generated, &conflict).await;
    // An apply that creates does not try for ever.
    let line = "APPLY /v1/namespaces/ns/widgets/d?fieldManager=m";
    let applied = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: d, annotations: \
                   {rename: b}}}";
    server.check(line, applied, taken).await;
}
