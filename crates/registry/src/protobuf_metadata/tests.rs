use std::sync::Arc;

use bytes::Bytes;
use codec::protobuf;
use meta::{Value, value};

use crate::{Kind, testing::TestServer};

const LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io";
const OBJECT: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io";
const WIDGETS: &str = "/v1/namespaces/ns/widgets";

/// Metadata of every sort; names are in the order of a list.
const METADATA: [(&str, &str); 6] = [
    ("plain", ""),
    ("labels", "labels: {a: b, c: d}, annotations: {x: <y&z>, z: 'line\nline', e: é, q: '\"\\'}"),
    (
        "owned",
        "ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u}, {apiVersion: v1, kind: Pod, name: q, uid: v}]",
    ),
    ("finalized", "finalizers: [example.com/a, example.com/b]"),
    ("generated", "generateName: gen-"),
    ("timed", "creationTimestamp: 2024-02-29T12:34:56Z, generation: 7"),
];

async fn server() -> TestServer {
    let server = TestServer::start().await;
    for (name, more) in METADATA {
        let body = format!("{{metadata: {{name: {name}, {more}}}, spec: {{color: red}}}}");
        server.check(&format!("POST {WIDGETS}"), &body, "201").await;
    }
    // Managed fields with keys of lists, an object that waits for its finalizers, and one of another writer.
    let apply = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"applied"},"spec":{"parts":[{"name":"a\"b","value":"x"}]}}"#;
    let line = format!("APPLY {WIDGETS}/applied?fieldManager=m");
    assert_eq!(server.send(&line, apply).await.code, 201);
    server.check(&format!("DELETE {WIDGETS}/finalized"), "", "200").await;
    let raw = r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"raw","namespace":"ns","uid":"u","labels":{"z":"1","a":"\u0062"},"unknown":{"a":[1]}},"spec":{}}"#;
    server.write_raw("widgets", "raw", raw).await;
    server
}

/// The same answer, made by decoding the JSON of the metadata.
fn slowly(server: &TestServer, object: &Value) -> Vec<u8> {
    let engine = server.engine();
    let (schema, ty, _) = engine.meta_type("PartialObjectMetadata").unwrap();
    protobuf::encode(object, engine.tables(), schema, ty).unwrap()
}

async fn listed_slowly(server: &TestServer, line: &str) -> (Value, Vec<Vec<u8>>) {
    let json = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = server.send_accepting(json, line, "").await.json();
    let items = list.items_at(&["items"]).iter().map(|item| slowly(server, item)).collect();
    (list, items)
}

/// The fields of a message: tags, and what is in them.
fn fields(mut message: &[u8]) -> Vec<(u8, &[u8])> {
    let mut fields = Vec::new();
    while let Some((key, rest)) = message.split_first() {
        assert_eq!(key & 7, 2, "a length follows");
        let (mut length, mut at) = (0, 0);
        loop {
            length |= usize::from(rest[at] & 0x7f) << (7 * at);
            at += 1;
            if rest[at - 1] < 0x80 {
                break;
            }
        }
        fields.push((key >> 3, &rest[at..at + length]));
        message = &rest[at + length..];
    }
    fields
}

fn items_of(list: &Bytes) -> Vec<Vec<u8>> {
    let raw = protobuf::Envelope::open(list).unwrap().raw;
    fields(raw).into_iter().filter(|(tag, _)| *tag == 2).map(|(_, item)| item.to_vec()).collect()
}

#[tokio::test]
async fn a_list_has_the_bytes_that_decoding_would_make() {
    let server = server().await;
    for version in ["v1", "v2"] {
        let line = format!("GET /{version}/namespaces/ns/widgets");
        let (json, expected) = listed_slowly(&server, &line).await;
        assert_eq!(expected.len(), METADATA.len() + 2);
        for beta in [false, true] {
            let meta = if beta { "v1beta1" } else { "v1" };
            let list = server.send_accepting(&format!("{LIST};v={meta}"), &line, "").await;
            let envelope = protobuf::Envelope::open(&list.body).unwrap();
            assert_eq!(envelope.api_version.as_str(), format!("meta.k8s.io/{meta}"));
            assert_eq!(envelope.kind.as_str(), "PartialObjectMetadataList");
            assert_eq!(items_of(&list.body), expected, "{line}");
            let revision = json.str_at(&["metadata", "resourceVersion"]);
            let (start, end) = (&b"\x0a\x00\x12"[..], &b"\x1a\x00"[..]);
            let head = [start, &[revision.len() as u8], revision.as_bytes(), end].concat();
            assert_eq!(fields(envelope.raw)[0], (1, &head[..]));
        }
    }
}

