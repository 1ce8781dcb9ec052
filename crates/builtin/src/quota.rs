//! What objects of built-in kinds use of the resources that a ResourceQuota limits.

mod persistent_volume_claims;
mod pods;
mod resource_claims;
mod services;

use std::sync::Arc;

pub use resource_claims::ClaimObjects;
use resource_claims::{ExtendedResources, ResourceClaims};

use admission::quota::{Evaluator, Evaluators, ObjectCount, ResourceList};
use meta::{
    GroupResource, Str, Value,
    quantity::{Format, Quantity},
};

/// The evaluators of the kinds that use more than their number.
pub fn quota_evaluators(
    is_enabled: &dyn Fn(&str) -> bool,
    claim_objects: Arc<dyn ClaimObjects>,
) -> Evaluators {
    let extended = is_enabled("DRAExtendedResource")
        .then(|| ExtendedResources { objects: claim_objects, pods: pods::Pods::new(is_enabled) });
    let core = |resource: &'static str, evaluator: Arc<dyn Evaluator>| {
        (GroupResource { group: "".into(), resource: resource.into() }, evaluator)
    };
    // Resources that could be counted before any resource could be.
    let counted = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];
    let counted = counted.map(|resource| {
        let group_resource = GroupResource { group: "".into(), resource: resource.into() };
        let evaluator = ObjectCount::new(&group_resource, Some(resource));
        (group_resource, Arc::new(evaluator) as Arc<dyn Evaluator>)
    });
    let claims =
        GroupResource { group: "resource.k8s.io".into(), resource: "resourceclaims".into() };
    let own = [
        core("pods", Arc::new(pods::Pods::new(is_enabled))),
        core("services", Arc::new(services::Services)),
        core(
            "persistentvolumeclaims",
            Arc::new(persistent_volume_claims::PersistentVolumeClaims::new(is_enabled)),
        ),
        (claims, Arc::new(ResourceClaims { extended })),
    ];
    Evaluators::new(own.into_iter().chain(counted))
}

fn count(number: i64) -> Quantity {
    Quantity::new(number, Format::DecimalSi)
}

/// The amounts of a field such as `requests`.
fn amounts(object: Option<&Value>) -> ResourceList {
    let map = object.and_then(Value::as_object).into_iter().flat_map(meta::Map::iter);
    map.filter_map(|(name, amount)| Some((Str::from(&**name), Quantity::from_value(amount).ok()?)))
        .collect()
}

/// Raises each amount to at least that of `other`.
fn raise(list: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        if list.get(name).is_none_or(|known| amount > known) {
            list.insert(name.clone(), amount.clone());
        }
    }
}
