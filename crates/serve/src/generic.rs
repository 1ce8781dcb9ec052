//! The endpoints that every API server has: index, version, health, metrics, log verbosity.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use codec::negotiate;
use flowcontrol::FlowController;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, LOCATION},
};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use meta::{ApiError, Query};

use crate::{
    Body,
    context::Context,
    cpu_pool::CpuPool,
    delegate::{Claims, Delegate, Serving},
    health::{self, Health},
    logs,
    metrics::{Metrics, process},
    zpages::Zpages,
};

pub struct Generic {
    pub health: Arc<Health>,
    pub metrics: Arc<Metrics>,
    /// The answer to `/version`.
    pub version: Bytes,
    /// All paths of the whole chain, sorted.
    pub index: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Priority and fairness, unless it is off.
    pub flow_control: Option<Arc<FlowController>>,
    /// `--profiling`: the other paths below `/debug/` are served.
    pub profiling: bool,
    /// `/logs` is served from this directory; None without `--enable-logs-handler`.
    pub logs: Option<&'static Path>,
    pub zpages: Zpages,
    /// Where files are read.
    pub cpu_pool: CpuPool,
    /// Sets the verbosity of the log.
    pub set_verbosity: SetVerbosity,
}

pub type SetVerbosity = Arc<dyn Fn(i32) + Send + Sync>;

impl Delegate for Generic {
    fn name(&self) -> &'static str {
        "generic"
    }

    fn serve<'a>(&'a self, cx: &'a mut Context, request: Request<Incoming>) -> Serving<'a> {
        Box::pin(async move { self.answer(&cx.info.path, request).await })
    }
}

impl Generic {
    /// The paths that it answers, below `/debug/` only with `--profiling`.
    pub fn claims() -> Claims {
        let paths = vec![
            "/",
            "/index.html",
            "/version",
            "/version/",
            "/metrics",
            "/metrics/slis",
            "/healthz",
            "/healthz/*",
            "/livez",
            "/livez/*",
            "/readyz",
            "/readyz/*",
            "/debug/*",
            "/flagz",
            "/statusz",
            "/logs",
            "/logs/*",
        ];
        Claims { paths, ..Claims::default() }
    }

