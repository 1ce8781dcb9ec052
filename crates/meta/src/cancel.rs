//! Whether the work of the current thread is still wanted.
//!
//! Decoding, conversion, validation and patching are plain functions that cannot be stopped from
//! outside. The client may have gone or its time may be up, and then the result is thrown away: a loop
//! over chunks of a response asks [`check`] and returns early, a walk over a tree passes [`checkpoint`]
//! and unwinds.

use std::{
    cell::RefCell,
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::ApiError;

thread_local! {
    static CURRENT: RefCell<Option<Cancel>> = const { RefCell::new(None) };
}

/// Asks a piece of work to stop.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs `work`, in which [`requested`] asks this.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        let _restore = Restore(CURRENT.with(|current| current.replace(Some(self.clone()))));
        work()
    }
}

/// Runs `work` to its end even if the current work should stop: for what is made once and shared, such as a
/// `LazyLock`, which would be poisoned for all later requests.
pub fn shielded<T>(work: impl FnOnce() -> T) -> T {
    let _restore = Restore(CURRENT.with(RefCell::take));
    work()
}

/// Puts the one before back, also when the work panics.
struct Restore(Option<Cancel>);

impl Drop for Restore {
    fn drop(&mut self) {
        let before = self.0.take();
        CURRENT.with(|current| *current.borrow_mut() = before);
    }
}

/// Whether the current work should stop. False outside of [`Cancel::scope`]: a few nanoseconds.
pub fn requested() -> bool {
    CURRENT.with(|current| current.borrow().as_ref().is_some_and(Cancel::is_requested))
}

/// An error when the current work should stop; the client does not see it.
pub fn check() -> Result<(), ApiError> {
    if requested() {
        return Err(ApiError::Timeout("the request was cancelled".to_owned()));
    }
    Ok(())
}

/// The payload of an unwinding [`checkpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// Unwinds the current work if it should stop. Walks over trees are many and return plain values; an
/// error type in each of them for a result that no client receives would be noise, so this ends
/// them as salsa ends the queries of rust-analyzer. It does not run the panic hook, so nothing is logged.
///
/// Invariant: only passed by pure computations, so that unwinding leaves no state half written; it does
/// nothing outside of [`Cancel::scope`], whose caller catches the unwinding.
#[inline]
pub fn checkpoint() {
    if requested() {
        resume_unwind(Box::new(Cancelled));
    }
}

/// Passes [`checkpoint`] once in [`STEPS`] calls: for loops whose steps take nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps(usize);

/// So many steps are made in well under a millisecond.
const STEPS: usize = 1_024;

impl Steps {
    pub const NONE: Self = Self(0);

    #[inline]
    pub fn step(&mut self) {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(STEPS) {
            checkpoint();
        }
    }
}

/// Passes [`checkpoint`] with one item of [`ITEMS`]: for loops over lists and maps in walks that have no counter.
pub fn interruptible<I: Iterator>(items: I) -> impl Iterator<Item = I::Item> {
    items.enumerate().map(|(at, item)| {
        if at % ITEMS == ITEMS - 1 {
            checkpoint();
        }
        item
    })
}

/// So few items are not worth a look at the flag.
const ITEMS: usize = 256;

/// Whether `work` passes a checkpoint at all: what it does in a cancelled scope. For the tests of
/// decoders, patches and validators.
pub fn is_interruptible(work: impl FnOnce()) -> bool {
    let cancel = Cancel::default();
    cancel.cancel();
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cancel.scope(work)));
    ended.is_err_and(|payload| payload.is::<Cancelled>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_unwinds_cancelled_work_only() {
        let mut steps = Steps::default();
        let mut count = 0;
        let mut work = || {
            for _ in 0..10 * STEPS {
                steps.step();
                count += 1;
            }
        };
        work();
        Cancel::default().scope(&mut work);
        assert!(is_interruptible(&mut work));
        assert_eq!(count, 21 * STEPS - 1);
        assert!(!is_interruptible(|| ()));
        assert!(is_interruptible(|| interruptible(0..ITEMS).for_each(drop)));
        assert!(!is_interruptible(|| interruptible(0..ITEMS - 1).for_each(drop)));
        assert!(!is_interruptible(|| shielded(checkpoint)));
        assert!(is_interruptible(|| {
            shielded(checkpoint);
            checkpoint();
        }));
        assert!(!requested());
    }

    #[test]
    fn work_learns_that_it_is_cancelled_in_its_scope_only() {
        let (outer, inner) = (Cancel::default(), Cancel::default());
        inner.cancel();
        assert!(!requested());
        outer.scope(|| {
            assert!(!requested());
            inner.scope(|| assert!(requested() && check().is_err()));
            assert!(!requested() && check().is_ok());
            outer.cancel();
            assert!(requested());
        });
        assert!(!requested());
    }
}
