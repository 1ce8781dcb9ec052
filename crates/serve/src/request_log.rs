//! The log line of a request, from `--v=3`, with the fields of kube-apiserver's `httplog`; and the line
//! about a request that was slow, at any verbosity.
//!
//! `pintle::logging` knows this module: its `debug!` is logged from 3 instead of 4.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use flowcontrol::FlowSchema;
use http::{Request, Response, StatusCode, header::USER_AGENT};

use crate::{
    audit::request_uri,
    context::Context,
    filters::latency::Filter,
    metrics::{self, RequestLabels},
};

/// Logs a request when the last byte of its answer is sent, and the guard is dropped.
pub(crate) struct RequestLog {
    verb: &'static str,
    uri: String,
    user_agent: String,
    audit_id: String,
    source: SocketAddr,
    received: std::time::Instant,
    flow_schema: Option<Arc<FlowSchema>>,
    slow_filters: Vec<(Filter, Duration)>,
    code: StatusCode,
}

/// What is taken from the request before it goes down the chain; None: no filter reads it.
pub(crate) struct Sent {
    uri: String,
    user_agent: String,
}

impl Sent {
    pub(crate) fn of<B>(request: &Request<B>) -> Option<Self> {
        if !tracing::event_enabled!(tracing::Level::DEBUG) {
            return None;
        }
        let agent = request.headers().get(USER_AGENT).map(http::HeaderValue::as_bytes);
        let user_agent = String::from_utf8_lossy(agent.unwrap_or_default()).into_owned();
        Some(Self { uri: request_uri(request.uri()), user_agent })
    }

    pub(crate) fn answered<B>(
        self,
        cx: &mut Context,
        asked: &RequestLabels,
        response: &Response<B>,
    ) -> RequestLog {
        RequestLog {
            verb: metrics::logged_verb(cx, asked),
            uri: self.uri,
            user_agent: self.user_agent,
            audit_id: cx.audit.id.clone(),
            source: cx.peer.address,
            received: cx.received,
            flow_schema: cx.flow_schema.clone(),
            slow_filters: std::mem::take(&mut cx.slow_filters),
            code: response.status(),
        }
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let schema = self.flow_schema.as_deref();
        let slow = |filter| {
            let found = self.slow_filters.iter().find(|(slow, _)| *slow == filter);
            found.map(|(_, latency)| go_duration(*latency))
        };
        let hijacked = self.code == StatusCode::SWITCHING_PROTOCOLS;
        tracing::debug!(
            verb = self.verb,
            URI = self.uri,
            latency = go_duration(self.received.elapsed()),
            userAgent = self.user_agent,
            "audit-ID" = self.audit_id,
            srcIP = %self.source,
            fl_authentication = slow(Filter::Authentication),
            fl_audit = slow(Filter::Audit),
            fl_impersonation = slow(Filter::Impersonation),
            fl_constrainedimpersonation = slow(Filter::ConstrainedImpersonation),
            fl_priorityandfairness = slow(Filter::PriorityAndFairness),
            fl_authorization = slow(Filter::Authorization),
            apf_pl = schema.map(|schema| tracing::field::display(schema.level_name())),
            apf_fs = schema.map(|schema| tracing::field::display(&schema.name)),
            hijacked = hijacked.then_some(true),
            resp = (!hijacked).then_some(self.code.as_u16()),
            "HTTP"
        );
    }
}

/// Logs a request that took long, at any verbosity, in the form of kube-apiserver's traces.
pub(crate) fn log_if_slow(cx: &Context) {
    let total = cx.received.elapsed();
    if total < SLOW || cx.info.is_long_running() || !cx.info.is_resource {
        return;
    }
    let info = &cx.info;
    let operation = match info.verb.as_str() {
        "get" => "Get",
        "list" => "List",
        "create" => "Create",
        "update" => "Update",
        "patch" => "Patch",
        _ => "Delete",
    };
    let steps: String = cx
        .slow_filters
        .iter()
        .map(|(filter, latency)| format!(" ---\"{}\" {}ms", filter.name(), latency.as_millis()))
        .collect();
    tracing::info!(
        "Trace[{}]: \"{operation}\" audit-id:{},client:{},api-group:{},api-version:{},name:{},\
         subresource:{},namespace:{},resource:{},url:{},verb:{} (total time: {}ms):{steps}",
        getrandom::u32().unwrap_or_default(),
        cx.audit.id,
        cx.peer.address.ip(),
        info.group,
        info.version,
        info.name,
        info.subresource,
        info.namespace,
        info.resource,
        info.path,
        info.verb.to_uppercase(),
        total.as_millis(),
    );
}

/// Compat: what kube-apiserver's handlers call long.
const SLOW: Duration = Duration::from_millis(500);

fn go_duration(duration: Duration) -> String {
    let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    meta::time::Duration { nanos }.to_string()
}
