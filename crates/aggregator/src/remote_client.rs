//! Objects of remote group-versions, for the controllers that treat all kinds alike: the deletion of
//! namespaces and the garbage collector.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use client::{generic_message, successful_body};
use codec::json::{self, DecodeOptions};
use controllers::{Discovered, Resource, ResourceRef};
use http::{
    HeaderMap, HeaderValue, Method,
    header::{ACCEPT, CONTENT_TYPE},
};
use meta::{ApiError, GroupVersion, GroupVersionResource, Status, User, Value, value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    Registration, RemoteApi, RemoteApis, ServiceReference,
    remote_server::{Fetch, RemoteServer},
};

pub struct RemoteClient {
    registration: Arc<Registration>,
    pub(crate) apis: Arc<RemoteApis>,
}

/// A resource as the discovery of its server describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteResource {
    pub(crate) resource: Resource,
    kind: String,
    verbs: HashSet<String>,
}

impl RemoteResource {
    pub(crate) fn has_verbs(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.contains(*verb))
    }
}

/// Objects of a list.
pub(crate) struct Page {
    pub(crate) items: Vec<Value>,
    /// Of the last page: the resourceVersion to watch from.
    pub(crate) last: Option<String>,
}

/// A list that is read page by page. All of it is bounded, because a server need not come to an end.
pub(crate) struct Pages<'a> {
    client: &'a RemoteClient,
    target: &'a ResourceRef,
    query: String,
    count: usize,
    bytes: usize,
}

impl Pages<'_> {
    pub(crate) async fn next(&mut self) -> Result<Page, ApiError> {
        let path = || path_of(self.target);
        if self.count == PAGES_MAX {
            let objects = PAGES_MAX * PAGE_OBJECTS;
            return Err(ApiError::internal(format!("{} has more than {objects} objects", path())));
        }
        let (client, target) = (self.client, self.target);
        let call = client.call(Method::GET, target, &self.query, ACCEPT_METADATA_LIST, None);
        let body = call.await?;
        self.count += 1;
        self.bytes += body.len();
        if self.bytes > LIST_BYTES_MAX {
            let path = path();
            return Err(ApiError::internal(format!("{path} has more than {LIST_BYTES_MAX} bytes")));
        }
        let mut page = decode(&body)?;
        let items = match page.remove_at(&["items"]) {
            Some(Value::Array(found)) => found.into_iter().map(metadata_only).collect(),
            _ => Vec::new(),
        };
        let token = page.str_at(&["metadata", "continue"]);
        if token.is_empty() {
            let last = Some(page.str_at(&["metadata", "resourceVersion"]).to_owned());
            return Ok(Page { items, last });
        }
        let token = utf8_percent_encode(token, SEGMENT);
        self.query = format!("limit={PAGE_OBJECTS}&continue={token}");
        Ok(Page { items, last: None })
    }
}

impl RemoteClient {
    pub fn new(registration: Arc<Registration>, apis: Arc<RemoteApis>) -> Self {
        Self { registration, apis }
    }

    /// Whether another server answers for the resource.
    pub fn serves(&self, gvr: &GroupVersionResource) -> bool {
        self.find(gvr).is_some()
    }

    /// The namespaced resources that can be listed and deleted, each in one version of its server.
    pub fn namespaced_resources(&self) -> Discovered {
        let mut discovered = Discovered::default();
        let mut seen = HashSet::new();
        for (server, api) in self.by_priority() {
            if !api.current || !server.api_service.available {
                let version = server.api_service.group_version.to_string();
                // Compat: client-go's words.
                let why = format!("stale GroupVersion discovery: {version}");
                discovered.failed.push((version, why));
                continue;
            }
            for RemoteResource { resource, verbs, .. } in resources_of(&server, &api) {
                let is_deletable = verbs.contains("list")
                    && (verbs.contains("deletecollection") || verbs.contains("delete"));
                let stored = (server.service.clone(), resource.gvr.group_resource());
                if resource.namespaced && is_deletable && seen.insert(stored) {
                    discovered.resources.push(resource.gvr);
                }
            }
        }
        discovered
    }

    /// The resources that a garbage collector watches, each in one version, with their servers. A server that is
    /// away keeps those that it had.
    pub(crate) fn collectable_resources(&self) -> Vec<(ServiceReference, Resource)> {
        let mut seen = HashSet::new();
        let mut of_service: HashMap<ServiceReference, usize> = HashMap::new();
        let mut found = Vec::new();
        for (server, api) in self.by_priority() {
            let count = of_service.entry(server.service.clone()).or_default();
            for remote in resources_of(&server, &api) {
                let stored = (server.service.clone(), remote.resource.gvr.group_resource());
                if !remote.has_verbs(&["list", "watch", "delete"]) || !seen.insert(stored) {
                    continue;
                }
                *count += 1;
                if *count > COLLECTED_RESOURCES_MAX {
                    let name = &server.api_service.name;
                    tracing::warn!(name, "an aggregated server has too many resources to watch");
                    break;
                }
                found.push((server.service.clone(), remote.resource));
            }
        }
        found
    }

