//! The HTTP protocol: encodings, headers, pages and watch frames.

use bytes::Bytes;
use http::{Method, Request};
use integration::{Answer, Http, Protocol, shared};
use serde_json::{Value, json};

/// A fresh namespace with `count` ConfigMaps `cm-00`, `cm-01`, …; returns the path of its ConfigMaps.
fn filled(purpose: &str, count: usize) -> (integration::Shared, Http, String) {
    let server = shared();
    let path = format!("/api/v1/namespaces/{}/configmaps", server.namespace(purpose));
    let http = server.http();
    for n in 0..count {
        let object = json!({"metadata": {"name": format!("cm-{n:02}"), "labels": {"test": "yes"}}, "data": {"n": n.to_string()}});
        http.post(&path, &object).expect(201);
    }
    (server, http, path)
}

fn get_as(http: &Http, path: &str, accept: &str) -> Answer {
    let request = Request::get(path).header("accept", accept).body(Bytes::new());
    http.request(request.expect("a valid request"))
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("a list has items");
    items.iter().filter_map(|object| object["metadata"]["name"].as_str()).collect()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("no {pointer} in {value}"))
}

#[test]
fn both_protocols_answer_with_the_same_bytes() {
    let (_server, http, path) = filled("protocols", 3);
    let one = format!("{path}/cm-01");
    let over_http2 = http.clone().over(Protocol::Http2);
    assert_eq!(http.get(&one).body, over_http2.get(&one).body);
    let answer = http.get(&one);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-cache, private"));
    has_headers(&answer, &["audit-id", "date"]);
    let body = answer.text();
    assert!(
        body.starts_with(
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cm-01","namespace":"#
        ),
        "{body}"
    );
    assert!(body.ends_with("}\n"));
}

#[test]
fn a_head_has_no_body_over_either_protocol() {
    let server = shared();
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let http = server.http().over(protocol);
        let length = http.get("/apis/batch").body.len().to_string();
        let head = http.send(Method::HEAD, "/apis/batch", None, Bytes::new());
        assert_eq!((head.code, head.body.len()), (200, 0), "{protocol:?}");
        assert_eq!(head.header("content-length"), Some(length.as_str()), "{protocol:?}");
    }
}

#[test]
fn an_expectation_other_than_to_continue_is_refused() {
    let server = shared();
    let cases = [
        ("100-continue", "HTTP/1.1 200 OK"),
        ("a, 100-Continue", "HTTP/1.1 200 OK"),
        ("", "HTTP/1.1 200 OK"),
        ("200-ok", "HTTP/1.1 417 Expectation Failed"),
        ("100-continued", "HTTP/1.1 417 Expectation Failed"),
    ];
    for (expectation, expected) in cases {
        let mut connection = server.http().raw().expect("connected");
        let request = format!(
            "GET /version HTTP/1.1\r\nHost: localhost\r\nExpect: {expectation}\r\nConnection: close\r\n\r\n"
        );
        connection.write(request.as_bytes()).expect("written");
        let answer = connection.read_until(|_| false).expect("closed");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with(expected), "{expectation}: {answer}");
        let refused = expected.contains("417");
        assert_eq!(answer.contains("Content-Length: 0\r\n"), refused, "{answer}");
        assert_eq!(answer.contains("Audit-Id: "), !refused, "{answer}");
    }
}

fn has_headers(answer: &Answer, headers: &[&str]) {
    for header in headers {
        let value = answer.header(header);
        assert!(value.is_some_and(|value| !value.is_empty()), "{header} is missing");
    }
}

#[test]
fn responses_have_flow_schema_and_priority_level_headers() {
    let (_server, http, path) = filled("flow", 1);
    let headers = ["x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"];
    has_headers(&http.get(&path), &headers);
}

#[test]
fn lists_carry_a_version_and_bare_items() {
    let (_server, http, path) = filled("list", 2);
    let list = http.get(&format!("{path}?labelSelector=test%3Dyes")).expect(200);
    assert_eq!((text(&list, "/kind"), text(&list, "/apiVersion")), ("ConfigMapList", "v1"));
    assert!(
        text(&list, "/metadata/resourceVersion").parse::<u64>().is_ok_and(|version| version > 0)
    );
    assert_eq!(names(&list), ["cm-00", "cm-01"]);
    assert!(
        list["items"][0].get("kind").is_none(),
        "items of a built-in list have no kind of their own"
    );
}

