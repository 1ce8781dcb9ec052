//! The verbs, over any kind: given its schema and its strategy, every resource — built-in or custom
//! — is created, read, listed, watched, changed and deleted by the same code.
//!
//! Reads hand out bytes that the watch cache already has. Writes parse a tree once, change it, and
//! encode it once.

mod action;
mod answer;
mod answered;
mod columns;
mod continue_token;
mod create;
mod custom;
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
mod patched;
mod permit;
mod reserve;
mod response;
mod rest;
mod restrict;
mod scale;
mod select;
mod storage;
mod stored;
mod strategy;
mod table;
mod update;
mod watch;
mod watched;
mod wire;

pub use action::{Action, ActionContext, Outcome};
pub use admission::Pinned;
pub use answer::{Answer, Payload};
pub use answered::{AnswerContext, Answerer};
pub use columns::{Cell, CellOf, Column, ReadCell, Words, since};
pub use continue_token::Continue;
pub use create::prepare_create;
pub use custom::{ApplyTypes, Custom, LazyApplyTypes, ScalePaths, Shape};
pub use kind::{Conversion, Kind, Remote, SelectableSource};
pub use options::DeleteOptions;
pub use permit::{Judge, Permit, Wish};
pub use reserve::{Reservation, Reserve};
pub use rest::{Engine, Rest, Tuning, serve};
pub use restrict::{FieldPattern, Restrictions};
pub use storage::{Follower, Storage, StorageOptions};
pub use stored::{AsJson, StorageCodec};
pub use strategy::{
    Behaviour, Dependents, Fields, MetadataChecks, Plain, Recheck, Strategy, WriteContext,
    keep_all_but_status,
};
pub use update::prepare_update;
pub use watched::{SIZES as WATCHED_SIZES, Watched};
