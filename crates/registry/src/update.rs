//! PUT, and the loop that every change of an object goes through: read, change, compare-and-commit,
//! and again from the newest state if somebody else was faster.

use admission::{Attributes, Operation};
use bytes::Bytes;
use meta::{ApiError, FieldErrors, Value, field::path};
use store::{Expect, StoreError};

use crate::{
    Kind, ResourceResponse, Storage,
    create::{attributes, authorize_write, create_object, gvr, invalid},
    decode,
    get::{check_name, storage},
    managed, object_meta,
    options::WriteOptions,
    owners,
    resource_request::ResourceRequest,
    response_format::{self, ResponseFormat},
    storage::{may_be_stale, store_error},
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
    object_meta::settle_namespace(kind, &request.info.namespace, &mut object)?;
    object_meta::check_name(&object, &request.info.name)?;
    let allow_create = request.info.subresource.is_empty() && kind.behaviour.create_on_update;
    let written = change(request, &options, allow_create, &mut |_| Ok(object.clone())).await?;
    response_format::json(request, &format, if written.created { 201 } else { 200 }, written.json)
}

/// A committed object as its client gets it.
pub(crate) struct Written {
    pub(crate) json: Bytes,
    pub(crate) created: bool,
    /// Whether the store was asked. If not (nothing changed, a dry run), the answer is only as new
    /// as what it was made of.
    pub(crate) stored: bool,
}

/// Makes the next state of an object from the current one (None: there is none yet).
pub(crate) type Next<'a> = dyn FnMut(Option<&Value>) -> Result<Value, ApiError> + Send + 'a;

/// An object as it is now, in the served version.
struct Current {
    object: Value,
    json: Bytes,
    revision: u64,
}

