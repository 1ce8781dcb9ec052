//! The published sample-apiserver of Kubernetes: a real aggregated API server, on the shared etcd.

use std::process::{Command, Stdio};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::etcd_url;
use crate::process::{Process, free_port};
use crate::process_cleanup::ProcessCleanup;
use crate::{Server, programs};

/// Serves `wardle.example.com` until it is dropped. It asks the API server that it is given about tokens
/// and permissions.
pub struct SampleApiServer {
    port: u16,
    /// PEM in base64, as `caBundle` wants it.
    pub ca_bundle: String,
    kubeconfig: String,
    prefix: String,
    process: Option<Process>,
    cleanup: Arc<ProcessCleanup>,
}

impl SampleApiServer {
    /// `name` is what its certificate is for: `service.namespace.svc`.
    pub fn start(server: &Server, name: &str) -> Self {
        let cleanup = Arc::new(ProcessCleanup::new());
        let own = rcgen::generate_simple_self_signed([name.to_owned()]);
        let own = own.expect("a certificate can be made");
        let write = |file: &str, text: String| {
            std::fs::write(cleanup.directory().join(file), text).expect("writable");
        };
        write("tls.crt", own.cert.pem());
        write("tls.key", own.signing_key.serialize_pem());
        let mut sample = Self {
            port: free_port(),
            ca_bundle: STANDARD.encode(own.cert.pem()),
            kubeconfig: server.kubeconfig().display().to_string(),
            prefix: format!("/{name}"),
            process: None,
            cleanup,
        };
        sample.start_again();
        sample
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process.take().expect("it is running").kill();
    }

    pub fn start_again(&mut self) {
        let directory = self.cleanup.directory();
        let mut command = Command::new(programs::tool("sample-apiserver"));
        command
            .arg(format!("--secure-port={}", self.port))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--tls-cert-file={}", directory.join("tls.crt").display()))
            .arg(format!("--tls-private-key-file={}", directory.join("tls.key").display()))
            .arg(format!("--etcd-servers={}", etcd_url()))
            .arg(format!("--etcd-prefix={}", self.prefix))
            .stdin(Stdio::null());
        for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            command.arg(format!("--{flag}={}", self.kubeconfig));
        }
        self.process = Some(Process::start("sample-apiserver", command, &self.cleanup));
    }

    pub fn log(&self) -> String {
        self.process.as_ref().map(|process| process.log_since(0)).unwrap_or_default()
    }
}
