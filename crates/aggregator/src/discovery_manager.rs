//! `apiservice-discovery-controller`: reads the discovery of remote servers, so that aggregated discovery
//! has all there is in one document. A server that is away keeps its place with what it said last, marked
//! `Stale`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use codec::json::{self, DecodeOptions};
use controllers::{BoxFuture, Informer};
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH},
};
use meta::{GroupVersion, Value, value};
use parking_lot::Mutex;
use schema::Schema;

use crate::{
    Registration, RemoteApis,
    api_service::ServiceReference,
    remote_available_controller::{DISCOVERY_BYTES_MAX, aggregator_user},
    remote_server::{Fetch, RemoteServer},
    remote_spec_controller::{RemoteSpec, RemoteSpecController},
};

pub struct DiscoveryManager {
    registration: Arc<Registration>,
    apis: Arc<RemoteApis>,
    schema: Arc<Schema>,
    /// The aggregated discovery of servers that have it. Several APIServices may share a server.
    cached: Mutex<HashMap<ServiceReference, Arc<Cached>>>,
}

struct Cached {
    etag: Option<HeaderValue>,
    versions: HashMap<GroupVersion, Arc<Value>>,
}

impl DiscoveryManager {
    pub fn new(
        registration: Arc<Registration>,
        apis: Arc<RemoteApis>,
        schema: Arc<Schema>,
    ) -> Self {
        Self { registration, apis, schema, cached: Mutex::default() }
    }

    /// Runs until the server stops.
    pub async fn run(self, events: impl Informer) {
        RemoteSpecController::run(self.registration.clone(), self, events).await;
    }

    /// The `APIVersionDiscovery` of the group-version, if the server lists it.
    async fn fetch(&self, server: &RemoteServer) -> Result<Option<Arc<Value>>, String> {
        server.check_available()?;
        let wanted = &server.api_service.group_version;
        let known = self.cached.lock().get(&server.service).cloned();
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(ACCEPT_AGGREGATED));
        if let Some(etag) = known.as_ref().and_then(|known| known.etag.clone()) {
            headers.insert(IF_NONE_MATCH, etag);
        }
        let response = get(server, "/apis", headers).await?;
        match response.status() {
            StatusCode::NOT_MODIFIED => {
                Ok(known.and_then(|known| known.versions.get(wanted).cloned()))
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                Err(format!("service {} is unavailable", server.service))
            }
            StatusCode::OK if is_aggregated(&response) => {
                let versions = self.parse_aggregated(response.body())?;
                let etag = response.headers().get(ETAG).cloned();
                let cached = Arc::new(Cached { etag, versions });
                self.cached.lock().insert(server.service.clone(), cached.clone());
                Ok(cached.versions.get(wanted).cloned())
            }
            _ => self.fetch_legacy(server).await.map(Some),
        }
    }

    /// Of servers that do not know aggregated discovery.
    async fn fetch_legacy(&self, server: &RemoteServer) -> Result<Arc<Value>, String> {
        let path = server.api_service.discovery_path();
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let response = get(server, &path, headers).await?;
        if response.status() != StatusCode::OK {
            let code = response.status().as_u16();
            return Err(format!("failed to download legacy discovery for {path}: {code}"));
        }
        let list =
            self.decode("io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList", response.body())?;
        Ok(Arc::new(from_legacy(&list, &server.api_service.group_version)))
    }

    fn parse_aggregated(&self, body: &[u8]) -> Result<HashMap<GroupVersion, Arc<Value>>, String> {
        // The versions differ in their names only.
        let list = self.decode("io.k8s.api.apidiscovery.v2.APIGroupDiscoveryList", body)?;
        let mut found = HashMap::new();
        for group in list.items_at(&["items"]) {
            let name = group.str_at(&["metadata", "name"]);
            for version in group.items_at(&["versions"]) {
                let group_version = GroupVersion::new(name, version.str_at(&["version"]));
                found.insert(group_version, Arc::new(with_kinds(version.clone())));
            }
        }
        Ok(found)
    }

    /// By its type, so that all that is published has the right form, whatever the server says.
    fn decode(&self, type_name: &str, body: &[u8]) -> Result<Value, String> {
        let ty = self.schema.by_name(type_name).expect("the types of discovery are built in");
        let decoded = json::decode_body(body, &self.schema, ty, DecodeOptions { strict: false });
        decoded.map(|decoded| decoded.value).map_err(|error| error.to_string())
    }

    fn forget_unused(&self) {
        let used: Vec<ServiceReference> =
            self.registration.servers().iter().map(|server| server.service.clone()).collect();
        self.cached.lock().retain(|service, _| used.contains(service));
    }
}

const ACCEPT_AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

async fn get(
    server: &RemoteServer,
    path: &str,
    headers: HeaderMap,
) -> Result<Response<Bytes>, String> {
    let (user, bytes_max) = (&aggregator_user(), DISCOVERY_BYTES_MAX);
    server.fetch(Fetch { path, headers, user, timeout: TIMEOUT, bytes_max }).await
}

