//! ResourceClaims: their number, and the devices they request of each class.

use admission::{
    Operation,
    quota::{Evaluator, ResourceList},
};
use meta::{Str, Value};

use super::count;

pub(super) struct ResourceClaims;

const COUNT: &str = "count/resourceclaims.resource.k8s.io";
/// After the name of a device class.
const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// The most devices that an allocation can have: what `All` may turn out to be.
const ALLOCATION_MAX: i64 = 32;

impl Evaluator for ResourceClaims {
    fn handles(
        &self,
        operation: Operation,
        subresource: &str,
        _: &Value,
        _: Option<&Value>,
    ) -> bool {
        subresource.is_empty() && matches!(operation, Operation::Create | Operation::Update)
    }

    fn measures(&self, name: &str) -> bool {
        name == COUNT || name.ends_with(DEVICES)
    }

    fn usage(&self, claim: &Value) -> ResourceList {
        let mut usage = ResourceList::from([(COUNT.into(), count(1))]);
        for request in claim.items_at(&["spec", "devices", "requests"]) {
            let alternatives = request.items_at(&["firstAvailable"]);
            if alternatives.is_empty() {
                let exactly = request.get("exactly").unwrap_or(request);
                add_devices(&mut usage, exactly);
                continue;
            }
            // One of the alternatives is allocated: of each class, the most that one of them needs.
            let mut most = ResourceList::new();
            for alternative in alternatives {
                let mut needed = ResourceList::new();
                add_devices(&mut needed, alternative);
                super::raise(&mut most, &needed);
            }
            admission::quota::add(&mut usage, &most);
        }
        usage
    }
}

fn add_devices(usage: &mut ResourceList, request: &Value) {
    let class = request.str_at(&["deviceClassName"]);
    if class.is_empty() {
        return;
    }
    let devices = match request.str_at(&["allocationMode"]) {
        "All" => ALLOCATION_MAX,
        "ExactCount" => request.get("count").and_then(Value::as_i64).unwrap_or(0),
        _ => 0,
    };
    let name: Str = format!("{class}{DEVICES}").into();
    admission::quota::add(usage, &ResourceList::from([(name, count(devices))]));
}
