//! The behaviour of a kind beyond its facts. A kind without special behaviour uses
//! [`DefaultStrategy`].

use meta::{
    FieldErrors, User, Value, Warnings,
    limits::{TooLarge, TreeSize},
    names::{NameRule, name_is_dns_subdomain},
};

use crate::{columns::Column, kind::Kind};

/// Called by the verbs, in the order of the methods. The default methods are right for a kind
/// without special behaviour; objects are in the served version.
pub trait Strategy: Send + Sync + 'static {
    /// Defaults that depend on other fields; plain ones are in the definition files.
    fn default(&self, _object: &mut Value) {}

    /// The same for a kind whose defaults a client can choose: they may take only so much memory.
    fn default_within(&self, object: &mut Value, _size: &mut TreeSize) -> Result<(), TooLarge> {
        self.default(object);
        Ok(())
    }

    /// Clears what a client may not set and sets what the server decides, before validation. The
    /// status of kinds with a status subresource is already removed.
    fn prepare_for_create(&self, _object: &mut Value, _cx: &WriteContext<'_>) {}

    /// The same for an update. For kinds with a status subresource the status is already the old one.
    fn prepare_for_update(&self, _object: &mut Value, _old: &Value, _cx: &WriteContext<'_>) {}

    /// The same for an update of a subresource that writes the object itself (`status`, `approval`).
    fn prepare_for_subresource(
        &self,
        subresource: &str,
        object: &mut Value,
        old: &Value,
        _cx: &WriteContext<'_>,
    ) {
        keep_all_but_status(subresource, object, old);
    }

    fn validate(&self, _object: &Value, _errors: &mut FieldErrors) {}

    /// Validates an update; by default as a new object.
    fn validate_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        self.validate(object, errors);
    }

    /// The same for an update of a subresource that writes the object itself. By default errors
    /// about the spec are ignored in an update of the status: controllers must be able to update
    /// objects whose spec was valid under older rules.
    fn validate_subresource(
        &self,
        subresource: &str,
        object: &Value,
        old: &Value,
        errors: &mut FieldErrors,
    ) {
        let mut all = FieldErrors::default();
        self.validate_update(object, old, &mut all);
        if subresource == "status" {
            all.drop_spec();
        }
        errors.extend(all);
    }

    /// Texts for `Warning` headers. `old` is there for an update, of the object itself if the
    /// subresource is "".
    fn warnings(&self, _subresource: &str, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// The grace period of a deletion in seconds; `None`: the object is removed at once.
    /// `requested` is the client's `gracePeriodSeconds`.
    fn graceful_deletion(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// The reason why an object must not be deleted, if there is one. Compat: not called by
    /// deletecollection.
    fn refuses_deletion(&self, _name: &str) -> Option<&'static str> {
        None
    }

    /// Whether finalizers under `spec` hold an object back (namespaces).
    fn holds_deletion(&self, _object: &Value) -> bool {
        false
    }

    /// Changes an object when its deletion starts (the phase of a namespace).
    fn begin_deletion(&self, _object: &mut Value) {}

    /// What `kubectl get` shows.
    fn columns(&self) -> Vec<Column> {
        Column::name_and_created_at()
    }

    /// The sort key of table rows, where they are not sorted by name alone. Decodes every object,
    /// so it is for kinds with few objects.
    fn row_order(&self) -> Option<fn(&Value) -> i64> {
        None
    }

    /// Annotations that stand for fields of kube-apiserver's internal type. Metadata that is shown alone
    /// does not have them.
    fn internal_annotations(&self) -> &'static [&'static str] {
        &[]
    }

    /// The `conditions` of an object's row (finished pods are marked).
    fn row_conditions(&self, _object: &Value) -> Vec<Value> {
        Vec::new()
    }
}

/// The context of a write.
pub struct WriteContext<'a> {
    pub kind: &'a Kind,
    pub user: &'a User,
    pub now: meta::time::Time,
    /// For the client, about what is changed while the object is prepared.
    pub warnings: &'a Warnings,
    /// The object had labels before its defaults were set.
    pub has_sent_labels: bool,
    /// `metadata.generation` of a new object, as the client sent it.
    pub sent_generation: Option<i64>,
}

