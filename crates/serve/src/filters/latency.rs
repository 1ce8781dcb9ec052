//! How long a filter takes: a metric, a span, and a field of the log where it was long.

use std::time::{Duration, Instant};

use trace::{InScope, Scope, Span};

use crate::{context::Context, metrics::Metrics};

/// The filters that are timed, by kube-apiserver's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Authentication,
    Audit,
    Impersonation,
    ConstrainedImpersonation,
    PriorityAndFairness,
    Authorization,
}

impl Filter {
    pub(crate) const ALL: [Self; 6] = [
        Self::Authentication,
        Self::Audit,
        Self::Impersonation,
        Self::ConstrainedImpersonation,
        Self::PriorityAndFairness,
        Self::Authorization,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::Audit => "audit",
            Self::Impersonation => "impersonation",
            Self::ConstrainedImpersonation => "constrainedimpersonation",
            Self::PriorityAndFairness => "priorityandfairness",
            Self::Authorization => "authorization",
        }
    }
}

/// A filter at work.
pub(crate) struct Timed {
    filter: Filter,
    began: Instant,
    span: Span,
}

impl Timed {
    pub(crate) fn start(filter: Filter, request: &Scope) -> Self {
        Self { filter, began: Instant::now(), span: request.start(filter.name()) }
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// What the filter waits for is part of its span.
    pub(crate) fn run<F: Future>(&self, future: F) -> InScope<F> {
        self.span.run(future)
    }

    /// How long it took.
    pub(crate) fn complete(self, metrics: &Metrics, cx: &mut Context) -> Duration {
        let latency = self.began.elapsed();
        metrics.filtered(self.filter, latency);
        if latency > LOGGED_FROM {
            cx.slow_filters.push((self.filter, latency));
        }
        latency
    }
}

/// Compat: the shortest latency that kube-apiserver logs.
const LOGGED_FROM: Duration = Duration::from_millis(100);
