//! DELETE of one object and of collections. An object is removed at once, or marked while it waits
//! for its grace period or finalizers.

use admission::Operation;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use meta::{
    ApiError, Details, Status, Str, Value,
    authorization::{Attributes, require},
    time::{Duration, Time},
};
use store::{Expect, StoreError};

use crate::{
    GarbageCollectionPolicy, Kind, ResourceResponse, Storage, audit,
    create::{attributes, gvr},
    get::{check_name, storage},
    list,
    object_meta::{finalizers, is_deleting},
    options::{DeleteOptions, IGNORE_READ_ERROR, ListOptions},
    resource_request::ResourceRequest,
    response_format::{self, ResponseFormat},
    storage::{may_come_from_a_stale_cache, store_error},
};

pub(crate) async fn delete(request: &ResourceRequest<'_>) -> Result<ResourceResponse, ApiError> {
    let format = ResponseFormat::negotiate(request)?;
    let options = options(request)?;
    if let Some(why) = request.kind.strategy.refuses_deletion(&request.info.name) {
        return Err(ApiError::Forbidden {
            resource: request.kind.group_resource(),
            name: request.info.name.to_string(),
            why: why.to_owned(),
            causes: Vec::new(),
        });
    }
    if options.ignore_read_error && request.engine.options.unsafe_deletion {
        return delete_unreadable(request, &format, &options).await;
    }
    warn_of_orphans(request, &options);
    check_name(request)?;
    match delete_object(request, &options, &request.info.namespace, &request.info.name).await? {
        Deleted::Object(json) => response_format::json(request, &format, 200, json),
        Deleted::Gone(details) => {
            Ok(response_format::status(request, &format, &Status::success(details)))
        }
    }
}

/// Deletes an object that cannot be read, without preconditions, finalizers and admission: all of
/// them need the object.
async fn delete_unreadable(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    options: &DeleteOptions,
) -> Result<ResourceResponse, ApiError> {
    request.audit.annotations.add("apiserver.k8s.io/unsafe-delete-ignore-read-error", "");
    options.check_unsafe()?;
    let storage = storage(request)?;
    let delete =
        Attributes { verb: UNSAFE_VERB, ..Attributes::of_request(request.user, request.info) };
    require(&*request.engine.authorizer, &delete).await?;
    let name = request.info.name.as_str();
    if !storage.delete_unreadable(&storage.key(&request.info.namespace, name)).await? {
        let resource = request.kind.group_resource();
        let mut errors = meta::FieldErrors::default();
        errors.invalid(
            meta::field::path(IGNORE_READ_ERROR),
            true,
            "is exclusively used to delete corrupt object(s), try again by removing this option",
        );
        let kind = meta::GroupKind::new(&resource.group, &resource.resource);
        return Err(ApiError::Invalid { kind, name: name.to_owned(), errors: Box::new(errors) });
    }
    let gone = Details {
        name: name.to_owned(),
        group: request.kind.gvk().group.to_string(),
        kind: request.kind.facts.plural.to_string(),
        ..Details::default()
    };
    Ok(response_format::status(request, format, &Status::success(gone)))
}

/// Compat: this verb must be allowed, in addition to `delete`.
const UNSAFE_VERB: &str = "unsafe-delete-ignore-read-errors";

/// Deletes the object of a request for one of its subresources, whose request has passed admission.
pub(crate) async fn delete_without_admission(
    request: &ResourceRequest<'_>,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    delete_object(request, options, &request.info.namespace, &request.info.name).await.map(drop)
}

