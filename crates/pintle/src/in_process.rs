//! Adapters between crates that do not know each other: what admission and the controllers see of the
//! server.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock, Weak},
};

use admission::{
    BoxFuture, Freshness, ServedObjects,
    policy::{KindTypes, check_types},
};
use aggregator::RemoteClient;
use controllers::{Discovered, PolicyTypeChecker, Resource, ResourceRef};
use endpoints::{Kinds, LoopbackClient, Resources};
use meta::{
    ApiError, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, Str, Value,
    selector::LabelSelector,
};
use registry::Kind;
use schema::{Schema, TypeId, cel_decl::Decl};
use store::Entry;

use crate::cache_informer::names_service;

/// What admission looks up: built-in and custom objects alike.
pub(crate) struct CachedObjects {
    builtin: Kinds,
    namespaces: Option<Arc<Kind>>,
    /// Of built-in resources that are served in several versions, the other ones.
    equivalents: HashMap<GroupVersionResource, Vec<(GroupVersionResource, GroupVersionKind)>>,
    /// Set once the servers are put together; custom kinds come and go in it. Weak: the servers own admission.
    extensions: Arc<OnceLock<Weak<Resources>>>,
    /// Set together with them, for plugins that write.
    local: Arc<OnceLock<LoopbackClient>>,
    /// Of the kinds that only subresources have.
    schema: Arc<Schema>,
}

impl CachedObjects {
    pub(crate) fn new(
        kinds: &[Arc<Kind>],
        extensions: Arc<OnceLock<Weak<Resources>>>,
        local: Arc<OnceLock<LoopbackClient>>,
        schema: Arc<Schema>,
    ) -> Self {
        let builtin = Kinds::new(kinds.iter().cloned());
        let namespaces = builtin.get_resource(&admission::resources::NAMESPACES).cloned();
        let equivalents = kinds.iter().map(|kind| {
            let others = equivalents(kind, kinds.iter());
            (kind.facts.group_version_resource(), others)
        });
        let equivalents = equivalents.filter(|(_, others)| !others.is_empty()).collect();
        Self { builtin, namespaces, equivalents, extensions, local, schema }
    }

    /// The kind of a resource, unless the object is of another kind (`Scale`, `Eviction`).
    fn kind_of_object(
        &self,
        resource: &GroupVersionResource,
        kind: &GroupVersionKind,
    ) -> Option<Arc<Kind>> {
        self.kind_of(resource).filter(|own| own.gvk() == kind)
    }

    fn type_of(&self, kind: &GroupVersionKind) -> Option<TypeId> {
        let mut types = self.schema.types();
        types.find(|(_, ty)| ty.kinds.contains(kind)).map(|(id, _)| id)
    }

    /// A kind of a resource, in any of its served versions.
    pub(crate) fn any_version(&self, resource: &GroupResource) -> Option<Arc<Kind>> {
        let is_it = |kind: &&Arc<Kind>| {
            kind.facts.plural == resource.resource && kind.gvk().group == resource.group
        };
        if let Some(kind) = self.builtin.iter().find(is_it) {
            return Some(kind.clone());
        }
        self.custom_kinds()?.iter().find(is_it).cloned()
    }

    fn kind_of(&self, resource: &GroupVersionResource) -> Option<Arc<Kind>> {
        if let Some(kind) = self.builtin.get_resource(resource) {
            return Some(kind.clone());
        }
        self.custom_kinds()?.get_resource(resource).cloned()
    }

    fn custom_kinds(&self) -> Option<Arc<Kinds>> {
        Some(self.extensions.get()?.upgrade()?.kinds())
    }
}

fn serves(kind: &Kind, resource: &GroupVersionResource) -> bool {
    let gvk = kind.gvk();
    kind.facts.plural == resource.resource
        && gvk.group == resource.group
        && gvk.version == resource.version
}

/// The other versions of a kind, in order.
fn equivalents<'k>(
    kind: &Kind,
    kinds: impl Iterator<Item = &'k Arc<Kind>>,
) -> Vec<(GroupVersionResource, GroupVersionKind)> {
    let same = kinds.filter(|other| other.gvk() != kind.gvk() && other.shares_storage(kind));
    let name = |kind: &Arc<Kind>| (kind.facts.group_version_resource(), kind.gvk().clone());
    let mut others: Vec<_> = same.map(name).collect();
    // The table of custom kinds has no order.
    others.sort();
    others.dedup();
    others
}

