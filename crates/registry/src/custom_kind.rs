//! What the engine needs to serve a custom resource, made from its CustomResourceDefinition.

use std::sync::{Arc, LazyLock};

use meta::Value;
use patch::apply::{ReplicasPaths, VersionConverter};
use schema::{Schema, TypeId, openapi::CustomResource, structural::UnknownFields};

/// One served version of a custom resource.
pub struct CustomKind {
    pub prune_and_default: Arc<dyn PruneAndDefault>,
    /// The types for server-side apply. Bodies are decoded with the kind's own type, which has
    /// typed metadata only; the rest is checked by validation.
    pub apply_types: Arc<LazyApplyTypes>,
    /// Converts objects for managedFields entries that have another version.
    pub versions: Arc<dyn VersionConverter + Send + Sync>,
    /// The paths of the scale subresource.
    pub scale: Option<ScalePaths>,
    /// The replicas path of each version, for the managedFields of `/scale`.
    pub replicas_paths: Arc<ReplicasPaths>,
    /// The `Warning` for clients of a deprecated version.
    pub deprecation: Option<String>,
    /// The definition is being deleted: creates are refused.
    pub terminating: bool,
    /// The OpenAPI schema that is published.
    pub published: Arc<CustomResource>,
    /// The index of this version in the definition.
    pub version_index: usize,
}

/// The types for server-side apply.
pub struct ApplyTypes {
    pub schema: Schema,
    /// One for each version of the definition.
    pub versions: Vec<TypeId>,
}

/// Built when the first object is written: platforms have hundreds of definitions, most without
/// objects.
pub type LazyApplyTypes = LazyLock<ApplyTypes, Box<dyn FnOnce() -> ApplyTypes + Send + Sync>>;

/// Prunes and defaults objects by a structural schema.
pub trait PruneAndDefault: Send + Sync + 'static {
    /// Drops unknown fields and reports them in `unknown`. Err: the metadata of an embedded object
    /// is invalid.
    fn prune_and_default(
        &self,
        object: &mut Value,
        unknown: Option<&mut UnknownFields>,
    ) -> Result<(), String>;

    /// The same for an object that an apply has merged, which was checked against the types
    /// already: nothing is dropped from it, not even nulls. Invalid metadata is left to validation.
    fn prune_and_default_applied(&self, object: &mut Value);
}

/// Where in an object the fields of its scale are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: Vec<String>,
    pub status_replicas: Vec<String>,
    pub label_selector: Option<Vec<String>>,
}
