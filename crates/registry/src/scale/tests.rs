use crate::testing::TestServer;

const SCALE: &str = "/v1/namespaces/ns/widgets/a/scale";

async fn server() -> TestServer {
    let server = TestServer::start().await;
    let body = "{metadata: {name: a}, spec: {replicas: 3, color: red}}";
    server.check("POST /v1/namespaces/ns/widgets", body, "201").await;
    server
}

#[tokio::test]
async fn a_scale_shows_the_replicas_of_its_object() {
    let server = server().await;
    let status = "PUT /v1/namespaces/ns/widgets/a/status";
    server.check(status, "{metadata: {name: a}, status: {replicas: 2}}", "200").await;
    let expected = "200 kind=Scale apiVersion=autoscaling/v1 metadata.name=a spec.replicas=3 \
                    status.replicas=2";
    server.check(&format!("GET {SCALE}"), "", expected).await;
}

#[tokio::test]
async fn a_put_of_a_scale_changes_the_replicas_and_nothing_else() {
    let server = server().await;
    let body = "{metadata: {name: a}, spec: {replicas: 5}}";
    server.check(&format!("PUT {SCALE}"), body, "200 kind=Scale spec.replicas=5").await;
    let expected = "200 spec.replicas=5 spec.color=red metadata.generation=2";
    server.check("GET /v1/namespaces/ns/widgets/a", "", expected).await;
}

#[tokio::test]
async fn a_scale_can_be_patched() {
    for (patch, body) in [
        ("MERGE-PATCH", "{spec: {replicas: 7}}"),
        ("STRATEGIC-PATCH", "{spec: {replicas: 7}}"),
        ("JSON-PATCH", "[{op: replace, path: /spec/replicas, value: 7}]"),
    ] {
        server().await.check(&format!("{patch} {SCALE}"), body, "200 spec.replicas=7").await;
    }
}

#[tokio::test]
async fn a_scale_is_checked() {
    let server = server().await;
    let cases = [
        (
            "{metadata: {name: a}, spec: {replicas: -1}}",
            "422 Invalid: Scale.autoscaling \"a\" is invalid: spec.replicas: Invalid value: -1: \
             must be greater than or equal to 0",
        ),
        (
            "{metadata: {name: a}, spec: {replicas: 101}}",
            "422 Invalid: Widget.example.com \"a\" is invalid: spec.replicas: Invalid value: 101: \
             must be at most 100",
        ),
        (
            "{metadata: {name: b}, spec: {replicas: 1}}",
            "400 BadRequest: the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            "{metadata: {name: a, resourceVersion: '9'}, spec: {replicas: 1}}",
            "409 Conflict: Operation cannot be fulfilled on widgets.example.com \"a\": the object \
             has been modified; please apply your changes to the latest version and try again",
        ),
    ];
    for (body, expected) in cases {
        server.check(&format!("PUT {SCALE}"), body, expected).await;
    }
}
