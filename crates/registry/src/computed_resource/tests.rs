use crate::testing::TestServer;

#[tokio::test]
async fn a_computed_object_comes_back_with_its_answer_and_is_not_stored() {
    let server = TestServer::start().await;
    let cases = [
        ("POST /v1/sums", "{spec: {a: 1, b: 2}}", "201 kind=Sum status.total=3"),
        (
            "POST /v1/sums",
            "{metadata: {name: s}, spec: {b: 2}}",
            "422 Invalid: Sum.example.com \"\" is invalid: spec.a: Required value",
        ),
    ];
    server.check_all(&cases).await;
    assert_eq!(server.revision().await, 1);
}

#[tokio::test]
async fn computed_objects_are_read_by_name_and_listed() {
    let server = TestServer::start().await;
    let cases = [
        ("GET /v1/sums", "", "200 kind=SumList names=one,two metadata.resourceVersion="),
        ("GET /v1/sums?fieldSelector=metadata.name%3Dtwo", "", "200 names=two"),
        ("GET /v1/sums/two", "", "200 kind=Sum status.total=2"),
        ("GET /v1/sums/three", "", r#"404 NotFound: sum.example.com "three" not found"#),
    ];
    server.check_all(&cases).await;
}

#[tokio::test]
async fn a_computed_resource_has_no_other_verbs() {
    let server = TestServer::start().await;
    for line in ["DELETE /v1/sums/one", "PUT /v1/sums/one", "MERGE-PATCH /v1/sums/one"] {
        assert_eq!(server.send(line, "{}").await.code, 405, "{line}");
    }
}
