//! The server as its own client: controllers and hooks go through the same verbs, validation and
//! admission as any client, without the network.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue,
    header::{CONTENT_TYPE, USER_AGENT},
};
use meta::{
    ApiError, AuditRecord, GroupVersionResource, Query, RequestInfo, Str, User, Value, Warnings,
};
use registry::{BoxFuture, ResourceRequest, ResourceResponse};
use serve::StorageVersions;

use crate::Resources;

/// A client in process, acting as the server itself.
///
/// Invariant: it does not keep the servers alive. Admission, allocators and the storage of custom resources hold
/// such a client and are parts of the servers, so that none of them would ever be dropped.
#[derive(Clone)]
pub struct LoopbackClient {
    servers: Vec<Weak<Resources>>,
    user: User,
    /// Says whose the written fields are.
    headers: HeaderMap,
    /// Writes wait for the StorageVersions of their resources.
    storage_versions: Option<Arc<StorageVersions>>,
}

/// Compat: what the server writes itself is managed by this name.
const AGENT: &str = "kube-apiserver";

/// What a call is about.
#[derive(Clone, Debug, Default)]
pub struct ResourceRef<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub subresource: &'a str,
    /// Whose the written fields are; "" for the server itself.
    pub manager: &'a str,
}

fn as_manager(target: &ResourceRef<'_>) -> String {
    match target.manager {
        "" => String::new(),
        manager => format!("fieldManager={manager}"),
    }
}

impl LoopbackClient {
    /// `servers` in the order of the chain.
    pub fn new(servers: &[&Arc<Resources>]) -> Self {
        let servers = servers.iter().map(|server| Arc::downgrade(server)).collect();
        let user = User {
            name: Str::new_static("system:apiserver"),
            groups: vec![Str::new_static(User::MASTERS), Str::new_static(User::AUTHENTICATED)],
            ..User::default()
        };
        let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(AGENT))]);
        Self { servers, user, headers, storage_versions: None }
    }

    /// The same client behind the storage version barrier.
    #[must_use]
    pub fn behind(mut self, storage_versions: Option<Arc<StorageVersions>>) -> Self {
        self.storage_versions = storage_versions;
        self
    }

    pub async fn get(&self, target: &ResourceRef<'_>) -> Result<Value, ApiError> {
        self.call("get", target, "", None).await
    }

    /// Items and the resourceVersion of the list.
    pub async fn list(&self, target: &ResourceRef<'_>) -> Result<(Vec<Value>, String), ApiError> {
        let mut list = self.call("list", target, "", None).await?;
        let version = list.str_at(&["metadata", "resourceVersion"]).to_owned();
        match list.remove_at(&["items"]) {
            Some(Value::Array(items)) => Ok((items, version)),
            _ => Ok((Vec::new(), version)),
        }
    }

    pub async fn create(
        &self,
        target: &ResourceRef<'_>,
        object: &Value,
    ) -> Result<Value, ApiError> {
        self.call("create", target, &as_manager(target), Some(object)).await
    }

    /// The same for callers that do not need the stored object: it is not decoded.
    pub async fn create_only(
        &self,
        target: &ResourceRef<'_>,
        object: &Value,
    ) -> Result<(), ApiError> {
        self.send("create", target, &as_manager(target), Some(object)).await.map(drop)
    }

    pub async fn update(
        &self,
        target: &ResourceRef<'_>,
        object: &Value,
    ) -> Result<Value, ApiError> {
        self.call("update", target, &as_manager(target), Some(object)).await
    }

    /// Server-side apply, by force, as the named manager.
    pub async fn apply(
        &self,
        target: &ResourceRef<'_>,
        object: &Value,
        manager: &str,
    ) -> Result<Value, ApiError> {
        let query = format!("fieldManager={manager}&force=true");
        self.call("patch", target, &query, Some(object)).await
    }

    /// `options` are `DeleteOptions`.
    pub async fn delete(
        &self,
        target: &ResourceRef<'_>,
        options: &Value,
    ) -> Result<Value, ApiError> {
        self.call("delete", target, "", Some(options)).await
    }

    /// In the background: dependents are left to the garbage collector.
    pub async fn delete_collection(&self, target: &ResourceRef<'_>) -> Result<Value, ApiError> {
        let options = meta::value!({"propagationPolicy": "Background"});
        self.call("deletecollection", target, "", Some(&options)).await
    }

    async fn call(
        &self,
        verb: &'static str,
        target: &ResourceRef<'_>,
        query: &str,
        body: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let json = self.send(verb, target, query, body).await?.into_bytes()?;
        let options = codec::json::DecodeOptions { strict: false };
        Ok(codec::json::decode_any(&json, options).map_err(ApiError::internal)?.value)
    }

    /// Boxed, so that all verbs are not compiled into every crate that has a controller.
    fn send<'a>(
        &'a self,
        verb: &'static str,
        target: &'a ResourceRef<'_>,
        query: &'a str,
        body: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<ResourceResponse, ApiError>> {
        Box::pin(self.serve(verb, target, query, body))
    }

    async fn serve(
        &self,
        verb: &'static str,
        target: &ResourceRef<'_>,
        query: &str,
        body: Option<&Value>,
    ) -> Result<ResourceResponse, ApiError> {
        let (server, kind) = self
            .servers
            .iter()
            .find_map(|server| {
                let server = server.upgrade()?;
                let kinds = server.kinds();
                let kind = kinds.get(target.group, target.version, target.resource)?.clone();
                Some((server, kind))
            })
            .ok_or(ApiError::NotServed)?;
        let info = RequestInfo {
            verb: Str::new_static(verb),
            is_resource: true,
            group: Str::new(target.group),
            version: Str::new(target.version),
            namespace: Str::new(target.namespace),
            resource: Str::new(target.resource),
            subresource: Str::new(target.subresource),
            name: Str::new(target.name),
            ..RequestInfo::default()
        };
        if let Some(versions) = &self.storage_versions {
            versions.wait_for_precondition(&info, &self.user).await?;
        }
        let body = body.map(|body| Bytes::from(meta::json::to_string(body)));
        let mut headers = self.headers.clone();
        if verb == "patch" {
            let apply = HeaderValue::from_static("application/apply-patch+yaml");
            headers.insert(CONTENT_TYPE, apply);
        }
        let rest = ResourceRequest {
            engine: &server.engine,
            kind: &kind,
            info: &info,
            user: &self.user,
            authenticated_user: &self.user,
            query: &Query::parse(query)?,
            headers: &headers,
            body: body.unwrap_or_default(),
            warnings: &Warnings::default(),
            audit: &AuditRecord::default(),
            websocket: false,
            deadline: None,
        };
        registry::serve(&rest).await
    }
}

impl<'a> From<&'a GroupVersionResource> for ResourceRef<'a> {
    fn from(gvr: &'a GroupVersionResource) -> Self {
        Self {
            group: &gvr.group,
            version: &gvr.version,
            resource: &gvr.resource,
            ..Self::default()
        }
    }
}
