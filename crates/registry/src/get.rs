//! GET of one object: finds the bytes and hands them out.

use std::sync::Arc;

use meta::ApiError;
use store::Entry;

use crate::{
    Answer, Storage, computed_resource,
    response_format::{self, Form},
    resource_request::Rest,
    storage::parse_revision,
};

pub(crate) async fn get(rest: &Rest<'_>) -> Result<Answer, ApiError> {
    let form = Form::negotiate(rest)?;
    if let Some(answerer) = &rest.kind.answerer {
        return computed_resource::get(rest, &form, &**answerer).await;
    }
    let entry = entry(rest, rest.query.text("resourceVersion")).await?;
    response_format::entry(rest, &form, 200, &entry)
}

/// The object that a request names, as new as `resource_version` asks for.
pub(crate) async fn entry(rest: &Rest<'_>, resource_version: &str) -> Result<Arc<Entry>, ApiError> {
    let storage = storage(rest)?;
    let revision = match resource_version {
        "" => None,
        // Compat: a get with a bad resourceVersion is a 500 without a reason.
        other => Some(parse_revision(other).map_err(ApiError::Storage)?),
    };
    check_name(rest)?;
    let key = storage.key(&rest.info.namespace, &rest.info.name);
    let found = storage
        .entry(&key, revision)
        .await?
        .ok_or_else(|| ApiError::not_found(rest.kind.group_resource(), rest.info.name.as_str()))?;
    rest.kind.prepare(&[&found]).await?;
    Ok(found)
}

/// Whether the name in the path could be the end of a key.
pub(crate) fn check_name(rest: &Rest<'_>) -> Result<(), ApiError> {
    let name = rest.info.name.as_str();
    let wrong = meta::names::name_is_path_segment(name, false);
    if wrong.is_empty() {
        return Ok(());
    }
    let (name, wrong) = (meta::field::quote(name), wrong.join(";"));
    Err(ApiError::BadRequest(format!("Name parameter invalid: {name}: {wrong}")))
}

pub(crate) fn storage<'a>(rest: &Rest<'a>) -> Result<&'a Storage, ApiError> {
    rest.kind.storage.as_deref().ok_or(ApiError::MethodNotAllowed)
}
