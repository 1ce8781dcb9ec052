//! OpenAPI of the whole: which documents there are, and what a request for one of them gets.
//!
//! Documents are large and seldom asked for. They are rendered when they are, and kept as bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use descriptions::Descriptions;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use meta::{GroupVersion, Map, Str, json, value};
use schema::openapi::{
    CustomDefinitions, CustomResource, Describe, DocumentEncoding, DocumentSource, Path, Routes,
    TypesByKind, v2_document, v3_document,
};
use schema::{ResourceFacts, Schema};
use sha2::{Digest, Sha512};

use crate::documents::upper_hex;
use crate::{DocumentResponse, ServedGroupVersion, accept};

/// The OpenAPI documents of a server. Rebuilt and swapped as a whole when the table changes.
pub struct OpenApi {
    schema: Arc<Schema>,
    /// By the path below `/openapi/v3/`.
    v3: BTreeMap<String, Arc<Document>>,
    v3_index: OnceLock<Bytes>,
    v2: Document,
}

/// A request for a document.
#[derive(Clone, Copy, Debug, Default)]
pub struct DocumentRequest<'a> {
    pub path: &'a str,
    /// The value of the parameter `hash`, if it was given.
    pub hash: Option<&'a str>,
    pub accept: Option<&'a str>,
    pub if_none_match: Option<&'a str>,
    pub if_modified_since: Option<&'a str>,
}

/// A document that may not have been rendered yet.
struct Document {
    subject: Subject,
    last_modified: Timestamp,
    hash: OnceLock<String>,
    json: OnceLock<Bytes>,
    protobuf: OnceLock<Bytes>,
}

/// What a document is about.
#[derive(Clone)]
enum Subject {
    Everything(Vec<Subject>),
    Core,
    Groups,
    Version,
    Issuer,
    Keys,
    Group(Str),
    GroupVersion(GroupVersion, Vec<Arc<ResourceFacts>>),
    Custom(GroupVersion, Vec<Arc<CustomResource>>),
}

impl OpenApi {
    /// Nothing is rendered here. What was rendered for an unchanged part of the `previous` table is
    /// taken over.
    pub fn new(
        served: &[ServedGroupVersion],
        schema: Arc<Schema>,
        now: SystemTime,
        previous: Option<&OpenApi>,
    ) -> Self {
        let now = Timestamp::try_from(now).unwrap_or_default();
        let subjects = subjects(served);
        let v2 = Document::new(Subject::Everything(subjects.values().cloned().collect()), now);
        let v3 = subjects.into_iter().map(|(path, subject)| {
            let known = previous.and_then(|previous| previous.v3.get(&path));
            let document = match known.filter(|known| known.subject.is(&subject)) {
                Some(known) => Arc::clone(known),
                None => Arc::new(Document::new(subject, now)),
            };
            (path, document)
        });
        Self { schema, v3: v3.collect(), v3_index: OnceLock::new(), v2 }
    }

    /// What there is a document of v3 for: `apis/apps/v1`.
    pub fn documents(&self) -> impl Iterator<Item = &str> {
        self.v3.keys().map(String::as_str)
    }

    /// The paths, as the index shows them: one for all documents of v3.
    pub const PATHS: [&str; 3] = ["/openapi/v2", "/openapi/v3", "/openapi/v3/"];

    /// Answers a GET, if the path is one of OpenAPI. The first request for a document takes as long as
    /// rendering it: some milliseconds; for the index or v2 some tenths of a second.
    pub fn answer(
        &self,
        question: DocumentRequest<'_>,
        now: SystemTime,
    ) -> Option<DocumentResponse> {
        let now = Timestamp::try_from(now).unwrap_or_default();
        match question.path.strip_prefix("/openapi/")? {
            "v2" => Some(self.answer_v2(question)),
            "v3" => Some(self.answer_index(now)),
            path => Some(self.answer_v3(path.strip_prefix("v3/")?, question, now)),
        }
    }

    fn answer_v2(&self, question: DocumentRequest<'_>) -> DocumentResponse {
        let vary = Some("Accept-Encoding, Accept");
        let Some(offer) = Offer::wanted(question.accept, &V2_OFFERS) else {
            return DocumentResponse { code: 406, vary, ..DocumentResponse::default() };
        };
        let answer = self.v2.answer(offer, &self.schema, question);
        DocumentResponse { vary, ..answer }
    }

