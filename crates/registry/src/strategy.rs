//! What a kind does beyond what its facts say. A kind with nothing special uses [`DefaultStrategy`].

use meta::{
    FieldErrors, User, Value,
    names::{NameRule, name_is_dns_subdomain},
};

use crate::{columns::Column, kind::Kind};

/// Called by the verbs, in the order of the methods here. Every method has a default that is right
/// for a kind without special behaviour; objects are in the kind's served version.
pub trait Strategy: Send + Sync + 'static {
    /// Defaults that depend on other fields; plain ones are in the definition files.
    fn default(&self, _object: &mut Value) {}

    /// Clears what a client may not set and sets what the server decides, before validation.
    /// The status of kinds with a status subresource is already gone.
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

    /// What must hold between the old and the new object; by default only what holds for a new one.
    fn validate_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        self.validate(object, errors);
    }

    /// The same for an update of a subresource that writes the object itself. By default a new status
    /// is judged by itself: controllers go on where a spec was fine under older rules.
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
            all.0.retain(|error| error.root_field != "spec");
        }
        errors.extend(all);
    }

    /// Texts for `Warning` headers. `old` is there for an update, of the object itself if the
    /// subresource is "".
    fn warnings(&self, _subresource: &str, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// How long an object lives on after its deletion was asked for; `None`: gone at once.
    /// `requested` is the client's `gracePeriodSeconds`.
    fn graceful_deletion(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Why the object of this name is not to be deleted, if so. Compat: a deletion of many objects does
    /// not ask.
    fn refuses_deletion(&self, _name: &str) -> Option<&'static str> {
        None
    }

    /// The finalizers under `spec` that also hold an object back (namespaces).
    fn holds_deletion(&self, _object: &Value) -> bool {
        false
    }

    /// Changes an object as its deletion starts (a namespace's phase).
    fn begin_deletion(&self, _object: &mut Value) {}

    /// What `kubectl get` shows.
    fn columns(&self) -> Vec<Column> {
        Column::name_and_created_at()
    }

    /// What the rows of a list are sorted by, where it is not the names alone. Needs every object
    /// decoded, so it is for kinds of which there are few.
    fn row_order(&self) -> Option<fn(&Value) -> i64> {
        None
    }

    /// The `conditions` of an object's row (finished pods are marked).
    fn row_conditions(&self, _object: &Value) -> Vec<Value> {
        Vec::new()
    }
}

/// Who writes, and as what.
pub struct WriteContext<'a> {
    pub kind: &'a Kind,
    pub user: &'a User,
    pub now: meta::time::Time,
}

/// What varies between kinds and can be said as a fact.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// What `metadata.name` may look like.
    pub name_rule: NameRule,
    /// Whether `PUT` may leave out the resourceVersion.
    pub unconditional_update: bool,
    /// Whether `PUT` of a missing object creates it.
    pub create_on_update: bool,
    /// The fields whose change raises `metadata.generation` (mostly `spec`); none: no generation.
    pub generation: &'static [&'static str],
    /// A client that creates an object may give its status too (nodes register with theirs).
    pub status_on_create: bool,
    /// What every answer warns of, where the version is on its way out.
    pub deprecation: Option<&'static str>,
    /// Whether a finished delete answers with the object instead of a `Status`.
    pub returns_deleted_object: bool,
    /// Whether a delete only marks the object, whose contents go first, and looks at its own
    /// preconditions (namespaces, definitions).
    pub deleted_in_two_steps: bool,
    /// What becomes of the objects that a deleted one owns, where its client doesn't say.
    pub dependents: Dependents,
    /// What writes to the object ("") or its subresources can't change, where it is not what most
    /// kinds have: a write to the object not its status, and one to the status nothing but that and
    /// the metadata.
    pub resets: &'static [(&'static str, Fields)],
    /// How the kind itself looks at the metadata, which was looked at once for all kinds: errors are
    /// listed as often as they are found.
    pub metadata: MetadataChecks,
}

/// What becomes of the objects that a deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependents {
    Deleted,
    /// They stay, as they did before there was a garbage collector; and who deletes is told so, if
    /// there is something to tell.
    Orphaned {
        warning: Option<&'static str>,
    },
    /// There are none, whatever the client says.
    None,
}

/// `spec`, `metadata.labels`: these and what is below them.
pub type Fields = &'static [&'static str];

/// What of the metadata a kind checks once more.
#[derive(Clone, Copy, Debug)]
pub struct MetadataChecks {
    /// Finalizers have to belong to someone, or be one of the three that Kubernetes knows.
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

    /// What a write to a subresource leaves, if the kind has its own rules.
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
            dependents: Dependents::Deleted,
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
    new_map.retain(|key, _| matches!(key, "apiVersion" | "kind" | "metadata") || key == written);
    for (key, value) in old_map.iter() {
        if key != written && key != "metadata" {
            new_map.insert(key, value.clone());
        }
    }
}
