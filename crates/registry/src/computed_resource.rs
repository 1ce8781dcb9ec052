//! Kinds without storage: reviews and component statuses. Their objects are computed per request;
//! everything else is the same as for stored kinds.

use std::sync::Arc;

use admission::{BoxFuture, Operation};
use bytes::Bytes;
use codec::raw_object::{self, FieldSet};
use meta::{ApiError, FieldErrors, GroupKind, RequestInfo, Str, User, Value};
use store::Entry;

use crate::{
    Kind, ResourceResponse,
    action::{self, ActionOutcome},
    create::{attributes, gvr},
    list::{Items, ListHead, ListResult},
    managed_fields, object_meta,
    options::{ListOptions, WriteOptions},
    resource_request::ResourceRequest,
    response_format::{self, ResponseFormat},
    selectors::Selection,
};

/// Computes the objects of a kind. A kind implements what its verbs need.
pub trait ComputedResource: Send + Sync + 'static {
    /// Responds to a POST, given the object after decoding, defaulting, admission and validation.
    fn create<'a>(
        &'a self,
        _object: Value,
        _cx: &'a ComputeContext<'a>,
    ) -> BoxFuture<'a, Result<ActionOutcome, ApiError>> {
        Box::pin(std::future::ready(Err(ApiError::MethodNotAllowed)))
    }

    /// The kind that an Invalid error names.
    fn kind_in_errors(&self, kind: &Kind) -> GroupKind {
        kind.group_kind()
    }

    /// All objects, ordered by name.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Value>, ApiError>> {
        Box::pin(std::future::ready(Err(ApiError::MethodNotAllowed)))
    }
}

/// The request that an object is computed for.
pub struct ComputeContext<'a> {
    pub user: &'a User,
    pub info: &'a RequestInfo,
    pub dry_run: bool,
}

/// POST: responds with the object that the kind computes.
pub(crate) async fn create(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    options: &WriteOptions,
    computed: &dyn ComputedResource,
    mut object: Value,
) -> Result<ResourceResponse, ApiError> {
    let kind = request.kind;
    let gvr = gvr(kind);
    let name = object.str_at(&["metadata", "name"]).to_owned();
    let attributes = attributes(request, &gvr, Operation::Create, &name, options, None);
    object_meta::wipe_for_create(&mut object, true);
    kind.apply_defaults(&mut object)?;
    managed_fields::track(request, options, None, &mut object);
    request.engine.admission.admit(&attributes, Some(&mut object)).await?;
    kind.apply_defaults(&mut object)?;
    let mut errors = FieldErrors::default();
    kind.strategy.validate(&object, &mut errors);
    if !errors.is_empty() {
        // Compat: the error has no name, even if the metadata has one.
        let kind = computed.kind_in_errors(kind);
        return Err(ApiError::Invalid { kind, name: String::new(), errors: Box::new(errors) });
    }
    request.engine.admission.validate(&attributes, Some(&object)).await?;
    let cx = ComputeContext { user: request.user, info: request.info, dry_run: options.dry_run };
    match computed.create(object, &cx).await? {
        ActionOutcome::Object(answer) => {
            response_format::json(request, format, 201, encode(kind, answer))
        }
        ActionOutcome::Done => Ok(response_format::status(request, format, &action::done())),
    }
}

pub(crate) async fn get(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    computed: &dyn ComputedResource,
) -> Result<ResourceResponse, ApiError> {
    let name = request.info.name.as_str();
    let found = computed.list().await?;
    let mut named = found.into_iter().filter(|object| object.str_at(&["metadata", "name"]) == name);
    let Some(object) = named.next() else {
        // Compat: upstream names the singular here.
        let resource = meta::GroupResource {
            group: request.kind.gvk().group.clone(),
            resource: request.kind.facts.singular.clone(),
        };
        return Err(ApiError::not_found(resource, name));
    };
    response_format::json(request, format, 200, encode(request.kind, object))
}

pub(crate) async fn list(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    options: &ListOptions,
    computed: &dyn ComputedResource,
) -> Result<ResourceResponse, ApiError> {
    let selection = Selection::read(request, options)?;
    let entries = computed
        .list()
        .await?
        .into_iter()
        .map(|object| entry(request.kind, object))
        .collect::<Result<Vec<_>, _>>()?;
    let entries = entries.into_iter().filter(|entry| selection.matches(entry));
    let items = Items::of(entries.collect::<Vec<_>>());
    response_format::list(request, format, ListResult { items, head: ListHead::default() }).await
}

fn encode(kind: &Kind, mut object: Value) -> Bytes {
    object.set_at(&["kind"], kind.gvk().kind.clone());
    object.set_at(&["apiVersion"], kind.group_version().to_string());
    let mut json = Vec::with_capacity(1024);
    codec::json::encode(&object, &kind.schema, kind.ty(), &mut json);
    json.into()
}

/// An entry as the cache has them, so that all response formats of lists work.
fn entry(kind: &Kind, object: Value) -> Result<Arc<Entry>, ApiError> {
    let name = Str::new(object.str_at(&["metadata", "name"]));
    let json = encode(kind, object);
    let scanned = raw_object::scan(&json, &FieldSet::new([])).map_err(ApiError::internal)?;
    Ok(Arc::new(Entry {
        key: name.clone(),
        name,
        body_at: scanned.body_at as u32,
        meta: (scanned.metadata.start as u32, scanned.metadata.end as u32),
        labels: scanned.labels.into(),
        json: json.into(),
        ..Entry::default()
    }))
}

#[cfg(test)]
mod tests;