const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn is_aggregated(response: &Response<Bytes>) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|text| text.to_str().ok());
    content_type.is_some_and(|text| text.contains("as=APIGroupDiscoveryList"))
}

/// Compat: client-go v0.26 fails on resources without a kind.
fn with_kinds(mut version: Value) -> Value {
    let resources = version.at_mut(&["resources"]).and_then(Value::as_array_mut);
    for resource in resources.into_iter().flatten() {
        add_kind(resource);
        let subresources = resource.at_mut(&["subresources"]).and_then(Value::as_array_mut);
        for subresource in subresources.into_iter().flatten() {
            add_kind(subresource);
        }
    }
    version
}

fn add_kind(resource: &mut Value) {
    if resource.at(&["responseKind"]).is_none_or(Value::is_null) {
        resource.set_at(&["responseKind"], value!({"group": "", "version": "", "kind": ""}));
    }
}

/// An `APIResourceList` as an `APIVersionDiscovery`.
fn from_legacy(list: &Value, group_version: &GroupVersion) -> Value {
    let of_own =
        |text: &str, own: &str| if text.is_empty() { own.to_owned() } else { text.to_owned() };
    let kind = |resource: &Value| {
        let group = of_own(resource.str_at(&["group"]), &group_version.group);
        let version = of_own(resource.str_at(&["version"]), &group_version.version);
        value!({"group": (group), "version": (version), "kind": (resource.str_at(&["kind"]))})
    };
    let strings = |resource: &Value, field: &str| resource.items_at(&[field]).to_vec();
    let listed = list.items_at(&["resources"]);
    let subresources_of = |name: &str| -> Vec<Value> {
        let below = listed.iter().filter_map(|one| {
            let (parent, subresource) = one.str_at(&["name"]).split_once('/')?;
            (parent == name).then_some((one, subresource))
        });
        let described = below.map(|(one, subresource)| {
            value!({
                "subresource": subresource,
                "responseKind": (kind(one)),
                "verbs": (strings(one, "verbs")),
            })
        });
        described.collect()
    };
    let resources = listed.iter().filter(|one| !one.str_at(&["name"]).contains('/'));
    let resources: Vec<Value> = resources
        .map(|resource| {
            let name = resource.str_at(&["name"]);
            value!({
                "resource": name,
                "responseKind": (kind(resource)),
                "scope": (if resource.bool_at(&["namespaced"]) { "Namespaced" } else { "Cluster" }),
                "singularResource": (resource.str_at(&["singularName"])),
                "verbs": (strings(resource, "verbs")),
                "shortNames": (strings(resource, "shortNames")),
                "categories": (strings(resource, "categories")),
                "subresources": (subresources_of(name)),
            })
        })
        .collect();
    value!({"version": (group_version.version.as_str()), "resources": (resources)})
}

impl RemoteSpec for DiscoveryManager {
    const QUEUE: &'static str = "discovery-manager";
    const NAME: &'static str = "discovery";
    const RETRY_MIN: Duration = Duration::from_millis(500);

    fn sync<'a>(&'a self, server: &'a RemoteServer) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let fetched = self.fetch(server).await;
            let api_service = &server.api_service;
            self.apis.update(server, |api| {
                let discovery = match &fetched {
                    // The server does not list it: it is there, and empty.
                    Ok(found) => found.clone().or_else(|| {
                        let version = api_service.group_version.version.as_str();
                        Some(Arc::new(value!({"version": version, "resources": []})))
                    }),
                    Err(_) => api.discovery.clone(),
                };
                let changed = api.discovery != discovery || api.current != fetched.is_ok();
                (api.discovery, api.current) = (discovery, fetched.is_ok());
                changed
            });
            fetched.map(drop)
        })
    }

    fn forget(&self, name: &str) {
        self.forget_unused();
        self.apis.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legacy_discovery_says_the_same_as_aggregated_discovery() {
        let list = value!({"resources": [
            {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
             "verbs": ["get", "list"], "shortNames": ["fl"]},
            {"name": "flunders/status", "namespaced": true, "kind": "Flunder", "verbs": ["get"]},
            {"name": "flunders/scale", "namespaced": true, "group": "autoscaling",
             "version": "v1", "kind": "Scale", "verbs": ["get"]},
            {"name": "fischers", "namespaced": false, "kind": "Fischer", "verbs": ["get"]},
        ]});
        let got = from_legacy(&list, &GroupVersion::new("wardle", "v1"));
        let resources = got.items_at(&["resources"]);
        let told: Vec<(&str, &str, usize)> = resources
            .iter()
            .map(|one| {
                let subresources = one.items_at(&["subresources"]).len();
                (one.str_at(&["resource"]), one.str_at(&["scope"]), subresources)
            })
            .collect();
        assert_eq!(told, [("flunders", "Namespaced", 2), ("fischers", "Cluster", 0)]);
        let scale = &resources[0].items_at(&["subresources"])[1];
        assert_eq!(scale.str_at(&["responseKind", "group"]), "autoscaling");
        assert_eq!(resources[0].str_at(&["responseKind", "group"]), "wardle");
    }
}
