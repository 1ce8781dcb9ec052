//! PUT, and the optimistic concurrency loop of all updates: read, change, compare-and-swap, and
//! retry from the newest state after a conflict.

use std::sync::Arc;

use admission::Operation;
use bytes::Bytes;
use meta::{
    ApiError, FieldErrors, Value,
    authorization::{Attributes, require},
    field::path,
};
use store::{Expect, StoreError};

use crate::{
    Allocation, Kind, ResourceResponse, Storage, audit,
    create::{attributes, authorize_write, create_object, gvr, invalid, settle_charges},
    decode,
    get::{check_name, storage},
    managed_fields, object_meta,
    options::WriteOptions,
    owner_references,
    resource_request::ResourceRequest,
    response_format::{self, ResponseFormat},
    scale,
    storage::{may_come_from_a_stale_cache, store_error},
    strategy::WriteContext,
};

pub(crate) async fn update(request: &ResourceRequest<'_>) -> Result<ResourceResponse, ApiError> {
    let format = ResponseFormat::negotiate(request)?;
    let options = WriteOptions::read(request.query, "UpdateOptions", false)?;
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
    object_meta::check_name(&object, &request.info.name)?;
    let allow_create = request.info.subresource.is_empty() && kind.behaviour.create_on_update;
    // Moved into the first attempt: a copy for one more would be as large as the object. After a conflict
    // the body is decoded again; what there was to warn about has been said.
    let mut first = Some(object);
    let mut next = |_: Option<&Value>| match first.take() {
        Some(object) => Ok(object),
        None => {
            let mut object = decode::body(request, &expected)?;
            object_meta::ensure_namespace_matches(kind, &request.info.namespace, &mut object)?;
            Ok(object)
        }
    };
    let written = guaranteed_update(request, &options, allow_create, &mut next).await?;
    response_format::json(request, &format, if written.created { 201 } else { 200 }, written.json)
}

/// The result of a write, as the client gets it.
pub(crate) struct WrittenObject {
    pub(crate) json: Bytes,
    pub(crate) created: bool,
    /// Whether the store was written. If not (no change, a dry run), the object is only as new as
    /// the state it was made from.
    pub(crate) stored: bool,
}

/// Computes the next state of an object from the current one (None: it does not exist).
pub(crate) type NextState<'a> = dyn FnMut(Option<&Value>) -> Result<Value, ApiError> + Send + 'a;

/// The current object, in the served version.
struct Current {
    object: Value,
    json: Bytes,
    revision: u64,
}

