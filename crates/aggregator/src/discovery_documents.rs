//! The discovery documents as bytes, rendered once per change of the served group-versions, and the
//! negotiation of their format.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use codec::negotiate::{self, Endpoint, NegotiateError};
use codec::protobuf::{Envelope, Tables};
use codec::{json, protobuf, yaml};
use meta::{ApiError, Str, Value, value};
use schema::{Schema, TypeId};
use sha2::{Digest, Sha512};

use crate::served_group_version::{Group, ServedGroupVersion, groups};
use crate::{PeerProxy, accept, discovery, peer_merge::merge_groups};

/// All discovery documents. Rebuilt and swapped as a whole when the served group-versions change.
#[derive(Debug, Default)]
pub struct DiscoveryDocuments {
    by_path: HashMap<String, DiscoveryEndpoint>,
    /// Groups with custom resources only; requests for other resources of them go to the
    /// apiextensions-apiserver.
    custom_groups: HashSet<Str>,
}

/// The documents of one path: the unaggregated one, and for `/api` and `/apis` the aggregated one.
#[derive(Debug)]
struct DiscoveryEndpoint {
    plain: DiscoveryDocument,
    aggregated: Option<DiscoveryDocument>,
    /// The same with what other API servers of the cluster serve, if they serve anything else.
    peer_aggregated: Option<DiscoveryDocument>,
    /// There may be other API servers.
    knows_peers: bool,
    /// Compat: in kube-apiserver go-restful checks the method and the `Accept` header of these paths first; the paths of
    /// groups and of custom resources do not pass through it.
    is_routed: bool,
}

#[derive(Debug)]
struct DiscoveryDocument {
    json: Bytes,
    protobuf: Bytes,
    /// With quotes; only aggregated discovery has one.
    etag: Option<String>,
}

/// The response to a GET. The server sets headers that are None: without `cache_control` it forbids
/// caching.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DocumentResponse {
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
    /// It has, or would have, what peers serve.
    pub(crate) of_all_peers: bool,
}

impl DiscoveryDocuments {
    /// `schema` has the types of the documents themselves, `address` is the external `host:port` of
    /// this server.
    pub fn new(served: &[ServedGroupVersion], schema: &Schema, address: &str) -> Self {
        let groups = groups(served);
        let renderer = DiscoveryRenderer { schema, tables: Tables::new(schema) };
        let core = groups.iter().find(|group| group.name.is_empty());
        let others = || groups.iter().filter(|group| !group.name.is_empty());
        let mut by_path = HashMap::new();
        if let Some(core) = core {
            let plain = renderer.meta("APIVersions", &discovery::api_versions(core, address));
            let aggregated = Some(renderer.aggregated([core].into_iter()));
            by_path.insert("/api".to_owned(), DiscoveryEndpoint::new(plain, aggregated, true));
        }
        let plain = renderer.meta("APIGroupList", &discovery::api_group_list(others()));
        let aggregated = Some(renderer.aggregated(others()));
        by_path.insert("/apis".to_owned(), DiscoveryEndpoint::new(plain, aggregated, false));
        for group in others() {
            let plain = renderer.meta("APIGroup", &discovery::api_group(group));
            // The kube-aggregator's own group is one of its resources.
            let endpoint = DiscoveryEndpoint::new(plain, None, group.name == OWN_GROUP);
            by_path.insert(format!("/apis/{}", group.name), endpoint);
        }
        // Other servers answer for themselves.
        for served in served.iter().filter(|served| served.remote.is_none()) {
            let root = if served.group_version.group.is_empty() { "/api" } else { "/apis" };
            let plain = renderer.meta("APIResourceList", &discovery::api_resource_list(served));
            let endpoint = DiscoveryEndpoint::new(plain, None, served.custom.is_none());
            by_path.insert(format!("{root}/{}", served.group_version), endpoint);
        }
        let of_custom =
            |group: &&Group<'_>| group.versions.iter().all(|version| version.custom.is_some());
        let custom_groups = groups.iter().filter(of_custom).map(|group| group.name.clone());
        Self { by_path, custom_groups: custom_groups.collect() }
    }

