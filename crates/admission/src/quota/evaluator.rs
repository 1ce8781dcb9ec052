//! What a kind says about its use of the resources that quotas limit.

use std::{collections::BTreeMap, collections::HashMap, sync::Arc};

use meta::{GroupResource, Str, Value, quantity::Format, quantity::Quantity};

use crate::Operation;

/// Amounts by the names that a quota uses: `pods`, `requests.cpu`, `count/deployments.apps`.
pub type ResourceList = BTreeMap<Str, Quantity>;

/// kube-apiserver's `quota.Evaluator`: how objects of one resource use what quotas limit.
pub trait Evaluator: Send + Sync + 'static {
    /// Whether a request can change usage at all.
    fn handles(
        &self,
        operation: Operation,
        subresource: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> bool;

    /// Whether objects of this resource use what a quota calls by this name.
    fn measures(&self, name: &str) -> bool;

    /// Whether an object is within a scope. None: this resource has no scopes, so that a quota with
    /// scopes is not about it.
    fn matches_scope(&self, _scope: &Scope, _object: &Value) -> Option<bool> {
        None
    }

    /// What an object has to say for a quota on these names to be enforceable.
    fn check_constraints(&self, _required: &[&str], _object: &Value) -> Result<(), String> {
        Ok(())
    }

    fn usage(&self, object: &Value) -> ResourceList;

    /// The usage of one object if it is the same for all, so that they can be counted without being
    /// decoded.
    fn usage_of_any(&self) -> Option<ResourceList> {
        None
    }
}

/// One of a quota's `scopes`, or a requirement of its `scopeSelector`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub name: Str,
    pub operator: Str,
    pub values: Vec<Str>,
}

impl Scope {
    /// All scopes of a quota.
    pub fn of_quota(quota: &Value) -> Vec<Self> {
        let names = quota.items_at(&["spec", "scopes"]).iter().filter_map(Value::as_str);
        let exists = names.map(|name| Self {
            name: name.into(),
            operator: "Exists".into(),
            values: Vec::new(),
        });
        let selected = quota.items_at(&["spec", "scopeSelector", "matchExpressions"]);
        exists.chain(selected.iter().map(Self::of_requirement)).collect()
    }

    /// A `ScopedResourceSelectorRequirement`.
    pub fn of_requirement(requirement: &Value) -> Self {
        let values = requirement.items_at(&["values"]).iter().filter_map(Value::as_str);
        Self {
            name: requirement.str_at(&["scopeName"]).into(),
            operator: requirement.str_at(&["operator"]).into(),
            values: values.map(Str::from).collect(),
        }
    }

    /// Whether one value, or the absence of one, is what the operator and its values ask for.
    pub fn selects(&self, value: Option<&str>) -> bool {
        let is_one_of = value.is_some_and(|value| self.values.iter().any(|one| one == value));
        match self.operator.as_str() {
            "In" => is_one_of,
            "NotIn" => !is_one_of,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

/// The name by which a quota counts objects of a resource: `count/deployments.apps`.
pub fn object_count_name(resource: &GroupResource) -> Str {
    let GroupResource { group, resource } = resource;
    if group.is_empty() {
        format!("count/{resource}").into()
    } else {
        format!("count/{resource}.{group}").into()
    }
}

/// Every object counts as one.
pub struct ObjectCount {
    names: Vec<Str>,
}

impl ObjectCount {
    /// `alias`: the name from before any resource could be counted (`configmaps`).
    pub fn new(resource: &GroupResource, alias: Option<&str>) -> Self {
        let names = [Some(object_count_name(resource)), alias.map(Str::from)];
        Self { names: names.into_iter().flatten().collect() }
    }
}

impl Evaluator for ObjectCount {
    fn handles(
        &self,
        operation: Operation,
        subresource: &str,
        _: &Value,
        _: Option<&Value>,
    ) -> bool {
        subresource.is_empty() && operation == Operation::Create
    }

    fn measures(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    fn usage(&self, _object: &Value) -> ResourceList {
        self.usage_of_any().unwrap_or_default()
    }

    fn usage_of_any(&self) -> Option<ResourceList> {
        let one = |name: &Str| (name.clone(), Quantity::new(1, Format::DecimalSi));
        Some(self.names.iter().map(one).collect())
    }
}

/// The evaluators of all resources. A resource without one of its own is counted.
#[derive(Default)]
pub struct Evaluators {
    own: HashMap<GroupResource, Arc<dyn Evaluator>>,
}

impl Evaluators {
    pub fn new(own: impl IntoIterator<Item = (GroupResource, Arc<dyn Evaluator>)>) -> Self {
        Self { own: own.into_iter().collect() }
    }

    pub fn of(&self, resource: &GroupResource) -> Arc<dyn Evaluator> {
        match self.own.get(resource) {
            Some(evaluator) => evaluator.clone(),
            None => Arc::new(ObjectCount::new(resource, None)),
        }
    }

    /// The resources whose objects use what quotas call by these names, with their evaluators. A name
    /// `count/…` leads to its resource without a list of all resources.
    pub fn measuring(&self, names: &[&str]) -> Vec<(GroupResource, Arc<dyn Evaluator>)> {
        let own = self
            .own
            .iter()
            .filter(|(_, evaluator)| names.iter().any(|name| evaluator.measures(name)));
        let mut found: Vec<_> =
            own.map(|(resource, evaluator)| (resource.clone(), evaluator.clone())).collect();
        for counted in names.iter().filter_map(|name| name.strip_prefix("count/")) {
            let (resource, group) = counted.split_once('.').unwrap_or((counted, ""));
            let resource = GroupResource { group: group.into(), resource: resource.into() };
            if !self.own.contains_key(&resource) {
                let evaluator = self.of(&resource);
                found.push((resource, evaluator));
            }
        }
        found
    }
}

/// What is used in total by those of `objects` that are within all `scopes`.
pub fn total_usage<'a>(
    evaluator: &dyn Evaluator,
    scopes: &[Scope],
    objects: impl Iterator<Item = &'a Value>,
) -> ResourceList {
    let mut total = ResourceList::new();
    for object in objects {
        let is_in_scope = |scope| evaluator.matches_scope(scope, object).unwrap_or(false);
        if scopes.iter().all(is_in_scope) {
            add(&mut total, &evaluator.usage(object));
        }
    }
    total
}

pub fn add(total: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        match total.get_mut(name) {
            Some(known) => known.add(amount),
            None => drop(total.insert(name.clone(), amount.clone())),
        }
    }
}

/// The amounts of an object's field, such as `status.used`.
pub(super) fn amounts(object: &Value, path: &[&str]) -> ResourceList {
    let map = object.at(path).and_then(Value::as_object);
    let amounts = map.into_iter().flat_map(meta::Map::iter);
    amounts
        .filter_map(|(name, amount)| Some((Str::from(&**name), Quantity::from_value(amount).ok()?)))
        .collect()
}
