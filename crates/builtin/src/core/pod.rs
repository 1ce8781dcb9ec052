//! Pods: deleted gracefully, because the kubelet has to stop the containers first.

use meta::{Value, value};
use registry::{Strategy, WriteContext};

pub(crate) struct Pod;

impl Strategy for Pod {
    fn prepare_for_create(&self, pod: &mut Value, _cx: &WriteContext<'_>) {
        pod.set_at(&["status"], value!({"phase": "Pending", "qosClass": (qos_class(pod))}));
    }

    fn graceful_deletion(&self, pod: &Value, asked: Option<i64>) -> Option<i64> {
        let spec = pod.i64_at(&["spec", "terminationGracePeriodSeconds"]).unwrap_or(DEFAULT_GRACE);
        let mut seconds = asked.unwrap_or(spec);
        // Nobody runs it, or it has ended: there is nothing to wait for.
        let ended = matches!(pod.str_at(&["status", "phase"]), "Succeeded" | "Failed");
        if pod.str_at(&["spec", "nodeName"]).is_empty() || ended {
            seconds = 0;
        }
        Some(seconds.max(0))
    }
}

const DEFAULT_GRACE: i64 = 30;

/// What the pod is promised: `Guaranteed` if every container has equal limits and requests for CPU
/// and memory, `BestEffort` if none has any, else `Burstable`.
fn qos_class(pod: &Value) -> &'static str {
    let containers = pod.items_at(&["spec", "containers"]).iter();
    let containers = containers.chain(pod.items_at(&["spec", "initContainers"]));
    let (mut any, mut all_equal) = (false, true);
    for container in containers {
        for resource in ["cpu", "memory"] {
            let limit = quantity(container, "limits", resource);
            let request = quantity(container, "requests", resource).or_else(|| limit.clone());
            any |= limit.is_some() || request.is_some();
            all_equal &= limit.is_some() && limit == request;
        }
    }
    match (any, all_equal) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// A quantity that isn't zero.
fn quantity(container: &Value, list: &str, resource: &str) -> Option<String> {
    let text = container.str_at(&["resources", list, resource]);
    (!text.is_empty() && text != "0").then(|| text.to_owned())
}
