//! Why a patch was refused.

use meta::ApiError;
use thiserror::Error;

use crate::json_patch::OPERATIONS_MAX;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PatchError {
    /// It can't be read as a patch.
    #[error("{0}")]
    Malformed(String),
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {0}")]
    TooManyOperations(usize),
    /// It can be read, but not applied to this object.
    #[error("{0}")]
    DoesNotApply(String),
    /// It can be read, but contradicts the type of the object or itself. Upstream has no better code
    /// than 500 for these.
    #[error("{0}")]
    Contradiction(String),
}

impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::Malformed(why) => Self::BadRequest(why),
            PatchError::TooManyOperations(_) => Self::TooLarge(error.to_string()),
            PatchError::DoesNotApply(_) => Self::Unprocessable,
            PatchError::Contradiction(why) => Self::Storage(why),
        }
    }
}
