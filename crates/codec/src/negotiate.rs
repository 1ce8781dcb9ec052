//! Which bytes a client sends and wants: `Content-Type`, `Accept` with its parameters, and `pretty`.
//!
//! Clients rely on the details. kubectl asks for a `Table` first and for plain JSON second in one
//! header; client-go asks for protobuf with JSON to fall back on.

use std::fmt;

use thiserror::Error;

/// A format of the wire. The first three are always offered, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaType {
    Json,
    Yaml,
    Protobuf,
    Cbor,
}

/// What the client wants instead of the object itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transform {
    Table(MetaVersion),
    /// Of one object, or of each item of a list.
    PartialObjectMetadata(MetaVersion),
    PartialObjectMetadataList(MetaVersion),
}

/// A version of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    V1,
    V1Beta1,
}

/// A version of `apidiscovery.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryVersion {
    V2,
    V2Beta1,
}

/// What an endpoint supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A built-in resource.
    Resource,
    /// A built-in one without columns: a review, most subresources.
    Tableless,
    /// A custom resource: protobuf only for types that are not the resource itself.
    CustomResource,
    /// Nothing that could be transformed: discovery, version, options.
    Document,
}

/// What a client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub media_type: MediaType,
    pub transform: Option<Transform>,
    /// Indented output was requested.
    pub pretty: bool,
    /// `stream=watch` was given.
    pub stream: bool,
    /// `profile`, for discovery.
    pub profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NegotiateError {
    /// The 406 of go-restful, the router of built-in kinds, if none of its media types is accepted.
    #[error("406: Not Acceptable\n\nAvailable representations: {0}")]
    NotRepresentable(String),
    #[error("only the following media types are accepted: {0}")]
    NotAcceptable(String),
    #[error("the body of the request was in an unknown format - accepted media types include: {0}")]
    UnsupportedMediaType(String),
}

/// The formats that a server offers, in its order.
pub type Offered = &'static [MediaType];

/// What every server offers.
pub const OFFERED: Offered = &[MediaType::Json, MediaType::Yaml, MediaType::Protobuf];

/// With the feature gate `CBORServingAndStorage`.
pub const OFFERED_WITH_CBOR: Offered =
    &[MediaType::Json, MediaType::Yaml, MediaType::Protobuf, MediaType::Cbor];

/// More clauses of an `Accept` header are not looked at.
const CLAUSES_MAX: usize = 64;

/// What to answer with. Without a header it is JSON.
pub fn accept(
    header: Option<&str>,
    endpoint: Endpoint,
    offered: Offered,
) -> Result<Accepted, NegotiateError> {
    if endpoint != Endpoint::CustomResource && !is_representable(header, offered) {
        return Err(NegotiateError::NotRepresentable(names(offered)));
    }
    choose(header, endpoint, offered)
}

/// What to answer with, if the router has let the request through.
fn choose(
    header: Option<&str>,
    endpoint: Endpoint,
    offered: Offered,
) -> Result<Accepted, NegotiateError> {
    negotiate(header, offered, |media_type, convert| match convert {
        None => {
            let allowed = endpoint != Endpoint::CustomResource || media_type != MediaType::Protobuf;
            allowed.then_some(None)
        }
        Some(_) if endpoint == Endpoint::Document => None,
        Some(convert) if endpoint == Endpoint::Tableless && convert.kind == "Table" => None,
        Some(convert) => transform(convert, media_type).map(Some),
    })
    .ok_or_else(|| NegotiateError::NotAcceptable(names(offered)))
}

/// The format of an error response: the first accepted one without a transformation. The router's
/// check does not apply here.
pub fn accept_as_is(header: Option<&str>, offered: Offered) -> Option<Accepted> {
    negotiate(header, offered, |_, convert| convert.is_none().then_some(None))
}

/// What to answer a watch with.
pub fn accept_stream(
    header: Option<&str>,
    endpoint: Endpoint,
    offered: Offered,
) -> Result<Accepted, NegotiateError> {
    match accept(header, endpoint, offered) {
        Ok(accepted) if accepted.media_type.can_stream() => Ok(accepted),
        Err(NegotiateError::NotRepresentable(_)) => {
            Err(NegotiateError::NotRepresentable(names_of_collection(offered)))
        }
        _ => Err(NegotiateError::NotAcceptable(names_of_streams(offered))),
    }
}

/// The 406 of go-restful where a resource is listed and watched.
pub fn names_of_collection(offered: Offered) -> String {
    format!("{}, {}", names(offered), names_of_streams(offered))
}

