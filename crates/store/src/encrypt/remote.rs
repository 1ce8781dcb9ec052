//! Providers whose keys somebody else keeps (a KMS plugin). What speaks to them is another crate's
//! business; here is what they are asked.

use std::sync::Arc;
use std::time::Duration;

use super::Opened;
use crate::BoxFuture;

/// A provider that has to be asked.
pub trait RemoteProvider: Send + Sync + 'static {
    /// Encrypts a value; `context` is authenticated along.
    fn seal(&self, value: &[u8], context: &[u8]) -> Result<Vec<u8>, String>;

    /// Decrypts a value. `stale`: a write now would use another key.
    fn open<'a>(
        &'a self,
        sealed: &'a [u8],
        context: &'a [u8],
    ) -> BoxFuture<'a, Result<Opened, RemoteError>>;

    /// Looks whether the provider is well, now.
    fn probe(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Whether it was well when somebody last looked.
    fn health(&self) -> Result<(), String>;
}

/// Why a value was not decrypted.
#[derive(Debug)]
pub enum RemoteError {
    /// The provider does not answer; it may later.
    Unavailable(String),
    /// The value itself is wrong.
    Unreadable(String),
}

/// What the configuration says about a KMS plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KmsConfig {
    pub name: String,
    /// `unix:///path`
    pub endpoint: String,
    /// Of one call.
    pub timeout: Duration,
}

/// Makes a provider of what the configuration says.
pub type Connect = dyn Fn(&KmsConfig) -> Result<Arc<dyn RemoteProvider>, String> + Send + Sync;
