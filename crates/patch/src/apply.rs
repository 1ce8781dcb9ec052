//! Server-side apply and the tracking of who owns which field (`metadata.managedFields`).
//!
//! [`update`] is for every write that is not an apply: whoever changes a field owns it. [`apply`]
//! merges a configuration into an object: the applier owns what it mentions, gives up what it mentioned
//! last time and doesn't mention now, and is in conflict with others about fields that it would change.

mod atom;
mod compare;
mod last_applied;
mod managed_fields;
mod merge;
mod path;
mod scale;
mod set;
#[cfg(test)]
mod tests;
mod typed;
mod updater;

use meta::{ApiError, Cause, Value};
use schema::{Schema, TypeId};

use atom::Place;
use managed_fields::{Owner, Owners};
use path::show_path;

pub use path::{Path, PathElement};
pub use scale::{ReplicasPaths, scale_to_parent, scale_to_subresource};
pub use set::Set;

/// The type of an object, and what else has to be known of its kind.
#[derive(Clone, Copy)]
pub struct Typing<'a> {
    pub schema: &'a Schema,
    pub ty: TypeId,
    /// The fields that a request to this (sub)resource may own.
    pub fields: &'a Filter,
    /// Other versions in which sets may be written.
    pub versions: &'a dyn Versions,
}

/// Converts objects, for kinds with several versions.
pub trait Versions {
    /// The object in another version, and its type there. None if that version is not served any more:
    /// sets that are written in it are dropped.
    fn convert(&self, object: &Value, api_version: &str) -> Option<(Value, TypeId)>;

    /// The type of objects in another version.
    fn type_of(&self, api_version: &str) -> Option<TypeId> {
        self.convert(&Value::Null, api_version).map(|(_, ty)| ty)
    }
}

/// For kinds with one version.
pub struct OneVersion;

impl Versions for OneVersion {
    fn convert(&self, _object: &Value, _api_version: &str) -> Option<(Value, TypeId)> {
        None
    }
}

/// Which fields count. A strategy that resets fields (status in a write to the main resource) says so
/// here, or clients would own what they can't write.
#[derive(Clone, Debug, Default)]
pub enum Filter {
    #[default]
    All,
    /// All but these and what is below them.
    Except(Set),
    /// Only what begins with one of these; `None` stands for any step.
    Only(Vec<Vec<Option<PathElement>>>),
}

impl Filter {
    fn apply(&self, set: Set) -> Set {
        match self {
            Self::All => set,
            Self::Except(except) => set.recursive_difference(except),
            Self::Only(patterns) => {
                set.including(&patterns.iter().map(Vec::as_slice).collect::<Vec<_>>())
            }
        }
    }
}

/// Who writes.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    /// The `fieldManager` of the request, or what stands for it (the start of the user agent).
    pub name: &'a str,
    /// The version of the request, in which `live` and `new` are.
    pub api_version: &'a str,
    /// Empty for the main resource.
    pub subresource: &'a str,
    /// RFC 3339 in UTC, whole seconds.
    pub now: &'a str,
}

impl Manager<'_> {
    fn owner(&self, applied: bool) -> Owner {
        Owner {
            manager: if self.name.is_empty() { "unknown" } else { self.name }.to_owned(),
            applied,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            ..Owner::default()
        }
    }
}

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// Others own fields that would change. Sorted by owner.
    Conflicts(Vec<Conflict>),
    /// The request makes no sense.
    Malformed(String),
    /// The configuration doesn't fit the schema. Upstream has no better code than 500 for it.
    Untyped(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// `"kubectl-edit" using apps/v1`.
    pub manager: String,
    /// `.spec.replicas`.
    pub field: String,
    path: Path,
}

/// Tracks a write that is not an apply: fills `metadata.managedFields` of `new`. `live` is what was
/// there before, None on create.
pub fn update(live: Option<&Value>, new: &mut Value, typing: &Typing<'_>, manager: &Manager<'_>) {
    let decoded = if !manager.subresource.is_empty() {
        // Nobody sets owners through a subresource.
        Ok(Owners::new())
    } else if managed_fields::is_reset(new) {
        new.remove_at(&["metadata", "managedFields"]);
        track_update(live, new, Owners::new(), typing, manager);
        return;
    } else {
        managed_fields::decode(new)
    };
    // Clients that don't know of owners leave them out; that must not lose them.
    let owners = match decoded {
        Ok(owners) if !owners.is_empty() => owners,
        _ => live.and_then(|live| managed_fields::decode(live).ok()).unwrap_or_default(),
    };
    track_update(live, new, owners, typing, manager);
}

fn track_update(
    live: Option<&Value>,
    new: &mut Value,
    mut owners: Owners,
    typing: &Typing<'_>,
    manager: &Manager<'_>,
) {
    new.remove_at(&["metadata", "managedFields"]);
    let created = live.is_none_or(|live| live.str_at(&["metadata", "uid"]).is_empty());
    // Once forgotten, owners are only tracked again after an apply.
    if !owners.is_empty() || created {
        let empty = Value::object();
        updater::update(live.unwrap_or(&empty), new, &mut owners, typing, manager);
    }
    managed_fields::encode(new, &owners);
}

