//! The OpenAPI documents of the built-in kinds say what those of kube-apiserver say, but for the sentences that
//! no published crate has. Read from a v1.36.4 with default flags, and from one with every API turned on.
//!
//! One difference is kept on purpose: `caBundle` of an APIService has no `x-kubernetes-list-type`,
//! because it is no list but bytes.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aggregator::{DocumentRequest, DocumentResponse, OpenApi};
use builtin::Definitions;
use descriptions::Descriptions;
use meta::{Value, json};
use schema::openapi::Describe;
use sha2::{Digest, Sha256};

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

fn openapi(all: bool) -> OpenApi {
    let mut definitions = Definitions::load();
    let served = common::served(&definitions, all);
    let schema = Arc::new(std::mem::take(&mut definitions.schema));
    OpenApi::new(&served, schema, descriptions, now(), None)
}

fn descriptions() -> Box<dyn Describe> {
    Box::new(Descriptions::load())
}

/// Sun, 15 Nov 2026 21:00:00 GMT
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(498_549)
}

#[track_caller]
fn ask(openapi: &OpenApi, question: DocumentRequest<'_>) -> DocumentResponse {
    openapi.answer(question, now()).expect("a path of OpenAPI")
}

#[track_caller]
fn document(openapi: &OpenApi, path: &str) -> Value {
    let answer = ask(openapi, DocumentRequest { path, ..DocumentRequest::default() });
    assert_eq!((answer.code, answer.content_type), (200, "application/json"), "{path}");
    codec::json::decode_any(&answer.body, codec::json::DecodeOptions::default())
        .expect("JSON")
        .value
}

#[test]
fn every_document_says_what_that_of_kube_apiserver_says() {
    let mut differences = Vec::new();
    for (served, openapi) in [("default", openapi(false)), ("all", openapi(true))] {
        let mut expected = 0;
        for line in include_str!("openapi-documents.tsv").lines().skip(1) {
            let columns: Vec<&str> = line.split('\t').collect();
            let [set, path, hash] = columns[..] else { panic!("three columns: {line}") };
            if set != served {
                continue;
            }
            expected += 1;
            let mut document = document(&openapi, path);
            remove_own_descriptions(&mut document);
            let found = Sha256::digest(json::to_string(&document).as_bytes());
            if lower_hex(&found) != hash {
                differences.push(format!("{path} of {served}"));
            }
        }
        // And that of v2.
        assert_eq!(openapi.documents().count() + 1, expected, "documents of {served}");
    }
    assert!(differences.is_empty(), "these differ:\n{}", differences.join("\n"));
}

