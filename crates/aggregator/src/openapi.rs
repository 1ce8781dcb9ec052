//! The OpenAPI v2 and v3 documents of all served group-versions.
//!
//! Documents are large and rarely requested, so they are rendered with the first request and cached.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use meta::{GroupVersion, Map, Str, json, value};
use schema::openapi::{
    CustomDefinitions, CustomResource, Describe, DocumentEncoding, DocumentSource, Path, Routes,
    TypesByKind, v2_document, v3_document, v3_from_v2,
};
use schema::{ResourceFacts, Schema};
use sha2::{Digest, Sha512};

use crate::discovery_documents::upper_hex;
use crate::{DocumentResponse, ServedGroupVersion, accept};

/// All OpenAPI documents. Rebuilt and swapped as a whole when the served group-versions change.
pub struct OpenApi {
    inputs: Inputs,
    /// By the path below `/openapi/v3/`.
    v3: BTreeMap<String, Arc<OpenApiDocument>>,
    /// Where the documents of other servers are, which requests are proxied for.
    remote_v3: BTreeMap<String, String>,
    v3_index: OnceLock<Bytes>,
    v2: OpenApiDocument,
}

/// Unpacks the descriptions of types and fields. Called each time something is rendered, and what it
/// returns is dropped afterwards: unpacked they take a megabyte.
pub type LoadDescriptions = fn() -> Box<dyn Describe>;

/// What documents are rendered from.
struct Inputs {
    schema: Arc<Schema>,
    descriptions: LoadDescriptions,
}

/// A request for a document.
#[derive(Clone, Copy, Debug, Default)]
pub struct DocumentRequest<'a> {
    pub path: &'a str,
    /// The query parameter `hash`.
    pub hash: Option<&'a str>,
    pub accept: Option<&'a str>,
    pub if_none_match: Option<&'a str>,
    pub if_modified_since: Option<&'a str>,
}

/// A document that may not have been rendered yet.
struct OpenApiDocument {
    scope: DocumentScope,
    last_modified: Timestamp,
    hash: OnceLock<String>,
    json: OnceLock<Bytes>,
    protobuf: OnceLock<Bytes>,
}

/// The paths that a document describes.
#[derive(Clone)]
enum DocumentScope {
    /// And the parts of other servers, as JSON.
    Everything(Vec<DocumentScope>, Vec<Bytes>),
    Core,
    Groups,
    Version,
    Issuer,
    Keys,
    Group(Str),
    GroupVersion(GroupVersion, Vec<Arc<ResourceFacts>>),
    Custom(GroupVersion, Vec<Arc<CustomResource>>),
    /// From this OpenAPI v2 of another server.
    Converted(Bytes),
}

impl OpenApi {
    /// Renders nothing. Documents of `previous` whose scope is unchanged are reused.
    pub fn new(
        served: &[ServedGroupVersion],
        schema: Arc<Schema>,
        descriptions: LoadDescriptions,
        now: SystemTime,
        previous: Option<&OpenApi>,
    ) -> Self {
        let now = Timestamp::try_from(now).unwrap_or_default();
        let scopes = scopes(served);
        let remote = || served.iter().filter_map(|served| Some((served, served.remote.as_ref()?)));
        let parts = remote().filter_map(|(_, remote)| remote.openapi_v2.clone()).collect();
        let v2 = OpenApiDocument::new(
            DocumentScope::Everything(scopes.values().cloned().collect(), parts),
            now,
        );
        let remote_v3 = remote().filter_map(|(served, remote)| {
            let root = if served.group_version.group.is_empty() { "api" } else { "apis" };
            Some((format!("{root}/{}", served.group_version), remote.openapi_v3.clone()?))
        });
        let remote_v3 = remote_v3.collect();
        let v3 = scopes.into_iter().map(|(path, scope)| {
            let known = previous.and_then(|previous| previous.v3.get(&path));
            let document = match known.filter(|known| known.scope.is(&scope)) {
                Some(known) => Arc::clone(known),
                None => Arc::new(OpenApiDocument::new(scope, now)),
            };
            (path, document)
        });
        let inputs = Inputs { schema, descriptions };
        Self { inputs, v3: v3.collect(), remote_v3, v3_index: OnceLock::new(), v2 }
    }

    /// The keys of the v3 documents, such as `apis/apps/v1`.
    pub fn documents(&self) -> impl Iterator<Item = &str> {
        self.v3.keys().map(String::as_str)
    }

