//! ResourceClaims: their number, and the devices they request of each class, also under the name of the
//! extended resource that the class stands for.

use std::sync::Arc;

use admission::{
    Operation,
    quota::{Evaluator, ResourceList},
};
use meta::{Str, Value};

use super::{
    count,
    pods::{DEVICE_CLASS, Pods, is_native},
};

pub(super) struct ResourceClaims {
    /// None: the gate DRAExtendedResource is off.
    pub(super) extended: Option<ExtendedResources>,
}

/// The extended resources that device classes stand for, and the claims that the scheduler makes for pods which
/// request them.
pub(super) struct ExtendedResources {
    pub(super) objects: Arc<dyn ClaimObjects>,
    pub(super) pods: Pods,
}

/// What is looked up for a claim, from the watch caches.
pub trait ClaimObjects: Send + Sync + 'static {
    fn device_classes(&self) -> Vec<Value>;
    fn pod(&self, namespace: &str, name: &str) -> Option<Value>;
    fn claims(&self, namespace: &str) -> Vec<Value>;
}

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
        name == COUNT
            || name.ends_with(DEVICES)
            || self.extended.as_ref().is_some_and(|extended| extended.measures(name))
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
        if let Some(extended) = &self.extended {
            extended.add(&mut usage, claim);
        }
        usage
    }
}

impl ExtendedResources {
    fn measures(&self, name: &str) -> bool {
        let Some(resource) = name.strip_prefix("requests.") else { return false };
        let is_wanted: &dyn Fn(&Value) -> bool = match resource.strip_prefix(DEVICE_CLASS) {
            Some(name) => &move |class| class.str_at(&["metadata", "name"]) == name,
            None if is_native(resource) => return false,
            None => &move |class| extended_resource(class) == Some(resource),
        };
        self.objects.device_classes().iter().any(is_wanted)
    }

    /// Adds the devices under their other names, but for those that the claim's pod is charged for already.
    fn add(&self, usage: &mut ResourceList, claim: &Value) {
        let classes = self.objects.device_classes();
        let mut requested = ResourceList::new();
        for (name, devices) in &*usage {
            let Some(class) = name.strip_suffix(DEVICES).filter(|class| !class.is_empty()) else {
                continue;
            };
            requested.insert(format!("requests.{DEVICE_CLASS}{class}").into(), devices.clone());
            let known = classes.iter().find(|known| known.str_at(&["metadata", "name"]) == class);
            if let Some(resource) = known.and_then(extended_resource) {
                requested.insert(format!("requests.{resource}").into(), devices.clone());
            }
        }
        let charged = self.charged_pod(claim).map(|pod| self.pods.usage(&pod)).unwrap_or_default();
        for (name, mut devices) in requested {
            if let Some(charged) = charged.get(&name) {
                devices.sub(charged);
            }
            if devices > count(0) {
                usage.insert(name, devices);
            }
        }
    }

    /// The pod that a claim was made for: it owns the claim, and the claim is its only one, or its first.
    fn charged_pod(&self, claim: &Value) -> Option<Value> {
        let (namespace, name) =
            (claim.str_at(&["metadata", "namespace"]), claim.str_at(&["metadata", "name"]));
        let owner = owning_pod(claim)?;
        let pod = self.objects.pod(namespace, owner.str_at(&["name"]))?;
        let uid = pod.str_at(&["metadata", "uid"]);
        if uid != owner.str_at(&["uid"]) {
            return None;
        }
        if pod.at(&["status", "extendedResourceClaimStatus"]).is_some() {
            let named = ["status", "extendedResourceClaimStatus", "resourceClaimName"];
            return (pod.str_at(&named) == name).then_some(pod);
        }
        let age = |claim: &Value| claim.str_at(&["metadata", "creationTimestamp"]).to_owned();
        let is_before = |other: &Value| {
            let is_of_pod = owning_pod(other).is_some_and(|owner| owner.str_at(&["uid"]) == uid);
            is_of_pod && (age(other), other.str_at(&["metadata", "name"])) < (age(claim), name)
        };
        (!self.objects.claims(namespace).iter().any(is_before)).then_some(pod)
    }
}

fn extended_resource(class: &Value) -> Option<&str> {
    class.at(&["spec", "extendedResourceName"]).and_then(Value::as_str)
}

