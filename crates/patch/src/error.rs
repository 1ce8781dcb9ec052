//! Why a patch was refused.

use meta::{ApiError, limits::TooDeep};
use thiserror::Error;

use crate::json_patch::{MOVED_VALUES_MAX, OPERATIONS_MAX};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PatchError {
    /// The body is not a valid patch.
    #[error("{0}")]
    Malformed(String),
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {0}")]
    TooManyOperations(usize),
    #[error("The operations of the JSON patch move more than {MOVED_VALUES_MAX} values")]
    TooMuchWork,
    /// The patched object would be nested too deep.
    #[error("{0}")]
    TooDeep(TooDeep),
    /// The patch is valid, but cannot be applied to this object.
    #[error("{0}")]
    DoesNotApply(String),
    /// A `test` operation of a JSON patch found another value.
    #[error("{0}")]
    TestFailed(String),
    /// The patch contradicts the type of the object or itself. Compat: upstream answers 500 for
    /// these.
    #[error("{0}")]
    Contradiction(String),
}

impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::Malformed(why) => Self::BadRequest(why),
            PatchError::TooManyOperations(_) | PatchError::TooMuchWork => {
                Self::TooLarge(error.to_string())
            }
            PatchError::TooDeep(why) => Self::BadRequest(why.to_string()),
            PatchError::DoesNotApply(_) | PatchError::TestFailed(_) => Self::Unprocessable,
            PatchError::Contradiction(why) => Self::Storage(why),
        }
    }
}
