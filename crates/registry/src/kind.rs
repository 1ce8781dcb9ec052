//! A served kind: its facts, schema, strategy and storage.

use std::{
    borrow::Cow,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use codec::raw_object::{self, FieldSet};
use meta::{
    ApiError, GroupKind, GroupResource, GroupVersion, GroupVersionKind, Str, Value,
    limits::{TooLarge, TreeSize},
};
use patch::apply::{SingleVersion, VersionConverter};
use schema::{ResourceFacts, Schema, TypeId};
use store::Entry;

use crate::{
    BoxFuture,
    action::Action,
    allocation::Allocator,
    columns::Column,
    computed_resource::ComputedResource,
    custom_kind::CustomKind,
    decode::{self, tree},
    feature_gated_fields::FeatureGatedFields,
    managed_fields::Filters,
    storage::Storage,
    strategy::{Behaviour, Strategy},
    watch_metrics::WatchMetrics,
    write_authorizer::WriteAuthorizer,
};

/// One resource in one served version, shared by all requests.
pub struct Kind {
    pub facts: ResourceFacts,
    pub schema: Arc<Schema>,
    pub behaviour: Behaviour,
    pub strategy: Arc<dyn Strategy>,
    /// None: nothing is stored (reviews, bindings).
    pub storage: Option<Arc<Storage>>,
    /// Computes the objects of a kind without storage.
    pub computed: Option<Arc<dyn ComputedResource>>,
    /// Allocates cluster IPs and node ports.
    pub allocator: Option<Arc<dyn Allocator>>,
    /// Authorizes writes where the right to create or update is not enough.
    pub write_authorizer: Option<Arc<dyn WriteAuthorizer>>,
    /// Fields of disabled features.
    pub(crate) gated_fields: FeatureGatedFields,
    /// The subresources that act, by name.
    actions: Vec<(&'static str, Arc<dyn Action>)>,
    /// Converts between the stored version and this one; None where they are the same.
    pub conversion: Option<Arc<dyn Conversion>>,
    /// Custom resources have kind and apiVersion in list items, and sorted keys.
    pub custom: Option<CustomKind>,
    /// Converts objects for managedFields entries that have another version.
    pub(crate) versions: Arc<dyn VersionConverter + Send + Sync>,
    /// The supported field selectors, with the place of their values in the cache.
    selectable: Vec<(Str, SelectableSource)>,
    /// Built once from the strategy.
    columns: Vec<Column>,
    /// The column definitions of tables, made on first use.
    pub(crate) column_definitions: OnceLock<Bytes>,
    pub(crate) filters: Filters,
    /// The type of the metadata of custom resources, which is stored in another order than it is
    /// shown in when it is shown alone.
    object_meta: Option<TypeId>,
    /// Metrics of the watches of this version.
    pub watch_metrics: WatchMetrics,
    /// Whether this version, which is deprecated, was requested.
    pub(crate) deprecated_requested: AtomicBool,
}

/// Where a field label's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectableSource {
    Name,
    Namespace,
    /// The first of the entry's extracted fields that isn't empty.
    Fields(Vec<usize>),
    /// The field at this path of the converted object, where a webhook converts.
    Converted(Str),
}

/// Converts between a served version and the stored one. Both have the same information, so that a
/// conversion of a decoded object cannot fail.
pub trait Conversion: Send + Sync + 'static {
    fn to_stored(&self, object: Value) -> Value;
    fn to_served(&self, object: Value) -> Value;

    /// The webhook that converts; the two methods above are not called then.
    fn remote(&self) -> Option<&dyn RemoteConverter> {
        None
    }

    /// The path in the stored version of a field of this one.
    fn stored_path<'a>(&self, path: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(path)
    }
}

/// A conversion webhook.
pub trait RemoteConverter: Send + Sync + 'static {
    /// The objects in another version, in their order.
    fn convert<'a>(
        &'a self,
        objects: Vec<Value>,
        api_version: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>, ApiError>>;
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