    /// Aggregated discovery of `/apis` also has what peers serve, unless a client does not want it.
    #[must_use]
    pub fn with_peers(mut self, peers: &PeerProxy, schema: &Schema) -> Self {
        let Some(endpoint) = self.by_path.get_mut("/apis") else { return self };
        let Some(own) = &endpoint.aggregated else { return self };
        endpoint.knows_peers = true;
        let renderer = DiscoveryRenderer { schema, tables: Tables::new(schema) };
        let merged = merge_groups(&peers.id, &renderer.groups_of(own), &peers.groups());
        endpoint.peer_aggregated = merged
            .map(|groups| renderer.aggregated_groups(value!({"metadata": {}, "items": (groups)})));
        self
    }

    pub(crate) fn knows_peers(&self) -> bool {
        self.by_path.get("/apis").is_some_and(|endpoint| endpoint.knows_peers)
    }

    /// Whether a group has nothing but custom resources.
    pub(crate) fn is_custom(&self, group: &str) -> bool {
        self.custom_groups.contains(group)
    }

    /// Whether a path has a document, i.e. its group or group-version is served.
    pub fn has(&self, path: &str) -> bool {
        self.by_path.contains_key(path)
    }

    /// Whether a document answers GET only.
    pub fn is_read_only(&self, path: &str) -> bool {
        let endpoint = self.by_path.get(path.strip_suffix('/').unwrap_or(path));
        endpoint.is_some_and(|endpoint| endpoint.is_routed)
    }

    /// Every path that has a document, for the index.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.by_path.keys().map(String::as_str)
    }

    /// The response to a GET; None if the path is not one of discovery.
    pub fn answer(
        &self,
        path: &str,
        accept: Option<&str>,
        if_none_match: Option<&str>,
    ) -> Option<Result<DocumentResponse, ApiError>> {
        let endpoint = self.by_path.get(path.strip_suffix('/').unwrap_or(path))?;
        // Compat: kube-aggregator has aggregated discovery without the slash only.
        let aggregates = path != "/apis/";
        Some(endpoint.answer(accept, if_none_match, aggregates))
    }
}

impl DiscoveryEndpoint {
    fn new(
        plain: DiscoveryDocument,
        aggregated: Option<DiscoveryDocument>,
        is_routed: bool,
    ) -> Self {
        Self { plain, aggregated, peer_aggregated: None, knows_peers: false, is_routed }
    }

    fn answer(
        &self,
        accept: Option<&str>,
        if_none_match: Option<&str>,
        aggregates: bool,
    ) -> Result<DocumentResponse, ApiError> {
        if self.is_routed
            && let Err(error @ NegotiateError::NotRepresentable(_)) =
                negotiate::accept(accept, Endpoint::Document, negotiate::OFFERED)
        {
            return Err(ApiError::NotRepresentable(error.to_string()));
        }
        let accept = accept.filter(|header| !header.is_empty());
        let clauses = accept::parse(accept.unwrap_or("*/*"));
        // Compat: a client that accepts aggregated discovery gets it, whatever its preferences.
        if let Some(document) = self.aggregated.as_ref().filter(|_| aggregates) {
            for version in [V2, V2BETA1] {
                let wanted = Some((DISCOVERY_GROUP, version, LIST));
                let chosen = DocumentFormat::negotiate(&clauses, |target| target == wanted);
                let Some((format, clause)) = chosen else { continue };
                let with_peers = version == V2 && clause.param("profile") != Some("nopeer");
                let merged = self.peer_aggregated.as_ref().filter(|_| with_peers);
                let document = merged.unwrap_or(document);
                let answer = document.aggregated_response(format, version, if_none_match);
                let of_all_peers = self.knows_peers && with_peers;
                return Ok(DocumentResponse { of_all_peers, ..answer });
            }
        }
        let format = DocumentFormat::negotiate(&clauses, |target| target.is_none());
        let (format, _) = format.ok_or_else(|| ApiError::NotAcceptable(not_acceptable()))?;
        Ok(DocumentResponse::ok(format.media, self.plain.body(format)))
    }
}

