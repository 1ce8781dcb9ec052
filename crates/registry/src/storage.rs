//! The storage of a resource: its keys in the store and its watch cache.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use admission::BoxFuture;
use bytes::Bytes;
use codec::raw_object::{self, FieldSet, KeyOrder};
use meta::{ApiError, Cause, Details, GroupResource, GroupVersionKind, Status, Str, Value};
use schema::{NodeType, Schema, TypeId};
use store::{
    Backend, Cache, CacheOptions, Entry, Expect, KeyValue, Materialize, ReadError, Snapshot,
    StoreError, UnreadableObject, Write, label_bits,
};

use crate::storage_codec::{EncodedObject, StorageCodec};

/// Shared by all served versions of a resource.
pub struct Storage {
    /// `/registry/pods/`
    pub prefix: Str,
    pub namespaced: bool,
    pub backend: Arc<dyn Backend>,
    pub cache: Arc<Cache>,
    /// The stored kind and version.
    pub gvk: GroupVersionKind,
    pub schema: Arc<Schema>,
    pub ty: TypeId,
    /// Objects expire after this time (events).
    pub ttl: Option<Duration>,
    /// Which of the extracted fields has an index.
    pub index: Option<usize>,
    /// Reads come from the backend each time, not from the cache.
    pub from_store: bool,
    fields: Vec<Str>,
    order: KeyOrder,
    codec: Arc<dyn StorageCodec>,
    follower: OnceLock<Arc<dyn Follower>>,
}

/// A component of the server that decides by what is stored here. Writers wait for it, so that a
/// write has an effect on the next request.
pub trait Follower: Send + Sync + 'static {
    /// Resolves when everything up to this revision is known.
    fn reached(&self, revision: u64) -> BoxFuture<'_, ()>;
}

pub struct StorageOptions {
    pub prefix: Str,
    pub namespaced: bool,
    pub gvk: GroupVersionKind,
    pub schema: Arc<Schema>,
    pub ty: TypeId,
    pub ttl: Option<Duration>,
    /// Paths of the fields that clients may select by: `spec.nodeName`.
    pub fields: Vec<Str>,
    /// The field that lists and watches are indexed by (`spec.nodeName`).
    pub index: Option<Str>,
    /// Custom resources have sorted keys.
    pub custom: bool,
    /// See [`Storage::from_store`].
    pub from_store: bool,
    /// Encodes objects for the backend.
    pub codec: Arc<dyn StorageCodec>,
}

impl Storage {
    /// Opens the resource's part of the store and starts to fill its cache.
    pub fn start(backend: Arc<dyn Backend>, options: StorageOptions) -> Arc<Self> {
        let index = options.index.as_ref().and_then(|wanted| place(&options.fields, wanted));
        let zeros = options.fields.iter().map(|path| zero(&options.schema, options.ty, path));
        let order = if options.custom { KeyOrder::Sorted } else { KeyOrder::Struct };
        let materialize = Arc::new(JsonObjects {
            prefix_bytes: options.prefix.len(),
            namespaced: options.namespaced,
            fields: FieldSet::new(options.fields.iter().map(Str::as_str)),
            order,
            zeros: zeros.collect(),
            codec: options.codec.clone(),
        });
        let cache = Cache::start(
            backend.clone(),
            CacheOptions::new(options.prefix.clone(), materialize).index(index),
        );
        Arc::new(Self {
            prefix: options.prefix,
            namespaced: options.namespaced,
            backend,
            cache,
            gvk: options.gvk,
            schema: options.schema,
            ty: options.ty,
            ttl: options.ttl,
            index,
            from_store: options.from_store,
            fields: options.fields,
            order,
            codec: options.codec,
            follower: OnceLock::new(),
        })
    }

    /// Makes writers wait for this follower; later calls have no effect.
    pub fn follow(&self, follower: Arc<dyn Follower>) {
        let _ = self.follower.set(follower);
    }

    /// The field that lists and watches are indexed by.
    pub fn indexed_field(&self) -> Option<&str> {
        Some(self.fields.get(self.index?)?.as_str())
    }

    /// The index of a field in cache entries.
    pub(crate) fn field(&self, path: &str) -> Option<usize> {
        place(&self.fields, path)
    }

    pub(crate) fn key(&self, namespace: &str, name: &str) -> Str {
        // Not formatted, since every read does this.
        if self.namespaced {
            [&*self.prefix, namespace, "/", name].concat().into()
        } else {
            [&*self.prefix, name].concat().into()
        }
    }