pub(crate) async fn change(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    allow_create: bool,
    next: &mut Next<'_>,
) -> Result<Written, ApiError> {
    let (kind, storage) = (request.kind, storage(request)?);
    check_name(request)?;
    let key = storage.key(&request.info.namespace, &request.info.name);
    // The cache is nearly always new enough; only when something doesn't fit is the store asked.
    let cached = storage.cache.get(&key);
    let mut current = match &cached {
        Some(entry) => Some(Current::new(kind, entry.json.clone(), entry.revision).await?),
        None => newest(kind, storage, &key).await?,
    };
    let mut from_cache = cached.is_some();
    loop {
        let attempt = match &current {
            Some(current) => change_once(request, storage, options, current, next).await,
            None if allow_create => create_instead(request, storage, options, next).await,
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
            // Somebody else was faster.
            Ok(None) => current = newest(kind, storage, &key).await?,
            // Perhaps only because the cache was behind.
            Err(error) if from_cache && may_be_stale(&error) => {
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
        let object = decode::tree(&json)?;
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

async fn create_instead(
    request: &ResourceRequest<'_>,
    storage: &Storage,
    options: &WriteOptions,
    next: &mut Next<'_>,
) -> Result<Option<Written>, ApiError> {
    let mut object = next(None)?;
    if options.owners_noted {
        // Compat: what an apply creates may have had any version.
        object.remove_at(&["metadata", "resourceVersion"]);
    }
    let uid = object.str_at(&["metadata", "uid"]);
    if options.owners_noted && !uid.is_empty() {
        let (resource, name) = (request.kind.group_resource(), request.info.name.to_string());
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(ApiError::Conflict { resource, name, why });
    }
    if !uid.is_empty() || !object.str_at(&["metadata", "resourceVersion"]).is_empty() {
        // It was there when the client saw it.
        return Err(not_found(request));
    }
    // Who may change objects may not for that reason make new ones.
    let info = meta::RequestInfo { verb: meta::Str::new_static("create"), ..request.info.clone() };
    request.engine.judge.check(request.user, &info)?;
    match create_object(request, storage, options, object).await {
        Ok(written) => Ok(Some(written)),
        Err(ApiError::AlreadyExists { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// One attempt. None: the object changed meanwhile.
async fn change_once(
    request: &ResourceRequest<'_>,
    storage: &Storage,
    options: &WriteOptions,
    current: &Current,
    next: &mut Next<'_>,
) -> Result<Option<Written>, ApiError> {
    let (kind, old) = (request.kind, &current.object);
    let mut object = loop {
        let tracked = next(Some(old)).map(|mut object| {
            // Compat: of a patch, upstream speaks as if admission had done it.
            owners::deduplicate(&mut object, request.info.verb == "patch", request.warnings);
            kind.apply_defaults(&mut object);
            managed::track(request, options, Some(old), &mut object);
            object
        });
        // What was refused for want of a conversion may be fine with it.
        if !options.others.resolve(kind.remote()).await? {
            break tracked?;
        }
    };
    let (gvr, name) = (gvr(kind), request.info.name.as_str());
    let attributes = attributes(request, &gvr, Operation::Update, name, options.dry_run, Some(old));
    request.engine.admission.admit(&attributes, Some(&mut object)).await?;
    owners::deduplicate(&mut object, true, request.warnings);
    authorize_write(request, &object, Some(old)).await?;
    check_version(request, &mut object, current)?;
    if request.info.verb == "update" {
        check_uid(request, storage, options, &object, old)?;
    }
    let allocator = kind.allocator.as_ref().filter(|_| request.info.subresource.is_empty());
    let Some(allocator) = allocator else {
        return finish_change(request, storage, options, &attributes, current, object).await;
    };
    let allocation = allocator.for_update(&mut object, old, options.dry_run).await?;
    let written = finish_change(request, storage, options, &attributes, current, object).await;
    allocation.settle(matches!(written, Ok(Some(_)))).await;
    written
}

/// From admission's last word into the store.
async fn finish_change(
    request: &ResourceRequest<'_>,
    storage: &Storage,
    options: &WriteOptions,
    attributes: &Attributes<'_>,
    current: &Current,
    mut object: Value,
) -> Result<Option<Written>, ApiError> {
    let (kind, old, name) = (request.kind, &current.object, request.info.name.as_str());
    let cx = WriteContext { kind, user: request.user, now: meta::time::Time::now() };
    prepare_update(kind, &request.info.subresource, &mut object, old, &cx)?;
    for text in kind.strategy.warnings(&request.info.subresource, &object, Some(old)) {
        request.warnings.add(text);
    }
    ::patch::apply::keep_times_if_unchanged(old, &mut object);
    request.engine.admission.validate(attributes, Some(&object)).await?;

    let key = storage.key(&request.info.namespace, name);
    if is_last_finalizer_gone(kind, &object, old) {
        return finish_delete(kind, storage, options, key, current, object).await;
    }
    let stored = storage.encode(kind.to_stored(object).await?)?;
    let at_old = kind.view_of_stored(&storage.at_revision(&stored.json, current.revision)?).await?;
    // Nothing changed: nothing is written, the resourceVersion stays; unless an old key encrypts it, or
    // it is stored as it would not be stored any more.
    if options.dry_run || (at_old == current.json && !storage.is_stale(&key, &stored).await?) {
        return Ok(Some(Written { json: at_old, created: false, stored: false }));
    }
    match storage.write(key, Expect::At(current.revision), Some(&stored)).await {
        Ok(revision) => {
            let json = kind.view_of_stored(&storage.at_revision(&stored.json, revision)?).await?;
            Ok(Some(Written { json, created: false, stored: true }))
        }
        Err(StoreError::Conflict { .. }) => Ok(None),
        Err(other) => Err(store_error(other)),
    }
}

/// The client's resourceVersion, if it gave one, must be the current one.
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
        return Err(ApiError::Invalid { kind, name: name.to_owned(), errors });
    }
    if given != 0 && given != current.revision {
        return Err(ApiError::modified(kind.group_resource(), name));
    }
    object.set_at(&["metadata", "resourceVersion"], current.revision.to_string());
    Ok(())
}

/// An object that was deleted and made again is another one.
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
    // Compat: a dry run doesn't get as far as the part of the key that all keys share.
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

/// Everything between admission and the store: what the server sets, and whether it may stand.
pub fn prepare_update(
    kind: &Kind,
    subresource: &str,
    object: &mut Value,
    old: &Value,
    cx: &WriteContext<'_>,
) -> Result<(), ApiError> {
    kind.apply_defaults(object);
    kind.gated_fields.drop_fields(object, Some(old));
    kind.settle(object);
    if subresource.is_empty() {
        if kind.has_status() {
            match old.get("status") {
                Some(status) => object.set_at(&["status"], status.clone()),
                None => drop(object.remove_at(&["status"])),
            }
        }
        kind.strategy.prepare_for_update(object, old, cx);
    } else {
        kind.strategy.prepare_for_subresource(subresource, object, old, cx);
        keep_metadata(kind, subresource, object, old);
    }
    object_meta::keep_for_update(object, old);
    // A write to the status asks for nothing new.
    let counted = if subresource == "status" { &[] } else { kind.behaviour.generation };
    object_meta::count_generation(object, Some(old), counted);
    let mut errors = object_meta::validate_update(kind, subresource, object, old);
    if subresource.is_empty() {
        kind.strategy.validate_update(object, old, &mut errors);
        kind.gated_fields.validate(object, &mut errors);
    } else {
        kind.strategy.validate_subresource(subresource, object, old, &mut errors);
    }
    invalid(kind, object, errors)
}

/// Some kinds let a write to a subresource change nothing of the metadata, or not all of it.
fn keep_metadata(kind: &Kind, subresource: &str, object: &mut Value, old: &Value) {
    let Some(reset) = kind.behaviour.reset(subresource) else { return };
    let whole = reset.contains(&"metadata");
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        if whole || reset.contains(&format!("metadata.{field}").as_str()) {
            let at = ["metadata", field];
            match old.at(&at) {
                Some(value) => object.set_at(&at, value.clone()),
                None => drop(object.remove_at(&at)),
            }
        }
    }
}

/// An object that waits for its finalizers goes with the last of them.
fn is_last_finalizer_gone(kind: &Kind, object: &Value, old: &Value) -> bool {
    let grace = old.i64_at(&["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default();
    object_meta::is_deleting(old)
        && grace == 0
        && object_meta::finalizers(object).is_empty()
        && !kind.strategy.holds_deletion(object)
}

async fn finish_delete(
    kind: &Kind,
    storage: &Storage,
    options: &WriteOptions,
    key: meta::Str,
    current: &Current,
    object: Value,
) -> Result<Option<Written>, ApiError> {
    let last = storage.last_json(kind.to_stored(object).await?);
    let json = kind.view_of_stored(&storage.at_revision(&last, current.revision)?).await?;
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
    Ok(Some(Written { json, created: false, stored: !options.dry_run }))
}
