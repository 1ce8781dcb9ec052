//! Which requests take long to compute. They are not served on a thread that polls connections.

use codec::negotiate;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use crate::ResourceRequest;

/// Whether serving the request may take more than a millisecond or so. Asked with every request, so it
/// looks at sizes and not at contents.
pub fn is_costly(request: &ResourceRequest<'_>) -> bool {
    let info = request.info;
    match info.verb.as_str() {
        "watch" => false,
        "deletecollection" => true,
        "list" => is_long_list(request),
        "get" if asks_for_protobuf(request) => stored_bytes(request) > PROTOBUF_OBJECT_BYTES,
        "get" => !sends_stored_bytes(request) && stored_bytes(request) > OBJECT_BYTES,
        _ => request.body.len() > body_bytes(request) || stored_bytes(request) > OBJECT_BYTES,
    }
}

/// A pod of 8 KB in JSON is decoded, validated and encoded in 1.2 ms, some thirty times what it takes to
/// change threads; most other kinds take a third of it. Measured figures: `docs/performance.md`.
const BODY_BYTES: usize = 8 << 10;
/// YAML takes little longer than JSON (0.16 instead of 0.14 ms for each KB of a pod), but its parser is
/// slow with hostile texts, and expressions of a custom resource's schema are bounded by their cost, not by
/// the size of the object.
const SLOW_BODY_BYTES: usize = 4 << 10;
/// The same border for an object that is read to be changed or sent in another format: a merge patch of a
/// ConfigMap of 12 KB takes 1.2 ms, YAML of it 0.9 ms.
const OBJECT_BYTES: usize = 12 << 10;
/// Protobuf is kept with an object that is read often, so most GETs only send bytes. Kubelets and controllers
/// ask for it with every GET, and a change of threads costs as much as the whole GET.
const PROTOBUF_OBJECT_BYTES: usize = 64 << 10;
/// So many objects are sent as YAML in 1.6 ms, in other formats in 0.3 ms.
const LIST_ITEMS: usize = 64;

fn body_bytes(request: &ResourceRequest<'_>) -> usize {
    let media = request.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let yaml = media.is_some_and(|media| media.contains("yaml"));
    if yaml || request.kind.is_custom() { SLOW_BODY_BYTES } else { BODY_BYTES }
}

/// The size of the object that the request names, 0 where there is none.
fn stored_bytes(request: &ResourceRequest<'_>) -> usize {
    let (kind, info) = (request.kind, request.info);
    let Some(storage) = kind.storage.as_ref().filter(|_| !info.name.is_empty()) else { return 0 };
    let namespace = if kind.namespaced() { info.namespace.as_str() } else { "" };
    storage.cached(namespace, &info.name).map_or(0, |entry| entry.json.len())
}

fn is_long_list(request: &ResourceRequest<'_>) -> bool {
    let Some(storage) = &request.kind.storage else { return false };
    let limit = request.query.integer("limit").ok().flatten().and_then(|n| usize::try_from(n).ok());
    let items = match limit {
        Some(limit @ 1..) => limit.min(storage.cache.snapshot().len()),
        _ => storage.cache.snapshot().len(),
    };
    items > LIST_ITEMS && !sends_stored_bytes(request)
}

/// Whether the answer is made of the cached bytes as they are: plain JSON of the stored version.
fn sends_stored_bytes(request: &ResourceRequest<'_>) -> bool {
    let header = |name| request.headers.get(name).and_then(|value| value.to_str().ok());
    let accept = header(ACCEPT).unwrap_or_default();
    // A parameter asks for a table, for metadata only, or gives a weight.
    let first = accept.split(',').next().map(str::trim).filter(|_| !accept.contains(';'));
    request.kind.conversion.is_none()
        && !negotiate::is_pretty(request.query.get("pretty"), header(USER_AGENT))
        && matches!(first, Some("" | "*/*" | "application/json"))
}

/// Whether a whole object is wanted as protobuf: as metadata only, or as a table, it is made for each request.
fn asks_for_protobuf(request: &ResourceRequest<'_>) -> bool {
    let accept = request.headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let first = accept.and_then(|accept| accept.split(',').next()).map(str::trim);
    request.kind.conversion.is_none() && first == Some("application/vnd.kubernetes.protobuf")
}

#[cfg(test)]
mod tests;
