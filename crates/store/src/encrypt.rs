//! Encryption at rest, byte-compatible with kube-apiserver in both directions.
//!
//! A value is stored as `k8s:enc:<provider>:v1:<key name>:` and the ciphertext. The first key of
//! the first provider encrypts, all keys decrypt. A value that was encrypted with another key than
//! the first is *stale*: the next update writes it again even if nothing changes.

mod backend;
mod cipher;
mod config;
mod provider;
mod remote;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use meta::{GroupResource, Str};

pub use backend::Encrypted;
pub use config::EncryptionConfig;
pub use remote::{Connect, KmsConfig, RemoteError, RemoteProvider};

use self::provider::Decryption;
use crate::StoreError;

/// The encryption configuration, applied by storage key.
pub struct Encryption {
    /// The prefix of all keys: `/registry`.
    root: Str,
    /// The resources that are not stored under `<group>/<resource>/`, by their path.
    resources: HashMap<Str, GroupResource>,
    config: ArcSwap<EncryptionConfig>,
}

/// A decrypted value.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
    pub value: Bytes,
    /// Whether a write now would use another key.
    pub stale: bool,
}

impl Encryption {
    /// `resources` are the paths of built-in resources below `root`: `services/specs`.
    pub fn new(
        root: impl Into<Str>,
        resources: impl IntoIterator<Item = (Str, GroupResource)>,
        config: EncryptionConfig,
    ) -> Self {
        Self {
            root: root.into(),
            resources: resources.into_iter().collect(),
            config: ArcSwap::from_pointee(config),
        }
    }

    /// Encrypts the value of a key.
    pub fn seal(&self, key: &str, value: &Bytes) -> Result<Bytes, StoreError> {
        let config = self.config.load();
        let Some(providers) = self.resource(key).and_then(|resource| config.providers(&resource))
        else {
            return Ok(value.clone());
        };
        providers.seal(value, key.as_bytes()).map_err(|why| unreadable(key, why))
    }

    /// Decrypts the value of a key, with a call to the KMS plugin if it has to decrypt the seed.
    pub async fn open(&self, key: &str, stored: &Bytes) -> Result<Opened, StoreError> {
        match self.start_open(key, stored)? {
            Decryption::Done(opened) => Ok(opened),
            Decryption::Remote(remote) => remote.finish(key).await,
        }
    }

    /// Whether all KMS plugins are healthy; `None`: there are none.
    pub fn health(&self) -> Option<Result<(), String>> {
        let config = self.config.load();
        if config.remotes.is_empty() {
            return None;
        }
        let errors: Vec<String> = config
            .remotes
            .iter()
            .enumerate()
            .filter_map(|(n, remote)| Some(format!("kms-provider-{n}: {}", remote.health().err()?)))
            .collect();
        Some(match errors.len() {
            0 => Ok(()),
            1 => Err(errors[0].clone()),
            _ => Err(format!("[{}]", errors.join(", "))),
        })
    }

    /// Probes all KMS plugins, so that they can encrypt.
    pub async fn prime(&self) -> Result<(), String> {
        let config = self.config.load_full();
        config.probe().await
    }

    fn start_open(&self, key: &str, stored: &Bytes) -> Result<Decryption, StoreError> {
        let config = self.config.load();
        let providers = self.resource(key).and_then(|resource| config.providers(&resource));
        let opened = match providers {
            Some(providers) => providers.open(stored, key.as_bytes()),
            None => provider::open_plain(stored),
        };
        opened.map_err(|why| unreadable(key, why))
    }

    /// Reloads the file when it changes, for as long as the server runs. An invalid file is logged,
    /// and the previous configuration stays in force.
    pub async fn follow(self: Arc<Self>, file: PathBuf, every: Duration, connect: Box<Connect>) {
        let mut known = std::fs::read(&file).ok();
        loop {
            tokio::time::sleep(every).await;
            let found = match std::fs::read(&file) {
                Ok(found) => found,
                Err(error) => {
                    let file = file.display();
                    tracing::warn!(%file, %error, "the encryption configuration cannot be read");
                    continue;
                }
            };
            if known.as_ref() == Some(&found) {
                continue;
            }
            let name = file.display().to_string();
            let config = match EncryptionConfig::parse(&name, &found, &*connect) {
                Ok(config) => config,
                Err(error) => {
                    tracing::error!(%error, "the new encryption configuration is not used");
                    known = Some(found);
                    continue;
                }
            };
            // A plugin that does not respond would replace one that does. It may respond later
            // without a change of the file, so the file is tried again.
            if let Err(error) = config.probe().await {
                tracing::error!(%error, "the new encryption configuration is not used yet");
                continue;
            }
            self.config.store(Arc::new(config));
            tracing::info!(file = name, "reloaded the encryption configuration");
            known = Some(found);
        }
    }

    /// The resource that a key belongs to, if it is the key of an object.
    fn resource(&self, key: &str) -> Option<GroupResource> {
        let path = key.strip_prefix(self.root.as_str())?.trim_start_matches('/');
        let (first, rest) = path.split_once('/')?;
        let second = rest.split_once('/').map(|(second, _)| second);
        let both = second.map(|second| &path[..first.len() + 1 + second.len()]);
        let known = both.and_then(|both| self.resources.get(both));
        known.or_else(|| self.resources.get(first)).cloned().or_else(|| {
            // Custom resources: their groups always contain a dot.
            second.filter(|_| first.contains('.')).map(|second| GroupResource::new(first, second))
        })
    }
}

#[cfg(test)]
impl Encryption {
    /// Decrypts the value of a key without a KMS plugin.
    fn open_local(&self, key: &str, stored: &Bytes) -> Result<Opened, StoreError> {
        match self.start_open(key, stored)? {
            Decryption::Done(opened) => Ok(opened),
            Decryption::Remote(_) => Err(unreadable(key, "needs a KMS plugin".to_owned())),
        }
    }
}

impl EncryptionConfig {
    /// Reads the file of `--encryption-provider-config`.
    pub fn load(file: &Path, connect: &Connect) -> Result<Self, String> {
        let name = file.display().to_string();
        let bytes = std::fs::read(file).map_err(|error| {
            let name = meta::field::quote(&name);
            format!(
                "error while parsing file: error while loading file: error reading encryption \
                 provider configuration file {name}: {error}"
            )
        })?;
        Self::parse(&name, &bytes, connect)
    }

    /// Checks that all KMS plugins respond.
    async fn probe(&self) -> Result<(), String> {
        for remote in &self.remotes {
            remote.probe().await?;
        }
        Ok(())
    }
}

fn unreadable(key: &str, why: String) -> StoreError {
    StoreError::Unreadable { key: Str::new(key), why }
}