/// Group, kind and versions of aggregated discovery; the versions differ in their names only.
/// kube-apiserver removed v2beta1 in v1.35, but clients up to v1.29 know no other.
const OWN_GROUP: &str = "apiregistration.k8s.io";
const DISCOVERY_GROUP: &str = "apidiscovery.k8s.io";
const LIST: &str = "APIGroupDiscoveryList";
const V2: &str = "v2";
const V2BETA1: &str = "v2beta1";

/// A format of documents.
#[derive(Clone, Copy)]
struct DocumentFormat {
    encoding: Encoding,
    media: &'static str,
    v2: &'static str,
    v2beta1: &'static str,
}

#[derive(Clone, Copy)]
enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

/// In the server's order of preference.
const FORMATS: [DocumentFormat; 3] = [
    DocumentFormat {
        encoding: Encoding::Json,
        media: "application/json",
        v2: "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        v2beta1: "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    },
    DocumentFormat {
        encoding: Encoding::Yaml,
        media: "application/yaml",
        v2: "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        v2beta1: "application/yaml;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    },
    DocumentFormat {
        encoding: Encoding::Protobuf,
        media: "application/vnd.kubernetes.protobuf",
        v2: concat!(
            "application/vnd.kubernetes.protobuf",
            ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        ),
        v2beta1: concat!(
            "application/vnd.kubernetes.protobuf",
            ";g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
        ),
    },
];

impl DocumentFormat {
    /// The first format of the first clause whose target `fits`, and the clause.
    fn negotiate<'a, 'h>(
        clauses: &'a [accept::AcceptClause<'h>],
        fits: impl Fn(Option<(&str, &str, &str)>) -> bool,
    ) -> Option<(Self, &'a accept::AcceptClause<'h>)> {
        let fitting = clauses.iter().filter(|clause| fits(target(clause)));
        let mut wanted = fitting.filter_map(|clause| {
            let mut formats = FORMATS.iter().filter(|format| clause.allows(format.media));
            let format = formats.find(|format| format.can_stream(clause.param("stream")))?;
            Some((*format, clause))
        });
        wanted.next()
    }
}

impl DocumentFormat {
    /// Compat: a client may ask for a stream of a document where the format has streams, and gets the document.
    fn can_stream(self, stream: Option<&str>) -> bool {
        match stream.unwrap_or_default() {
            "" => true,
            "watch" => !matches!(self.encoding, Encoding::Yaml),
            _ => false,
        }
    }
}

/// Group, version and kind (parameters `g`, `v` and `as`) that a clause asks for.
fn target<'a>(clause: &'a accept::AcceptClause<'_>) -> Option<(&'a str, &'a str, &'a str)> {
    let [group, version, kind] = ["g", "v", "as"].map(|name| clause.param(name));
    let or_empty = |part: Option<&'a str>| part.unwrap_or_default();
    (group.is_some() || version.is_some() || kind.is_some())
        .then(|| (or_empty(group), or_empty(version), or_empty(kind)))
}

fn not_acceptable() -> String {
    let media: Vec<&str> = FORMATS.iter().map(|format| format.media).collect();
    format!("only the following media types are accepted: {}", media.join(", "))
}

impl DiscoveryDocument {
    fn body(&self, format: DocumentFormat) -> Bytes {
        match format.encoding {
            Encoding::Json => self.json.clone(),
            Encoding::Protobuf => self.protobuf.clone(),
            Encoding::Yaml => self.yaml().into(),
        }
    }

    /// Rarely requested, so it is not cached.
    fn yaml(&self) -> String {
        let document = json::decode_any(&self.json, json::DecodeOptions::default());
        yaml::emit(&document.expect("rendered above").value)
    }

