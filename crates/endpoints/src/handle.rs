//! One request for a resource: body in, verb, answer out.

use std::{
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use codec::gzip::GzipWriter;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
    request::Parts,
};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use meta::{ApiError, AuditRecord, Query, RequestInfo, User, Warnings};
use registry::{Engine, Kind, ListChunks, Payload, ResourceRequest, ResourceResponse};
use serve::{
    Body, BoxError, ChunkSource, Claims, Context, CpuPool, Delegate, Delegates, Serving,
    websocket::{self, Message, Upgrade},
};
use tokio::time::Instant;
use trace::Span;

use crate::{
    Kinds,
    connect::{Connecters, connect},
};

/// A server of resources: a table of kinds and the engine that runs the verbs.
pub struct Resources {
    /// As the delegation chain knows it: `kube-apiserver`.
    pub name: &'static str,
    pub engine: Arc<Engine>,
    kinds: ArcSwap<Kinds>,
    connecters: Connecters,
    /// Where requests that take long are served; without it they are served where they arrive.
    cpu_pool: Option<CpuPool>,
    /// Where the group-versions of these kinds are claimed, once the chain is put together.
    /// Weak: the chain has this server.
    delegates: OnceLock<Weak<Delegates>>,
}

impl Resources {
    pub fn new(name: &'static str, engine: Arc<Engine>, kinds: Kinds) -> Self {
        Self {
            name,
            engine,
            kinds: ArcSwap::from_pointee(kinds),
            connecters: Connecters::default(),
            cpu_pool: None,
            delegates: OnceLock::new(),
        }
    }

    /// The group-versions of its kinds.
    pub fn claims(&self) -> Claims {
        Claims { group_versions: self.kinds().group_versions(), ..Claims::default() }
    }

    /// From now on the chain learns of other kinds that are served.
    pub fn connect(&self, delegates: &Arc<Delegates>) {
        let _ = self.delegates.set(Arc::downgrade(delegates));
    }

    pub fn kinds(&self) -> Arc<Kinds> {
        self.kinds.load_full()
    }

    /// From now on these are the kinds that are served.
    pub fn replace(&self, kinds: Kinds) {
        let group_versions = kinds.group_versions();
        self.kinds.store(Arc::new(kinds));
        if let Some(delegates) = self.delegates.get().and_then(Weak::upgrade) {
            delegates.replace_group_versions(self.name, group_versions);
        }
    }

    /// The same server, with what its CONNECT subresources do.
    #[must_use]
    pub fn with_connecters(mut self, connecters: Connecters) -> Self {
        self.connecters = connecters;
        self
    }

    /// The same server, with threads for requests that take long.
    #[must_use]
    pub fn with_cpu_pool(mut self, cpu_pool: CpuPool) -> Self {
        self.cpu_pool = Some(cpu_pool);
        self
    }

