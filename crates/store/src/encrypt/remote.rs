//! The interface of providers whose keys are outside of this process (KMS plugins). The `kms` crate
//! implements it.

use std::sync::Arc;
use std::time::Duration;

use super::Opened;
use crate::BoxFuture;

/// A provider that calls another process.
pub trait RemoteProvider: Send + Sync + 'static {
    /// Encrypts a value; `context` is authenticated data.
    fn seal(&self, value: &[u8], context: &[u8]) -> Result<Vec<u8>, String>;

    /// Decrypts a value. `stale`: a write now would use another key.
    fn open<'a>(
        &'a self,
        sealed: &'a [u8],
        context: &'a [u8],
    ) -> BoxFuture<'a, Result<Opened, RemoteError>>;

    /// Checks the health of the provider now.
    fn probe(&self) -> BoxFuture<'_, Result<(), String>>;

    /// The health at the last check.
    fn health(&self) -> Result<(), String>;
}

/// Why a value was not decrypted.
#[derive(Debug)]
pub enum RemoteError {
    /// The provider does not respond; a retry may succeed.
    Unavailable(String),
    /// The value cannot be decrypted.
    Unreadable(String),
}

/// The configuration of a KMS plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KmsConfig {
    pub name: String,
    /// `unix:///path`
    pub endpoint: String,
    /// Timeout of one call.
    pub timeout: Duration,
}

/// Creates a provider from its configuration.
pub type Connect = dyn Fn(&KmsConfig) -> Result<Arc<dyn RemoteProvider>, String> + Send + Sync;
