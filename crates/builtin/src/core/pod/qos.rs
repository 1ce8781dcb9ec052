//! The quality of service of pods.

use meta::{Value, quantity::Quantity};

/// What the pod is promised: `Guaranteed` if every container has limits for CPU and memory and asks
/// for as much, `BestEffort` if none has or asks for any, else `Burstable`. Resources of the pod as a
/// whole count instead of those of its containers.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let whole = pod.at(&["spec", "resources"]).filter(|resources| !resources.is_null());
    let containers = pod.items_at(&["spec", "containers"]).iter();
    let containers = containers.chain(pod.items_at(&["spec", "initContainers"]));
    let resources: Vec<&Value> = match whole {
        Some(whole) => vec![whole],
        None => containers.filter_map(|container| container.get("resources")).collect(),
    };
    let sum = |list: &str, resource: &str| {
        let mut sum: Option<Quantity> = None;
        for amount in resources.iter().filter_map(|own| amount(own, list, resource)) {
            match &mut sum {
                Some(sum) => sum.add(&amount),
                None => sum = Some(amount),
            }
        }
        sum
    };
    let all_limited = resources
        .iter()
        .all(|own| QOS_RESOURCES.iter().all(|resource| amount(own, "limits", resource).is_some()));
    let sums = QOS_RESOURCES.map(|resource| (sum("requests", resource), sum("limits", resource)));
    if sums.iter().all(|(requests, limits)| requests.is_none() && limits.is_none()) {
        return "BestEffort";
    }
    let guaranteed = all_limited && sums.iter().all(|(requests, limits)| requests == limits);
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

const QOS_RESOURCES: [&str; 2] = ["cpu", "memory"];

/// An amount that isn't zero.
fn amount(resources: &Value, list: &str, resource: &str) -> Option<Quantity> {
    let amount = Quantity::from_value(resources.at(&[list, resource])?).ok()?;
    amount.sign().is_gt().then_some(amount)
}