    async fn answer(
        &self,
        cx: &mut Context,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, ApiError> {
        let kind = self.find(&cx.info)?;
        match self.connecters.find(&kind, &cx.info.subresource) {
            Some(connecter) => connect(&self.engine, cx, &kind, &**connecter, request).await,
            None if is_bounded(&cx.info.verb) => {
                let limit = Instant::now() + WRITE_TIMEOUT;
                let deadline = Some(cx.deadline.map_or(limit, |deadline| deadline.min(limit)));
                let answered = self.read_and_answer(cx, &kind, request, deadline);
                let answered = tokio::time::timeout_at(limit, answered).await;
                answered.unwrap_or_else(|_| Err(write_timed_out()))
            }
            None => self.read_and_answer(cx, &kind, request, cx.deadline).await,
        }
    }

    fn find(&self, info: &RequestInfo) -> Result<Arc<Kind>, ApiError> {
        let kinds = self.kinds.load();
        let resources = kinds.group_version(&info.group, &info.version);
        // The last kind of the group-version may have gone a moment ago.
        let resources = resources.ok_or(ApiError::UnknownPath)?;
        match resources.get(&info.resource) {
            Some(kind) => Ok(kind.clone()),
            // Compat: custom resources say it in plain text.
            None if resources.values().any(|kind| kind.is_custom()) => Err(ApiError::UnknownPath),
            None => Err(ApiError::NotServed),
        }
    }

    /// Reads the body and runs the verb.
    async fn read_and_answer(
        &self,
        cx: &Context,
        kind: &Arc<Kind>,
        mut request: Request<Incoming>,
        deadline: Option<Instant>,
    ) -> Result<Response<Body>, ApiError> {
        check_scope(cx, kind, request.method())?;
        let websocket = cx.info.verb == "watch" && websocket::is_requested(&request);
        let upgrade = websocket.then(|| Upgrade::read(&mut request));
        let query = Query::parse(request.uri().query().unwrap_or_default())?;
        let (head, body) = request.into_parts();
        let body = match head.method {
            Method::GET => Bytes::new(),
            _ => read_body(body).await?,
        };
        let rest = ResourceRequest {
            engine: &self.engine,
            kind,
            info: &cx.info,
            user: &cx.user,
            authenticated_user: cx.authenticated_user(),
            query: &query,
            headers: &head.headers,
            body,
            warnings: &cx.warnings,
            audit: &cx.audit.record,
            websocket,
            deadline,
        };
        let span = verb_span(cx, &head);
        let answer = match &self.cpu_pool {
            Some(pool) if registry::is_costly(&rest) => {
                let serving = span.scope().run(OwnedRequest::new(cx, &rest).serve());
                pool.request(serving)?.await?
            }
            _ => span.run(registry::serve(&rest)).await?,
        };
        drop(span);
        let response = |answer| response(answer, self.cpu_pool.as_ref());
        // What is wrong with the request itself is said first, and over plain HTTP.
        Ok(match upgrade {
            None => response(answer),
            Some(Err(refusal)) => refusal.into_response(),
            Some(Ok(upgrade)) => {
                let message = match answer.content_type {
                    "application/json" => Message::Text,
                    _ => Message::Binary,
                };
                upgrade.carry(response(answer), message)
            }
        })
    }
}

/// Compat: a write takes no longer than this, whatever `--request-timeout` is: as long as the longest webhook, and a
/// bit.
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);

/// Compat: deletes of whole collections are not among them.
fn is_bounded(verb: &str) -> bool {
    matches!(verb, "create" | "update" | "patch" | "delete")
}

fn write_timed_out() -> ApiError {
    ApiError::Timeout(
        "Timeout: request did not complete within requested timeout - context deadline exceeded"
            .to_owned(),
    )
}

/// The span of a verb. Compat: kube-apiserver's names and attributes.
fn verb_span(cx: &Context, head: &Parts) -> Span {
    let info = &cx.info;
    let mut span = trace::start(match info.verb.as_str() {
        "get" => "Get",
        "list" => "List",
        "watch" => "WatchServer.HandleHTTP",
        "create" => "Create",
        "update" => "Update",
        "patch" => "Patch",
        "delete" | "deletecollection" => "Delete",
        _ => "Connect",
    });
    if !span.is_recorded() {
        return span;
    }
    let header = |name| {
        let value = head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        value.unwrap_or_default()
    };
    let scope = match (info.name.as_str(), info.namespace.as_str()) {
        ("", "") if info.verb != "create" => "cluster",
        ("", _) if info.verb != "create" => "namespace",
        _ => "resource",
    };
    span.attribute("accept", header(ACCEPT));
    span.attribute("audit-id", cx.audit.id.as_str());
    span.attribute("client", cx.peer.address.ip().to_string());
    span.attribute("api-group", info.group.as_str());
    span.attribute("api-version", info.version.as_str());
    span.attribute("name", info.name.as_str());
    span.attribute("subresource", info.subresource.as_str());
    span.attribute("namespace", info.namespace.as_str());
    span.attribute("protocol", format!("{:?}", head.version));
    span.attribute("resource", info.resource.as_str());
    span.attribute("scope", scope);
    span.attribute("url", info.path.as_str());
    span.attribute("user-agent", header(USER_AGENT));
    span.attribute("verb", info.verb.to_uppercase());
    span
}

