//! POST: a new object.

use std::sync::Arc;

use admission::{Attributes, Operation, Reinvocation, RequestOptions, quota::WriteCharges};
use meta::{ApiError, GroupKind, GroupVersion, GroupVersionResource, Value};
use store::{Expect, StoreError};

use crate::{
    Allocation, Kind, ResourceResponse, Storage, audit, computed_resource, decode,
    get::storage,
    managed_fields, object_meta,
    options::WriteOptions,
    owner_references,
    resource_request::ResourceRequest,
    response_format::{self, ResponseFormat},
    storage::store_error,
    strategy::WriteContext,
    update::WrittenObject,
    write_authorizer::WriteRequest,
};

pub(crate) async fn create(request: &ResourceRequest<'_>) -> Result<ResourceResponse, ApiError> {
    let format = ResponseFormat::negotiate(request)?;
    let options = WriteOptions::read(request.query, "CreateOptions", false)?;
    let kind = request.kind;
    let expected = decode::Expected {
        gvk: kind.gvk(),
        schema: &kind.schema,
        ty: kind.ty(),
        validation: options.field_validation,
    };
    let mut object = decode::body(request, &expected)?;
    audit::request_object(request, &object);
    object_meta::ensure_namespace_matches(kind, &request.info.namespace, &mut object)?;
    if let Some(computed) = &kind.computed {
        return computed_resource::create(request, &format, &options, &**computed, object).await;
    }
    let written = create_object(request, storage(request)?, &options, object).await?;
    response_format::json(request, &format, 201, written.json)
}

/// Compat: the error about a name that is taken says so, if the object also has `generateName`.
fn generated_name_conflict(error: ApiError) -> ApiError {
    if !matches!(error, ApiError::AlreadyExists { .. }) {
        return error;
    }
    let mut status = error.status();
    status.message += ", the server was not able to generate a unique name for the object";
    if let Some(details) = &mut status.details {
        details.retry_after_seconds = 1;
    }
    ApiError::Status(Box::new(status))
}

/// Takes an object through admission, strategy and validation into the store.
///
/// Compat: mutating admission comes once, and before the server fills in uid, creationTimestamp and a
/// generated name; each attempt at a name is validated anew.
pub(crate) async fn create_object(
    request: &ResourceRequest<'_>,
    storage: &Arc<Storage>,
    options: &WriteOptions,
    mut object: Value,
) -> Result<WrittenObject, ApiError> {
    let kind = request.kind;
    let labels = object.at(&["metadata", "labels"]).and_then(Value::as_object);
    let cx = WriteContext {
        kind,
        user: request.user,
        now: meta::time::Time::now(),
        warnings: request.warnings,
        has_sent_labels: labels.is_some_and(|labels| !labels.is_empty()),
        sent_generation: object.i64_at(&["metadata", "generation"]),
    };
    let name = object.str_at(&["metadata", "name"]).to_owned();
    let gvr = gvr(kind);
    let attributes = create_attributes(request, &gvr, &name, &name, options);
    if kind.custom.as_ref().is_some_and(|custom| custom.terminating) {
        return Err(ApiError::Forbidden {
            resource: kind.group_resource(),
            name,
            why: "create not allowed while custom resource definition is terminating".to_owned(),
            causes: Vec::new(),
        });
    }
    object_meta::wipe_for_create(&mut object, request.info.verb == "create");
    owner_references::deduplicate(&mut object, false, request.warnings);
    kind.apply_defaults(&mut object)?;
    managed_fields::track(request, options, None, &mut object);
    request.engine.admission.admit(&attributes, Some(&mut object)).await?;
    owner_references::deduplicate(&mut object, true, request.warnings);
    authorize_write(request, &object, None).await?;
    if object.str_at(&["metadata", "generateName"]).is_empty() {
        return try_create(request, storage, options, &cx, &name, object).await;
    }
    if !object.str_at(&["metadata", "name"]).is_empty() {
        let written = try_create(request, storage, options, &cx, &name, object).await;
        let is_create = request.info.verb == "create";
        return if is_create { written.map_err(generated_name_conflict) } else { written };
    }
    let mut attempt = 1;
    loop {
        let mut named = object.clone();
        object_meta::generate_name(&mut named);
        match try_create(request, storage, options, &cx, &name, named).await {
            // Name collision: retry with another random suffix.
            Err(ApiError::AlreadyExists { .. }) if attempt < NAME_ATTEMPTS_MAX => attempt += 1,
            other => return other.map_err(generated_name_conflict),
        }
    }
}

