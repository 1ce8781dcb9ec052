//! Pruning and defaulting of custom resources by the schema of their version, and conversion with
//! strategy `None`.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use codec::json::DecodeOptions;
use meta::{Str, Value};
use parking_lot::Mutex;
use patch::apply::VersionConverter;
use registry::{Conversion, LazyApplyTypes, PruneAndDefault, StorageCodec};
use schema::{
    TypeId,
    structural::{Structural, UnknownFields},
};

use crate::crd::{Crd, Version, schema_tree};

/// The schema of one version of a definition.
pub(crate) struct VersionSchema {
    /// `group/version`
    pub(crate) api_version: Str,
    /// None: any object will do, and nothing is dropped.
    schema: Option<Arc<str>>,
    /// Parsed when the first object needs it: platforms have hundreds of definitions, and objects of
    /// few.
    structural: OnceLock<Option<Structural>>,
}

impl VersionSchema {
    /// The CRD controller has checked that the schema can be parsed.
    pub(crate) fn new(crd: &Crd, version: &Version) -> Self {
        let open = crd.preserve_unknown || version.schema.is_empty();
        Self {
            api_version: format!("{}/{}", crd.group, version.name).into(),
            schema: (!open).then(|| version.schema.clone()),
            structural: OnceLock::new(),
        }
    }

    /// None: any object will do, and nothing is dropped.
    pub(crate) fn structural(&self) -> Option<&Structural> {
        let read = || Structural::new(&schema_tree(self.schema.as_deref()?)).ok();
        self.structural.get_or_init(read).as_ref()
    }

    pub(crate) fn default(&self, object: &mut Value) {
        if let Some(structural) = self.structural() {
            structural.default(object);
        }
    }

    /// Prunes unknown fields and invalid nulls. `from_storage`: invalid embedded metadata is dropped
    /// instead of refused.
    fn prune_and_coerce(
        &self,
        object: &mut Value,
        from_storage: bool,
        mut unknown: Option<&mut UnknownFields>,
    ) -> Result<(), String> {
        let Some(structural) = self.structural() else { return Ok(()) };
        structural.prune(object, unknown.as_deref_mut());
        structural.drop_nulls(object);
        let coerced = structural.coerce_embedded(object, from_storage, unknown);
        coerced.map_err(|errors| errors.to_string())
    }

    /// Converts an object of another version by changing its apiVersion and pruning it.
    pub(crate) fn convert_without_webhook(&self, object: &mut Value) {
        object.set_at(&["apiVersion"], self.api_version.clone());
        // Cannot fail: with `from_storage` invalid metadata is dropped.
        let _ = self.prune_and_coerce(object, true, None);
    }
}

impl PruneAndDefault for VersionSchema {
    fn prune_and_default(
        &self,
        object: &mut Value,
        unknown: Option<&mut UnknownFields>,
    ) -> Result<(), String> {
        self.prune_and_coerce(object, false, unknown)
    }

    fn prune_and_default_applied(&self, object: &mut Value) {
        if let Some(structural) = self.structural() {
            let _ = structural.coerce_embedded(object, false, None);
        }
    }
}

/// Decodes stored objects, which may have been written by an older spec of the definition or in another
/// version.
#[allow(clippy::struct_field_names)] // What else to call the stored version.
pub(crate) struct StoredVersionCodec {
    /// All versions, the storage version among them.
    pub(crate) versions: Vec<Arc<VersionSchema>>,
    pub(crate) stored: Arc<VersionSchema>,
    /// A webhook converts, on demand: objects stay in the version that they were written in.
    pub(crate) keeps_written_version: bool,
    pub(crate) own: OwnWrites,
}

/// Recent writes of this apiserver. The embedded store returns the same bytes in the event, which then
/// needs no decoding. Bounded, because etcd returns other bytes.
#[derive(Default)]
pub(crate) struct OwnWrites(Mutex<VecDeque<Bytes>>);

const OWN_WRITES_MAX: usize = 64;

impl OwnWrites {
    fn note(&self, bytes: &Bytes) {
        let mut known = self.0.lock();
        if known.len() == OWN_WRITES_MAX {
            known.pop_front();
        }
        known.push_back(bytes.clone());
    }