    /// The key prefix of a namespace, or of the resource when it is empty.
    /// How many objects a namespace has ("": all namespaces), as the watch cache knows it.
    pub fn count(&self, namespace: &str) -> usize {
        self.cache.snapshot().range(&self.key_prefix(namespace), None).count()
    }

    pub(crate) fn key_prefix(&self, namespace: &str) -> Str {
        if self.namespaced && !namespace.is_empty() {
            format!("{}{namespace}/", self.prefix).into()
        } else {
            self.prefix.clone()
        }
    }

    /// Encodes an object of the stored version, without its resourceVersion, which the commit
    /// decides.
    pub(crate) fn encode(&self, mut object: Value) -> Result<EncodedObject, ApiError> {
        let json = self.json(&mut object);
        let bytes = self.codec.encode(&object, &json).map_err(ApiError::internal)?;
        let json = self.codec.read_back(&object, &json).unwrap_or(json);
        Ok(EncodedObject { json, bytes })
    }

    /// The JSON of an object that is being deleted.
    pub(crate) fn last_json(&self, mut object: Value) -> Bytes {
        self.json(&mut object)
    }

    fn json(&self, object: &mut Value) -> Bytes {
        object.remove_at(&["metadata", "resourceVersion"]);
        object.set_at(&["kind"], self.gvk.kind.clone());
        object.set_at(&["apiVersion"], self.gvk.group_version().to_string());
        if self.order == KeyOrder::Struct {
            // Protobuf has no empty lists, so that built-in kinds never read back with one.
            codec::json::remove_empty_fields(object, &self.schema, self.ty);
        }
        let mut out = Vec::with_capacity(4096);
        match self.order {
            KeyOrder::Struct => codec::json::encode(object, &self.schema, self.ty, &mut out),
            KeyOrder::Sorted => meta::json::write_value(&mut out, object),
        }
        out.into()
    }

    /// Sets the resourceVersion in JSON that [`Storage::encode`] or [`Storage::last_json`] has just written.
    pub(crate) fn encoded_at(&self, json: &Bytes, revision: u64) -> Result<Bytes, ApiError> {
        raw_object::insert_revision(json, revision, self.order).map_err(ApiError::internal)
    }

    /// Sets the resourceVersion in stored JSON.
    pub(crate) fn at_revision(&self, json: &Bytes, revision: u64) -> Result<Bytes, ApiError> {
        let spliced = raw_object::splice(json, revision, self.order, &FieldSet::new([]));
        Ok(spliced.map_err(ApiError::internal)?.0)
    }

    /// An object in the cache, without waiting.
    pub fn cached(&self, namespace: &str, name: &str) -> Option<Arc<Entry>> {
        self.cache.get(&self.key(namespace, name))
    }

    /// An object from the cache; `fresh` makes the read linearizable.
    pub async fn find(
        &self,
        namespace: &str,
        name: &str,
        fresh: bool,
    ) -> Result<Option<Arc<Entry>>, ApiError> {
        let key = self.key(namespace, name);
        if fresh {
            return Ok(self.cache.fresh().await.map_err(store_error)?.get(&key).cloned());
        }
        Ok(self.cache.get(&key))
    }

    /// A linearizable snapshot: every write acknowledged before the call is in it.
    pub(crate) async fn newest(&self) -> Result<Arc<Snapshot>, StoreError> {
        if self.from_store { self.cache.read().await } else { self.cache.fresh().await }
    }

    /// The state of the cache, however old.
    pub(crate) async fn any(&self) -> Result<Arc<Snapshot>, StoreError> {
        if self.from_store { self.cache.read().await } else { Ok(self.cache.snapshot()) }
    }

    /// One object, not older than `revision`; `None`: linearizable.
    pub(crate) async fn entry(
        &self,
        key: &str,
        revision: Option<u64>,
    ) -> Result<Option<Arc<Entry>>, ApiError> {
        if self.from_store {
            if let Some(asked) = revision.filter(|asked| *asked > 0) {
                let current = self.backend.revision().await.map_err(store_error)?;
                if current < asked {
                    return Err(self.read_error(StoreError::TooLargeRevision { asked, current }));
                }
            }
            return self.cache.read_one(key).await.map_err(|error| match error {
                ReadError::Store(error) => store_error(error),
                ReadError::Unreadable(broken) => unreadable(&broken),
            });
        }
        let snapshot = match revision {
            None => self.newest().await,
            Some(0) => self.any().await,
            Some(revision) => self.at_least(revision).await,
        };
        let snapshot = snapshot.map_err(|error| self.read_error(error))?;
        match snapshot.broken(key) {
            Some(broken) => Err(unreadable(broken)),
            None => Ok(snapshot.get(key).cloned()),
        }
    }

