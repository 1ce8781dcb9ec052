//! Counters by kube-apiserver's names.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

#[derive(Clone)]
pub struct Metrics {
    stream_translator: IntCounterVec,
    stream_tunnel: IntCounterVec,
    websocket_streaming: IntCounterVec,
    pod_logs_insecure_backend: [IntCounterVec; 2],
    pod_logs_backend_tls_failure: [IntCounter; 2],
}

impl Default for Metrics {
    fn default() -> Self {
        let counters = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name, help), labels).expect("the name is valid")
        };
        let counter = |name: &str, help: &str| {
            IntCounter::with_opts(Opts::new(name, help)).expect("the name is valid")
        };
        let insecure = "[ALPHA] Total number of requests for pods/logs sliced by usage type: \
                        enforce_tls, skip_tls_allowed, skip_tls_denied";
        let failures = "[ALPHA] Total number of requests for pods/logs that failed due to kubelet \
                        server TLS verification";
        Self {
            stream_translator: counters(
                "apiserver_stream_translator_requests_total",
                "[ALPHA] Total number of requests that were handled by the StreamTranslatorProxy, \
                 which processes streaming RemoteCommand/V5",
                &["code"],
            ),
            stream_tunnel: counters(
                "apiserver_stream_tunnel_requests_total",
                "[ALPHA] Total number of requests that were handled by the StreamTunnelProxy, which \
                 processes streaming PortForward/V2",
                &["code"],
            ),
            websocket_streaming: counters(
                "apiserver_websocket_streaming_requests_total",
                "[ALPHA] Total number of WebSocket streaming requests (exec/attach/portforward) \
                 routed by the API server, labeled by subresource and proxy_type. proxy_type is \
                 proxied_to_kubelet when the kubelet handles the request directly; otherwise \
                 translated_at_apiserver.",
                &["subresource", "proxy_type"],
            ),
            // Compat: kube-apiserver counts under the old names as well.
            pod_logs_insecure_backend: [
                counters("kube_apiserver_pod_logs_insecure_backend_total", insecure, &["usage"]),
                counters(
                    "kube_apiserver_pod_logs_pods_logs_insecure_backend_total",
                    &format!("(Deprecated since 1.27.0) {insecure}"),
                    &["usage"],
                ),
            ],
            pod_logs_backend_tls_failure: [
                counter("kube_apiserver_pod_logs_backend_tls_failure_total", failures),
                counter(
                    "kube_apiserver_pod_logs_pods_logs_backend_tls_failure_total",
                    &format!("(Deprecated since 1.27.0) {failures}"),
                ),
            ],
        }
    }
}

impl Metrics {
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        for counters in [&self.stream_translator, &self.stream_tunnel, &self.websocket_streaming]
            .into_iter()
            .chain(&self.pod_logs_insecure_backend)
        {
            registry.register(Box::new(counters.clone()))?;
        }
        for counter in &self.pod_logs_backend_tls_failure {
            registry.register(Box::new(counter.clone()))?;
        }
        Ok(())
    }

    pub(crate) fn translated(&self, code: u16) {
        self.stream_translator.with_label_values(&[code.to_string().as_str()]).inc();
    }

    pub(crate) fn tunneled(&self, code: u16) {
        self.stream_tunnel.with_label_values(&[code.to_string().as_str()]).inc();
    }

    pub(crate) fn streaming(&self, subresource: &str, proxied_to_kubelet: bool) {
        let kind =
            if proxied_to_kubelet { "proxied_to_kubelet" } else { "translated_at_apiserver" };
        self.websocket_streaming.with_label_values(&[subresource, kind]).inc();
    }

    pub(crate) fn logs_requested(&self, skip_tls: bool) {
        let usage = if skip_tls { "skip_tls_allowed" } else { "enforce_tls" };
        for counters in &self.pod_logs_insecure_backend {
            counters.with_label_values(&[usage]).inc();
        }
    }

    pub(crate) fn logs_tls_failed(&self) {
        for counter in &self.pod_logs_backend_tls_failure {
            counter.inc();
        }
    }
}