/// Merges a configuration into an object (None: it is created). The result is not yet defaulted.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    typing: &Typing<'_>,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    check_config(config, typing, manager)?;
    let mut live = live.cloned().unwrap_or_else(Value::object);
    let mut owners = managed_fields::decode(&live)
        .map_err(|why| ApplyError::Untyped(format!("failed to decode managed fields: {why}")))?;
    live.remove_at(&["metadata", "managedFields"]);
    if owners.is_empty() {
        // Whatever is there has no owner yet.
        let before = Manager { name: "before-first-apply", ..*manager };
        updater::update(&Value::object(), &live, &mut owners, typing, &before);
    }
    let mut applied = updater::apply(&live, config, owners.clone(), typing, manager, force);
    if manager.name == last_applied::MANAGER
        && let Err(ApplyError::Conflicts(conflicts)) = &applied
        && let Some(allowed) = last_applied::owned_fields(&live, typing, manager)
    {
        // `kubectl apply` on the client's side owned these, and now does so on the server's.
        let (_, real): (Vec<_>, Vec<_>) =
            conflicts.iter().cloned().partition(|conflict| allowed.has(&conflict.path));
        applied = if real.is_empty() {
            updater::apply(&live, config, owners, typing, manager, true)
        } else {
            Err(ApplyError::Conflicts(real))
        };
    }
    let (mut object, owners) = applied?;
    if manager.name == last_applied::MANAGER {
        last_applied::refresh(&mut object, config);
    }
    managed_fields::encode(&mut object, &owners);
    Ok(object)
}

fn check_config(
    config: &Value,
    typing: &Typing<'_>,
    manager: &Manager<'_>,
) -> Result<(), ApplyError> {
    let (version, kind) = (config.str_at(&["apiVersion"]), config.str_at(&["kind"]));
    let gvk = match version.split_once('/') {
        Some((group, version)) => format!("{group}/{version}, Kind={kind}"),
        None => format!("/{version}, Kind={kind}"),
    };
    if version != manager.api_version {
        return Err(ApplyError::Malformed(format!("invalid object type: {gvk}")));
    }
    if config.at(&["metadata", "managedFields"]).is_some_and(|fields| !fields.is_null()) {
        return Err(ApplyError::Malformed("metadata.managedFields must be nil".to_owned()));
    }
    typed::check(typing.schema, Place::Type(typing.ty), config).map_err(|why| {
        let (namespace, name) =
            (config.str_at(&["metadata", "namespace"]), config.str_at(&["metadata", "name"]));
        ApplyError::Untyped(format!(
            "failed to create typed patch object ({namespace}/{name}; {gvk}): {why}"
        ))
    })
}

/// Gives entries their old times back if times are all that a write changed: it then changes nothing,
/// and the object keeps its version.
pub fn keep_times_of_unchanged(live: &Value, new: &mut Value) {
    let old_times = times(live);
    let new_times = times(new);
    if old_times.is_empty() || old_times.len() != new_times.len() || old_times == new_times {
        return;
    }
    set_times(new, old_times);
    if new != live {
        set_times(new, new_times);
    }
}

const MANAGED_FIELDS: &[&str] = &["metadata", "managedFields"];

fn times(object: &Value) -> Vec<Option<Value>> {
    object.items_at(MANAGED_FIELDS).iter().map(|entry| entry.get("time").cloned()).collect()
}

fn set_times(object: &mut Value, times: Vec<Option<Value>>) {
    let entries = object.at_mut(MANAGED_FIELDS).and_then(Value::as_array_mut);
    for (entry, time) in entries.into_iter().flatten().zip(times) {
        match (entry.as_object_mut(), time) {
            (Some(entry), Some(time)) => drop(entry.insert("time", time)),
            (Some(entry), None) => drop(entry.remove("time")),
            _ => {}
        }
    }
}

impl std::fmt::Display for ApplyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(why) | Self::Untyped(why) => f.write_str(why),
            Self::Conflicts(conflicts) => match conflicts.as_slice() {
                [Conflict { manager, field, .. }] => {
                    write!(f, "Apply failed with 1 conflict: conflict with {manager}: {field}")
                }
                several => {
                    write!(f, "Apply failed with {} conflicts:", several.len())?;
                    let mut separator = " ";
                    for group in several.chunk_by(|a, b| a.manager == b.manager) {
                        write!(f, "{separator}conflicts with {}:", group[0].manager)?;
                        separator = "\n";
                        for conflict in group {
                            write!(f, "\n- {}", conflict.field)?;
                        }
                    }
                    Ok(())
                }
            },
        }
    }
}

impl std::error::Error for ApplyError {}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        let message = error.to_string();
        match error {
            ApplyError::Malformed(why) => Self::BadRequest(why),
            ApplyError::Untyped(why) => Self::Storage(why),
            ApplyError::Conflicts(conflicts) => {
                let cause = |conflict: Conflict| Cause {
                    reason: "FieldManagerConflict".to_owned(),
                    message: format!("conflict with {}", conflict.manager),
                    field: conflict.field,
                };
                Self::ApplyConflict { message, causes: conflicts.into_iter().map(cause).collect() }
            }
        }
    }
}

fn conflict(owner: &Owner, path: Path) -> Conflict {
    Conflict { manager: owner.show(), field: show_path(&path), path }
}
