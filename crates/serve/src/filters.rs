//! The filters of the chain, one file each. A filter is a function that looks at the request and
//! its context and may end it with an error; `chain.rs` says in which order they run.

pub(crate) mod audit_id;
pub(crate) mod authenticate;
pub(crate) mod authorize;
pub(crate) mod cors;
pub(crate) mod deadline;
pub(crate) mod impersonate;
pub(crate) mod latency;
pub(crate) mod request_info;
pub(crate) mod request_span;
pub(crate) mod response_headers;
pub(crate) mod seats;
