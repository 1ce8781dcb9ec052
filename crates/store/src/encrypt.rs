//! Encryption at rest, byte for byte as kube-apiserver does it: what it wrote is read here, and the
//! other way round.
//!
//! A value is stored as `k8s:enc:<provider>:v1:<key name>:` and what the cipher makes of it. The
//! first key of the first provider writes, all of them read. What another than the first was used for
//! is *stale*: the next update writes it anew even if nothing changes.

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

/// Which resources are encrypted how, by their keys in the store.
pub struct Encryption {
    /// What all keys begin with: `/registry`.
    root: Str,
    /// The resources that are not stored under `<group>/<resource>/`, by what they are stored under.
    resources: HashMap<Str, GroupResource>,
    config: ArcSwap<EncryptionConfig>,
}

/// A value out of the store.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
    pub value: Bytes,
    /// Whether a write now would keep it in another form.
    pub stale: bool,
}

impl Encryption {
    /// `resources` are the places of built-in resources below `root`: `services/specs`.
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

    /// What to store for a value of a key.
    pub fn seal(&self, key: &str, value: &Bytes) -> Result<Bytes, StoreError> {
        let config = self.config.load();
        let Some(providers) = self.resource(key).and_then(|resource| config.providers(&resource))
        else {
            return Ok(value.clone());
        };
        providers.seal(value, key.as_bytes()).map_err(|why| unreadable(key, why))
    }

    /// What was stored for a key. Where the value's key is kept by somebody else, he is asked.
    pub async fn open(&self, key: &str, stored: &Bytes) -> Result<Opened, StoreError> {
        match self.start_open(key, stored)? {
            Decryption::Done(opened) => Ok(opened),
            Decryption::Remote(remote) => remote.finish(key).await,
        }
    }

    /// Whether all providers that have to be asked are well; `None`: there are none.
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

    /// Looks at all providers that have to be asked, so that they can be written with.
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

    /// Follows a file for as long as the server runs. What is wrong with a new version of it is told,
    /// and the old one stays in force.
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
            // Somebody who does not answer would take the place of one who does. He may answer later,
            // without a change of the file.
            if let Err(error) = config.probe().await {
                tracing::error!(%error, "the new encryption configuration is not used yet");
                continue;
            }
            self.config.store(Arc::new(config));
            tracing::info!(file = name, "the encryption configuration was loaded again");
            known = Some(found);
        }
    }

    /// The resource that a key belongs to, if it is a key of an object.
    fn resource(&self, key: &str) -> Option<GroupResource> {
        let path = key.strip_prefix(self.root.as_str())?.trim_start_matches('/');
        let (first, rest) = path.split_once('/')?;
        let second = rest.split_once('/').map(|(second, _)| second);
        let both = second.map(|second| &path[..first.len() + 1 + second.len()]);
        let known = both.and_then(|both| self.resources.get(both));
        known.or_else(|| self.resources.get(first)).cloned().or_else(|| {
            // Custom resources; their groups always have a dot.
            second.filter(|_| first.contains('.')).map(|second| GroupResource::new(first, second))
        })
    }
}

#[cfg(test)]
impl Encryption {
    /// What was stored for a key, where nobody has to be asked.
    fn open_local(&self, key: &str, stored: &Bytes) -> Result<Opened, StoreError> {
        match self.start_open(key, stored)? {
            Decryption::Done(opened) => Ok(opened),
            Decryption::Remote(_) => Err(unreadable(key, "somebody has to be asked".to_owned())),
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

    /// Looks whether those who have to be asked answer.
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
