//! The providers of a resource: the first key writes, all of them read.

use bytes::Bytes;

use super::Opened;
use super::cipher::Cipher;

/// In the order of the configuration.
#[derive(Default)]
pub(crate) struct Providers {
    slots: Vec<Slot>,
}

/// One key of one provider.
pub(crate) struct Slot {
    /// `k8s:enc:aescbc:v1:key1:`; empty for what is not encrypted.
    prefix: String,
    /// `None` stores as it is.
    cipher: Option<Cipher>,
}

/// What no stored object begins with.
const ENCRYPTED: &[u8] = b"k8s:enc:";

impl Slot {
    /// `provider`: as in the prefix, `aescbc`.
    pub(crate) fn new(provider: &str, key: &str, cipher: Cipher) -> Self {
        Self { prefix: format!("k8s:enc:{provider}:v1:{key}:"), cipher: Some(cipher) }
    }

    pub(crate) fn identity() -> Self {
        Self { prefix: String::new(), cipher: None }
    }

    fn provider(&self) -> &str {
        let before_key = self.prefix.match_indices(':').nth(3).map_or(0, |(at, _)| at + 1);
        &self.prefix[..before_key]
    }
}

impl Providers {
    pub(crate) fn push(&mut self, slot: Slot) {
        self.slots.push(slot);
    }

    pub(crate) fn seal(&self, value: &Bytes, context: &[u8]) -> Result<Bytes, String> {
        let Some(Slot { prefix, cipher: Some(cipher) }) = self.slots.first() else {
            return Ok(value.clone());
        };
        let mut out = Vec::with_capacity(prefix.len() + value.len() + OVERHEAD_MAX);
        out.extend_from_slice(prefix.as_bytes());
        cipher.seal(value, context, &mut out)?;
        Ok(out.into())
    }

    pub(crate) fn open(&self, stored: &Bytes, context: &[u8]) -> Result<Opened, String> {
        let mut errors = Vec::new();
        for (at, slot) in self.slots.iter().enumerate() {
            let Some(sealed) = stored.strip_prefix(slot.prefix.as_bytes()) else { continue };
            let opened = match &slot.cipher {
                None if stored.starts_with(ENCRYPTED) => continue,
                None => Ok(stored.clone()),
                Some(cipher) => cipher.open(sealed, context).map(Bytes::from),
            };
            match opened {
                Ok(value) => return Ok(Opened { value, stale: at != 0 }),
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
            Some(_) => "no matching key was found for the provided Secretbox transformer",
            None => "no matching prefix found",
        };
        format!("{words}: the value was written with {wanted}, which is not configured")
    }
}

/// More than any cipher adds.
const OVERHEAD_MAX: usize = 64;

/// Without a configuration for the resource.
pub(crate) fn open_plain(stored: &Bytes) -> Result<Opened, String> {
    match prefix_of(stored) {
        None => Ok(Opened { value: stored.clone(), stale: false }),
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
