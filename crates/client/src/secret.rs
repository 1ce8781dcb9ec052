//! Text that must not be shown.

use std::fmt;

/// A token, password or private key. `Debug` hides it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    pub fn new(secret: T) -> Self {
        Self(secret)
    }

    /// The secret itself, for the one place that sends it.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl From<&str> for Secret<String> {
    fn from(secret: &str) -> Self {
        Self(secret.to_owned())
    }
}