impl ServedObjects for CachedObjects {
    fn get<'a>(
        &'a self,
        resource: &'a GroupVersionResource,
        namespace: &'a str,
        name: &'a str,
        freshness: Freshness,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>> {
        Box::pin(async move {
            let Some(kind) = self.kind_of(resource) else { return Ok(None) };
            kind.find_object(namespace, name, freshness == Freshness::Linearizable).await
        })
    }

    fn namespace_labels(&self, name: &str) -> Option<Vec<(Str, Str)>> {
        let storage = self.namespaces.as_ref()?.storage.as_ref()?;
        Some(storage.cached("", name)?.labels.to_vec())
    }

    fn list<'a>(
        &'a self,
        resource: &'a GroupVersionResource,
        namespace: &'a str,
        selector: &'a LabelSelector,
    ) -> BoxFuture<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(async move {
            let Some(kind) = self.kind_of(resource) else { return Ok(Vec::new()) };
            kind.select_objects(namespace, selector).await
        })
    }

    fn resource_of(&self, kind: &GroupVersionKind) -> Option<(GroupVersionResource, bool)> {
        let custom = self.custom_kinds();
        let mut served = self.builtin.iter().chain(custom.iter().flat_map(|custom| custom.iter()));
        let found = served.find(|served| served.gvk() == kind)?;
        Some((found.facts.group_version_resource(), found.namespaced()))
    }

    fn equivalents(
        &self,
        resource: &GroupVersionResource,
    ) -> Vec<(GroupVersionResource, GroupVersionKind)> {
        if self.builtin.get_resource(resource).is_some() {
            return self.equivalents.get(resource).cloned().unwrap_or_default();
        }
        let Some(custom) = self.custom_kinds() else { return Vec::new() };
        match custom.get_resource(resource) {
            None => Vec::new(),
            Some(kind) => equivalents(kind, custom.iter()),
        }
    }

    fn is_custom(&self, resource: &GroupVersionResource) -> bool {
        self.builtin.get_resource(resource).is_none()
    }

    fn create_namespace<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(local) = self.local.get() else {
                return Err(ApiError::internal("the server is not complete yet"));
            };
            let target = endpoints::ResourceRef::from(&admission::resources::NAMESPACES);
            let namespace = meta::value!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name},
            });
            local.create_only(&target, &namespace).await
        })
    }

    fn convert<'a>(
        &'a self,
        object: Value,
        from: &'a GroupVersionResource,
        to: &'a GroupVersionResource,
    ) -> BoxFuture<'a, Result<Value, ApiError>> {
        Box::pin(async move {
            match (self.kind_of(from), self.kind_of(to)) {
                (Some(from), Some(to)) if from.shares_storage(&to) => {
                    from.convert_to(&to, object).await
                }
                _ => Err(ApiError::internal(format!(
                    "{}/{} cannot be converted to {}/{}",
                    from.version, from.resource, to.version, to.resource
                ))),
            }
        })
    }

    fn encode(
        &self,
        resource: &GroupVersionResource,
        kind: &GroupVersionKind,
        object: &Value,
    ) -> Vec<u8> {
        if let Some(own) = self.kind_of_object(resource, kind) {
            return own.json_of(object).into();
        }
        let mut json = Vec::with_capacity(1024);
        match self.type_of(kind) {
            Some(ty) => codec::json::encode(object, &self.schema, ty, &mut json),
            None => meta::json::write_value(&mut json, object),
        }
        json
    }

    fn decode_changed(
        &self,
        resource: &GroupVersionResource,
        kind: &GroupVersionKind,
        json: &[u8],
        strict: bool,
    ) -> Result<Value, ApiError> {
        if let Some(own) = self.kind_of_object(resource, kind) {
            return own.decode_changed(json, strict);
        }
        let ty = self.type_of(kind).ok_or_else(|| unknown(kind))?;
        let mut object = registry::decode_typed(json, &self.schema, ty, strict)?;
        object.set_at(&["kind"], kind.kind.clone());
        object.set_at(&["apiVersion"], kind.group_version().to_string());
        self.schema.apply_defaults(ty, &mut object);
        Ok(object)
    }

    fn decode_typed(
        &self,
        kind: &GroupVersionKind,
        json: &[u8],
        strict: bool,
    ) -> Result<Value, String> {
        let ty = self.type_of(kind).ok_or_else(|| {
            // Compat: kube-apiserver's words.
            let (kind, version) = (kind.kind.as_str(), kind.group_version().to_string());
            let (kind, version) = (meta::field::quote(kind), meta::field::quote(&version));
            format!(
                "no kind {kind} is registered for version {version} in scheme \
                 \"pkg/runtime/scheme.go:111\""
            )
        })?;
        let options = codec::json::DecodeOptions { strict };
        let decoded = codec::json::decode_body(json, &self.schema, ty, options);
        let decoded = decoded.map_err(|error| error.to_string())?;
        match registry::strict_decoding_error(&decoded.strict) {
            Some(error) => Err(error),
            None => Ok(decoded.value),
        }
    }

    fn merge_applied(
        &self,
        resource: &GroupVersionResource,
        kind: &GroupVersionKind,
        live: &Value,
        configuration: &Value,
    ) -> Result<Value, String> {
        if let Some(own) = self.kind_of_object(resource, kind) {
            return own.merge_unowned(live, configuration);
        }
        let ty = self.type_of(kind).ok_or_else(|| unknown(kind).to_string())?;
        registry::merge_unowned(&self.schema, ty, live, configuration)
    }
}