    /// Compares by address, which is safe because the queue keeps the bytes alive.
    fn take(&self, bytes: &Bytes) -> bool {
        let mut known = self.0.lock();
        let same = |own: &Bytes| own.as_ptr() == bytes.as_ptr() && own.len() == bytes.len();
        let Some(at) = known.iter().position(same) else { return false };
        known.remove(at);
        true
    }
}

impl StoredVersionCodec {
    /// What an object will be decoded as once it is stored; None if that is the object itself.
    fn changed_when_read(&self, object: &Value) -> Option<Value> {
        let structural = self.stored.structural()?;
        if self.versions.len() == 1 && !structural.has_default_status() {
            return None;
        }
        // It may come from a version with other defaults or without a status.
        let mut read = object.clone();
        self.normalize(&mut read);
        (read != *object).then_some(read)
    }

    fn normalize(&self, object: &mut Value) {
        let written_as = object.str_at(&["apiVersion"]);
        if written_as == self.stored.api_version {
            let _ = self.stored.prune_and_coerce(object, true, None);
            self.stored.default(object);
        } else {
            let version = self.versions.iter().find(|known| known.api_version == written_as);
            if let Some(version) = version {
                let _ = version.prune_and_coerce(object, true, None);
                version.default(object);
            }
            if !self.keeps_written_version {
                self.stored.convert_without_webhook(object);
            }
        }
        // Compat: objects that were stored by old versions of Kubernetes have no generation.
        if object.i64_at(&["metadata", "generation"]).unwrap_or_default() == 0 {
            object.set_at(&["metadata", "generation"], 1i64);
        }
    }
}

impl StorageCodec for StoredVersionCodec {
    fn may_outdate(&self) -> bool {
        true
    }

    fn encode(&self, _object: &Value, json: &Bytes) -> Result<Bytes, String> {
        Ok(json.clone())
    }

    fn read_back(&self, object: &Value, json: &Bytes) -> Option<Bytes> {
        let Some(read) = self.changed_when_read(object) else {
            self.own.note(json);
            return None;
        };
        Some(encoded(&read))
    }

    fn decode(&self, stored: &Bytes) -> Result<Bytes, String> {
        if self.own.take(stored) {
            return Ok(stored.clone());
        }
        let decoded = codec::json::decode_any(stored, DecodeOptions { strict: false });
        let mut object = decoded.map_err(|error| error.to_string())?.value;
        self.normalize(&mut object);
        Ok(encoded(&object))
    }
}

fn encoded(object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(4096);
    meta::json::write_value(&mut out, object);
    out.into()
}

/// The versions of a definition, for server-side apply.
pub(crate) struct DefinitionVersions {
    pub(crate) versions: Vec<Arc<VersionSchema>>,
    pub(crate) types: Arc<LazyApplyTypes>,
}

impl DefinitionVersions {
    fn find(&self, api_version: &str) -> Option<usize> {
        self.versions
            .iter()
            .position(|prune_and_default| prune_and_default.api_version == api_version)
    }
}

impl VersionConverter for DefinitionVersions {
    fn convert(&self, object: &Value, api_version: &str) -> Option<(Value, TypeId)> {
        let at = self.find(api_version)?;
        let mut object = object.clone();
        if object.str_at(&["apiVersion"]) != api_version {
            self.versions[at].convert_without_webhook(&mut object);
        }
        Some((object, self.types.versions[at]))
    }

    fn type_of(&self, api_version: &str) -> Option<TypeId> {
        self.find(api_version).map(|at| self.types.versions[at])
    }
}

/// Conversion strategy `None`: only the apiVersion changes.
pub(crate) struct NoneConverter {
    pub(crate) served: Arc<VersionSchema>,
    pub(crate) stored: Arc<VersionSchema>,
}

impl Conversion for NoneConverter {
    fn to_stored(&self, mut object: Value) -> Value {
        self.stored.convert_without_webhook(&mut object);
        object
    }

    fn to_served(&self, mut object: Value) -> Value {
        self.served.convert_without_webhook(&mut object);
        object
    }
}
