//! The policies and bindings of one kind, compiled once for each change and swapped as a whole.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::{ArcSwap, Guard};
use meta::{Str, Value};

use super::{PolicyCommon, params::ParamRef};
use crate::{
    DynamicChange,
    matching::{Criteria, ResourceIndex, texts},
};

/// A compiled policy.
pub(super) trait Policy: Sized {
    fn read(name: &Str, policy: &Value) -> Self;

    fn common(&self) -> &PolicyCommon;
}

pub(super) struct PolicySet<P> {
    current: ArcSwap<Compiled<P>>,
    next: Mutex<Parts<P>>,
}

struct Parts<P> {
    policies: BTreeMap<Str, Arc<P>>,
    bindings: BTreeMap<Str, Arc<Binding>>,
}

/// Policies with their bindings, both by name. A policy without a binding has no effect.
pub(super) struct Compiled<P> {
    bound: Vec<Arc<BoundPolicy<P>>>,
    index: ResourceIndex,
}

pub(super) struct BoundPolicy<P> {
    pub(super) policy: Arc<P>,
    pub(super) bindings: Vec<Arc<Binding>>,
}

/// Where a policy counts, and with which parameters.
pub(super) struct Binding {
    pub(super) name: Str,
    policy: Str,
    /// None: wherever the policy does.
    pub(super) criteria: Option<Criteria>,
    pub(super) param_ref: Option<ParamRef>,
    /// `validationActions`; mutating policies have none.
    pub(super) actions: Vec<Str>,
}

impl Binding {
    fn read(name: &Str, binding: &Value) -> Self {
        let part = |field: &str| binding.at(&["spec", field]).filter(|part| !part.is_null());
        Self {
            name: name.clone(),
            policy: Str::new(binding.str_at(&["spec", "policyName"])),
            criteria: part("matchResources").map(Criteria::of_policy),
            param_ref: part("paramRef").map(ParamRef::read),
            actions: texts(binding.get("spec").unwrap_or(&Value::Null), "validationActions"),
        }
    }
}

impl<P> Default for PolicySet<P> {
    fn default() -> Self {
        let compiled = Compiled { bound: Vec::new(), index: ResourceIndex::default() };
        let parts = Parts { policies: BTreeMap::new(), bindings: BTreeMap::new() };
        Self { current: ArcSwap::from_pointee(compiled), next: Mutex::new(parts) }
    }
}

impl<P: Policy> PolicySet<P> {
    pub(super) fn apply_policies(&self, changes: Vec<DynamicChange>) {
        self.change(|parts| {
            for (name, policy) in changes {
                match policy {
                    None => drop(parts.policies.remove(&name)),
                    Some(policy) => {
                        let policy = Arc::new(P::read(&name, &policy));
                        parts.policies.insert(name, policy);
                    }
                }
            }
        });
    }

    pub(super) fn apply_bindings(&self, changes: Vec<DynamicChange>) {
        self.change(|parts| {
            for (name, binding) in changes {
                match binding {
                    None => drop(parts.bindings.remove(&name)),
                    Some(binding) => {
                        let binding = Arc::new(Binding::read(&name, &binding));
                        parts.bindings.insert(name, binding);
                    }
                }
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Parts<P>)) {
        let mut parts = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut parts);
        let mut bound = Vec::new();
        for (name, policy) in &parts.policies {
            let of_policy = parts.bindings.values().filter(|binding| binding.policy == *name);
            let bindings: Vec<Arc<Binding>> = of_policy.cloned().collect();
            if !bindings.is_empty() {
                bound.push(Arc::new(BoundPolicy { policy: policy.clone(), bindings }));
            }
        }
        let index = {
            let unmatched = Criteria::of_policy(&Value::Null);
            let criteria = bound.iter().map(|own| own.policy.common().criteria.as_ref());
            ResourceIndex::new(criteria.map(|own| own.unwrap_or(&unmatched)))
        };
        self.current.store(Arc::new(Compiled { bound, index }));
    }

    /// None: no policy can concern the resource.
    pub(super) fn candidates(&self, resource: &str) -> Option<Guard<Arc<Compiled<P>>>> {
        let compiled = self.current.load();
        (!compiled.index.candidates(resource).is_empty()).then_some(compiled)
    }
}

impl<P> Compiled<P> {
    /// Those that can concern a resource, in their order.
    pub(super) fn of_resource(&self, resource: &str) -> Vec<Arc<BoundPolicy<P>>> {
        self.index.candidates(resource).iter().map(|at| self.bound[*at].clone()).collect()
    }
}
