//! What an object takes from a limited supply when it is written: a service its addresses and ports.

use admission::Pinned;
use meta::{ApiError, Value};

/// Hands out what is limited. Called between admission and validation, with objects of the served
/// version.
pub trait Allocator: Send + Sync + 'static {
    /// Takes what a new object needs and writes it into the object.
    fn for_create<'a>(
        &'a self,
        object: &'a mut Value,
        dry_run: bool,
    ) -> Pinned<'a, Result<Allocation, ApiError>>;

    /// Takes what is new; what is no longer needed is given back when the change is committed.
    fn for_update<'a>(
        &'a self,
        object: &'a mut Value,
        old: &'a Value,
        dry_run: bool,
    ) -> Pinned<'a, Result<Allocation, ApiError>>;

    /// The object is gone: gives back all it had.
    fn release<'a>(&'a self, object: &'a Value) -> Pinned<'a, ()>;
}

type Job = Pinned<'static, ()>;

/// Taken, but not for good: unless it is kept, it is given back.
#[derive(Default)]
pub struct Allocation {
    keep: Option<Job>,
    give_back: Option<Job>,
}

impl Allocation {
    /// `keep` runs when the object is written, `give_back` when it is not.
    pub fn new(keep: Option<Job>, give_back: Option<Job>) -> Self {
        Self { keep, give_back }
    }

    /// Ends as the write did.
    pub(crate) async fn settle(mut self, written: bool) {
        let give_back = self.give_back.take();
        let job = if written { self.keep.take() } else { give_back };
        if let Some(job) = job {
            job.await;
        }
    }
}

/// A request that is cut off gives back, too.
impl Drop for Allocation {
    fn drop(&mut self) {
        if let (Some(job), Ok(runtime)) =
            (self.give_back.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(job);
        }
    }
}
