//! Whether one request fits into the quotas of its namespace.

use std::sync::Arc;

use meta::{ApiError, GroupResource, Str, Value, quantity::Quantity};

use super::{
    configuration::LimitedResource,
    evaluator::{Evaluator, ResourceList, Scope, add, amounts},
};
use crate::Operation;

/// A quota of a namespace, as far as it is about usage.
#[derive(Clone)]
pub(super) struct Quota {
    /// The object, with the status that was read.
    pub(super) object: Value,
    pub(super) name: Str,
    scopes: Vec<Scope>,
    hard: ResourceList,
    /// Read, then raised by the requests that were accepted since.
    pub(super) used: ResourceList,
    pub(super) changed: bool,
}

impl Quota {
    pub(super) fn new(object: Value) -> Self {
        Self {
            name: object.str_at(&["metadata", "name"]).into(),
            scopes: Scope::of_quota(&object),
            hard: amounts(&object, &["status", "hard"]),
            used: amounts(&object, &["status", "used"]),
            changed: false,
            object,
        }
    }

    /// The object with the raised usage in its status.
    pub(super) fn updated(&self) -> Value {
        let mut object = self.object.clone();
        let used =
            self.used.iter().map(|(name, amount)| (name.clone(), Value::from(amount.to_string())));
        object.set_at(&["status", "used"], used.collect::<meta::Map>());
        object
    }

    fn matches(&self, evaluator: &dyn Evaluator, object: &Value) -> bool {
        self.hard.keys().any(|name| evaluator.measures(name))
            && self.scopes.iter().all(|scope| evaluator.matches_scope(scope, object) == Some(true))
    }
}

/// A request, with everything that is needed to decide about it after its task was left.
pub(super) struct Demand {
    pub(super) evaluator: Arc<dyn Evaluator>,
    pub(super) operation: Operation,
    pub(super) resource: GroupResource,
    pub(super) is_status: bool,
    pub(super) is_dry_run: bool,
    pub(super) name: String,
    pub(super) object: Value,
    pub(super) old: Option<Value>,
}

impl Demand {
    fn forbidden(&self, why: String) -> ApiError {
        ApiError::Forbidden {
            resource: self.resource.clone(),
            name: self.name.clone(),
            why,
            causes: Vec::new(),
        }
    }

    /// Raises the usage of all quotas that the request is about, or of none and says why it does not
    /// fit. Returns what was added to which quota.
    pub(super) fn charge(
        &self,
        quotas: &mut [Quota],
        limited: &[LimitedResource],
    ) -> Result<Vec<(Str, ResourceList)>, ApiError> {
        let evaluator = &*self.evaluator;
        let usage = evaluator.usage(&self.object);
        let mut matching = Vec::new();
        for (at, quota) in quotas.iter().enumerate() {
            if !quota.matches(evaluator, &self.object) {
                continue;
            }
            let measured: Vec<&str> = quota
                .hard
                .keys()
                .filter(|name| evaluator.measures(name))
                .map(Str::as_str)
                .collect();
            evaluator
                .check_constraints(&measured, &self.object)
                .map_err(|why| self.forbidden(format!("failed quota: {}: {why}", quota.name)))?;
            if !measured.iter().all(|name| quota.used.contains_key(*name)) {
                return Err(self.forbidden(format!(
                    "status unknown for quota: {}, resources: {}",
                    quota.name,
                    measured.join(",")
                )));
            }
            matching.push(at);
        }
        let zero = Quantity::default();
        let negative: Vec<&str> = usage
            .iter()
            .filter(|(_, amount)| **amount < zero)
            .map(|(name, _)| name.as_str())
            .collect();
        if !negative.is_empty() {
            let names = negative.join(",");
            return Err(self.forbidden(format!("quota usage is negative for resource(s): {names}")));
        }
        let raises: Vec<(usize, ResourceList)> = matching
            .iter()
            .map(|at| (*at, self.raise(&usage, |old| quotas[*at].matches(evaluator, old))))
            .filter(|(_, raise)| !raise.is_empty())
            .collect();
        let uncovered =
            if matching.is_empty() { self.raise(&usage, |_| true) } else { ResourceList::new() };
        if raises.is_empty() && uncovered.is_empty() {
            return Ok(Vec::new());
        }
        self.check_limited(quotas, &matching, &usage, limited)?;
        for (at, raise) in &raises {
            self.check_fits(&quotas[*at], raise)?;
        }
        let mut charged = Vec::new();
        for (at, raise) in &raises {
            let quota = &mut quotas[*at];
            let raise = limited_by(quota, raise);
            if !raise.is_empty() {
                quota.changed = true;
                add(&mut quota.used, &raise);
                charged.push((quota.name.clone(), raise));
            }
        }
        Ok(charged)
    }