    /// Whether there is a v3 document of this key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.v3.contains_key(key)
    }

    /// The paths for the index; one stands for all v3 documents.
    pub const PATHS: [&str; 3] = ["/openapi/v2", "/openapi/v3", "/openapi/v3/"];

    /// The response to a GET; None if the path is not one of OpenAPI. The first request for a document
    /// renders it: some milliseconds; for the index or v2 some hundred milliseconds.
    pub fn answer(
        &self,
        request: DocumentRequest<'_>,
        now: SystemTime,
    ) -> Option<DocumentResponse> {
        let now = Timestamp::try_from(now).unwrap_or_default();
        match request.path.strip_prefix("/openapi/")? {
            "v2" => Some(self.answer_v2(request)),
            "v3" => Some(self.answer_index(now)),
            path => Some(self.answer_v3(path.strip_prefix("v3/")?, request, now)),
        }
    }

    fn answer_v2(&self, request: DocumentRequest<'_>) -> DocumentResponse {
        let vary = Some("Accept-Encoding, Accept");
        let Some(offered) = OfferedFormat::negotiate(request.accept, &V2_FORMATS) else {
            return DocumentResponse { code: 406, vary, ..DocumentResponse::default() };
        };
        let answer = self.v2.answer(offered, &self.inputs, request);
        DocumentResponse { vary, ..answer }
    }

    /// Compat: kube-apiserver sets no content type here, and Go detects text/plain.
    fn answer_index(&self, now: Timestamp) -> DocumentResponse {
        let body = self.v3_index.get_or_init(|| self.index().into()).clone();
        let last_modified = Some(http_date(now));
        DocumentResponse {
            last_modified,
            ..DocumentResponse::ok("text/plain; charset=utf-8", body)
        }
    }

    /// Needs the hashes of all documents, but does not cache their bytes: most are never requested.
    fn index(&self) -> Vec<u8> {
        let renderer = OpenApiRenderer::new(&self.inputs);
        let own = self.v3.iter().map(|(path, document)| {
            let url = hashed_path(path, document.hash(&renderer));
            (path.as_str(), value!({"serverRelativeURL": (url)}))
        });
        let remote = self.remote_v3.iter();
        let remote = remote
            .map(|(path, url)| (path.as_str(), value!({"serverRelativeURL": (url.as_str())})));
        let paths: Map = own.chain(remote).collect();
        let mut index = Vec::new();
        json::write_value(&mut index, &value!({"paths": (paths)}));
        index
    }

    fn answer_v3(
        &self,
        path: &str,
        request: DocumentRequest<'_>,
        now: Timestamp,
    ) -> DocumentResponse {
        let Some(document) = self.v3.get(path) else {
            return DocumentResponse { code: 404, ..DocumentResponse::default() };
        };
        let vary = Some("Accept");
        let Some(offered) = OfferedFormat::negotiate(request.accept, &V3_FORMATS) else {
            return DocumentResponse { code: 406, vary, ..DocumentResponse::default() };
        };
        let answer = DocumentResponse { vary, ..document.answer(offered, &self.inputs, request) };
        let Some(hash) = request.hash else { return answer };
        // A URL with the current hash is immutable; another hash redirects to the current one.
        let current = document.hash.get().expect("answered above");
        if hash == current {
            let expires = now.checked_add(SignedDuration::from_hours(YEAR_HOURS));
            return DocumentResponse {
                cache_control: Some("public, immutable"),
                expires: expires.ok().map(|time| http_date(time).replace("GMT", "UTC")),
                ..answer
            };
        }
        DocumentResponse {
            code: 301,
            location: Some(hashed_path(path, current)),
            last_modified: None,
            body: Bytes::new(),
            ..answer
        }
    }
}

const YEAR_HOURS: i64 = 365 * 24;

