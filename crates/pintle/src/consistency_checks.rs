//! Compares the watch caches with the store now and again, as kube-apiserver does with gate
//! `DetectCacheInconsistency`.

use std::{sync::Arc, time::Duration};

use background::Tasks;
use endpoints::Resources;
use registry::Kind;
use store::{Cache, Consistency};

/// Compat: kube-apiserver's period, which is stretched by up to a half.
const PERIOD: Duration = Duration::from_mins(5);

pub(crate) fn start(kinds: &[Arc<Kind>], extensions: &Arc<Resources>, tasks: &Tasks) {
    let (kinds, extensions) = (kinds.to_vec(), extensions.clone());
    tasks.restarting("cache-consistency-check", move || {
        let (kinds, extensions) = (kinds.clone(), extensions.clone());
        async move {
            loop {
                let share = f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX);
                tokio::time::sleep(PERIOD.mul_f64(1.0 + share / 2.0)).await;
                for cache in caches(&kinds, &extensions) {
                    check(&cache).await;
                }
            }
        }
    });
}

/// The caches of all resources, each once.
fn caches(kinds: &[Arc<Kind>], extensions: &Resources) -> Vec<Arc<Cache>> {
    let custom = extensions.kinds();
    let custom = custom.iter().filter(|kind| kind.is_custom());
    let mut caches: Vec<Arc<Cache>> = Vec::new();
    for storage in kinds.iter().chain(custom).filter_map(|kind| kind.storage.as_ref()) {
        if !caches.iter().any(|known| Arc::ptr_eq(known, &storage.cache)) {
            caches.push(storage.cache.clone());
        }
    }
    caches
}

async fn check(cache: &Cache) {
    let prefix = cache.prefix();
    match cache.check_consistency().await {
        Ok(Consistency::Same { revision }) => {
            tracing::debug!(%prefix, revision, "Cache consistency check passed");
        }
        // The cache has logged it.
        Ok(Consistency::Different { .. }) => {}
        Err(error) => tracing::warn!(%prefix, "Cache consistency check error: {error}"),
    }
}