impl Kind {
    pub fn new(
        facts: ResourceFacts,
        schema: Arc<Schema>,
        behaviour: Behaviour,
        strategy: Arc<dyn Strategy>,
        storage: Option<Arc<Storage>>,
        conversion: Option<Arc<dyn Conversion>>,
        custom: Option<CustomKind>,
    ) -> Self {
        let stored_path = |path: &Str| match &conversion {
            Some(conversion) => Str::new(conversion.stored_path(path)),
            None => path.clone(),
        };
        let selectable = facts.selectable.iter().filter_map(|field| {
            let source = match field.label.as_str() {
                "metadata.name" => SelectableSource::Name,
                "metadata.namespace" => SelectableSource::Namespace,
                _ if conversion.as_ref().is_some_and(|by| by.remote().is_some()) => {
                    SelectableSource::Converted(field.paths.first()?.clone())
                }
                _ => {
                    let places = field.paths.iter().map(stored_path);
                    let storage = storage.as_ref()?;
                    SelectableSource::Fields(places.filter_map(|p| storage.field(&p)).collect())
                }
            };
            Some((field.label.clone(), source))
        });
        let selectable = selectable.collect();
        let columns = strategy.columns();
        let has_status = facts.subresource("status").is_some();
        let object_meta = custom.as_ref().and_then(|_| {
            match schema.get(facts.type_id).field("metadata")?.node.kind {
                schema::NodeType::Object(ty) => Some(ty),
                _ => None,
            }
        });
        let filters = match &custom {
            Some(_) => Filters::of_custom(has_status),
            None => Filters::of(&schema, facts.type_id, has_status, behaviour.resets),
        };
        let versions = match &custom {
            Some(custom) => custom.versions.clone(),
            None => Arc::new(SingleVersion),
        };
        Self {
            facts,
            schema,
            behaviour,
            strategy,
            storage,
            computed: None,
            allocator: None,
            write_authorizer: None,
            gated_fields: FeatureGatedFields::default(),
            actions: Vec::new(),
            conversion,
            custom,
            versions,
            selectable,
            columns,
            column_definitions: OnceLock::new(),
            filters,
            object_meta,
            watch_metrics: WatchMetrics::default(),
            deprecated_requested: AtomicBool::new(false),
        }
    }

    /// Whether this version is deprecated and was requested since the start.
    pub fn deprecated_requested(&self) -> bool {
        self.deprecated_requested.load(Ordering::Relaxed)
    }

    /// The release that no longer has this version, `1.29`, if it is known.
    pub fn removed_release(&self) -> Option<&str> {
        self.behaviour.deprecation.and_then(removed_release)
    }

    /// Sets the handler of a kind without storage.
    #[must_use]
    pub fn with_computed(mut self, computed: Option<Arc<dyn ComputedResource>>) -> Self {
        self.computed = computed;
        self
    }

