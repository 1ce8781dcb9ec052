//! `pods/proxy`, `services/proxy` and `nodes/proxy`: plain requests to whatever listens there.

use std::sync::Arc;

use client::{Client, HostPort};
use endpoints::{Connect, Connecter};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{HOST, LOCATION},
};
use hyper::body::Incoming;
use meta::{ApiError, GroupResource, Query, RequestInfo, Value, field::quote};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use proxy::{Options, Redirects, Target, is_upgrade};
use serve::{Body, Serving};

use crate::{
    allowed_address::is_allowed,
    errors::{proxy_error, refused_address},
    options::Builder,
    rewrite::Rewriter,
    shared::{Shared, host_in_url},
};

/// What is proxied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Pod,
    Service,
    Node,
}

pub(crate) struct Proxy {
    pub(crate) shared: Arc<Shared>,
    pub(crate) resource: Resource,
}

impl Connecter for Proxy {
    fn options(&self, _query: &Query, info: &RequestInfo) -> Result<Value, ApiError> {
        let kind = match self.resource {
            Resource::Pod => "PodProxyOptions",
            Resource::Service => "ServiceProxyOptions",
            Resource::Node => "NodeProxyOptions",
        };
        Ok(Builder::new(kind).path(info).build())
    }

    fn connect<'a>(&'a self, connect: Connect<'a>) -> Serving<'a> {
        Box::pin(self.serve(connect))
    }

    fn methods(&self) -> &'static [Method] {
        &[
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
            Method::HEAD,
            Method::OPTIONS,
        ]
    }

    fn takes_path(&self) -> bool {
        true
    }
}

/// Where something listens.
struct Location {
    client: Client,
    scheme: String,
    /// As the URL has it, with the port.
    authority: String,
    connect_to: Option<HostPort>,
}

impl Proxy {
    async fn serve(&self, connect: Connect<'_>) -> Result<Response<Body>, ApiError> {
        let Connect { cx, options, request, .. } = connect;
        let location = match self.resource {
            Resource::Pod => self.pod(&cx.info).await?,
            Resource::Service => self.service(&cx.info).await?,
            Resource::Node => self.node(&cx.info.name).await?,
        };
        let mut path = clean(options.str_at(&["path"]));
        if !is_upgrade(&request) {
            if !path.ends_with('/') && cx.info.path.ends_with('/') {
                path.push('/');
            }
            // Relative links of a page at `…/proxy` would miss the last part of its path.
            let reads = matches!(*request.method(), Method::GET | Method::HEAD);
            if path.is_empty() && reads {
                return Ok(add_slash(&request));
            }
        }
        self.forward(request, location, &path, cx.peer.address.ip()).await
    }

    async fn forward(
        &self,
        request: Request<Incoming>,
        location: Location,
        path: &str,
        client_address: std::net::IpAddr,
    ) -> Result<Response<Body>, ApiError> {
        let mut path_and_query = percent_encode(path.as_bytes(), PATH).to_string();
        if path_and_query.is_empty() {
            path_and_query.push('/');
        }
        if let Some(query) = request.uri().query() {
            path_and_query.push('?');
            path_and_query.push_str(query);
        }
        let Location { client, scheme, authority, connect_to } = location;
        let url = format!("{scheme}://{authority}{path_and_query}");
        let url: Uri = url.parse().map_err(|_| ApiError::bad_request("address not allowed"))?;
        let rewriter = Rewriter::new(&request, path, &authority);
        // Compat: the backend sees the host that the client asked for.
        let mut headers = HeaderMap::new();
        if let Some(host) = asked_host(&request) {
            headers.insert(HOST, host);
        }
        let options = Options {
            headers,
            client_address: Some(client_address),
            redirects: Redirects::Pass,
            bytes_per_second_max: self.shared.bytes_per_second_max,
            ..Options::default()
        };
        let target = Target { client, url, connect_to };
        let response = proxy::forward(request, target, options).await.map_err(proxy_error)?;
        rewriter.rewrite(response)
    }