fn names_of_streams(offered: Offered) -> String {
    let streams = offered.iter().filter(|media_type| media_type.can_stream());
    let named = streams.map(|media_type| match media_type {
        MediaType::Cbor => media_type.stream_name().to_owned(),
        other => format!("{other};stream=watch"),
    });
    named.collect::<Vec<_>>().join(", ")
}

fn is_representable(header: Option<&str>, offered: Offered) -> bool {
    is_routed(header, |name| is_object_format(name, offered))
}

fn is_object_format(name: &str, offered: Offered) -> bool {
    offered.iter().any(|offered| offered.name() == name || offered.stream_name() == name)
}

/// Whether go-restful finds a type that is produced, or `*/*`. It looks at nothing else; `application/*` is not enough
/// for it.
fn is_routed(header: Option<&str>, is_produced: impl Fn(&str) -> bool) -> bool {
    let header = header.filter(|header| !header.is_empty()).unwrap_or("*/*");
    header.split(',').take(CLAUSES_MAX).any(|clause| {
        let name = clause.split(';').next().unwrap_or_default().trim_matches(' ');
        name == "*/*" || is_produced(name)
    })
}

/// Refuses what does not accept the one type of a document that has no other (`/version`).
pub fn accept_only(header: Option<&str>, produced: &str) -> Result<(), NegotiateError> {
    if is_routed(header, |name| name == produced) {
        return Ok(());
    }
    Err(NegotiateError::NotRepresentable(produced.to_owned()))
}

/// Refuses what accepts no format of objects. Compat: a log is text, which the router offers as well and which is not
/// enough.
pub fn accept_log(header: Option<&str>, offered: Offered) -> Result<(), NegotiateError> {
    if is_routed(header, |name| name == LOG_TYPE || is_object_format(name, offered)) {
        return choose(header, Endpoint::Tableless, offered).map(drop);
    }
    Err(NegotiateError::NotRepresentable(format!("{LOG_TYPE}, {}", names(offered))))
}

const LOG_TYPE: &str = "text/plain";

/// Does the client know aggregated discovery? If not, it gets the plain documents, which are
/// negotiated on their own.
pub fn accept_discovery(header: Option<&str>) -> Option<(Accepted, DiscoveryVersion)> {
    let mut version = None;
    // Without a header the first format is used, without transformation.
    header.filter(|header| !header.is_empty())?;
    let accepted = negotiate(header, OFFERED, |_, convert| {
        let convert = convert?;
        if convert.group != "apidiscovery.k8s.io" || convert.kind != "APIGroupDiscoveryList" {
            return None;
        }
        version = match convert.version {
            "v2" => Some(DiscoveryVersion::V2),
            "v2beta1" => Some(DiscoveryVersion::V2Beta1),
            _ => return None,
        };
        Some(None)
    })?;
    Some((accepted, version?))
}

/// The format of a request's body. Without a header it is JSON.
pub fn content_type(header: Option<&str>, offered: Offered) -> Result<MediaType, NegotiateError> {
    let Some(header) = header.filter(|header| !header.is_empty()) else {
        return Ok(MediaType::Json);
    };
    let media_type = parse_media_type(header);
    offered
        .iter()
        .copied()
        .find(|offered| media_type.as_deref() == Some(offered.name()))
        .ok_or_else(|| NegotiateError::UnsupportedMediaType(names(offered)))
}

/// Should the answer be indented? The query parameter decides; without it, a client that is a person.
pub fn is_pretty(parameter: Option<&str>, user_agent: Option<&str>) -> bool {
    if let Some(parameter) = parameter.filter(|parameter| !parameter.is_empty()) {
        return matches!(parameter, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = user_agent.unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|person| agent.starts_with(person))
}

/// A media type without its parameters, in lower case; none if it is malformed.
pub fn parse_media_type(header: &str) -> Option<String> {
    let (name, parameters) = header.split_once(';').unwrap_or((header, ""));
    let name = name.trim().to_ascii_lowercase();
    let (ty, subtype) = name.split_once('/')?;
    if !is_token(ty) || !is_token(subtype) {
        return None;
    }
    let mut rest = parameters.trim();
    while !rest.is_empty() {
        let (key, value) = rest.split_once('=')?;
        if !is_token(key.trim()) {
            return None;
        }
        let after = if let Some(quoted) = value.trim_start().strip_prefix('"') {
            &quoted[quoted_end(quoted)?..]
        } else {
            let (token, after) = value.split_at(value.find(';').unwrap_or(value.len()));
            if !is_token(token.trim()) {
                return None;
            }
            after
        };
        let after = after.trim_start();
        if !after.is_empty() && !after.starts_with(';') {
            return None;
        }
        rest = after.trim_start_matches(';').trim();
    }
    Some(name)
}

/// Behind the closing quote.
fn quoted_end(quoted: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in quoted.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    let is_special = |byte: u8| b"()<>@,;:\\\"/[]?=".contains(&byte);
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && !is_special(byte))
}

