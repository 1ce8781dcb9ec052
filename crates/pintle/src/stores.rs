//! The storage backends: the embedded store, on disk or in memory, or one or several etcd clusters.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use etcd::Etcd;
use meta::GroupResource;
use parking_lot::Mutex;
use serve::health::Check;
use store::{Backend, Embedded, EmbeddedOptions, StoreError};
use tokio::time::{sleep, timeout};

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
    pub(crate) fn open(options: &Options, dialer: Option<grpc::Dialer>) -> Result<Self, String> {
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
            return Ok(Self { store_type: StoreType::Embedded(Arc::new(store)) });
        };
        let open = |servers: &[String]| {
            Etcd::new(&etcd::Options {
                servers: servers.to_vec(),
                tls: wanted.tls.clone(),
                compact_every: options.compaction_interval,
                lease_reuse_seconds: wanted.lease_reuse_seconds,
                dialer: dialer.clone(),
            })
            .map(Arc::new)
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
    pub(crate) fn checks(&self, options: &Options) -> Vec<Check> {
        let key = format!("{}/health", options.storage_prefix);
        let (alive, ready) = match &options.etcd {
            Some(etcd) => (etcd.healthcheck_timeout, etcd.readycheck_timeout),
            None => (EMBEDDED_TIMEOUT, EMBEDDED_TIMEOUT),
        };
        let alive = health_probe(self.backend(), key.clone(), alive);
        let ready = health_probe(self.backend(), key, ready);
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

/// A check that returns the result of the last background probe. Probing starts with the first call.
fn health_probe(
    backend: Arc<dyn Backend>,
    key: String,
    probe_timeout: Duration,
) -> impl Fn() -> Result<(), String> + Send + Sync {
    let found = Arc::new(Mutex::new(Ok(())));
    let started = OnceLock::new();
    move || {
        started.get_or_init(|| {
            let (backend, key, found) = (backend.clone(), key.clone(), found.clone());
            tokio::spawn(async move {
                loop {
                    let looked = timeout(probe_timeout, backend.get(&key)).await;
                    *found.lock() = probe_result(looked.unwrap_or_else(|_| {
                        Err(StoreError::Unavailable("context deadline exceeded".to_owned()))
                    }));
                    sleep(CHECK_INTERVAL).await;
                }
            });
        });
        found.lock().clone()
    }
}

fn probe_result<T>(looked: Result<T, StoreError>) -> Result<(), String> {
    looked.map(drop).map_err(|error| format!("error getting data from etcd: {error}"))
}
