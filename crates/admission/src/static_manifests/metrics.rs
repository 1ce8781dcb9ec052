//! The metrics of configurations from files, by kube-apiserver's names.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Opts, Registry};
use sha2::{Digest, Sha256};

use super::ManifestPlugin;

pub struct ManifestMetrics {
    /// Of the identity of this API server.
    server_hash: String,
    reloads: IntCounterVec,
    last_reload: GaugeVec,
    last_config: IntGaugeVec,
    /// What `last_config` shows, by plugin.
    shown: Mutex<HashMap<&'static str, String>>,
}

impl ManifestMetrics {
    /// `server` is the identity of this API server.
    pub fn new(server: &str) -> Self {
        let options = |name: &str, help: &str| {
            Opts::new(format!("apiserver_manifest_admission_config_controller_{name}"), help)
        };
        let labels = ["status", "plugin", "apiserver_id_hash"];
        let reloads =
            options("automatic_reloads_total", "Reloads of admission configurations from files.");
        let last_reload = options(
            "automatic_reload_last_timestamp_seconds",
            "When admission configurations were last reloaded from files.",
        );
        let last_config = options(
            "last_config_info",
            "The hash of the files whose admission configurations count.",
        );
        Self {
            server_hash: match server {
                "" => String::new(),
                server => hexadecimal(&Sha256::digest(server)[..]),
            },
            reloads: IntCounterVec::new(reloads, &labels).expect("a valid metric"),
            last_reload: GaugeVec::new(last_reload, &labels).expect("a valid metric"),
            last_config: IntGaugeVec::new(last_config, &["plugin", "apiserver_id_hash", "hash"])
                .expect("a valid metric"),
            shown: Mutex::default(),
        }
    }

    pub fn register(&self, registry: &Registry) {
        registry.register(Box::new(self.reloads.clone())).expect("registered once");
        registry.register(Box::new(self.last_reload.clone())).expect("registered once");
        registry.register(Box::new(self.last_config.clone())).expect("registered once");
    }

    pub fn failed(&self, plugin: ManifestPlugin) {
        self.count("failure", plugin);
    }

    pub fn reloaded(&self, plugin: ManifestPlugin, hash: &str) {
        self.count("success", plugin);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let labels =
            |hash: &str| [plugin.name().to_owned(), self.server_hash.clone(), hash.to_owned()];
        if let Some(previous) = shown.insert(plugin.name(), hash.to_owned()) {
            // It is there: it was set below.
            let _ = self.last_config.remove_label_values(&labels(&previous));
        }
        self.last_config.with_label_values(&labels(hash)).set(1);
    }

    fn count(&self, status: &str, plugin: ManifestPlugin) {
        let labels = [status, plugin.name(), self.server_hash.as_str()];
        self.reloads.with_label_values(&labels).inc();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.last_reload.with_label_values(&labels).set(now.as_secs_f64());
    }
}

/// Compat: `sha256:` and the hash in hexadecimal.
pub(super) fn hexadecimal(hash: &[u8]) -> String {
    hash.iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
