//! What a backend keeps of built-in objects: the bytes that kube-apiserver keeps in etcd, or plain JSON
//! in the store that is ours alone.

mod own_writes;

use std::sync::Arc;

use bytes::Bytes;
use codec::{
    json::DecodeOptions,
    protobuf::{self, Envelope, Tables},
};
use meta::{GroupVersionKind, Value, field::quote};
use registry::{AsJson, Conversion, StorageCodec, Strategy};
use schema::{ResourceFacts, Schema, StorageEncoding, TypeId};

use self::own_writes::OwnWrites;
use crate::{Definitions, FeatureGates, conversion, strategies};

/// In which form objects are written. All of them can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageFormat {
    /// As they are served: no other server reads the store.
    Own,
    Protobuf,
    Json,
    Yaml,
}

/// Makes the codecs of resources.
pub(crate) struct StorageFormats<'a> {
    definitions: &'a Definitions,
    schema: Arc<Schema>,
    tables: Arc<Tables>,
    form: StorageFormat,
    crd_strategy: Arc<dyn Strategy>,
}

impl<'a> StorageFormats<'a> {
    pub(crate) fn new(
        definitions: &'a Definitions,
        schema: &Arc<Schema>,
        form: StorageFormat,
        crd_strategy: &Arc<dyn Strategy>,
    ) -> Self {
        let tables = match form {
            StorageFormat::Own => Arc::new(Tables::new(&Schema::default())),
            _ => Arc::new(Tables::new(schema)),
        };
        let crd_strategy = crd_strategy.clone();
        Self { definitions, schema: schema.clone(), tables, form, crd_strategy }
    }

    /// The codec of a resource that is cached as `gvk`.
    pub(crate) fn codec(
        &self,
        facts: &ResourceFacts,
        gvk: &GroupVersionKind,
        ty: TypeId,
    ) -> Arc<dyn StorageCodec> {
        // Only for defaults, which depend on no gate.
        let strategy = strategies::of(
            &facts.kind.group,
            &facts.kind.kind,
            FeatureGates::default(),
            &self.crd_strategy,
        );
        let reads_back = READ_BACK.contains(&(&gvk.group, &gvk.kind));
        if self.form == StorageFormat::Own {
            if !reads_back {
                return Arc::new(AsJson);
            }
            return Arc::new(Defaulted { schema: self.schema.clone(), strategy, ty });
        }
        let storage = facts.storage.as_ref();
        // Aggregated and custom API servers know no protobuf.
        let form = match storage.map(|storage| storage.encoding) {
            Some(StorageEncoding::Json) => StorageFormat::Json,
            _ => self.form,
        };
        let version = storage.map_or_else(|| gvk.group_version(), |found| found.version.clone());
        let written = version.with_kind(&gvk.kind);
        let versions = self.versions(gvk);
        let written = versions.iter().position(|version| version.gvk == written);
        Arc::new(StoredFormat {
            schema: self.schema.clone(),
            tables: self.tables.clone(),
            strategy,
            reads_back,
            gvk: gvk.clone(),
            ty,
            form,
            versions,
            written,
            own: Some(OwnWrites::default()),
        })
    }

    /// The codec of objects that servers write for each other and clients never see. None: no other
    /// server reads the store.
    pub(crate) fn between_servers(&self, kind: &str) -> Option<Arc<dyn StorageCodec>> {
        let gvk = GroupVersionKind::new("", "v1", kind);
        let ty = self.definitions.type_of(&gvk).filter(|_| self.form != StorageFormat::Own)?;
        Some(Arc::new(StoredFormat {
            schema: self.schema.clone(),
            tables: self.tables.clone(),
            strategy: Arc::new(registry::DefaultStrategy),
            reads_back: false,
            gvk,
            ty,
            form: self.form,
            versions: Vec::new(),
            written: None,
            own: None,
        }))
    }

