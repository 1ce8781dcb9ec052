use crate::testing::TestServer;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[tokio::test]
async fn long_requests_are_recognized_by_their_sizes() {
    let server = TestServer::start().await;
    let (small, large) = ("x".repeat(1 << 10), "x".repeat(40 << 10));
    let huge = "x".repeat(80 << 10);
    let widget = |name: &str, note: &str| {
        format!("{{metadata: {{name: {name}, annotations: {{note: {note}}}}}}}")
    };
    let items = "/v1/namespaces/ns/widgets";
    for (name, note) in [("small", &small), ("large", &large), ("huge", &huge)] {
        server.check(&format!("POST {items}"), &widget(name, note), "201").await;
    }
    // A consistent list: the cache has them now.
    server.check("GET /v1/widgets", "", "200 names=huge,large,small").await;
    let cases = [
        ("POST", "", "", &small, false),
        ("POST", "", "", &large, true),
        ("PUT", "/small", "", &small, false),
        ("MERGE-PATCH", "/small", "", &small, false),
        // What is read to be changed counts as well.
        ("MERGE-PATCH", "/large", "", &small, true),
        ("DELETE", "/large", "", &small, true),
        ("DELETE", "", "", &small, true),
        // YAML takes longer.
        ("APPLY", "/small", "", &small, false),
        ("APPLY", "/small", "", &"x".repeat(4 << 10), true),
        ("GET", "/large", "application/json", &small, false),
        ("GET", "/large", "application/yaml", &small, true),
        // Made once and kept with the object.
        ("GET", "/large", PROTOBUF, &small, false),
        ("GET", "/huge", PROTOBUF, &small, true),
        ("GET", "/small", PROTOBUF, &small, false),
        ("GET", "", PROTOBUF, &small, false),
        ("WATCH", "", PROTOBUF, &large, false),
    ];
    for (method, name, accept, note, expected) in cases {
        let line = format!("{method} {items}{name}");
        let costly = server.is_costly(accept, &line, &widget("small", note));
        assert_eq!(costly, expected, "{line} {accept} {}", note.len());
    }
}

#[tokio::test]
async fn a_list_is_long_where_its_items_have_to_be_made() {
    let server = TestServer::start().await;
    for at in 0..=super::LIST_ITEMS {
        let body = format!("{{metadata: {{name: w{at}}}}}");
        server.check("POST /v1/namespaces/ns/widgets", &body, "201").await;
    }
    // A consistent list: the cache has them now.
    server.check("GET /v1/widgets", "", "200").await;
    let cases = [
        ("application/json", "/v1/widgets", false),
        ("application/json, */*", "/v1/widgets", false),
        ("", "/v1/widgets", false),
        ("application/json", "/v1/widgets?pretty=1", true),
        ("application/yaml", "/v1/widgets", true),
        ("application/vnd.kubernetes.protobuf", "/v1/widgets", true),
        ("application/vnd.kubernetes.protobuf", "/v1/widgets?limit=10", false),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", "/v1/widgets", true),
        // Another version than the stored one.
        ("application/json", "/v2/widgets", true),
    ];
    for (accept, path, expected) in cases {
        assert_eq!(
            server.is_costly(accept, &format!("GET {path}"), ""),
            expected,
            "{accept} {path}"
        );
    }
}