    /// Sets the subresources that act.
    #[must_use]
    pub fn with_actions(mut self, actions: Vec<(&'static str, Arc<dyn Action>)>) -> Self {
        self.actions = actions;
        self
    }

    /// Sets the allocator.
    #[must_use]
    pub fn with_allocator(mut self, allocator: Option<Arc<dyn Allocator>>) -> Self {
        self.allocator = allocator;
        self
    }

    /// Sets the authorizer of writes.
    #[must_use]
    pub fn authorized_by(mut self, write_authorizer: Option<Arc<dyn WriteAuthorizer>>) -> Self {
        self.write_authorizer = write_authorizer;
        self
    }

    /// Sets the descriptions of the columns.
    #[must_use]
    pub fn with_described_columns(mut self, describe: impl Fn(&mut Column)) -> Self {
        self.columns.iter_mut().for_each(describe);
        self
    }

    /// Sets the conversion for managedFields entries of other versions.
    #[must_use]
    pub fn with_versions(mut self, versions: Arc<dyn VersionConverter + Send + Sync>) -> Self {
        self.versions = versions;
        self
    }

    /// Sets the feature-gated fields.
    #[must_use]
    pub fn with_gated_fields(mut self, gated_fields: FeatureGatedFields) -> Self {
        self.gated_fields = gated_fields;
        self
    }

    pub(crate) fn action(&self, subresource: &str) -> Option<&Arc<dyn Action>> {
        self.actions.iter().find(|(name, _)| *name == subresource).map(|(_, action)| action)
    }

    pub fn gvk(&self) -> &GroupVersionKind {
        &self.facts.kind
    }

    pub fn ty(&self) -> TypeId {
        self.facts.type_id
    }

    pub fn group_version(&self) -> GroupVersion {
        self.facts.group_version()
    }

    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.facts.kind.group.clone(), resource: self.facts.plural.clone() }
    }

    pub fn group_kind(&self) -> GroupKind {
        self.facts.kind.group_kind()
    }

    pub fn namespaced(&self) -> bool {
        self.facts.namespaced
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.facts.verbs.iter().any(|have| have == verb)
    }

    pub fn has_status(&self) -> bool {
        self.facts.subresource("status").is_some()
    }

    /// What Go calls the package that a built-in kind lives in; error messages show it.
    pub(crate) fn go_package(&self) -> &str {
        let (group, kind) = (&self.gvk().group, &self.gvk().kind);
        match group.split('.').next() {
            None | Some("") => "core",
            Some("events") if kind == "Event" => "core",
            Some("internal") => "apiserverinternal",
            Some(first) => first,
        }
    }

    pub fn is_custom(&self) -> bool {
        self.custom.is_some()
    }

    /// The error for an unsupported verb.
    pub fn not_supported(&self, verb: &str) -> ApiError {
        if self.is_custom() {
            let resource = self.group_resource();
            return ApiError::MethodNotSupported { resource, verb: verb.to_owned() };
        }
        ApiError::MethodNotAllowed
    }

    /// The type of metadata that is shown alone in another form. In custom resources it is sorted as stored,
    /// but alone it has the order of its type; in some kinds it has annotations of the server's own.
    pub(crate) fn lone_metadata(&self) -> Option<TypeId> {
        let differs = !self.strategy.internal_annotations().is_empty();
        self.object_meta.or_else(|| self.schema.by_name(OBJECT_META).filter(|_| differs))
    }

    /// Metadata as it is shown alone.
    pub(crate) fn metadata<'a>(&self, sorted: &'a [u8]) -> Result<Cow<'a, [u8]>, ApiError> {
        let Some(ty) = self.lone_metadata() else { return Ok(Cow::Borrowed(sorted)) };
        let mut tree = tree(sorted)?;
        for name in self.strategy.internal_annotations() {
            tree.remove_at(&["annotations", name]);
        }
        let mut out = Vec::with_capacity(sorted.len());
        codec::json::encode(&tree, &self.schema, ty, &mut out);
        Ok(Cow::Owned(out))
    }

    /// The same of a cached object, in this version.
    pub(crate) fn metadata_of(&self, entry: &Entry) -> Result<Bytes, ApiError> {
        if self.lone_metadata().is_none() {
            return Ok(entry.json.slice_bytes(entry.metadata_range()));
        }
        let make = || Ok(self.metadata(&self.raw_metadata(entry)?)?.into_owned().into());
        // Invariant: only custom resources keep it, because others keep their protobuf in the same slot.
        if self.is_remote() || !self.is_custom() {
            return make();
        }
        entry.try_encoding(SLOT_METADATA, make)
    }

    /// The metadata of a cached object in this version, with its keys in any order.
    pub(crate) fn raw_metadata<'a>(&self, entry: &'a Entry) -> Result<Cow<'a, [u8]>, ApiError> {
        if !self.is_remote() {
            return Ok(entry.metadata());
        }
        let view = self.view(entry)?;
        let scanned = raw_object::scan(&view, &FieldSet::new([])).map_err(ApiError::internal)?;
        Ok(Cow::Owned(view[scanned.metadata].to_vec()))
    }

    /// The type for server-side apply, and its schema.
    pub(crate) fn apply_type(&self) -> (&Schema, TypeId) {
        match &self.custom {
            Some(custom) => {
                (&custom.apply_types.schema, custom.apply_types.versions[custom.version_index])
            }
            None => (&self.schema, self.facts.type_id),
        }
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(crate) fn selectable(&self, label: &str) -> Option<&SelectableSource> {
        self.selectable.iter().find(|(known, _)| known == label).map(|(_, source)| source)
    }

    /// Plain defaults from the definitions, then those that depend on other fields. Err: the object of
    /// the client was too large, or has become so.
    pub(crate) fn apply_defaults(&self, object: &mut Value) -> Result<(), TooLarge> {
        let before = TreeSize::of(object)?;
        if !self.is_custom() {
            before.check_list_objects()?;
        }
        let mut size = before;
        self.schema.apply_defaults_within(self.ty(), object, &mut size)?;
        self.strategy.default_within(object, &mut size)?;
        // Those of a custom resource are counted.
        let is_bounded = if self.is_custom() { size.is_same(&before) } else { before.is_small() };
        if is_bounded { Ok(()) } else { TreeSize::of(object).map(drop) }
    }

    /// Normalizes an object as the decoder of stored objects does, so that both compare equal.
    pub fn normalize(&self, object: &mut Value) {
        if let (Some(ty), Some(metadata)) = (self.object_meta, object.at_mut(&["metadata"])) {
            codec::json::normalize(metadata, &self.schema, ty);
        }
        // CustomResourceDefinitions are stored as JSON too, where an empty list is not the same as
        // none.
        if self.custom.is_none() && self.facts.kind.group != "apiextensions.k8s.io" {
            codec::json::normalize(object, &self.schema, self.ty());
        }
    }

    pub(crate) async fn to_stored(&self, object: Value) -> Result<Value, ApiError> {
        let Some(conversion) = &self.conversion else { return Ok(object) };
        let (Some(remote), Some(storage)) = (conversion.remote(), &self.storage) else {
            return Ok(conversion.to_stored(object));
        };
        let api_version = storage.gvk.group_version().to_string();
        if object.str_at(&["apiVersion"]) == api_version {
            return Ok(object);
        }
        let converted = remote.convert(vec![object], &api_version).await?;
        converted.into_iter().next().ok_or_else(|| ApiError::internal("nothing was converted"))
    }

    pub(crate) fn remote(&self) -> Option<&dyn RemoteConverter> {
        self.conversion.as_ref()?.remote()
    }

    /// Whether a webhook converts: entries need [`Kind::prepare`] before they are served.
    pub(crate) fn is_remote(&self) -> bool {
        self.remote().is_some()
    }

    /// Converts entries of other versions in one batch; the results are cached in the entries.
    pub(crate) async fn prepare(&self, entries: &[&Arc<Entry>]) -> Result<(), ApiError> {
        let Some(remote) = self.remote() else { return Ok(()) };
        let (view, own_version) = (self.view_slot(), self.version_prefix());
        let missing: Vec<&&Arc<Entry>> = entries
            .iter()
            .filter(|entry| {
                !entry.json.starts_with(&own_version) && entry.cached_encoding(view).is_none()
            })
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let objects =
            missing.iter().map(|entry| tree(&entry.json.text())).collect::<Result<_, _>>()?;
        let api_version = self.group_version().to_string();
        let converted = remote.convert(objects, &api_version).await?;
        for (entry, object) in missing.iter().zip(converted) {
            // Invariant: it stays until `view` asks for it, and no watcher calls the webhook again.
            entry.pin_encoding(view, &self.encode(&object));
        }
        Ok(())
    }

    /// Custom resources begin with their apiVersion: keys are sorted.
    fn version_prefix(&self) -> Vec<u8> {
        format!("{{\"apiVersion\":\"{}\"", self.group_version()).into_bytes()
    }

    /// A stored object, converted to this version.
    pub(crate) async fn view_of_stored(&self, json: &Bytes) -> Result<Bytes, ApiError> {
        let Some(conversion) = &self.conversion else { return Ok(json.clone()) };
        let Some(remote) = conversion.remote() else { return self.converted(&**conversion, json) };
        if json.starts_with(&self.version_prefix()) {
            return Ok(json.clone());
        }
        let api_version = self.group_version().to_string();
        let converted = remote.convert(vec![tree(json)?], &api_version).await?;
        let converted =
            converted.first().ok_or_else(|| ApiError::internal("nothing was converted"))?;
        Ok(self.encode(converted))
    }

    fn converted(&self, conversion: &dyn Conversion, json: &[u8]) -> Result<Bytes, ApiError> {
        let object = match &self.storage {
            Some(storage) => decode::object(json, &storage.schema, storage.ty),
            None => tree(json),
        };
        let object = object.map_err(|error| self.conversion_failed(&error))?;
        let mut object = conversion.to_served(object);
        object.set_at(&["kind"], self.facts.kind.kind.clone());
        object.set_at(&["apiVersion"], self.group_version().to_string());
        Ok(self.encode(&object))
    }

    /// Compat: the API machinery's text for a conversion that fails, a 500 without a reason.
    fn conversion_failed(&self, why: &ApiError) -> ApiError {
        let served = self.gvk();
        let stored = self.storage.as_ref().map_or(served, |storage| &storage.gvk);
        ApiError::Storage(format!(
            "converting ({}.{}) to ({}.{}): {why}",
            stored.version, stored.kind, served.version, served.kind
        ))
    }

    /// Decodes an object of this version that the server itself has written.
    pub(crate) fn decode(&self, json: &[u8]) -> Result<Value, ApiError> {
        if self.is_custom() { tree(json) } else { decode::object(json, &self.schema, self.ty()) }
    }

    /// An object of this version as clients get it.
    pub(crate) fn encode(&self, object: &Value) -> Bytes {
        let mut out = Vec::with_capacity(4096);
        if self.is_custom() {
            meta::json::write_value(&mut out, object);
        } else {
            codec::json::encode(object, &self.schema, self.ty(), &mut out);
        }
        out.into()
    }

    /// Numbers the versions of one stored resource; 0 is the stored one.
    pub(crate) fn version_number(&self) -> usize {
        match (&self.conversion, &self.custom) {
            (None, _) => 0,
            (Some(_), None) => 1,
            (Some(_), Some(custom)) => 1 + custom.version_index,
        }
    }

    /// Where an entry keeps the object in this version.
    fn view_slot(&self) -> u32 {
        SLOT_VIEWS + self.version_number() as u32
    }

    /// A cached object, converted to this version. Err: the conversion failed. An object of another
    /// version must never be served instead.
    pub(crate) fn view(&self, entry: &Entry) -> Result<Bytes, ApiError> {
        let Some(conversion) = &self.conversion else { return Ok(entry.json.bytes()) };
        if conversion.remote().is_none() {
            let convert = || self.converted(&**conversion, &entry.json.text());
            return entry.try_encoding(self.view_slot(), convert);
        }
        if let Some(view) = entry.cached_encoding(self.view_slot()) {
            return Ok(view);
        }
        if entry.json.starts_with(&self.version_prefix()) {
            return Ok(entry.json.bytes());
        }
        // `prepare` did not convert this entry.
        let stored = self.storage.as_ref().map_or(self.gvk(), |storage| &storage.gvk);
        Err(ApiError::Storage(format!(
            "conversion webhook for {}, Kind={} failed: no converted object",
            stored.group_version(),
            stored.kind
        )))
    }
}

