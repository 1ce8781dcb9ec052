//! CONNECT: subresources that take the connection over, or pass a body on without reading it: exec,
//! attach, port-forward, logs and proxies.

use std::sync::Arc;

use bytes::Bytes;
use codec::negotiate::Offered;
use http::{Method, Request, Response, header::ACCEPT};
use hyper::body::Incoming;
use meta::{ApiError, GroupResource, Query, RequestInfo, Value};
use registry::{Engine, Kind, ResourceRequest};
use serve::{Body, Context, Serving};

use crate::handle::PARTS_MAX;

/// Answers the requests of one CONNECT subresource.
pub trait Connecter: Send + Sync + 'static {
    /// The options in the query as the object that they are (`PodExecOptions`), with `kind` and
    /// `apiVersion`: what admission sees.
    fn options(&self, query: &Query, info: &RequestInfo) -> Result<Value, ApiError>;

    fn connect<'a>(&'a self, connect: Connect<'a>) -> Serving<'a>;

    /// Other methods are refused.
    fn methods(&self) -> &'static [Method];

    /// Whether something may follow the subresource in the path.
    fn takes_path(&self) -> bool {
        false
    }

    /// Refuses a client that accepts no format of the response. Most connecters do not decide what it is.
    fn negotiate(&self, _accept: Option<&str>, _offered: Offered) -> Result<(), ApiError> {
        Ok(())
    }

    /// False for reads, which admission does not see.
    fn is_admitted(&self) -> bool {
        true
    }
}

/// A request that authorization and admission have let through. Nothing of its body has been read: a
/// connecter streams it, or takes the connection over (`hyper::upgrade::on`).
pub struct Connect<'a> {
    pub cx: &'a mut Context,
    pub kind: &'a Arc<Kind>,
    /// As admission has left them.
    pub options: Value,
    pub request: Request<Incoming>,
}

/// The CONNECT subresources of a server.
#[derive(Clone, Default)]
pub struct Connecters(Vec<(GroupResource, &'static str, Arc<dyn Connecter>)>);

impl Connecters {
    #[must_use]
    pub fn with(
        mut self,
        resource: GroupResource,
        subresource: &'static str,
        connecter: Arc<dyn Connecter>,
    ) -> Self {
        self.0.push((resource, subresource, connecter));
        self
    }

    pub(crate) fn find(&self, kind: &Kind, subresource: &str) -> Option<&Arc<dyn Connecter>> {
        // Most requests are for no subresource, and most servers have few connecters.
        if subresource.is_empty() || self.0.is_empty() {
            return None;
        }
        let resource = kind.group_resource();
        let mut all = self.0.iter();
        let found = all.find(|(of, name, _)| *name == subresource && *of == resource);
        found.map(|(_, _, connecter)| connecter)
    }
}

pub(crate) async fn connect(
    engine: &Arc<Engine>,
    cx: &mut Context,
    kind: &Arc<Kind>,
    connecter: &dyn Connecter,
    request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    check(cx, kind, connecter, request.method())?;
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    connecter.negotiate(accept, engine.options.offered)?;
    let query = Query::parse(request.uri().query().unwrap_or_default())?;
    if connecter.is_admitted() && query.all("dryRun").next().is_some() {
        return Err(ApiError::bad_request("dryRun is not supported"));
    }
    let mut options = connecter.options(&query, &cx.info)?;
    let admitted = ResourceRequest {
        engine,
        kind,
        info: &cx.info,
        user: &cx.user,
        authenticated_user: cx.authenticated_user(),
        query: &query,
        headers: request.headers(),
        body: Bytes::new(),
        warnings: &cx.warnings,
        audit: &cx.audit.record,
        websocket: false,
        deadline: cx.deadline,
    };
    if connecter.is_admitted() {
        registry::admit_connect(&admitted, &mut options).await?;
    }
    connecter.connect(Connect { cx, kind, options, request }).await
}

/// The path and the method are those of the subresource.
fn check(
    cx: &Context,
    kind: &Kind,
    connecter: &dyn Connecter,
    method: &Method,
) -> Result<(), ApiError> {
    let info = &cx.info;
    let in_namespace = !info.namespace.is_empty();
    let too_long = info.parts.len() > PARTS_MAX && !connecter.takes_path();
    if kind.namespaced() != in_namespace || too_long || info.verb == "watch" {
        return Err(ApiError::NotServed);
    }
    if connecter.methods().contains(method) { Ok(()) } else { Err(ApiError::MethodNotAllowed) }
}
