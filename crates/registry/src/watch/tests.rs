use crate::testing::TestServer;

const PATH: &str = "/v1/namespaces/ns/widgets";

/// Widgets a and b in `ns`, at revisions 2 and 3.
async fn server() -> TestServer {
    let server = TestServer::start().await;
    for name in ["a", "b"] {
        create(&server, name, "red").await;
    }
    server
}

async fn create(server: &TestServer, name: &str, color: &str) {
    let body =
        format!("{{metadata: {{name: {name}, labels: {{c: {color}}}}}, spec: {{color: {color}}}}}");
    server.check(&format!("POST {PATH}"), &body, "201").await;
}

async fn paint(server: &TestServer, name: &str, color: &str) {
    let body = format!("{{metadata: {{labels: {{c: {color}}}}}, spec: {{color: {color}}}}}");
    server.check(&format!("MERGE-PATCH {PATH}/{name}"), &body, "200").await;
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_the_state() {
    let server = server().await;
    let mut watch = server.watch(PATH).await.unwrap();
    watch.check(&["ADDED a 2", "ADDED b 3"]).await;
    create(&server, "c", "red").await;
    paint(&server, "a", "blue").await;
    server.check(&format!("DELETE {PATH}/b"), "", "200").await;
    watch.check(&["ADDED c 4", "MODIFIED a 5", "DELETED b 6"]).await;
}

#[tokio::test]
async fn a_watch_goes_on_behind_its_version() {
    let server = server().await;
    paint(&server, "a", "blue").await;
    let mut watch = server.watch(&format!("{PATH}?resourceVersion=2")).await.unwrap();
    watch.check(&["ADDED b 3", "MODIFIED a 4"]).await;
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark_for_clients_that_know_bookmarks() {
    let server = server().await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let path = format!("{PATH}?{query}&allowWatchBookmarks=true");
    let mut watch = server.watch(&path).await.unwrap();
    watch.check(&["ADDED a 2", "ADDED b 3"]).await;
    let bookmark = watch.next_event().await.unwrap();
    assert_eq!(bookmark.str_at(&["type"]), "BOOKMARK");
    let end = ["object", "metadata", "annotations", "k8s.io/initial-events-end"];
    assert_eq!(bookmark.str_at(&end), "true");
    assert_eq!(bookmark.str_at(&["object", "metadata", "resourceVersion"]), "3");
    let mut without = server.watch(&format!("{PATH}?{query}")).await.unwrap();
    create(&server, "c", "red").await;
    without.check(&["ADDED a 2", "ADDED b 3", "ADDED c 4"]).await;
}

#[tokio::test]
async fn a_watch_without_initial_events_begins_with_what_comes_next() {
    let server = server().await;
    let query = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut watch = server.watch(&format!("{PATH}?{query}")).await.unwrap();
    create(&server, "c", "red").await;
    watch.check(&["ADDED c 4"]).await;
}

#[tokio::test]
async fn what_stops_matching_a_selector_is_deleted_for_its_watcher() {
    let server = server().await;
    for query in ["labelSelector=c%3Dblue", "fieldSelector=spec.color%3Dblue"] {
        let from = server.revision().await;
        let path = format!("{PATH}?resourceVersion={from}&{query}");
        let mut watch = server.watch(&path).await.unwrap();
        paint(&server, "a", "blue").await;
        paint(&server, "b", "green").await;
        paint(&server, "a", "red").await;
        let (added, deleted) = (from + 1, from + 3);
        watch.check(&[&format!("ADDED a {added}"), &format!("DELETED a {deleted}")]).await;
        paint(&server, "b", "red").await;
    }
}

#[tokio::test]
async fn a_watch_of_one_object_hears_of_no_other() {
    let server = server().await;
    let path = format!("{PATH}?resourceVersion=3&fieldSelector=metadata.name%3Db");
    let mut watch = server.watch(&path).await.unwrap();
    paint(&server, "a", "blue").await;
    paint(&server, "b", "blue").await;
    watch.check(&["MODIFIED b 5"]).await;
}

/// Every kubelet's watch of its pods looked at all pods of the cluster: 5 000 times 150 000 when they start.
#[tokio::test]
async fn a_watch_of_a_name_or_an_indexed_field_begins_without_a_search() {
    let server = server().await;
    create(&server, "c", "blue").await;
    let elsewhere = "{metadata: {name: z}, spec: {color: blue}}";
    server.check("POST /v1/namespaces/other/widgets", elsewhere, "201").await;
    let looked_at = || {
        let counter = &server.storage("widgets").cache.read_metrics().initial_events;
        counter.load(std::sync::atomic::Ordering::Relaxed)
    };
    let cases: [(&str, &[&str], u64); 6] = [
        ("fieldSelector=metadata.name%3Db", &["ADDED b 3"], 1),
        ("fieldSelector=metadata.name%3Dx", &[], 0),
        ("fieldSelector=spec.color%3Dblue", &["ADDED c 4"], 1),
        ("fieldSelector=spec.color%3Dred,metadata.name%3Dc", &[], 1),
        ("fieldSelector=spec.color%3Dred&labelSelector=c%3Dblue", &[], 2),
        ("fieldSelector=spec.color!%3Dred", &["ADDED c 4"], 3),
    ];
    for (query, initial, expected) in cases {
        let before = looked_at();
        let path = format!(
            "{PATH}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&{query}"
        );
        let mut watch = server.watch(&path).await.unwrap();
        watch.check(initial).await;
        let end = watch.next_event().await.unwrap();
        assert_eq!(end.str_at(&["type"]), "BOOKMARK", "{query}");
        assert_eq!(looked_at() - before, expected, "{query}");
    }
}

#[tokio::test]
async fn a_watch_of_a_namespace_hears_of_no_other() {
    let server = server().await;
    let mut watch = server.watch(&format!("{PATH}?resourceVersion=3")).await.unwrap();
    server.check("POST /v1/namespaces/other/widgets", "{metadata: {name: z}}", "201").await;
    create(&server, "c", "red").await;
    watch.check(&["ADDED c 5"]).await;
}

#[tokio::test]
async fn a_watch_shows_the_version_that_is_asked_for() {
    let server = server().await;
    let mut watch = server.watch("/v2/namespaces/ns/widgets").await.unwrap();
    let event = watch.next_event().await.unwrap();
    assert_eq!(event.str_at(&["object", "apiVersion"]), "example.com/v2");
    assert_eq!(event.str_at(&["object", "spec", "colour"]), "red");
}

#[tokio::test]
async fn a_watch_ends_after_its_timeout() {
    let server = server().await;
    let path = format!("{PATH}?resourceVersion=3&timeoutSeconds=1");
    let mut watch = server.watch(&path).await.unwrap();
    watch.check(&["end"]).await;
}

#[tokio::test]
async fn a_watch_from_before_the_history_gets_an_expired_error() {
    let server = server().await;
    store::Backend::compact(&*server.backend, 3).await.unwrap();
    // A cache that starts now has no history.
    let again = server.restarted().await;
    let mut watch = again.watch(&format!("{PATH}?resourceVersion=2")).await.unwrap();
    watch.check(&["ERROR 410 too old resource version: 2 (3)", "end"]).await;
}

#[tokio::test]
async fn a_bad_version_is_an_error_and_not_a_stream() {
    let error = server().await.watch(&format!("{PATH}?resourceVersion=x")).await.err().unwrap();
    assert_eq!(error.status().code, 500);
}
