use crate::testing::TestServer;

const LAUNCH: &str = "POST /v1/namespaces/ns/widgets/a/launch";

async fn server() -> TestServer {
    let server = TestServer::start().await;
    let body = "{metadata: {name: a}, spec: {color: red}}";
    server.check("POST /v1/namespaces/ns/widgets", body, "201").await;
    server
}

#[tokio::test]
async fn an_action_answers_with_what_was_sent_to_it() {
    let expected = "201 kind=Launch apiVersion=example.com/v1 fuel=some launched=red";
    server().await.check(LAUNCH, "{}", expected).await;
}

#[tokio::test]
async fn an_action_can_delete_its_object_and_a_dry_run_does_not() {
    let server = server().await;
    let get = "GET /v1/namespaces/ns/widgets/a";
    let cases = [
        ("POST /v1/namespaces/ns/widgets/a/launch?dryRun=All", "{fuel: all}", "201 status=Success"),
        (get, "", "200 metadata.name=a"),
        (LAUNCH, "{fuel: all}", "201 status=Success"),
        (get, "", r#"404 NotFound: widgets.example.com "a" not found"#),
        (LAUNCH, "{}", r#"404 NotFound: widgets.example.com "a" not found"#),
    ];
    server.check_all(&cases).await;
}

#[tokio::test]
async fn an_action_takes_only_its_own_kinds_and_verbs() {
    let server = server().await;
    let other = "{kind: Gadget, apiVersion: example.com/v1}";
    assert_eq!(server.send(LAUNCH, other).await.code, 400);
    let elsewhere = "{metadata: {namespace: other}}";
    let refused = "400 BadRequest: the namespace of the provided object does not match the \
                   namespace sent on the request";
    server.check(LAUNCH, elsewhere, refused).await;
    let get = server.send("GET /v1/namespaces/ns/widgets/a/launch", "").await;
    assert_eq!(get.code, 405);
    let unknown = server.send("POST /v1/namespaces/ns/widgets/a/land", "{}").await;
    assert_eq!(unknown.code, 404);
}