fn unknown(kind: &GroupVersionKind) -> ApiError {
    ApiError::internal(format!("no schema for {}", kind.kind))
}

pub(crate) fn tree(entry: &Entry) -> Result<Value, ApiError> {
    let options = codec::json::DecodeOptions { strict: false };
    Ok(codec::json::decode_any(&entry.json.text(), options).map_err(ApiError::internal)?.value)
}

/// The API, for controllers.
pub(crate) struct ControllerClient {
    pub(crate) local: LoopbackClient,
    pub(crate) kinds: Vec<Arc<Kind>>,
    /// Custom kinds come and go.
    pub(crate) extensions: Arc<Resources>,
    /// The kinds of aggregated servers.
    pub(crate) remote: Arc<RemoteClient>,
}

fn local(target: &ResourceRef) -> endpoints::ResourceRef<'_> {
    endpoints::ResourceRef {
        namespace: &target.namespace,
        name: &target.name,
        subresource: target.subresource,
        manager: target.manager,
        ..endpoints::ResourceRef::from(&target.gvr)
    }
}

impl controllers::ApiClient for ControllerClient {
    fn get<'a>(&'a self, target: &'a ResourceRef) -> BoxFuture<'a, Result<Value, ApiError>> {
        Box::pin(async move {
            if self.remote.serves(&target.gvr) {
                return self.remote.get(target).await;
            }
            self.local.get(&local(target)).await
        })
    }

    fn list<'a>(&'a self, target: &'a ResourceRef) -> BoxFuture<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(async move {
            if self.remote.serves(&target.gvr) {
                return self.remote.list(target).await;
            }
            Ok(self.local.list(&local(target)).await?.0)
        })
    }

    fn create<'a>(
        &'a self,
        target: &'a ResourceRef,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<Value, ApiError>> {
        Box::pin(async move { self.local.create(&local(target), object).await })
    }

    fn create_only<'a>(
        &'a self,
        target: &'a ResourceRef,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move { self.local.create_only(&local(target), object).await })
    }

    fn update<'a>(
        &'a self,
        target: &'a ResourceRef,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<Value, ApiError>> {
        Box::pin(async move {
            if self.remote.serves(&target.gvr) {
                return self.remote.update(target, object).await;
            }
            self.local.update(&local(target), object).await
        })
    }

    fn apply<'a>(
        &'a self,
        target: &'a ResourceRef,
        object: &'a Value,
        manager: &'a str,
    ) -> BoxFuture<'a, Result<Value, ApiError>> {
        Box::pin(async move { self.local.apply(&local(target), object, manager).await })
    }

    fn delete<'a>(
        &'a self,
        target: &'a ResourceRef,
        options: &'a Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if self.remote.serves(&target.gvr) {
                return self.remote.delete(target, options).await;
            }
            self.local.delete(&local(target), options).await.map(drop)
        })
    }

    fn delete_collection<'a>(
        &'a self,
        target: &'a ResourceRef,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if self.remote.serves(&target.gvr) {
                return self.remote.delete_collection(target).await;
            }
            self.local.delete_collection(&local(target)).await.map(drop)
        })
    }

    fn resource_of(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let group_version = GroupVersion::parse(api_version)?;
        if let Some(remote) = self.remote.resource_of(&group_version, kind) {
            return Some(Arc::new(remote));
        }
        let gvk = group_version.with_kind(kind);
        let custom = self.extensions.kinds();
        let mut kinds = self.kinds.iter().chain(custom.iter());
        let kind = kinds.find(|known| *known.gvk() == gvk && known.has_verb("get"))?;
        Some(Arc::new(resource(kind)))
    }

    fn namespaced_resources(&self) -> Discovered {
        let mut seen = HashSet::new();
        let custom = self.extensions.kinds();
        let custom = custom.iter().filter(|kind| kind.is_custom());
        let deletable = self.kinds.iter().chain(custom).filter(|kind| {
            kind.namespaced() && kind.has_verb("list") && kind.has_verb("deletecollection")
        });
        // Two served versions of one stored resource are emptied once.
        let once = deletable.filter(|kind| {
            kind.storage.as_ref().is_some_and(|storage| seen.insert(storage.prefix.clone()))
        });
        let local = once.map(|kind| kind.facts.group_version_resource());
        let mut discovered = self.remote.namespaced_resources();
        discovered.resources.extend(local.filter(|gvr| !self.remote.serves(gvr)));
        // An APIService that was made this moment is not in the table of remote servers yet.
        for (version, why) in self.unavailable() {
            if !discovered.failed.iter().any(|(failed, _)| *failed == version) {
                discovered.failed.push((version, why));
            }
        }
        discovered.failed.sort();
        discovered
    }
}

