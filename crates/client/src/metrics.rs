//! `rest_client_*`: the calls that the server makes, by host. One set for the process, as client-go has it.

use std::{collections::BTreeSet, sync::LazyLock, time::Duration};

use http::{Method, Uri};
use parking_lot::RwLock;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::certificate_metrics;

static FAMILIES: LazyLock<Families> = LazyLock::new(Families::new);

struct Families {
    requests: IntCounterVec,
    durations: HistogramVec,
    request_sizes: HistogramVec,
    response_sizes: HistogramVec,
    /// The hosts that have a label of their own.
    hosts: RwLock<BTreeSet<String>>,
}

/// Hosts that have a label of their own; calls of further ones are counted as those of `other`. Clients that
/// may write webhook configurations choose the hosts.
const HOSTS_MAX: usize = 256;
const OTHER: &str = "other";

/// As upstream.
const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// As upstream: 64 bytes to 16 MB.
const BYTES: [f64; 11] = [
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

impl Families {
    fn new() -> Self {
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            HistogramVec::new(options, &["host", "verb"]).expect("valid names")
        };
        let requests = Opts::new("rest_client_requests_total", "Calls by code, method and host.");
        Self {
            requests: IntCounterVec::new(requests, &["code", "host", "method"])
                .expect("valid names"),
            durations: histogram(
                "rest_client_request_duration_seconds",
                "Time of a call by verb and host.",
                &SECONDS,
            ),
            request_sizes: histogram(
                "rest_client_request_size_bytes",
                "Bytes that calls sent, by verb and host.",
                &BYTES,
            ),
            response_sizes: histogram(
                "rest_client_response_size_bytes",
                "Bytes of responses, by verb and host.",
                &BYTES,
            ),
            hosts: RwLock::default(),
        }
    }

    fn host<'a>(&self, url: &'a Uri) -> &'a str {
        let host = url.authority().map_or("", http::uri::Authority::as_str);
        if self.hosts.read().contains(host) {
            return host;
        }
        let mut hosts = self.hosts.write();
        if hosts.len() >= HOSTS_MAX {
            return OTHER;
        }
        hosts.insert(host.to_owned());
        host
    }
}

/// Makes the metrics of all clients part of a registry.
pub fn register_metrics(registry: &Registry) -> Result<(), String> {
    let families = &*FAMILIES;
    let register = |metric| registry.register(metric).map_err(|error| error.to_string());
    register(Box::new(families.requests.clone()))?;
    register(Box::new(families.durations.clone()))?;
    register(Box::new(families.request_sizes.clone()))?;
    register(Box::new(families.response_sizes.clone()))?;
    certificate_metrics::register(registry)
}

/// What a call came to.
pub(crate) struct Called {
    /// None: there was no response.
    pub(crate) code: Option<u16>,
    pub(crate) took: Duration,
    pub(crate) sent: usize,
    /// Bytes of the response, if all of it was read.
    pub(crate) received: Option<usize>,
}

pub(crate) fn count(method: &Method, url: &Uri, called: &Called) {
    let (families, method) = (&*FAMILIES, method.as_str());
    let host = families.host(url);
    // Compat: client-go's word for a call without a response.
    let code = called.code.map_or("<error>".to_owned(), |code| code.to_string());
    families.requests.with_label_values(&[&code, host, method]).inc();
    let labels = [host, method];
    families.durations.with_label_values(&labels).observe(called.took.as_secs_f64());
    families.request_sizes.with_label_values(&labels).observe(called.sent as f64);
    if let Some(received) = called.received {
        families.response_sizes.with_label_values(&labels).observe(received as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_host_up_to_a_bound() {
        let families = Families::new();
        let url = |at: usize| format!("https://host-{at}.example:443/x").parse::<Uri>();
        for at in 0..HOSTS_MAX {
            let url = url(at).expect("a URL");
            assert_eq!(families.host(&url), format!("host-{at}.example:443"));
        }
        assert_eq!(families.host(&url(HOSTS_MAX).expect("a URL")), OTHER);
        assert_eq!(families.host(&url(7).expect("a URL")), "host-7.example:443");
    }

    #[test]
    fn a_call_without_a_response_is_an_error() {
        let url = "https://counted.example/x".parse::<Uri>().expect("a URL");
        let took = Duration::from_millis(1);
        count(&Method::GET, &url, &Called { code: None, took, sent: 0, received: None });
        count(&Method::GET, &url, &Called { code: Some(200), took, sent: 0, received: Some(9) });
        let requests = &FAMILIES.requests;
        for code in ["<error>", "200"] {
            let counted = requests.with_label_values(&[code, "counted.example", "GET"]);
            assert_eq!(counted.get(), 1, "{code}");
        }
        let sizes = FAMILIES.response_sizes.with_label_values(&["counted.example", "GET"]);
        assert_eq!(sizes.get_sample_count(), 1);
    }
}
