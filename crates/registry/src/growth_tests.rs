//! Responses cost no more than in proportion to the objects in them.

use std::sync::Arc;

use bytes::Bytes;
use meta::growth::assert_linear;
use store::Entry;

use crate::{
    Kind, Payload,
    list::{Chunks, Items, ListHead},
    protobuf_response,
    response_format::ItemWriter,
    table::{self, IncludeObject, TableWriter},
    testing::TestServer,
};

fn entries(n: usize) -> Vec<Arc<Entry>> {
    (0..n).map(|at| Arc::new(entry(&format!("{at:06}"), 1))).collect()
}

/// A widget with so many parts, tags, labels and owners.
fn entry(name: &str, parts: usize) -> Entry {
    let list = |item: &dyn Fn(usize) -> String| (0..parts).map(item).collect::<Vec<_>>().join(",");
    let labels = list(&|at| format!(r#""l{at:06}":"v""#));
    let owners =
        list(&|at| format!(r#"{{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u{at}"}}"#));
    let metadata = format!(
        r#"{{"name":"{name}","namespace":"ns","resourceVersion":"1","creationTimestamp":"2024-02-29T12:34:56Z","labels":{{{labels}}},"ownerReferences":[{owners}]}}"#
    );
    let parts = list(&|at| format!(r#"{{"name":"n{at}","value":"v"}}"#));
    let head = r#"{"kind":"Widget","apiVersion":"example.com/v1",""#;
    let json =
        format!(r#"{head}metadata":{metadata},"spec":{{"color":"red","parts":[{parts}]}}}}"#);
    let start = json.find(&metadata).expect("it is there") as u32;
    let body_at = head.len() as u32 - 1;
    let meta = (start, start + metadata.len() as u32);
    Entry { name: name.into(), json: json.into(), meta, body_at, ..Entry::default() }
}

fn consume(chunks: Payload) {
    match chunks {
        Payload::Chunks(chunks) | Payload::CostlyChunks(chunks) => chunks.for_each(drop),
        _ => panic!("a list is made of chunks"),
    }
}

#[tokio::test]
async fn lists_and_tables_are_written_in_linear_time() {
    let server = TestServer::start().await;
    let (engine, kind) = (server.engine(), server.kind("v1", "widgets"));
    let table = |kind: &Arc<Kind>| -> Box<dyn ItemWriter> {
        Box::new(TableWriter::new(
            engine,
            kind.clone(),
            IncludeObject::Metadata,
            ListHead::default(),
        ))
    };
    assert_linear("a table", 300, entries, |entries| {
        consume(Chunks::payload(Items::of(entries.iter().cloned()), table(kind)));
    });
    let converted = server.kind("v2", "widgets");
    assert_linear("a converted table", 300, entries, |entries| {
        consume(Chunks::payload(Items::of(entries.iter().cloned()), table(converted)));
    });
    assert_linear("protobuf", 300, entries, |entries| {
        let message = |entry: &Arc<Entry>| protobuf_response::message(engine, kind, entry).unwrap();
        let messages: Vec<Bytes> = entries.iter().map(message).collect();
        let bytes = messages.iter().map(|item| protobuf_response::item_len(item)).sum();
        let (gvk, head) = (kind.gvk(), ListHead::default());
        let messages = messages.into_iter().map(Ok);
        consume(Payload::Chunks(protobuf_response::list_chunks(gvk, &head, bytes, messages)));
    });
}

#[tokio::test]
async fn one_large_object_is_written_in_linear_time() {
    let server = TestServer::start().await;
    let (engine, kind) = (server.engine(), server.kind("v1", "widgets"));
    let large = |n: usize| entry("large", n);
    assert_linear("a table", 500, large, |entry| {
        drop(table::of_object(engine, kind, IncludeObject::Object, &entry.json.text()));
    });
    assert_linear("a conversion", 500, large, |entry| {
        // Made anew each time: what was converted is kept.
        let entry = entry.with_revision(2).expect("it has a revision");
        drop(server.kind("v2", "widgets").view(&entry));
    });
}
