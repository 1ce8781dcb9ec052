//! Audit: a record of who did what.
//!
//! A [`Policy`] decides how much of a request is recorded, an [`Event`] is that record at one stage
//! of the request, and an [`Auditor`] hands it to the log file and the webhook of its [`Options`].
//! The bytes, file names, metrics and messages are kube-apiserver's.
//!
//! - `policy`: rules, compiled once
//! - `event`: events, and their JSON
//! - `backend`, `batch`: modes, truncation, the queue of mode batch
//! - `log_file`, `webhook`: where events go

mod auditor;
mod backend;
mod batch;
mod event;
mod log_file;
mod metrics;
mod options;
mod policy;
mod webhook;

pub use self::{
    auditor::{Auditor, Processed},
    event::{Event, ObjectReference, ResponseStatus, Stage, source_ips, user_agent},
    metrics::AuditMetrics,
    options::{DeliveryOptions, LogOptions, Options, TruncateOptions, WebhookOptions},
    policy::{Policy, RequestPolicy, StageSet},
};
