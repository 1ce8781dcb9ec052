//! How long rules take to compile and to evaluate, and how long the comparison with old objects takes. This
//! crate knows no metrics: the server sets an observer.

use std::{
    cell::Cell,
    sync::OnceLock,
    time::{Duration, Instant},
};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedStep {
    /// All rules of a schema.
    Compilation,
    /// All rules, for one object.
    Evaluation,
    /// The search for values that an update leaves as they were.
    Ratcheting,
}

pub type Observer = Box<dyn Fn(TimedStep, Duration) + Send + Sync>;

static OBSERVER: OnceLock<Observer> = OnceLock::new();

thread_local! {
    /// Of the update that this thread validates.
    static COMPARED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Sets the observer of the process; only the first one counts.
pub fn observe_with(observer: Observer) {
    drop(OBSERVER.set(observer));
}

pub(super) fn timed<T>(step: TimedStep, run: impl FnOnce() -> T) -> T {
    let Some(observer) = OBSERVER.get() else { return run() };
    let started = Instant::now();
    let result = run();
    observer(step, started.elapsed());
    result
}

/// A part of the comparison with an old object.
pub(super) fn compare<T>(run: impl FnOnce() -> T) -> T {
    if OBSERVER.get().is_none() {
        return run();
    }
    let started = Instant::now();
    let result = run();
    COMPARED.set(COMPARED.get() + started.elapsed());
    result
}

/// Validates an update, and tells how long its comparisons took together.
pub(super) fn ratcheted<T>(validate: impl FnOnce() -> T) -> T {
    let Some(observer) = OBSERVER.get() else { return validate() };
    // What an update that was canceled has left.
    COMPARED.set(Duration::ZERO);
    let result = validate();
    observer(TimedStep::Ratcheting, COMPARED.take());
    result
}
