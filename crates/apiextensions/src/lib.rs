//! The apiextensions-apiserver: CustomResourceDefinitions and the custom resources that they define. It
//! is the last delegate; what it does not serve is a 404.
//!
//! `definition` is the strategy of definitions. `crd_controller` serves them; the conditions that it
//! writes are computed in `naming_controller`, `api_approval_controller`, `establishing_controller` and
//! `finalizing_controller`. `served_definition` builds the served kinds of a definition with `types`,
//! `prune_and_default`, `custom_resource_strategy`, `columns` and `webhook`.

mod api_approval_controller;
mod columns;
mod conditions;
mod crd;
mod crd_controller;
mod custom_resource_strategy;
pub mod definition;
mod establishing_controller;
pub mod finalizing_controller;
mod naming_controller;
mod progress;
mod prune_and_default;
mod served_definition;
mod types;
mod webhook;

pub use crd_controller::{CrdController, CrdEventHandler, Options};

/// The group of CustomResourceDefinitions.
pub const GROUP: &str = "apiextensions.k8s.io";