    /// All versions of a kind that may be found in a store, other than the cached one.
    fn versions(&self, gvk: &GroupVersionKind) -> Vec<Version> {
        let all = self.definitions.group_versions.iter();
        let events = ["", "events.k8s.io"];
        let same_group = |group: &str| {
            group == gvk.group
                || (gvk.kind == "Event" && events.contains(&group) && events.contains(&&*gvk.group))
        };
        all.filter(|found| same_group(&found.group_version.group))
            .map(|found| found.group_version.with_kind(&gvk.kind))
            .filter_map(|other| {
                let conversion = conversion::between(&other, gvk)?;
                Some(Version { ty: self.definitions.type_of(&other)?, gvk: other, conversion })
            })
            .collect()
    }
}

/// A version of a kind, and the way from it to the cached one.
struct Version {
    gvk: GroupVersionKind,
    ty: TypeId,
    conversion: Arc<dyn Conversion>,
}

/// How the objects of one resource are stored.
struct StoredFormat {
    schema: Arc<Schema>,
    tables: Arc<Tables>,
    strategy: Arc<dyn Strategy>,
    /// Whether the kind is one of `READ_BACK`.
    reads_back: bool,
    /// What the cache holds.
    gvk: GroupVersionKind,
    ty: TypeId,
    form: StorageFormat,
    versions: Vec<Version>,
    /// The version that is written, if it isn't the cached one.
    written: Option<usize>,
    /// None: there is no watch that these writes come back on.
    own: Option<OwnWrites>,
}

impl StorageCodec for StoredFormat {
    fn encode(&self, object: &Value, json: &Bytes) -> Result<Bytes, String> {
        let Some(version) = self.written.map(|at| &self.versions[at]) else {
            let stored = self.write(object, json, self.ty)?;
            if let Some(own) = &self.own {
                let json = self.read_back(object, json).unwrap_or_else(|| json.clone());
                own.remember(&stored, &json);
            }
            return Ok(stored);
        };
        let mut other = version.conversion.to_served(object.clone());
        set_kind(&mut other, &version.gvk);
        let mut out = Vec::with_capacity(json.len());
        codec::json::encode(&other, &self.schema, version.ty, &mut out);
        self.write(&other, &out.into(), version.ty)
    }

    /// Compat: an update that changes nothing stores the defaults.
    fn may_outdate(&self) -> bool {
        self.reads_back
    }

    fn read_back(&self, object: &Value, _json: &Bytes) -> Option<Bytes> {
        self.reads_back.then(|| with_defaults(object, &*self.strategy, &self.schema, self.ty))
    }

    fn decode(&self, stored: &Bytes) -> Result<Bytes, String> {
        if let Some(json) = self.own.as_ref().and_then(|own| own.take(stored)) {
            debug_assert_eq!(Ok(&json), self.decode_anew(stored).as_ref(), "as others read it");
            return Ok(json);
        }
        self.decode_anew(stored)
    }
}

/// Compat: kinds that kube-apiserver stores without some of their defaults, because what they depend on is set
/// (or what had them is removed) after the defaults: the phase of a claim, labels of a job whose template gets its
/// labels from the server, behaviour of an autoscaler that came as an annotation. Clients see the defaults.
const READ_BACK: &[(&str, &str)] =
    &[("", "PersistentVolumeClaim"), ("autoscaling", "HorizontalPodAutoscaler"), ("batch", "Job")];

fn with_defaults(object: &Value, strategy: &dyn Strategy, schema: &Schema, ty: TypeId) -> Bytes {
    let mut object = object.clone();
    strategy.default(&mut object);
    let mut out = Vec::with_capacity(4096);
    codec::json::encode(&object, schema, ty, &mut out);
    out.into()
}

/// Stores the served JSON of kinds that are read back with more defaults.
struct Defaulted {
    schema: Arc<Schema>,
    strategy: Arc<dyn Strategy>,
    ty: TypeId,
}

impl StorageCodec for Defaulted {
    fn encode(&self, object: &Value, _json: &Bytes) -> Result<Bytes, String> {
        Ok(with_defaults(object, &*self.strategy, &self.schema, self.ty))
    }

