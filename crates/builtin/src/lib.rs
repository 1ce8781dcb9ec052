//! The built-in kinds: their definitions (facts, in `api/`), their strategies (one file per kind)
//! and the table of them.

mod access;
mod admissionregistration;
mod any_form;
mod apiregistration;
mod apiserverinternal;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod behaviour;
mod certificates;
mod client;
mod convert;
mod coordination;
mod core;
mod definitions;
mod discovery;
mod fill;
mod flowcontrol;
mod format;
mod kinds;
mod networking;
mod node;
mod policy;
mod rbac;
mod resource;
mod restrict;
mod scheduling;
mod storage;
mod storagemigration;
mod stored;
mod strategies;
mod validation;
mod warnings;
mod wiring;

pub use access::{Access, Judgement, TokenUser};
pub use any_form::AnyForm;
pub use client::Client;
pub use core::{master_leases::MasterLeases, service_account::token::Tokens};
pub use definitions::Definitions;
pub use kinds::{Options, kinds};
pub use restrict::{GATES, gate_of};
pub use stored::Form;
pub use wiring::Wiring;