    /// Compat: the index never told its type, so Go guessed it.
    fn answer_index(&self, now: Timestamp) -> DocumentResponse {
        let body = self.v3_index.get_or_init(|| self.index().into()).clone();
        let last_modified = Some(http_date(now));
        DocumentResponse {
            last_modified,
            ..DocumentResponse::ok("text/plain; charset=utf-8", body)
        }
    }

    /// The hashes are needed, the documents aren't: most of them will never be asked for.
    fn index(&self) -> Vec<u8> {
        let workshop = Workshop::new(&self.schema);
        let paths: Map = self
            .v3
            .iter()
            .map(|(path, document)| {
                let url = hashed_path(path, document.hash(&workshop));
                (path.as_str(), value!({"serverRelativeURL": (url)}))
            })
            .collect();
        let mut index = Vec::new();
        json::write_value(&mut index, &value!({"paths": (paths)}));
        index
    }

    fn answer_v3(
        &self,
        path: &str,
        question: DocumentRequest<'_>,
        now: Timestamp,
    ) -> DocumentResponse {
        let Some(document) = self.v3.get(path) else {
            return DocumentResponse { code: 404, ..DocumentResponse::default() };
        };
        let vary = Some("Accept");
        let Some(offer) = Offer::wanted(question.accept, &V3_OFFERS) else {
            return DocumentResponse { code: 406, vary, ..DocumentResponse::default() };
        };
        let answer = DocumentResponse { vary, ..document.answer(offer, &self.schema, question) };
        let Some(hash) = question.hash else { return answer };
        // With its hash in the URL a document never changes; with another hash it is another one.
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

/// What there are documents about, by the path that they have in v3.
fn subjects(served: &[ServedGroupVersion]) -> BTreeMap<String, Subject> {
    let mut subjects = BTreeMap::from([
        (".well-known/openid-configuration".to_owned(), Subject::Issuer),
        ("api".to_owned(), Subject::Core),
        ("apis".to_owned(), Subject::Groups),
        ("openid/v1/jwks".to_owned(), Subject::Keys),
        ("version".to_owned(), Subject::Version),
    ]);
    for served in served {
        let group_version = &served.group_version;
        if let Some(custom) = &served.custom {
            let subject = Subject::Custom(group_version.clone(), custom.clone());
            subjects.insert(format!("apis/{group_version}"), subject);
            continue;
        }
        let subject = Subject::GroupVersion(group_version.clone(), served.resources.clone());
        let group = &group_version.group;
        if group.is_empty() {
            subjects.insert(format!("api/{group_version}"), subject);
        } else {
            subjects.insert(format!("apis/{group}"), Subject::Group(group.clone()));
            subjects.insert(format!("apis/{group_version}"), subject);
        }
    }
    subjects
}

impl Subject {
    /// The same, and rendered the same.
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
            (Self::GroupVersion(..), Self::Custom(..))
            | (Self::Custom(..), Self::GroupVersion(..)) => false,
            // The others are told apart by their path.
            _ => true,
        }
    }

    fn paths(&self, routes: &Routes<'_>) -> Vec<Path> {
        match self {
            Self::Everything(parts) => parts.iter().flat_map(|part| part.paths(routes)).collect(),
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
        }
    }

    fn custom(&self) -> Vec<&CustomResource> {
        match self {
            Self::Everything(parts) => parts.iter().flat_map(Self::custom).collect(),
            Self::Custom(_, resources) => resources.iter().map(AsRef::as_ref).collect(),
            _ => Vec::new(),
        }
    }
}

impl Document {
    fn new(subject: Subject, now: Timestamp) -> Self {
        Self {
            subject,
            last_modified: now,
            hash: OnceLock::new(),
            json: OnceLock::new(),
            protobuf: OnceLock::new(),
        }
    }

    fn answer(
        &self,
        offer: Offer,
        schema: &Schema,
        question: DocumentRequest<'_>,
    ) -> DocumentResponse {
        let json = self.json.get_or_init(|| self.render(&Workshop::new(schema)).into());
        let hash = self.hash.get_or_init(|| hash(json));
        let etag = Some(format!("\"{hash}\""));
        if self.is_known_to(question, etag.as_deref()) {
            return DocumentResponse { code: 304, etag, ..DocumentResponse::default() };
        }
        let body = match offer.form {
            DocumentEncoding::Json => json.clone(),
            DocumentEncoding::Protobuf => self.protobuf(schema),
        };
        let last_modified = Some(http_date(self.last_modified));
        DocumentResponse { etag, last_modified, ..DocumentResponse::ok(offer.content_type, body) }
    }

