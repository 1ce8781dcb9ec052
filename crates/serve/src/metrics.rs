//! `/metrics`: kube-apiserver's names, so that its dashboards and alerts work.

mod process;

use std::{sync::Arc, time::Instant};

use http::{Response, header::CONTENT_LENGTH};
use meta::User;
use prometheus::{
    Encoder as _, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};

use self::process::Process;
use crate::{Body, context::Context};

/// The metrics of the request chain, and the registry that everybody registers with.
pub struct Metrics {
    pub registry: Registry,
    pub panics: IntCounter,
    requests: IntCounterVec,
    durations: HistogramVec,
    sli_durations: HistogramVec,
    response_sizes: HistogramVec,
    terminations: IntCounterVec,
    authentications: IntCounterVec,
    users: IntCounterVec,
    in_flight_reading: IntGauge,
    in_flight_mutating: IntGauge,
    long_running: IntGaugeVec,
}

impl Metrics {
    pub fn new() -> Arc<Self> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels).expect("valid names");
            registry.register(Box::new(counter.clone())).expect("registered once");
            counter
        };
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            let gauge = IntGaugeVec::new(Opts::new(name, help), labels).expect("valid names");
            registry.register(Box::new(gauge.clone())).expect("registered once");
            gauge
        };
        let requests = counter(
            "apiserver_request_total",
            "Requests by verb, resource and HTTP code.",
            &[
                "code",
                "component",
                "dry_run",
                "group",
                "resource",
                "scope",
                "subresource",
                "verb",
                "version",
            ],
        );
        let histogram = |name: &str, help: &str, buckets: &[f64], labels: &[&str]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            let histogram = HistogramVec::new(options, labels).expect("valid names");
            registry.register(Box::new(histogram.clone())).expect("registered once");
            histogram
        };
        let durations = histogram(
            "apiserver_request_duration_seconds",
            "Time to the answer's head.",
            &DURATION_BUCKETS,
            &[
                "component",
                "dry_run",
                "group",
                "resource",
                "scope",
                "subresource",
                "verb",
                "version",
            ],
        );
        let sli_durations = histogram(
            "apiserver_request_sli_duration_seconds",
            "Time to the answer's head, without what others took for it.",
            &DURATION_BUCKETS,
            &SUBJECT,
        );
        let response_sizes = histogram(
            "apiserver_response_sizes",
            "Bytes of answers to reads.",
            &SIZE_BUCKETS,
            &SUBJECT,
        );
        let mut with_code = vec!["code"];
        with_code.extend(SUBJECT);
        let terminations = counter(
            "apiserver_request_terminations_total",
            "Requests that were ended because the server was too busy or too slow.",
            &with_code,
        );
        let authentications = counter(
            "authentication_attempts",
            "Requests by whether the client could be told.",
            &["result"],
        );
        let users = counter(
            "authenticated_user_requests",
            "Requests by user, where the name is a known one.",
            &["username"],
        );
        registry.register(Box::new(Process::new())).expect("registered once");
        let in_flight = gauge(
            "apiserver_current_inflight_requests",
            "Requests under way, watches excepted.",
            &["request_kind"],
        );
        let long_running = gauge(
            "apiserver_longrunning_requests",
            "Watches and other long-running requests under way.",
            &["component", "group", "resource", "scope", "subresource", "verb", "version"],
        );
        let panics = IntCounter::new("apiserver_request_panics_total", "Requests that panicked.")
            .expect("valid names");
        registry.register(Box::new(panics.clone())).expect("registered once");
        Arc::new(Self {
            in_flight_reading: in_flight.with_label_values(&["readOnly"]),
            in_flight_mutating: in_flight.with_label_values(&["mutating"]),
            registry,
            panics,
            requests,
            durations,
            sli_durations,
            response_sizes,
            terminations,
            authentications,
            users,
            long_running,
        })
    }

    /// Counts a request as under way until the guard is dropped.
    pub(crate) fn enter(&self, cx: &Context) -> Entered {
        let gauge = if cx.info.is_long_running() {
            let [group, version, resource, subresource] = subject(cx);
            let (scope, verb) = (scope(cx), verb(cx));
            let labels = [COMPONENT, group, resource, scope, subresource, &verb, version];
            self.long_running.with_label_values(&labels)
        } else if cx.info.is_read_only() || cx.info.verb == "head" {
            self.in_flight_reading.clone()
        } else {
            self.in_flight_mutating.clone()
        };
        gauge.inc();
        Entered(gauge)
    }

    /// Counts an answered request.
    pub(crate) fn answered(&self, cx: &Context, response: &mut Response<Body>) {
        let [group, version, resource, subresource] = subject(cx);
        let (scope, verb) = (scope(cx), verb(cx));
        let dry_run = "";
        let code = response.status();
        let code = code.as_str();
        let labels =
            [code, COMPONENT, dry_run, group, resource, scope, subresource, &verb, version];
        self.requests.with_label_values(&labels).inc();
        // A watch's duration says nothing about the server.
        if !cx.info.is_long_running() {
            let seconds = Instant::now().duration_since(cx.received).as_secs_f64();
            self.durations.with_label_values(&labels[1..]).observe(seconds);
            let subject = [COMPONENT, group, resource, scope, subresource, &verb, version];
            self.sli_durations.with_label_values(&subject).observe(seconds);
            if matches!(verb.as_str(), "GET" | "LIST") {
                let sizes = self.response_sizes.with_label_values(&subject);
                match response.headers().get(CONTENT_LENGTH) {
                    Some(length) => sizes.observe(number(length)),
                    None => response.body_mut().measure(sizes),
                }
            }
        }
    }

    /// Counts a request that was not served to its end.
    pub(crate) fn cut_off(&self, cx: &Context, code: u16) {
        let [group, version, resource, subresource] = subject(cx);
        let (code, scope, verb) = (code.to_string(), scope(cx), verb(cx));
        let labels = [&code, COMPONENT, group, resource, scope, subresource, &verb, version];
        self.terminations.with_label_values(&labels).inc();
    }

    /// Counts who it was that asked, or that nobody knows.
    pub(crate) fn authenticated(&self, user: Option<&User>) {
        let result = if user.is_some() { "success" } else { "failure" };
        self.authentications.with_label_values(&[result]).inc();
        if let Some(user) = user {
            self.users.with_label_values(&[known_user(&user.name)]).inc();
        }
    }

    /// The text format 0.0.4.
    pub fn render(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 * 1024);
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut out);
        out
    }
}