pub(crate) async fn delete_collection(
    request: &ResourceRequest<'_>,
) -> Result<ResourceResponse, ApiError> {
    let format = ResponseFormat::negotiate(request)?;
    let list_options = ListOptions::read(request.query)?;
    let options = options(request)?;
    warn_of_orphans(request, &options);
    let found =
        list::prepared(request, &list_options, list::find(request, &list_options).await?).await?;
    let head = found.head.clone();
    let entries: Vec<_> = found.items.collect();
    // Concurrent commits share an fsync.
    let mut running = FuturesUnordered::new();
    for entry in &entries {
        if running.len() == request.engine.options.delete_collection_workers {
            ignore_not_found(running.next().await)?;
        }
        running.push(delete_object(request, &options, &entry.namespace, &entry.name));
    }
    while let Some(outcome) = running.next().await {
        ignore_not_found(Some(outcome))?;
    }
    drop(running);
    let found = list::ListResult { items: list::Items::of(entries), head };
    response_format::list(request, &format, found).await
}

/// An object that was deleted concurrently is not an error.
fn ignore_not_found(outcome: Option<Result<Deleted, ApiError>>) -> Result<(), ApiError> {
    match outcome {
        None | Some(Ok(_) | Err(ApiError::NotFound { .. })) => Ok(()),
        Some(Err(error)) => Err(error),
    }
}

/// Warns if dependents are orphaned by default.
fn warn_of_orphans(request: &ResourceRequest<'_>, options: &DeleteOptions) {
    let has_policy = options.propagation_policy.is_some() || options.orphan_dependents.is_some();
    if let GarbageCollectionPolicy::OrphanDependents { warning: Some(warning) } =
        request.kind.behaviour.dependents
        && !has_policy
    {
        request.warnings.add(warning.to_owned());
    }
}

fn options(request: &ResourceRequest<'_>) -> Result<DeleteOptions, ApiError> {
    if request.body.is_empty() {
        return DeleteOptions::read(request.query, None);
    }
    let body = crate::decode::delete_options(request)?;
    audit::delete_options(request, &body)?;
    DeleteOptions::read(request.query, Some(&body))
}

enum Deleted {
    /// The object is still there, or its kind answers with the deleted object.
    Object(Bytes),
    Gone(Details),
}

/// What a delete does.
enum DeletePlan {
    /// Removes the object; this is its last state.
    Remove(Value),
    /// Marks the object; this is its next state.
    Mark(Value),
    /// The object is being deleted already, and the request does not change that.
    Unchanged,
    /// The object is marked already.
    Marked,
}

async fn delete_object(
    request: &ResourceRequest<'_>,
    options: &DeleteOptions,
    namespace: &str,
    name: &str,
) -> Result<Deleted, ApiError> {
    let (kind, storage) = (request.kind, storage(request)?);
    let key = storage.key(namespace, name);
    let mut cached = storage.cache.get(&key);
    loop {
        // Starts from the cache; a failure that a stale cache may have caused is retried with the
        // state of the store.
        let from_cache = cached.is_some();
        let (stored, revision) = match cached.take() {
            Some(entry) => (entry.json.bytes(), entry.revision),
            None => match storage.read(&key).await? {
                Some(found) => {
                    (storage.at_revision(&found.value, found.mod_revision)?, found.mod_revision)
                }
                None => return Err(ApiError::not_found(kind.group_resource(), name)),
            },
        };
        let json = kind.view_of_stored(&stored).await?;
        let object = kind.decode(&json)?;
        let step =
            step(request, options, storage, key.clone(), (namespace, name), object, json, revision);
        match step.await {
            Ok(Some(deleted)) => return Ok(deleted),
            Ok(None) => {}
            Err(error) if !from_cache || !may_come_from_a_stale_cache(&error) => return Err(error),
            Err(error) => {
                let newest = storage.read(&key).await?;
                if newest.is_some_and(|newest| newest.mod_revision == revision) {
                    return Err(error);
                }
            }
        }
    }
}

