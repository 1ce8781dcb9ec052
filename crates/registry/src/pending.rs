//! Stand-ins until the codec room has them.
#![allow(unused, clippy::all, clippy::pedantic)]
pub(crate) mod negotiate {
    use http::HeaderMap;
    use meta::ApiError;
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Media { Json, Yaml, Protobuf }
    impl Media {
        pub(crate) fn content_type(self) -> &'static str { "application/json" }
        pub(crate) fn watch_content_type(self) -> &'static str { "application/json" }
    }
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) enum Transform { None, Table, PartialObjectMetadata }
    pub(crate) struct Accepted { pub(crate) media: Media, pub(crate) transform: Transform }
    pub(crate) fn accept(headers: &HeaderMap, _custom: bool) -> Result<Accepted, ApiError> {
        let accept = headers.get("accept").and_then(|v| v.to_str().ok()).unwrap_or("");
        let first = accept.split(',').next().unwrap_or("");
        let transform = if first.contains("as=Table") { Transform::Table } else if first.contains("as=PartialObjectMetadata") { Transform::PartialObjectMetadata } else { Transform::None };
        Ok(Accepted { media: Media::Json, transform })
    }
    pub(crate) fn content_type(_h: &HeaderMap) -> Result<Media, ApiError> { Ok(Media::Json) }
    pub(crate) fn pretty(q: Option<&str>, _h: &HeaderMap) -> bool { q.is_some_and(|q| q == "true" || q == "1") }
}
pub(crate) mod yaml {
    pub(crate) fn to_string(v: &meta::Value) -> String { meta::json::to_string(v) }
}
pub(crate) mod protobuf {
    use meta::*;
    pub(crate) fn encode(_: &Value, _: &schema::Schema, _: schema::TypeId) -> Vec<u8> { Vec::new() }
    pub(crate) fn envelope(_: &GroupVersionKind, _: &[u8]) -> Vec<u8> { Vec::new() }
    pub(crate) fn list(_: &GroupVersionKind, _: u64, _: &str, _: Option<u64>, _: &[bytes::Bytes]) -> Vec<u8> { Vec::new() }
    pub(crate) fn of_status(_: &Status, _: &schema::Schema) -> Vec<u8> { Vec::new() }
    pub(crate) fn watch_event(_: &str, _: &GroupVersionKind, _: &[u8]) -> Vec<u8> { Vec::new() }
    pub(crate) fn watch_error(_: &Status, _: &schema::Schema) -> Vec<u8> { Vec::new() }
}
pub(crate) fn decode(_m: negotiate::Media, bytes: &[u8], schema: &schema::Schema, ty: schema::TypeId, gvk: &meta::GroupVersionKind) -> Result<codec::json::Decoded, String> {
    codec::json::decode(bytes, schema, ty, codec::json::DecodeOptions::default()).map_err(|e| format!("{} in version {:?} cannot be handled as a {}: {e}", gvk.kind, gvk.group_version().to_string(), gvk.kind))
}
pub(crate) mod scan {
    pub(crate) fn body_at(json: &[u8]) -> usize { codec::scan::scan(json, &codec::scan::FieldSet::new([])).map(|s| s.body_at).unwrap_or(1) }
    pub(crate) fn metadata(json: &[u8]) -> Result<(usize, usize), String> { codec::scan::scan(json, &codec::scan::FieldSet::new([])).map(|s| (s.metadata.start, s.metadata.end)).map_err(|e| e.to_string()) }
    pub(crate) fn resource_version(json: &[u8]) -> Option<u64> { crate::decode::tree(json).ok()?.str_at(&["metadata","resourceVersion"]).parse().ok() }
}
