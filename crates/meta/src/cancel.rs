//! Whether the work of the current thread is still wanted.
//!
//! Decoding, conversion and validation are plain functions that cannot be stopped from outside. A
//! loop over many items asks [`requested`] now and then and returns early: the client has gone or
//! its time is up, and the result is thrown away.

use std::{
    cell::RefCell,
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
        /// Puts the one before back, also when `work` panics.
        struct Restore(Option<Cancel>);
        impl Drop for Restore {
            fn drop(&mut self) {
                let before = self.0.take();
                CURRENT.with(|current| *current.borrow_mut() = before);
            }
        }
        let _restore = Restore(CURRENT.with(|current| current.replace(Some(self.clone()))));
        work()
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

#[cfg(test)]
mod tests {
    use super::*;

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