    /// The resource of a kind, by the last discovery of its server.
    pub fn resource_of(&self, group_version: &GroupVersion, kind: &str) -> Option<Resource> {
        let server = self.registration.find(group_version)?;
        let api = self.apis.get(&server.api_service.name);
        let mut resources = resources_of(&server, &api);
        let found = resources.find(|remote| remote.kind == kind && remote.has_verbs(&["get"]))?;
        Some(found.resource)
    }

    pub async fn get(&self, target: &ResourceRef) -> Result<Value, ApiError> {
        let body = self.call(Method::GET, target, "", "application/json", None).await?;
        decode(&body)
    }

    /// The objects with their metadata; a server that can leave out the rest does.
    pub async fn list(&self, target: &ResourceRef) -> Result<Vec<Value>, ApiError> {
        let mut items = Vec::new();
        let mut pages = self.pages(target);
        loop {
            let page = pages.next().await?;
            items.extend(page.items);
            if page.last.is_some() {
                return Ok(items);
            }
        }
    }

    /// The same, page by page.
    pub(crate) fn pages<'a>(&'a self, target: &'a ResourceRef) -> Pages<'a> {
        Pages { client: self, target, query: format!("limit={PAGE_OBJECTS}"), count: 0, bytes: 0 }
    }

    pub async fn update(&self, target: &ResourceRef, object: &Value) -> Result<Value, ApiError> {
        let body = self.call(Method::PUT, target, "", "application/json", Some(object)).await?;
        decode(&body)
    }

    pub async fn delete(&self, target: &ResourceRef, options: &Value) -> Result<(), ApiError> {
        self.call(Method::DELETE, target, "", "application/json", Some(options)).await.map(drop)
    }

