//! How many objects resources have and how large they are: lists are charged by it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use endpoints::Resources;
use flowcontrol::{ObjectCounts, ObjectStatistics};
use meta::{RequestInfo, Str};
use parking_lot::Mutex;
use registry::Storage;

/// Reads the watch caches.
pub(crate) struct CacheCounts {
    servers: Vec<Arc<Resources>>,
    /// Mean object sizes by storage prefix, each measured at this time.
    sizes: Mutex<HashMap<Str, (Instant, u64)>>,
}

/// How long a measured mean is good for. A list reads all objects anyway, so that one that measures
/// costs a little more.
const MEASURE_INTERVAL: Duration = Duration::from_mins(1);

impl CacheCounts {
    pub(crate) fn new(servers: Vec<Arc<Resources>>) -> Self {
        Self { servers, sizes: Mutex::default() }
    }

    fn average_bytes(&self, storage: &Storage, count: u64) -> u64 {
        let prefix = storage.cache.prefix();
        if let Some((measured, average)) = self.sizes.lock().get(prefix)
            && measured.elapsed() < MEASURE_INTERVAL
        {
            return *average;
        }
        let (bytes, _) = storage.cache.bytes();
        let average = (bytes as u64).div_ceil(count.max(1));
        let mut sizes = self.sizes.lock();
        // Caches of deleted definitions.
        sizes.retain(|_, (measured, _)| measured.elapsed() < 2 * MEASURE_INTERVAL);
        sizes.insert(prefix.clone(), (Instant::now(), average));
        average
    }
}

impl ObjectCounts for CacheCounts {
    fn statistics(&self, info: &RequestInfo) -> Option<ObjectStatistics> {
        let RequestInfo { group, version, resource, .. } = info;
        let find = |server: &Arc<Resources>| {
            let kinds = server.kinds();
            kinds.get(group, version, resource).cloned()
        };
        let kind = self.servers.iter().find_map(find)?;
        let storage = kind.storage.as_ref()?;
        let count = storage.cache.snapshot().len() as u64;
        Some(ObjectStatistics { count, average_bytes: self.average_bytes(storage, count) })
    }
}