impl Delegate for Resources {
    fn name(&self) -> &'static str {
        self.name
    }

    fn serve<'a>(&'a self, cx: &'a mut Context, request: Request<Incoming>) -> Serving<'a> {
        Box::pin(self.answer(cx, request))
    }

    fn serves(&self, info: &RequestInfo) -> bool {
        let kinds = self.kinds.load();
        let resources = kinds.group_version(&info.group, &info.version);
        let Some(kind) = resources.and_then(|kinds| kinds.get(&info.resource)) else {
            return false;
        };
        match info.subresource.as_str() {
            "" => kind.has_verb(&info.verb),
            name => kind.facts.subresource(name).is_some_and(|own| own.verbs.contains(&info.verb)),
        }
    }
}

/// Paths that look right but are not there, and methods that they do not have.
fn check_scope(cx: &Context, kind: &Kind, method: &Method) -> Result<(), ApiError> {
    let info = &cx.info;
    if kind.is_custom() {
        return check_custom_scope(info, kind);
    }
    let is_old_watch = is_old_watch(info);
    if !is_routed(info, kind, is_old_watch) {
        return Err(ApiError::NotServed);
    }
    if method == Method::HEAD || info.verb.is_empty() || is_old_watch && method != Method::GET {
        return Err(kind.not_supported(&info.verb));
    }
    let is_across = kind.namespaced() && !is_in_namespace(info);
    if is_across && matches!(info.verb.as_str(), "create" | "deletecollection") {
        return Err(ApiError::MethodNotAllowed);
    }
    Ok(())
}

/// Compat: custom resources have no routes. Their verb decides, so that HEAD is answered as GET is, and any method at
/// the old path of watches is a watch.
fn check_custom_scope(info: &RequestInfo, kind: &Kind) -> Result<(), ApiError> {
    let across = matches!(info.verb.as_str(), "list" | "watch");
    match (is_in_namespace(info), kind.namespaced()) {
        (true, false) => Err(ApiError::UnknownPath),
        (false, true) if !across => Err(ApiError::UnknownPath),
        _ => Ok(()),
    }
}

/// Whether kube-apiserver has a route of this path, by whatever method. A namespaced object has none without its
/// namespace, a cluster-wide one none inside of one, and nothing is below a subresource.
fn is_routed(info: &RequestInfo, kind: &Kind, is_old_watch: bool) -> bool {
    let in_namespace = is_in_namespace(info);
    if in_namespace && !kind.namespaced() {
        return false;
    }
    let is_across = kind.namespaced() && !in_namespace;
    let has_any = |verbs: &[&str]| verbs.iter().any(|verb| kind.has_verb(verb));
    match info.parts.len() {
        1 if is_old_watch => kind.has_verb("watch"),
        1 if is_across => kind.has_verb("list"),
        1 => has_any(&["create", "list", "deletecollection"]),
        _ if is_across => false,
        2 if is_old_watch => kind.has_verb("watch"),
        2 => has_any(&["get", "update", "patch", "delete"]),
        PARTS_MAX => !is_old_watch && kind.facts.subresource(&info.subresource).is_some(),
        _ => false,
    }
}

/// A namespace is said to be in itself.
fn is_in_namespace(info: &RequestInfo) -> bool {
    let is_namespace = info.resource == "namespaces" && info.parts.get(1) == Some(&info.namespace);
    !info.namespace.is_empty() && !is_namespace
}

/// `/api/v1/watch/pods`, not `/api/v1/pods?watch=1`.
fn is_old_watch(info: &RequestInfo) -> bool {
    let prefix_parts = if info.prefix == "apis" { 3 } else { 2 };
    info.verb == "watch"
        && info.path.trim_matches('/').split('/').nth(prefix_parts) == Some("watch")
}

