//! The providers of a resource: the first key writes, all of them read.

use std::sync::Arc;

use bytes::Bytes;

use super::cipher::Cipher;
use super::remote::{Remote, RemoteError};
use super::{Opened, StoreError, unreadable};

/// In the order of the configuration.
pub(crate) struct Providers {
    slots: Vec<Slot>,
}

/// One key of one provider.
#[derive(Clone)]
pub(crate) struct Slot {
    /// `k8s:enc:aescbc:v1:key1:`; empty for what is not encrypted.
    prefix: String,
    means: Means,
}

#[derive(Clone)]
enum Means {
    /// Stores as it is.
    Nothing,
    Cipher(Arc<Cipher>),
    Remote(Arc<dyn Remote>),
}

/// A value on its way out.
pub(crate) enum Opening {
    Done(Opened),
    /// Somebody else has to be asked for the key.
    Ask(Ask),
}

pub(crate) struct Ask {
    remote: Arc<dyn Remote>,
    sealed: Bytes,
    /// `k8s:enc:kms:v2:name`, for errors.
    prefix: String,
    first: bool,
}

impl Ask {
    pub(crate) async fn answer(self, key: &str) -> Result<Opened, StoreError> {
        match self.remote.open(&self.sealed, key.as_bytes()).await {
            Ok(Opened { value, stale }) => Ok(Opened { value, stale: stale || !self.first }),
            Err(RemoteError::Unreadable(why)) => {
                Err(unreadable(key, format!("{}: {why}", self.prefix)))
            }
            // It may answer later: nothing is wrong with the value.
            Err(RemoteError::Unavailable(why)) => Err(StoreError::Unavailable(format!(
                "unable to transform key {}: {}: {why}",
                meta::field::quote(key),
                self.prefix
            ))),
        }
    }
}

/// What no stored object begins with.
const ENCRYPTED: &[u8] = b"k8s:enc:";

impl Slot {
    /// `provider`: as in the prefix, `aescbc`.
    pub(crate) fn new(provider: &str, key: &str, cipher: Arc<Cipher>) -> Self {
        Self { prefix: format!("k8s:enc:{provider}:v1:{key}:"), means: Means::Cipher(cipher) }
    }

    pub(crate) fn kms(name: &str, remote: Arc<dyn Remote>) -> Self {
        Self { prefix: format!("k8s:enc:kms:v2:{name}:"), means: Means::Remote(remote) }
    }

    pub(crate) fn identity() -> Self {
        Self { prefix: String::new(), means: Means::Nothing }
    }

    fn provider(&self) -> &str {
        let before_key = self.prefix.match_indices(':').nth(3).map_or(0, |(at, _)| at + 1);
        &self.prefix[..before_key]
    }
}

impl Providers {
    pub(crate) fn new(slots: Vec<Slot>) -> Self {
        Self { slots }
    }

    pub(crate) fn seal(&self, value: &Bytes, context: &[u8]) -> Result<Bytes, String> {
        let Some(Slot { prefix, means }) = self.slots.first() else { return Ok(value.clone()) };
        let mut out = Vec::with_capacity(prefix.len() + value.len() + OVERHEAD_MAX);
        out.extend_from_slice(prefix.as_bytes());
        match means {
            Means::Nothing => return Ok(value.clone()),
            Means::Cipher(cipher) => cipher.seal(value, context, &mut out)?,
            Means::Remote(remote) => out.extend(remote.seal(value, context)?),
        }
        Ok(out.into())
    }

    pub(crate) fn open(&self, stored: &Bytes, context: &[u8]) -> Result<Opening, String> {
        let mut errors = Vec::new();
        for (at, slot) in self.slots.iter().enumerate() {
            let Some(sealed) = stored.strip_prefix(slot.prefix.as_bytes()) else { continue };
            let opened = match &slot.means {
                Means::Nothing if stored.starts_with(ENCRYPTED) => continue,
                Means::Nothing => Ok(stored.clone()),
                Means::Cipher(cipher) => cipher.open(sealed, context).map(Bytes::from),
                Means::Remote(remote) => {
                    return Ok(Opening::Ask(Ask {
                        remote: Arc::clone(remote),
                        sealed: stored.slice(slot.prefix.len()..),
                        prefix: slot.prefix.trim_end_matches(':').to_owned(),
                        first: at == 0,
                    }));
                }
            };
            match opened {
                Ok(value) => return Ok(Opening::Done(Opened { value, stale: at != 0 })),
                // The same name may stand for several keys.
                Err(why) => errors.push(format!("{}: {why}", slot.prefix.trim_end_matches(':'))),
            }
        }
        Err(if errors.is_empty() { self.no_match(stored) } else { errors.join(", ") })
    }

    /// Why nothing could read this: which key is missing.
    fn no_match(&self, stored: &[u8]) -> String {
        let Some(wanted) = prefix_of(stored) else {
            return "no matching prefix found: the value is not encrypted, and the configuration has \
                    no identity provider for it"
                .into();
        };
        let mut providers = self.slots.iter().map(Slot::provider).filter(|name| !name.is_empty());
        let words = match providers.find(|provider| wanted.starts_with(provider)) {
            Some(provider) if provider.contains(":aes") => {
                "no matching key was found for the provided AES transformer"
            }
            Some(provider) if provider.contains(":secretbox") => {
                "no matching key was found for the provided Secretbox transformer"
            }
            Some(_) | None => "no matching prefix found",
        };
        format!("{words}: the value was written with {wanted}, which is not configured")
    }
}

/// More than any cipher adds.
const OVERHEAD_MAX: usize = 64;

/// Without a configuration for the resource.
pub(crate) fn open_plain(stored: &Bytes) -> Result<Opening, String> {
    match prefix_of(stored) {
        None => Ok(Opening::Done(Opened { value: stored.clone(), stale: false })),
        Some(prefix) => Err(format!(
            "identity transformer tried to read encrypted data: the value was written with {prefix}, \
             and no provider is configured for this resource"
        )),
    }
}

/// The readable beginning of an encrypted value.
fn prefix_of(stored: &[u8]) -> Option<String> {
    let rest = stored.strip_prefix(ENCRYPTED)?;
    // Provider, version and name of the key; names are short.
    let end = rest.iter().take(PREFIX_BYTES_MAX).enumerate().filter(|(_, byte)| **byte == b':');
    let end = end.map(|(at, _)| at).nth(2).unwrap_or(0);
    Some(format!("k8s:enc:{}", String::from_utf8_lossy(&rest[..end])))
}

const PREFIX_BYTES_MAX: usize = 512;
