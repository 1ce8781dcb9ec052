//! The policies and bindings of one kind, compiled once for each change and swapped as a whole.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use meta::{Str, Value};

use super::{PolicyCommon, params::ParamRef};
use crate::{
    DynamicChange,
    matching::{Criteria, ResourceIndex, Visibility, texts},
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

/// By name.
struct Parts<P> {
    policies: BTreeMap<Str, Arc<P>>,
    bindings: BTreeMap<Str, Arc<Binding>>,
    from_files: Vec<Arc<BoundPolicy<P>>>,
}

/// Policies with their bindings, both by name; those from files come first. A policy without a binding
/// has no effect.
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
        let parts =
            Parts { policies: BTreeMap::new(), bindings: BTreeMap::new(), from_files: Vec::new() };
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

    /// Replaces those from files. Policies are sorted by name.
    pub(super) fn replace_from_files(&self, policies: &[(Str, Value)], bindings: &[(Str, Value)]) {
        let read =
            |(name, binding): &(Str, Value)| (name.clone(), Arc::new(Binding::read(name, binding)));
        let bindings: BTreeMap<Str, Arc<Binding>> = bindings.iter().map(read).collect();
        let read = |(name, policy): &(Str, Value)| (name.clone(), Arc::new(P::read(name, policy)));
        let policies: Vec<(Str, Arc<P>)> = policies.iter().map(read).collect();
        let from_files = bind(policies.iter().map(|(name, policy)| (name, policy)), &bindings);
        self.change(|parts| parts.from_files = from_files);
    }

    fn change(&self, change: impl FnOnce(&mut Parts<P>)) {
        let mut parts = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut parts);
        let mut bound = parts.from_files.clone();
        bound.extend(bind(parts.policies.iter(), &parts.bindings));
        let index = {
            let unmatched = Criteria::of_policy(&Value::Null);
            let criteria = bound.iter().map(|own| own.policy.common().criteria.as_ref());
            let criteria = criteria.map(|own| own.unwrap_or(&unmatched));
            ResourceIndex::new(criteria, parts.from_files.len())
        };
        self.current.store(Arc::new(Compiled { bound, index }));
    }

    /// Whether no policy can concern a resource: all that most requests ask.
    pub(super) fn are_idle(&self, resource: &str, visibility: Visibility) -> bool {
        self.current.load().index.candidates(resource, visibility).is_empty()
    }

    pub(super) fn current(&self) -> Arc<Compiled<P>> {
        self.current.load_full()
    }
}

/// The policies that have a binding, in their order.
fn bind<'p, P: 'p>(
    policies: impl Iterator<Item = (&'p Str, &'p Arc<P>)>,
    bindings: &BTreeMap<Str, Arc<Binding>>,
) -> Vec<Arc<BoundPolicy<P>>> {
    let mut of_policy: HashMap<&Str, Vec<Arc<Binding>>> = HashMap::new();
    for binding in bindings.values() {
        of_policy.entry(&binding.policy).or_default().push(binding.clone());
    }
    let bound = policies.filter_map(|(name, policy)| {
        let bindings = of_policy.remove(name)?;
        Some(Arc::new(BoundPolicy { policy: policy.clone(), bindings }))
    });
    bound.collect()
}

impl<P> Compiled<P> {
    /// The places of those that can concern a resource, in their order.
    pub(super) fn candidates(&self, resource: &str, visibility: Visibility) -> &[usize] {
        self.index.candidates(resource, visibility)
    }

    pub(super) fn at(&self, place: usize) -> &Arc<BoundPolicy<P>> {
        &self.bound[place]
    }
}