    /// By how much usage grows: an update is charged for what it adds, unless the object was outside of
    /// the quota before.
    fn raise(&self, usage: &ResourceList, was_counted: impl Fn(&Value) -> bool) -> ResourceList {
        let mut raise = usage.clone();
        if self.operation == Operation::Update
            && let Some(old) = &self.old
            && was_counted(old)
        {
            for (name, amount) in self.evaluator.usage(old) {
                if let Some(new) = raise.get_mut(&name) {
                    new.sub(&amount);
                }
            }
        }
        let zero = Quantity::default();
        raise.retain(|_, amount| *amount > zero);
        raise
    }

    /// What the plugin's configuration limits must be covered by a quota.
    fn check_limited(
        &self,
        quotas: &[Quota],
        matching: &[usize],
        usage: &ResourceList,
        limited: &[LimitedResource],
    ) -> Result<(), ApiError> {
        let zero = Quantity::default();
        let own = limited.iter().filter(|limited| limited.resource == self.resource);
        let mut missing: Vec<&str> = Vec::new();
        for limited in own {
            let used = usage.iter().filter(|(_, amount)| **amount > zero).map(|(name, _)| name);
            let names = used.filter(|name| {
                limited.match_contains.iter().any(|part| name.contains(part.as_str()))
            });
            missing.extend(names.map(Str::as_str).filter(|name| {
                !matching
                    .iter()
                    .any(|at| quotas[*at].hard.contains_key(*name) && self.evaluator.measures(name))
            }));
        }
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            let names = missing.join(",");
            return Err(self.forbidden(format!("insufficient quota to consume: {names}")));
        }
        let is_in = |scope: &Scope| self.evaluator.matches_scope(scope, &self.object) == Some(true);
        let covered = |name: &Str| {
            let mut scopes = quotas.iter().flat_map(|quota| &quota.scopes);
            scopes.any(|scope| scope.name == *name && is_in(scope))
        };
        let scopes = limited.iter().flat_map(|limited| &limited.match_scopes);
        let uncovered = scopes.filter(|scope| is_in(scope) && !covered(&scope.name));
        let uncovered: Vec<String> = uncovered
            .map(|Scope { name, operator, values }| {
                let values: Vec<&str> = values.iter().map(Str::as_str).collect();
                format!("{{{name} {operator} [{}]}}", values.join(" "))
            })
            .collect();
        if uncovered.is_empty() {
            return Ok(());
        }
        // Compat: a 500 without a reason, not a 403.
        let uncovered = uncovered.join(" ");
        Err(ApiError::Storage(format!("insufficient quota to match these scopes: [{uncovered}]")))
    }

    fn check_fits(&self, quota: &Quota, raise: &ResourceList) -> Result<(), ApiError> {
        // A status is a report of what happened already.
        if self.is_status {
            return Ok(());
        }
        let requested = limited_by(quota, raise);
        let exceeded: Vec<&Str> = requested
            .iter()
            .filter(|(name, amount)| {
                let mut used = quota.used.get(*name).cloned().unwrap_or_default();
                used.add(amount);
                quota.hard.get(*name).is_some_and(|hard| used > *hard)
            })
            .map(|(name, _)| name)
            .collect();
        if exceeded.is_empty() {
            return Ok(());
        }
        let print = |amounts: &ResourceList| {
            let parts =
                exceeded.iter().filter_map(|name| Some(format!("{name}={}", amounts.get(*name)?)));
            parts.collect::<Vec<_>>().join(",")
        };
        Err(self.forbidden(format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            quota.name,
            print(&requested),
            print(&quota.used),
            print(&quota.hard)
        )))
    }
}

/// Those of the amounts that the quota limits.
fn limited_by(quota: &Quota, amounts: &ResourceList) -> ResourceList {
    let limited = amounts.iter().filter(|(name, _)| quota.hard.contains_key(*name));
    limited.map(|(name, amount)| (name.clone(), amount.clone())).collect()
}