    /// The bytes are only kept if someone asked for them before.
    fn hash(&self, workshop: &Workshop<'_>) -> &str {
        self.hash.get_or_init(|| match self.json.get() {
            Some(json) => hash(json),
            None => hash(&self.render(workshop)),
        })
    }

    fn protobuf(&self, schema: &Schema) -> Bytes {
        let render =
            || Workshop::new(schema).document(&self.subject, DocumentEncoding::Protobuf).into();
        self.protobuf.get_or_init(render).clone()
    }

    fn render(&self, workshop: &Workshop<'_>) -> Vec<u8> {
        workshop.document(&self.subject, DocumentEncoding::Json)
    }

    /// Does the client have it already? Hashes count more than times.
    fn is_known_to(&self, question: DocumentRequest<'_>, etag: Option<&str>) -> bool {
        if let Some(known) = question.if_none_match {
            let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
            return known.split(',').map(strong).any(|tag| tag == "*" || Some(&*tag) == etag);
        }
        let since = question.if_modified_since.and_then(|since| rfc2822::parse(since).ok());
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

/// What is needed for rendering, and let go afterwards.
struct Workshop<'a> {
    schema: &'a Schema,
    kinds: TypesByKind<'a>,
    describe: Known,
}

impl<'a> Workshop<'a> {
    fn new(schema: &'a Schema) -> Self {
        Self { schema, kinds: TypesByKind::of(schema), describe: Known(Descriptions::load()) }
    }

    fn document(&self, subject: &Subject, form: DocumentEncoding) -> Vec<u8> {
        let custom = CustomDefinitions::of(subject.custom());
        let (schema, describe) = (self.schema, &self.describe);
        let source = DocumentSource { schema, describe, custom: &custom, version: VERSION };
        let paths = subject.paths(&Routes { schema: self.schema, kinds: &self.kinds });
        match subject {
            Subject::Everything(_) => v2_document(source, &paths, form),
            Subject::GroupVersion(home, _) => v3_document(source, Some(home), &paths, form),
            _ => v3_document(source, None, &paths, form),
        }
    }
}

/// The version of Kubernetes that the documents are those of.
const VERSION: &str = "1.36";

struct Known(Descriptions);

impl Describe for Known {
    fn definition(&self, definition: &str) -> Option<Cow<'_, str>> {
        self.0.definition(definition)
    }

    fn field(&self, definition: &str, field: &str) -> Option<Cow<'_, str>> {
        self.0.field(definition, field)
    }
}

/// A form that documents are handed out in, and what clients call it.
#[derive(Clone, Copy)]
struct Offer {
    asked_as: &'static str,
    form: DocumentEncoding,
    content_type: &'static str,
}

impl Offer {
    const fn json() -> Self {
        let json = "application/json";
        Self { asked_as: json, form: DocumentEncoding::Json, content_type: json }
    }

    const fn protobuf(asked_as: &'static str, content_type: &'static str) -> Self {
        Self { asked_as, form: DocumentEncoding::Protobuf, content_type }
    }

    /// The form that a client wants most of those that there are.
    fn wanted(accept: Option<&str>, offers: &[Self; 3]) -> Option<Self> {
        let accept = accept.filter(|header| !header.is_empty()).unwrap_or("*/*");
        let clauses = accept::parse(accept);
        let mut wanted = clauses
            .iter()
            .filter_map(|clause| offers.iter().find(|offer| clause.allows(offer.asked_as)));
        wanted.next().copied()
    }
}

const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const V3_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

/// Compat: kubectl before v1.27 writes an `@` that no media type may have.
const V2_OFFERS: [Offer; 3] = [
    Offer::json(),
    Offer::protobuf("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", V2_PROTOBUF),
    Offer::protobuf(V2_PROTOBUF, V2_PROTOBUF),
];

const V3_OFFERS: [Offer; 3] = [
    Offer::json(),
    Offer::protobuf("application/com.github.proto-openapi.spec.v3@v1.0+protobuf", V3_PROTOBUF),
    Offer::protobuf(V3_PROTOBUF, V3_PROTOBUF),
];