/// Resource, name and subresource.
pub(crate) const PARTS_MAX: usize = 3;

/// The body of a create, update, patch or delete, as far as it is allowed to go.
pub async fn read_body(mut body: Incoming) -> Result<Bytes, ApiError> {
    let (mut kept, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| ApiError::BadRequest(format!("reading the body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length <= BODY_BYTES_MAX {
            kept.push(data);
        } else if length > DRAIN_BYTES_MAX {
            break;
        }
    }
    if length > BODY_BYTES_MAX {
        let message = format!("Request entity too large: limit is {BODY_BYTES_MAX}");
        return Err(ApiError::TooLarge(message));
    }
    Ok(match kept.len() {
        1 => kept.remove(0),
        _ => kept.concat().into(),
    })
}

/// Twice what etcd takes, as upstream.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// So much is read of a body that is too large: a client that is still sending when its connection
/// closes doesn't see the answer.
const DRAIN_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// A request that does not borrow from its connection, so that another thread can serve it.
struct OwnedRequest {
    engine: Arc<Engine>,
    kind: Arc<Kind>,
    info: RequestInfo,
    user: User,
    authenticated_user: Option<User>,
    query: Query,
    headers: HeaderMap,
    body: Bytes,
    warnings: Arc<Warnings>,
    audit: Arc<AuditRecord>,
    websocket: bool,
    deadline: Option<Instant>,
}

impl OwnedRequest {
    fn new(cx: &Context, request: &ResourceRequest<'_>) -> Self {
        Self {
            engine: request.engine.clone(),
            kind: request.kind.clone(),
            info: request.info.clone(),
            user: request.user.clone(),
            authenticated_user: cx.authenticated_user.clone(),
            query: request.query.clone(),
            headers: request.headers.clone(),
            body: request.body.clone(),
            warnings: cx.warnings.clone(),
            audit: cx.audit.record.clone(),
            websocket: request.websocket,
            deadline: request.deadline,
        }
    }

    async fn serve(self) -> Result<ResourceResponse, ApiError> {
        let request = ResourceRequest {
            engine: &self.engine,
            kind: &self.kind,
            info: &self.info,
            user: &self.user,
            authenticated_user: self.authenticated_user.as_ref().unwrap_or(&self.user),
            query: &self.query,
            headers: &self.headers,
            body: self.body,
            warnings: &self.warnings,
            audit: &self.audit,
            websocket: self.websocket,
            deadline: self.deadline,
        };
        registry::serve(&request).await
    }
}

/// The chunks of a list as a body has them.
struct ListSource(Box<dyn ListChunks>);

impl ChunkSource for ListSource {
    fn next_chunk(&mut self) -> Option<Result<Bytes, BoxError>> {
        self.0.next().map(|chunk| chunk.map_err(Into::into))
    }

    fn compress_next(&mut self, gzip: &mut GzipWriter) -> Option<Result<(), BoxError>> {
        self.0.compress_next(gzip).map(|written| written.map_err(Into::into))
    }
}

fn response(answer: ResourceResponse, pool: Option<&CpuPool>) -> Response<Body> {
    let body = match answer.payload {
        Payload::Bytes(bytes) => Body::full(bytes),
        Payload::Chunks(chunks) => Body::chunks_of(Box::new(ListSource(chunks))),
        Payload::CostlyChunks(chunks) => {
            let chunks = Box::new(ListSource(chunks));
            match pool {
                Some(pool) => Body::pooled_chunks_of(chunks, pool.clone()),
                None => Body::chunks_of(chunks),
            }
        }
        Payload::Stream(stream) => Body::events(stream),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::OK);
    response.headers_mut().reserve(HEADERS);
    let content_type = HeaderValue::from_static(answer.content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// As many as a response has in the end, so that their table is made once.
const HEADERS: usize = 8;
