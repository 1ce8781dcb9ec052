//! The kube-aggregator: discovery and OpenAPI of all served group-versions, and APIServices.
//!
//! Discovery and OpenAPI are rendered from the same list of served group-versions and cached as bytes,
//! without I/O.

mod accept;
mod autoregister;
mod discovery;
mod discovery_documents;
mod openapi;
mod served_group_version;
mod server;

pub use autoregister::{api_service_name, local_api_service};
pub use discovery_documents::{DiscoveryDocuments, DocumentResponse};
pub use meta::compare_versions;
pub use openapi::{DocumentRequest, LoadDescriptions, OpenApi};
pub use served_group_version::ServedGroupVersion;
pub use server::Aggregator;
