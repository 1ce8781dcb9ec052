//! The group `admissionregistration.k8s.io`.

mod match_resources;
pub(crate) mod mutating_admission_policy;
pub(crate) mod policy_binding;
mod policy_printer_cells;
pub(crate) mod static_names;
pub(crate) mod validating_admission_policy;
pub(crate) mod webhook_configuration;
