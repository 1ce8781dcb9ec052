//! The span that a future runs in.

use std::{
    cell::RefCell,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::HeaderValue;
use pin_project_lite::pin_project;

use crate::{context::SpanContext, span::Tracer};

/// What children and outgoing calls take from a span.
#[derive(Debug)]
pub(crate) struct Current {
    /// None: nothing is recorded, and the context is only passed on.
    pub(crate) tracer: Option<Tracer>,
    pub(crate) context: SpanContext,
    pub(crate) baggage: Option<HeaderValue>,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Current>>> = const { RefCell::new(None) };
}

pub(crate) fn current() -> Option<Arc<Current>> {
    CURRENT.with_borrow(Clone::clone)
}

/// The current span, to be taken to another thread or task.
#[derive(Clone, Debug, Default)]
pub struct Scope(pub(crate) Option<Arc<Current>>);

pub fn current_scope() -> Scope {
    Scope(current())
}

impl Scope {
    /// Runs a future in the span, on whichever threads it is polled.
    pub fn run<F: Future>(self, future: F) -> InScope<F> {
        InScope { current: self.0, future }
    }
}

pin_project! {
    /// A future that runs in a span. An `async fn` would hold the future twice.
    pub struct InScope<F> {
        // None: in the span that is there anyway.
        current: Option<Arc<Current>>,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for InScope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = this.current.clone().map(Entered::new);
        this.future.poll(cx)
    }
}

/// Restores the outer span, also when the future panics.
struct Entered(Option<Arc<Current>>);

impl Entered {
    fn new(current: Arc<Current>) -> Self {
        Self(CURRENT.replace(Some(current)))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}
