//! What a custom kind brings along where a built-in one has facts and types: everything here was made
//! from its definition.

use std::sync::Arc;

use meta::Value;
use patch::apply::{ReplicasPaths, Versions};
use schema::{TypeId, openapi::CustomResource};

/// One served version of a custom resource.
pub struct Custom {
    pub shape: Arc<dyn Shape>,
    /// The type that server-side apply sees. Bodies are read as the kind's own type, which knows the
    /// metadata only: whether the rest fits is for validation to say.
    pub apply_type: TypeId,
    /// Its objects in other versions, for owners that were noted in one of them.
    pub versions: Arc<dyn Versions + Send + Sync>,
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

/// Brings objects into the shape of a schema.
pub trait Shape: Send + Sync + 'static {
    /// Drops what the schema doesn't know, and says what it was to whoever wants to know. Err: the
    /// metadata of an embedded object can't be read.
    fn shape(&self, object: &mut Value, unknown: Option<&mut Vec<String>>) -> Result<(), String>;
}

/// Where in an object the fields of its scale are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: Vec<String>,
    pub status_replicas: Vec<String>,
    pub label_selector: Option<Vec<String>>,
}
