//! What the verbs add to the audit event of a request: bodies, as far as the policy asks for them,
//! and annotations.

use std::{sync::atomic::Ordering, time::Instant};

use codec::json::{Edit, compact, edit};
use meta::{ApiError, LatencyLayer, Status, Value, value};
use schema::{Schema, TypeId};

use crate::{patch::PatchType, resource_request::ResourceRequest};

/// Records the body of a create or update. Compat: with the defaults of its version.
pub(crate) fn request_object(request: &ResourceRequest<'_>, object: &Value) {
    request.audit.request_object(object, || {
        let mut object = object.clone();
        // Too large: recorded as it is, and refused later.
        let _ = request.kind.apply_defaults(&mut object);
        recordable(request, &request.kind.encode(&object))
    });
}

/// The same for the body of a subresource, which has a type of its own.
pub(crate) fn typed_request_object(
    request: &ResourceRequest<'_>,
    object: &Value,
    (schema, ty): (&Schema, TypeId),
    default: impl FnOnce(&mut Value),
) {
    request.audit.request_object(object, || {
        let mut object = object.clone();
        default(&mut object);
        let mut json = Vec::new();
        codec::json::encode(&object, schema, ty, &mut json);
        recordable(request, &json)
    });
}

/// Records the body of a delete. Compat: kube-apiserver writes its internal version.
pub(crate) fn delete_options(
    request: &ResourceRequest<'_>,
    options: &Value,
) -> Result<(), ApiError> {
    let (schema, ty, _) = request.engine.meta_type("DeleteOptions")?;
    // The options have no metadata: the object's identity stays that of the path.
    request.audit.request_patch(|| {
        let mut options = options.clone();
        options.set_at(&["kind"], "DeleteOptions");
        options.set_at(&["apiVersion"], "meta.k8s.io/__internal");
        let mut json = Vec::new();
        codec::json::encode(&options, schema, ty, &mut json);
        json
    });
    Ok(())
}

/// Records a patch as JSON. What cannot be read is recorded as a string, where kube-apiserver loses
/// the event.
pub(crate) fn request_patch(request: &ResourceRequest<'_>, patch_type: PatchType) {
    request.audit.request_patch(|| {
        let body = &request.body;
        let tree = match patch_type {
            PatchType::Apply => codec::yaml::load(body).ok().map(|loaded| loaded.value),
            PatchType::ApplyCbor => codec::cbor::decode(body).ok(),
            PatchType::Json | PatchType::Merge | PatchType::Strategic => None,
        };
        let json = match tree {
            // kubectl sends JSON as YAML; its fields stay in their order.
            Some(tree) => compact(body).unwrap_or_else(|| meta::json::to_string(&tree).into()),
            None => compact(body).unwrap_or_else(|| {
                meta::json::to_string(&value!((String::from_utf8_lossy(body).into_owned()))).into()
            }),
        };
        recordable(request, &json)
    });
}

/// Records the object of a response, given as JSON.
pub(crate) fn response_object(request: &ResourceRequest<'_>, json: &[u8]) {
    if request.audit.wants_response_object() {
        request.audit.response_object(recordable(request, json));
    }
}

/// Records a `Status` that is the response to a success.
pub(crate) fn response_status(request: &ResourceRequest<'_>, status: &Status) {
    request.audit.response_status(status);
    if request.audit.wants_response_object() {
        request.audit.response_object(status.to_json());
    }
}

/// Adds the annotations of a version that is deprecated; `warning` is the text that the client gets.
pub(crate) fn deprecated(request: &ResourceRequest<'_>, warning: &str) {
    let annotations = &request.audit.annotations;
    annotations.add("k8s.io/deprecated", "true");
    request.kind.deprecated_requested.store(true, Ordering::Relaxed);
    let removed = crate::kind::removed_release(warning);
    if let Some(release) = removed.filter(|_| !request.kind.is_custom()) {
        annotations.add("k8s.io/removed-release", release);
    }
}

/// Adds the time of a storage operation to the request's latencies.
pub(crate) async fn storage_latency<T>(
    request: &ResourceRequest<'_>,
    operation: impl Future<Output = T>,
) -> T {
    if !request.audit.is_on() {
        return operation.await;
    }
    let began = Instant::now();
    let outcome = operation.await;
    request.audit.track(LatencyLayer::Storage, began.elapsed());
    outcome
}

/// JSON as an event may have it: on one line, without managedFields where the policy leaves them
/// out, and without tokens. kube-apiserver records tokens if the policy asks for bodies; every
/// reader of its log can use them.
fn recordable(request: &ResourceRequest<'_>, json: &[u8]) -> Vec<u8> {
    let json = json.trim_ascii_end();
    let mut edits = Vec::new();
    if request.audit.omit_managed_fields {
        edits.extend(MANAGED_FIELDS.map(|path| Edit { path, replacement: None }));
    }
    let info = request.info;
    let resource = (&*info.group, &*info.resource, &*info.subresource);
    if let Some((_, path)) = TOKENS.iter().find(|(of, _)| *of == resource) {
        edits.push(Edit { path, replacement: Some("\"REDACTED\"") });
    }
    let json = if edits.is_empty() { json.to_vec() } else { edit(json, &edits) };
    // Custom resources in etcd may have been written by others.
    if json.contains(&b'\n') { compact(&json).unwrap_or_default() } else { json }
}

const MANAGED_FIELDS: [&[&str]; 3] = [
    &["metadata", "managedFields"],
    &["items", "*", "metadata", "managedFields"],
    &["rows", "*", "object", "metadata", "managedFields"],
];

/// Group, resource and subresource.
type Endpoint = (&'static str, &'static str, &'static str);

/// Where the token is.
const TOKENS: [(Endpoint, &[&str]); 2] = [
    (("", "serviceaccounts", "token"), &["status", "token"]),
    (("authentication.k8s.io", "tokenreviews", ""), &["spec", "token"]),
];

#[cfg(test)]
mod tests;