/// The numbers of the other encodings that a cache entry keeps.
pub(crate) const SLOT_PROTOBUF: u32 = 0;
/// Custom resources have no protobuf, but their metadata in another order.
const SLOT_METADATA: u32 = SLOT_PROTOBUF;
pub(crate) const SLOT_CONVERTED_PROTOBUF: u32 = 1;
pub(crate) const SLOT_ROW: u32 = 2;
/// The object as a compressed piece of a list ([`crate::list_pieces`]), in JSON and in protobuf.
pub(crate) const SLOT_JSON_PIECE: u32 = 3;
pub(crate) const SLOT_PROTOBUF_PIECE: u32 = 4;
/// The object in other versions; there may be any number of them.
const SLOT_VIEWS: u32 = 16;

/// The release in `v1beta1 Foo is deprecated in v1.25+, unavailable in v1.29+; use …`.
pub(crate) fn removed_release(warning: &str) -> Option<&str> {
    let (_, rest) = warning.split_once("unavailable in v")?;
    rest.split_once('+').map(|(release, _)| release)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;

    /// JSON that a scan finds its way through, but that is too deep for a tree.
    fn too_deep() -> String {
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        format!(
            r#"{{"kind":"Widget","apiVersion":"example.com/v1","metadata":{{"name":"b","namespace":"ns"}},"spec":{{"parts":{deep}}}}}"#
        )
    }

    const FAILED: &str = "500 : converting (v1.Widget) to (v2.Widget): Internal error occurred: \
                          invalid character '[' exceeded max depth";

    /// It was served as it is stored: as an object of another version.
    #[tokio::test]
    async fn an_object_that_cannot_be_converted_is_a_500() {
        let server = TestServer::start().await;
        server.check("POST /v1/namespaces/ns/widgets", "{metadata: {name: a}}", "201").await;
        server.write_raw("widgets", "b", &too_deep()).await;
        let cases = [
            ("GET /v2/namespaces/ns/widgets/b", ""),
            ("GET /v2/namespaces/ns/widgets", ""),
            ("PUT /v2/namespaces/ns/widgets/b", "{metadata: {name: b}}"),
            ("MERGE-PATCH /v2/namespaces/ns/widgets/b", "{spec: {replicas: 1}}"),
            ("DELETE /v2/namespaces/ns/widgets/b", ""),
        ];
        for (line, body) in cases {
            server.check(line, body, FAILED).await;
        }
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let line = "GET /v2/namespaces/ns/widgets";
        server.send_accepting(table, line, "").await.check(line, FAILED);
        let mut watch = server.watch("/v2/namespaces/ns/widgets").await.unwrap();
        let failed = FAILED.replacen("500 :", "ERROR 500", 1);
        watch.check(&[&failed, "end"]).await;
        // Of the stored version the bytes are as they are.
        assert_eq!(server.send("GET /v1/namespaces/ns/widgets", "").await.code, 200);
    }

    /// A webhook that always gives this answer.
    struct Webhook(Vec<Value>);

    impl Conversion for Webhook {
        fn to_stored(&self, object: Value) -> Value {
            object
        }

        fn to_served(&self, object: Value) -> Value {
            object
        }

        fn remote(&self) -> Option<&dyn RemoteConverter> {
            Some(self)
        }
    }

    impl RemoteConverter for Webhook {
        fn convert<'a>(
            &'a self,
            _: Vec<Value>,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Vec<Value>, ApiError>> {
            Box::pin(std::future::ready(Ok(self.0.clone())))
        }
    }

    #[tokio::test]
    async fn an_object_that_the_webhook_has_not_converted_is_never_shown() {
        let server = TestServer::start().await;
        server.check("POST /v1/namespaces/ns/widgets", "{metadata: {name: a}}", "201").await;
        let v1 = server.kind("v1", "widgets");
        let converted_to = |answer: Vec<Value>| {
            let remote: Option<Arc<dyn Conversion>> = Some(Arc::new(Webhook(answer)));
            let (facts, schema, storage) =
                (v1.facts.clone(), v1.schema.clone(), v1.storage.clone());
            Kind::new(facts, schema, v1.behaviour, v1.strategy.clone(), storage, remote, None)
        };
        let entry = server.storage("widgets").find("ns", "a", true).await.unwrap().unwrap();
        // The webhook answers nothing at all.
        let kind = converted_to(Vec::new());
        kind.prepare(&[&entry]).await.unwrap();
        let error = kind.view(&entry).unwrap_err().to_string();
        let expected = "conversion webhook for example.com/v1, Kind=Widget failed: \
                        no converted object";
        assert_eq!(error, expected);
        let nothing = "Internal error occurred: nothing was converted";
        let shown = kind.view_of_stored(&entry.json.bytes()).await;
        assert_eq!(shown.unwrap_err().to_string(), nothing);
        let stored = kind.to_stored(Value::object()).await;
        assert_eq!(stored.unwrap_err().to_string(), nothing);

        let kind = converted_to(vec![meta::value!({"converted": "yes"})]);
        kind.view(&entry).unwrap_err();
        kind.prepare(&[&entry]).await.unwrap();
        kind.view(&entry).unwrap();
    }
}