#[test]
fn pages_add_up_to_one_consistent_list() {
    let (_server, http, path) = filled("pages", 7);
    let query = format!("{path}?labelSelector=&limit=3");
    let first = http.get(&format!("{path}?limit=3")).expect(200);
    assert_eq!(names(&http.get(&query).expect(200)).len(), 3);
    let version = text(&first, "/metadata/resourceVersion").to_owned();
    let total =
        3 + first["metadata"]["remainingItemCount"].as_u64().expect("it says how many are left");

    // What is written in between does not show up in the pages that follow.
    http.post(&path, &json!({"metadata": {"name": "cm-99"}})).expect(201);
    let mut seen: Vec<String> = names(&first).into_iter().map(str::to_owned).collect();
    let mut token = text(&first, "/metadata/continue").to_owned();
    loop {
        let page = http.get(&format!("{path}?limit=3&continue={token}")).expect(200);
        assert_eq!(text(&page, "/metadata/resourceVersion"), version);
        seen.extend(names(&page).into_iter().map(str::to_owned));
        match page["metadata"]["continue"].as_str() {
            Some(next) => next.clone_into(&mut token),
            None => break,
        }
    }
    assert_eq!(seen.len() as u64, total);
    assert!(seen.is_sorted() && !seen.contains(&"cm-99".to_owned()), "{seen:?}");
}

