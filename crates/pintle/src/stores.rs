//! The storage backends: the embedded store, on disk or in memory, or one or several etcd clusters.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use background::Tasks;
use etcd::Etcd;
use meta::GroupResource;
use parking_lot::Mutex;
use serve::health::Check;
use store::{Backend, BoxFuture, Embedded, EmbeddedOptions, StoreError};
use tokio::time::{Instant, sleep, timeout};

use crate::options::Options;

/// The backends of a server: the main one, and those of `--etcd-servers-overrides`.
#[derive(Clone)]
pub(crate) struct Stores {
    store_type: StoreType,
}

#[derive(Clone)]
enum StoreType {
    Embedded(Arc<Embedded>),
    Etcd { main: Arc<Etcd>, others: Vec<(GroupResource, Arc<Etcd>)> },
}

impl Stores {
    /// `dialer` is the way to etcd, where an egress selector names one.
    pub(crate) fn open(
        options: &Options,
        dialer: Option<grpc::Dialer>,
        tasks: &Tasks,
    ) -> Result<Self, String> {
        let Some(wanted) = &options.etcd else {
            let compact_every = options.compaction_interval;
            let store = match options.data_dir.as_ref().filter(|_| !options.in_memory) {
                None => Embedded::in_memory(compact_every),
                Some(dir) => {
                    let dir = dir.join("store");
                    Embedded::open(&EmbeddedOptions { dir, compact_every })
                }
            };
            let store = store.map_err(|error| error.to_string())?;
            let writer_ended = store.writer_ended();
            // Reads would go on as if nothing had happened.
            tasks.critical("store-writer", async move {
                assert!(writer_ended.await, "the writer thread of the store has panicked");
            });
            return Ok(Self { store_type: StoreType::Embedded(Arc::new(store)) });
        };
        let open = |servers: &[String]| {
            let options = etcd::Options {
                servers: servers.to_vec(),
                tls: wanted.tls.clone(),
                compact_every: options.compaction_interval,
                lease_reuse_seconds: wanted.lease_reuse_seconds,
                dialer: dialer.clone(),
            };
            Etcd::new(&options, tasks).map(Arc::new)
        };
        // Resources with the same override share one client and one compactor.
        let mut opened: Vec<(&[String], Arc<Etcd>)> =
            vec![(&wanted.servers, open(&wanted.servers)?)];
        let mut others = Vec::new();
        for other in &wanted.overrides {
            let known = opened.iter().find(|(servers, _)| *servers == other.servers);
            let etcd = match known {
                Some((_, etcd)) => etcd.clone(),
                None => {
                    let etcd = open(&other.servers)?;
                    opened.push((&other.servers, etcd.clone()));
                    etcd
                }
            };
            let (group, resource) = (other.group.as_str().into(), other.resource.as_str().into());
            others.push((GroupResource { group, resource }, etcd));
        }
        Ok(Self { store_type: StoreType::Etcd { main: opened[0].1.clone(), others } })
    }

    /// Waits until etcd answers; fails with the last error, e.g. for a wrong address.
    pub(crate) async fn reachable(&self, options: &Options) -> Result<(), String> {
        if options.etcd.is_none() {
            return Ok(());
        }
        let (backend, mut last) = (self.backend(), String::new());
        for _ in 0..START_ATTEMPTS {
            match timeout(START_TIMEOUT, backend.revision()).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => "etcd does not answer".clone_into(&mut last),
            }
            sleep(START_PAUSE).await;
        }
        Err(format!("cannot reach the etcd servers: {last}"))
    }

    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        match &self.store_type {
            StoreType::Embedded(store) => store.clone(),
            StoreType::Etcd { main, .. } => main.clone(),
        }
    }

    pub(crate) fn overrides(&self) -> Vec<(GroupResource, Arc<dyn Backend>)> {
        match &self.store_type {
            StoreType::Embedded(_) => Vec::new(),
            StoreType::Etcd { others, .. } => others
                .iter()
                .map(|(resource, etcd)| (resource.clone(), etcd.clone() as Arc<dyn Backend>))
                .collect(),
        }
    }

    /// The health checks of the store. Compat: named etcd for the embedded store as well, because
    /// probes ask for `/healthz/etcd` and `?exclude=etcd`.
    pub(crate) fn checks(&self, options: &Options, tasks: &Tasks) -> Vec<Check> {
        let key = format!("{}/health", options.storage_prefix);
        let (alive, ready) = match &options.etcd {
            Some(etcd) => (etcd.healthcheck_timeout, etcd.readycheck_timeout),
            None => (EMBEDDED_TIMEOUT, EMBEDDED_TIMEOUT),
        };
        let probe = |name: &'static str, within| {
            let (backend, key) = (self.backend(), key.clone());
            let get = move || -> BoxFuture<'static, Result<(), StoreError>> {
                let (backend, key) = (backend.clone(), key.clone());
                Box::pin(async move { backend.get(&key).await.map(drop) })
            };
            health_probe(name, Arc::new(get), within, tasks)
        };
        let (alive, ready) = (probe("store-probe", alive), probe("store-readiness-probe", ready));
        vec![Check::new("etcd", alive), Check::new("etcd-readiness", ready).ready_only()]
    }

    /// Bytes on disk of each store, by its name in metrics.
    pub(crate) async fn sizes(&self) -> Vec<(String, u64)> {
        match &self.store_type {
            StoreType::Embedded(store) => vec![("embedded-0".to_owned(), store.usage().0)],
            StoreType::Etcd { main, others } => {
                let mut clusters = vec![main];
                for (_, etcd) in others {
                    if !clusters.iter().any(|known| Arc::ptr_eq(known, etcd)) {
                        clusters.push(etcd);
                    }
                }
                let mut sizes = Vec::new();
                for (n, etcd) in clusters.into_iter().enumerate() {
                    let statuses = etcd.statuses().await;
                    let size = statuses.into_iter().find_map(|(_, status)| status.ok());
                    sizes.extend(size.map(|status| (format!("etcd-{n}"), status.db_size)));
                }
                sizes
            }
        }
    }

    pub(crate) fn close(&self) {
        match &self.store_type {
            StoreType::Embedded(store) => store.close(),
            StoreType::Etcd { main, others } => {
                main.close();
                for (_, etcd) in others {
                    etcd.close();
                }
            }
        }
    }
}

