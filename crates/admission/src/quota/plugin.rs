//! The admission plugin. The requests of one namespace are decided together: while the status of its
//! quotas is being written, further requests gather, and the next write is for all of them.
//!
//! Invariant: a request is accepted only after the usage that it adds was written by a
//! compare-and-swap of the quota's status, so that several servers never accept more than the quota
//! allows together. The charge is pending (`pending.rs`) from before that write until the outcome of the
//! request is known.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use meta::{ApiError, Str, Value};
use tokio::sync::oneshot;

use super::{
    check::{Demand, Quota},
    configuration::{LimitedResource, read_configuration},
    evaluator::Evaluators,
    pending::{Charge, PendingCharges},
};
use crate::{
    Attributes, BoxFuture, Cluster, Operation, Phases, Plugin, configuration::PluginConfiguration,
    is_namespace,
};

/// How the plugin reads and writes quotas.
pub trait QuotaAccessor: Send + Sync + 'static {
    /// Whether a namespace may have quotas: from the watch cache, for every write.
    fn has_quotas(&self, namespace: &str) -> bool;

    /// The quotas of a namespace, at least as new as the moment of the call.
    fn quotas<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Vec<Value>, ApiError>>;

    /// Replaces the status; a conflict if the quota has changed since it was read.
    fn update_status<'a>(&'a self, quota: &'a Value) -> BoxFuture<'a, Result<(), ApiError>>;

    /// Where charges are noted until their objects are stored.
    fn pending(&self) -> &Arc<PendingCharges>;
}

pub struct ResourceQuota {
    shared: Arc<Shared>,
}

struct Shared {
    evaluators: Arc<Evaluators>,
    accessor: Arc<dyn QuotaAccessor>,
    limited: Vec<LimitedResource>,
    /// Requests that wait, by namespace. An entry exists while a task decides about the namespace.
    waiting: Mutex<HashMap<Str, Vec<Waiter>>>,
}

struct Waiter {
    demand: Demand,
    charge: Charge,
    decided: oneshot::Sender<Decision>,
}

type Decision = Result<Charge, ApiError>;

/// Compat: kube-apiserver's.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a conflicting write of a quota's status is tried again.
const RETRIES: usize = 10;

/// Resources that are not stored, or that were never counted.
const IGNORED: [(&str, &str); 10] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "events"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("events.k8s.io", "events"),
];

impl ResourceQuota {
    pub fn new(
        evaluators: Arc<Evaluators>,
        accessor: Arc<dyn QuotaAccessor>,
        configuration: Option<&PluginConfiguration>,
    ) -> Result<Self, String> {
        let limited = configuration.map_or(Ok(Vec::new()), read_configuration)?;
        let waiting = Mutex::default();
        Ok(Self { shared: Arc::new(Shared { evaluators, accessor, limited, waiting }) })
    }

    pub(super) async fn decide(&self, namespace: &str, demand: Demand) -> Decision {
        let decided = self.shared.enqueue(namespace, demand);
        match tokio::time::timeout(PATIENCE, decided).await {
            Ok(Ok(decision)) => decision,
            // The task that decides has panicked: nothing is known of the quota.
            Ok(Err(_)) | Err(_) => Err(ApiError::internal("resource quota evaluation timed out")),
        }
    }
}

impl Plugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        let (group, resource) = (&attributes.gvr.group, &attributes.gvr.resource);
        !attributes.namespace.is_empty()
            && !is_namespace(attributes.gvr)
            && (!self.shared.limited.is_empty()
                || self.shared.accessor.has_quotas(attributes.namespace))
            && !IGNORED.contains(&(group.as_str(), resource.as_str()))
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(object) = object else { return Ok(()) };
            let resource = attributes.gvr.group_resource();
            let evaluator = self.shared.evaluators.of(&resource);
            let (operation, subresource) = (attributes.operation, attributes.subresource);
            if !evaluator.handles(operation, subresource, object, attributes.old) {
                return Ok(());
            }
            let names = [attributes.name, object.str_at(&["metadata", "name"])];
            let demand = Demand {
                evaluator,
                operation,
                resource,
                is_status: subresource == "status",
                is_dry_run: attributes.is_dry_run(),
                name: names
                    .into_iter()
                    .find(|name| !name.is_empty())
                    .unwrap_or_default()
                    .to_owned(),
                object: object.clone(),
                old: attributes.old.cloned(),
            };
            let charge = self.decide(attributes.namespace, demand).await?;
            attributes.charges.hold(charge);
            Ok(())
        })
    }
}