    /// Whether kube-apiserver has a cache of this resource: it has none of what expires, which is events.
    pub(crate) fn is_cached(&self) -> bool {
        !self.from_store && self.ttl.is_none()
    }

    /// The error of a read. Compat: without a cache that could catch up, a client is not told to try again.
    pub(crate) fn read_error(&self, error: StoreError) -> ApiError {
        match (store_error(error), self.is_cached()) {
            (ApiError::TooLargeResourceVersion { asked, current, .. }, false) => {
                ApiError::TooLargeResourceVersion { asked, current, retry_after_seconds: 0 }
            }
            (error, _) => error,
        }
    }

    /// A snapshot that is not older than `revision`.
    pub(crate) async fn at_least(&self, revision: u64) -> Result<Arc<Snapshot>, StoreError> {
        if !self.from_store {
            return self.cache.at_least(revision).await;
        }
        let snapshot = self.cache.read().await?;
        let current = snapshot.revision;
        if current < revision {
            return Err(StoreError::TooLargeRevision { asked: revision, current });
        }
        Ok(snapshot)
    }

    /// Reads the backend; the value is the JSON of the object.
    pub(crate) async fn read(&self, key: &str) -> Result<Option<KeyValue>, ApiError> {
        let Some(found) = self.backend.get(key).await.map_err(store_error)? else {
            return Ok(None);
        };
        let (key, revision) = (&found.key, found.mod_revision);
        let value = match &found.problem {
            Some(problem) => Err(UnreadableObject::undecrypted(key, revision, problem)),
            None => self
                .codec
                .decode(&found.value)
                .map_err(|why| UnreadableObject::undecodable(key, revision, &why)),
        };
        let value = value.map_err(|broken| unreadable(&broken))?;
        Ok(Some(KeyValue { value, ..found }))
    }

    /// Deletes an object that cannot be read. Answers whether there was one; an object that can be
    /// read is left alone.
    pub(crate) async fn delete_unreadable(&self, key: &Str) -> Result<bool, ApiError> {
        let Some(found) = self.backend.get(key).await.map_err(store_error)? else {
            return Ok(false);
        };
        let json = self.codec.decode(&found.value).ok().filter(|_| found.problem.is_none());
        if json.is_some_and(|json| self.at_revision(&json, found.mod_revision).is_ok()) {
            return Ok(false);
        }
        match self.write(key.clone(), Expect::At(found.mod_revision), None).await {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(store_error(error)),
        }
    }

    /// Whether an unchanged object should be written again: that is how clients migrate everything
    /// to the current storage version and encryption key.
    pub(crate) async fn needs_rewrite(
        &self,
        key: &str,
        object: &EncodedObject,
    ) -> Result<bool, ApiError> {
        if self.codec.may_outdate()
            && let Some(found) = self.backend.get(key).await.map_err(store_error)?
            && found.value.trim_ascii_end() != object.bytes.trim_ascii_end()
        {
            return Ok(true);
        }
        self.backend.is_stale(key).await.map_err(store_error)
    }

    pub(crate) async fn write(
        &self,
        key: Str,
        expect: Expect,
        object: Option<&EncodedObject>,
    ) -> Result<u64, StoreError> {
        let value = object.map(|encoded| encoded.bytes.clone());
        let mut span = trace::start("store.Write");
        if span.is_recorded() {
            span.attribute("key", key.as_str());
            span.attribute("len", value.as_ref().map_or(0, |value| value.len() as i64));
        }
        let written = span.run(self.backend.write(Write { key, expect, value, ttl: self.ttl }));
        let revision = written.await.inspect_err(|error| span.error(error.to_string()))?;
        drop(span);
        if let Some(follower) = self.follower.get() {
            follower.reached(revision).await;
        }
        Ok(revision)
    }
}

fn place(fields: &[Str], path: &str) -> Option<usize> {
    fields.iter().position(|field| field == path)
}

/// The value of an absent field in selectors: Go's zero value as text.
fn zero(schema: &Schema, ty: TypeId, path: &str) -> Str {
    let mut kind = &NodeType::Object(ty);
    for name in path.split('.') {
        match kind {
            NodeType::Object(ty) => match schema.get(*ty).field(name) {
                Some(field) => kind = &field.node.kind,
                None => return Str::default(),
            },
            _ => return Str::default(),
        }
    }
    match kind {
        NodeType::Bool => Str::new_static("false"),
        NodeType::Int32 | NodeType::Int64 => Str::new_static("0"),
        _ => Str::default(),
    }
}

