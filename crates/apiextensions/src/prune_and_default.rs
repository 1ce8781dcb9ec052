//! The shape of a version's objects: what its schema drops, fills in and demands; and how objects
//! get from one version to another where only the version's name differs.

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
use schema::{TypeId, structural::Structural};

use crate::crd::{Crd, Version, schema_tree};

/// One version of a definition, as far as the shape of its objects goes.
pub(crate) struct VersionSchema {
    /// `group/version`
    pub(crate) api_version: Str,
    /// None: any object will do, and nothing is dropped.
    schema: Option<Arc<str>>,
    /// The schema, read when the first object needs it: a platform has hundreds of definitions, and
    /// objects of few.
    structural: OnceLock<Option<Structural>>,
}

impl VersionSchema {
    /// The crd_controller has seen that the schema can be read.
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

    /// Drops what the schema doesn't know. From storage, what can't be read is dropped too.
    fn fit(
        &self,
        object: &mut Value,
        from_storage: bool,
        mut unknown: Option<&mut Vec<String>>,
    ) -> Result<(), String> {
        let Some(structural) = self.structural() else { return Ok(()) };
        structural.prune(object, unknown.as_deref_mut());
        structural.drop_nulls(object);
        let coerced = structural.coerce_embedded(object, from_storage, unknown);
        coerced.map_err(|errors| errors.to_string())
    }

    /// An object of another version in this one: nothing changes but the version.
    pub(crate) fn adopt(&self, object: &mut Value) {
        object.set_at(&["apiVersion"], self.api_version.clone());
        // What could not be read was dropped when it came in.
        let _ = self.fit(object, true, None);
    }
}

impl PruneAndDefault for VersionSchema {
    fn prune_and_default(
        &self,
        object: &mut Value,
        unknown: Option<&mut Vec<String>>,
    ) -> Result<(), String> {
        self.fit(object, false, unknown)
    }

    fn prune_and_default_applied(&self, object: &mut Value) {
        if let Some(structural) = self.structural() {
            let _ = structural.coerce_embedded(object, false, None);
        }
    }
}

/// How objects are read from the store: they may have been written under an older definition, or in
/// another version.
#[allow(clippy::struct_field_names)] // What else to call the stored version.
pub(crate) struct Stored {
    /// All versions that there are; the stored one among them.
    pub(crate) versions: Vec<Arc<VersionSchema>>,
    pub(crate) stored: Arc<VersionSchema>,
    /// Somebody else converts, and only when that is needed: objects stay in the version that they
    /// were written in.
    pub(crate) as_written: bool,
    pub(crate) own: OwnWrites,
}

/// What this server has written a moment ago, in the very bytes that come back as an event: it needs
/// no second look. Bounded, because events may never come back (etcd hands out other bytes).
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

    /// Whether these are the same bytes, not just equal ones: they can't have been freed meanwhile.
    fn take(&self, bytes: &Bytes) -> bool {
        let mut known = self.0.lock();
        let same = |own: &Bytes| own.as_ptr() == bytes.as_ptr() && own.len() == bytes.len();
        let Some(at) = known.iter().position(same) else { return false };
        known.remove(at);
        true
    }
}

impl Stored {
    /// What an object that is about to be stored will be read back as; None: as it is.
    fn unsettled(&self, object: &Value) -> Option<Value> {
        let structural = self.stored.structural()?;
        if self.versions.len() == 1 && !structural.has_default_status() {
            return None;
        }
        // It may come from a version with other defaults, or without its status.
        let mut read = object.clone();
        self.revive(&mut read);
        (read != *object).then_some(read)
    }

    fn revive(&self, object: &mut Value) {
        let written_as = object.str_at(&["apiVersion"]);
        if written_as == self.stored.api_version {
            let _ = self.stored.fit(object, true, None);
            self.stored.default(object);
        } else {
            let version = self.versions.iter().find(|known| known.api_version == written_as);
            if let Some(version) = version {
                let _ = version.fit(object, true, None);
                version.default(object);
            }
            if !self.as_written {
                self.stored.adopt(object);
            }
        }
        // Objects of very old definitions have none.
        if object.i64_at(&["metadata", "generation"]).unwrap_or_default() == 0 {
            object.set_at(&["metadata", "generation"], 1i64);
        }
    }
}

impl StorageCodec for Stored {
    fn may_outdate(&self) -> bool {
        true
    }

    fn encode(&self, _object: &Value, json: &Bytes) -> Result<Bytes, String> {
        Ok(json.clone())
    }

    fn read_back(&self, object: &Value, json: &Bytes) -> Option<Bytes> {
        let Some(read) = self.unsettled(object) else {
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
        self.revive(&mut object);
        Ok(encoded(&object))
    }
}

fn encoded(object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(4096);
    meta::json::write_value(&mut out, object);
    out.into()
}

/// The versions of a definition, for server-side apply.
pub(crate) struct AllVersions {
    pub(crate) versions: Vec<Arc<VersionSchema>>,
    pub(crate) types: Arc<LazyApplyTypes>,
}

impl AllVersions {
    fn find(&self, api_version: &str) -> Option<usize> {
        self.versions
            .iter()
            .position(|prune_and_default| prune_and_default.api_version == api_version)
    }
}

impl VersionConverter for AllVersions {
    fn convert(&self, object: &Value, api_version: &str) -> Option<(Value, TypeId)> {
        let at = self.find(api_version)?;
        let mut object = object.clone();
        if object.str_at(&["apiVersion"]) != api_version {
            self.versions[at].adopt(&mut object);
        }
        Some((object, self.types.versions[at]))
    }

    fn type_of(&self, api_version: &str) -> Option<TypeId> {
        self.find(api_version).map(|at| self.types.versions[at])
    }
}

/// Conversion strategy `None`: between versions only the version changes.
pub(crate) struct SameFields {
    pub(crate) served: Arc<VersionSchema>,
    pub(crate) stored: Arc<VersionSchema>,
}

impl Conversion for SameFields {
    fn to_stored(&self, mut object: Value) -> Value {
        self.stored.adopt(&mut object);
        object
    }

    fn to_served(&self, mut object: Value) -> Value {
        self.served.adopt(&mut object);
        object
    }
}
