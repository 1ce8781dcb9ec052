//! Dispatches a request to its verb.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use codec::{negotiate::Offered, protobuf::Tables};
use http::HeaderMap;
use meta::{
    ApiError, AuditRecord, GroupVersionKind, Query, RequestInfo, User, Warnings,
    authorization::Authorizer,
};
use schema::{Schema, TypeId};

use crate::{
    BoxFuture, FieldDescriptions, Kind, ResourceResponse, action, audit, create, delete, get, list,
    patch, response_format::ResponseFormat, scale, update, watch,
};

/// What all requests share.
pub struct Engine {
    pub admission: admission::Chain,
    pub authorizer: Arc<dyn Authorizer>,
    pub options: RegistryOptions,
    /// The types that every group shares: `DeleteOptions`, `Status`, `Table`, `Scale` ….
    pub schema: Arc<Schema>,
    /// The OpenAPI descriptions of fields.
    pub(crate) field_descriptions: Box<FieldDescriptions>,
    tables: OnceLock<Tables>,
}

/// Flags and feature gates of the verbs.
#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// A watch without a timeout ends after one to two times this.
    pub min_request_timeout: Duration,
    /// The media types of request and response bodies.
    pub offered: Offered,
    /// How many objects of a collection are deleted at once.
    pub delete_collection_workers: usize,
    /// Whether a deletion leaves dependents to a garbage collector, by its finalizers.
    pub garbage_collection: bool,
    /// Whether a client may delete objects that cannot be read.
    pub unsafe_deletion: bool,
}

impl Engine {
    pub fn new(
        admission: admission::Chain,
        authorizer: Arc<dyn Authorizer>,
        options: RegistryOptions,
        schema: Arc<Schema>,
        field_descriptions: Box<FieldDescriptions>,
    ) -> Arc<Self> {
        Arc::new(Self {
            admission,
            authorizer,
            options,
            schema,
            field_descriptions,
            tables: OnceLock::new(),
        })
    }

    /// The protobuf encodings of the types, made on first use.
    pub(crate) fn tables(&self) -> &Tables {
        self.tables.get_or_init(|| Tables::new(&self.schema))
    }

    /// A type of `meta.k8s.io/v1` by its kind.
    pub(crate) fn meta_type(
        &self,
        kind: &str,
    ) -> Result<(&Arc<Schema>, TypeId, GroupVersionKind), ApiError> {
        let ty = self.schema.by_name(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}"));
        let ty = ty.ok_or_else(|| ApiError::Internal(format!("no schema for {kind}")))?;
        Ok((&self.schema, ty, GroupVersionKind::new("meta.k8s.io", "v1", kind)))
    }
}

/// One request for a resource, its body read.
pub struct ResourceRequest<'a> {
    pub engine: &'a Arc<Engine>,
    pub kind: &'a Arc<Kind>,
    pub info: &'a RequestInfo,
    /// The user that the request acts as.
    pub user: &'a User,
    /// The user that sent it; another one under impersonation.
    pub authenticated_user: &'a User,
    pub query: &'a Query,
    pub headers: &'a HeaderMap,
    pub body: Bytes,
    pub warnings: &'a Warnings,
    pub audit: &'a AuditRecord,
    /// The events of a watch are messages of a WebSocket.
    pub websocket: bool,
    /// When the client gets a 504; None: the request is long-running, or the server's own.
    pub deadline: Option<tokio::time::Instant>,
}

/// Serves a request for a resource. Boxed, so that the verbs are compiled into this crate once and not into
/// every crate that awaits them.
pub fn serve<'a>(
    request: &'a ResourceRequest<'_>,
) -> BoxFuture<'a, Result<ResourceResponse, ApiError>> {
    Box::pin(serve_verb(request))
}

