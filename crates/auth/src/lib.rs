//! Who is asking, and may they? Authentication turns credentials into a `User`, authorization
//! judges what that user wants to do. Both are chains behind small traits; this room knows neither
//! HTTP nor the store.

pub mod authn;
pub mod authz;

pub use authn::{Authenticator, Credentials};
pub use authz::{Attributes, Authorize, Authorizer, Decision, Verdict};
