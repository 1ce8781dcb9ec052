//! The published metrics-server of Kubernetes: a real aggregated API server that asks kubelets.

use std::process::{Command, Stdio};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::process::{Process, free_port};
use crate::process_cleanup::ProcessCleanup;
use crate::{Server, programs};

/// Serves `metrics.k8s.io` until it is dropped.
pub struct MetricsServer {
    pub port: u16,
    /// PEM in base64, as `caBundle` wants it.
    pub ca_bundle: String,
    _process: Process,
    _cleanup: Arc<ProcessCleanup>,
}

impl MetricsServer {
    /// `name` is what its certificate is for: `service.namespace.svc`.
    pub fn start(server: &Server, name: &str) -> Self {
        let cleanup = Arc::new(ProcessCleanup::new());
        let own = rcgen::generate_simple_self_signed([name.to_owned()]);
        let own = own.expect("a certificate can be made");
        let write = |file: &str, text: String| {
            let path = cleanup.directory().join(file);
            std::fs::write(&path, text).expect("writable");
            path.display().to_string()
        };
        let port = free_port();
        let mut command = Command::new(programs::tool("metrics-server"));
        command
            .arg(format!("--secure-port={port}"))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--tls-cert-file={}", write("tls.crt", own.cert.pem())))
            .arg(format!(
                "--tls-private-key-file={}",
                write("tls.key", own.signing_key.serialize_pem())
            ))
            // The shortest that it takes.
            .arg("--metric-resolution=10s")
            .arg("--kubelet-request-timeout=5s")
            .arg("--kubelet-insecure-tls")
            .arg("--kubelet-use-node-status-port")
            .arg("--kubelet-preferred-address-types=InternalIP")
            .stdin(Stdio::null());
        for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            command.arg(format!("--{flag}={}", server.kubeconfig().display()));
        }
        let process = Process::start("metrics-server", command, &cleanup);
        let ca_bundle = STANDARD.encode(own.cert.pem());
        Self { port, ca_bundle, _process: process, _cleanup: cleanup }
    }
}
