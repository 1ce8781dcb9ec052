//! One server out of several: which group versions are served, and what is told about them.
//!
//! Discovery and OpenAPI are rendered from the same table of served group versions, and handed out as
//! bytes. Nothing of that does I/O or knows async.

mod accept;
mod autoregister;
mod discovery;
mod documents;
mod openapi;
mod served_group_version;
mod server;

pub use autoregister::{api_service_name, local_api_service};
pub use documents::{DocumentResponse, Documents};
pub use meta::compare_versions;
pub use openapi::{DocumentRequest, LoadDescriptions, OpenApi};
pub use served_group_version::ServedGroupVersion;
pub use server::Aggregator;
