//! kube-controller-manager's clusterrole-aggregation-controller: the rules of a ClusterRole with an
//! `aggregationRule` (`admin`, `edit`, `view`) are those of the ClusterRoles that it selects.

use std::sync::Arc;

use meta::{ApiError, Value, selector::LabelSelector, value};

use crate::{
    ApiClient, Informer, InformerEvent, ResourceRef,
    informer::{BURST_WINDOW, RETRY_DELAY, drain_burst},
};

pub struct ClusterRoleAggregation {
    pub api: Arc<dyn ApiClient>,
}

/// Compat: field manager of the rules of an aggregated role.
const MANAGER: &str = "clusterrole-aggregation-controller";

impl ClusterRoleAggregation {
    /// Runs until the server stops. `events` are events of ClusterRoles.
    pub async fn run(self, mut events: impl Informer) {
        loop {
            match events.next().await {
                None => return,
                Some(InformerEvent::Object(_) | InformerEvent::Relisted) => {}
            }
            if drain_burst(&mut events, BURST_WINDOW).await.is_none() {
                return;
            }
            while let Err(error) = self.aggregate().await {
                tracing::warn!("cannot aggregate cluster roles yet: {error}");
                if drain_burst(&mut events, RETRY_DELAY).await.is_none() {
                    return;
                }
            }
        }
    }

    /// Updates every aggregated role. A role may select another aggregated one, which the event of
    /// that one's update takes care of.
    async fn aggregate(&self) -> Result<(), ApiError> {
        let target = ResourceRef::cluster("rbac.authorization.k8s.io", "v1", "clusterroles");
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
                // With the UID, so that apply does not recreate a role that was deleted meanwhile.
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

/// The rules of the selected roles without duplicates, ordered by role name.
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