    fn read_back(&self, object: &Value, _json: &Bytes) -> Option<Bytes> {
        Some(with_defaults(object, &*self.strategy, &self.schema, self.ty))
    }

    fn decode(&self, stored: &Bytes) -> Result<Bytes, String> {
        Ok(stored.clone())
    }
}

impl StoredFormat {
    fn decode_anew(&self, stored: &[u8]) -> Result<Bytes, String> {
        let mut object = self.read(stored)?;
        // What an older server has stored lacks what has come since.
        self.strategy.default(&mut object);
        object.remove_at(&["metadata", "resourceVersion"]);
        let mut out = Vec::with_capacity(stored.len() * 2);
        codec::json::encode(&object, &self.schema, self.ty, &mut out);
        Ok(out.into())
    }

    fn write(&self, object: &Value, json: &Bytes, ty: TypeId) -> Result<Bytes, String> {
        match self.form {
            StorageFormat::Own => Ok(json.clone()),
            StorageFormat::Protobuf => {
                let sealed = protobuf::encode_object(object, &self.tables, &self.schema, ty);
                Ok(sealed.map_err(|error| error.to_string())?.into())
            }
            // Go ends a document with a line break.
            StorageFormat::Json => Ok([json, &b"\n"[..]].concat().into()),
            StorageFormat::Yaml => {
                let tree = codec::json::decode_any(json, LENIENT);
                let tree = tree.map_err(|error| error.to_string())?.value;
                Ok(codec::yaml::emit(&tree).into())
            }
        }
    }

    /// Reads whatever form and version is there; answers the cached version.
    fn read(&self, stored: &[u8]) -> Result<Value, String> {
        if stored.starts_with(&protobuf::PREFIX) {
            let envelope = Envelope::open(stored).map_err(|error| error.to_string())?;
            return self.adopt(&envelope.api_version, &envelope.kind, |ty| {
                protobuf::decode(envelope.raw, &self.tables, &self.schema, ty)
                    .map_err(|error| error.to_string())
            });
        }
        let is_json = stored.trim_ascii_start().first() == Some(&b'{');
        let decode = |ty| {
            let decoded = if is_json {
                codec::json::decode(stored, &self.schema, ty, LENIENT)
            } else {
                codec::yaml::decode(stored, &self.schema, ty, LENIENT)
            };
            decoded.map(|decoded| decoded.value).map_err(|error| error.to_string())
        };
        // Every type has kind and apiVersion in the same place.
        let first = decode(self.ty)?;
        self.adopt(first.str_at(&["apiVersion"]), first.str_at(&["kind"]), decode)
    }

    fn adopt(
        &self,
        api_version: &str,
        kind: &str,
        decode: impl Fn(TypeId) -> Result<Value, String>,
    ) -> Result<Value, String> {
        let is = |gvk: &GroupVersionKind| {
            gvk.kind == kind && gvk.group_version().to_string() == api_version
        };
        let mut object = if is(&self.gvk) {
            let mut object = decode(self.ty)?;
            self.schema.apply_defaults(self.ty, &mut object);
            object
        } else if let Some(version) = self.versions.iter().find(|version| is(&version.gvk)) {
            let mut object = decode(version.ty)?;
            self.schema.apply_defaults(version.ty, &mut object);
            version.conversion.to_stored(object)
        } else {
            let (kind, version) = (quote(kind), quote(api_version));
            return Err(format!("no kind {kind} is registered for version {version}"));
        };
        set_kind(&mut object, &self.gvk);
        Ok(object)
    }
}

/// What is stored was checked when it was written.
const LENIENT: DecodeOptions = DecodeOptions { strict: false };

fn set_kind(object: &mut Value, gvk: &GroupVersionKind) {
    object.set_at(&["kind"], gvk.kind.clone());
    object.set_at(&["apiVersion"], gvk.group_version().to_string());
}

#[cfg(test)]
mod tests;
