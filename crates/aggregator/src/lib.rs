//! The kube-aggregator: discovery and OpenAPI of all served group-versions, and APIServices.
//!
//! Discovery and OpenAPI are rendered from the same list of served group-versions and cached as bytes,
//! without I/O. An APIService with a Service is a remote group-version: its requests are proxied
//! (`proxy_handler`), and one small controller each keeps the table of servers (`registration`), says
//! whether they are there (`local_available_controller`, `remote_available_controller`) and what they
//! say about themselves (`discovery_manager`, `openapi_controller`, `openapiv3_controller`).
//! `peer_proxy` sends requests for resources that this server does not have on to a peer, and `peer_discovery`
//! and `peer_merge` put what peers serve into discovery.
//! `remote_client` and `remote_reflectors` are for controllers that treat remote kinds like local ones.

mod accept;
mod api_service;
mod autoregister;
mod availability_metrics;
mod backoff;
mod byte_ranges;
mod discovery;
mod discovery_documents;
mod discovery_manager;
mod local_available_controller;
mod openapi;
mod openapi_controller;
mod openapiv3_controller;
mod peer_discovery;
mod peer_merge;
mod peer_proxy;
mod proxy_handler;
mod registration;
mod remote_apis;
mod remote_available_controller;
mod remote_client;
mod remote_reflectors;
mod remote_server;
mod remote_spec_controller;
mod served_group_version;
mod server;
mod user_headers;

pub use api_service::{ApiService, ServiceReference};
pub use autoregister::{api_service_name, local_api_service};
pub use availability_metrics::AvailabilityMetrics;
pub use discovery_documents::{DiscoveryDocuments, DocumentResponse};
pub use discovery_manager::DiscoveryManager;
pub use local_available_controller::LocalAvailableController;
pub use meta::compare_versions;
pub use openapi::{DocumentRequest, LoadDescriptions, OpenApi};
pub use openapi_controller::{OpenApiController, OpenApiMetrics};
pub use openapiv3_controller::OpenApiV3Controller;
pub use peer_discovery::{IDENTITY_LABEL, PeerDiscovery};
pub use peer_proxy::{PeerEndpoints, PeerProxy, PeerSettings};
pub use proxy_handler::ProxyHandler;
pub use registration::{Registration, RegistrationEvents, api_services};
pub use remote_apis::{RemoteApi, RemoteApis};
pub use remote_available_controller::RemoteAvailableController;
pub use remote_client::RemoteClient;
pub use remote_reflectors::RemoteReflectors;
pub use remote_server::{RemoteServer, RemoteSettings};
pub use served_group_version::ServedGroupVersion;
pub use server::Aggregator;
