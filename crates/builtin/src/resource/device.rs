//! The defaults of requests for devices and of devices, in the shapes of all versions.

use meta::{Map, Value, time};

use crate::defaulting::{SetDefault, is_empty};

/// The spec of a claim, or of the template of one.
pub(super) fn default_claim_spec(spec: &mut Map) {
    let Some(devices) = spec.given("devices") else { return };
    for request in devices.each("requests") {
        if let Some(exactly) = request.given("exactly") {
            default_request(exactly);
        }
        // v1beta1 has no `exactly`: its fields are those of the request.
        if request.get("deviceClassName").is_some_and(|class| !is_empty(class)) {
            default_request(request);
        }
        request.each("firstAvailable").for_each(default_request);
    }
}

/// One device, unless all are asked for.
fn default_request(request: &mut Map) {
    request.set_default_if_empty("allocationMode", EXACT_COUNT);
    if request.get("allocationMode").and_then(Value::as_str) == Some(EXACT_COUNT) {
        request.set_default_if_empty("count", 1i64);
    }
}

const EXACT_COUNT: &str = "ExactCount";

pub(super) fn default_device(device: &mut Map) {
    device.each("taints").for_each(default_taint);
    if let Some(mappings) = device.given("nodeAllocatableResourceMappings") {
        for (_, mapping) in mappings.iter_mut() {
            mapping.object_at_mut(&[]).set_default("allocationMultiplier", "1");
        }
    }
    // v1beta1 has everything about a device in here.
    if let Some(basic) = device.given("basic") {
        default_device(basic);
    }
}

/// Tolerations run out a while after this.
pub(super) fn default_taint(taint: &mut Map) {
    if taint.get("timeAdded").is_none_or(Value::is_null) {
        taint.insert("timeAdded", time::now());
    }
}

#[cfg(test)]
mod tests {
    use meta::{time::Time, value};

    use super::*;

    #[test]
    fn a_taint_counts_from_now_unless_it_says_since_when() {
        let mut device = value!({"taints": [{"key": "a"}, {"timeAdded": "2026-01-02T03:04:05Z"}]});
        let before = Time::now().unix_seconds();
        default_device(device.object_at_mut(&[]));
        let added =
            |at: usize| Time::parse(device.items_at(&["taints"])[at].str_at(&["timeAdded"]));
        let added = [added(0), added(1)].map(|time| time.expect("a time").unix_seconds());
        assert!((before..before + 60).contains(&added[0]), "{added:?} is not after {before}");
        assert_eq!(added[1], 1_767_323_045);
    }

    #[test]
    fn what_a_device_takes_of_its_node_counts_once() {
        let mut old = value!({"basic": {"nodeAllocatableResourceMappings": {
            "cpu": {}, "memory": {"allocationMultiplier": "2"}
        }}});
        default_device(old.object_at_mut(&[]));
        let expected = value!({"basic": {"nodeAllocatableResourceMappings": {
            "cpu": {"allocationMultiplier": "1"}, "memory": {"allocationMultiplier": "2"}
        }}});
        assert_eq!(old, expected);
    }
}
