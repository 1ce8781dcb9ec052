//! Discovery of the built-in kinds is, byte for byte, that of kube-apiserver.

mod common;

use aggregator::{DiscoveryDocuments, DocumentResponse};
use builtin::Definitions;
use sha2::{Digest, Sha256};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn documents(all: bool) -> DiscoveryDocuments {
    let definitions = Definitions::load();
    DiscoveryDocuments::new(
        &common::served(&definitions, all),
        &definitions.schema,
        "192.0.2.1:6443",
    )
}

#[track_caller]
fn ask(documents: &DiscoveryDocuments, path: &str, accept: &str) -> DocumentResponse {
    documents.answer(path, Some(accept), None).expect("a path of discovery").expect("an answer")
}

fn hash_of(answer: &DocumentResponse) -> String {
    let hash = Sha256::digest(&answer.body);
    hash.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn every_document_is_the_one_that_kube_apiserver_answers() {
    let facts = include_str!("discovery-facts.tsv");
    for (served, documents) in [("default", documents(false)), ("all", documents(true))] {
        let mut expected = 0;
        for line in facts.lines().skip(1) {
            let columns: Vec<&str> = line.split('\t').collect();
            let [set, path, document, hash, protobuf] = columns[..] else {
                panic!("five columns: {line}")
            };
            if set != served {
                continue;
            }
            let accept = if document == "aggregated" { AGGREGATED } else { "application/json" };
            let answer = ask(&documents, path, accept);
            let body = String::from_utf8_lossy(&answer.body);
            assert_eq!(hash_of(&answer), hash, "{document} {path} of {served} is {body}");
            if protobuf != "-" {
                let answer =
                    ask(&documents, path, &accept.replace("json", "vnd.kubernetes.protobuf"));
                assert_eq!(hash_of(&answer), protobuf, "protobuf of {document} {path}");
            }
            expected += usize::from(document == "plain");
        }
        assert_eq!(documents.paths().count(), expected, "documents of {served}");
    }
}

/// The hash is kube-apiserver's, so that clients' caches stay valid when the server is replaced.
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
    let yaml = AGGREGATED.replace("json", "yaml");
    let protobuf = AGGREGATED.replace("json", "vnd.kubernetes.protobuf");
    let any = AGGREGATED.replace("application/json", "*/*");
    let cases = [
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("application/json", "application/json"),
        ("application/yaml", "application/yaml"),
        ("application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"),
        ("text/html, application/json;q=0.1", "application/json"),
        ("application/json;q=0.1, application/yaml", "application/yaml"),
        (AGGREGATED, AGGREGATED),
        (&yaml, &yaml),
        (&protobuf, &protobuf),
        (&any, AGGREGATED),
        (&format!("application/json, {AGGREGATED};q=0.1"), AGGREGATED),
        (&format!("{AGGREGATED};profile=nopeer"), AGGREGATED),
        (&format!("{old},application/json"), old),
        (&format!("{old},{AGGREGATED}"), AGGREGATED),
        (old, old),
        ("application/json;as=Table;g=meta.k8s.io;v=v1", "406"),
        ("application/cbor", "406"),
        ("text/html", "406"),
        ("nonsense", "406"),
    ];
    for (accept, expected) in cases {
        let found = match documents.answer("/apis", Some(accept), None).expect("a path") {
            Ok(answer) => answer.content_type.to_owned(),
            Err(error) => error.status().code.to_string(),
        };
        assert_eq!(found, expected, "{accept}");
    }
    let listed = documents.answer("/apis/apps/v1", Some(AGGREGATED), None).expect("a path");
    assert_eq!(listed.unwrap_err().status().code, 406, "only /api and /apis are aggregated");
}

/// kubectl up to v1.29 asks for v2beta1 only.
#[test]
fn old_clients_get_aggregated_discovery_as_v2beta1() {
    let documents = documents(false);
    for (media, begins) in [
        (
            "application/json",
            br#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2beta1","#
                .as_slice(),
        ),
        ("application/yaml", b"apiVersion: apidiscovery.k8s.io/v2beta1\n"),
        (
            "application/vnd.kubernetes.protobuf",
            b"k8s\0\x0a\x34\x0a\x1bapidiscovery.k8s.io/v2beta1\x12",
        ),
    ] {
        let old = format!("{media};g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList");
        let new = old.replace("v2beta1", "v2");
        let (old, new) = (ask(&documents, "/apis", &old), ask(&documents, "/apis", &new));
        assert!(old.body.starts_with(begins), "{media}: {:?}", &old.body[..80]);
        assert_eq!(old.body.len(), new.body.len() + "beta1".len(), "{media}");
        assert_eq!(old.etag, new.etag, "{media}");
    }
}

/// In kube-apiserver go-restful checks the `Accept` header first, except for the kube-aggregator's own
/// paths.
#[test]
fn unknown_media_types_get_the_message_of_the_router_or_the_aggregator() {
    let documents = documents(false);
    let offered = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let routed = format!("406: Not Acceptable\n\nAvailable representations: {offered}");
    let unrouted = format!("only the following media types are accepted: {offered}");
    for (path, expected) in [
        ("/api", &routed),
        ("/api/v1", &routed),
        ("/apis/apps/v1", &routed),
        ("/apis", &unrouted),
        ("/apis/apps", &unrouted),
    ] {
        let refused = documents.answer(path, Some("text/html"), None).expect("a path").unwrap_err();
        assert_eq!(refused.to_string(), *expected, "{path}");
    }
}

#[test]
fn documents_are_the_same_in_every_format() {
    let documents = documents(false);
    let core = ask(&documents, "/api", "application/vnd.kubernetes.protobuf");
    let expected = [
        b"k8s\0\x0a\x0f\x0a\x00\x12\x0bAPIVersions\x12\x21\x0a\x02v1\x12\x1b".as_slice(),
        b"\x0a\x090.0.0.0/0\x12\x0e192.0.2.1:6443\x1a\x00\x22\x00",
    ];
    assert_eq!(core.body, expected.concat());
    let core = ask(&documents, "/api", "application/yaml");
    let expected = "kind: APIVersions\nserverAddressByClientCIDRs:\n- clientCIDR: 0.0.0.0/0\n  \
                    serverAddress: 192.0.2.1:6443\nversions:\n- v1\n";
    assert_eq!(core.body, expected);
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
