use crate::testing::TestServer;

const PATH: &str = "/v1/namespaces/ns/widgets";
const A: &str = "DELETE /v1/namespaces/ns/widgets/a";
const GET: &str = "GET /v1/namespaces/ns/widgets/a";
const GONE: &str = r#"404 NotFound: widgets.example.com "a" not found"#;

async fn with(widget: &str) -> TestServer {
    let server = TestServer::start().await;
    server.check(&format!("POST {PATH}"), widget, "201").await;
    server
}

async fn server() -> TestServer {
    with("{metadata: {name: a}}").await
}

#[tokio::test]
async fn a_delete_answers_with_a_status_or_with_the_object_as_its_kind_does() {
    let server = server().await;
    let uid = server.check(GET, "", "200").await.at("metadata.uid");
    let expected =
        format!("200 status=Success details.name=a details.kind=widgets details.uid={uid}");
    server.check(A, "", &expected).await;
    let cases = [
        (GET, "", GONE),
        (A, "", GONE),
        ("POST /v1/gadgets", "{metadata: {name: g}, data: {k: v}}", "201"),
        ("DELETE /v1/gadgets/g", "", "200 kind=Gadget data.k=v"),
    ];
    server.check_all(&cases).await;
}

#[tokio::test]
async fn a_precondition_that_does_not_hold_conflicts() {
    let server = server().await;
    let uid = server.check(GET, "", "200").await.at("metadata.uid");
    let conflict = "409 Conflict: Operation cannot be fulfilled on Widget.example.com \"a\": the \
                    ResourceVersion in the precondition (9) does not match the ResourceVersion in \
                    record (2). The object might have been modified";
    server.check(A, "{preconditions: {resourceVersion: '9'}}", conflict).await;
    let conflict = format!(
        "409 Conflict: Operation cannot be fulfilled on Widget.example.com \"a\": the UID in the \
         precondition (x) does not match the UID in record ({uid}). The object might have been \
         deleted and then recreated"
    );
    server.check(A, "{preconditions: {uid: x}}", &conflict).await;
    let holds = format!("{{preconditions: {{uid: {uid}, resourceVersion: '2'}}}}");
    server.check(A, &holds, "200 status=Success").await;
}

#[tokio::test]
async fn an_object_with_a_finalizer_is_marked_and_stays() {
    let server = with("{metadata: {name: a, finalizers: [x/y]}}").await;
    let marked = server.check(A, "", "200 kind=Widget metadata.resourceVersion=3").await;
    assert!(!marked.at("metadata.deletionTimestamp").is_empty());
    assert_eq!(marked.at("metadata.deletionGracePeriodSeconds"), "0");
    assert_eq!(marked.at("metadata.generation"), "2");
    // Again: it keeps its time.
    let again = server.check(A, "", "200 metadata.generation=2").await;
    let time = "metadata.deletionTimestamp";
    assert_eq!(again.at(time), marked.at(time));
    let line = "MERGE-PATCH /v1/namespaces/ns/widgets/a";
    server.check(line, "{metadata: {finalizers: null}}", "200").await;
    server.check(GET, "", GONE).await;
}

#[tokio::test]
async fn a_grace_period_can_be_shortened_but_not_prolonged() {
    let server = with("{metadata: {name: a}, spec: {graceSeconds: 30}}").await;
    let seconds = "metadata.deletionGracePeriodSeconds";
    server.check(A, "", &format!("200 {seconds}=30 metadata.resourceVersion=3")).await;
    let line = |asked| format!("{A}?gracePeriodSeconds={asked}");
    server.check(&line(60), "", "200 status=Success").await;
    server.check(GET, "", &format!("200 {seconds}=30 metadata.resourceVersion=3")).await;
    server.check(&line(10), "", &format!("200 {seconds}=10 metadata.resourceVersion=4")).await;
    server.check(&line(0), "", "200 status=Success").await;
    server.check(GET, "", GONE).await;
}

#[tokio::test]
async fn a_grace_period_of_zero_deletes_at_once() {
    let server = with("{metadata: {name: a}, spec: {graceSeconds: 30}}").await;
    server.check(&format!("{A}?gracePeriodSeconds=0"), "", "200 status=Success").await;
    server.check(GET, "", GONE).await;
}

