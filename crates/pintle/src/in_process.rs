//! Adapters between crates that do not know each other: what admission and the controllers see of the
//! server.

use std::{
    collections::HashSet,
    sync::{Arc, OnceLock},
};

use admission::{
    Freshness, Pinned, ServedObjects,
    policy::{KindTypes, check_types},
};
use controllers::{Discovered, PolicyTypeChecker, Resource, Target};
use endpoints::{Kinds, LoopbackClient, Resources};
use memchr::memmem;
use meta::{
    ApiError, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, Value,
    selector::LabelSelector,
};
use registry::Kind;
use schema::{Schema, TypeId, cel_decl::Decl};
use store::Entry;

/// What admission looks up: built-in and custom objects alike.
pub(crate) struct Objects {
    builtin: Kinds,
    /// Set once the servers are put together; custom kinds come and go in it.
    extensions: Arc<OnceLock<Arc<Resources>>>,
    /// Set together with them, for plugins that write.
    local: Arc<OnceLock<LoopbackClient>>,
    /// Of the kinds that only subresources have.
    schema: Arc<Schema>,
}

impl Objects {
    pub(crate) fn new(
        kinds: &[Arc<Kind>],
        extensions: Arc<OnceLock<Arc<Resources>>>,
        local: Arc<OnceLock<LoopbackClient>>,
        schema: Arc<Schema>,
    ) -> Self {
        Self { builtin: Kinds::new(kinds.iter().cloned()), extensions, local, schema }
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
        self.extensions.get()?.kinds().iter().find(is_it).cloned()
    }

    fn kind_of(&self, resource: &GroupVersionResource) -> Option<Arc<Kind>> {
        if let Some(kind) = self.builtin.get_resource(resource) {
            return Some(kind.clone());
        }
        self.extensions.get()?.kinds().get_resource(resource).cloned()
    }
}

fn serves(kind: &Kind, resource: &GroupVersionResource) -> bool {
    let gvk = kind.gvk();
    kind.facts.plural == resource.resource
        && gvk.group == resource.group
        && gvk.version == resource.version
}

impl ServedObjects for Objects {
    fn get<'a>(
        &'a self,
        resource: &'a GroupVersionResource,
        namespace: &'a str,
        name: &'a str,
        freshness: Freshness,
    ) -> Pinned<'a, Result<Option<Value>, ApiError>> {
        Box::pin(async move {
            let Some(kind) = self.kind_of(resource) else { return Ok(None) };
            kind.find_object(namespace, name, freshness == Freshness::Linearizable).await
        })
    }

    fn list<'a>(
        &'a self,
        resource: &'a GroupVersionResource,
        namespace: &'a str,
        selector: &'a LabelSelector,
    ) -> Pinned<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(async move {
            let Some(kind) = self.kind_of(resource) else { return Ok(Vec::new()) };
            kind.select_objects(namespace, selector).await
        })
    }

    fn resource_of(&self, kind: &GroupVersionKind) -> Option<(GroupVersionResource, bool)> {
        let custom = self.extensions.get().map(|extensions| extensions.kinds());
        let mut served = self.builtin.iter().chain(custom.iter().flat_map(|custom| custom.iter()));
        let found = served.find(|served| served.gvk() == kind)?;
        Some((found.facts.group_version_resource(), found.namespaced()))
    }

    fn equivalents(
        &self,
        resource: &GroupVersionResource,
    ) -> Vec<(GroupVersionResource, GroupVersionKind)> {
        let Some(kind) = self.kind_of(resource) else { return Vec::new() };
        let is_same = |other: &&Arc<Kind>| !serves(other, resource) && other.shares_storage(&kind);
        let name = |kind: &Arc<Kind>| (kind.facts.group_version_resource(), kind.gvk().clone());
        let mut others: Vec<_> = self.builtin.iter().filter(is_same).map(name).collect();
        if let Some(extensions) = self.extensions.get() {
            others.extend(extensions.kinds().iter().filter(is_same).map(name));
        }
        // The table of custom kinds has no order.
        others.sort();
        others.dedup();
        others
    }

    fn create_namespace<'a>(&'a self, name: &'a str) -> Pinned<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(local) = self.local.get() else {
                return Err(ApiError::internal("the server is not complete yet"));
            };
            let target = endpoints::Target::from(&admission::resources::NAMESPACES);
            let namespace = meta::value!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name},
            });
            local.create(&target, &namespace).await.map(drop)
        })
    }

    fn convert<'a>(
        &'a self,
        object: Value,
        from: &'a GroupVersionResource,
        to: &'a GroupVersionResource,
    ) -> Pinned<'a, Result<Value, ApiError>> {
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
    Ok(codec::json::decode_any(&entry.json, options).map_err(ApiError::internal)?.value)
}