/// One attempt. None: conflict.
#[allow(clippy::too_many_arguments)] // The state of one round of the loop above.
async fn step(
    request: &ResourceRequest<'_>,
    options: &DeleteOptions,
    storage: &Storage,
    key: Str,
    (namespace, name): (&str, &str),
    object: Value,
    json: Bytes,
    revision: u64,
) -> Result<Option<Deleted>, ApiError> {
    let kind = request.kind;
    check_preconditions(kind, options, &object, name)?;
    let plan = plan(request, options, &object, Time::now());
    // Compat: admission is not asked about a deletion that is under way and does not get shorter.
    if matches!(plan, DeletePlan::Unchanged) {
        return Ok(Some(deleted_response(kind, &object, json)));
    }
    let is_admitted = request.info.subresource.is_empty();
    if is_admitted {
        // Compat: admission is told the grace period that the kind has chosen.
        let mut told = options.clone();
        if !is_deleting(&object)
            && let Some(seconds) =
                kind.strategy.graceful_deletion(&object, told.grace_period_seconds)
        {
            told.grace_period_seconds = Some(seconds);
        }
        // Compat: namespaces and definitions are deleted by their uid.
        if kind.behaviour.deleted_in_two_steps && told.uid.is_none() {
            told.uid = Some(object.str_at(&["metadata", "uid"]).to_owned());
        }
        admit(request, &told, (namespace, name), &object).await?;
        // Compat: kube-apiserver marks such an object before it removes it, and asks each time.
        if let DeletePlan::Remove(marked) = &plan
            && object.at(&GRACE_PERIOD) != marked.at(&GRACE_PERIOD)
            && !options.dry_run
        {
            admit(request, &told, (namespace, name), marked).await?;
        }
    }

    let (waiting, last) = match plan {
        DeletePlan::Unchanged => return Ok(Some(deleted_response(kind, &object, json))),
        DeletePlan::Marked => return Ok(Some(Deleted::Object(json))),
        DeletePlan::Remove(last) => (None, last),
        DeletePlan::Mark(waiting) => {
            (Some(storage.encode(kind.to_stored(waiting).await?)?), Value::Null)
        }
    };
    if options.dry_run {
        let Some(stored) = waiting else {
            return deleted_at(kind, storage, &object, last, revision).await.map(Some);
        };
        return Ok(Some(Deleted::Object(
            kind.view_of_stored(&storage.encoded_at(&stored.json, revision)?).await?,
        )));
    }
    let write = storage.write(key, Expect::At(revision), waiting.as_ref());
    match audit::storage_latency(request, write).await {
        Ok(at) => Ok(Some(if let Some(stored) = waiting {
            Deleted::Object(kind.view_of_stored(&storage.encoded_at(&stored.json, at)?).await?)
        } else {
            if let Some(allocator) = &kind.allocator {
                allocator.release(&object).await;
            }
            deleted_at(kind, storage, &object, last, at).await?
        })),
        Err(StoreError::Conflict { .. }) => Ok(None),
        Err(other) => Err(store_error(other)),
    }
}

const GRACE_PERIOD: [&str; 2] = ["metadata", "deletionGracePeriodSeconds"];

/// Asks the admission plugins about the deletion of an object.
async fn admit(
    request: &ResourceRequest<'_>,
    options: &DeleteOptions,
    (namespace, name): (&str, &str),
    object: &Value,
) -> Result<(), ApiError> {
    let gvr = gvr(request.kind);
    // Compat: each object of a collection is admitted, without its name.
    let name = if request.info.verb == "deletecollection" { "" } else { name };
    let mut attributes = attributes(request, &gvr, Operation::Delete, name, options, Some(object));
    attributes.namespace = namespace;
    request.engine.admission.admit(&attributes, None).await?;
    request.engine.admission.validate(&attributes, None).await
}

/// The response for a deleted object; `last` is its last state.
async fn deleted_at(
    kind: &Kind,
    storage: &Storage,
    object: &Value,
    last: Value,
    revision: u64,
) -> Result<Deleted, ApiError> {
    let last = storage.last_json(kind.to_stored(last).await?);
    let last = storage.encoded_at(&last, revision)?;
    Ok(deleted_response(kind, object, kind.view_of_stored(&last).await?))
}

