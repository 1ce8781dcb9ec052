use crate::testing::TestServer;

const A: &str = "GET /v1/namespaces/ns/widgets/a";

async fn server() -> TestServer {
    let server = TestServer::start().await;
    let body = "{metadata: {name: a}, spec: {color: red}}";
    server.check("POST /v1/namespaces/ns/widgets", body, "201").await;
    server
}

#[tokio::test]
async fn an_object_is_found_by_its_name_in_its_namespace() {
    let cases = [
        (A, "", "200 kind=Widget apiVersion=example.com/v1 metadata.name=a spec.color=red"),
        (
            "GET /v1/namespaces/other/widgets/a",
            "",
            r#"404 NotFound: widgets.example.com "a" not found"#,
        ),
        (
            "GET /v1/namespaces/ns/widgets/..",
            "",
            r#"400 BadRequest: Name parameter invalid: "..": may not be '..'"#,
        ),
    ];
    server().await.check_all(&cases).await;
}

#[tokio::test]
async fn another_served_version_shows_the_object_converted() {
    let line = "GET /v2/namespaces/ns/widgets/a";
    let expected = "200 apiVersion=example.com/v2 spec.colour=red spec.color=";
    server().await.check(line, "", expected).await;
}

#[tokio::test]
async fn a_resource_version_is_a_lower_bound() {
    let server = server().await;
    let now = server.revision().await;
    server.check(&format!("{A}?resourceVersion={now}"), "", "200 metadata.name=a").await;
    server.check(&format!("{A}?resourceVersion=0"), "", "200 metadata.name=a").await;
    let bad = "500 : resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": \
               invalid syntax";
    server.check(&format!("{A}?resourceVersion=x"), "", bad).await;
}

#[tokio::test]
async fn an_object_comes_as_the_client_accepts_it() {
    let server = server().await;
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let answer = server.send_accepting(metadata, A, "").await;
    answer.check(A, "200 kind=PartialObjectMetadata metadata.name=a spec.color=");
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let answer = server.send_accepting(table, A, "").await;
    answer.check(A, r#"200 kind=Table rows.0.cells=["a","red"] columnDefinitions.1.name=Color"#);
    let yaml = server.send_accepting("application/yaml", A, "").await;
    assert!(yaml.body.starts_with(b"apiVersion: example.com/v1\n"), "{:?}", yaml.body);
    let list = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let refused = server.send_accepting(list, A, "").await;
    assert_eq!(refused.code, 406);
}
