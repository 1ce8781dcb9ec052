//! `/metrics`: kube-apiserver's names, so that its dashboards and alerts work.

mod exposition;
mod flow_control;
mod impersonation;
pub(crate) mod process;
mod since_reset;

use std::{
    cell::RefCell,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use arc_swap::ArcSwap;
use flowcontrol::FlowController;
use http::{
    HeaderMap, Request, Response,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use meta::{Query, User};
use parking_lot::Mutex;
use prometheus::{
    Encoder as _, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

pub use self::exposition::MetricsConfig;
pub(crate) use self::impersonation::ImpersonationMetrics;
use self::process::Process;
use self::since_reset::SinceReset;
use crate::{Body, context::Context, filters::latency::Filter};

/// `apiserver_request_filter_duration_seconds`. The histograms are looked up once: every request passes all
/// filters.
struct FilterDurations {
    by_label: HistogramVec,
    /// In the order of [`Filter::ALL`].
    by_filter: ArcSwap<[Histogram; Filter::ALL.len()]>,
}

impl FilterDurations {
    fn new(by_label: HistogramVec) -> Self {
        let by_filter = ArcSwap::from_pointee(Self::histograms(&by_label));
        Self { by_label, by_filter }
    }

    fn histograms(by_label: &HistogramVec) -> [Histogram; Filter::ALL.len()] {
        Filter::ALL.map(|filter| by_label.with_label_values(&[filter.name()]))
    }

    fn observe(&self, filter: Filter, latency: Duration) {
        self.by_filter.load()[filter as usize].observe(latency.as_secs_f64());
    }

    fn reset(&self) {
        self.by_label.reset();
        self.by_filter.store(Arc::new(Self::histograms(&self.by_label)));
    }
}

/// Lets a metric begin anew.
type Reset = Box<dyn Fn() + Send + Sync>;

/// The metrics of the request chain, and the registry of all other metrics.
pub struct Metrics {
    pub registry: Registry,
    pub panics: IntCounter,
    requests: IntCounterVec,
    durations: HistogramVec,
    sli_durations: HistogramVec,
    field_validation_durations: HistogramVec,
    response_sizes: HistogramVec,
    request_sizes: HistogramVec,
    terminations: IntCounterVec,
    authentications: IntCounterVec,
    authentication_durations: HistogramVec,
    certificate_lifetimes: Histogram,
    authorizations: IntCounterVec,
    authorization_durations: HistogramVec,
    pub(crate) impersonation: ImpersonationMetrics,
    filter_durations: FilterDurations,
    users: IntCounterVec,
    in_flight_reading: IntGauge,
    in_flight_mutating: IntGauge,
    long_running: IntGaugeVec,
    resets: Mutex<Vec<Reset>>,
    /// For metrics that are not in `resets`.
    since_reset: SinceReset,
    config: MetricsConfig,
}

impl Metrics {
    pub fn new(config: MetricsConfig) -> Arc<Self> {
        let registry = Registry::new();
        // What these closures make begins anew with `DELETE /metrics`, but for gauges.
        let resets: RefCell<Vec<Reset>> = RefCell::default();
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels).expect("valid names");
            registry.register(Box::new(counter.clone())).expect("registered once");
            let reset = counter.clone();
            resets.borrow_mut().push(Box::new(move || reset.reset()));
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
            let reset = histogram.clone();
            resets.borrow_mut().push(Box::new(move || reset.reset()));
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
        let field_validation_durations = histogram(
            "field_validation_request_duration_seconds",
            "Time to the answer's head, by the value of fieldValidation.",
            &FIELD_VALIDATION_BUCKETS,
            &["field_validation"],
        );
        let response_sizes = histogram(
            "apiserver_response_sizes",
            "Bytes of answers to reads.",
            &SIZE_BUCKETS,
            &SUBJECT,
        );
        let request_sizes = histogram(
            "apiserver_request_body_size_bytes",
            "Bytes of the bodies of requests.",
            &(0..31).map(|n| 5e4 + 1e5 * f64::from(n)).collect::<Vec<_>>(),
            &["group", "resource", "verb"],
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
            "Requests by whether the response reached the client.",
            &["result"],
        );
        let authentication_durations = histogram(
            "authentication_duration_seconds",
            "Time to tell who the client is.",
            &DECISION_BUCKETS,
            &["result"],
        );
        let options = HistogramOpts::new(
            "apiserver_client_certificate_expiration_seconds",
            "Time that the clients' certificates have left.",
        );
        let certificate_lifetimes =
            Histogram::with_opts(options.buckets(LIFETIME_BUCKETS.to_vec())).expect("valid names");
        registry.register(Box::new(certificate_lifetimes.clone())).expect("registered once");
        let authorizations = counter(
            "authorization_attempts_total",
            "Requests by whether they were allowed.",
            &["result"],
        );
        let authorization_durations = histogram(
            "authorization_duration_seconds",
            "Time to decide whether a request is allowed.",
            &DECISION_BUCKETS,
            &["result"],
        );
        let filter_durations = histogram(
            "apiserver_request_filter_duration_seconds",
            "Time that a filter of the chain takes.",
            &FILTER_BUCKETS,
            &["filter"],
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
        if !config.disabled.is_empty() {
            let help = "Metrics that --disabled-metrics leaves out.";
            let disabled = IntCounter::new("disabled_metrics_total", help).expect("valid names");
            disabled.inc_by(config.disabled.len() as u64);
            registry.register(Box::new(disabled)).expect("registered once");
        }
        let impersonation = ImpersonationMetrics::register(&registry);
        Arc::new(Self {
            config,
            impersonation,
            in_flight_reading: in_flight.with_label_values(&["readOnly"]),
            in_flight_mutating: in_flight.with_label_values(&["mutating"]),
            registry,
            panics,
            requests,
            durations,
            sli_durations,
            field_validation_durations,
            response_sizes,
            request_sizes,
            terminations,
            authentications,
            authentication_durations,
            certificate_lifetimes,
            authorizations,
            authorization_durations,
            filter_durations: FilterDurations::new(filter_durations),
            users,
            long_running,
            resets: Mutex::new(resets.into_inner()),
            since_reset: SinceReset::default(),
        })
    }

    /// Counts a request as under way until the guard is dropped.
    pub(crate) fn enter(&self, cx: &Context) -> RunningRequest {
        let gauge = if cx.info.is_long_running() {
            let [group, version, resource, subresource] = subject(cx);
            let (scope, verb) = (scope(cx), verb(cx, false));
            let labels = [COMPONENT, group, resource, scope, subresource, verb, version];
            self.long_running.with_label_values(&labels)
        } else if cx.info.is_read_only() || cx.info.verb == "head" {
            self.in_flight_reading.clone()
        } else {
            self.in_flight_mutating.clone()
        };
        gauge.inc();
        RunningRequest(gauge)
    }

    /// Counts an answered request.
    pub(crate) fn answered(
        &self,
        cx: &Context,
        asked: &RequestLabels,
        response: &mut Response<Body>,
    ) {
        let [group, version, resource, subresource] = subject(cx);
        let (scope, verb) = (scope(cx), verb(cx, asked.apply));
        let dry_run = asked.dry_run;
        let code = response.status();
        let code = code.as_str();
        let labels = [code, COMPONENT, dry_run, group, resource, scope, subresource, verb, version];
        self.requests.with_label_values(&labels).inc();
        if let (true, Some(bytes), Some(verb)) =
            (cx.info.is_resource, asked.body_bytes, body_verb(&cx.info.verb))
        {
            self.request_sizes.with_label_values(&[group, resource, verb]).observe(bytes);
        }
        // A watch's duration says nothing about the server.
        if !cx.info.is_long_running() {
            let seconds = Instant::now().duration_since(cx.received).as_secs_f64();
            self.durations.with_label_values(&labels[1..]).observe(seconds);
            if cx.info.is_resource {
                let labels = [asked.field_validation];
                self.field_validation_durations.with_label_values(&labels).observe(seconds);
            }
            let subject = [COMPONENT, group, resource, scope, subresource, verb, version];
            let seconds = seconds - cx.waited_for_seat.as_secs_f64();
            self.sli_durations.with_label_values(&subject).observe(seconds.max(0.0));
            if matches!(verb, "GET" | "LIST") {
                let sizes = self.response_sizes.with_label_values(&subject);
                match response.headers().get(CONTENT_LENGTH) {
                    Some(length) => sizes.observe(number(length)),
                    None => response.body_mut().measure(sizes),
                }
            }
        }
    }

    /// Adds the metrics of priority and fairness.
    pub fn add_flow_control(&self, controller: Arc<FlowController>) {
        let collector = flow_control::FlowControlMetrics::new(controller);
        self.registry.register(Box::new(collector)).expect("registered once");
    }

    /// Counts a request that was not served to its end.
    pub(crate) fn cut_off(&self, cx: &Context, code: u16) {
        let [group, version, resource, subresource] = subject(cx);
        let (code, scope, verb) = (code.to_string(), scope(cx), verb(cx, false));
        let labels = [&code, COMPONENT, group, resource, scope, subresource, verb, version];
        self.terminations.with_label_values(&labels).inc();
    }

    /// Counts authentications by their result and user; Err says whether there was a credential.
    pub(crate) fn authenticated(&self, user: Result<&User, bool>, cx: &Context, began: Instant) {
        let result = match user {
            Ok(_) => "success",
            Err(true) => "error",
            Err(false) => "failure",
        };
        self.authentications.with_label_values(&[result]).inc();
        let seconds = began.elapsed().as_secs_f64();
        self.authentication_durations.with_label_values(&[result]).observe(seconds);
        if let Ok(user) = user {
            self.users.with_label_values(&[known_user(&user.name)]).inc();
        }
        if let Some(verified) = &cx.peer.identity().verified {
            let left = verified.not_after.duration_since(SystemTime::now());
            self.certificate_lifetimes.observe(left.unwrap_or_default().as_secs_f64());
        }
    }

    /// Counts what was decided about a request.
    pub(crate) fn authorized(&self, result: &str, began: Instant) {
        self.authorizations.with_label_values(&[result]).inc();
        let seconds = began.elapsed().as_secs_f64();
        self.authorization_durations.with_label_values(&[result]).observe(seconds);
    }

    /// Counts what a filter took.
    pub(crate) fn filtered(&self, filter: Filter, latency: Duration) {
        self.filter_durations.observe(filter, latency);
    }

    /// `DELETE /metrics`: all counters and histograms begin anew, whatever part of the server registered them. What is
    /// being counted now, such as requests in flight, goes on.
    pub fn reset(&self) {
        for reset in self.resets.lock().iter() {
            reset();
        }
        self.filter_durations.reset();
        self.impersonation.reset();
        self.since_reset.reset(self.registry.gather());
    }

    /// Adds to what [`Self::reset`] begins anew.
    pub fn on_reset(&self, reset: impl Fn() + Send + Sync + 'static) {
        self.resets.lock().push(Box::new(reset));
    }

    /// The text format 0.0.4.
    pub fn render(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 * 1024);
        let shown = self.since_reset.apply(self.registry.gather());
        let _ = TextEncoder::new().encode(&self.config.apply(shown), &mut out);
        out
    }
}

const COMPONENT: &str = "apiserver";
const SUBJECT: [&str; 7] =
    ["component", "group", "resource", "scope", "subresource", "verb", "version"];

fn number(header: &http::HeaderValue) -> f64 {
    header.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Users are unbounded; only those that every cluster has get a label of their own.
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

/// As upstream.
const FIELD_VALIDATION_BUCKETS: [f64; 21] = [
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0,
    30.0, 45.0, 60.0,
];

/// As upstream: 1 ms, doubled.
const DECISION_BUCKETS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];

/// As upstream.
const FILTER_BUCKETS: [f64; 13] =
    [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0, 10.0, 15.0, 30.0];

/// As upstream: half an hour to a year.
const LIFETIME_BUCKETS: [f64; 14] = [
    0.0,
    1_800.0,
    3_600.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

/// As upstream: 1 KB, times ten, up to 1 GB.
const SIZE_BUCKETS: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// What the labels need of a request that is not kept elsewhere.
pub(crate) struct RequestLabels {
    dry_run: &'static str,
    field_validation: &'static str,
    /// The patch is a server-side apply.
    apply: bool,
    body_bytes: Option<f64>,
}

impl RequestLabels {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        Self {
            dry_run: dry_run(request.uri().query().unwrap_or_default()),
            field_validation: field_validation(request.uri().query().unwrap_or_default()),
            apply: is_apply(request.headers()),
            body_bytes: request.headers().get(CONTENT_LENGTH).map(number),
        }
    }
}

/// The value is the client's, so only the known one becomes a label.
fn dry_run(query: &str) -> &'static str {
    if !query.contains("dryRun") {
        return "";
    }
    let Ok(query) = Query::parse(query) else { return "invalid" };
    let mut given = query.all("dryRun").map(|value| value == "All");
    match given.next() {
        None => "",
        Some(first) if first && given.all(|known| known) => "All",
        Some(_) => "invalid",
    }
}

/// The same for the level of field validation.
fn field_validation(query: &str) -> &'static str {
    if !query.contains("fieldValidation") {
        return "";
    }
    let Ok(query) = Query::parse(query) else { return "invalid" };
    let mut given = query.all("fieldValidation");
    match (given.next(), given.next()) {
        (Some(""), None) => "",
        (Some("Strict"), None) => "Strict",
        (Some("Warn"), None) => "Warn",
        (Some("Ignore"), None) => "Ignore",
        _ => "invalid",
    }
}