fn deleted_response(kind: &Kind, object: &Value, json: Bytes) -> Deleted {
    if kind.behaviour.returns_deleted_object {
        return Deleted::Object(json);
    }
    Deleted::Gone(Details {
        name: object.str_at(&["metadata", "name"]).to_owned(),
        group: kind.gvk().group.to_string(),
        // Compat: `kind` is the resource here.
        kind: kind.facts.plural.to_string(),
        uid: object.str_at(&["metadata", "uid"]).to_owned(),
        ..Details::default()
    })
}

fn check_preconditions(
    kind: &Kind,
    options: &DeleteOptions,
    object: &Value,
    name: &str,
) -> Result<(), ApiError> {
    let actual = object.str_at(&["metadata", "uid"]);
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != actual) {
        let hint = "The object might have been deleted and then recreated";
        return Err(unmet_precondition(kind, name, "UID", uid, actual, hint));
    }
    let actual = object.str_at(&["metadata", "resourceVersion"]);
    if let Some(version) = options.resource_version.as_deref().filter(|given| *given != actual) {
        let hint = "The object might have been modified";
        return Err(unmet_precondition(kind, name, "ResourceVersion", version, actual, hint));
    }
    Ok(())
}

fn unmet_precondition(
    kind: &Kind,
    name: &str,
    what: &str,
    given: &str,
    actual: &str,
    hint: &str,
) -> ApiError {
    let name = name.to_owned();
    if kind.behaviour.deleted_in_two_steps {
        let why = format!(
            "Precondition failed: {what} in precondition: {given}, {what} in object meta: {actual}"
        );
        return ApiError::Conflict { resource: kind.group_resource(), name, why };
    }
    // Compat: this message names the kind where others name the resource.
    let stored = kind.facts.storage.as_ref().map(|stored| stored.version.group.clone());
    let group = stored.unwrap_or_else(|| kind.gvk().group.clone());
    let resource = meta::GroupResource { group, resource: kind.gvk().kind.clone() };
    let why = format!(
        "the {what} in the precondition ({given}) does not match the {what} in record ({actual}). {hint}"
    );
    ApiError::Conflict { resource, name, why }
}

fn plan(
    request: &ResourceRequest<'_>,
    options: &DeleteOptions,
    object: &Value,
    now: Time,
) -> DeletePlan {
    let kind = request.kind;
    let mut next = object.clone();
    let grace = match grace(kind, options, object, &mut next, now) {
        Grace::Pending => return DeletePlan::Unchanged,
        Grace::None => None,
        Grace::Seconds(seconds) => Some(seconds),
    };
    let wanted = finalizers_for_garbage_collection(kind, options, object);
    if request.engine.options.garbage_collection && wanted != finalizers(object) {
        let wanted: Vec<Value> = wanted.iter().cloned().map(Value::from).collect();
        next.set_at(&["metadata", "finalizers"], Value::Array(wanted));
    }
    let held_by_kind = kind.strategy.holds_deletion(object);
    let held = !finalizers(&next).is_empty() || held_by_kind;
    match grace {
        Some(seconds) if seconds > 0 => {}
        _ if !held => return DeletePlan::Remove(next),
        Some(_) => {}
        None => mark_as_deleting(&mut next, now, held_by_kind),
    }
    if !is_deleting(object) {
        kind.strategy.begin_deletion(&mut next);
    }
    if next == *object { DeletePlan::Marked } else { DeletePlan::Mark(next) }
}

enum Grace {
    /// The kind has no grace period.
    None,
    Seconds(i64),
    /// The object is being deleted, and the request does not shorten its grace period.
    Pending,
}