#[test]
fn a_watch_goes_on_from_where_it_was_asked_to() {
    let (_server, http, path) = filled("watch", 1);
    let version = text(&http.get(&path).expect(200), "/metadata/resourceVersion").to_owned();
    let created = http.post(&path, &json!({"metadata": {"name": "x"}})).expect(201);
    let merge = "application/merge-patch+json";
    http.patch(&format!("{path}/x"), merge, &json!({"data": {"a": "b"}})).expect(200);
    http.delete(&format!("{path}/x")).expect(200);

    for protocol in [Protocol::Http1, Protocol::Http2] {
        let http = http.clone().over(protocol);
        let mut watch = http.stream(&format!(
            "{path}?watch=true&resourceVersion={version}&fieldSelector=metadata.name%3Dx"
        ));
        assert_eq!(watch.code, 200);
        let added = watch.expect("ADDED");
        assert_eq!(added["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
        assert_eq!((text(&added, "/kind"), text(&added, "/apiVersion")), ("ConfigMap", "v1"));
        let modified = watch.expect("MODIFIED");
        assert_eq!(modified["data"], json!({"a": "b"}));
        let deleted = watch.expect("DELETED");
        assert_eq!(deleted["data"], json!({"a": "b"}), "the last state comes with the end");
        assert_ne!(deleted["metadata"]["resourceVersion"], modified["metadata"]["resourceVersion"]);

        // And from the middle: a client that comes back with the last version it saw.
        let from = text(&modified, "/metadata/resourceVersion");
        let mut watch = http.stream(&format!(
            "{path}?watch=true&resourceVersion={from}&fieldSelector=metadata.name%3Dx"
        ));
        assert_eq!(watch.expect("DELETED"), deleted);
    }
}

#[test]
fn a_streamed_list_ends_with_a_bookmark() {
    let (_server, http, path) = filled("watch-list", 3);
    let mut watch = http.stream(&format!("{path}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=test"));
    for name in ["cm-00", "cm-01", "cm-02"] {
        assert_eq!(text(&watch.expect("ADDED"), "/metadata/name"), name);
    }
    let bookmark = watch.expect("BOOKMARK");
    assert_eq!(text(&bookmark, "/metadata/annotations/k8s.io~1initial-events-end"), "true");
    assert_eq!(text(&bookmark, "/kind"), "ConfigMap");
    http.post(&path, &json!({"metadata": {"name": "later", "labels": {"test": "yes"}}}))
        .expect(201);
    assert_eq!(text(&watch.expect("ADDED"), "/metadata/name"), "later");
}

#[test]
fn a_watch_ends_when_its_time_is_over() {
    let (_server, http, path) = filled("watch-timeout", 1);
    let version = text(&http.get(&path).expect(200), "/metadata/resourceVersion").to_owned();
    // Controllers may still be furnishing the namespace; their objects are not the test's.
    let query = format!("watch=true&timeoutSeconds=1&resourceVersion={version}&labelSelector=test");
    let mut watch = http.stream(&format!("{path}?{query}"));
    assert_eq!(watch.next_event(), None);
}

#[test]
fn a_list_from_the_future_times_out() {
    let (_server, http, path) = filled("future", 0);
    let answer = http.get(&format!("{path}?resourceVersion=99999999"));
    let status = answer.expect(504);
    assert_eq!(text(&status, "/reason"), "Timeout");
    assert!(
        text(&status, "/message")
            .starts_with("Timeout: Too large resource version: 99999999, current: ")
    );
    assert_eq!(text(&status, "/details/causes/0/reason"), "ResourceVersionTooLarge");
    assert_eq!(answer.header("retry-after"), Some("1"));
}

#[test]
fn objects_come_in_other_shapes() {
    let (_server, http, path) = filled("shapes", 2);
    let table = get_as(
        &http,
        &format!("{path}?labelSelector=test"),
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    )
    .expect(200);
    assert_eq!((text(&table, "/kind"), text(&table, "/apiVersion")), ("Table", "meta.k8s.io/v1"));
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .expect("columns")
        .iter()
        .filter_map(|column| column["name"].as_str())
        .collect();
    assert_eq!(columns, ["Name", "Data", "Age"]);
    assert_eq!(table["rows"][1]["cells"][0], "cm-01");
    assert_eq!(table["rows"][1]["cells"][1], 1);
    assert_eq!(text(&table, "/rows/1/object/kind"), "PartialObjectMetadata");

    let metadata = get_as(
        &http,
        &format!("{path}/cm-00"),
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    )
    .expect(200);
    assert_eq!(text(&metadata, "/kind"), "PartialObjectMetadata");
    assert_eq!((text(&metadata, "/metadata/labels/test"), metadata.get("data")), ("yes", None));
    let list = get_as(
        &http,
        &format!("{path}?labelSelector=test"),
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    )
    .expect(200);
    assert_eq!(text(&list, "/kind"), "PartialObjectMetadataList");
    assert_eq!(names(&list), ["cm-00", "cm-01"]);

    let yaml = get_as(&http, &format!("{path}/cm-00"), "application/yaml");
    assert_eq!(yaml.header("content-type"), Some("application/yaml"));
    assert!(
        yaml.text()
            .starts_with("apiVersion: v1\ndata:\n  \"n\": \"0\"\nkind: ConfigMap\nmetadata:\n"),
        "{}",
        yaml.text()
    );

    let protobuf = get_as(
        &http,
        &format!("{path}/cm-00"),
        "application/vnd.kubernetes.protobuf, application/json",
    );
    assert_eq!(protobuf.header("content-type"), Some("application/vnd.kubernetes.protobuf"));
    assert!(protobuf.body.starts_with(b"k8s\0\n\x0f\n\x02v1\x12\tConfigMap"));

    let pretty = http.get(&format!("{path}/cm-00?pretty=true")).text();
    assert!(
        pretty.starts_with("{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\",\n"),
        "{pretty}"
    );
}

#[test]
fn what_one_encoding_writes_another_reads() {
    let (_server, http, path) = filled("encodings", 0);
    // runtime.Unknown { typeMeta: 1, raw: 2 } around ConfigMap { metadata: 1, data: 2 }.
    let entry = [field(1, b"a"), field(2, b"b")].concat();
    let object = [field(1, &field(1, b"from-protobuf")), field(2, &entry)].concat();
    let kind = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    let wire = [b"k8s\0".to_vec(), field(1, &kind), field(2, &object)].concat();
    let created = http
        .send(Method::POST, &path, Some("application/vnd.kubernetes.protobuf"), wire)
        .expect(201);
    assert_eq!(
        (text(&created, "/metadata/name"), &created["data"]),
        ("from-protobuf", &json!({"a": "b"}))
    );

    let yaml = "metadata:\n  name: from-yaml\ndata:\n  \"yes\": 'on'\n  multi: |\n    a\n    b\n";
    let created = http.send(Method::POST, &path, Some("application/yaml"), yaml).expect(201);
    assert_eq!(created["data"], json!({"yes": "on", "multi": "a\nb\n"}));
}

/// A length-delimited protobuf field of less than 128 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).expect("short fields only");
    [&[number << 3 | 2, length], bytes].concat()
}

#[test]
fn large_answers_are_compressed_on_request() {
    let (_server, http, path) = filled("gzip", 0);
    let object = json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(200_000)}});
    http.post(&path, &object).expect(201);
    let get = |accept_encoding: &str| {
        let request =
            Request::get(format!("{path}/large")).header("accept-encoding", accept_encoding);
        http.request(request.body(Bytes::new()).expect("a valid request"))
    };
    let packed = get("gzip");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert_eq!(packed.header("vary"), Some("Accept-Encoding"));
    assert!(packed.body.starts_with(b"\x1f\x8b") && packed.body.len() < 20_000);
    let plain = get("identity");
    assert_eq!((plain.header("content-encoding"), plain.body.len() > 200_000), (None, true));
}

