//! Remembers who is behind a token, for authenticators that take long to say. Requests that bring the
//! same token at the same time share one look-up.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures_util::{
    FutureExt as _,
    future::{Shared, WeakShared},
};
use meta::Str;
use prometheus::IntGauge;

use super::{TokenResult, TokenUser};
use crate::{
    expiring_cache::{ExpiringCache, Key, key},
    metrics::Metrics,
};

/// As long as kube-apiserver remembers the user of any token.
pub(crate) const SUCCESS_TTL: Duration = Duration::from_secs(10);
/// Compat: twice as many as a cluster of 5 000 nodes and 10 000 namespaces has.
const TOKENS_MAX: usize = 32 * 1024;

type Lookup = Pin<Box<dyn Future<Output = TokenResult> + Send>>;

pub(crate) struct TokenCache {
    known: ExpiringCache<Option<TokenUser>>,
    /// Look-ups under way; weak, so that a look-up ends when no request waits for it.
    pending: Mutex<HashMap<Key, WeakShared<Lookup>>>,
    success_ttl: Duration,
    failure_ttl: Duration,
    metrics: Metrics,
}

impl TokenCache {
    pub(crate) fn new(success_ttl: Duration, failure_ttl: Duration, metrics: &Metrics) -> Self {
        let (known, pending) = (ExpiringCache::new(TOKENS_MAX), Mutex::default());
        Self { known, pending, success_ttl, failure_ttl, metrics: metrics.clone() }
    }

    /// The user behind a token. Errors are not remembered: the next request may have more luck.
    pub(crate) async fn get(
        &self,
        token: &str,
        audiences: &[Str],
        lookup: impl FnOnce() -> Lookup,
    ) -> TokenResult {
        let key = key([token].into_iter().chain(audiences.iter().map(Str::as_str)));
        let began = Instant::now();
        if let Some(known) = self.known.get(&key, began) {
            self.count("hit", began);
            return Ok(known);
        }
        let blocked = Counted::new(&self.metrics, "blocked");
        let found = self.join(key, lookup).await;
        drop(blocked);
        self.count("miss", began);
        if let Ok(user) = &found {
            let ttl = if user.is_some() { self.success_ttl } else { self.failure_ttl };
            self.known.put(key, user.clone(), ttl, Instant::now());
        }
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        found
    }

    fn join(&self, key: Key, lookup: impl FnOnce() -> Lookup) -> Shared<Lookup> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = pending.get(&key).and_then(WeakShared::upgrade) {
            return shared;
        }
        // Those whose requests went away.
        pending.retain(|_, lookup| lookup.upgrade().is_some());
        let (lookup, metrics) = (lookup(), self.metrics.clone());
        let fetch: Lookup = Box::pin(async move {
            let _active = Counted::new(&metrics, "in_flight");
            let found = lookup.await;
            let status = if found.is_ok() { "ok" } else { "error" };
            metrics.token_fetches.with_label_values(&[status]).inc();
            found
        });
        let shared = fetch.shared();
        if let Some(weak) = shared.downgrade() {
            pending.insert(key, weak);
        }
        shared
    }
}

impl TokenCache {
    fn count(&self, status: &str, began: Instant) {
        let seconds = began.elapsed().as_secs_f64();
        self.metrics.token_requests.with_label_values(&[status]).inc();
        self.metrics.token_request_duration.with_label_values(&[status]).observe(seconds);
    }
}

/// One more in a gauge while it lives.
struct Counted(IntGauge);

impl Counted {
    fn new(metrics: &Metrics, status: &str) -> Self {
        let gauge = metrics.token_fetches_active.with_label_values(&[status]);
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use meta::User;

    use super::*;

    fn found(name: &str) -> TokenResult {
        let user = User { name: Str::new(name), ..User::default() };
        Ok(Some(TokenUser { user, audiences: Vec::new() }))
    }

    #[tokio::test]
    async fn requests_with_one_token_share_a_lookup_and_errors_are_forgotten() {
        let cache =
            TokenCache::new(Duration::from_mins(1), Duration::from_mins(1), &Metrics::new("test"));
        let calls = Arc::new(AtomicUsize::new(0));
        let ask = |token: &'static str, result: TokenResult| {
            let calls = calls.clone();
            cache.get(token, &[], move || {
                calls.fetch_add(1, Ordering::SeqCst);
                Box::pin(async move {
                    tokio::task::yield_now().await;
                    result
                })
            })
        };
        let (one, two) = tokio::join!(ask("a", found("jane")), ask("a", found("jane")));
        assert_eq!((one, calls.load(Ordering::SeqCst)), (two, 1));
        ask("a", found("other")).await.unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), 1, "it is remembered");
        ask("b", Err("down".to_owned())).await.unwrap_err();
        assert_eq!(ask("b", Ok(None)).await, Ok(None));
        assert_eq!(ask("b", found("too late")).await, Ok(None), "a failure is remembered");
        assert_eq!(calls.load(Ordering::SeqCst), 3);
        let counted = |status| cache.metrics.token_requests.with_label_values(&[status]).get();
        assert_eq!((counted("hit"), counted("miss")), (2, 4));
        let active = |status| cache.metrics.token_fetches_active.with_label_values(&[status]).get();
        assert_eq!((active("blocked"), active("in_flight")), (0, 0));
    }

    #[tokio::test]
    async fn a_lookup_that_every_request_left_is_begun_again() {
        let cache = TokenCache::new(Duration::from_mins(1), Duration::ZERO, &Metrics::new("test"));
        let never = cache.get("a", &[], || Box::pin(std::future::pending()));
        assert!(never.now_or_never().is_none());
        assert_eq!(cache.get("a", &[], || Box::pin(async { found("jane") })).await, found("jane"));
    }
}