fn is_apply(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    media.is_some_and(|media| media.trim_start().starts_with("application/apply-patch+"))
}

/// The verb label of the body size metrics.
fn body_verb(verb: &str) -> Option<&'static str> {
    match verb {
        "create" => Some("create"),
        "update" => Some("update"),
        "patch" => Some("patch"),
        "delete" => Some("delete"),
        "deletecollection" => Some("delete_collection"),
        _ => None,
    }
}

/// One request under way.
pub(crate) struct RunningRequest(IntGauge);

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn subject(cx: &Context) -> [&str; 4] {
    let info = &cx.info;
    if info.is_resource && cx.served {
        [&info.group, &info.version, &info.resource, &info.subresource]
    } else if info.is_resource {
        ["", "", OTHER, ""]
    } else {
        // Paths are made up by clients: only known ones may become labels.
        let known =
            ["/healthz", "/livez", "/readyz", "/metrics", "/version", "/openapi/v2", "/openapi/v3"];
        let path = known.iter().find(|known| **known == info.path).copied().unwrap_or_default();
        ["", "", "", path]
    }
}

/// The one label value of what is not served, or not to this user.
const OTHER: &str = "other";

fn scope(cx: &Context) -> &'static str {
    let info = &cx.info;
    if !info.is_resource || !cx.served {
        ""
    } else if !info.name.is_empty() || info.verb == "create" {
        "resource"
    } else if info.namespace.is_empty() {
        "cluster"
    } else {
        "namespace"
    }
}

