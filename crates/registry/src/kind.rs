//! A served kind: its facts, its schema, its strategy and where its objects are kept.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use codec::raw_object::{self, FieldSet};
use meta::{ApiError, GroupKind, GroupResource, GroupVersion, GroupVersionKind, Str, Value};
use patch::apply::{SingleVersion, VersionConverter};
use schema::{ResourceFacts, Schema, TypeId};
use store::Entry;

use crate::{
    Pinned,
    action::Action,
    allocation::Allocator,
    columns::Column,
    computed_resource::ComputedResource,
    custom_kind::CustomKind,
    decode::tree,
    feature_gated_fields::FeatureGatedFields,
    managed::Filters,
    storage::Storage,
    strategy::{Behaviour, Strategy},
    watch_metrics::WatchMetrics,
    write_authorizer::WriteAuthorizer,
};

/// One resource in one served version. Cheap to look at, shared by all requests.
pub struct Kind {
    pub facts: ResourceFacts,
    pub schema: Arc<Schema>,
    pub behaviour: Behaviour,
    pub strategy: Arc<dyn Strategy>,
    /// None: nothing is kept (reviews, bindings).
    pub storage: Option<Arc<Storage>>,
    /// Who answers where nothing is kept.
    pub computed: Option<Arc<dyn ComputedResource>>,
    /// What its objects take from a limited supply.
    pub allocator: Option<Arc<dyn Allocator>>,
    /// What writing its objects takes beyond the right to write them.
    pub write_authorizer: Option<Arc<dyn WriteAuthorizer>>,
    /// What the server was not started for.
    pub(crate) gated_fields: FeatureGatedFields,
    /// The subresources that act, by name.
    actions: Vec<(&'static str, Arc<dyn Action>)>,
    /// From the stored version to this one and back; None where they are the same.
    pub conversion: Option<Arc<dyn Conversion>>,
    /// CustomKind resources keep kind and apiVersion in list items, and their keys are sorted.
    pub custom: Option<CustomKind>,
    /// Its objects in other versions, for owners that were noted in one of them.
    pub(crate) versions: Arc<dyn VersionConverter + Send + Sync>,
    /// The field labels that a client may select by, with where the cache keeps their values.
    selectable: Vec<(Str, SelectableSource)>,
    /// Built once from the strategy.
    columns: Vec<Column>,
    /// What a table says about its columns, once somebody has asked for one.
    pub(crate) column_definitions: OnceLock<Bytes>,
    pub(crate) filters: Filters,
    /// The type of the metadata, where it is kept in another order than it is shown in.
    object_meta: Option<TypeId>,
    /// What watchers of this version were sent.
    pub watch_metrics: WatchMetrics,
}

/// Where a field label's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectableSource {
    Name,
    Namespace,
    /// The first of the entry's extracted fields that isn't empty.
    Fields(Vec<usize>),
    /// The field at this path of the object in the version that is asked for, which a webhook makes.
    Converted(Str),
}

/// Between a served version and the stored one. Both hold the same information, so it can't fail.
pub trait Conversion: Send + Sync + 'static {
    fn to_stored(&self, object: Value) -> Value;
    fn to_served(&self, object: Value) -> Value;

    /// Who converts where the server itself doesn't know how; the two above are not asked then.
    fn remote(&self) -> Option<&dyn RemoteConverter> {
        None
    }

    /// The place in the stored version of a field of this one.
    fn stored_path<'a>(&self, path: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(path)
    }
}