/// The API, for controllers.
pub(crate) struct Api {
    pub(crate) local: LoopbackClient,
    pub(crate) kinds: Vec<Arc<Kind>>,
    /// Custom kinds come and go.
    pub(crate) extensions: Arc<Resources>,
}

fn local(target: &Target) -> endpoints::Target<'_> {
    endpoints::Target {
        namespace: &target.namespace,
        name: &target.name,
        subresource: target.subresource,
        manager: target.manager,
        ..endpoints::Target::from(&target.gvr)
    }
}

impl controllers::Api for Api {
    fn get<'a>(&'a self, target: &'a Target) -> Pinned<'a, Result<Value, ApiError>> {
        Box::pin(async move { self.local.get(&local(target)).await })
    }

    fn list<'a>(&'a self, target: &'a Target) -> Pinned<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(async move { Ok(self.local.list(&local(target)).await?.0) })
    }

    fn create<'a>(
        &'a self,
        target: &'a Target,
        object: &'a Value,
    ) -> Pinned<'a, Result<Value, ApiError>> {
        Box::pin(async move { self.local.create(&local(target), object).await })
    }

    fn update<'a>(
        &'a self,
        target: &'a Target,
        object: &'a Value,
    ) -> Pinned<'a, Result<Value, ApiError>> {
        Box::pin(async move { self.local.update(&local(target), object).await })
    }

    fn apply<'a>(
        &'a self,
        target: &'a Target,
        object: &'a Value,
        manager: &'a str,
    ) -> Pinned<'a, Result<Value, ApiError>> {
        Box::pin(async move { self.local.apply(&local(target), object, manager).await })
    }

    fn delete<'a>(
        &'a self,
        target: &'a Target,
        options: &'a Value,
    ) -> Pinned<'a, Result<(), ApiError>> {
        Box::pin(async move { self.local.delete(&local(target), options).await.map(drop) })
    }

    fn delete_collection<'a>(&'a self, target: &'a Target) -> Pinned<'a, Result<(), ApiError>> {
        Box::pin(async move { self.local.delete_collection(&local(target)).await.map(drop) })
    }

    fn resource_of(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let group_version = GroupVersion::parse(api_version)?;
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
        let resources = once.map(|kind| kind.facts.group_version_resource()).collect();
        Discovered { resources, failed: self.unavailable() }
    }
}

impl Api {
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
        let remote =
            services.filter(|entry| memmem::find(&entry.json, br#""service":{"#).is_some());
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

impl builtin::Client for Api {
    fn create<'a>(
        &'a self,
        gvr: GroupVersionResource,
        namespace: &'a str,
        object: &'a Value,
    ) -> Pinned<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let target = endpoints::Target { namespace, ..endpoints::Target::from(&gvr) };
            self.local.create(&target, object).await.map(drop)
        })
    }

    fn delete<'a>(
        &'a self,
        gvr: GroupVersionResource,
        namespace: &'a str,
        name: &'a str,
    ) -> Pinned<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let target = endpoints::Target { namespace, name, ..endpoints::Target::from(&gvr) };
            self.local.delete(&target, &Value::object()).await.map(drop)
        })
    }
}

/// Checks the expressions of admission policies against the kinds that are served.
pub(crate) struct TypeChecker(pub(crate) Arc<Api>);

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
