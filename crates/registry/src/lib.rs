//! The verbs for any kind: given a schema and a strategy, every resource, built-in or custom, is
//! created, read, listed, watched, updated and deleted by the same code.
//!
//! Reads serve bytes of the watch cache. Writes decode an object once and encode it once.

mod action;
mod admitted_object;
mod allocation;
mod audit;
mod columns;
mod computed_resource;
mod continue_token;
mod cost;
mod create;
mod custom_kind;
mod decode;
mod delete;
mod feature_gated_fields;
mod frame;
mod get;
#[cfg(test)]
mod growth_tests;
mod kind;
mod list;
mod list_pieces;
mod managed_fields;
mod managed_fields_conversions;
mod object_meta;
mod options;
mod owner_references;
mod patch;
mod patch_errors;
mod protobuf_metadata;
mod protobuf_response;
mod resource_request;
mod resource_response;
mod response_format;
mod scale;
mod selectors;
mod storage;
mod storage_codec;
mod strategy;
mod table;
#[cfg(test)]
mod testing;
mod update;
mod watch;
mod watch_metrics;
mod write_authorizer;

pub use action::{Action, ActionContext, ActionOutcome, admit_connect};
pub use admission::BoxFuture;
pub use admitted_object::{decode_typed, merge_unowned};
pub use allocation::{Allocation, Allocator, Reservation};
pub use columns::{Cell, CellOf, Column, FieldDescriptions, ReadCell, since};
pub use computed_resource::{ComputeContext, ComputedResource};
pub use continue_token::Continue;
pub use cost::is_costly;
pub use create::prepare_create;
pub use custom_kind::{ApplyTypes, CustomKind, LazyApplyTypes, PruneAndDefault, ScalePaths};
pub use decode::strict_decoding_error;
pub use feature_gated_fields::{FeatureGatedFields, FieldPattern, GatedRule};
pub use kind::{Conversion, Kind, RemoteConverter, SelectableSource};
pub use options::DeleteOptions;
pub use resource_request::{Engine, RegistryOptions, ResourceRequest, serve};
pub use resource_response::{ListChunks, Payload, ResourceResponse};
pub use storage::{Follower, Storage, StorageOptions};
pub use storage_codec::{AsJson, StorageCodec};
pub use strategy::{
    Behaviour, DefaultStrategy, Fields, GarbageCollectionPolicy, MetadataChecks,
    ObjectMetaValidation, Strategy, WriteContext, keep_all_but_status,
};
pub use update::prepare_update;
pub use watch_metrics::{SIZES as WATCH_EVENT_SIZES, WatchMetrics, WatchScope};
pub use write_authorizer::{WriteAuthorizer, WriteRequest};
