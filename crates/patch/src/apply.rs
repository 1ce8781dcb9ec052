//! Server-side apply and field management (`metadata.managedFields`).
//!
//! [`update`] is for every write that is not an apply: its manager owns the fields that it changed.
//! [`apply`] merges a configuration into an object: the applier owns the fields in it, loses those
//! that only its last configuration had, and gets a conflict for fields of other managers that it
//! would change.

mod atom;
mod compare;
mod fields_v1;
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

use meta::{
    ApiError, Cause, Value,
    limits::{FIELD_PATH_BYTES_MAX, cut},
};
use schema::{Schema, TypeId};

use atom::TypeRef;
use managed_fields::{ManagedFields, ManagedFieldsEntry};
use path::show_path;

pub use path::{Path, PathElement};
pub use scale::{ReplicasPaths, scale_to_parent, scale_to_subresource};
pub use set::Set;

/// The type of an object and what field management needs to know about its kind.
#[derive(Clone, Copy)]
pub struct TypeContext<'a> {
    pub schema: &'a Schema,
    pub ty: TypeId,
    /// The fields that a request to this (sub)resource may own.
    pub fields: &'a Filter,
    /// Converts to the other versions that entries of managedFields may refer to.
    pub versions: &'a dyn VersionConverter,
}

/// Converts objects, for kinds with several versions.
pub trait VersionConverter {
    /// The object in another version, and its type there. None if that version is no longer served;
    /// entries in it are dropped.
    fn convert(&self, object: &Value, api_version: &str) -> Option<(Value, TypeId)>;

    /// The type of objects in another version.
    fn type_of(&self, api_version: &str) -> Option<TypeId> {
        self.convert(&Value::Null, api_version).map(|(_, ty)| ty)
    }
}

/// For kinds with one version.
pub struct SingleVersion;

impl VersionConverter for SingleVersion {
    fn convert(&self, _object: &Value, _api_version: &str) -> Option<(Value, TypeId)> {
        None
    }
}

/// Which fields a write may own (upstream's reset fields). A strategy that resets fields (status in
/// a write to the main resource) excludes them here, or managers would own fields that they cannot
/// write.
#[derive(Clone, Debug, Default)]
pub enum Filter {
    #[default]
    All,
    /// All but these and their children.
    Except(Set),
    /// Only paths that start with one of these; `None` matches any path element.
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

/// The field manager of a request.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    /// The `fieldManager` of the request, or its default (the start of the user agent).
    pub name: &'a str,
    /// The API version of the request; `live` and `new` are in it.
    pub api_version: &'a str,
    /// Empty for the main resource.
    pub subresource: &'a str,
    /// RFC 3339 in UTC, whole seconds.
    pub now: &'a str,
}

impl Manager<'_> {
    fn owner(&self, applied: bool) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: if self.name.is_empty() { "unknown" } else { self.name }.to_owned(),
            applied,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            ..ManagedFieldsEntry::default()
        }
    }
}

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// Other managers own fields that would change.
    Conflicts(Conflicts),
    /// The request is invalid.
    Malformed(String),
    /// The configuration does not match the schema. Compat: upstream answers 500.
    Untyped(String),
}

/// The fields of other managers that an apply would change. Sorted by manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts(Vec<ManagerConflicts>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct ManagerConflicts {
    /// `"kubectl-edit" using apps/v1`.
    manager: String,
    // Invariant: not empty.
    fields: Set,
}

/// Conflicts that are listed; the rest is counted.
const CONFLICTS_MAX: usize = 500;

impl Conflicts {
    pub fn len(&self) -> usize {
        self.0.iter().map(|manager| manager.fields.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The conflicts about other fields than these.
    fn without(&self, fields: &Set) -> Self {
        let left = self.0.iter().map(|ManagerConflicts { manager, fields: all }| {
            let fields = all.clone().difference(fields);
            ManagerConflicts { manager: manager.clone(), fields }
        });
        Self(left.filter(|manager| !manager.fields.is_empty()).collect())
    }

    /// The first of them: the manager, and the field as `.spec.replicas`.
    fn listed(&self) -> Vec<(&str, String)> {
        let mut listed = Vec::new();
        for ManagerConflicts { manager, fields } in &self.0 {
            let paths = fields.paths(CONFLICTS_MAX - listed.len());
            let shown = paths.iter().map(|path| {
                (manager.as_str(), cut(&show_path(path), FIELD_PATH_BYTES_MAX).into_owned())
            });
            listed.extend(shown);
        }
        listed
    }
}

/// Merges a configuration that no manager owns: what a mutating admission policy applies.
pub fn merge_unowned(
    schema: &Schema,
    ty: TypeId,
    live: &Value,
    configuration: &Value,
) -> Result<Value, String> {
    let type_ref = TypeRef::Type(ty);
    typed::check(schema, type_ref, configuration)
        .map_err(|why| format!("failed to convert patch object to typed object: {why}"))?;
    let mut atomics = Vec::new();
    typed::find_atomics(schema, type_ref, configuration, "", &mut atomics);
    if !atomics.is_empty() {
        // They would be replaced as a whole, with what others have set in them.
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        ));
    }
    merge::merge(schema, type_ref, live, configuration)
        .map_err(|why| format!("failed to merge patch: {why}"))
}

/// Why the managedFields of an object cannot be read, if they cannot.
pub fn check_managed_fields(object: &Value) -> Result<(), String> {
    managed_fields::decode(object).map(drop)
}

