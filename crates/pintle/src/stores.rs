//! Where objects live: the embedded store, or etcd, or several of them.

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

/// The stores of a server. The first one holds everything that no other is named for.
pub(crate) struct Stores {
    kind: Kind,
}

enum Kind {
    Embedded(Arc<Embedded>),
    Etcd { main: Arc<Etcd>, others: Vec<(GroupResource, Arc<Etcd>)> },
}

impl Stores {
    pub(crate) fn open(options: &Options) -> Result<Self, String> {
        let Some(wanted) = &options.etcd else {
            let store = EmbeddedOptions {
                dir: options.data_dir.join("store"),
                compact_every: options.compaction_interval,
            };
            let store = Embedded::open(&store).map_err(|error| error.to_string())?;
            return Ok(Self { kind: Kind::Embedded(Arc::new(store)) });
        };
        let open = |servers: &[String]| {
            Etcd::new(&etcd::Options {
                servers: servers.to_vec(),
                tls: wanted.tls.clone(),
                compact_every: options.compaction_interval,
                lease_reuse_seconds: wanted.lease_reuse_seconds,
            })
            .map(Arc::new)
        };
        // Several resources may share another etcd, which wants one client and one compactor.
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
        Ok(Self { kind: Kind::Etcd { main: opened[0].1.clone(), others } })
    }

    /// Waits until the store answers, so that a wrong address is told instead of waited for.
    pub(crate) async fn reachable(&self, options: &Options) -> Result<(), String> {
        if options.etcd.is_none() {
            return Ok(());
        }
        let (backend, mut last) = (self.backend(), String::new());
        for _ in 0..START_ATTEMPTS {
            match timeout(START_PATIENCE, backend.revision()).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => "etcd does not answer".clone_into(&mut last),
            }
            sleep(START_PAUSE).await;
        }
        Err(format!("cannot reach the etcd servers: {last}"))
    }

    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        match &self.kind {
            Kind::Embedded(store) => store.clone(),
            Kind::Etcd { main, .. } => main.clone(),
        }
    }

    pub(crate) fn overrides(&self) -> Vec<(GroupResource, Arc<dyn Backend>)> {
        match &self.kind {
            Kind::Embedded(_) => Vec::new(),
            Kind::Etcd { others, .. } => others
                .iter()
                .map(|(resource, etcd)| (resource.clone(), etcd.clone() as Arc<dyn Backend>))
                .collect(),
        }
    }

    /// Whether etcd can be reached, as the health endpoints show it. The embedded store is part of
    /// the process: it needs no check of its own.
    pub(crate) fn checks(&self, options: &Options) -> Vec<Check> {
        let Some(etcd) = &options.etcd else { return Vec::new() };
        let key = format!("{}/health", options.storage_prefix);
        let alive = watched(self.backend(), key.clone(), etcd.healthcheck_timeout);
        let ready = watched(self.backend(), key, etcd.readycheck_timeout);
        vec![Check::new("etcd", alive), Check::new("etcd-readiness", ready).ready_only()]
    }

    pub(crate) fn close(&self) {
        match &self.kind {
            Kind::Embedded(store) => store.close(),
            Kind::Etcd { main, others } => {
                main.close();
                for (_, etcd) in others {
                    etcd.close();
                }
            }
        }
    }
}

/// A server that starts together with its etcd waits for it about as long as kube-apiserver does.
const START_ATTEMPTS: u32 = 10;
const START_PATIENCE: Duration = Duration::from_secs(5);
const START_PAUSE: Duration = Duration::from_millis(500);
/// How often etcd is asked, once somebody has asked us.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// A probe that shows what the last look at etcd has found. Looking begins with the first question.
fn watched(
    backend: Arc<dyn Backend>,
    key: String,
    patience: Duration,
) -> impl Fn() -> Result<(), String> + Send + Sync {
    let found = Arc::new(Mutex::new(Ok(())));
    let started = OnceLock::new();
    move || {
        started.get_or_init(|| {
            let (backend, key, found) = (backend.clone(), key.clone(), found.clone());
            tokio::spawn(async move {
                loop {
                    let looked = timeout(patience, backend.get(&key)).await;
                    *found.lock() = verdict(looked.unwrap_or_else(|_| {
                        Err(StoreError::Unavailable("context deadline exceeded".to_owned()))
                    }));
                    sleep(CHECK_EVERY).await;
                }
            });
        });
        found.lock().clone()
    }
}

fn verdict<T>(looked: Result<T, StoreError>) -> Result<(), String> {
    looked.map(drop).map_err(|error| format!("error getting data from etcd: {error}"))
}