pub(crate) async fn guaranteed_update(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    allow_create: bool,
    next: &mut NextState<'_>,
) -> Result<WrittenObject, ApiError> {
    let (kind, storage) = (request.kind, storage(request)?);
    check_name(request)?;
    let key = storage.key(&request.info.namespace, &request.info.name);
    // The cache is nearly always new enough; the store is read only after a failure.
    let cached = storage.cache.get(&key);
    let mut current = match &cached {
        Some(entry) => Some(Current::new(kind, entry.json.bytes(), entry.revision).await?),
        None => newest(kind, storage, &key).await?,
    };
    let mut from_cache = cached.is_some();
    loop {
        let attempt = match &current {
            Some(current) => try_update(request, storage, options, current, next).await,
            None if allow_create => create_on_update(request, storage, options, next).await,
            None => Err(not_found(request)),
        };
        let before = current.as_ref().map(|current| current.revision);
        match attempt {
            Ok(Some(written)) if written.stored || !from_cache => return Ok(written),
            Ok(Some(written)) => {
                let fresh = storage.cache.fresh().await.map_err(store_error)?;
                let revision = fresh.get(&key).map(|entry| entry.revision);
                if revision.is_some() && revision == before {
                    return Ok(written);
                }
                current = newest(kind, storage, &key).await?;
            }
            // Conflict: retry from the newest state.
            Ok(None) => current = newest(kind, storage, &key).await?,
            // A stale cache may be the reason.
            Err(error) if from_cache && may_come_from_a_stale_cache(&error) => {
                current = newest(kind, storage, &key).await?;
                if current.as_ref().map(|current| current.revision) == before {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        from_cache = false;
    }
}

impl Current {
    async fn new(kind: &Kind, stored: Bytes, revision: u64) -> Result<Self, ApiError> {
        let json = kind.view_of_stored(&stored).await?;
        let object = kind.decode(&json)?;
        Ok(Self { object, json, revision })
    }
}

async fn newest(kind: &Kind, storage: &Storage, key: &str) -> Result<Option<Current>, ApiError> {
    let Some(found) = storage.read(key).await? else { return Ok(None) };
    let json = storage.at_revision(&found.value, found.mod_revision)?;
    Current::new(kind, json, found.mod_revision).await.map(Some)
}

fn not_found(request: &ResourceRequest<'_>) -> ApiError {
    ApiError::not_found(request.kind.group_resource(), request.info.name.as_str())
}

async fn create_on_update(
    request: &ResourceRequest<'_>,
    storage: &Arc<Storage>,
    options: &WriteOptions,
    next: &mut NextState<'_>,
) -> Result<Option<WrittenObject>, ApiError> {
    let mut object = next(None)?;
    if options.managed_fields_tracked {
        // Compat: a create by apply ignores the resourceVersion.
        object.remove_at(&["metadata", "resourceVersion"]);
    }
    let uid = object.str_at(&["metadata", "uid"]);
    if options.managed_fields_tracked && !uid.is_empty() {
        let (resource, name) = (request.kind.group_resource(), request.info.name.to_string());
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(ApiError::Conflict { resource, name, why });
    }
    // The client has seen an object that is gone. Compat: its uid is compared before anything else.
    check_uid(request, storage, options, &object, &Value::Null)?;
    if !object.str_at(&["metadata", "resourceVersion"]).is_empty() {
        return Err(not_found(request));
    }
    // The right to update does not include the right to create.
    let create =
        Attributes { verb: "create", ..Attributes::of_request(request.user, request.info) };
    require(&*request.engine.authorizer, &create).await?;
    match create_object(request, storage, options, object).await {
        Ok(written) => Ok(Some(written)),
        // Admission may have given it the name of another object, which a retry would find again.
        Err(ApiError::AlreadyExists { name, .. }) if name == request.info.name => Ok(None),
        Err(error) => Err(error),
    }
}

/// One attempt. None: conflict.
async fn try_update(
    request: &ResourceRequest<'_>,
    storage: &Arc<Storage>,
    options: &WriteOptions,
    current: &Current,
    next: &mut NextState<'_>,
) -> Result<Option<WrittenObject>, ApiError> {
    let (kind, old) = (request.kind, &current.object);
    let mut object = loop {
        let tracked = next(Some(old)).and_then(|mut object| {
            // Compat: upstream words the warning for a patch as if admission had added the
            // duplicates.
            owner_references::deduplicate(
                &mut object,
                request.info.verb == "patch",
                request.warnings,
            );
            kind.apply_defaults(&mut object)?;
            managed_fields::track(request, options, Some(old), &mut object);
            Ok(object)
        });
        // A failure may be due to a missing conversion: retry after it.
        if !options.conversions.resolve(kind.remote()).await? {
            break tracked?;
        }
    };
    // Compat: the uid is a precondition, which comes before admission.
    if request.info.verb == "update" {
        check_uid(request, storage, options, &object, old)?;
    }
    let (gvr, name) = (gvr(kind), request.info.name.as_str());
    let scale = scale::admitted(request, old);
    let mut attributes = attributes(request, &gvr, Operation::Update, name, options, Some(old));
    if let Some((gvk, old)) = &scale {
        (attributes.gvk, attributes.old) = (gvk, Some(old));
        scale::admit(request, options, &attributes, &current.object, &mut object).await?;
    } else {
        request.engine.admission.admit(&attributes, Some(&mut object)).await?;
    }
    owner_references::deduplicate(&mut object, true, request.warnings);
    authorize_write(request, &object, Some(old)).await?;
    check_version(request, &mut object, current)?;
    let allocator = kind.allocator.as_ref().filter(|_| request.info.subresource.is_empty());
    let mut allocation = match allocator {
        Some(allocator) => allocator.for_update(&mut object, old, options.dry_run).await?,
        None => Allocation::default(),
    };
    let written =
        commit_update(request, storage, options, &attributes, current, object, &mut allocation)
            .await;
    settle_charges(&attributes, &written);
    // Still there only if nothing was handed to the store.
    allocation.release().await;
    written
}

/// Everything after mutating admission: validation, validating admission, and the write.
async fn commit_update(
    request: &ResourceRequest<'_>,
    storage: &Arc<Storage>,
    options: &WriteOptions,
    attributes: &admission::Attributes<'_>,
    current: &Current,
    mut object: Value,
    allocation: &mut Allocation,
) -> Result<Option<WrittenObject>, ApiError> {
    let (kind, old, name) = (request.kind, &current.object, request.info.name.as_str());
    let now = meta::time::Time::now();
    let cx = WriteContext {
        kind,
        user: request.user,
        now,
        warnings: request.warnings,
        has_sent_labels: false,
        sent_generation: None,
    };
    // Admission may have changed it.
    object_meta::ensure_namespace_matches(kind, &request.info.namespace, &mut object)?;
    prepare_update(kind, &request.info.subresource, &mut object, old, &cx)?;
    for text in kind.strategy.warnings(&request.info.subresource, &object, Some(old)) {
        request.warnings.add(text);
    }
    ::patch::apply::keep_times_if_unchanged(old, &mut object);
    if request.info.subresource == "scale" {
        let scale = scale::scale_of(request, &object);
        request.engine.admission.validate(attributes, Some(&scale)).await?;
    } else {
        request.engine.admission.validate(attributes, Some(&object)).await?;
    }

    if !options.dry_run {
        object.remove_at(&["metadata", "selfLink"]);
    }
    let key = storage.key(&request.info.namespace, name);
    if is_last_finalizer_gone(kind, &object, old) {
        return commit_last_finalizer(kind, storage, options, key, current, object).await;
    }
    let stored = storage.encode(kind.to_stored(object).await?)?;
    let at_old = kind.view_of_stored(&storage.encoded_at(&stored.json, current.revision)?).await?;
    // An unchanged object is not written and keeps its resourceVersion, unless it is encrypted with
    // an old key or stored in an old version.
    if options.dry_run || (at_old == current.json && !storage.needs_rewrite(&key, &stored).await?) {
        return Ok(Some(WrittenObject { json: at_old, created: false, stored: false }));
    }
    attributes.charges.check_age()?;
    let write = allocation.write(storage, key, Expect::At(current.revision), &stored);
    match audit::storage_latency(request, write).await {
        Ok(revision) => {
            let json = kind.view_of_stored(&storage.encoded_at(&stored.json, revision)?).await?;
            Ok(Some(WrittenObject { json, created: false, stored: true }))
        }
        Err(StoreError::Conflict { .. }) => Ok(None),
        Err(other) => Err(store_error(other)),
    }
}

/// Checks the client's resourceVersion, if there is one.
fn check_version(
    request: &ResourceRequest<'_>,
    object: &mut Value,
    current: &Current,
) -> Result<(), ApiError> {
    let (kind, name) = (request.kind, request.info.name.as_str());
    let given = object.str_at(&["metadata", "resourceVersion"]);
    // Compat: a version that is no number is a 500 without a reason.
    let given = given.parse().or(if given.is_empty() { Ok(0) } else { Err(given) });
    let given: u64 = given.map_err(|given| {
        let given = meta::field::quote(given);
        ApiError::Storage(format!("strconv.ParseUint: parsing {given}: invalid syntax"))
    })?;
    if given == 0 && !kind.behaviour.unconditional_update {
        let mut errors = FieldErrors::default();
        let message = "Invalid value: 0: must be specified for an update".to_owned();
        let field = path("metadata").child("resourceVersion");
        errors.push(meta::field::FieldReason::Invalid, &field, message);
        // Compat: the kind in this message is the resource.
        let kind = meta::GroupKind {
            group: kind.facts.kind.group.clone(),
            kind: kind.facts.plural.clone(),
        };
        return Err(ApiError::Invalid { kind, name: name.to_owned(), errors: Box::new(errors) });
    }
    if given != 0 && given != current.revision {
        return Err(ApiError::modified(kind.group_resource(), name));
    }
    object.set_at(&["metadata", "resourceVersion"], current.revision.to_string());
    Ok(())
}

/// Checks the uid: an object that was deleted and created again is another one.
fn check_uid(
    request: &ResourceRequest<'_>,
    storage: &Storage,
    options: &WriteOptions,
    object: &Value,
    old: &Value,
) -> Result<(), ApiError> {
    let (given, actual) = (object.str_at(&["metadata", "uid"]), old.str_at(&["metadata", "uid"]));
    if given.is_empty() || given == actual {
        return Ok(());
    }
    let key = storage.key(&request.info.namespace, &request.info.name);
    // Compat: in a dry run the key lacks the prefix of all keys.
    let shared = key.find('/').and_then(|at| key[at + 1..].find('/').map(|next| at + 1 + next));
    let key = if options.dry_run { &key[shared.unwrap_or_default()..] } else { &key };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, \
         UID in object meta: {actual}"
    );
    let (resource, name) = (request.kind.group_resource(), request.info.name.to_string());
    Err(ApiError::Conflict { resource, name, why })
}

/// Prepares and validates an update after mutating admission.
pub fn prepare_update(
    kind: &Kind,
    subresource: &str,
    object: &mut Value,
    old: &Value,
    cx: &WriteContext<'_>,
) -> Result<(), ApiError> {
    kind.apply_defaults(object)?;
    kind.gated_fields.drop_fields(object, Some(old));
    kind.normalize(object);
    if subresource.is_empty() {
        if kind.has_status() {
            object.keep_at(&["status"], old.get("status"));
        }
        kind.strategy.prepare_for_update(object, old, cx);
    } else {
        kind.strategy.prepare_for_subresource(subresource, object, old, cx);
        keep_metadata(kind, subresource, object, old);
    }
    object_meta::keep_for_update(object, old);
    // A write to the status does not change the desired state.
    let counted = if subresource == "status" { &[] } else { kind.behaviour.generation };
    object_meta::count_generation(object, Some(old), counted);
    let mut errors = object_meta::validate_update(kind, subresource, object, old);
    if subresource.is_empty() {
        kind.strategy.validate_update(object, old, &mut errors);
        kind.gated_fields.validate(object, &mut errors);
    } else {
        kind.strategy.validate_subresource(subresource, object, old, &mut errors);
    }
    for text in errors.take_warnings() {
        cx.warnings.add(text);
    }
    invalid(kind, object, errors)
}

/// Restores the metadata that a write to a subresource cannot change.
fn keep_metadata(kind: &Kind, subresource: &str, object: &mut Value, old: &Value) {
    let Some(reset) = kind.behaviour.reset(subresource) else { return };
    // Compat: as in Kubernetes, `metadata` stands for what users write there; few kinds restore all of it.
    let whole = reset.contains(&"metadata");
    for field in ["labels", "annotations", "finalizers", "ownerReferences", "generateName"] {
        if whole && field != "generateName" || reset.contains(&format!("metadata.{field}").as_str())
        {
            let at = ["metadata", field];
            object.keep_at(&at, old.at(&at));
        }
    }
}

/// Whether this update removes the last finalizer of an object that is being deleted.
fn is_last_finalizer_gone(kind: &Kind, object: &Value, old: &Value) -> bool {
    let grace = old.i64_at(&["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default();
    object_meta::is_deleting(old)
        && grace == 0
        && object_meta::finalizers(object).is_empty()
        && !kind.strategy.holds_deletion(object)
}

async fn commit_last_finalizer(
    kind: &Kind,
    storage: &Storage,
    options: &WriteOptions,
    key: meta::Str,
    current: &Current,
    object: Value,
) -> Result<Option<WrittenObject>, ApiError> {
    let last = storage.last_json(kind.to_stored(object).await?);
    let json = kind.view_of_stored(&storage.encoded_at(&last, current.revision)?).await?;
    if !options.dry_run {
        match storage.write(key, Expect::At(current.revision), None).await {
            Ok(_) => {}
            Err(StoreError::Conflict { .. }) => return Ok(None),
            Err(other) => return Err(store_error(other)),
        }
        if let Some(allocator) = &kind.allocator {
            allocator.release(&current.object).await;
        }
    }
    Ok(Some(WrittenObject { json, created: false, stored: !options.dry_run }))
}

#[cfg(test)]
mod tests;
