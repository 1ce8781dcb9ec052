use crate::testing::TestServer;

const LIST: &str = "GET /v1/namespaces/ns/widgets";

/// Widgets a (red), b (blue), c (red) in `ns`, z in `other`.
async fn server() -> TestServer {
    let server = TestServer::start().await;
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        let body = format!(
            "{{metadata: {{name: {name}, labels: {{c: {color}}}}}, spec: {{color: {color}}}}}"
        );
        server.check("POST /v1/namespaces/ns/widgets", &body, "201").await;
    }
    server.check("POST /v1/namespaces/other/widgets", "{metadata: {name: z}}", "201").await;
    server
}

#[tokio::test]
async fn a_list_is_of_a_namespace_or_of_all() {
    let server = server().await;
    let revision = server.revision().await;
    let expected = format!(
        "200 kind=WidgetList names=a,b,c metadata.resourceVersion={revision} items.0.kind="
    );
    server.check(LIST, "", &expected).await;
    server.check("GET /v1/widgets", "", "200 names=a,b,c,z").await;
    server.check("GET /v1/gadgets", "", "200 kind=GadgetList items=[]").await;
    server.check("GET /v2/widgets", "", "200 names=a,b,c,z items.1.spec.colour=blue").await;
}

#[tokio::test]
async fn selectors_choose_by_labels_and_fields() {
    let server = server().await;
    let cases = [
        ("labelSelector=c%3Dred", "200 names=a,c"),
        ("labelSelector=c+notin+(red)", "200 names=b"),
        ("labelSelector=!c", "200 names="),
        ("fieldSelector=metadata.name%3Db", "200 names=b"),
        ("fieldSelector=metadata.name!%3Db", "200 names=a,c"),
        ("fieldSelector=spec.color%3Dred", "200 names=a,c"),
        ("fieldSelector=spec.color%3Dred,metadata.name%3Dc", "200 names=c"),
        (
            "fieldSelector=spec.size%3D1",
            "400 BadRequest: \"spec.size\" is not a known field selector: only \"metadata.name\", \
             \"metadata.namespace\"",
        ),
        (
            "labelSelector=,",
            "400 BadRequest: found ',', expected: !, identifier, or 'end of string'",
        ),
    ];
    for (query, expected) in cases {
        server.check(&format!("{LIST}?{query}"), "", expected).await;
    }
    let line = "GET /v2/namespaces/ns/widgets?fieldSelector=spec.colour%3Dblue";
    server.check(line, "", "200 names=b").await;
}

#[tokio::test]
async fn pages_show_the_state_of_the_first_one() {
    let server = server().await;
    let first = server.check(&format!("{LIST}?limit=2"), "", "200 names=a,b").await;
    assert_eq!(first.at("metadata.remainingItemCount"), "1");
    let token = first.at("metadata.continue");
    server.check("DELETE /v1/namespaces/ns/widgets/c", "", "200").await;
    let line = format!("{LIST}?limit=2&continue={token}");
    let revision = first.at("metadata.resourceVersion");
    let expected = format!("200 names=c metadata.continue= metadata.resourceVersion={revision}");
    server.check(&line, "", &expected).await;
    let with_version = format!("{line}&resourceVersion=1");
    let refused = "400 BadRequest: specifying resource version is not allowed when using continue";
    server.check(&with_version, "", refused).await;
}

#[tokio::test]
async fn a_page_that_ends_with_the_list_has_no_token() {
    let server = server().await;
    let expected = "200 names=a,b,c metadata.continue= metadata.remainingItemCount=";
    server.check(&format!("{LIST}?limit=3"), "", expected).await;
    // A selector hides how many there are.
    let selected = format!("{LIST}?limit=1&labelSelector=c");
    server.check(&selected, "", "200 names=a metadata.remainingItemCount=").await;
}

#[tokio::test]
async fn a_list_from_any_cached_state_ignores_the_limit() {
    let server = server().await;
    // Brings the cache up to date.
    server.check(LIST, "", "200 names=a,b,c").await;
    let line = format!("{LIST}?limit=1&resourceVersion=0");
    server.check(&line, "", "200 names=a,b,c metadata.continue=").await;
}

#[tokio::test]
async fn a_resource_version_is_a_lower_bound_unless_it_is_exact() {
    let server = server().await;
    let before = server.revision().await;
    server.check("DELETE /v1/namespaces/ns/widgets/b", "", "200").await;
    let cases = [
        ("resourceVersionMatch=NotOlderThan", "200 names=a,c"),
        ("resourceVersionMatch=Exact", "200 names=a,b,c"),
        // Compat: with a limit the version has always been exact.
        ("limit=9", "200 names=a,b,c"),
        ("", "200 names=a,c"),
    ];
    for (query, expected) in cases {
        let line = format!("{LIST}?resourceVersion={before}&{query}");
        server.check(&line, "", expected).await;
    }
}

#[tokio::test]
async fn a_bad_token_or_version_is_a_bad_request() {
    let server = server().await;
    let cases = [
        (
            "continue=x",
            "400 BadRequest: invalid continue token: continue key is not valid: illegal base64 \
             data at input byte 0",
        ),
        (
            "resourceVersion=x",
            "400 BadRequest: invalid resource version: resourceVersion: Invalid value: \"x\": \
             strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
    ];
    for (query, expected) in cases {
        server.check(&format!("{LIST}?{query}"), "", expected).await;
    }
}

#[tokio::test]
async fn a_list_comes_as_a_table_or_as_metadata() {
    let server = server().await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let answer = server.send_accepting(table, LIST, "").await;
    answer.check(LIST, r#"200 kind=Table rows.1.cells=["b","blue"] rows.2.object.metadata.name=c"#);
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let answer = server.send_accepting(metadata, LIST, "").await;
    answer.check(LIST, "200 kind=PartialObjectMetadataList names=a,b,c items.0.spec=");
}

#[tokio::test]
async fn an_object_that_cannot_be_read_fails_the_lists_it_would_be_in() {
    let server = server().await;
    server.write_raw("widgets", "bad", "no JSON").await;
    let answer = server.send(LIST, "").await;
    assert_eq!((answer.code, answer.at("reason").as_str()), (500, "StorageReadError"));
    server.check("GET /v1/namespaces/other/widgets", "", "200 names=z").await;
    server.check("GET /v1/namespaces/ns/widgets/a", "", "200 metadata.name=a").await;
}