    async fn answer(
        &self,
        path: &str,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, ApiError> {
        let query = Query::parse(request.uri().query().unwrap_or_default())?;
        if let Some(answer) = self.health.answer(path, &query) {
            return Ok(answer);
        }
        Ok(match path {
            "/" | "/index.html" => json(self.render_index()),
            "/version" | "/version/" if request.method() != Method::GET => {
                return Err(ApiError::MethodNotAllowed);
            }
            "/version" | "/version/" => {
                accept_only(&request, "application/json")?;
                json(self.version.clone())
            }
            // Compat: metrics can be reset where profiling is on, SLIs always.
            "/metrics" if self.profiling && request.method() == Method::DELETE => {
                self.metrics.reset();
                text("text/plain; charset=utf-8", "metrics reset\n")
            }
            "/metrics" => metrics(self.metrics.render()),
            "/metrics/slis" if request.method() == Method::DELETE => {
                self.health.reset_slis();
                text("text/plain; charset=utf-8", "metrics reset\n")
            }
            "/metrics/slis" => metrics(self.health.slis()),
            "/flagz" | "/statusz" => {
                let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
                let answer = self.zpages.answer(path, accept, || (self.index)());
                return answer.unwrap_or(Err(ApiError::UnknownPath));
            }
            path if path == "/logs" || path.starts_with("/logs/") => {
                let Some(root) = self.logs else { return Err(ApiError::UnknownPath) };
                if request.method() != Method::GET {
                    return Err(ApiError::MethodNotAllowed);
                }
                return Ok(logs::answer(path, root, self.cpu_pool.clone()).await);
            }
            "/debug/api_priority_and_fairness/dump_priority_levels"
            | "/debug/api_priority_and_fairness/dump_queues"
            | "/debug/api_priority_and_fairness/dump_requests" => match &self.flow_control {
                Some(controller) => dump_flow_control(controller, path, &query),
                None => return Err(ApiError::UnknownPath),
            },
            _ if !self.profiling => return Err(ApiError::UnknownPath),
            path => {
                let answer = debug_answer(path, request, &self.set_verbosity).await;
                return answer.unwrap_or(Err(ApiError::UnknownPath));
            }
        })
    }

    fn render_index(&self) -> Vec<u8> {
        let mut out = b"{\n  \"paths\": [".to_vec();
        for (at, path) in (self.index)().iter().enumerate() {
            out.extend_from_slice(if at > 0 { b",\n    " } else { b"\n    " });
            meta::json::write_string(&mut out, path);
        }
        out.extend_from_slice(b"\n  ]\n}");
        out
    }
}

/// Compat: a document that kube-apiserver's router serves in one format is a 406 for clients that do not accept it.
pub fn accept_only(request: &Request<Incoming>, produced: &str) -> Result<(), ApiError> {
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    negotiate::accept_only(accept, produced)
        .map_err(|error| ApiError::NotRepresentable(error.to_string()))
}

/// What `--profiling` serves, here and on `--debug-socket-path`. None: another path.
pub(crate) async fn debug_answer(
    path: &str,
    request: Request<Incoming>,
    set_verbosity: &SetVerbosity,
) -> Option<Result<Response<Body>, ApiError>> {
    Some(Ok(match path {
        "/debug/flags/v" => verbosity(request, set_verbosity).await,
        "/debug/pprof/profile" => {
            let query = Query::parse(request.uri().query().unwrap_or_default());
            let seconds = query.ok().and_then(|query| query.integer("seconds").ok().flatten());
            return Some(crate::profile::cpu(seconds.unwrap_or(30)).await);
        }
        "/debug/pprof" => redirect("/debug/pprof/"),
        "/debug/pprof/" => text("text/plain; charset=utf-8", crate::profile::index()),
        path => crate::profile::of_go(path.strip_prefix("/debug/pprof/")?),
    }))
}

/// `PUT /debug/flags/v` with a number.
async fn verbosity(request: Request<Incoming>, set: &SetVerbosity) -> Response<Body> {
    let answer = |code, text: String| {
        let mut response = health::text(code, text + "\n");
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        response
    };
    if request.method() != Method::PUT {
        return answer(StatusCode::NOT_ACCEPTABLE, "unsupported http method".to_owned());
    }
    let body = Limited::new(request.into_body(), 64).collect().await;
    let given = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let given = String::from_utf8_lossy(&given);
    // Go knows no sign in front of what can't be negative.
    let number = given.parse::<u32>().ok().filter(|_| !given.starts_with('+'));
    match number.and_then(|number| i32::try_from(number).ok()) {
        Some(number) => {
            set(number);
            answer(StatusCode::OK, format!("successfully set klog.logging.verbosity to {given}"))
        }
        None => {
            let digits = !given.is_empty() && given.bytes().all(|byte| byte.is_ascii_digit());
            let why = if digits { "value out of range" } else { "invalid syntax" };
            let given = meta::field::quote(&given);
            answer(StatusCode::BAD_REQUEST, format!("strconv.ParseUint: parsing {given}: {why}"))
        }
    }
}

const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// Prometheus' handler for Go names the start of the process, so that scrapers can tell a restart.
fn metrics(body: impl Into<Bytes>) -> Response<Body> {
    let mut response = text(METRICS, body);
    if let Some(started) = process::started() {
        // Whole seconds, as the header has them.
        response.headers_mut().insert("process-start-time-unix", (started as u64).into());
    }
    response
}

/// Compat: kube-apiserver serves them without `--profiling` too, and lets Go name the content type.
fn dump_flow_control(controller: &FlowController, path: &str, query: &Query) -> Response<Body> {
    let dump = match path.rsplit('/').next() {
        Some("dump_priority_levels") => controller.dump_priority_levels(),
        Some("dump_queues") => controller.dump_queues(),
        _ => controller.dump_requests(!query.text("includeRequestDetails").is_empty()),
    };
    text("text/plain; charset=utf-8", dump)
}

fn redirect(to: &'static str) -> Response<Body> {
    let page = format!("<a href=\"{to}\">Found</a>.\n\n");
    let mut response = text("text/html; charset=utf-8", page);
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    response
}

fn json(body: impl Into<Bytes>) -> Response<Body> {
    text("application/json", body)
}

fn text(content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
