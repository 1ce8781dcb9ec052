//! The published webhook of cert-manager: a real admission webhook, which keeps its certificate in a Secret and asks the
//! API about permissions.

use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::process::{Process, free_port};
use crate::process_cleanup::ProcessCleanup;
use crate::{Server, programs};

/// Decides about objects of `cert-manager.io` until it is dropped.
pub struct CertManagerWebhook {
    pub port: u16,
    _process: Process,
    _cleanup: Arc<ProcessCleanup>,
}

impl CertManagerWebhook {
    /// Its authority is the Secret `cert-manager-webhook-ca` of namespace `cert-manager`; it serves as `localhost`. Flags
    /// are those of its chart.
    pub fn start(server: &Server) -> Self {
        let cleanup = Arc::new(ProcessCleanup::new());
        let port = free_port();
        let mut command = Command::new(programs::tool("cert-manager-webhook"));
        command
            .arg(format!("--secure-port={port}"))
            .arg("--healthz-port=0")
            .arg("--metrics-listen-address=0")
            .arg("--dynamic-serving-ca-secret-namespace=cert-manager")
            .arg("--dynamic-serving-ca-secret-name=cert-manager-webhook-ca")
            .arg("--dynamic-serving-dns-names=localhost")
            .arg(format!("--kubeconfig={}", server.kubeconfig().display()))
            .stdin(Stdio::null());
        let process = Process::start("cert-manager-webhook", command, &cleanup);
        Self { port, _process: process, _cleanup: cleanup }
    }
}
