//! The verbs, over any kind: given its schema and its strategy, every resource — built-in or custom
//! — is created, read, listed, watched, changed and deleted by the same code.
//!
//! Reads hand out bytes that the watch cache already has. Writes parse a tree once, change it, and
//! encode it once.

mod action;
mod resource_response;
mod computed_resource;
mod columns;
mod continue_token;
mod create;
mod custom_kind;
mod decode;
mod delete;
mod frame;
mod get;
mod kind;
mod list;
mod managed;
mod object_meta;
mod options;
mod other_versions;
mod owners;
mod patch;
mod patch_errors;
mod write_authorizer;
mod allocation;
mod response_format;
mod resource_request;
mod feature_gated_fields;
mod scale;
mod select;
mod storage;
mod storage_codec;
mod strategy;
mod table;
mod update;
mod watch;
mod watch_metrics;
mod wire;

pub use action::{Action, ActionContext, Outcome};
pub use admission::Pinned;
pub use resource_response::{Answer, Payload};
pub use computed_resource::{AnswerContext, Answerer};
pub use columns::{Cell, CellOf, Column, ReadCell, Words, since};
pub use continue_token::Continue;
pub use create::prepare_create;
pub use custom_kind::{ApplyTypes, Custom, LazyApplyTypes, ScalePaths, Shape};
pub use kind::{Conversion, Kind, Remote, SelectableSource};
pub use options::DeleteOptions;
pub use write_authorizer::{Judge, Permit, Wish};
pub use allocation::{Reservation, Reserve};
pub use resource_request::{Engine, Rest, Tuning, serve};
pub use feature_gated_fields::{FieldPattern, Restrictions};
pub use storage::{Follower, Storage, StorageOptions};
pub use storage_codec::{AsJson, StorageCodec};
pub use strategy::{
    Behaviour, Dependents, Fields, MetadataChecks, Plain, Recheck, Strategy, WriteContext,
    keep_all_but_status,
};
pub use update::prepare_update;
pub use watch_metrics::{SIZES as WATCHED_SIZES, Watched};
