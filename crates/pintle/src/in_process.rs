//! The seams between the rooms that only the binary knows both sides of: admission and controllers
//! look at the server from inside.

use std::{collections::HashSet, sync::Arc};

use admission::{Lookup, Pinned};
use controllers::{Discovered, Resource, Target};
use endpoints::{LoopbackClient, Resources};
use memchr::memmem;
use meta::{ApiError, GroupVersion, GroupVersionResource, RequestInfo, User, Value};
use registry::{Kind, Storage};
use store::Entry;

use crate::access::Access;

/// What admission looks up.
pub(crate) struct Objects {
    namespaces: Option<Arc<Storage>>,
    service_accounts: Option<Arc<Storage>>,
    kinds: Vec<Arc<Kind>>,
    access: Arc<Access>,
}

impl Objects {
    pub(crate) fn new(kinds: &[Arc<Kind>], access: Arc<Access>) -> Self {
        let storage = |name: &str| {
            let mut core = kinds.iter().filter(|kind| kind.gvk().group.is_empty());
            core.find(|kind| kind.gvk().kind == name)?.storage.clone()
        };
        let (namespaces, service_accounts) = (storage("Namespace"), storage("ServiceAccount"));
        Self { namespaces, service_accounts, kinds: kinds.to_vec(), access }
    }
}

impl Lookup for Objects {
    fn namespace(&self, name: &str, fresh: bool) -> Pinned<'_, Result<Option<Value>, ApiError>> {
        let name = name.to_owned();
        Box::pin(async move { find(self.namespaces.as_deref(), "", &name, fresh).await })
    }

    fn service_account<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        fresh: bool,
    ) -> Pinned<'a, Result<Option<Value>, ApiError>> {
        Box::pin(find(self.service_accounts.as_deref(), namespace, name, fresh))
    }

    fn object<'a>(
        &'a self,
        group: &'static str,
        resource: &'static str,
        namespace: &'a str,
        name: &'a str,
    ) -> Pinned<'a, Result<Option<Value>, ApiError>> {
        let wanted = |kind: &&Arc<Kind>| kind.gvk().group == group && kind.facts.plural == resource;
        let kind = self.kinds.iter().find(wanted);
        let storage = kind.and_then(|kind| kind.storage.as_deref());
        Box::pin(find(storage, namespace, name, true))
    }

    fn allows(&self, user: &User, info: &RequestInfo) -> bool {
        registry::Judge::check(&*self.access, user, info).is_ok()
    }
}

async fn find(
    storage: Option<&Storage>,
    namespace: &str,
    name: &str,
    fresh: bool,
) -> Result<Option<Value>, ApiError> {
    let Some(storage) = storage else { return Ok(None) };
    let entry = storage.find(namespace, name, fresh).await?;
    entry.as_deref().map(tree).transpose()
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