/// After this many collisions the client gets AlreadyExists, as upstream.
const NAME_ATTEMPTS_MAX: u32 = 8;

/// The attributes of a create. `sent` is the name that the client sent, if any.
fn create_attributes<'a>(
    request: &'a ResourceRequest<'_>,
    gvr: &'a GroupVersionResource,
    sent: &'a str,
    name: &'a str,
    options: &'a WriteOptions,
) -> Attributes<'a> {
    let mut attributes = attributes(request, gvr, Operation::Create, name, options, None);
    // Compat: a namespace is in itself, also when it is created.
    if gvr.group.is_empty() && gvr.resource == "namespaces" && attributes.namespace.is_empty() {
        attributes.namespace = sent;
    }
    attributes
}

/// One attempt, under the name that the object has now.
async fn try_create(
    request: &ResourceRequest<'_>,
    storage: &Arc<Storage>,
    options: &WriteOptions,
    cx: &WriteContext<'_>,
    sent: &str,
    mut object: Value,
) -> Result<WrittenObject, ApiError> {
    let kind = request.kind;
    object_meta::fill_for_create(&mut object, cx);
    let name = object.str_at(&["metadata", "name"]).to_owned();
    let gvr = gvr(kind);
    // Compat: validating admission is told the name that was sent, and a generated one only if none was.
    let told = if sent.is_empty() { name.as_str() } else { sent };
    let attributes = create_attributes(request, &gvr, sent, told, options);
    let mut allocation = match &kind.allocator {
        Some(allocator) => allocator.for_create(&mut object, options.dry_run).await?,
        None => Allocation::default(),
    };
    let written =
        commit_create(request, storage, options, &attributes, cx, &name, object, &mut allocation)
            .await;
    settle_charges(&attributes, &written);
    // Still there only if nothing was handed to the store.
    allocation.release().await;
    written
}

/// Tells what quotas were charged that the object is stored or refused. If the store has failed, it may have
/// stored the object all the same.
pub(crate) fn settle_charges<T>(attributes: &Attributes<'_>, written: &Result<T, ApiError>) {
    if written.as_ref().err().is_none_or(|error| error.status().code < 500) {
        attributes.charges.settle();
    }
}

/// Authorizes the write itself, for kinds where the right to create or update is not enough.
pub(crate) async fn authorize_write(
    request: &ResourceRequest<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    match &request.kind.write_authorizer {
        None => Ok(()),
        Some(authorizer) => {
            authorizer
                .check(&WriteRequest { user: request.user, info: request.info, object, old })
                .await
        }
    }
}

/// Everything after mutating admission: validation, validating admission, and the write.
#[allow(clippy::too_many_arguments)] // The state of one attempt.
async fn commit_create(
    request: &ResourceRequest<'_>,
    storage: &Arc<Storage>,
    options: &WriteOptions,
    attributes: &Attributes<'_>,
    cx: &WriteContext<'_>,
    name: &str,
    mut object: Value,
    allocation: &mut Allocation,
) -> Result<WrittenObject, ApiError> {
    let kind = request.kind;
    // Admission may have changed it.
    object_meta::ensure_namespace_matches(kind, &request.info.namespace, &mut object)?;
    prepare_create(kind, &mut object, cx)?;
    for text in kind.strategy.warnings("", &object, None) {
        request.warnings.add(text);
    }
    request.engine.admission.validate(attributes, Some(&object)).await?;
    if request.info.verb != "create" {
        // Compat: what an apply or a PUT creates has none, whatever admission has made of it.
        object.remove_at(&["metadata", "resourceVersion"]);
    }
    if !options.dry_run && !object.str_at(&["metadata", "resourceVersion"]).is_empty() {
        return Err(ApiError::Storage(
            "resourceVersion should not be set on objects to be created".to_owned(),
        ));
    }

    if !options.dry_run {
        object.remove_at(&["metadata", "selfLink"]);
    }
    let key = storage.key(&request.info.namespace, name);
    // Compat: a dry run answers with the resourceVersion that was sent.
    let sent = object.at(&["metadata", "resourceVersion"]).cloned();
    let stored = storage.encode(kind.to_stored(object).await?)?;
    if options.dry_run {
        let now = storage.cache.fresh().await.map_err(store_error)?;
        if now.get(&key).is_some() || now.broken(&key).is_some() {
            return Err(already_exists(request, storage, name).await);
        }
        let mut json = kind.view_of_stored(&stored.json).await?;
        if let Some(sent) = sent {
            let mut object = kind.decode(&json)?;
            object.set_at(&["metadata", "resourceVersion"], sent);
            json = kind.encode(&object);
        }
        return Ok(WrittenObject { json, created: true, stored: false });
    }
    attributes.charges.check_age()?;
    let write = allocation.write(storage, key, Expect::Absent, &stored);
    match audit::storage_latency(request, write).await {
        Ok(revision) => {
            let json = storage.encoded_at(&stored.json, revision)?;
            let json = kind.view_of_stored(&json).await?;
            Ok(WrittenObject { json, created: true, stored: true })
        }
        Err(StoreError::Conflict { .. }) => Err(already_exists(request, storage, name).await),
        Err(other) => Err(store_error(other)),
    }
}