/// Makes cache entries of stored bytes: JSON with the resourceVersion, labels and selectable fields
/// extracted.
struct JsonObjects {
    prefix_bytes: usize,
    namespaced: bool,
    fields: FieldSet,
    order: KeyOrder,
    /// The value of each field where it is absent.
    zeros: Vec<Str>,
    codec: Arc<dyn StorageCodec>,
}

impl Materialize for JsonObjects {
    fn entry(&self, key: &Str, value: &Bytes, revision: u64) -> Result<Entry, String> {
        let value = self.codec.decode(value)?;
        let (json, scanned) = raw_object::splice(&value, revision, self.order, &self.fields)
            .map_err(|error| error.to_string())?;
        let path = &key[self.prefix_bytes..];
        let (namespace, name) = match path.split_once('/') {
            Some(both) if self.namespaced => both,
            _ => ("", path),
        };
        let fields = scanned.fields.into_iter().zip(&self.zeros);
        Ok(Entry {
            key: key.clone(),
            name: Str::new(name),
            namespace: Str::new(namespace),
            revision,
            json: json.into(),
            body_at: scanned.body_at as u32,
            meta: (scanned.metadata.start as u32, scanned.metadata.end as u32),
            label_bits: label_bits(scanned.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()))),
            labels: scanned.labels.into(),
            fields: fields.map(|(text, zero)| text.unwrap_or_else(|| zero.clone())).collect(),
            ..Entry::default()
        })
    }
}

/// The error about an object that cannot be decoded. Compat: kube-apiserver's message with the
/// feature gate `AllowUnsafeMalformedObjectDeletion`, which names the key; without the gate it has
/// only the decoder's message.
pub(crate) fn unreadable(broken: &UnreadableObject) -> ApiError {
    ApiError::Internal(corrupt(broken))
}

fn corrupt(UnreadableObject { key, why, .. }: &UnreadableObject) -> String {
    format!(
        "StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, \
         AdditionalErrorMsg: {why}"
    )
}

/// The error about a list that contains such an object.
pub(crate) fn unreadable_list(resource: &GroupResource, broken: &UnreadableObject) -> ApiError {
    let message = format!("failed to read one or more {resource} from the storage");
    let cause = Cause {
        reason: "UnexpectedServerResponse".to_owned(),
        message: corrupt(broken),
        field: broken.key.to_string(),
    };
    ApiError::Status(Box::new(Status {
        code: 500,
        reason: "StorageReadError".to_owned(),
        message,
        details: Some(Details {
            name: "list".to_owned(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            causes: vec![cause],
            ..Details::default()
        }),
        ..Status::default()
    }))
}

/// The error for a failure of the store.
pub(crate) fn store_error(error: StoreError) -> ApiError {
    match error {
        StoreError::TooLargeRevision { asked, current } => {
            ApiError::TooLargeResourceVersion { asked, current, retry_after_seconds: 1 }
        }
        StoreError::Compacted { .. } => ApiError::Expired {
            message: "The resourceVersion for the provided list is too old.".to_owned(),
            continue_token: String::new(),
        },
        other => ApiError::Storage(other.to_string()),
    }
}

/// Whether an attempt may have failed because of a stale cache, and can be retried with the newest
/// state. A store that failed may have written all the same: a retry would then report the own
/// deletion as a 404, or apply the same change twice.
pub(crate) fn may_come_from_a_stale_cache(error: &ApiError) -> bool {
    !matches!(error, ApiError::Storage(_))
}

/// Parses a resourceVersion.
pub(crate) fn parse_revision(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let parsed = text.parse::<u64>().map_err(|error| match error.kind() {
        std::num::IntErrorKind::PosOverflow => "value out of range",
        _ => "invalid syntax",
    });
    // Go's ParseUint accepts no sign.
    let signed = text.starts_with('+');
    let parsed = if signed { Err("invalid syntax") } else { parsed };
    parsed.map_err(|why| {
        let text = meta::field::quote(text);
        format!("resourceVersion: Invalid value: {text}: strconv.ParseUint: parsing {text}: {why}")
    })
}

#[cfg(test)]
mod tests {
    use meta::GroupResource;

    use super::*;

    /// A deletion whose answer etcd had lost was retried, and the client got a 404.
    #[test]
    fn what_the_store_failed_to_do_is_not_tried_again() {
        let failed = store_error(StoreError::Unavailable("etcdserver: request timed out".into()));
        assert!(!may_come_from_a_stale_cache(&failed));
        let resource = GroupResource::new("", "pods");
        assert!(may_come_from_a_stale_cache(&ApiError::modified(resource.clone(), "a")));
        assert!(may_come_from_a_stale_cache(&ApiError::not_found(resource, "a")));
    }
}
