//! Authentication turns credentials into a `User`, authorization decides what that user may do. Both
//! are chains behind small traits; this crate knows neither HTTP nor the store.

pub mod authn;
pub mod authz;

pub use authn::{Authenticator, Credentials};
pub use authz::{Attributes, Authorize, Authorizer, Decision, Verdict};