fn hashed_path(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

/// The scopes of the v3 documents by their keys.
fn scopes(served: &[ServedGroupVersion]) -> BTreeMap<String, DocumentScope> {
    let mut scopes = BTreeMap::from([
        (".well-known/openid-configuration".to_owned(), DocumentScope::Issuer),
        ("api".to_owned(), DocumentScope::Core),
        ("apis".to_owned(), DocumentScope::Groups),
        ("openid/v1/jwks".to_owned(), DocumentScope::Keys),
        ("version".to_owned(), DocumentScope::Version),
    ]);
    for served in served {
        let group_version = &served.group_version;
        if let Some(remote) = &served.remote {
            let group = &group_version.group;
            let scope = || DocumentScope::Group(group.clone());
            if !group.is_empty() {
                scopes.entry(format!("apis/{group}")).or_insert_with(scope);
            }
            if let Some(v2) = remote.converted_v2.clone() {
                let root = if group.is_empty() { "api" } else { "apis" };
                scopes.insert(format!("{root}/{group_version}"), DocumentScope::Converted(v2));
            }
            continue;
        }
        if let Some(custom) = &served.custom {
            let scope = DocumentScope::Custom(group_version.clone(), custom.clone());
            scopes.insert(format!("apis/{group_version}"), scope);
            continue;
        }
        let scope = DocumentScope::GroupVersion(group_version.clone(), served.resources.clone());
        let group = &group_version.group;
        if group.is_empty() {
            scopes.insert(format!("api/{group_version}"), scope);
        } else {
            scopes.insert(format!("apis/{group}"), DocumentScope::Group(group.clone()));
            scopes.insert(format!("apis/{group_version}"), scope);
        }
    }
    scopes
}

impl DocumentScope {
    /// Whether a document of the other scope would be the same.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::GroupVersion(a, of_a), Self::GroupVersion(b, of_b)) => {
                let same = |(a, b): (&Arc<_>, &Arc<_>)| Arc::ptr_eq(a, b);
                a == b && of_a.len() == of_b.len() && of_a.iter().zip(of_b).all(same)
            }
            (Self::Custom(a, of_a), Self::Custom(b, of_b)) => {
                let same = |(a, b): (&Arc<_>, &Arc<_>)| Arc::ptr_eq(a, b);
                a == b && of_a.len() == of_b.len() && of_a.iter().zip(of_b).all(same)
            }
            (Self::Converted(a), Self::Converted(b)) => a == b,
            (
                Self::GroupVersion(..) | Self::Custom(..) | Self::Converted(_),
                Self::GroupVersion(..) | Self::Custom(..) | Self::Converted(_),
            ) => false,
            // The others are determined by their key.
            _ => true,
        }
    }

    fn paths(&self, routes: &Routes<'_>) -> Vec<Path> {
        match self {
            Self::Everything(parts, _) => {
                parts.iter().flat_map(|part| part.paths(routes)).collect()
            }
            Self::Core => Routes::of_core(),
            Self::Groups => Routes::of_groups(),
            Self::Version => Routes::of_version(),
            Self::Issuer => Routes::of_issuer(),
            Self::Keys => Routes::of_keys(),
            Self::Group(group) => Routes::of_group(group),
            Self::GroupVersion(group_version, resources) => {
                routes.of_group_version(group_version, resources)
            }
            Self::Custom(group_version, resources) => {
                routes.of_custom(group_version, resources.iter().map(AsRef::as_ref))
            }
            Self::Converted(_) => Vec::new(),
        }
    }

    fn custom(&self) -> Vec<&CustomResource> {
        match self {
            Self::Everything(parts, _) => parts.iter().flat_map(Self::custom).collect(),
            Self::Custom(_, resources) => resources.iter().map(AsRef::as_ref).collect(),
            _ => Vec::new(),
        }
    }
}

impl OpenApiDocument {
    fn new(scope: DocumentScope, now: Timestamp) -> Self {
        Self {
            scope,
            last_modified: now,
            hash: OnceLock::new(),
            json: OnceLock::new(),
            protobuf: OnceLock::new(),
        }
    }

    fn answer(
        &self,
        offered: OfferedFormat,
        inputs: &Inputs,
        request: DocumentRequest<'_>,
    ) -> DocumentResponse {
        let json = self.json.get_or_init(|| self.render(&OpenApiRenderer::new(inputs)).into());
        let hash = self.hash.get_or_init(|| hash(json));
        let etag = Some(format!("\"{hash}\""));
        if self.is_not_modified(request, etag.as_deref()) {
            return DocumentResponse { code: 304, etag, ..DocumentResponse::default() };
        }
        let body = match offered.form {
            DocumentEncoding::Json => json.clone(),
            DocumentEncoding::Protobuf => self.protobuf(inputs),
        };
        let last_modified = Some(http_date(self.last_modified));
        DocumentResponse { etag, last_modified, ..DocumentResponse::ok(offered.content_type, body) }
    }

    /// Reuses cached bytes, but does not cache them.
    fn hash(&self, renderer: &OpenApiRenderer<'_>) -> &str {
        self.hash.get_or_init(|| match self.json.get() {
            Some(json) => hash(json),
            None => hash(&self.render(renderer)),
        })
    }