#[test]
fn a_generated_name_is_a_prefix_and_five_characters() {
    let (_server, http, path) = filled("generate", 0);
    let created = http.post(&path, &json!({"metadata": {"generateName": "cm-"}})).expect(201);
    let name = text(&created, "/metadata/name");
    let suffix = name.strip_prefix("cm-").expect("the prefix is kept");
    let alphabet = "bcdfghjklmnpqrstvwxz2456789";
    assert!(suffix.len() == 5 && suffix.chars().all(|letter| alphabet.contains(letter)), "{name}");
}

#[test]
fn a_dry_run_leaves_nothing_behind() {
    let (_server, http, path) = filled("dry-run", 1);
    let object = json!({"metadata": {"name": "x"}});
    let created = http.post(&format!("{path}?dryRun=All"), &object).expect(201);
    assert!(
        created["metadata"]["uid"].is_string() && created["metadata"]["resourceVersion"].is_null()
    );
    assert_eq!(http.get(&format!("{path}/x")).code, 404);
    http.delete(&format!("{path}/cm-00?dryRun=All")).expect(200);
    assert_eq!(http.get(&format!("{path}/cm-00")).code, 200);
}

#[test]
fn deletion_says_what_was_deleted() {
    let (_server, http, path) = filled("deletion", 4);
    let uid = http.get(&format!("{path}/cm-00")).expect(200)["metadata"]["uid"].clone();
    let status = http.delete(&format!("{path}/cm-00")).expect(200);
    assert_eq!(text(&status, "/status"), "Success");
    assert_eq!(status["details"], json!({"name": "cm-00", "kind": "configmaps", "uid": uid}));
    let list = http
        .delete(&format!("{path}?labelSelector=test&fieldSelector=metadata.name!%3Dcm-02"))
        .expect(200);
    assert_eq!((text(&list, "/kind"), names(&list)), ("ConfigMapList", vec!["cm-01", "cm-03"]));
    assert_eq!(http.get(&format!("{path}/cm-02")).code, 200);
}

#[test]
fn discovery_comes_in_one_piece_on_request() {
    let server = shared();
    let http = server.http();
    let accept =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let answer = get_as(&http, "/apis", accept);
    let list = answer.expect(200);
    assert_eq!(text(&list, "/kind"), "APIGroupDiscoveryList");
    assert_eq!(
        answer.header("content-type"),
        Some("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
    );
    let etag = answer.header("etag").expect("it can be cached").to_owned();
    let request = Request::get("/apis").header("accept", accept).header("if-none-match", etag);
    let again = http.request(request.body(Bytes::new()).expect("a valid request"));
    assert_eq!((again.code, again.body.len()), (304, 0));

    let groups = http.get("/apis").expect(200);
    assert_eq!(text(&groups, "/kind"), "APIGroupList");
    let resources = http.get("/apis/apps/v1").expect(200);
    assert_eq!(
        (text(&resources, "/kind"), text(&resources, "/groupVersion")),
        ("APIResourceList", "apps/v1")
    );
}
