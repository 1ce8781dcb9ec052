//! The core group.

pub(crate) mod component_status;
pub(crate) mod config_map;
pub(crate) mod endpoints;
pub(crate) mod event;
mod image;
pub(crate) mod limit_range;
pub(crate) mod master_leases;
pub(crate) mod namespace;
pub(crate) mod node;
pub(crate) mod persistent_volume;
pub(crate) mod persistent_volume_claim;
pub(crate) mod pod;
pub(crate) mod pod_spec;
pub(crate) mod pod_template;
pub(crate) mod replication_controller;
pub(crate) mod resource_quota;
pub(crate) mod secret;
pub(crate) mod service;
pub(crate) mod service_account;
mod volume_printer_cells;