    async fn pod(&self, info: &RequestInfo) -> Result<Location, ApiError> {
        let Some(id) = Id::parse(&info.name) else { return Err(invalid("pod", &info.name)) };
        let pod = self.shared.get("pods", &info.namespace, id.name).await?;
        let port = match id.port {
            "" => first_port(&pod).map(|port| port.to_string()).unwrap_or_default(),
            given => given.to_owned(),
        };
        let address = pod.items_at(&["status", "podIPs"]).first();
        let address = address.map(|address| address.str_at(&["ip"])).unwrap_or_default();
        self.pod_location(id.scheme, address, &port)
            .ok_or_else(|| invalid("pod", &info.name))?
            .map_err(|()| ApiError::bad_request("address not allowed"))
    }

    /// None: the port is none.
    fn pod_location(
        &self,
        scheme: &str,
        address: &str,
        port: &str,
    ) -> Option<Result<Location, ()>> {
        if !port.is_empty() && port.parse::<u16>().is_err() {
            return None;
        }
        let Some(address) = address.parse().ok().filter(|address| is_allowed(*address)) else {
            return Some(Err(()));
        };
        let mut authority = host_in_url(&address.to_string()).ok()?;
        if !port.is_empty() {
            authority.push(':');
            authority.push_str(port);
        }
        let scheme = if scheme.is_empty() { "http" } else { scheme }.to_owned();
        let client = self.shared.pods.clone();
        Some(Ok(Location { client, scheme, authority, connect_to: None }))
    }

    async fn node(&self, asked: &str) -> Result<Location, ApiError> {
        let Some(id) = Id::parse(asked) else { return Err(invalid("node", asked)) };
        let kubelet = self.shared.kubelet(id.name).await?;
        let port = match id.port {
            "" => kubelet.port,
            given => given.parse().map_err(|_| invalid("node", asked))?,
        };
        // Compat: checked here also where an egress proxy would resolve the name; and what is connected
        // to is what was checked.
        let resolved = self.shared.dial.resolve(&kubelet.host, port).await;
        let addresses = resolved.map_err(|error| {
            let error = client::Error::Dial(error);
            let text = client::go_text(&error);
            refused_address(&error).unwrap_or(ApiError::BadRequest(text))
        })?;
        let host = addresses[0].to_string();
        let authority = format!("{}:{port}", host_in_url(&kubelet.host)?);
        let connect_to = Some(HostPort { host, port });
        Ok(if port == kubelet.port {
            let client = self.shared.kubelets.client.clone();
            Location { client, scheme: "https".to_owned(), authority, connect_to }
        } else {
            let client = self.shared.pods.clone();
            let scheme = if id.scheme.is_empty() { "http" } else { id.scheme }.to_owned();
            Location { client, scheme, authority, connect_to }
        })
    }

    async fn service(&self, info: &RequestInfo) -> Result<Location, ApiError> {
        let Some(id) = Id::parse(&info.name) else { return Err(invalid("service", &info.name)) };
        let mut port_name = id.port.to_owned();
        // A number is one of the Service's ports; endpoints know it by its name.
        if let Ok(number) = id.port.parse::<i64>() {
            let service = self.shared.get("services", &info.namespace, id.name).await?;
            let mut ports = service.items_at(&["spec", "ports"]).iter();
            let Some(port) = ports.find(|port| port.i64_at(&["port"]) == Some(number)) else {
                return Err(ApiError::ServiceUnavailable(format!(
                    "no service port {number} found for service {}",
                    quote(id.name)
                )));
            };
            port.str_at(&["name"]).clone_into(&mut port_name);
        }
        let endpoints = self.shared.get("endpoints", &info.namespace, id.name).await;
        // Compat: the error is about what the client asked for.
        let endpoints = endpoints.map_err(|error| match error {
            ApiError::NotFound { .. } => {
                ApiError::not_found(GroupResource::new("", "services"), id.name)
            }
            other => other,
        })?;
        let subsets = endpoints.items_at(&["subsets"]);
        let unavailable = |id: &str| {
            let message = format!("no endpoints available for service {}", quote(id));
            ApiError::ServiceUnavailable(message)
        };
        if subsets.is_empty() {
            return Err(unavailable(id.name));
        }
        for subset in rotated(subsets) {
            let mut ports = subset.items_at(&["ports"]).iter();
            let Some(port) = ports.find(|port| port.str_at(&["name"]) == port_name) else {
                continue;
            };
            let port = port.i64_at(&["port"]).unwrap_or_default().to_string();
            for address in rotated(subset.items_at(&["addresses"])) {
                if !self.is_pods(address, &info.namespace).await {
                    continue;
                }
                let location = self.pod_location(id.scheme, address.str_at(&["ip"]), &port);
                let refused = |()| ApiError::bad_request("address not allowed");
                return location.ok_or_else(|| unavailable(&info.name))?.map_err(refused);
            }
        }
        Err(unavailable(&info.name))
    }