/// Objects whose own messages are in the cache lend their metadata.
#[tokio::test]
async fn a_list_is_the_same_after_the_objects_were_encoded() {
    let server = server().await;
    let line = format!("GET {WIDGETS}");
    let accept = format!("{LIST};v=v1");
    let before = server.send_accepting(&accept, &line, "").await;
    let entries: Vec<_> =
        server.storage("widgets").cache.snapshot().range("", None).cloned().collect();
    let cached = |expected: bool| {
        entries
            .iter()
            .all(|entry| entry.cached_encoding(crate::kind::SLOT_PROTOBUF).is_some() == expected)
    };
    assert!(cached(false), "metadata alone caches nothing");
    let objects = server.send_accepting("application/vnd.kubernetes.protobuf", &line, "").await;
    assert_eq!(objects.code, 200);
    assert!(cached(true));
    let after = server.send_accepting(&accept, &line, "").await;
    assert_eq!(before.body, after.body);
}

#[tokio::test]
async fn a_long_list_is_made_in_chunks() {
    let server = TestServer::start().await;
    let long = "x".repeat(200 << 10);
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let body = format!("{{metadata: {{name: {name}, annotations: {{long: {long}}}}}}}");
        server.check(&format!("POST {WIDGETS}"), &body, "201").await;
    }
    let line = format!("GET {WIDGETS}");
    let (_, expected) = listed_slowly(&server, &line).await;
    // More than is kept until the list is sent.
    assert!(expected.iter().map(Vec::len).sum::<usize>() > super::KEPT_BYTES_MAX);
    let list = server.send_accepting(&format!("{LIST};v=v1"), &line, "").await;
    assert_eq!(items_of(&list.body), expected);
    let page = server.send_accepting(&format!("{LIST};v=v1"), &format!("{line}?limit=2"), "").await;
    assert_eq!(items_of(&page.body), expected[..2]);
}

#[tokio::test]
async fn an_object_has_the_bytes_that_decoding_would_make() {
    let server = server().await;
    let names = METADATA.iter().map(|(name, _)| *name).chain(["applied", "raw"]);
    for name in names {
        let line = format!("GET {WIDGETS}/{name}");
        let json = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let expected = slowly(&server, &server.send_accepting(json, &line, "").await.json());
        let object = server.send_accepting(&format!("{OBJECT};v=v1"), &line, "").await;
        let envelope = protobuf::Envelope::open(&object.body).unwrap();
        assert_eq!(envelope.api_version.as_str(), "meta.k8s.io/v1");
        assert_eq!(envelope.kind.as_str(), "PartialObjectMetadata");
        assert_eq!(envelope.raw, expected, "{name}");
        let refused = server.send_accepting(&format!("{LIST};v=v1"), &line, "").await;
        assert_eq!(refused.code, 406);
    }
}

#[tokio::test]
async fn a_watch_has_the_bytes_that_decoding_would_make() {
    let server = server().await;
    let (_, expected) = listed_slowly(&server, &format!("GET {WIDGETS}")).await;
    let stream = format!("{OBJECT};v=v1;stream=watch");
    let from = server.revision().await;
    let mut initial = server.watch_accepting(&stream, WIDGETS).await.unwrap();
    let mut later = server
        .watch_accepting(&stream, &format!("{WIDGETS}?resourceVersion={from}"))
        .await
        .unwrap();
    let mut bytes = Vec::new();
    for expected in &expected {
        assert_eq!(
            next_event(&mut initial, &mut bytes).await,
            ("ADDED".to_owned(), expected.clone())
        );
    }
    let patch = "{metadata: {labels: {new: label}}}";
    server.check(&format!("MERGE-PATCH {WIDGETS}/plain"), patch, "200").await;
    server.check(&format!("DELETE {WIDGETS}/plain"), "", "200").await;
    let (mut bytes, mut more) = (Vec::new(), Vec::new());
    for ty in ["MODIFIED", "DELETED"] {
        let (actual, message) = next_event(&mut later, &mut bytes).await;
        assert_eq!(actual, ty);
        let text = message.escape_ascii().to_string();
        assert!(text.contains("plain") && text.contains("new"), "{text}");
        assert_eq!(next_event(&mut initial, &mut more).await, (actual, message), "shared");
    }
}

