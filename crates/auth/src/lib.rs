//! Authentication turns credentials into a `User`, authorization decides what that user may do. Both
//! are chains behind small traits. This crate serves no HTTP and knows no store; webhooks and OpenID
//! issuers are called with crate `client`.

pub mod authn;
pub mod authz;
mod config_file;
mod egress;
mod expiring_cache;
mod metrics;
mod review;
#[cfg(test)]
mod testing;

pub use authn::{Authenticator, Credentials};
pub use authz::{Attributes, Authorize, Authorizer, Decision, Verdict};
pub use egress::Egress;
pub use metrics::Metrics;