/// The verb of a request in the log.
pub(crate) fn logged_verb(cx: &Context, asked: &RequestLabels) -> &'static str {
    verb(cx, asked.apply)
}

/// Upper case, and none that a client made up.
fn verb(cx: &Context, apply: bool) -> &'static str {
    match cx.info.verb.as_str() {
        "patch" if apply => "APPLY",
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        "proxy" => "PROXY",
        "head" => "HEAD",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use prometheus::proto::MetricFamily;

    use super::*;
    use crate::connection::Peer;

    fn context(served: bool, resource: &str, verb: &str) -> Context {
        let peer = Peer::detached(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
        let mut cx = Context::new(Arc::new(peer));
        cx.served = served;
        cx.info.is_resource = true;
        cx.info.version = "v1".into();
        cx.info.resource = resource.into();
        cx.info.verb = verb.into();
        cx
    }

    fn count(metrics: &Metrics, cx: &Context) {
        let asked = RequestLabels {
            dry_run: "",
            field_validation: "",
            apply: false,
            body_bytes: Some(1.0),
        };
        drop(metrics.enter(cx));
        metrics.answered(cx, &asked, &mut Response::new(Body::empty()));
        metrics.cut_off(cx, 429);
    }

    #[test]
    fn what_is_counted_with_labels_begins_anew_after_a_reset() {
        let metrics = Metrics::new(MetricsConfig::default());
        let samples = || {
            let families = metrics.registry.gather().into_iter();
            let labelled = families.filter(|family| {
                let mut metrics = family.get_metric().iter();
                metrics.any(|metric| !metric.get_label().is_empty())
            });
            let counts = |family: &MetricFamily| {
                let mut metrics = family.get_metric().iter();
                metrics.any(|metric| {
                    metric.get_counter().get_value() > 0.0
                        || metric.get_histogram().get_sample_count() > 0
                })
            };
            labelled.filter(counts).map(|family| family.name().to_owned()).collect::<Vec<_>>()
        };
        count(&metrics, &context(true, "pods", "get"));
        metrics.authorized("allowed", Instant::now());
        metrics.filtered(Filter::Authorization, Duration::from_millis(1));
        assert!(samples().len() >= 7, "{:?}", samples());
        metrics.reset();
        assert_eq!(samples(), Vec::<String>::new());
        metrics.filtered(Filter::Authorization, Duration::from_millis(1));
        assert_eq!(samples(), ["apiserver_request_filter_duration_seconds"]);
    }

    #[test]
    fn a_level_of_field_validation_is_a_label_if_it_is_a_known_one() {
        let cases = [
            ("dryRun=All", ""),
            ("fieldValidation=Strict&dryRun=All", "Strict"),
            ("fieldValidation=Warn", "Warn"),
            ("fieldValidation=Ignore", "Ignore"),
            ("fieldValidation=strict", "invalid"),
            ("fieldValidation=Warn&fieldValidation=Warn", "invalid"),
        ];
        for (query, expected) in cases {
            assert_eq!(field_validation(query), expected, "{query}");
        }
    }

    /// A thousand GETs with 60 KB paths raised the memory by 255 MB, for good.
    #[test]
    fn names_that_are_not_served_become_no_labels() {
        let metrics = Metrics::new(MetricsConfig::default());
        for verb in ["get", "list", "watch", "create"] {
            count(&metrics, &context(false, "made-up-0", verb));
        }
        let before = metrics.render().len();
        for at in 0..100 {
            for verb in ["get", "list", "watch", "create"] {
                count(&metrics, &context(false, &format!("made-up-{at}"), verb));
            }
        }
        let text = String::from_utf8(metrics.render()).expect("text");
        assert!(!text.contains("made-up"), "{text}");
        // Counts have more digits, and the process metrics differ.
        assert!(text.len() < before + 2048, "{} after {before}", text.len());
        count(&metrics, &context(true, "pods", "get"));
        let text = String::from_utf8(metrics.render()).expect("text");
        assert!(text.contains(r#"resource="pods""#), "{text}");
    }
}
