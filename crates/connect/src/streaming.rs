//! `pods/exec`, `pods/attach` and `pods/portforward`: a connection to the kubelet that becomes the
//! client's, passed through (SPDY, and WebSockets that the kubelet speaks), translated, or tunneled.

use std::sync::Arc;

use endpoints::{Connect, Connecter};
use http::{Method, Request, Response, Uri};
use hyper::body::Incoming;
use meta::{
    ApiError, GroupResource, Query, RequestInfo, Value,
    authorization::{Attributes, Decision},
};
use proxy::{Options, Redirects, Target};
use serve::{Body, Context, Serving, websocket};

use crate::{
    container,
    errors::proxy_error,
    kubelet::ConnectionInfo,
    options::Builder,
    shared::{Shared, kubelet_url},
    translator::{self, Streams},
    tunnel,
};

/// Which of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subresource {
    Exec,
    Attach,
    PortForward,
}

impl Subresource {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::PortForward => "portforward",
        }
    }
}

pub(crate) struct Streaming {
    pub(crate) shared: Arc<Shared>,
    pub(crate) subresource: Subresource,
}

impl Connecter for Streaming {
    fn options(&self, query: &Query, _info: &RequestInfo) -> Result<Value, ApiError> {
        let kind = match self.subresource {
            Subresource::PortForward => {
                let options = Builder::new("PodPortForwardOptions").ports("ports", query)?;
                return Ok(options.build());
            }
            Subresource::Attach => "PodAttachOptions",
            Subresource::Exec => "PodExecOptions",
        };
        let options = Builder::new(kind)
            .flag("stdin", query)
            .flag("stdout", query)
            .flag("stderr", query)
            .flag("tty", query)
            .text("container", query);
        Ok(match self.subresource {
            Subresource::Exec => options.texts("command", query).build(),
            _ => options.build(),
        })
    }

    fn connect<'a>(&'a self, connect: Connect<'a>) -> Serving<'a> {
        Box::pin(self.serve(connect))
    }

    /// Compat: GET for browsers, which open WebSockets with it.
    fn methods(&self) -> &'static [Method] {
        &[Method::GET, Method::POST]
    }
}

impl Streaming {
    async fn serve(&self, connect: Connect<'_>) -> Result<Response<Body>, ApiError> {
        let Connect { cx, options, request, .. } = connect;
        let gates = &self.shared.gates;
        if gates.authorize_create {
            self.authorize_create(cx).await?;
        }
        let (kubelet, url) = self.location(&cx.info, &options).await?;
        let name = self.subresource.name();
        let translates = match self.subresource {
            Subresource::PortForward => gates.port_forward_websockets,
            Subresource::Exec | Subresource::Attach => gates.translate_websockets,
        };
        if translates {
            let to_kubelet = gates.websockets_to_kubelet && kubelet.speaks_websocket;
            self.shared.metrics.streaming(name, to_kubelet);
            if !to_kubelet && websocket::is_requested(&request) {
                match self.subresource {
                    Subresource::PortForward => {
                        if !tunnel::protocols(request.headers()).is_empty() {
                            return self.tunnel(request, url).await;
                        }
                    }
                    Subresource::Exec | Subresource::Attach => {
                        let mut offered = websocket::offered_protocols(request.headers());
                        if offered.any(|protocol| protocol == translator::PROTOCOL) {
                            drop(offered);
                            return Ok(self.translate(request, url, &options));
                        }
                    }
                }
            }
        }
        let target = Target { client: self.shared.kubelets.client.clone(), url, connect_to: None };
        let options = Options {
            client_address: Some(cx.peer.address.ip()),
            redirects: Redirects::Refuse,
            upgrade_required: true,
            bytes_per_second_max: self.shared.bytes_per_second_max,
            ..Options::default()
        };
        proxy::forward(request, target, options).await.map_err(proxy_error)
    }

    /// A WebSocket is opened by a GET, which is authorized as `get`. Policies that allow reading only
    /// must not allow a shell.
    async fn authorize_create(&self, cx: &Context) -> Result<(), ApiError> {
        let attributes = Attributes::of_request(&cx.user, &cx.info);
        if attributes.verb == "create" {
            return Ok(());
        }
        let attributes = Attributes { verb: "create", ..attributes };
        let verdict = self.shared.authorizer.authorize(&attributes).await;
        match (verdict.decision, verdict.error) {
            (Decision::Allow, _) => Ok(()),
            (_, Some(error)) => Err(ApiError::Storage(error)),
            (_, None) => Err(ApiError::Forbidden {
                resource: GroupResource::new(&*cx.info.group, &*cx.info.resource),
                name: cx.info.name.to_string(),
                why: verdict.reason,
                causes: Vec::new(),
            }),
        }
    }