#[tokio::test]
async fn the_propagation_policy_becomes_a_finalizer() {
    let cases = [
        ("Foreground", "200 metadata.finalizers=[\"foregroundDeletion\"]"),
        ("Orphan", "200 metadata.finalizers=[\"orphan\"]"),
        ("Background", "200 status=Success"),
        (
            "Sideways",
            "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported \
             value: \"Sideways\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
        ),
    ];
    for (policy, expected) in cases {
        server().await.check(&format!("{A}?propagationPolicy={policy}"), "", expected).await;
    }
    let orphan = server().await;
    orphan.check(A, "{orphanDependents: true}", "200 metadata.finalizers=[\"orphan\"]").await;
    // The last word counts.
    let line = format!("{A}?propagationPolicy=Background");
    orphan.check(&line, "", "200 status=Success").await;
    for policy in ["Foreground", "Orphan", "Background"] {
        let server = server().await.without_garbage_collection();
        let line = format!("{A}?propagationPolicy={policy}");
        server.check(&line, "", "200 status=Success").await;
        server.check(GET, "", GONE).await;
    }
    // Finalizers of an earlier deletion stay.
    let server = with("{metadata: {name: a, finalizers: [orphan]}}").await;
    let server = server.without_garbage_collection();
    let line = format!("{A}?propagationPolicy=Background");
    server.check(&line, "", "200 metadata.finalizers=[\"orphan\"]").await;
}

#[tokio::test]
async fn a_dry_run_deletes_nothing() {
    let server = server().await;
    server.check(&format!("{A}?dryRun=All"), "", "200 status=Success").await;
    server.check(A, "{dryRun: [All]}", "200 status=Success").await;
    server.check(GET, "", "200 metadata.resourceVersion=2").await;
    let held = with("{metadata: {name: a, finalizers: [x/y]}}").await;
    let dry = held.check(&format!("{A}?dryRun=All"), "", "200 metadata.resourceVersion=2").await;
    assert!(!dry.at("metadata.deletionTimestamp").is_empty());
    held.check(GET, "", "200 metadata.deletionTimestamp=").await;
}

#[tokio::test]
async fn a_strategy_can_refuse_a_deletion() {
    let refused = "403 Forbidden: widgets.example.com \"eternal\" is forbidden: this widget may not \
                   be deleted";
    let server = with("{metadata: {name: eternal}}").await;
    server.check(&format!("DELETE {PATH}/eternal"), "", refused).await;
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let server = TestServer::start().await;
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red"), ("d", "red")] {
        let body = format!("{{metadata: {{name: {name}, labels: {{c: {color}}}}}}}");
        server.check(&format!("POST {PATH}"), &body, "201").await;
    }
    server.check("POST /v1/namespaces/other/widgets", "{metadata: {name: z}}", "201").await;
    let cases = [
        (
            "DELETE /v1/namespaces/ns/widgets?labelSelector=c%3Dred&dryRun=All",
            "",
            "200 names=a,c,d",
        ),
        ("GET /v1/namespaces/ns/widgets", "", "200 names=a,b,c,d"),
        (
            "DELETE /v1/namespaces/ns/widgets?labelSelector=c%3Dred",
            "",
            "200 kind=WidgetList names=a,c,d",
        ),
        ("GET /v1/namespaces/ns/widgets", "", "200 names=b"),
        ("DELETE /v1/namespaces/ns/widgets", "", "200 names=b"),
        ("GET /v1/widgets", "", "200 names=z"),
    ];
    server.check_all(&cases).await;
}

#[tokio::test]
async fn what_cannot_be_read_is_deleted_only_when_that_is_said() {
    let server = TestServer::start().await;
    server.write_raw("widgets", "a", "no JSON").await;
    assert_eq!(server.send(A, "").await.code, 500);
    let ignoring = format!("{A}?ignoreStoreReadErrorWithClusterBreakingPotential=true");
    server.check(&ignoring, "", "200 status=Success").await;
    server.check(GET, "", GONE).await;
    server.check(&format!("POST {PATH}"), "{metadata: {name: a}}", "201").await;
    let refused = server.send(&ignoring, "").await;
    assert_eq!(refused.code, 422, "{:?}", refused.body);
}

#[tokio::test]
async fn a_deletion_whose_answer_is_lost_is_an_error_and_not_a_404() {
    let server = server().await;
    server.backend.fail_next_write(crate::testing::WriteFault::AnswerLost);
    server.check(A, "", "500 : request timed out").await;
    server.check(GET, "", GONE).await;
}
