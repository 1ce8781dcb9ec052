//! Failures on the way to a backend, as clients get them.

use client::{DialError, go_text};
use meta::ApiError;

/// Compat: an error without a code of its own, except for addresses that are not dialed at all.
pub(crate) fn dial_error(error: client::Error) -> ApiError {
    match refused_address(&error) {
        Some(refused) => refused,
        None => ApiError::Storage(format!("error dialing backend: {}", go_text(&error))),
    }
}

/// The same for a request that was proxied.
pub(crate) fn proxy_error(error: proxy::Error) -> ApiError {
    match &error {
        proxy::Error::Unreachable(cause) | proxy::Error::Dial(cause) => {
            refused_address(cause).unwrap_or_else(|| error.into())
        }
        _ => error.into(),
    }
}

/// The client asked for something that the server does not connect to.
pub(crate) fn refused_address(error: &client::Error) -> Option<ApiError> {
    match error {
        client::Error::Dial(refused @ DialError::NotAllowed { .. }) => {
            Some(ApiError::BadRequest(refused.to_string()))
        }
        _ => None,
    }
}