    fn protobuf(&self, inputs: &Inputs) -> Bytes {
        let render = || {
            OpenApiRenderer::new(inputs).document(&self.scope, DocumentEncoding::Protobuf).into()
        };
        self.protobuf.get_or_init(render).clone()
    }

    fn render(&self, renderer: &OpenApiRenderer<'_>) -> Vec<u8> {
        renderer.document(&self.scope, DocumentEncoding::Json)
    }

    /// Whether the client has the current document. `If-None-Match` has precedence over
    /// `If-Modified-Since`.
    fn is_not_modified(&self, request: DocumentRequest<'_>, etag: Option<&str>) -> bool {
        if let Some(known) = request.if_none_match {
            let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
            return known.split(',').map(strong).any(|tag| tag == "*" || Some(&*tag) == etag);
        }
        let since = request.if_modified_since.and_then(|since| rfc2822::parse(since).ok());
        since.is_some_and(|since| self.last_modified.as_second() <= since.timestamp().as_second())
    }
}

fn hash(json: &[u8]) -> String {
    upper_hex(&Sha512::digest(json))
}

fn http_date(time: Timestamp) -> String {
    // Years before 1 and after 9999 have no HTTP date.
    rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap_or_default()
}

/// What rendering needs; dropped afterwards.
struct OpenApiRenderer<'a> {
    schema: &'a Schema,
    kinds: TypesByKind<'a>,
    describe: Box<dyn Describe>,
}

impl<'a> OpenApiRenderer<'a> {
    fn new(inputs: &'a Inputs) -> Self {
        let schema = &*inputs.schema;
        Self { schema, kinds: TypesByKind::of(schema), describe: (inputs.descriptions)() }
    }

    fn document(&self, scope: &DocumentScope, form: DocumentEncoding) -> Vec<u8> {
        let custom = CustomDefinitions::of(scope.custom());
        let (schema, describe) = (self.schema, &*self.describe);
        let source = DocumentSource { schema, describe, custom: &custom, version: VERSION };
        let paths = scope.paths(&Routes { schema: self.schema, kinds: &self.kinds });
        match scope {
            DocumentScope::Everything(_, foreign) => {
                let foreign = foreign.iter().filter_map(|part| {
                    let options = codec::json::DecodeOptions { strict: false };
                    codec::json::decode_any(part, options).ok().map(|decoded| decoded.value)
                });
                v2_document(source, &paths, foreign, form)
            }
            DocumentScope::Converted(v2) => {
                let options = codec::json::DecodeOptions { strict: false };
                let v2 = codec::json::decode_any(v2, options).map(|decoded| decoded.value);
                v3_from_v2(&v2.unwrap_or_default(), form)
            }
            DocumentScope::GroupVersion(home, _) => v3_document(source, Some(home), &paths, form),
            _ => v3_document(source, None, &paths, form),
        }
    }
}

/// The Kubernetes version in the documents.
const VERSION: &str = "1.36";

/// A format of documents, and the media type by which clients request it.
#[derive(Clone, Copy)]
struct OfferedFormat {
    accepted_as: &'static str,
    form: DocumentEncoding,
    content_type: &'static str,
}

impl OfferedFormat {
    const fn json() -> Self {
        let json = "application/json";
        Self { accepted_as: json, form: DocumentEncoding::Json, content_type: json }
    }

    const fn protobuf(accepted_as: &'static str, content_type: &'static str) -> Self {
        Self { accepted_as, form: DocumentEncoding::Protobuf, content_type }
    }

    /// The offered format that the client prefers.
    fn negotiate(accept: Option<&str>, offers: &[Self; 3]) -> Option<Self> {
        let accept = accept.filter(|header| !header.is_empty()).unwrap_or("*/*");
        let clauses = accept::parse(accept);
        let mut wanted = clauses
            .iter()
            .filter_map(|clause| offers.iter().find(|offered| clause.allows(offered.accepted_as)));
        wanted.next().copied()
    }
}

const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const V3_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

/// Compat: kubectl before v1.27 sends a media type with an `@`, which is not a valid token.
const V2_FORMATS: [OfferedFormat; 3] = [
    OfferedFormat::json(),
    OfferedFormat::protobuf(
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        V2_PROTOBUF,
    ),
    OfferedFormat::protobuf(V2_PROTOBUF, V2_PROTOBUF),
];

const V3_FORMATS: [OfferedFormat; 3] = [
    OfferedFormat::json(),
    OfferedFormat::protobuf(
        "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
        V3_PROTOBUF,
    ),
    OfferedFormat::protobuf(V3_PROTOBUF, V3_PROTOBUF),
];
