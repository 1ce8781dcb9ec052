//! What `kubectl get pods` says about a pod: how many containers are ready, what state it is in, and how
//! often its containers were restarted. All three come from one walk over the containers.

use meta::{Str, Value, time::Time};

use crate::printer_cells::{condition_is_true, is_being_deleted};

pub(super) struct Summary {
    /// `1/2`
    pub ready: String,
    /// A phase, or the reason that says more: `CrashLoopBackOff`, `Init:0/2`, `Terminating`.
    pub status: Str,
    /// `3 (5m ago)`
    pub restarts: String,
}

pub(super) fn summary(pod: &Value, now: Time) -> Summary {
    let mut walk = Walk::new(pod);
    let initializing = walk.init_containers();
    if !initializing || condition_is_true(pod, "Initialized") {
        walk.containers();
    }
    if is_being_deleted(pod) {
        if pod.str_at(&["status", "reason"]) == "NodeLost" {
            walk.status = Str::new_static("Unknown");
        } else if !matches!(pod.str_at(&["status", "phase"]), "Succeeded" | "Failed") {
            walk.status = Str::new_static("Terminating");
        }
    }
    Summary {
        ready: format!("{}/{}", walk.ready, walk.total),
        restarts: walk.restarts.text(now),
        status: walk.status,
    }
}

struct Walk<'a> {
    pod: &'a Value,
    status: Str,
    ready: usize,
    total: usize,
    restarts: Restarts,
    /// Those of init containers that run on beside the others.
    sidecar_restarts: Restarts,
}

impl<'a> Walk<'a> {
    fn new(pod: &'a Value) -> Self {
        let sidecars = pod.items_at(&["spec", "initContainers"]).iter();
        let sidecars = sidecars.filter(|container| is_sidecar(container)).count();
        Self {
            pod,
            status: Str::new(pod_reason(pod)),
            ready: 0,
            total: pod.items_at(&["spec", "containers"]).len() + sidecars,
            restarts: Restarts::default(),
            sidecar_restarts: Restarts::default(),
        }
    }

    /// Walks until an init container that is not done; returns whether there is one.
    fn init_containers(&mut self) -> bool {
        let specs = crate::validation::by_name(self.pod.items_at(&["spec", "initContainers"]));
        let statuses = self.pod.items_at(&["status", "initContainerStatuses"]);
        for (at, container) in statuses.iter().enumerate() {
            let name = container.str_at(&["name"]);
            let sidecar = specs.get(name).is_some_and(|spec| is_sidecar(spec));
            self.restarts.add(container);
            if sidecar {
                self.sidecar_restarts.add(container);
            }
            let terminated = state(container, "terminated");
            if terminated.is_some_and(|end| exit_code(end) == 0) {
                continue;
            }
            if sidecar && container.bool_at(&["started"]) {
                self.ready += usize::from(container.bool_at(&["ready"]));
                continue;
            }
            let waiting = container.str_at(&["state", "waiting", "reason"]);
            let why = match terminated {
                Some(terminated) => end(terminated),
                None if !matches!(waiting, "" | "PodInitializing") => waiting.to_owned(),
                None => format!("{at}/{}", specs.len()),
            };
            self.status = format!("Init:{why}").into();
            return true;
        }
        false
    }

    fn containers(&mut self) {
        self.restarts = self.sidecar_restarts;
        let (mut running, mut failure) = (false, None);
        // From the last to the first, so that the first one's reason is what stays.
        for container in self.pod.items_at(&["status", "containerStatuses"]).iter().rev() {
            self.restarts.add(container);
            let waiting = container.str_at(&["state", "waiting", "reason"]);
            if !waiting.is_empty() {
                self.status = Str::new(waiting);
            } else if let Some(terminated) = state(container, "terminated") {
                self.status = end(terminated).into();
                if exit_code(terminated) != 0 {
                    failure = Some(self.status.clone());
                }
            } else if container.bool_at(&["ready"]) && state(container, "running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        // One container that is done does not make the pod done.
        if self.status == "Completed" {
            if running && condition_is_ready(self.pod) {
                self.status = Str::new_static("Running");
            } else if let Some(failure) = failure {
                self.status = failure;
            } else if running {
                self.status = Str::new_static("NotReady");
            }
        }
    }
}

fn pod_reason(pod: &Value) -> &str {
    let conditions = pod.items_at(&["status", "conditions"]).iter();
    let mut scheduled =
        conditions.filter(|condition| condition.str_at(&["type"]) == "PodScheduled");
    if scheduled.any(|condition| condition.str_at(&["reason"]) == GATED) {
        return GATED;
    }
    match pod.str_at(&["status", "reason"]) {
        "" => pod.str_at(&["status", "phase"]),
        reason => reason,
    }
}

const GATED: &str = "SchedulingGated";

fn is_sidecar(container: &Value) -> bool {
    container.str_at(&["restartPolicy"]) == "Always"
}

fn condition_is_ready(pod: &Value) -> bool {
    let mut conditions = pod.items_at(&["status", "conditions"]).iter();
    conditions.any(|c| c.str_at(&["type"]) == "Ready" && c.str_at(&["status"]) == "True")
}

fn state<'a>(container: &'a Value, name: &str) -> Option<&'a Value> {
    container.at(&["state", name]).filter(|state| !state.is_null())
}

fn exit_code(terminated: &Value) -> i64 {
    terminated.i64_at(&["exitCode"]).unwrap_or_default()
}

/// How a container ended: `Error`, `Signal:9`, `ExitCode:1`.
fn end(terminated: &Value) -> String {
    let signal = terminated.i64_at(&["signal"]).unwrap_or_default();
    match terminated.str_at(&["reason"]) {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", exit_code(terminated)),
        reason => reason.to_owned(),
    }
}

/// How often containers were restarted, and when the last time was.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Time>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count =
            self.count.saturating_add(container.i64_at(&["restartCount"]).unwrap_or_default());
        let ended = container.str_at(&["lastState", "terminated", "finishedAt"]);
        let ended = Time::parse(ended).ok().filter(|time| !time.is_zero());
        self.last = self.last.max(ended);
    }

    fn text(self, now: Time) -> String {
        match self.last {
            Some(last) if self.count != 0 => {
                format!("{} ({} ago)", self.count, now.since(last).human())
            }
            _ => self.count.to_string(),
        }
    }
}
