//! Pods: their number, and what their containers request and are limited to.

use std::collections::{BTreeMap, BTreeSet};

use admission::{
    Operation,
    quota::{Evaluator, ResourceList, Scope, add},
};
use meta::{Str, Value, time::Time};

use super::{amounts, count, raise};
pub(super) struct Pods {
    pod_level_resources: bool,
    in_place_resize: bool,
}

impl Pods {
    pub(super) fn new(is_enabled: &dyn Fn(&str) -> bool) -> Self {
        Self {
            pod_level_resources: is_enabled("PodLevelResources"),
            in_place_resize: is_enabled("InPlacePodVerticalScaling"),
        }
    }
}

const COUNT: &str = "count/pods";

const NAMES: [&str; 11] = [
    COUNT,
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];

/// Compat: a quota on one of these makes every container name an amount of it.
const REQUIRED: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

pub(super) const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

impl Evaluator for Pods {
    fn handles(
        &self,
        operation: Operation,
        subresource: &str,
        pod: &Value,
        old: Option<&Value>,
    ) -> bool {
        match (subresource, operation) {
            ("", Operation::Create) | ("resize", Operation::Update) => true,
            // A pod that gets a deadline moves from one scope to another.
            ("", Operation::Update) => {
                old.is_some_and(|old| has_deadline(old) != has_deadline(pod))
            }
            _ => false,
        }
    }

    fn measures(&self, name: &str) -> bool {
        NAMES.contains(&name)
            || name.starts_with("hugepages-")
            || name.strip_prefix("requests.").is_some_and(|requested| {
                requested.starts_with("hugepages-")
                    || requested.starts_with(DEVICE_CLASS)
                    || !is_native(requested)
            })
    }

    fn matches_scope(&self, scope: &Scope, pod: &Value) -> Option<bool> {
        Some(match scope.name.as_str() {
            "Terminating" => has_deadline(pod),
            "NotTerminating" => !has_deadline(pod),
            "BestEffort" => self.is_best_effort(pod),
            "NotBestEffort" => !self.is_best_effort(pod),
            "PriorityClass" => {
                let class = pod.str_at(&["spec", "priorityClassName"]);
                scope.selects(Some(class).filter(|class| !class.is_empty()))
            }
            "CrossNamespacePodAffinity" => uses_other_namespaces(pod),
            _ => false,
        })
    }

    fn check_constraints(&self, required: &[&str], pod: &Value) -> Result<(), String> {
        if self.pod_level_resources && has_pod_level_resources(pod) {
            return Ok(());
        }
        let required: BTreeSet<&str> =
            required.iter().copied().filter(|name| REQUIRED.contains(name)).collect();
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for field in ["containers", "initContainers"] {
            for container in pod.items_at(&["spec", field]) {
                let resources = |field| amounts(container.at(&["resources", field]));
                let named = compute_usage(&resources("requests"), &resources("limits"));
                for name in required.iter().filter(|name| !named.contains_key(**name)) {
                    missing.entry(*name).or_default().insert(container.str_at(&["name"]));
                }
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.into_iter().map(|(name, containers)| {
            let containers: Vec<&str> = containers.into_iter().collect();
            format!("{name} for: {}", containers.join(","))
        });
        Err(format!("must specify {}", missing.collect::<Vec<_>>().join("; ")))
    }

    /// The object counts until it is gone, its resources until it has ended.
    fn usage(&self, pod: &Value) -> ResourceList {
        let mut usage = ResourceList::from([(COUNT.into(), count(1))]);
        if !has_ended(pod) {
            let requests = self.total(pod, "requests");
            add(&mut usage, &compute_usage(&requests, &self.total(pod, "limits")));
        }
        usage
    }
}

impl Pods {
    /// What the pod requests or is limited to while it runs: the sum of its containers, at least what an
    /// init container needs, or what the pod itself says.
    fn total(&self, pod: &Value, field: &'static str) -> ResourceList {
        let statuses = if self.in_place_resize { Statuses::of(pod) } else { Statuses::default() };
        let of = |container: &Value| statuses.effective(container, field);
        let mut total = ResourceList::new();
        for container in pod.items_at(&["spec", "containers"]) {
            add(&mut total, &of(container));
        }
        let (mut sidecars, mut init) = (ResourceList::new(), ResourceList::new());
        for container in pod.items_at(&["spec", "initContainers"]) {
            if container.str_at(&["restartPolicy"]) == "Always" {
                // A sidecar runs on beside the others.
                let needed = of(container);
                add(&mut total, &needed);
                add(&mut sidecars, &needed);
                raise(&mut init, &sidecars);
            } else {
                let mut needed = amounts(container.at(&["resources", field]));
                add(&mut needed, &sidecars);
                raise(&mut init, &needed);
            }
        }
        raise(&mut total, &init);
        if self.pod_level_resources {
            let of_pod = amounts(pod.at(&["spec", "resources", field]));
            total.extend(of_pod.into_iter().filter(|(name, _)| is_pod_level(name)));
        }
        let overhead = amounts(pod.at(&["spec", "overhead"]));
        if field == "requests" {
            add(&mut total, &overhead);
        } else {
            // A pod without a limit has none with its overhead either.
            for (name, amount) in &overhead {
                if let Some(limit) = total.get_mut(name).filter(|limit| !limit.is_zero()) {
                    limit.add(amount);
                }
            }
        }
        total
    }

    fn is_best_effort(&self, pod: &Value) -> bool {
        let class = pod.str_at(&["status", "qosClass"]);
        if !class.is_empty() {
            return class == "BestEffort";
        }
        let is_some = |resources: Option<&Value>| {
            ["requests", "limits"].iter().any(|field| {
                let amounts = amounts(resources.and_then(|resources| resources.get(field)));
                amounts.iter().any(|(name, amount)| {
                    matches!(name.as_str(), "cpu" | "memory") && !amount.is_zero()
                })
            })
        };
        if self.pod_level_resources && has_pod_level_resources(pod) {
            return !is_some(pod.at(&["spec", "resources"]));
        }
        let containers = ["containers", "initContainers"];
        let mut containers = containers.iter().flat_map(|field| pod.items_at(&["spec", field]));
        !containers.any(|container| is_some(container.get("resources")))
    }
}

/// What the kubelet reports of containers whose resources are being changed.
#[derive(Default)]
struct Statuses<'a> {
    by_name: BTreeMap<&'a str, &'a Value>,
    is_infeasible: bool,
}

impl<'a> Statuses<'a> {
    fn of(pod: &'a Value) -> Self {
        let fields = ["containerStatuses", "initContainerStatuses"];
        let statuses = fields.iter().flat_map(|field| pod.items_at(&["status", field]));
        let conditions = pod.items_at(&["status", "conditions"]);
        let pending = conditions.iter().find(|one| one.str_at(&["type"]) == "PodResizePending");
        Self {
            by_name: statuses.map(|status| (status.str_at(&["name"]), status)).collect(),
            is_infeasible: pending.is_some_and(|one| one.str_at(&["reason"]) == "Infeasible"),
        }
    }

