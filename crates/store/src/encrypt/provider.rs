//! The providers of a resource: the first key encrypts, all keys decrypt.

use std::sync::Arc;

use bytes::Bytes;

use super::cipher::Cipher;
use super::remote::{RemoteError, RemoteProvider};
use super::{Opened, StoreError, unreadable};

/// In the order of the configuration.
pub(crate) struct Providers {
    keys: Vec<ProviderKey>,
}

/// One key of one provider.
#[derive(Clone)]
pub(crate) struct ProviderKey {
    /// `k8s:enc:aescbc:v1:key1:`; empty for identity.
    prefix: String,
    transformer: Transformer,
}

#[derive(Clone)]
enum Transformer {
    /// Stores values unencrypted.
    Identity,
    Cipher(Arc<Cipher>),
    Remote(Arc<dyn RemoteProvider>),
}

/// The result of starting to decrypt a value.
pub(crate) enum Decryption {
    Done(Opened),
    /// The KMS plugin has to decrypt the seed.
    Remote(RemoteDecryption),
}

pub(crate) struct RemoteDecryption {
    remote: Arc<dyn RemoteProvider>,
    sealed: Bytes,
    /// `k8s:enc:kms:v2:name`, for errors.
    prefix: String,
    first: bool,
}

impl RemoteDecryption {
    pub(crate) async fn finish(self, key: &str) -> Result<Opened, StoreError> {
        match self.remote.open(&self.sealed, key.as_bytes()).await {
            Ok(Opened { value, stale }) => Ok(Opened { value, stale: stale || !self.first }),
            Err(RemoteError::Unreadable(why)) => {
                Err(unreadable(key, format!("{}: {why}", self.prefix)))
            }
            // The plugin may respond later: nothing is wrong with the value.
            Err(RemoteError::Unavailable(why)) => Err(StoreError::Unavailable(format!(
                "unable to transform key {}: {}: {why}",
                meta::field::quote(key),
                self.prefix
            ))),
        }
    }
}

/// No unencrypted object begins with this.
const ENCRYPTED: &[u8] = b"k8s:enc:";

impl ProviderKey {
    /// `provider`: as in the prefix, `aescbc`.
    pub(crate) fn new(provider: &str, key: &str, cipher: Arc<Cipher>) -> Self {
        Self {
            prefix: format!("k8s:enc:{provider}:v1:{key}:"),
            transformer: Transformer::Cipher(cipher),
        }
    }

    pub(crate) fn kms(name: &str, remote: Arc<dyn RemoteProvider>) -> Self {
        Self { prefix: format!("k8s:enc:kms:v2:{name}:"), transformer: Transformer::Remote(remote) }
    }

    pub(crate) fn identity() -> Self {
        Self { prefix: String::new(), transformer: Transformer::Identity }
    }

    fn provider(&self) -> &str {
        let before_key = self.prefix.match_indices(':').nth(3).map_or(0, |(at, _)| at + 1);
        &self.prefix[..before_key]
    }
}

impl Providers {
    pub(crate) fn new(keys: Vec<ProviderKey>) -> Self {
        Self { keys }
    }

    pub(crate) fn seal(&self, value: &Bytes, context: &[u8]) -> Result<Bytes, String> {
        let Some(ProviderKey { prefix, transformer }) = self.keys.first() else {
            return Ok(value.clone());
        };
        let mut out = Vec::with_capacity(prefix.len() + value.len() + OVERHEAD_MAX);
        out.extend_from_slice(prefix.as_bytes());
        match transformer {
            Transformer::Identity => return Ok(value.clone()),
            Transformer::Cipher(cipher) => cipher.seal(value, context, &mut out)?,
            Transformer::Remote(remote) => out.extend(remote.seal(value, context)?),
        }
        Ok(out.into())
    }

    pub(crate) fn open(&self, stored: &Bytes, context: &[u8]) -> Result<Decryption, String> {
        let mut errors = Vec::new();
        for (at, key) in self.keys.iter().enumerate() {
            let Some(sealed) = stored.strip_prefix(key.prefix.as_bytes()) else { continue };
            let opened = match &key.transformer {
                Transformer::Identity if stored.starts_with(ENCRYPTED) => continue,
                Transformer::Identity => Ok(stored.clone()),
                Transformer::Cipher(cipher) => cipher.open(sealed, context).map(Bytes::from),
                Transformer::Remote(remote) => {
                    return Ok(Decryption::Remote(RemoteDecryption {
                        remote: Arc::clone(remote),
                        sealed: stored.slice(key.prefix.len()..),
                        prefix: key.prefix.trim_end_matches(':').to_owned(),
                        first: at == 0,
                    }));
                }
            };
            match opened {
                Ok(value) => return Ok(Decryption::Done(Opened { value, stale: at != 0 })),
                // Several keys may have the same name.
                Err(why) => errors.push(format!("{}: {why}", key.prefix.trim_end_matches(':'))),
            }
        }
        Err(if errors.is_empty() { self.no_match(stored) } else { errors.join(", ") })
    }

    /// Why no key can decrypt this: which key is missing.
    fn no_match(&self, stored: &[u8]) -> String {
        let Some(wanted) = prefix_of(stored) else {
            return "no matching prefix found: the value is not encrypted, and the configuration has \
                    no identity provider for it"
                .into();
        };
        let mut providers =
            self.keys.iter().map(ProviderKey::provider).filter(|name| !name.is_empty());
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

/// More than any cipher adds to a value.
const OVERHEAD_MAX: usize = 64;

/// For resources without a configuration.
pub(crate) fn open_plain(stored: &Bytes) -> Result<Decryption, String> {
    match prefix_of(stored) {
        None => Ok(Decryption::Done(Opened { value: stored.clone(), stale: false })),
        Some(prefix) => Err(format!(
            "identity transformer tried to read encrypted data: the value was written with {prefix}, \
             and no provider is configured for this resource"
        )),
    }
}

/// The prefix of an encrypted value, for errors.
fn prefix_of(stored: &[u8]) -> Option<String> {
    let rest = stored.strip_prefix(ENCRYPTED)?;
    // Provider, version and name of the key; names are short.
    let end = rest.iter().take(PREFIX_BYTES_MAX).enumerate().filter(|(_, byte)| **byte == b':');
    let end = end.map(|(at, _)| at).nth(2).unwrap_or(0);
    Some(format!("k8s:enc:{}", String::from_utf8_lossy(&rest[..end])))
}

const PREFIX_BYTES_MAX: usize = 512;