const COMPONENT: &str = "apiserver";
const SUBJECT: [&str; 7] =
    ["component", "group", "resource", "scope", "subresource", "verb", "version"];

fn number(header: &http::HeaderValue) -> f64 {
    header.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Users are many; those that every cluster has are told apart.
fn known_user(name: &str) -> &str {
    match name {
        "admin"
        | "system:apiserver"
        | "system:kube_scheduler"
        | "system:kube_controller_manager" => name,
        _ if name.contains('@') => "email_id",
        _ => "other",
    }
}

/// As upstream.
const DURATION_BUCKETS: [f64; 22] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0,
];

/// As upstream: 1 KB, times ten, up to 1 GB.
const SIZE_BUCKETS: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// One request under way.
pub(crate) struct Entered(IntGauge);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn subject(cx: &Context) -> [&str; 4] {
    let info = &cx.info;
    if info.is_resource {
        [&info.group, &info.version, &info.resource, &info.subresource]
    } else {
        // Paths are made up by clients: only known ones may become labels.
        let known =
            ["/healthz", "/livez", "/readyz", "/metrics", "/version", "/openapi/v2", "/openapi/v3"];
        let path = known.iter().find(|known| **known == info.path).copied().unwrap_or_default();
        ["", "", "", path]
    }
}

fn scope(cx: &Context) -> &'static str {
    let info = &cx.info;
    if !info.is_resource {
        ""
    } else if !info.name.is_empty() || info.verb == "create" {
        "resource"
    } else if info.namespace.is_empty() {
        "cluster"
    } else {
        "namespace"
    }
}

/// Upper case, and none that a client made up.
fn verb(cx: &Context) -> String {
    match cx.info.verb.as_str() {
        verb @ ("get" | "list" | "watch" | "patch" | "delete" | "deletecollection" | "proxy"
        | "head") => verb.to_ascii_uppercase(),
        "create" | "post" => "POST".to_owned(),
        "update" | "put" => "PUT".to_owned(),
        _ => "other".to_owned(),
    }
}