    /// The most of what is asked for, was promised and is in place; a change that the node cannot make
    /// does not count.
    fn effective(&self, container: &Value, field: &str) -> ResourceList {
        let wanted = amounts(container.at(&["resources", field]));
        let status = self.by_name.get(container.str_at(&["name"]));
        let Some(status) = status.filter(|status| status.get("resources").is_some()) else {
            return wanted;
        };
        let mut effective = amounts(status.at(&["resources", field]));
        if field == "requests" {
            raise(&mut effective, &amounts(status.get("allocatedResources")));
        }
        if !self.is_infeasible {
            raise(&mut effective, &wanted);
        }
        effective
    }
}

/// Requests and limits under the names that quotas have for them.
fn compute_usage(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut usage = ResourceList::from([("pods".into(), count(1))]);
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(request) = requests.get(name) {
            usage.insert(name.into(), request.clone());
            usage.insert(format!("requests.{name}").into(), request.clone());
        }
        if let Some(limit) = limits.get(name) {
            usage.insert(format!("limits.{name}").into(), limit.clone());
        }
    }
    for (name, request) in requests {
        let requested = || -> Str { format!("requests.{name}").into() };
        if name.starts_with("hugepages-") {
            usage.insert(name.clone(), request.clone());
            usage.insert(requested(), request.clone());
        }
        if name.starts_with(DEVICE_CLASS) || !is_native(name) && !name.starts_with("requests.") {
            usage.insert(requested(), request.clone());
        }
    }
    usage
}

/// A resource of Kubernetes itself, not one that a device plugin or driver brings.
pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn has_pod_level_resources(pod: &Value) -> bool {
    ["requests", "limits"].iter().any(|field| {
        amounts(pod.at(&["spec", "resources", field])).keys().any(|name| is_pod_level(name))
    })
}

fn has_deadline(pod: &Value) -> bool {
    let deadline = pod.at(&["spec", "activeDeadlineSeconds"]).and_then(Value::as_i64);
    deadline.is_some_and(|seconds| seconds >= 0)
}

/// Succeeded, failed, or still there although its grace period is over.
fn has_ended(pod: &Value) -> bool {
    if matches!(pod.str_at(&["status", "phase"]), "Failed" | "Succeeded") {
        return true;
    }
    let deleted = Time::parse(pod.str_at(&["metadata", "deletionTimestamp"])).ok();
    let grace = pod.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64);
    deleted.zip(grace).is_some_and(|(deleted, grace)| {
        Time::now().unix_seconds() > deleted.unix_seconds().saturating_add(grace)
    })
}

fn uses_other_namespaces(pod: &Value) -> bool {
    let crosses = |term: &Value| {
        !term.items_at(&["namespaces"]).is_empty() || term.get("namespaceSelector").is_some()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|affinity| {
        let terms = |field| pod.items_at(&["spec", "affinity", affinity, field]);
        terms("requiredDuringSchedulingIgnoredDuringExecution").iter().any(crosses)
            || terms("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|term| term.get("podAffinityTerm").is_some_and(crosses))
    })
}
