//! An in-memory API for unit tests.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use meta::{ApiError, GroupResource, GroupVersionResource, Value};

use crate::{ApiClient, BoxFuture, Discovered, Resource, ResourceRef};

/// Objects by resource, namespace and name. Deletions are recorded and the objects stay.
#[derive(Default)]
pub(crate) struct FakeClient {
    objects: Mutex<BTreeMap<[String; 3], Value>>,
    deleted: Mutex<Vec<(String, String)>>,
    applied: Mutex<Vec<Value>>,
    /// Whether deletecollection removes the objects without finalizers; otherwise it fails.
    pub(crate) deletes_collections: bool,
    pub(crate) undiscovered: Vec<(String, String)>,
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

fn missing(target: &ResourceRef) -> ApiError {
    ApiError::not_found(GroupResource::new("", &target.gvr.resource), target.name.as_str())
}

impl FakeClient {
    pub(crate) fn new(objects: impl IntoIterator<Item = (&'static str, Value)>) -> Arc<Self> {
        let fake = Self::default();
        for (resource, object) in objects {
            fake.insert(resource, object);
        }
        Arc::new(fake)
    }

    pub(crate) fn with_collection_deletes() -> Self {
        Self { deletes_collections: true, ..Self::default() }
    }

    pub(crate) fn insert(&self, resource: &str, object: Value) {
        let at = |field| object.str_at(&["metadata", field]).to_owned();
        let key = [resource.to_owned(), at("namespace"), at("name")];
        self.objects.lock().unwrap().insert(key, object);
    }

    pub(crate) fn remove(&self, resource: &str, namespace: &str, name: &str) {
        self.objects.lock().unwrap().remove(&[resource, namespace, name].map(str::to_owned));
    }

    #[track_caller]
    pub(crate) fn object(&self, resource: &str, namespace: &str, name: &str) -> Value {
        self.objects.lock().unwrap()[&[resource, namespace, name].map(str::to_owned)].clone()
    }

    /// The names of deleted objects, with the propagation policies.
    pub(crate) fn deleted(&self) -> Vec<(String, String)> {
        self.deleted.lock().unwrap().clone()
    }

    pub(crate) fn applied(&self) -> Vec<Value> {
        self.applied.lock().unwrap().clone()
    }
}

fn key(target: &ResourceRef) -> [String; 3] {
    [target.gvr.resource.to_string(), target.namespace.clone(), target.name.clone()]
}

fn is_in(key: &[String; 3], target: &ResourceRef) -> bool {
    key[0] == target.gvr.resource && (target.namespace.is_empty() || key[1] == target.namespace)
}

impl ApiClient for FakeClient {
    fn get<'a>(&'a self, target: &'a ResourceRef) -> BoxFuture<'a, Result<Value, ApiError>> {
        let found = self.objects.lock().unwrap().get(&key(target)).cloned();
        ready(found.ok_or_else(|| missing(target)))
    }

    fn list<'a>(&'a self, target: &'a ResourceRef) -> BoxFuture<'a, Result<Vec<Value>, ApiError>> {
        let objects = self.objects.lock().unwrap();
        let found = objects.iter().filter(|(key, _)| is_in(key, target));
        ready(Ok(found.map(|(_, object)| object.clone()).collect()))
    }

    fn create<'a>(
        &'a self,
        _target: &'a ResourceRef,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<Value, ApiError>> {
        ready(Ok(object.clone()))
    }

    fn update<'a>(
        &'a self,
        target: &'a ResourceRef,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<Value, ApiError>> {
        self.objects.lock().unwrap().insert(key(target), object.clone());
        ready(Ok(object.clone()))
    }

    fn apply<'a>(
        &'a self,
        _target: &'a ResourceRef,
        object: &'a Value,
        _manager: &'a str,
    ) -> BoxFuture<'a, Result<Value, ApiError>> {
        self.applied.lock().unwrap().push(object.clone());
        ready(Ok(object.clone()))
    }

    fn delete<'a>(
        &'a self,
        target: &'a ResourceRef,
        options: &'a Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let policy = options.str_at(&["propagationPolicy"]).to_owned();
        self.deleted.lock().unwrap().push((target.name.clone(), policy));
        ready(Ok(()))
    }

    fn delete_collection<'a>(
        &'a self,
        target: &'a ResourceRef,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        if !self.deletes_collections {
            return ready(Err(ApiError::internal("stuck")));
        }
        let stays = |object: &Value| !object.items_at(&["metadata", "finalizers"]).is_empty();
        let mut objects = self.objects.lock().unwrap();
        objects.retain(|key, object| !is_in(key, target) || stays(object));
        ready(Ok(()))
    }

    fn resource_of(&self, _api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let namespaced = match kind {
            "Thing" => true,
            "ClusterThing" => false,
            _ => return None,
        };
        Some(Arc::new(Resource { namespaced, ..Resource::default() }))
    }

    fn namespaced_resources(&self) -> Discovered {
        let resources = ["pods", "configmaps", "widgets"].map(|resource| GroupVersionResource {
            group: if resource == "widgets" { "example.com".into() } else { "".into() },
            version: "v1".into(),
            resource: resource.into(),
        });
        Discovered { resources: resources.to_vec(), failed: self.undiscovered.clone() }
    }
}