    /// By `deletecollection` where the server has it, and one by one elsewhere, as
    /// kube-controller-manager does.
    pub async fn delete_collection(&self, target: &ResourceRef) -> Result<(), ApiError> {
        let options = value!({
            "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background",
        });
        if self.has_verb(&target.gvr, "deletecollection") {
            return self.delete(target, &options).await;
        }
        for object in self.list(target).await? {
            let metadata = |field| object.str_at(&["metadata", field]);
            if metadata("name").is_empty() {
                continue;
            }
            let one = target.clone().in_namespace(metadata("namespace")).named(metadata("name"));
            match self.delete(&one, &options).await {
                Ok(()) | Err(ApiError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn has_verb(&self, gvr: &GroupVersionResource, verb: &str) -> bool {
        let Some(server) = self.find(gvr) else { return false };
        let api = self.apis.get(&server.api_service.name);
        let mut resources = resources_of(&server, &api);
        resources.any(|remote| remote.resource.gvr == *gvr && remote.has_verbs(&[verb]))
    }

    pub(crate) fn find(&self, gvr: &GroupVersionResource) -> Option<Arc<RemoteServer>> {
        let (group, version) = (gvr.group.clone(), gvr.version.clone());
        self.registration.find(&GroupVersion { group, version })
    }

    /// All servers, a group's preferred version first.
    fn by_priority(&self) -> Vec<(Arc<RemoteServer>, Arc<RemoteApi>)> {
        let mut servers = self.registration.servers();
        servers.sort_by_key(|server| std::cmp::Reverse(server.api_service.version_priority));
        let known = servers.into_iter().map(|server| {
            let api = self.apis.get(&server.api_service.name);
            (server, api)
        });
        known.collect()
    }

    async fn call(
        &self,
        method: Method,
        target: &ResourceRef,
        query: &str,
        accept: &'static str,
        body: Option<&Value>,
    ) -> Result<Bytes, ApiError> {
        let server = self.find(&target.gvr).ok_or(ApiError::NotServed)?;
        let mut path = path_of(target);
        if !query.is_empty() {
            path = format!("{path}?{query}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let mut sent = Vec::new();
        if let Some(body) = body {
            meta::json::write_value(&mut sent, body);
        }
        let user = &controller_user();
        let fetch =
            Fetch { path: &path, headers, user, timeout: TIMEOUT, bytes_max: ANSWER_BYTES_MAX };
        let answered = server.call(method, sent.into(), fetch).await;
        let response = answered.map_err(ApiError::ServiceUnavailable)?;
        let code = response.status().as_u16();
        if (200..=206).contains(&code) {
            return Ok(response.into_body());
        }
        let said = successful_body(response).err().map(|error| error.message);
        Err(failure(target, code, said.unwrap_or_else(|| generic_message(code, "unknown"))))
    }
}

/// Compat: in-process controllers act as the server itself, here as in the local groups.
pub(crate) fn controller_user() -> User {
    User {
        name: "system:apiserver".into(),
        groups: vec![User::MASTERS.into(), User::AUTHENTICATED.into()],
        ..User::default()
    }
}

/// Resources of one server that a garbage collector watches. Objects of the others are not collected.
const COLLECTED_RESOURCES_MAX: usize = 250;
/// Objects of one page of a list. A server that cannot leave out all but the metadata must fit so many objects
/// into [`meta::limits::TREE_BYTES_MAX`].
const PAGE_OBJECTS: usize = 250;
/// Pages of one list; more are an error, so that a server cannot keep a controller reading for ever.
const PAGES_MAX: usize = 2000;
/// All pages of one list; more are an error too.
const LIST_BYTES_MAX: usize = 256 << 20;
/// One answer; a larger one fails the call.
const ANSWER_BYTES_MAX: usize = 16 << 20;
const TIMEOUT: Duration = Duration::from_mins(1);

const ACCEPT_METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// What the server said about its resources last.
fn resources_of<'a>(
    server: &'a RemoteServer,
    api: &'a RemoteApi,
) -> impl Iterator<Item = RemoteResource> + 'a {
    let GroupVersion { group, version } = &server.api_service.group_version;
    let resources = api.discovery.as_ref().map(|discovery| discovery.items_at(&["resources"]));
    resources.unwrap_or_default().iter().map(move |resource| {
        let gvr = GroupVersionResource {
            group: group.clone(),
            version: version.clone(),
            resource: resource.str_at(&["resource"]).into(),
        };
        let verbs = resource.items_at(&["verbs"]).iter().filter_map(Value::as_str);
        RemoteResource {
            resource: Resource { gvr, namespaced: resource.str_at(&["scope"]) == "Namespaced" },
            kind: resource.str_at(&["responseKind", "kind"]).to_owned(),
            verbs: verbs.map(str::to_owned).collect(),
        }
    })
}

pub(crate) fn path_of(target: &ResourceRef) -> String {
    let GroupVersionResource { group, version, resource } = &target.gvr;
    let mut path = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    if !target.namespace.is_empty() {
        path.push_str("/namespaces");
    }
    let (namespace, name) = (target.namespace.as_str(), target.name.as_str());
    let names = [namespace, resource.as_str(), name, target.subresource];
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        write!(path, "/{}", utf8_percent_encode(name, SEGMENT)).expect("a String takes all");
    }
    path
}

/// What is escaped in a segment of a path, and in a query: names come from the server that is asked.
const SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// What is kept of an object whose server sent more than its metadata.
fn metadata_only(mut object: Value) -> Value {
    if let Value::Object(members) = &mut object {
        members.retain(|name, _| matches!(name, "apiVersion" | "kind" | "metadata"));
    }
    object
}

pub(crate) fn decode(body: &[u8]) -> Result<Value, ApiError> {
    let decoded = json::decode_any_body(body, DecodeOptions { strict: false });
    Ok(decoded.map_err(ApiError::internal)?.value)
}

/// The errors that controllers tell apart; any other is the server's own.
fn failure(target: &ResourceRef, code: u16, message: String) -> ApiError {
    let resource = target.gvr.group_resource();
    match code {
        404 => ApiError::not_found(resource, target.name.as_str()),
        409 => ApiError::Conflict { resource, name: target.name.clone(), why: message },
        _ => ApiError::Status(Box::new(Status { code, message, ..Status::default() })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_escaped_names() {
        let target = ResourceRef::cluster("wardle", "v1", "flunders");
        let cases = [
            (target.clone(), "/apis/wardle/v1/flunders"),
            (target.clone().named("a"), "/apis/wardle/v1/flunders/a"),
            (target.clone().in_namespace("n"), "/apis/wardle/v1/namespaces/n/flunders"),
            (
                ResourceRef { subresource: "status", ..target.in_namespace("n").named("a/?%") },
                "/apis/wardle/v1/namespaces/n/flunders/a%2F%3F%25/status",
            ),
            (ResourceRef::cluster("", "v9", "x").named("a:b"), "/api/v9/x/a:b"),
        ];
        for (target, expected) in cases {
            assert_eq!(path_of(&target), expected);
        }
    }

    #[test]
    fn controllers_can_tell_gone_from_changed() {
        let target = ResourceRef::cluster("wardle", "v1", "flunders").named("a");
        let of = |code| failure(&target, code, "why".to_owned());
        assert!(matches!(of(404), ApiError::NotFound { .. }));
        assert!(matches!(of(409), ApiError::Conflict { .. }));
        assert_eq!((of(403).status().code, of(403).to_string().as_str()), (403, "why"));
    }
}
