//! Outgoing calls over HTTP.

pub mod verifier;