async fn serve_verb(request: &ResourceRequest<'_>) -> Result<ResourceResponse, ApiError> {
    let info = request.info;
    if let Some(warning) = request.kind.custom.as_ref().and_then(|own| own.deprecation.as_ref()) {
        request.warnings.add(warning.clone());
        audit::deprecated(request, warning);
    }
    if !info.subresource.is_empty() {
        return Box::pin(serve_subresource(request)).await;
    }
    if info.verb == "watch" && !request.kind.has_verb("watch") && request.kind.has_verb("list") {
        // Compat: the route of lists refuses the parameter itself.
        warn_of_deprecation(request);
        let resource = request.kind.group_resource();
        return Err(ApiError::MethodNotSupported { resource, verb: info.verb.to_string() });
    }
    if !request.kind.has_verb(&info.verb) {
        return Err(request.kind.not_supported(&info.verb));
    }
    // The name of a new object is in the body; the others need one in the path.
    let is_misnamed = match info.verb.as_str() {
        "create" => !info.name.is_empty(),
        "update" | "patch" => info.name.is_empty(),
        _ => false,
    };
    if is_misnamed && !request.kind.is_custom() {
        return Err(ApiError::MethodNotAllowed);
    }
    warn_of_deprecation(request);
    if matches!(info.verb.as_str(), "list" | "watch" | "deletecollection") {
        get::check_namespace(request)?;
    }
    match info.verb.as_str() {
        // A read is common and small; the others would make its future as large as theirs.
        "get" => get::get(request).await,
        "list" => list::list(request).await,
        "watch" => watch::watch(request).await,
        "create" => Box::pin(create::create(request)).await,
        "update" | "patch" if is_misnamed => {
            if info.verb == "patch" {
                patch::PatchType::of(request)?;
            }
            Err(ApiError::bad_request("name must be provided"))
        }
        "update" => Box::pin(update::update(request)).await,
        "patch" => Box::pin(patch::patch(request)).await,
        "delete" => Box::pin(delete::delete(request)).await,
        "deletecollection" => Box::pin(delete::delete_collection(request)).await,
        _ => Err(ApiError::MethodNotAllowed),
    }
}

/// Adds the deprecation warning of the version.
fn warn_of_deprecation(request: &ResourceRequest<'_>) {
    let deprecation = request.kind.behaviour.deprecation;
    if let Some(text) = deprecation.filter(|_| !is_refused_by_router(request)) {
        request.warnings.add(text.to_owned());
        audit::deprecated(request, text);
    }
}

/// Compat: kube-apiserver's router refuses the media types that a route neither reads nor writes before the handler
/// that warns.
fn is_refused_by_router(request: &ResourceRequest<'_>) -> bool {
    let not_written =
        matches!(ResponseFormat::negotiate(request), Err(ApiError::NotRepresentable(_)));
    let not_read = request.info.verb == "patch"
        && matches!(patch::PatchType::of(request), Err(ApiError::UnsupportedPatch));
    not_written || not_read
}

async fn serve_subresource(request: &ResourceRequest<'_>) -> Result<ResourceResponse, ApiError> {
    let info = request.info;
    let Some(subresource) = request.kind.facts.subresource(&info.subresource) else {
        return Err(if request.kind.is_custom() {
            ApiError::not_found(request.kind.group_resource(), info.name.as_str())
        } else {
            ApiError::NotServed
        });
    };
    if !subresource.verbs.contains(&info.verb) {
        return Err(request.kind.not_supported(&info.verb));
    }
    warn_of_deprecation(request);
    match (info.subresource.as_str(), info.verb.as_str()) {
        ("scale", "get") => scale::get(request).await,
        ("scale", "update") => scale::update(request).await,
        ("scale", "patch") => scale::patch(request).await,
        (name, "create") => match request.kind.action(name) {
            Some(action) => action::act(request, &**action).await,
            None => Err(ApiError::NotServed),
        },
        // These read and write the object itself; the strategy decides which part.
        (
            "status" | "approval" | "finalize" | "ephemeralcontainers" | "resize",
            verb @ ("get" | "update" | "patch"),
        ) => match verb {
            "get" => get::get(request).await,
            "update" => update::update(request).await,
            _ => patch::patch(request).await,
        },
        _ => Err(ApiError::NotServed),
    }
}