    /// The same document with another apiVersion. Rarely requested, so it is not cached.
    fn with_version(&self, version: &str) -> Self {
        let (here, renamed) =
            (format!("\"{DISCOVERY_GROUP}/{V2}\""), format!("{DISCOVERY_GROUP}/{version}"));
        // Only the list has an apiVersion, at its beginning; its items have none.
        let json =
            String::from_utf8_lossy(&self.json).replacen(&here, &format!("\"{renamed}\""), 1);
        let message = Envelope::open(&self.protobuf).expect("sealed above");
        let protobuf = protobuf::seal(&renamed, LIST, message.raw);
        Self { json: json.into(), protobuf: protobuf.into(), etag: None }
    }

    fn aggregated_response(
        &self,
        format: DocumentFormat,
        version: &'static str,
        if_none_match: Option<&str>,
    ) -> DocumentResponse {
        let mut answer = if if_none_match.is_some() && if_none_match == self.etag.as_deref() {
            DocumentResponse { code: 304, ..DocumentResponse::default() }
        } else if version == V2BETA1 {
            DocumentResponse::ok(format.v2beta1, self.with_version(version).body(format))
        } else {
            DocumentResponse::ok(format.v2, self.body(format))
        };
        answer.etag.clone_from(&self.etag);
        answer.cache_control = Some("public");
        answer.vary = Some("Accept");
        answer
    }
}

impl DocumentResponse {
    pub(crate) fn ok(content_type: &'static str, body: Bytes) -> Self {
        Self { code: 200, content_type, body, ..Self::default() }
    }
}

const AGGREGATED_LIST: &str = "io.k8s.api.apidiscovery.v2.APIGroupDiscoveryList";

struct DiscoveryRenderer<'a> {
    schema: &'a Schema,
    tables: Tables,
}

impl DiscoveryRenderer<'_> {
    /// Renders a document of a type of `meta/v1`.
    fn meta(&self, kind: &str, document: &Value) -> DiscoveryDocument {
        let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}");
        DiscoveryDocument {
            json: self.json(&name, document).into(),
            protobuf: self.protobuf(&name, document).into(),
            etag: None,
        }
    }

    fn aggregated<'a>(&self, groups: impl Iterator<Item = &'a Group<'a>>) -> DiscoveryDocument {
        self.aggregated_groups(discovery::aggregated(groups))
    }

    /// The groups of a document, in the form in which those of peers are read.
    fn groups_of(&self, document: &DiscoveryDocument) -> Vec<Value> {
        let options = json::DecodeOptions { strict: false };
        let decoded =
            json::decode(&document.json, self.schema, self.type_of(AGGREGATED_LIST), options);
        decoded.expect("rendered above").value.items_at(&["items"]).to_vec()
    }

    fn aggregated_groups(&self, document: Value) -> DiscoveryDocument {
        let name = AGGREGATED_LIST;
        // Compat: the ETag hashes the document without kind, apiVersion and the final newline.
        let hashed = self.json(name, &document);
        let hash = Sha512::digest(hashed.trim_ascii_end());
        let document = discovery::as_aggregated(document);
        DiscoveryDocument {
            json: self.json(name, &document).into(),
            protobuf: self.protobuf(name, &document).into(),
            etag: Some(format!("\"{}\"", upper_hex(&hash))),
        }
    }

    fn json(&self, name: &str, document: &Value) -> Vec<u8> {
        let mut json = Vec::new();
        json::encode(document, self.schema, self.type_of(name), &mut json);
        json.push(b'\n');
        json
    }

    fn protobuf(&self, name: &str, document: &Value) -> Vec<u8> {
        protobuf::encode_object(document, &self.tables, self.schema, self.type_of(name))
            .expect("rendered by the same types")
    }

    fn type_of(&self, name: &str) -> TypeId {
        self.schema.by_name(name).expect("the types of discovery are built in")
    }
}

pub(crate) fn upper_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789ABCDEF"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
