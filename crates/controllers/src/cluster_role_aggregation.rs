//! Cluster roles that gather the rules of others by label (`admin`, `edit`, `view`): kept equal to
//! the sum of what they select.

use std::sync::Arc;

use meta::{ApiError, Value, selector::LabelSelector, value};

use crate::{
    Api, Informer, InformerEvent, Target,
    informer::{BURST_WINDOW, RETRY_DELAY, drain_burst},
};

pub struct ClusterRoleAggregation {
    pub api: Arc<dyn Api>,
}

/// Compat: who owns the rules of an aggregated role.
const MANAGER: &str = "clusterrole-aggregation-controller";

impl ClusterRoleAggregation {
    /// Works until the server stops. `changes` are of cluster roles.
    pub async fn run(self, mut changes: impl Informer) {
        loop {
            match changes.next().await {
                None => return,
                Some(InformerEvent::Object(_) | InformerEvent::Relisted) => {}
            }
            if drain_burst(&mut changes, BURST_WINDOW).await.is_none() {
                return;
            }
            while let Err(error) = self.aggregate().await {
                tracing::warn!("cannot aggregate cluster roles yet: {error}");
                if drain_burst(&mut changes, RETRY_DELAY).await.is_none() {
                    return;
                }
            }
        }
    }

    /// Brings every aggregated role up to date. One may gather from another: what follows from a
    /// change made here is seen as the next change.
    async fn aggregate(&self) -> Result<(), ApiError> {
        let target = Target::cluster("rbac.authorization.k8s.io", "v1", "clusterroles");
        let roles = self.api.list(&target).await?;
        for role in roles.iter().filter(|role| role.get("aggregationRule").is_some()) {
            let rules = aggregated_rules(role, &roles);
            if rules == role.items_at(&["rules"]) {
                continue;
            }
            let name = role.str_at(&["metadata", "name"]);
            let applied = value!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                // One that was deleted meanwhile must not be made again by this.
                "metadata": {"name": (name), "uid": (role.str_at(&["metadata", "uid"]))},
                "rules": (rules),
            });
            match self.api.apply(&target.clone().named(name), &applied, MANAGER).await {
                Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => {}
                done => drop(done?),
            }
        }
        Ok(())
    }
}

/// The rules of the roles that a role selects, each once, by the names of the roles.
fn aggregated_rules(role: &Value, roles: &[Value]) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    let name = role.str_at(&["metadata", "name"]);
    for selector in role.items_at(&["aggregationRule", "clusterRoleSelectors"]) {
        // Validated when it was written.
        let Ok(selector) = LabelSelector::from_object(Some(selector)) else { continue };
        let others = roles.iter().filter(|other| {
            other.str_at(&["metadata", "name"]) != name && selector.matches_object(other)
        });
        for rule in others.flat_map(|other| other.items_at(&["rules"])) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    rules
}