/// The pod that controls a claim for extended resources.
fn owning_pod(claim: &Value) -> Option<&Value> {
    let annotation = "resource.kubernetes.io/extended-resource-claim";
    if claim.str_at(&["metadata", "annotations", annotation]) != "true" {
        return None;
    }
    let mut owners = claim.items_at(&["metadata", "ownerReferences"]).iter();
    let owner = owners.find(|owner| owner.bool_at(&["controller"]))?;
    (owner.str_at(&["kind"]) == "Pod" && owner.str_at(&["apiVersion"]) == "v1").then_some(owner)
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

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    struct Objects {
        pod: Option<Value>,
        claims: Vec<Value>,
    }

    impl ClaimObjects for Objects {
        fn device_classes(&self) -> Vec<Value> {
            vec![
                value!({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}),
                value!({"metadata": {"name": "plain"}, "spec": {}}),
            ]
        }

        fn pod(&self, _namespace: &str, _name: &str) -> Option<Value> {
            self.pod.clone()
        }

        fn claims(&self, _namespace: &str) -> Vec<Value> {
            self.claims.clone()
        }
    }

    fn evaluator(pod: Option<Value>, claims: Vec<Value>) -> ResourceClaims {
        let objects = Arc::new(Objects { pod, claims });
        ResourceClaims {
            extended: Some(ExtendedResources { objects, pods: Pods::new(&|_| false) }),
        }
    }

    fn claim(name: &str, class: &str) -> Value {
        value!({
            "metadata": {
                "namespace": "n", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true},
                ],
            },
            "spec": {"devices": {"requests": [
                {"name": "r", "exactly": {"deviceClassName": class, "allocationMode": "ExactCount", "count": 2i64}},
            ]}},
        })
    }

    fn pod(devices: i64, status: Value) -> Value {
        let devices = devices.to_string();
        value!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {
                "example.com/gpu": (devices.clone()), "deviceclass.resource.kubernetes.io/gpu": (devices),
            }}}]},
            "status": (status),
        })
    }

    #[test]
    fn quotas_may_name_extended_resources_of_device_classes() {
        let cases = [
            (COUNT, true, true),
            ("gpu.deviceclass.resource.k8s.io/devices", true, true),
            ("requests.example.com/gpu", true, false),
            ("requests.example.com/other", false, false),
            ("requests.deviceclass.resource.kubernetes.io/gpu", true, false),
            ("requests.deviceclass.resource.kubernetes.io/plain", true, false),
            ("requests.deviceclass.resource.kubernetes.io/none", false, false),
            ("requests.cpu", false, false),
            ("example.com/gpu", false, false),
        ];
        for (name, with_gate, without) in cases {
            assert_eq!(evaluator(None, Vec::new()).measures(name), with_gate, "{name}");
            assert_eq!(ResourceClaims { extended: None }.measures(name), without, "{name}");
        }
    }

    /// The devices that the claim is charged for as extended resources: what its pod was not charged for.
    #[test]
    fn devices_are_charged_once_to_the_pod_and_its_claim() {
        let none = Value::object;
        let names =
            |claim: &str| value!({"extendedResourceClaimStatus": {"resourceClaimName": claim}});
        let cases = [
            ("no pod", None, Vec::new(), Some("2")),
            ("charged to the pod", Some(pod(2, none())), Vec::new(), None),
            ("more than the pod", Some(pod(1, none())), Vec::new(), Some("1")),
            ("named by the pod", Some(pod(2, names("a"))), Vec::new(), None),
            ("another is named", Some(pod(2, names("b"))), Vec::new(), Some("2")),
            (
                "first of two",
                Some(pod(2, none())),
                vec![claim("a", "gpu"), claim("b", "gpu")],
                None,
            ),
            ("second of two", Some(pod(2, none())), vec![claim("0", "gpu")], Some("2")),
        ];
        for (what, pod, claims, expected) in cases {
            let usage = evaluator(pod, claims).usage(&claim("a", "gpu"));
            for name in
                ["requests.example.com/gpu", "requests.deviceclass.resource.kubernetes.io/gpu"]
            {
                let charged = usage.get(name).map(ToString::to_string);
                assert_eq!(charged.as_deref(), expected, "{what}: {name}");
            }
            assert_eq!(usage["gpu.deviceclass.resource.k8s.io/devices"].to_string(), "2");
        }
        let usage = evaluator(None, Vec::new()).usage(&claim("a", "plain"));
        let names: Vec<&str> = usage.keys().map(Str::as_str).collect();
        let implicit = "requests.deviceclass.resource.kubernetes.io/plain";
        assert_eq!(names, [COUNT, "plain.deviceclass.resource.k8s.io/devices", implicit]);
    }
}