impl Shared {
    fn enqueue(self: &Arc<Self>, namespace: &str, demand: Demand) -> oneshot::Receiver<Decision> {
        let (decided, receiver) = oneshot::channel();
        let charge = self.accessor.pending().begin(namespace);
        let waiter = Waiter { demand, charge, decided };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.get_mut(namespace) {
            Some(waiters) => waiters.push(waiter),
            None => {
                waiting.insert(namespace.into(), vec![waiter]);
                // A task of its own: the request that came first may be gone before it is decided.
                tokio::spawn(Deciding { shared: self.clone(), namespace: namespace.into() }.run());
            }
        }
        receiver
    }
}

/// The task that decides about a namespace until nothing waits.
struct Deciding {
    shared: Arc<Shared>,
    namespace: Str,
}

impl Deciding {
    async fn run(self) {
        loop {
            let waiters = {
                let mut waiting =
                    self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let gathered = waiting.get_mut(&self.namespace).map(std::mem::take);
                match gathered.filter(|gathered| !gathered.is_empty()) {
                    Some(gathered) => gathered,
                    None => {
                        waiting.remove(&self.namespace);
                        return;
                    }
                }
            };
            self.decide(waiters).await;
        }
    }

    async fn decide(&self, waiters: Vec<Waiter>) {
        let quotas = match self.shared.accessor.quotas(&self.namespace).await {
            Ok(quotas) => quotas.into_iter().map(Quota::new).collect::<Vec<_>>(),
            Err(error) => return fail(waiters, &error),
        };
        let (mut quotas, mut waiters) = (quotas, waiters);
        for _ in 0..=RETRIES {
            let charged = self.charge(&mut quotas, waiters);
            let (failed, error) = self.write(quotas).await;
            let Some(error) = error else {
                for Waiter { decided, charge, .. } in charged {
                    // The request may be gone.
                    let _ = decided.send(Ok(charge));
                }
                return;
            };
            // Only what could not be written is decided again: the other quotas have these requests in
            // their usage already.
            let is_failed = |quota: &Value| {
                failed.iter().any(|name| quota.str_at(&["metadata", "name"]) == name.as_str())
            };
            match self.shared.accessor.quotas(&self.namespace).await {
                Ok(current) => {
                    quotas = current.into_iter().filter(is_failed).map(Quota::new).collect();
                }
                Err(_) => return fail(charged, &error),
            }
            waiters = charged;
            for waiter in &mut waiters {
                for quota in &failed {
                    waiter.charge.remove(quota);
                }
            }
        }
        fail(waiters, &ApiError::internal("the quota changed too often to be evaluated"));
    }

    /// Decides what needs no write; the rest is returned, with its usage in `quotas`.
    fn charge(&self, quotas: &mut [Quota], waiters: Vec<Waiter>) -> Vec<Waiter> {
        let mut charged = Vec::new();
        for mut waiter in waiters {
            let limited = &self.shared.limited;
            let decision = if waiter.demand.is_dry_run {
                waiter.demand.charge(&mut quotas.to_vec(), limited).map(|_| Vec::new())
            } else {
                waiter.demand.charge(quotas, limited)
            };
            match decision {
                Ok(raises) if raises.is_empty() => drop(waiter.decided.send(Ok(waiter.charge))),
                Ok(raises) => {
                    for (quota, usage) in raises {
                        waiter.charge.add(&quota, usage);
                    }
                    charged.push(waiter);
                }
                Err(error) => drop(waiter.decided.send(Err(error))),
            }
        }
        charged
    }

    /// Writes the quotas that have changed; returns the names of those that could not be written.
    async fn write(&self, quotas: Vec<Quota>) -> (Vec<Str>, Option<ApiError>) {
        let (mut failed, mut last) = (Vec::new(), None);
        for quota in quotas.into_iter().filter(|quota| quota.changed) {
            if let Err(error) = self.shared.accessor.update_status(&quota.updated()).await {
                failed.push(quota.name);
                last = Some(error);
            }
        }
        (failed, last)
    }
}

impl Drop for Deciding {
    /// A panic must not leave an entry behind that no task attends to.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut waiting = self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.remove(&self.namespace);
        }
    }
}

fn fail(waiters: Vec<Waiter>, error: &ApiError) {
    for waiter in waiters {
        // The request may be gone.
        let _ = waiter.decided.send(Err(ApiError::internal(error.to_string())));
    }
}