#[test]
fn every_operation_has_its_operation_id() {
    for all in [false, true] {
        let expected: BTreeMap<String, String> = include_str!("openapi-paths.tsv")
            .lines()
            .skip(1)
            .filter_map(|line| {
                let (facts, served) = line.rsplit_once('\t').expect("columns");
                let mut columns = facts.splitn(3, '\t');
                let (path, method) = (columns.next()?, columns.next()?);
                (all || served == "default")
                    .then(|| (format!("{method} {path}"), columns.next().unwrap_or("").to_owned()))
            })
            .collect();
        let found = operations(&document(&openapi(all), "/openapi/v2"));
        let names = expected.keys().chain(found.keys());
        let differences: Vec<String> = names
            .filter(|name| expected.get(*name) != found.get(*name))
            .map(|name| format!("{name}: {:?} is {:?}", expected.get(name), found.get(name)))
            .collect();
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}

/// Documents of aggregated servers are bounded; the largest that is known is this one.
#[test]
fn the_document_of_a_whole_server_fits_the_bounds_of_an_aggregated_one() {
    let text = json::to_string(&document(&openapi(true), "/openapi/v2"));
    assert!(text.len() < 8 << 20, "{} bytes", text.len());
    let options = codec::json::DecodeOptions { strict: false };
    codec::json::decode_any_body(text.as_bytes(), options).expect("the tree fits too");
}

fn operations(document: &Value) -> BTreeMap<String, String> {
    let paths = document.get("paths").and_then(Value::as_object).expect("paths");
    let mut found = BTreeMap::new();
    for (path, item) in paths.iter() {
        let item = item.as_object().expect("a path is an object");
        for (method, operation) in item.iter().filter(|(name, _)| *name != "parameters") {
            let action =
                operation.get("x-kubernetes-action").and_then(Value::as_str).unwrap_or("-");
            let kind =
                operation.get("x-kubernetes-group-version-kind").map_or("-".into(), |kind| {
                    let part = |name| kind.str_at(&[name]);
                    let group = if part("group").is_empty() { "core" } else { part("group") };
                    format!("{group}/{}/{}", part("version"), part("kind"))
                });
            let facts = format!("{}\t{action}\t{kind}", operation.str_at(&["operationId"]));
            found.insert(format!("{method} {path}"), facts);
        }
    }
    found
}

/// Removes the descriptions that are Pintle's own words, because the crates that others come from have none, and
/// with them the names of shared parameters, which are hashes over their descriptions.
fn remove_own_descriptions(document: &mut Value) {
    let is_own_param = |name: &str| OWN_PARAMS.contains(&name);
    if let Some(shared) = document.get_mut("parameters").and_then(Value::as_object_mut) {
        // The hash of a name has eight characters.
        shared.retain(|name, _| !is_own_param(&name[..name.len() - 9]));
    }
    visit(document, &mut |value| {
        let reference = value.str_at(&["$ref"]).strip_prefix("#/parameters/");
        if let Some(name) = reference.map(|name| &name[..name.len() - 9])
            && is_own_param(name)
        {
            *value = Value::string(name);
            return;
        }
        if is_own_param(value.str_at(&["name"])) && value.get("in").is_some() {
            value.remove_at(&["description"]);
        }
        // What each value of an enum means.
        if let Some(Value::String(text)) = value.get_mut("description")
            && let Some((before, _)) = text.split_once("\n\nPossible enum values:")
        {
            *text = before.trim_end().into();
        }
    });
    for path in ["/.well-known/openid-configuration/", "/openid/v1/jwks/"] {
        document.remove_at(&["paths", path, "get", "description"]);
    }
    for at in [&["definitions"][..], &["components", "schemas"]] {
        let definitions = document.at_mut(at).and_then(Value::as_object_mut);
        for (name, definition) in definitions.into_iter().flat_map(meta::Map::iter_mut) {
            let is_new = NEW_LISTS.contains(&name.as_str());
            if is_new {
                definition.remove_at(&["description"]);
                definition.remove_at(&["properties", "items", "description"]);
            }
            // Their texts have changed since the release of k8s-pb.
            let changed = name.starts_with("io.k8s.api.admissionregistration.");
            if is_new || (changed && name.ends_with("List")) {
                definition.remove_at(&["properties", "metadata", "description"]);
            }
        }
    }
}

const OWN_PARAMS: [&str; 3] = ["namespace", "pretty", "shardSelector"];

/// Lists of kinds that are newer than k8s-pb.
const NEW_LISTS: [&str; 2] = [
    "io.k8s.api.resource.v1alpha3.ResourcePoolStatusRequestList",
    "io.k8s.api.scheduling.v1alpha2.PodGroupList",
];

fn visit(value: &mut Value, change: &mut impl FnMut(&mut Value)) {
    change(value);
    match value {
        Value::Object(map) => map.iter_mut().for_each(|(_, value)| visit(value, change)),
        Value::Array(items) => items.iter_mut().for_each(|value| visit(value, change)),
        _ => {}
    }
}

fn lower_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn definitions_and_fields_have_descriptions() {
    let core = document(&openapi(false), "/openapi/v3/api/v1");
    let described = |path: &[&str]| {
        let schemas = core.at(&["components", "schemas"]).expect("schemas");
        schemas.at(path).map(|schema| schema.str_at(&["description"]).to_owned())
    };
    let cases = [
        (&["io.k8s.api.core.v1.Pod"][..], "Pod is a collection of containers"),
        (&["io.k8s.api.core.v1.PodSpec", "properties", "containers"], "List of containers"),
        (&["io.k8s.api.core.v1.PodList"], "PodList is a list of Pods."),
    ];
    for (path, beginning) in cases {
        let found = described(path).unwrap_or_default();
        assert!(found.starts_with(beginning), "{path:?} is {found:?}");
    }
}

#[test]
fn the_index_names_every_document_by_its_hash() {
    let openapi = openapi(false);
    let index =
        ask(&openapi, DocumentRequest { path: "/openapi/v3", ..DocumentRequest::default() });
    assert_eq!(index.content_type, "text/plain; charset=utf-8");
    let index = codec::json::decode_any(&index.body, codec::json::DecodeOptions::default());
    let index = index.expect("JSON").value;
    let paths = index.get("paths").and_then(Value::as_object).expect("paths");
    assert_eq!(paths.len(), openapi.documents().count());
    for (path, document) in paths.iter() {
        let url = document.str_at(&["serverRelativeURL"]);
        let (path_of_url, hash) = url.split_once("?hash=").expect("a hash");
        assert_eq!(path_of_url, format!("/openapi/v3/{path}"));
        let question =
            DocumentRequest { path: path_of_url, hash: Some(hash), ..DocumentRequest::default() };
        let answer = ask(&openapi, question);
        assert_eq!(answer.code, 200, "{url}");
        assert_eq!(answer.cache_control, Some("public, immutable"));
        assert_eq!(answer.expires.as_deref(), Some("Mon, 15 Nov 2027 21:00:00 UTC"));
        assert_eq!(answer.etag, Some(format!("\"{hash}\"")));
    }
}

#[test]
fn an_old_hash_redirects_to_the_current_one() {
    let openapi = openapi(false);
    let path = "/openapi/v3/version";
    let plain = ask(&openapi, DocumentRequest { path, ..DocumentRequest::default() });
    let moved =
        ask(&openapi, DocumentRequest { path, hash: Some("ABC"), ..DocumentRequest::default() });
    let hash = plain.etag.as_deref().unwrap_or_default().trim_matches('"').to_owned();
    assert_eq!((plain.code, plain.cache_control, plain.expires), (200, None, None));
    assert_eq!((moved.code, moved.body.len()), (301, 0));
    assert_eq!(moved.location, Some(format!("{path}?hash={hash}")));
}

#[test]
fn request_headers_decide_format_and_not_modified() {
    let openapi = openapi(false);
    let path = "/openapi/v3/version";
    let plain = ask(&openapi, DocumentRequest { path, ..DocumentRequest::default() });
    let etag = plain.etag.expect("documents have a hash");
    assert_eq!(plain.last_modified.as_deref(), Some("Sun, 15 Nov 2026 21:00:00 GMT"));
    let accept =
        |header| DocumentRequest { path, accept: Some(header), ..DocumentRequest::default() };
    let known = |header| DocumentRequest {
        path,
        if_none_match: Some(header),
        ..DocumentRequest::default()
    };
    let since = |header| DocumentRequest {
        path,
        if_modified_since: Some(header),
        ..DocumentRequest::default()
    };
    let many = format!("\"other\", {etag}");
    let cases = [
        (accept("*/*"), 200, "application/json"),
        (accept(""), 200, "application/json"),
        (accept(PROTOBUF), 200, PROTOBUF),
        (accept("application/com.github.proto-openapi.spec.v3@v1.0+protobuf"), 200, PROTOBUF),
        (accept("text/html, application/json;q=0.5"), 200, "application/json"),
        (accept("application/yaml"), 406, ""),
        (known(&etag), 304, ""),
        (known(&many), 304, ""),
        (known("*"), 304, ""),
        (known("\"other\""), 200, "application/json"),
        (since("Sun, 15 Nov 2026 21:00:00 GMT"), 304, ""),
        (since("Sun, 15 Nov 2026 20:59:59 GMT"), 200, "application/json"),
        (since("yesterday"), 200, "application/json"),
        (DocumentRequest { path: "/openapi/v3/nope", ..DocumentRequest::default() }, 404, ""),
        (DocumentRequest { path: "/openapi/v3/", ..DocumentRequest::default() }, 404, ""),
    ];
    for (question, code, content_type) in cases {
        let answer = ask(&openapi, question);
        assert_eq!((answer.code, answer.content_type), (code, content_type), "{question:?}");
    }
    for path in ["/openapi", "/openapi/", "/openapi/v1", "/openapi/v2/", "/api"] {
        let question = DocumentRequest { path, ..DocumentRequest::default() };
        assert!(openapi.answer(question, now()).is_none(), "{path}");
    }
}

#[test]
fn unchanged_documents_are_not_rendered_again() {
    let mut definitions = Definitions::load();
    let served = common::served(&definitions, false);
    let schema = Arc::new(std::mem::take(&mut definitions.schema));
    let first = OpenApi::new(&served, schema.clone(), descriptions, now(), None);
    let question = |path| DocumentRequest { path, ..DocumentRequest::default() };
    let before = ask(&first, question("/openapi/v3/apis/apps/v1"));

    let later = now() + Duration::from_mins(1);
    let less: Vec<_> =
        served.into_iter().filter(|served| served.group_version.group != "batch").collect();
    let second = OpenApi::new(&less, schema, descriptions, later, Some(&first));
    let after = ask(&second, question("/openapi/v3/apis/apps/v1"));
    assert_eq!(before.body.as_ptr(), after.body.as_ptr(), "the same bytes");
    assert_eq!(before.last_modified, after.last_modified);
    assert_eq!(ask(&second, question("/openapi/v3/apis/batch/v1")).code, 404);
}
