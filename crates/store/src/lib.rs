//! Storage: the backends (MVCC key-value stores) and the watch cache in front of them, which serves
//! every read and every watch from memory with bytes ready to send.
//!
//! Reading order: `backend` (the interface), `memory` (its model), `embedded` (the default store on
//! disk), `encrypt` (encryption at rest, wraps a backend), then the read path: `entry`, `object_json` and `delta`, `encoding_cache`, `snapshot`,
//! `event`, `ring`, `watcher` (and its `timer`), `cache`, `reflector`, and `consistency`, which compares a
//! cache with its backend. `read_metrics` has counters. `failpoint` has the points
//! at which tests crash the store.

pub mod backend;
pub mod embedded;
pub mod encrypt;
pub mod memory;

mod cache;
mod consistency;
mod delta;
mod encoding_cache;
mod entry;
mod event;
mod failpoint;
mod object_json;
mod read_metrics;
mod reflector;
mod ring;
mod snapshot;
mod timer;
mod wake_queue;
mod watcher;

#[cfg(any(test, feature = "contract"))]
pub mod contract;

pub use backend::{
    Backend, Batch, BoxFuture, Change, Expect, KeyValue, Range, RangeResult, StoreError, Watch,
    WatchStream, Write,
};
pub use cache::{Cache, CacheOptions, ReadError};
pub use consistency::Consistency;
pub use embedded::{Embedded, EmbeddedOptions};
pub use encoding_cache::{CachedEncodings, ENCODING_CACHE_BYTES, EncodingCache};
pub use entry::{Entry, Materialize, label_bits};
pub use event::{Event, EventKind};
pub use memory::MemoryBackend;
pub use object_json::{ObjectJson, append};
pub use read_metrics::{DurationHistogram, ListCounters, ReadMetrics};
pub use ring::{RingLimits, Trigger};
pub use snapshot::{Snapshot, UnreadableObject};
pub use timer::Timer;
pub use watcher::{WatchItem, Watcher};