/// The type of the next event, and the message of its object.
async fn next_event(
    watch: &mut crate::testing::TestWatch,
    bytes: &mut Vec<u8>,
) -> (String, Vec<u8>) {
    loop {
        let length = bytes.first_chunk::<4>().map(|length| u32::from_be_bytes(*length) as usize);
        if let Some(length) = length.filter(|length| bytes.len() >= 4 + length) {
            let event: Vec<u8> = bytes.drain(..4 + length).skip(4).collect();
            let parts = fields(&event);
            let (ty, object) = (parts[0].1, fields(parts[1].1)[0].1);
            let envelope = protobuf::Envelope::open(object).unwrap();
            assert_eq!(envelope.kind.as_str(), "PartialObjectMetadata");
            return (String::from_utf8(ty.to_vec()).unwrap(), envelope.raw.to_vec());
        }
        bytes.extend_from_slice(&watch.next_bytes().await.expect("an event"));
    }
}

/// Custom resources have no message of their own, and their keys are sorted.
#[tokio::test]
async fn metadata_of_a_custom_resource_is_encoded_as_well() {
    let server = server().await;
    let kind: &Arc<Kind> = server.kind("v1", "widgets");
    let sorted = r#"{"annotations":{"b":"c"},"creationTimestamp":"2024-02-29T12:34:56Z","generation":1,"labels":{"a":"b"},"managedFields":[{"apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"k:{\"name\":\"a\"}":{}}},"manager":"m","operation":"Update","time":"2024-02-29T12:34:56Z"}],"name":"n","namespace":"ns","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}],"resourceVersion":"7","uid":"u"}"#;
    let json = format!(r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{sorted}}}"#);
    let start = json.find(sorted).unwrap() as u32;
    let entry = store::Entry {
        json: json.into(),
        meta: (start, start + sorted.len() as u32),
        ..store::Entry::default()
    };
    let object = crate::decode::tree(&entry.json.text()).unwrap();
    let expected =
        slowly(&server, &value!({"metadata": (object.get("metadata").unwrap().clone())}));
    assert_eq!(super::made(server.engine(), kind, &entry).unwrap(), expected);
}

/// A table or the metadata of daemon sets was kept where their protobuf belongs: clients of protobuf got JSON, and the other
/// way round, until the object changed.
#[tokio::test]
async fn metadata_without_internal_annotations_is_not_kept_as_protobuf() {
    let server = TestServer::start().await;
    let body = "{metadata: {name: a, annotations: {example.com/internal: '1', x: z}}}";
    server.check("POST /v1/gadgets", body, "201").await;
    let line = "GET /v1/gadgets";
    let (before, expected) = listed_slowly(&server, line).await;
    let annotations = before.items_at(&["items"])[0].at(&["metadata", "annotations"]);
    assert_eq!(annotations, Some(&value!({"x": "z"})));
    let objects = server.send_accepting("application/vnd.kubernetes.protobuf", line, "").await;
    let object = &items_of(&objects.body)[0];
    let metadata = fields(object)[0];
    assert!(metadata.0 == 1 && metadata.1.starts_with(b"\x0a\x01a"), "{object:?}");
    let (after, _) = listed_slowly(&server, line).await;
    assert_eq!(before, after);
    let alone = server.send_accepting(&format!("{LIST};v=v1"), line, "").await;
    assert_eq!(items_of(&alone.body), expected);
    let one = format!("{OBJECT};v=v1");
    let one = server.send_accepting(&one, "GET /v1/gadgets/a", "").await;
    assert_eq!(protobuf::Envelope::open(&one.body).unwrap().raw, expected[0]);
}

/// As an object that protobuf cannot hold: it must not be answered as empty bytes.
#[tokio::test]
async fn metadata_that_protobuf_cannot_hold_is_a_500_each_time() {
    let server = TestServer::start().await;
    let broken = r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"b","namespace":"ns","generation":"many"}}"#;
    server.write_raw("widgets", "b", broken).await;
    for (accept, path) in [(OBJECT, "/b"), (LIST, "")] {
        let line = format!("GET {WIDGETS}{path}");
        for _ in 0..2 {
            let answer = server.send_accepting(&format!("{accept};v=v1"), &line, "").await;
            answer.check(&line, "500 : generation: expected integer, found string");
        }
    }
}