    /// Compat: only addresses that are really a pod's, of this namespace: a client that may write endpoints
    /// must not choose what the server connects to.
    async fn is_pods(&self, address: &Value, namespace: &str) -> bool {
        let target = |field| address.str_at(&["targetRef", field]);
        if target("namespace") != namespace || target("name").is_empty() {
            return false;
        }
        let Ok(pod) = self.shared.get("pods", namespace, target("name")).await else {
            return false;
        };
        let mut addresses = pod.items_at(&["status", "podIPs"]).iter();
        addresses.any(|one| one.str_at(&["ip"]) == address.str_at(&["ip"]))
    }
}

/// All of them, from a random one on.
fn rotated(values: &[Value]) -> impl Iterator<Item = &Value> {
    let at = match values.len() {
        0 => 0,
        // Without random numbers the first is as good as any.
        count => getrandom::u64().unwrap_or_default() as usize % count,
    };
    let (before, from) = values.split_at(at);
    from.iter().chain(before)
}

fn first_port(pod: &Value) -> Option<i64> {
    let mut containers = pod.items_at(&["spec", "containers"]).iter();
    containers
        .find_map(|container| container.items_at(&["ports"]).first()?.i64_at(&["containerPort"]))
}

fn invalid(what: &str, id: &str) -> ApiError {
    ApiError::BadRequest(format!("invalid {what} request {}", quote(id)))
}

/// `name`, `name:port` or `scheme:name:port`.
#[derive(Debug, PartialEq, Eq)]
struct Id<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

impl<'a> Id<'a> {
    fn parse(id: &'a str) -> Option<Self> {
        let parts: Vec<&str> = id.split(':').collect();
        let id = match parts[..] {
            [name] => Self { scheme: "", name, port: "" },
            [name, port] => Self { scheme: "", name, port },
            [scheme, name, port] => Self { scheme, name, port },
            _ => return None,
        };
        (!id.name.is_empty() && matches!(id.scheme, "" | "http" | "https")).then_some(id)
    }
}

/// Compat: Go's `path.Join`, which keeps a slash at the end here. Dots cannot leave the path.
fn clean(path: &str) -> String {
    if path.is_empty() {
        return String::new();
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let mut cleaned = format!("/{}", parts.join("/"));
    if path.ends_with('/') && !cleaned.ends_with('/') {
        cleaned.push('/');
    }
    cleaned
}

/// Compat: what Go leaves as it is in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

fn add_slash(request: &Request<Incoming>) -> Response<Body> {
    let mut location = format!("{}/", request.uri().path());
    if let Some(query) = request.uri().query() {
        location.push('?');
        location.push_str(query);
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// HTTP/2 has it in `:authority`.
pub(crate) fn asked_host<B>(request: &Request<B>) -> Option<HeaderValue> {
    let authority = || HeaderValue::from_str(request.uri().authority()?.as_str()).ok();
    request.headers().get(HOST).cloned().or_else(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_name_with_a_port_and_a_scheme() {
        let id = |scheme, name, port| Some(Id { scheme, name, port });
        let cases = [
            ("web", id("", "web", "")),
            ("web:80", id("", "web", "80")),
            ("https:web:", id("https", "web", "")),
            ("http:web:http", id("http", "web", "http")),
            (":web:80", id("", "web", "80")),
            ("ftp:web:80", None),
            (":80", None),
            ("a:b:c:d", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(Id::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn h25_dots_and_empty_parts_do_not_reach_the_backend() {
        let cases = [
            ("", ""),
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b/"),
            ("/a//b", "/a/b"),
            ("/../../a", "/a"),
            ("/a/./b/../c", "/a/c"),
            ("/..", "/"),
        ];
        for (path, expected) in cases {
            assert_eq!(clean(path), expected, "{path}");
        }
    }
}
