//! The seams between the rooms that only the binary knows both sides of: admission and controllers
//! look at the server from inside.

use std::{collections::HashSet, sync::Arc};

use admission::{Lookup, Pinned};
use controllers::{Resource, Target, Wake};
use endpoints::{Local, Resources};
use meta::{ApiError, GroupVersion, GroupVersionResource, RequestInfo, User, Value};
use registry::{Kind, Storage};
use store::{Entry, WatchItem, Watcher};

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
    pub(crate) local: Local,
    pub(crate) kinds: Vec<Arc<Kind>>,
    /// Custom kinds come and go.
    pub(crate) extensions: Arc<Resources>,
}

fn local(target: &Target) -> endpoints::Target<'_> {
    endpoints::Target {
        namespace: &target.namespace,
        name: &target.name,
        subresource: target.subresource,
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

    fn namespaced_resources(&self) -> Vec<GroupVersionResource> {
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
        once.map(|kind| kind.facts.group_version_resource()).collect()
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

/// Wakes the namespace controller when a namespace changes.
pub(crate) struct NamespaceWake(Option<Watcher>);

impl NamespaceWake {
    pub(crate) fn new(namespaces: Option<&Arc<Kind>>) -> Self {
        let storage = namespaces.and_then(|kind| kind.storage.clone());
        Self(storage.and_then(|storage| storage.cache.watch(storage.cache.revision(), None).ok()))
    }
}

impl Wake for NamespaceWake {
    fn changed(&mut self) -> Pinned<'_, bool> {
        Box::pin(async move {
            match &mut self.0 {
                None => false,
                Some(watcher) => !matches!(watcher.next().await, WatchItem::Closed),
            }
        })
    }
}