impl MediaType {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::Cbor => "application/cbor",
        }
    }

    /// Can it be cut into events? YAML cannot.
    pub const fn can_stream(self) -> bool {
        !matches!(self, Self::Yaml)
    }

    /// The `Content-Type` of a watch.
    pub const fn stream_name(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml;stream=watch",
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Self::Cbor => "application/cbor-seq",
        }
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn names(media_types: &[MediaType]) -> String {
    media_types.iter().map(|media_type| media_type.name()).collect::<Vec<_>>().join(", ")
}

/// One alternative of an `Accept` header.
#[derive(Default)]
struct Clause<'a> {
    ty: &'a str,
    subtype: &'a str,
    quality: f32,
    convert: Option<Convert<'a>>,
    stream: &'a str,
    server_version: &'a str,
    pretty: bool,
    profile: &'a str,
}

/// `as`, `g` and `v`.
#[derive(Clone, Copy, Default)]
struct Convert<'a> {
    kind: &'a str,
    group: &'a str,
    version: &'a str,
}

/// The first offered format of the first clause that `allow` lets through.
fn negotiate<'a>(
    header: Option<&'a str>,
    offered: Offered,
    mut allow: impl FnMut(MediaType, Option<Convert<'a>>) -> Option<Option<Transform>>,
) -> Option<Accepted> {
    let Some(header) = header.filter(|header| !header.is_empty()) else {
        let (media_type, profile) = (MediaType::Json, String::new());
        let (transform, pretty, stream) = (None, false, false);
        return Some(Accepted { media_type, transform, pretty, stream, profile });
    };
    for clause in clauses(header) {
        for media_type in offered.iter().copied() {
            if !clause.matches(media_type) || !clause.parameters_fit(media_type) {
                continue;
            }
            if let Some(transform) = allow(media_type, clause.convert) {
                return Some(Accepted {
                    media_type,
                    transform,
                    pretty: clause.pretty,
                    stream: clause.stream == "watch",
                    profile: clause.profile.to_owned(),
                });
            }
        }
    }
    None
}

fn transform(convert: Convert<'_>, media_type: MediaType) -> Option<Transform> {
    let version = match (convert.group, convert.version) {
        ("meta.k8s.io", "v1") => MetaVersion::V1,
        ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
        _ => return None,
    };
    match convert.kind {
        // Table cells are arbitrary JSON, which protobuf cannot represent.
        "Table" if media_type == MediaType::Protobuf => None,
        "Table" => Some(Transform::Table(version)),
        "PartialObjectMetadata" => Some(Transform::PartialObjectMetadata(version)),
        "PartialObjectMetadataList" => Some(Transform::PartialObjectMetadataList(version)),
        _ => None,
    }
}