    async fn location(
        &self,
        info: &RequestInfo,
        options: &Value,
    ) -> Result<(ConnectionInfo, Uri), ApiError> {
        let pod = self.shared.get("pods", &info.namespace, &info.name).await?;
        let container = match self.subresource {
            Subresource::PortForward => None,
            Subresource::Exec | Subresource::Attach => {
                Some(container::choose(options.str_at(&["container"]), &pod)?)
            }
        };
        let node = pod.str_at(&["spec", "nodeName"]);
        if node.is_empty() {
            let message = format!("pod {} does not have a host assigned", info.name);
            return Err(ApiError::BadRequest(message));
        }
        let kubelet = self.shared.kubelet(node).await?;
        let path = match self.subresource {
            Subresource::Exec => "exec",
            Subresource::Attach => "attach",
            Subresource::PortForward => "portForward",
        };
        let mut parts = vec![path, &info.namespace, &info.name];
        parts.extend(container);
        let query = kubelet_query(options);
        let url = kubelet_url(&kubelet, &parts, &query)?;
        Ok((kubelet, url))
    }

    async fn tunnel(
        &self,
        request: Request<Incoming>,
        url: Uri,
    ) -> Result<Response<Body>, ApiError> {
        let backend = tunnel::Backend {
            client: self.shared.kubelets.client.clone(),
            url,
            bytes_per_second_max: self.shared.bytes_per_second_max,
        };
        tunnel::serve(request, backend, &self.shared.metrics).await
    }

    fn translate(
        &self,
        mut request: Request<Incoming>,
        url: Uri,
        options: &Value,
    ) -> Response<Body> {
        let accepted = websocket::accept_messages(&mut request, Some(translator::PROTOCOL));
        let (connection, response) = match accepted {
            Ok(accepted) => accepted,
            Err(refusal) => {
                self.shared.metrics.translated(400);
                return refusal.into_response();
            }
        };
        let is_set = |name| options.at(&[name]).and_then(Value::as_bool) == Some(true);
        let backend = translator::Backend {
            client: self.shared.kubelets.client.clone(),
            url,
            streams: Streams {
                stdin: is_set("stdin"),
                stdout: is_set("stdout"),
                stderr: is_set("stderr"),
                tty: is_set("tty"),
            },
            bytes_per_second_max: self.shared.bytes_per_second_max,
        };
        let metrics = self.shared.metrics.clone();
        let body = Body::take_over(connection, async move |client| {
            metrics.translated(translator::translate(client, backend).await);
        });
        response.map(|()| body)
    }
}

/// As kubelets read it.
fn kubelet_query(options: &Value) -> Vec<(&'static str, String)> {
    let mut query = Vec::new();
    let streams = [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")];
    for (field, parameter) in streams {
        if options.at(&[field]).and_then(Value::as_bool) == Some(true) {
            query.push((parameter, "1".to_owned()));
        }
    }
    for part in options.items_at(&["command"]) {
        query.push(("command", part.as_str().unwrap_or_default().to_owned()));
    }
    let ports = options.items_at(&["ports"]).iter().filter_map(Value::as_i64);
    let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
    if !ports.is_empty() {
        query.push(("port", ports.join(",")));
    }
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_the_parameters_of_a_kubelet() {
        let options = "{stdin: true, tty: true, container: c, command: [sh, -c, echo]}";
        let options = codec::yaml::load(options.as_bytes()).unwrap().value;
        let shown = |options: &Value| {
            let query = kubelet_query(options);
            let pairs = query.iter().map(|(name, value)| format!("{name}={value}"));
            pairs.collect::<Vec<_>>().join("&")
        };
        assert_eq!(shown(&options), "input=1&tty=1&command=sh&command=-c&command=echo");
        let ports = codec::yaml::load(b"{ports: [80, 443]}").unwrap().value;
        assert_eq!(shown(&ports), "port=80,443");
    }
}