/// Somebody else who converts: a webhook.
pub trait RemoteConverter: Send + Sync + 'static {
    /// The objects in another version, in their order.
    fn convert<'a>(
        &'a self,
        objects: Vec<Value>,
        api_version: &'a str,
    ) -> Pinned<'a, Result<Vec<Value>, ApiError>>;
}

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
        }
    }

    /// The same kind, its questions answered.
    #[must_use]
    pub fn computed_by(mut self, computed: Option<Arc<dyn ComputedResource>>) -> Self {
        self.computed = computed;
        self
    }

    /// The same kind, with what its subresources do.
    #[must_use]
    pub fn acting(mut self, actions: Vec<(&'static str, Arc<dyn Action>)>) -> Self {
        self.actions = actions;
        self
    }

    /// The same kind, its objects taking from a supply.
    #[must_use]
    pub fn allocated_by(mut self, allocator: Option<Arc<dyn Allocator>>) -> Self {
        self.allocator = allocator;
        self
    }

    /// The same kind, its writes needing a permit.
    #[must_use]
    pub fn authorized_by(mut self, write_authorizer: Option<Arc<dyn WriteAuthorizer>>) -> Self {
        self.write_authorizer = write_authorizer;
        self
    }

    /// The same kind, with what its columns are about.
    #[must_use]
    pub fn described(mut self, describe: impl Fn(&mut Column)) -> Self {
        self.columns.iter_mut().for_each(describe);
        self
    }

    /// The same kind, its owners noted in several versions.
    #[must_use]
    pub fn known_in(mut self, versions: Arc<dyn VersionConverter + Send + Sync>) -> Self {
        self.versions = versions;
        self
    }

    /// The same kind, with less allowed.
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
        match self.gvk().group.split('.').next() {
            None | Some("") => "core",
            Some(first) => first,
        }
    }

    pub fn is_custom(&self) -> bool {
        self.custom.is_some()
    }

    /// What a client hears of a verb that there isn't.
    pub fn not_supported(&self, verb: &str) -> ApiError {
        if self.is_custom() {
            let resource = self.group_resource();
            return ApiError::MethodNotSupported { resource, verb: verb.to_owned() };
        }
        ApiError::MethodNotAllowed
    }

    /// Metadata of an object as it is shown on its own. That of custom resources is sorted as they are
    /// stored, but here it has the order of its type.
    pub(crate) fn metadata<'a>(&self, sorted: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(ty) = self.object_meta else { return Cow::Borrowed(sorted) };
        let Ok(tree) = tree(sorted) else { return Cow::Borrowed(sorted) };
        let mut out = Vec::with_capacity(sorted.len());
        codec::json::encode(&tree, &self.schema, ty, &mut out);
        Cow::Owned(out)
    }

    /// The same of a cached object, in this version.
    pub(crate) fn metadata_of<'a>(&self, entry: &'a Entry) -> Cow<'a, [u8]> {
        let range = entry.meta.0 as usize..entry.meta.1 as usize;
        if self.object_meta.is_none() {
            return Cow::Borrowed(&entry.json[range]);
        }
        if self.is_remote() {
            let view = self.view(entry);
            let range =
                raw_object::scan(&view, &FieldSet::new([])).map_or(range, |found| found.metadata);
            return Cow::Owned(self.metadata(&view[range]).into_owned());
        }
        let made = || self.metadata(&entry.json[range.clone()]).into_owned().into();
        Cow::Borrowed(entry.slot(SLOT_METADATA, made))
    }

    /// The type that server-side apply goes by, and where it is.
    pub(crate) fn apply_type(&self) -> (&Schema, TypeId) {
        match &self.custom {
            Some(custom) => {
                (&custom.apply_types.schema, custom.apply_types.versions[custom.version_at])
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

    /// DefaultStrategy defaults from the definitions, then those that depend on other fields.
    pub(crate) fn apply_defaults(&self, object: &mut Value) {
        self.schema.apply_defaults(self.ty(), object);
        self.strategy.default(object);
    }

    /// Brings an object into the form in which the stored one is read, so that the two compare.
    pub fn settle(&self, object: &mut Value) {
        if let (Some(ty), Some(metadata)) = (self.object_meta, object.at_mut(&["metadata"])) {
            codec::json::normalize(metadata, &self.schema, ty);
        }
        // Definitions of custom resources are stored as JSON too, which tells an empty list from none.
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

    /// Whether somebody else has to be asked before objects can be shown: see [`Kind::prepare`].
    pub(crate) fn is_remote(&self) -> bool {
        self.remote().is_some()
    }

    /// Has objects of other versions converted, all at once; what comes of it is kept with them.
    pub(crate) async fn prepare(&self, entries: &[&Arc<Entry>]) -> Result<(), ApiError> {
        let Some(remote) = self.remote() else { return Ok(()) };
        let version = self.version_number();
        let missing: Vec<&&Arc<Entry>> = entries
            .iter()
            .filter(|entry| !self.is_own_version(&entry.json) && entry.view(version).is_none())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let objects = missing.iter().map(|entry| tree(&entry.json)).collect::<Result<_, _>>()?;
        let api_version = self.group_version().to_string();
        let converted = remote.convert(objects, &api_version).await?;
        for (entry, object) in missing.iter().zip(converted) {
            entry.keep_view(version, self.encode(&object));
        }
        Ok(())
    }

    /// CustomKind resources begin with their version: keys are sorted.
    fn is_own_version(&self, json: &[u8]) -> bool {
        let start = format!("{{\"apiVersion\":\"{}\"", self.group_version());
        json.starts_with(start.as_bytes())
    }

    /// An object as this version shows it, given as it is stored.
    pub(crate) async fn view_of_stored(&self, json: &Bytes) -> Result<Bytes, ApiError> {
        let Some(conversion) = &self.conversion else { return Ok(json.clone()) };
        let Some(remote) = conversion.remote() else { return self.converted(&**conversion, json) };
        if self.is_own_version(json) {
            return Ok(json.clone());
        }
        let api_version = self.group_version().to_string();
        let converted = remote.convert(vec![tree(json)?], &api_version).await?;
        let converted =
            converted.first().ok_or_else(|| ApiError::internal("nothing was converted"))?;
        Ok(self.encode(converted))
    }

    fn converted(&self, conversion: &dyn Conversion, json: &Bytes) -> Result<Bytes, ApiError> {
        let object = tree(json)?;
        let mut object = conversion.to_served(object);
        object.set_at(&["kind"], self.facts.kind.kind.clone());
        object.set_at(&["apiVersion"], self.group_version().to_string());
        Ok(self.encode(&object))
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

    /// Tells apart the versions of one stored resource; 0 is the stored one.
    pub(crate) fn version_number(&self) -> usize {
        match (&self.conversion, &self.custom) {
            (None, _) => 0,
            (Some(_), None) => 1,
            (Some(_), Some(custom)) => 1 + custom.version_at,
        }
    }

    /// A cached object as this version shows it: its own bytes, or a conversion that is made once.
    pub(crate) fn view(&self, entry: &Entry) -> Bytes {
        let Some(conversion) = &self.conversion else { return entry.json.clone() };
        let version = self.version_number();
        if let Some(view) = entry.view(version) {
            return view;
        }
        // What others convert is prepared by now, or was in this version all along.
        if conversion.remote().is_some() {
            return entry.json.clone();
        }
        let view = self.converted(&**conversion, &entry.json);
        let view = view.unwrap_or_else(|_| entry.json.clone());
        entry.keep_view(version, view.clone());
        view
    }
}

/// What the cache's slots for other encodings hold.
pub(crate) const SLOT_PROTOBUF: usize = 0;
/// CustomKind resources have no protobuf, but metadata in another order.
const SLOT_METADATA: usize = SLOT_PROTOBUF;
pub(crate) const SLOT_CONVERTED_PROTOBUF: usize = 1;
pub(crate) const SLOT_ROW: usize = 2;
