//! The discovery documents as bytes, rendered once per change of the table, and which of them a
//! request gets.

use std::collections::HashMap;

use bytes::Bytes;
use meta::{ApiError, Value};
use schema::Schema;
use sha2::{Digest, Sha512};

use crate::served::{Group, Served, groups};
use crate::{accept, discovery};

/// Every discovery document of a server. Rebuilt and swapped as a whole when the table changes.
#[derive(Debug, Default)]
pub struct Documents {
    by_path: HashMap<String, Page>,
}

/// What is answered on a path: the plain document, and for `/api` and `/apis` the aggregated one.
#[derive(Debug)]
struct Page {
    plain: Document,
    aggregated: Option<Document>,
}

#[derive(Debug)]
struct Document {
    json: Bytes,
    /// With quotes; only aggregated discovery has one.
    etag: Option<String>,
}

/// An answer to a GET. What isn't told is up to the server: without `cache_control` an answer isn't
/// cached.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// 200, 301, 304, 404 or 406
    pub code: u16,
    /// Empty if there is no body.
    pub content_type: &'static str,
    pub etag: Option<String>,
    pub cache_control: Option<&'static str>,
    pub vary: Option<&'static str>,
    pub last_modified: Option<String>,
    pub expires: Option<String>,
    pub location: Option<String>,
    pub body: Bytes,
}

impl Documents {
    /// `schema` has the types of the documents themselves, `address` is `host:port` of this server as
    /// it is reached from outside.
    pub fn new(served: &[Served], schema: &Schema, address: &str) -> Self {
        let groups = groups(served);
        let renderer = Renderer { schema };
        let core = groups.iter().find(|group| group.name.is_empty());
        let others = || groups.iter().filter(|group| !group.name.is_empty());
        let mut by_path = HashMap::new();
        if let Some(core) = core {
            let plain = renderer.meta("APIVersions", &discovery::api_versions(core, address));
            let aggregated = Some(renderer.aggregated([core].into_iter()));
            by_path.insert("/api".to_owned(), Page { plain, aggregated });
        }
        let plain = renderer.meta("APIGroupList", &discovery::api_group_list(others()));
        let aggregated = Some(renderer.aggregated(others()));
        by_path.insert("/apis".to_owned(), Page { plain, aggregated });
        for group in others() {
            let plain = renderer.meta("APIGroup", &discovery::api_group(group));
            by_path.insert(format!("/apis/{}", group.name), Page { plain, aggregated: None });
        }
        for served in served {
            let root = if served.group_version.group.is_empty() { "/api" } else { "/apis" };
            let plain = renderer.meta("APIResourceList", &discovery::api_resource_list(served));
            by_path.insert(
                format!("{root}/{}", served.group_version),
                Page { plain, aggregated: None },
            );
        }
        Self { by_path }
    }

    /// Every path that has a document, for the index.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.by_path.keys().map(String::as_str)
    }

    /// Answers a GET, if the path is one of discovery.
    pub fn answer(
        &self,
        path: &str,
        accept: Option<&str>,
        if_none_match: Option<&str>,
    ) -> Option<Result<Answer, ApiError>> {
        let page = self.by_path.get(path.strip_suffix('/').unwrap_or(path))?;
        let accept = accept.filter(|header| !header.is_empty());
        let clauses = accept::parse(accept.unwrap_or("*/*"));
        // A client that accepts aggregated discovery at all gets it, however much it likes the others.
        if let Some(document) = &page.aggregated
            && clauses.iter().any(|clause| clause.allows(JSON) && asks_for_aggregated(clause))
        {
            return Some(Ok(document.aggregated_answer(if_none_match)));
        }
        if clauses.iter().any(|clause| clause.allows(JSON) && converted_to(clause).is_none()) {
            return Some(Ok(Answer::ok(JSON, page.plain.json.clone())));
        }
        Some(Err(ApiError::NotAcceptable(format!(
            "only the following media types are accepted: {JSON}"
        ))))
    }
}

const JSON: &str = "application/json";
const AGGREGATED_JSON: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// v2beta1 is gone since v1.35; clients that know nothing newer accept plain discovery as well.
fn asks_for_aggregated(clause: &accept::Clause<'_>) -> bool {
    converted_to(clause) == Some(("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList"))
}

/// Group, version and kind that a client wants the document to be turned into.
fn converted_to<'a>(clause: &'a accept::Clause<'_>) -> Option<(&'a str, &'a str, &'a str)> {
    let [group, version, kind] = ["g", "v", "as"].map(|name| clause.param(name));
    let told = |part: Option<&'a str>| part.unwrap_or_default();
    (group.is_some() || version.is_some() || kind.is_some())
        .then(|| (told(group), told(version), told(kind)))
}

impl Document {
    fn aggregated_answer(&self, if_none_match: Option<&str>) -> Answer {
        let mut answer = if if_none_match.is_some() && if_none_match == self.etag.as_deref() {
            Answer { code: 304, ..Answer::ok("", Bytes::new()) }
        } else {
            Answer::ok(AGGREGATED_JSON, self.json.clone())
        };
        answer.etag.clone_from(&self.etag);
        answer.cache_control = Some("public");
        answer.vary = Some("Accept");
        answer
    }
}

impl Answer {
    pub(crate) fn ok(content_type: &'static str, body: Bytes) -> Self {
        Self { code: 200, content_type, body, ..Self::default() }
    }
}

struct Renderer<'a> {
    schema: &'a Schema,
}

impl Renderer<'_> {
    /// A document of one of the types that all groups share.
    fn meta(&self, kind: &str, document: &Value) -> Document {
        let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}");
        Document { json: self.json(&name, document).into(), etag: None }
    }

    fn aggregated<'a>(&self, groups: impl Iterator<Item = &'a Group<'a>>) -> Document {
        let name = "io.k8s.api.apidiscovery.v2.APIGroupDiscoveryList";
        let document = discovery::aggregated(groups);
        // Compat: the hash is that of the document before it says what it is, without the newline.
        let hashed = self.json(name, &document);
        let hash = Sha512::digest(hashed.trim_ascii_end());
        let json = self.json(name, &discovery::as_aggregated(document)).into();
        Document { json, etag: Some(format!("\"{}\"", upper_hex(&hash))) }
    }

    fn json(&self, name: &str, document: &Value) -> Vec<u8> {
        let ty = self.schema.by_name(name).expect("the types of discovery are built in");
        let mut json = Vec::new();
        codec::json::encode(document, self.schema, ty, &mut json);
        json.push(b'\n');
        json
    }
}

pub(crate) fn upper_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789ABCDEF"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