fn grace(
    kind: &Kind,
    options: &DeleteOptions,
    object: &Value,
    next: &mut Value,
    now: Time,
) -> Grace {
    let requested = options.grace_period_seconds;
    if !is_deleting(object) {
        let Some(seconds) = kind.strategy.graceful_deletion(object, requested) else {
            return Grace::None;
        };
        next.set_at(&["metadata", "deletionTimestamp"], now.plus(seconds_of(seconds)).to_rfc3339());
        next.set_at(&["metadata", "deletionGracePeriodSeconds"], seconds);
        raise_generation(next);
        return Grace::Seconds(seconds);
    }
    // Kinds without a grace period have none recorded.
    let Some(current) =
        object.i64_at(&["metadata", "deletionGracePeriodSeconds"]).filter(|s| *s > 0)
    else {
        return Grace::None;
    };
    // A grace period can only be shortened.
    let Some(mut period) = requested.filter(|period| *period < current) else {
        return Grace::Pending;
    };
    let deadline = Time::parse(object.str_at(&["metadata", "deletionTimestamp"])).unwrap_or(now);
    let mut sooner = deadline.plus(seconds_of(period - current));
    if sooner < now {
        sooner = now;
        period = i64::from(period != 0);
    }
    next.set_at(&["metadata", "deletionTimestamp"], sooner.to_rfc3339());
    next.set_at(&["metadata", "deletionGracePeriodSeconds"], period);
    Grace::Seconds(period)
}

/// Marks an object that waits for its finalizers. Compat: for kinds that handle their deletion
/// themselves (namespaces, definitions) only the deletionTimestamp is set.
// Compat: of kinds that see to their deletion themselves (namespaces, definitions) only the time is noted.
fn mark_as_deleting(object: &mut Value, now: Time, held_by_kind: bool) {
    let already = is_deleting(object);
    if !already {
        object.set_at(&["metadata", "deletionTimestamp"], now.to_rfc3339());
    }
    if !held_by_kind {
        if !already {
            raise_generation(object);
        }
        object.set_at(&["metadata", "deletionGracePeriodSeconds"], 0i64);
    }
}

/// A deletion is a change of the desired state.
fn raise_generation(object: &mut Value) {
    if let Some(generation) = object.i64_at(&["metadata", "generation"]).filter(|g| *g > 0) {
        object.set_at(&["metadata", "generation"], generation + 1);
    }
}

fn seconds_of(seconds: i64) -> Duration {
    Duration { nanos: seconds.saturating_mul(1_000_000_000) }
}

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The finalizer by which the garbage collector handles dependents.
fn finalizers_for_garbage_collection(
    kind: &Kind,
    options: &DeleteOptions,
    object: &Value,
) -> Vec<Str> {
    let have = finalizers(object);
    // Compat: the first deletion of a CustomResourceDefinition adds its own finalizer only.
    if kind.facts.kind.group == "apiextensions.k8s.io" && !is_deleting(object) {
        return have;
    }
    let dependents = kind.behaviour.dependents;
    let wanted_finalizer = match (options.orphan_dependents, options.propagation_policy.as_deref())
    {
        _ if dependents == GarbageCollectionPolicy::Unsupported => None,
        (Some(true), _) | (None, Some("Orphan")) => Some(ORPHAN),
        (None, Some("Foreground")) => Some(FOREGROUND),
        (Some(false), _) | (None, Some(_)) => None,
        (None, None) => {
            let kept = have.iter().find(|name| *name == ORPHAN || *name == FOREGROUND);
            let kept = kept.map(|name| if name == ORPHAN { ORPHAN } else { FOREGROUND });
            let orphaned = matches!(dependents, GarbageCollectionPolicy::OrphanDependents { .. });
            kept.or(orphaned.then_some(ORPHAN))
        }
    };
    let kept = wanted_finalizer
        .is_some_and(|wanted_finalizer| have.iter().any(|name| name == wanted_finalizer));
    let others = [ORPHAN, FOREGROUND]
        .iter()
        .any(|other| Some(*other) != wanted_finalizer && have.iter().any(|name| name == other));
    if kept && !others {
        return have;
    }
    let mut wanted: Vec<Str> =
        have.into_iter().filter(|name| name != ORPHAN && name != FOREGROUND).collect();
    wanted.extend(wanted_finalizer.map(Str::new_static));
    wanted
}

#[cfg(test)]
mod tests;
