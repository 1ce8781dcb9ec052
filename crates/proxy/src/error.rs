//! Why a request could not be forwarded.

use client::go_text;
use meta::ApiError;

/// Compat: the words are those of k8s.io/apimachinery/pkg/util/proxy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Upgrade request required")]
    UpgradeRequired,
    #[error("error trying to reach service: {}", go_text(.0))]
    Unreachable(client::Error),
    /// The same for an upgrade.
    #[error("error dialing backend: {}", go_text(.0))]
    Dial(client::Error),
    #[error("invalid upgrade response: status code {0}")]
    InvalidUpgradeResponse(u16),
    /// A 101 to something that was not asked for.
    #[error("invalid upgrade response: {0}")]
    WrongProtocol(String),
}

impl From<Error> for ApiError {
    /// As the handlers of CONNECT subresources report it.
    fn from(error: Error) -> Self {
        match error {
            Error::UpgradeRequired => Self::BadRequest(error.to_string()),
            Error::Unreachable(_) => Self::ServiceUnavailable(error.to_string()),
            // Compat: errors without a code of their own.
            Error::Dial(_) | Error::InvalidUpgradeResponse(_) | Error::WrongProtocol(_) => {
                Self::Storage(error.to_string())
            }
        }
    }
}