/// The clauses of a header, best first.
fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> =
        header.split(',').take(CLAUSES_MAX).filter_map(Clause::parse).collect();
    // The order is not transitive (quality, then how specific, but compared pair by pair), so the
    // way of sorting shows: Go inserts.
    for end in 1..clauses.len() {
        let mut at = end;
        while at > 0 && clauses[at].is_before(&clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
    clauses
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let spaces = |text: &'a str| text.trim_matches(' ');
        let mut parts = spaces(text).split(';');
        let name = parts.next()?;
        let (ty, subtype) = name.split_once('/').unwrap_or((name, ""));
        let (ty, mut subtype) = (spaces(ty), spaces(subtype));
        if subtype.is_empty() && ty == "*" {
            subtype = "*";
        }
        if subtype.is_empty() || subtype.contains('/') {
            return None;
        }
        let mut clause = Self { ty, subtype, quality: 1.0, ..Self::default() };
        for part in parts {
            let Some((key, value)) = part.split_once('=') else { continue };
            if !value.is_empty() && !value.contains('=') {
                clause.parameter(spaces(key), value, spaces(value));
            }
        }
        Some(clause)
    }

    fn parameter(&mut self, key: &str, raw: &str, value: &'a str) {
        match key {
            "q" => self.quality = raw.parse().unwrap_or(0.0),
            "as" => self.convert.get_or_insert_default().kind = value,
            "g" => self.convert.get_or_insert_default().group = value,
            "v" => self.convert.get_or_insert_default().version = value,
            "stream" => self.stream = value,
            "sv" => self.server_version = value,
            "pretty" => self.pretty = value == "1",
            "profile" => self.profile = value,
            _ => {}
        }
    }

    fn is_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.ty != "*" && other.ty == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }

    fn matches(&self, media_type: MediaType) -> bool {
        if (self.ty, self.subtype) == ("*", "*") {
            return true;
        }
        let name = media_type.name().split_once('/');
        name.is_some_and(|(ty, subtype)| {
            self.ty == ty && (self.subtype == subtype || self.subtype == "*")
        })
    }

    fn parameters_fit(&self, media_type: MediaType) -> bool {
        let stream_fits =
            self.stream.is_empty() || (self.stream == "watch" && media_type.can_stream());
        stream_fits && (self.server_version.is_empty() || self.server_version == "v1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(accepted: Result<Accepted, NegotiateError>) -> String {
        match accepted {
            Ok(Accepted { media_type, transform, pretty, stream, .. }) => {
                let transform = transform.map(|t| format!(" {t:?}")).unwrap_or_default();
                let pretty = if pretty { " pretty" } else { "" };
                let stream = if stream { " stream" } else { "" };
                format!("{media_type:?}{transform}{pretty}{stream}")
            }
            Err(error) => error.to_string(),
        }
    }

    const NONE: &str = "only the following media types are accepted: application/json, \
                        application/yaml, application/vnd.kubernetes.protobuf";
    const ROUTER: &str = "406: Not Acceptable\n\nAvailable representations: application/json, \
                          application/yaml, application/vnd.kubernetes.protobuf";
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

    #[test]
    fn the_best_acceptable_clause_wins() {
        let kubectl =
            format!("{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json");
        let protobuf_table = format!("{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,{TABLE}");
        let metadata =
            format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json");
        let cases = [
            ("", "Json"),
            ("*/*", "Json"),
            ("*", ROUTER),
            ("application/*", ROUTER),
            ("application/*;q=0.1, text/html, */*;q=0.5", "Json"),
            ("application/yaml", "Yaml"),
            (PROTOBUF, "Protobuf"),
            ("application/vnd.kubernetes.protobuf,application/json", "Protobuf"),
            ("application/json;q=0.5, application/yaml", "Yaml"),
            ("text/html, application/json;q=0.9", "Json"),
            ("text/html", ROUTER),
            ("nonsense", ROUTER),
            ("application/json;pretty=1", "Json pretty"),
            ("application/json;stream=watch", "Json stream"),
            ("application/json;stream=other", NONE),
            ("application/yaml;stream=watch", NONE),
            (&kubectl, "Json Table(V1)"),
            (&protobuf_table, "Json Table(V1)"),
            (&metadata, "Protobuf PartialObjectMetadataList(V1)"),
            (
                "application/yaml;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
                "Yaml PartialObjectMetadata(V1Beta1)",
            ),
            ("application/json;as=Foo;v=v1;g=meta.k8s.io", NONE),
            ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", "Json"),
            ("application/json;g=meta.k8s.io", NONE),
            ("*/*;as=Table;v=v1;g=meta.k8s.io", "Json Table(V1)"),
            ("application/json;charset=utf-8", "Json"),
            ("application/cbor", ROUTER),
        ];
        for (header, expected) in cases {
            assert_eq!(
                show(accept(Some(header), Endpoint::Resource, OFFERED)),
                expected,
                "{header}"
            );
        }
        assert_eq!(show(accept(None, Endpoint::Resource, OFFERED)), "Json");
    }

    #[test]
    fn endpoints_differ_in_what_they_serve() {
        let metadata = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        let cases = [
            (PROTOBUF, Endpoint::CustomResource, NONE),
            (metadata.as_str(), Endpoint::CustomResource, "Protobuf PartialObjectMetadata(V1)"),
            ("application/vnd.kubernetes.protobuf,*/*", Endpoint::CustomResource, "Json"),
            (TABLE, Endpoint::CustomResource, "Json Table(V1)"),
            ("application/*", Endpoint::CustomResource, "Json"),
            ("*", Endpoint::CustomResource, "Json"),
            ("text/html", Endpoint::CustomResource, NONE),
            (TABLE, Endpoint::Tableless, NONE),
            (metadata.as_str(), Endpoint::Tableless, "Protobuf PartialObjectMetadata(V1)"),
            (TABLE, Endpoint::Document, NONE),
            (PROTOBUF, Endpoint::Document, "Protobuf"),
        ];
        for (header, endpoint, expected) in cases {
            assert_eq!(
                show(accept(Some(header), endpoint, OFFERED)),
                expected,
                "{header} {endpoint:?}"
            );
        }
    }

    #[test]
    fn logs_are_for_clients_that_read_objects() {
        let refused = "406: Not Acceptable\n\nAvailable representations: text/plain, application/json, \
                       application/yaml, application/vnd.kubernetes.protobuf";
        let cases = [
            (None, ""),
            (Some("*/*"), ""),
            (Some("text/plain"), NONE),
            (Some("text/plain, */*"), ""),
            (Some("application/json, */*"), ""),
            (Some("application/yaml"), ""),
            (Some("text/html"), refused),
            (Some("text/*"), refused),
        ];
        for (header, expected) in cases {
            let answer = accept_log(header, OFFERED).err().map(|error| error.to_string());
            assert_eq!(answer.unwrap_or_default(), expected, "{header:?}");
        }
    }

    #[test]
    fn yaml_cannot_be_streamed() {
        let streams = "only the following media types are accepted: application/json;stream=watch, \
                       application/vnd.kubernetes.protobuf;stream=watch";
        let cases = [
            ("application/yaml", streams),
            ("application/json;stream=other", streams),
            (
                "text/html",
                "406: Not Acceptable\n\nAvailable representations: application/json, \
                 application/yaml, application/vnd.kubernetes.protobuf, \
                 application/json;stream=watch, \
                 application/vnd.kubernetes.protobuf;stream=watch",
            ),
            ("application/json", "Json"),
            ("application/vnd.kubernetes.protobuf;stream=watch", "Protobuf stream"),
        ];
        for (header, expected) in cases {
            assert_eq!(
                show(accept_stream(Some(header), Endpoint::Resource, OFFERED)),
                expected,
                "{header}"
            );
        }
    }

    #[test]
    fn aggregated_discovery_is_negotiated() {
        let as_list = |version: &str| {
            format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList")
        };
        let kubectl = format!("{},{},application/json", as_list("v2"), as_list("v2beta1"));
        let cases = [
            (kubectl.as_str(), Some(DiscoveryVersion::V2)),
            (&as_list("v2beta1"), Some(DiscoveryVersion::V2Beta1)),
            (&as_list("v3"), None),
            ("application/json", None),
            ("*/*", None),
            ("", None),
        ];
        for (header, expected) in cases {
            let version = accept_discovery(Some(header)).map(|(_, version)| version);
            assert_eq!(version, expected, "{header}");
        }
    }

    #[test]
    fn request_bodies_default_to_json() {
        let unsupported = "the body of the request was in an unknown format - accepted media types \
                           include: application/json, application/yaml, \
                           application/vnd.kubernetes.protobuf";
        let cases = [
            ("", "Json"),
            ("application/json", "Json"),
            (" Application/JSON ; charset=utf-8", "Json"),
            ("application/json; charset=\"utf;\\\"8\"", "Json"),
            ("application/json;", "Json"),
            ("application/json; foo", unsupported),
            ("application/yaml", "Yaml"),
            (PROTOBUF, "Protobuf"),
            ("text/plain", unsupported),
            ("application/x-www-form-urlencoded", unsupported),
            ("*/*", unsupported),
            ("json", unsupported),
        ];
        for (header, expected) in cases {
            let shown = match content_type(Some(header), OFFERED) {
                Ok(media_type) => format!("{media_type:?}"),
                Err(error) => error.to_string(),
            };
            assert_eq!(shown, expected, "{header}");
        }
    }

    #[test]
    fn browsers_and_curl_get_indented_json() {
        let cases = [
            (None, None, false),
            (None, Some("curl/8.0"), true),
            (None, Some("Wget/1.2"), true),
            (None, Some("Mozilla/5.0 (X11)"), true),
            (None, Some("kubectl/v1.36"), false),
            (Some("true"), None, true),
            (Some("1"), None, true),
            (Some("false"), Some("curl/8.0"), false),
            (Some("yes"), Some("curl/8.0"), false),
            (Some(""), Some("curl/8.0"), true),
        ];
        for (parameter, agent, expected) in cases {
            assert_eq!(is_pretty(parameter, agent), expected, "{parameter:?} {agent:?}");
        }
    }
}