/// Tracks a write that is not an apply: sets `metadata.managedFields` of `new`. `live` is the
/// object before the write, None on create.
pub fn update(
    live: Option<&Value>,
    new: &mut Value,
    types: &TypeContext<'_>,
    manager: &Manager<'_>,
) {
    let decoded = if !manager.subresource.is_empty() {
        // managedFields cannot be set through a subresource.
        Ok(ManagedFields::new())
    } else if managed_fields::is_reset(new) {
        new.remove_at(&["metadata", "managedFields"]);
        track_update(live, new, ManagedFields::new(), types, manager);
        return;
    } else {
        managed_fields::take(new)
    };
    // Clients that do not know managedFields omit it; the live entries must not get lost.
    let managed_fields = match decoded {
        Ok(managed_fields) if !managed_fields.is_empty() => managed_fields,
        _ => live.and_then(|live| managed_fields::decode(live).ok()).unwrap_or_default(),
    };
    track_update(live, new, managed_fields, types, manager);
}

fn track_update(
    live: Option<&Value>,
    new: &mut Value,
    mut managed_fields: ManagedFields,
    types: &TypeContext<'_>,
    manager: &Manager<'_>,
) {
    new.remove_at(&["metadata", "managedFields"]);
    let created = live.is_none_or(|live| live.str_at(&["metadata", "uid"]).is_empty());
    // After a reset, managedFields is tracked again only from the next apply on.
    if !managed_fields.is_empty() || created {
        let empty = Value::object();
        updater::update(live.unwrap_or(&empty), new, &mut managed_fields, types, manager);
    }
    managed_fields::encode(new, managed_fields);
}

/// Merges a configuration into an object (None: create). The result is not yet defaulted.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    types: &TypeContext<'_>,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    check_config(config, types, manager)?;
    let mut live = live.cloned().unwrap_or_else(Value::object);
    let mut managed_fields = managed_fields::take(&mut live)
        .map_err(|why| ApplyError::Untyped(format!("failed to decode managed fields: {why}")))?;
    // Compat: Go merges unstructured objects, so raw fields get sorted keys.
    live.flatten_raw();
    if managed_fields.is_empty() {
        // The existing fields have no manager yet.
        let before = Manager { name: "before-first-apply", ..*manager };
        updater::update(&Value::object(), &live, &mut managed_fields, types, &before);
    }
    // Kept for a second attempt.
    let copy = (manager.name == last_applied::MANAGER).then(|| managed_fields.clone());
    let mut applied = updater::apply(&live, config, managed_fields, types, manager, force);
    if let Some(managed_fields) = copy
        && let Err(ApplyError::Conflicts(conflicts)) = &applied
        && let Some(allowed) = last_applied::owned_fields(&live, types, manager)
    {
        // Client-side `kubectl apply` owned these fields; server-side apply takes them over.
        let real = conflicts.without(&allowed);
        applied = if real.is_empty() {
            updater::apply(&live, config, managed_fields, types, manager, true)
        } else {
            Err(ApplyError::Conflicts(real))
        };
    }
    let (mut object, managed_fields) = applied?;
    if manager.name == last_applied::MANAGER {
        last_applied::refresh(&mut object, config);
    }
    managed_fields::encode(&mut object, managed_fields);
    Ok(object)
}

fn check_config(
    config: &Value,
    types: &TypeContext<'_>,
    manager: &Manager<'_>,
) -> Result<(), ApplyError> {
    let (version, kind) = (config.str_at(&["apiVersion"]), config.str_at(&["kind"]));
    let gvk = match version.split_once('/') {
        // Go does not read such a version at all.
        Some((_, version)) if version.contains('/') => "/, Kind=".to_owned(),
        Some((group, version)) => format!("{group}/{version}, Kind={kind}"),
        None => format!("/{version}, Kind={kind}"),
    };
    if version != manager.api_version {
        return Err(ApplyError::Malformed(format!("invalid object type: {gvk}")));
    }
    if config.at(&["metadata", "managedFields"]).is_some_and(|fields| !fields.is_null()) {
        return Err(ApplyError::Malformed("metadata.managedFields must be nil".to_owned()));
    }
    typed::check(types.schema, TypeRef::Type(types.ty), config).map_err(|why| {
        let (namespace, name) =
            (config.str_at(&["metadata", "namespace"]), config.str_at(&["metadata", "name"]));
        ApplyError::Untyped(format!(
            "failed to create typed patch object ({namespace}/{name}; {gvk}): {why}"
        ))
    })
}

/// Restores the old times of the entries if times are all that a write changed, so that the write
/// is a no-op and the object keeps its resourceVersion.
pub fn keep_times_if_unchanged(live: &Value, new: &mut Value) {
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
            Self::Conflicts(conflicts) => match conflicts.listed().as_slice() {
                [(manager, field)] => {
                    write!(f, "Apply failed with 1 conflict: conflict with {manager}: {field}")
                }
                listed => {
                    let count = conflicts.len();
                    write!(f, "Apply failed with {count} conflicts:")?;
                    let mut separator = " ";
                    for group in listed.chunk_by(|a, b| a.0 == b.0) {
                        write!(f, "{separator}conflicts with {}:", group[0].0)?;
                        separator = "\n";
                        for (_, field) in group {
                            write!(f, "\n- {field}")?;
                        }
                    }
                    if count > listed.len() {
                        write!(f, "\nand {} more", count - listed.len())?;
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
                let cause = |(manager, field): (&str, String)| Cause {
                    reason: "FieldManagerConflict".to_owned(),
                    message: format!("conflict with {manager}"),
                    field,
                };
                let causes = conflicts.listed().into_iter().map(cause).collect();
                Self::ApplyConflict { message, causes }
            }
        }
    }
}