/// The AlreadyExists error; its text says whether the existing object is being deleted.
async fn already_exists(request: &ResourceRequest<'_>, storage: &Storage, name: &str) -> ApiError {
    let name = name.to_owned();
    let current = storage.find(&request.info.namespace, &name, true).await.ok().flatten();
    let current = current.and_then(|entry| decode::tree(&entry.json.text()).ok());
    let deleting = current.is_some_and(|object| object_meta::is_deleting(&object));
    ApiError::AlreadyExists { resource: request.kind.group_resource(), name, deleting }
}

/// Prepares and validates an object after mutating admission.
pub fn prepare_create(
    kind: &Kind,
    object: &mut Value,
    cx: &WriteContext<'_>,
) -> Result<(), ApiError> {
    // Defaults for fields that admission has added.
    kind.apply_defaults(object)?;
    kind.gated_fields.drop_fields(object, None);
    kind.normalize(object);
    if kind.has_status() && !kind.behaviour.status_on_create {
        object.remove_at(&["status"]);
    }
    object_meta::count_generation(object, None, kind.behaviour.generation);
    kind.strategy.prepare_for_create(object, cx);
    let mut errors = meta::FieldErrors::default();
    // Upstream reports the errors of the strategy only; they include those of the metadata, because
    // every strategy validates it.
    errors.extend(object_meta::validate_create(kind, object));
    object_meta::validate_finalizer_names(kind, object, &mut errors);
    kind.strategy.validate(object, &mut errors);
    kind.gated_fields.validate(object, &mut errors);
    invalid(kind, object, errors)
}

pub(crate) fn invalid(
    kind: &Kind,
    object: &Value,
    errors: meta::FieldErrors,
) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let name = object.str_at(&["metadata", "name"]).to_owned();
    let mut group_kind = kind.group_kind();
    // Compat: the error names the group of the stored kind; events are in the core group.
    if let Some(stored) = &kind.facts.storage {
        group_kind.group = stored.version.group.clone();
    }
    if kind.is_custom() {
        // The kind and version in the object may be wrong; that is what the error is about.
        let version = GroupVersion::parse(object.str_at(&["apiVersion"])).unwrap_or_default();
        group_kind = GroupKind { group: version.group, kind: object.str_at(&["kind"]).into() };
    }
    Err(ApiError::Invalid { kind: group_kind, name, errors: Box::new(errors) })
}

pub(crate) fn gvr(kind: &Kind) -> GroupVersionResource {
    GroupVersionResource {
        group: kind.facts.kind.group.clone(),
        version: kind.facts.kind.version.clone(),
        resource: kind.facts.plural.clone(),
    }
}

pub(crate) fn attributes<'a>(
    request: &'a ResourceRequest<'_>,
    gvr: &'a GroupVersionResource,
    operation: Operation,
    name: &'a str,
    options: &'a dyn RequestOptions,
    old: Option<&'a Value>,
) -> Attributes<'a> {
    Attributes {
        operation,
        gvk: request.kind.gvk(),
        gvr,
        subresource: &request.info.subresource,
        namespace: &request.info.namespace,
        name,
        user: request.user,
        authenticated_user: request.authenticated_user,
        options,
        old,
        warnings: request.warnings,
        audit: &request.audit.annotations,
        reinvocation: Reinvocation::default(),
        charges: WriteCharges::default(),
        deadline: request.deadline,
    }
}

#[cfg(test)]
mod tests;
