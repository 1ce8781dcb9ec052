//! GET of one object: serves the bytes of the cache.

use std::sync::Arc;

use meta::ApiError;
use store::Entry;

use crate::{
    ResourceResponse, Storage, computed_resource,
    resource_request::ResourceRequest,
    response_format::{self, ResponseFormat},
    storage::parse_revision,
};

pub(crate) async fn get(request: &ResourceRequest<'_>) -> Result<ResourceResponse, ApiError> {
    let format = ResponseFormat::negotiate(request)?;
    refuse_export(request)?;
    if let Some(computed) = &request.kind.computed {
        return computed_resource::get(request, &format, &**computed).await;
    }
    let entry = entry(request, request.query.text("resourceVersion")).await?;
    response_format::entry(request, &format, 200, &entry)
}

/// Compat: the parameter was removed, and is refused so that no client takes the whole object for an exported one. Go takes
/// anything but `false` and `0` for true.
pub(crate) fn refuse_export(request: &ResourceRequest<'_>) -> Result<(), ApiError> {
    match request.query.get("export") {
        Some(given) if !given.eq_ignore_ascii_case("false") && given != "0" => {
            Err(ApiError::bad_request(
                "the export parameter, deprecated since v1.14, is no longer supported",
            ))
        }
        _ => Ok(()),
    }
}

/// The object that a request names, not older than `resource_version`.
pub(crate) async fn entry(
    request: &ResourceRequest<'_>,
    resource_version: &str,
) -> Result<Arc<Entry>, ApiError> {
    let storage = storage(request)?;
    let revision = match resource_version {
        "" => None,
        // Compat: a get with a bad resourceVersion is a 500 without a reason.
        other => Some(parse_revision(other).map_err(ApiError::Storage)?),
    };
    check_name(request)?;
    let key = storage.key(&request.info.namespace, &request.info.name);
    let found = storage.entry(&key, revision).await?.ok_or_else(|| {
        ApiError::not_found(request.kind.group_resource(), request.info.name.as_str())
    })?;
    request.kind.prepare(&[&found]).await?;
    Ok(found)
}

/// Checks that the name in the path can be the last segment of a key.
pub(crate) fn check_name(request: &ResourceRequest<'_>) -> Result<(), ApiError> {
    let name = request.info.name.as_str();
    let wrong = meta::names::name_is_path_segment(name, false);
    if wrong.is_empty() {
        return Ok(());
    }
    let (name, wrong) = (meta::field::quote(name), wrong.join(";"));
    Err(ApiError::BadRequest(format!("Name parameter invalid: {name}: {wrong}")))
}

/// Refuses a collection in the namespace `.` or `..`: as a path it would lead to other objects.
pub(crate) fn check_namespace(request: &ResourceRequest<'_>) -> Result<(), ApiError> {
    match request.info.namespace.as_str() {
        namespace @ ("." | "..") => Err(ApiError::BadRequest(format!(
            "Namespace parameter invalid: \"{namespace}\": may not be '{namespace}'"
        ))),
        _ => Ok(()),
    }
}

pub(crate) fn storage<'a>(request: &ResourceRequest<'a>) -> Result<&'a Arc<Storage>, ApiError> {
    request.kind.storage.as_ref().ok_or(ApiError::MethodNotAllowed)
}

#[cfg(test)]
mod tests;
