//! The path of a request, in one function, in the order it is walked. The order is
//! kube-apiserver's; what is not built yet has its line.

#[cfg(test)]
mod cost;

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use audit::Auditor;
use auth::{Authenticator, Authorizer, authn::TokenNotes};
use codec::{
    negotiate::{self, Offered},
    status,
};
use futures_util::FutureExt as _;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{
        ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, USER_AGENT,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use hyper::body::{Body as _, Incoming};
use meta::{ApiError, LatencyLayer, Query, User};
use trace::{Scope, Tracer};

use crate::{
    Body,
    audit::{self as request_audit, Outcome, RequestAudit},
    connection::{Handler, HandlerFuture, Peer},
    context::Context,
    cpu_pool::CpuPool,
    delegate::{Delegate, Delegates, PeerProxy},
    filters::{
        audit_id::audit_id,
        authenticate::authenticate,
        authorize::authorize,
        cors::{self, Cors},
        deadline::{set_deadline, timed_out},
        impersonate::impersonate,
        latency::{Filter, Timed},
        request_info::request_info,
        request_span::{self, request_span},
        response_headers,
        seats::{FlowControl, take_seat},
    },
    gzip,
    health::text,
    lifecycle::{Draining, Ending, InFlight, drain},
    metrics::{self, Metrics},
    request_log::{Sent, log_if_slow},
    storage_versions::StorageVersions,
};

/// Everything that the chain needs, given once.
pub struct Server {
    pub authenticator: Arc<Authenticator>,
    pub authorizer: Arc<dyn Authorizer>,
    /// None: nothing is audited.
    pub audit: Option<Arc<Auditor>>,
    /// None: no spans are recorded.
    pub tracer: Option<Tracer>,
    /// Feature gate `ConstrainedImpersonation`.
    pub constrained_impersonation: bool,
    /// Feature gate `UnauthenticatedHTTP2DOSMitigation`.
    pub unauthenticated_http2_dos_mitigation: bool,
    pub delegates: Arc<Delegates>,
    /// None: writes do not wait for the StorageVersions of their resources.
    pub storage_versions: Option<Arc<StorageVersions>>,
    /// None: no request goes to other API servers of the cluster.
    pub peer_proxy: Option<Arc<dyn PeerProxy>>,
    pub in_flight: Arc<InFlight>,
    /// `--shutdown-send-retry-after`.
    pub send_retry_after: bool,
    pub metrics: Arc<Metrics>,
    pub flow_control: FlowControl,
    /// Where responses are compressed.
    pub cpu_pool: CpuPool,
    pub request_timeout: Duration,
    pub cors: Cors,
    /// The formats that answers can have.
    pub offered: Offered,
    pub hsts: Option<HeaderValue>,
    /// The share of requests on HTTP/2 whose connection is asked to go elsewhere.
    pub goaway_chance: f64,
}

/// The chain as the listener sees it.
pub struct Chain(pub Arc<Server>);

impl Handler for Chain {
    fn handle(&self, request: Request<Incoming>, peer: Arc<Peer>) -> HandlerFuture {
        let server = self.0.clone();
        Box::pin(async move { handle(&server, request, peer).await })
    }
}

/// What surrounds a request: its name in the logs, the catching of panics, headers, compression,
/// metrics. What decides about it is in `walk`.
async fn handle(server: &Server, request: Request<Incoming>, peer: Arc<Peer>) -> Response<Body> {
    let mut cx = Context::new(peer);
    cx.audit = RequestAudit::new(audit_id(request.headers()), server.audit.as_ref());
    let origin = server.cors.origin(request.headers());
    let asked = ErrorFormat::of(&request);
    let counted = metrics::RequestLabels::of(&request);
    let logged = Sent::of(&request);
    let gzip_wanted = gzip::is_accepted(request.headers());
    let head_only = request.method() == Method::HEAD;
    let walked = AssertUnwindSafe(walk(server, &mut cx, request)).catch_unwind().await;
    let (mut response, outcome) = match walked {
        Ok(Ok(response)) => (response, Outcome::Answered(None)),
        Ok(Err(error)) => {
            if matches!(error, ApiError::Overloaded { .. } | ApiError::Timeout(_)) {
                server.metrics.cut_off(&cx, error.status().code);
            }
            let mut response = error_response(&error, &asked, server.offered);
            if cx.no_sniff {
                response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
            }
            let status = (!is_plain_text(&error)).then(|| error.status());
            (response, Outcome::Answered(status))
        }
        Err(panic) => {
            tracing::error!(
                audit_id = cx.audit.id,
                path = cx.info.path,
                "request handler panicked"
            );
            server.metrics.panics.inc();
            (panicked(), Outcome::Panicked(panic_message(&*panic)))
        }
    };
    response_headers::add_headers(response.headers_mut(), &cx, server.hsts.as_ref());
    if let Some(origin) = origin {
        cors::add_headers(response.headers_mut(), origin);
    }
    server.metrics.answered(&cx, &counted, &mut response);
    request_span::answered(&mut cx.span, response.status());
    log_if_slow(&cx);
    let log = logged.map(|sent| sent.answered(&mut cx, &counted, &response));
    request_audit::finish(&mut cx, &mut response, outcome).await;
    let mut response = if head_only {
        without_body(response)
    } else {
        gzip::compress(gzip_wanted, response, &server.cpu_pool).await
    };
    // Ready to be sent: how long that takes is up to the client, which must not keep others out.
    drop(cx.seat.take());
    if let Some(deadline) = cx.deadline {
        response.body_mut().set_send_by(deadline + SEND_GRACE);
    }
    for guard in cx.take_held() {
        response.body_mut().hold(guard);
    }
    if cx.span.is_recorded() {
        response.body_mut().hold(Box::new(cx.span));
    }
    if let Some(log) = log {
        response.body_mut().hold(Box::new(log));
    }
    response
}

/// How long a client may go on reading after the request's deadline.
const SEND_GRACE: Duration = Duration::from_secs(30);

/// The answer to a HEAD. HTTP/1.1 would leave the body out by itself, HTTP/2 doesn't.
fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact() {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Response::from_parts(head, Body::full(Vec::new()))
}

/// Every request walks down this function: the order of the lines is the order of the filters.
async fn walk(
    server: &Server,
    cx: &mut Context,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    // Not needed: mux-and-discovery-complete. The listener opens when all is registered.
    cx.info = match request_info(request.method(), request.uri()) {
        Err(ApiError::Internal(why)) => {
            let why = format!("failed to create RequestInfo: {why}");
            return Ok(internal_error(request.uri(), &why));
        }
        info => info?,
    };
    if server.goaway_chance > 0.0 && chance() < server.goaway_chance {
        cx.peer.close();
    }
    // Aggregator, then built-in kinds, then custom kinds, then 404.
    let delegate = server.delegates.find(&cx.info);
    let served = delegate.serves(&cx.info);
    // Shutdown waits for the requests inside; watches have a count of their own.
    let ending = match server.in_flight.enter(cx.info.is_long_running()) {
        Ok(entered) => {
            let ending = entered.ending();
            cx.hold(entered);
            ending
        }
        Err(Draining) if drain::is_exempt(&cx.info.path, request.headers()) => Ending::never(),
        Err(Draining) => {
            cx.peer.close();
            return Ok(drain::refusal(
                server.send_retry_after,
                request.version() == Version::HTTP_2,
            ));
        }
    };
    if !cx.info.is_long_running() {
        cx.hold(server.metrics.enter(cx));
    }
    let query = request.uri().query().unwrap_or_default();
    if let Err(error) = set_deadline(cx, query, server.request_timeout) {
        request_audit::refused(server.audit.as_ref(), cx, &request);
        return Err(error);
    }
    if server.cors.origin(request.headers()).is_some()
        && let Some(answer) = Cors::preflight(request.method())
    {
        return Ok(answer);
    }
    let peer = cx.peer.clone();
    let filter = Timed::start(Filter::Authentication, &Scope::default());
    let began = filter.began();
    let mitigation = server.unauthenticated_http2_dos_mitigation;
    let presented =
        request.headers().contains_key(AUTHORIZATION) || !peer.certificates().is_empty();
    let (headers, path) = (request.headers_mut(), &cx.info.path);
    let mut notes = TokenNotes::default();
    let user =
        authenticate(&server.authenticator, headers, &peer, path, mitigation, &mut notes).await;
    cx.note(notes);
    server.metrics.authenticated(user.as_ref().map_err(|_| presented), cx, began);
    let authenticated_in = filter.complete(&server.metrics, cx);
    if user.is_err() {
        request_audit::refused(server.audit.as_ref(), cx, &request);
    }
    cx.user = user?;
    // After authentication, so that only trusted clients decide what is recorded.
    cx.span = request_span(server.tracer.as_ref(), cx, &request);
    drop(cx.span.scope().start(Filter::Authentication.name()).began(began));
    let span = cx.span.scope();
    let filter = Timed::start(Filter::Audit, &span);
    let begun = filter.run(request_audit::begin(server.audit.as_ref(), cx, &request)).await;
    filter.complete(&server.metrics, cx);
    if !begun {
        return Ok(internal_error(request.uri(), "failed to store audit event"));
    }
    cx.audit.record.track(LatencyLayer::Authentication, authenticated_in);
    let constrained = server.constrained_impersonation;
    let filter = Timed::start(
        if constrained { Filter::ConstrainedImpersonation } else { Filter::Impersonation },
        &span,
    );
    let counted = constrained.then_some(&server.metrics.impersonation);
    let headers = request.headers_mut();
    let impersonated = filter.run(impersonate(&*server.authorizer, cx, headers, counted)).await;
    let impersonated_in = filter.complete(&server.metrics, cx);
    cx.audit.record.track(LatencyLayer::Impersonation, impersonated_in);
    cx.no_sniff = impersonated.is_err();
    impersonated?;
    // So that requests that find no seat are counted by resource, except for anonymous clients.
    cx.served = served && cx.user.name != User::ANONYMOUS;
    // Before authorization, so that a flood of forbidden requests waits in line as well.
    let query = request.uri().query().unwrap_or_default();
    let filter = Timed::start(Filter::PriorityAndFairness, &span);
    let seat = filter.run(take_seat(&server.flow_control, cx, query, server.request_timeout)).await;
    let waited = filter.complete(&server.metrics, cx);
    cx.seat = seat?;
    cx.audit.record.track(LatencyLayer::QueueWait, waited);
    let filter = Timed::start(Filter::Authorization, &span);
    let (decision, allowed) = filter.run(authorize(&*server.authorizer, cx)).await;
    server.metrics.authorized(decision, filter.began());
    let authorized_in = filter.complete(&server.metrics, cx);
    cx.audit.record.track(LatencyLayer::Authorization, authorized_in);
    cx.served = served && allowed.is_ok();
    allowed?;
    if let Some(versions) = &server.storage_versions {
        versions.precondition(&cx.info, &cx.user)?;
    }
    if cx.info.is_long_running() {
        cx.hold(server.metrics.enter(cx));
    }
    // Compat: a path is taken apart without its first slashes, but looked up with them.
    if cx.info.path.starts_with("//") {
        return Err(ApiError::UnknownPath);
    }
    // A resource that this server does not have may be a peer's.
    let peers = server.peer_proxy.as_ref();
    let peers = peers.filter(|peers| peers.claims(&cx.info, request.headers()));
    let delegate = peers.map_or(delegate, |peers| peers.clone() as Arc<dyn Delegate>);
    match cx.deadline {
        None => {
            let response = span.run(delegate.serve(cx, request)).await?;
            Ok(response.map(|body| body.until(ending)))
        }
        Some(deadline) => {
            let served = tokio::time::timeout_at(deadline, span.run(delegate.serve(cx, request)));
            served.await.unwrap_or_else(|_| Err(timed_out()))
        }
    }
}

fn chance() -> f64 {
    f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

/// A failure of the chain itself, in kube-apiserver's words.
fn internal_error(uri: &Uri, why: &str) -> Response<Body> {
    let why = format!("Internal Server Error: \"{uri}\": {why}\n");
    let why = why.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text(StatusCode::INTERNAL_SERVER_ERROR, why)
}

fn panicked() -> Response<Body> {
    let why = "This request caused apiserver to panic. Look in the logs for details.\n";
    text(StatusCode::INTERNAL_SERVER_ERROR, why)
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Errors that clients do not get as a `Status`.
fn is_plain_text(error: &ApiError) -> bool {
    matches!(error, ApiError::UnknownPath | ApiError::Overloaded { .. })
}

/// How a client wants to hear of an error. Taken before the request goes down the chain.
struct ErrorFormat {
    accept: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    uri: Uri,
}

impl ErrorFormat {
    fn of(request: &Request<Incoming>) -> Self {
        let header = |name| request.headers().get(name).cloned();
        Self { accept: header(ACCEPT), user_agent: header(USER_AGENT), uri: request.uri().clone() }
    }

    fn accept(&self) -> Option<&str> {
        self.accept.as_ref()?.to_str().ok()
    }

    fn is_pretty(&self) -> bool {
        let query = Query::parse(self.uri.query().unwrap_or_default()).unwrap_or_default();
        let agent = self.user_agent.as_ref().and_then(|agent| agent.to_str().ok());
        negotiate::is_pretty(query.get("pretty"), agent)
    }
}

/// An error as its client gets it: a `Status`, or plain text where no server owns the path.
fn error_response(error: &ApiError, asked: &ErrorFormat, offered: Offered) -> Response<Body> {
    let status = error.status();
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match error {
        ApiError::UnknownPath => text(code, "404 page not found\n"),
        ApiError::Overloaded { .. } => text(code, format!("{error}\n")),
        _ => {
            let encoded = status::encode(&status, asked.accept(), asked.is_pretty(), offered);
            let mut response = Response::new(Body::full(encoded.body));
            *response.status_mut() = code;
            let content_type = HeaderValue::from_static(encoded.content_type);
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        }
    };
    let headers = response.headers_mut();
    if error.is_denied_by_authorizer() {
        headers.insert(X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
    }
    // A negative one is in the body only.
    let retry = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        headers.insert(RETRY_AFTER, HeaderValue::from(retry));
    }
    response
}

const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");
