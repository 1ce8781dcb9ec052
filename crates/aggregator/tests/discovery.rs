//! Discovery of the built-in kinds is, byte for byte, that of kube-apiserver.

mod common;

use aggregator::{Answer, Documents};
use builtin::Definitions;
use sha2::{Digest, Sha256};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn documents(all: bool) -> Documents {
    let definitions = Definitions::load();
    Documents::new(&common::served(&definitions, all), &definitions.schema, "192.0.2.1:6443")
}

#[track_caller]
fn ask(documents: &Documents, path: &str, accept: &str) -> Answer {
    documents.answer(path, Some(accept), None).expect("a path of discovery").expect("an answer")
}

fn lower_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn every_document_is_the_one_that_kube_apiserver_answers() {
    let facts = include_str!("discovery-facts.tsv");
    for (served, documents) in [("default", documents(false)), ("all", documents(true))] {
        let mut expected = 0;
        for line in facts.lines().skip(1) {
            let columns: Vec<&str> = line.split('\t').collect();
            let [set, path, document, hash] = columns[..] else { panic!("four columns: {line}") };
            if set != served {
                continue;
            }
            let accept = if document == "aggregated" { AGGREGATED } else { "application/json" };
            let answer = ask(&documents, path, accept);
            let found = lower_hex(&Sha256::digest(&answer.body));
            let body = String::from_utf8_lossy(&answer.body);
            assert_eq!(found, hash, "{document} {path} of {served} is {body}");
            expected += usize::from(document == "plain");
        }
        assert_eq!(documents.paths().count(), expected, "documents of {served}");
    }
}

/// The hash is made as kube-apiserver makes it, so that a client's cache outlives a change of servers.
#[test]
fn aggregated_discovery_has_the_etag_that_kube_apiserver_gives_it() {
    let documents = documents(false);
    let answer = ask(&documents, "/api", AGGREGATED);
    let etag = concat!(
        "\"4D7E1BED90B364BC86049DD9E636494980AEF65B7F8CFAA267616FA062B514A8",
        "A3CC2C2851CC9337B8D28B4C80960E2353DE5E0B152E87CC223E02EA3C5C37AC\""
    );
    assert_eq!(answer.etag.as_deref(), Some(etag));
    assert_eq!((answer.cache_control, answer.vary), (Some("public"), Some("Accept")));
    assert_eq!(answer.content_type, AGGREGATED);

    let unchanged = documents.answer("/api", Some(AGGREGATED), Some(etag)).unwrap().unwrap();
    assert_eq!((unchanged.code, unchanged.body.len()), (304, 0));
    assert_eq!(unchanged.etag.as_deref(), Some(etag));
    let changed = documents.answer("/api", Some(AGGREGATED), Some("\"other\"")).unwrap().unwrap();
    assert_eq!(changed.code, 200);
}

#[test]
fn the_accept_header_decides_which_document_is_answered() {
    let documents = documents(false);
    let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    let cases = [
        ("*/*", "plain"),
        ("application/*", "plain"),
        ("application/json", "plain"),
        ("text/html, application/json;q=0.1", "plain"),
        (AGGREGATED, "aggregated"),
        (&format!("application/json, {AGGREGATED};q=0.1"), "aggregated"),
        (&format!("{AGGREGATED};profile=nopeer"), "aggregated"),
        (&format!("{old},application/json"), "plain"),
        (old, "406"),
        ("application/json;as=Table;g=meta.k8s.io;v=v1", "406"),
        ("text/html", "406"),
        ("nonsense", "406"),
    ];
    for (accept, expected) in cases {
        let found = match documents.answer("/apis", Some(accept), None).expect("a path") {
            Ok(answer) if answer.content_type == AGGREGATED => "aggregated".to_owned(),
            Ok(_) => "plain".to_owned(),
            Err(error) => error.status().code.to_string(),
        };
        assert_eq!(found, expected, "{accept}");
    }
    let listed = documents.answer("/apis/apps/v1", Some(AGGREGATED), None).expect("a path");
    assert_eq!(listed.unwrap_err().status().code, 406, "only /api and /apis are aggregated");
}

#[test]
fn only_paths_of_discovery_are_answered() {
    let documents = documents(false);
    for path in
        ["/api", "/api/", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/apis/apps/v1/"]
    {
        assert!(documents.answer(path, None, None).is_some(), "{path}");
    }
    for path in ["", "/", "/api/v2", "/apis/nope", "/apis/apps/v2", "/api/v1/pods", "/api//"] {
        assert!(documents.answer(path, None, None).is_none(), "{path}");
    }
}
