//! Leases for keys with a TTL. A lease costs etcd more than a key, so keys that expire at about the
//! same time share one.

use std::time::Duration;

use store::StoreError;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::backend::seconds;
use crate::client::{Client, Retry, method};
use crate::error::store_error;
use crate::{metrics, pb};

pub(crate) struct Leases {
    reuse_seconds: i64,
    newest: Mutex<Option<Lease>>,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    id: i64,
    expires: Instant,
    keys: usize,
}

impl Leases {
    pub(crate) fn new(reuse_seconds: u64) -> Self {
        let reuse_seconds = i64::try_from(reuse_seconds).unwrap_or(i64::MAX);
        Self { reuse_seconds, newest: Mutex::new(None) }
    }

    /// A lease that lasts for `ttl`, and not much longer.
    pub(crate) async fn get(&self, client: &Client, ttl: Duration) -> Result<i64, StoreError> {
        let mut newest = self.newest.lock().await;
        let (ttl, now) = (seconds(ttl), Instant::now());
        let extra = self.extra(ttl);
        if let Some(lease) = newest.as_mut().filter(|lease| lease.fits(now, ttl, extra)) {
            lease.keys += 1;
            return Ok(lease.id);
        }
        let request = pb::LeaseGrantRequest { ttl: ttl + extra, id: 0 };
        let granted = client.call(method::LEASE_GRANT, request, Retry::Always).await;
        let granted: pb::LeaseGrantResponse =
            granted.map_err(|failed| store_error(&failed.status))?;
        if !granted.error.is_empty() {
            return Err(StoreError::Unavailable(granted.error));
        }
        let expires = now + Duration::from_secs((ttl + extra) as u64);
        // Compat: with the object that did not fit any more.
        metrics::lease_closed(newest.map_or(1, |lease| lease.keys + 1));
        *newest = Some(Lease { id: granted.id, expires, keys: 1 });
        Ok(granted.id)
    }

    /// Stops using a lease that etcd no longer has, whatever the local clock says.
    pub(crate) async fn forget(&self, id: i64) {
        let mut newest = self.newest.lock().await;
        newest.take_if(|lease| lease.id == id);
    }

    /// How much longer than asked a lease lasts, so that later keys can share it: a twentieth, up
    /// to the configured limit.
    fn extra(&self, ttl: i64) -> i64 {
        (ttl / 20).min(self.reuse_seconds)
    }
}

impl Lease {
    fn fits(&self, now: Instant, ttl: i64, extra: i64) -> bool {
        let lasts = |seconds: i64| now + Duration::from_secs(seconds as u64);
        lasts(ttl) < self.expires && lasts(ttl + extra) > self.expires && self.keys < KEYS_MAX
    }
}

/// Compat: kube-apiserver's limit. A lease with too many keys makes etcd stall when it expires.
const KEYS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_expire_at_about_the_same_time_share_a_lease() {
        let now = Instant::now();
        let leases = Leases::new(60);
        assert_eq!(leases.extra(3600), 60);
        assert_eq!(leases.extra(100), 5);
        let lease = Lease { id: 1, expires: now + Duration::from_mins(61), keys: 1 };
        let cases = [
            (1, 3600, 1, true),
            (59, 3600, 1, true),
            (60, 3600, 1, false),
            (1, 1800, 1, false),
            (1, 3600, KEYS_MAX, false),
        ];
        for (later, ttl, keys, fits) in cases {
            let lease = Lease { keys, ..lease };
            let at = now + Duration::from_secs(later);
            assert_eq!(lease.fits(at, ttl, leases.extra(ttl)), fits, "{later} {ttl} {keys}");
        }
    }
}