impl ControllerClient {
    /// Whether `--runtime-config` leaves `apiregistration.k8s.io` on.
    pub(crate) fn serves_api_services(&self) -> bool {
        self.kinds.iter().any(|kind| kind.gvk().kind == "APIService")
    }

    /// Group-versions of other servers that don't answer: what they keep in a namespace is unknown.
    fn unavailable(&self) -> Vec<(String, String)> {
        let mut kinds = self.kinds.iter();
        let services = kinds.find(|kind| kind.gvk().kind == "APIService");
        let Some(storage) = services.and_then(|kind| kind.storage.as_ref()) else {
            return Vec::new();
        };
        let snapshot = storage.cache.snapshot();
        let services = snapshot.range(&storage.prefix, None);
        // Decoded: only what names a service, and there are few of those.
        let remote = services.filter(|entry| names_service(entry));
        let unavailable = remote.filter_map(|entry| {
            let service = tree(entry).ok()?;
            let conditions = service.items_at(&["status", "conditions"]);
            let is_up = conditions.iter().any(|condition| {
                condition.str_at(&["type"]) == "Available"
                    && condition.str_at(&["status"]) == "True"
            });
            let spec = |field| service.str_at(&["spec", field]);
            let version = format!("{}/{}", spec("group"), spec("version"));
            let why = format!("stale GroupVersion discovery: {version}");
            (!is_up).then_some((version, why))
        });
        unavailable.collect()
    }
}

pub(crate) fn resource(kind: &Kind) -> Resource {
    Resource { gvr: kind.facts.group_version_resource(), namespaced: kind.namespaced() }
}

/// What the allocators of built-in kinds write with. They are parts of the kinds, which a [`ControllerClient`] owns.
pub(crate) struct WritingClient(pub(crate) LoopbackClient);

impl builtin::Client for WritingClient {
    fn create<'a>(
        &'a self,
        gvr: GroupVersionResource,
        namespace: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let target = endpoints::ResourceRef { namespace, ..endpoints::ResourceRef::from(&gvr) };
            self.0.create_only(&target, object).await
        })
    }

    fn delete<'a>(
        &'a self,
        gvr: GroupVersionResource,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let target =
                endpoints::ResourceRef { namespace, name, ..endpoints::ResourceRef::from(&gvr) };
            self.0.delete(&target, &Value::object()).await.map(drop)
        })
    }
}

/// Checks the expressions of admission policies against the kinds that are served.
pub(crate) struct TypeChecker(pub(crate) Arc<ControllerClient>);

impl TypeChecker {
    fn find(&self, wanted: impl Fn(&Kind) -> bool) -> Option<Arc<Kind>> {
        if let Some(kind) = self.0.kinds.iter().find(|kind| wanted(kind)) {
            return Some(kind.clone());
        }
        self.0.extensions.kinds().iter().find(|kind| wanted(kind)).cloned()
    }
}

impl KindTypes for TypeChecker {
    fn kind_of(&self, resource: &GroupVersionResource) -> Option<GroupVersionKind> {
        self.find(|kind| serves(kind, resource)).map(|kind| kind.gvk().clone())
    }

    fn decl_of(&self, kind: &GroupVersionKind) -> Option<Arc<Decl>> {
        self.find(|own| own.gvk() == kind).map(|own| own.cel_decl())
    }
}

impl PolicyTypeChecker for TypeChecker {
    fn check(&self, policy: &Value) -> Vec<(String, String)> {
        let warnings = check_types(policy, self).into_iter();
        warnings.map(|own| (own.field_ref, own.warning)).collect()
    }
}
