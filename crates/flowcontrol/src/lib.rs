//! API Priority and Fairness: how many requests are served at the same time, and which of the
//! waiting ones is next.
//!
//! A request is classified by the FlowSchemas, which name a priority level and a flow in it. A
//! priority level has a number of seats; requests that find none wait in its queues, which are
//! served in fair shares. [`FlowController`] is the entry point.
//!
//! The state of a priority level ([`queue_set`]) is a plain state machine over a clock value that is
//! given to it, so that its tests run random schedules without waiting.

mod seat_seconds;
mod shuffle_sharding;
mod work_estimate;

mod seat_demand;
mod timing_histogram;

mod queue_set;

mod concurrency_allocation;
mod flow_schema;
mod priority_level;
mod read_vs_write;
mod retry_after;
mod watch_tracker;

mod controller;
mod dump;
pub mod metrics;

pub use controller::{FlowController, Options, Request};
pub use flow_schema::FlowSchema;
pub use priority_level::{RejectReason, Rejection, Seat};
pub use watch_tracker::WatchRegistration;
pub use work_estimate::{ObjectCounts, ObjectStatistics, WorkEstimate};
