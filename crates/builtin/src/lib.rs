//! The built-in kinds: their definitions (facts, in `api/`), their strategies (one file per kind)
//! and the table of them.

mod access;
mod admissionregistration;
mod apiregistration;
mod apiserverinternal;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod certificates;
mod client;
mod columns;
mod conversion;
mod coordination;
mod core;
mod defaulting;
mod definitions;
mod discovery;
mod feature_gated_fields;
mod feature_gates;
mod flowcontrol;
mod kind_facts;
mod kinds;
mod networking;
mod node;
mod policy;
mod printer_cells;
mod quota;
mod rbac;
mod resource;
mod rest_storage_provider;
mod scheduling;
mod storage;
mod storage_format;
mod storage_transcoder;
mod storagemigration;
mod strategies;
mod validation;
mod warnings;

pub use access::{Access, RuleResolver, TokenAuthenticator, TokenUser};
pub use client::Client;
pub use core::{
    master_leases::{MasterLeases, PeerLeases},
    service::metrics::register_service_metrics,
    service_account::token::TokenIssuer,
};
pub use definitions::Definitions;
pub use feature_gates::{FeatureGate, FeatureGates};
pub use kind_facts::{gate_of, introduced_in};
pub use kinds::{Options, kinds, static_admission_kinds};
pub use quota::{ClaimObjects, quota_evaluators};
pub use rest_storage_provider::RestStorageProvider;
pub use storage_format::StorageFormat;
pub use storage_transcoder::StorageTranscoder;