/// Facts about a kind.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// The rule for `metadata.name`.
    pub name_rule: NameRule,
    /// Whether `PUT` may leave out the resourceVersion.
    pub unconditional_update: bool,
    /// Whether `PUT` of a missing object creates it.
    pub create_on_update: bool,
    /// The fields whose change raises `metadata.generation` (mostly `spec`); none: no generation.
    pub generation: &'static [&'static str],
    /// Whether a create may set the status (nodes register with theirs).
    pub status_on_create: bool,
    /// The `Warning` of a deprecated version.
    pub deprecation: Option<&'static str>,
    /// Whether a delete answers with the object instead of a `Status`.
    pub returns_deleted_object: bool,
    /// Whether a delete only marks the object, whose contents are deleted first, and checks
    /// preconditions of its own (namespaces, definitions).
    pub deleted_in_two_steps: bool,
    /// The default propagation of a delete to dependents.
    pub dependents: GarbageCollectionPolicy,
    /// The fields that writes to the object ("") or its subresources cannot change, where they are
    /// not the default: a write to the object cannot change its status, one to the status can
    /// change that and the metadata only.
    pub resets: &'static [(&'static str, Fields)],
    /// How the kind validates the metadata again, after the validation for all kinds: errors are
    /// listed as often as they are found.
    pub metadata: MetadataChecks,
}

/// The default propagation of a delete to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbageCollectionPolicy {
    DeleteDependents,
    /// They are orphaned, as before there was a garbage collector; with a warning to the client, if
    /// there is one.
    OrphanDependents {
        warning: Option<&'static str>,
    },
    /// The kind has no dependents; the client's policy is ignored.
    Unsupported,
}

/// Field paths such as `spec` or `metadata.labels`, including everything below.
pub type Fields = &'static [&'static str];

/// How a kind validates the metadata again.
#[derive(Clone, Copy, Debug)]
pub struct MetadataChecks {
    /// Finalizers must be qualified, or one of the three standard ones.
    pub qualified_finalizers: bool,
    /// In an update of the object.
    pub update: ObjectMetaValidation,
    /// In an update of its status and other subresources.
    pub status: ObjectMetaValidation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectMetaValidation {
    None,
    /// As `ValidateObjectMetaUpdate`: what may change.
    Update,
    /// As `ValidateObjectMeta`: the metadata after the change.
    Create,
    UpdateThenCreate,
    CreateThenUpdate,
}

impl Behaviour {
    /// Stands for every field but `metadata` (custom resources).
    pub const ALL_BUT_METADATA: &'static str = "*";

    /// The fields that a write to a subresource cannot change, if the kind has its own rules.
    pub(crate) fn reset(&self, subresource: &str) -> Option<Fields> {
        self.resets.iter().find(|(of, _)| *of == subresource).map(|(_, fields)| *fields)
    }
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            name_rule: name_is_dns_subdomain,
            unconditional_update: true,
            create_on_update: false,
            generation: &[],
            status_on_create: false,
            deprecation: None,
            returns_deleted_object: false,
            deleted_in_two_steps: false,
            dependents: GarbageCollectionPolicy::DeleteDependents,
            resets: &[],
            metadata: MetadataChecks {
                qualified_finalizers: true,
                update: ObjectMetaValidation::Update,
                status: ObjectMetaValidation::Update,
            },
        }
    }
}

/// A kind without special behaviour.
pub struct DefaultStrategy;

impl Strategy for DefaultStrategy {}

/// `/status` writes the status (and metadata), everything else stays as it was.
pub fn keep_all_but_status(subresource: &str, object: &mut Value, old: &Value) {
    let written = if subresource == "status" { "status" } else { return };
    let (Some(new_map), Some(old_map)) = (object.as_object_mut(), old.as_object()) else { return };
    new_map.retain(|key, _| {
        matches!(key, "apiVersion" | "kind" | "metadata")
            || key == written
            || old_map.contains_key(key)
    });
    for (key, value) in old_map.iter() {
        if key != written && key != "metadata" {
            object.keep_at(&[key.as_str()], Some(value));
        }
    }
}