/// How long a start waits for etcd: about as long as kube-apiserver's.
const START_ATTEMPTS: u32 = 10;
const START_TIMEOUT: Duration = Duration::from_secs(5);
const START_PAUSE: Duration = Duration::from_millis(500);
/// The embedded store answers from memory; a longer delay means that it hangs.
const EMBEDDED_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of the probe, once a health endpoint was requested.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A probe without a result for this long, beside its timeout, has panicked or hangs.
const PROBE_OVERDUE: Duration = Duration::from_secs(10);

type Get = dyn Fn() -> BoxFuture<'static, Result<(), StoreError>> + Send + Sync;

/// A check that returns the result of the last background probe. Probing starts with the first call.
fn health_probe(
    name: &'static str,
    get: Arc<Get>,
    probe_timeout: Duration,
    tasks: &Tasks,
) -> impl Fn() -> Result<(), String> + Send + Sync + use<> {
    let (started, tasks) = (OnceLock::new(), tasks.clone());
    move || {
        let found = started.get_or_init(|| {
            let found = Arc::new(Mutex::new((Instant::now(), Ok(()))));
            let (get, probed) = (get.clone(), found.clone());
            tasks.restarting(name, move || probe(get.clone(), probe_timeout, probed.clone()));
            found
        });
        let (at, result) = found.lock().clone();
        if at.elapsed() > probe_timeout + PROBE_OVERDUE {
            return Err(format!("error getting data from etcd: no result for {:?}", at.elapsed()));
        }
        result
    }
}

type ProbeResult = (Instant, Result<(), String>);

async fn probe(get: Arc<Get>, probe_timeout: Duration, found: Arc<Mutex<ProbeResult>>) {
    loop {
        let looked = timeout(probe_timeout, get()).await;
        let result = probe_result(looked.unwrap_or_else(|_| {
            Err(StoreError::Unavailable("context deadline exceeded".to_owned()))
        }));
        *found.lock() = (Instant::now(), result);
        sleep(CHECK_INTERVAL).await;
    }
}

fn probe_result<T>(looked: Result<T, StoreError>) -> Result<(), String> {
    looked.map(drop).map_err(|error| format!("error getting data from etcd: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_panics_is_started_again_and_one_that_stays_away_fails_its_check() {
        let tasks = Tasks::default();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let get = move || -> BoxFuture<'static, Result<(), StoreError>> {
            let call = counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                match call {
                    0 | 2 => Ok(()),
                    3 => Err(StoreError::Unavailable("away".to_owned())),
                    _ => panic!("asked for"),
                }
            })
        };
        let check = health_probe("probe", Arc::new(get), Duration::from_secs(2), &tasks);
        let results = |calls: Arc<AtomicUsize>, number| async move {
            while calls.load(Ordering::Relaxed) < number {
                sleep(CHECK_INTERVAL / 4).await;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(check(), Ok(()));
        results(calls.clone(), 3).await;
        assert_eq!((tasks.panics("probe"), check()), (1, Ok(())));
        results(calls.clone(), 4).await;
        assert_eq!(check(), Err("error getting data from etcd: away".to_owned()));
        sleep(2 * PROBE_OVERDUE).await;
        let overdue = check().expect_err("there was no result");
        assert!(overdue.starts_with("error getting data from etcd: no result for"), "{overdue}");
        assert_eq!(tasks.stop(Duration::from_secs(1)).await, 0);
        assert_eq!(tasks.running("probe"), 0);
    }
}
