//! What a custom kind brings along where a built-in one has facts and types: everything here was made
//! from its definition.

use std::sync::{Arc, LazyLock};

use meta::Value;
use patch::apply::{ReplicasPaths, VersionConverter};
use schema::{Schema, TypeId, openapi::CustomResource};

/// One served version of a custom resource.
pub struct CustomKind {
    pub prune_and_default: Arc<dyn PruneAndDefault>,
    /// What server-side apply sees. Bodies are read as the kind's own type, which knows the metadata
    /// only: whether the rest fits is for validation to say.
    pub apply_types: Arc<LazyApplyTypes>,
    /// Its objects in other versions, for owners that were noted in one of them.
    pub versions: Arc<dyn VersionConverter + Send + Sync>,
    /// Where `/scale` finds its numbers.
    pub scale: Option<ScalePaths>,
    /// Where each version of the definition has its replicas, for their owners.
    pub replicas_paths: Arc<ReplicasPaths>,
    /// What clients of this version are warned about.
    pub deprecation: Option<String>,
    /// Its definition is being deleted: nothing new is created.
    pub terminating: bool,
    /// What OpenAPI tells about it.
    pub published: Arc<CustomResource>,
    /// Its place among the versions of its definition.
    pub version_at: usize,
}

/// The types that server-side apply goes by.
pub struct ApplyTypes {
    pub schema: Schema,
    /// One for each version of the definition.
    pub versions: Vec<TypeId>,
}

/// Made when the first object is written: a platform has hundreds of definitions, and objects of few.
pub type LazyApplyTypes = LazyLock<ApplyTypes, Box<dyn FnOnce() -> ApplyTypes + Send + Sync>>;

/// Brings objects into the shape of a schema.
pub trait PruneAndDefault: Send + Sync + 'static {
    /// Drops what the schema doesn't know, and says what it was to whoever wants to know. Err: the
    /// metadata of an embedded object can't be read.
    fn prune_and_default(
        &self,
        object: &mut Value,
        unknown: Option<&mut Vec<String>>,
    ) -> Result<(), String>;

    /// The same for what a configuration was applied to, which has been held against the types already:
    /// nothing is dropped from it, not even what is null. What can't be read is for validation to refuse.
    fn prune_and_default_applied(&self, object: &mut Value);
}

/// Where in an object the fields of its scale are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: Vec<String>,
    pub status_replicas: Vec<String>,
    pub label_selector: Option<Vec<String>>,
}
