//! Stateful sets.

mod validation;

use meta::{FieldErrors, Map, Value};
use registry::{Column, Strategy};

use super::CONTAINERS;
use crate::core::persistent_volume_claim::default_claim;
use crate::core::pod_spec::default_template;
use crate::defaulting::{SetDefault, is_empty};
use crate::printer_cells::{of_containers, ratio};
use crate::validation::cursor::Field;
use crate::validation::pod_spec::PodSpecOptions;
use crate::warnings;

pub(crate) struct StatefulSet(pub(crate) PodSpecOptions);

impl Strategy for StatefulSet {
    fn default(&self, set: &mut Value) {
        let spec = set.object_at_mut(&["spec"]);
        spec.set_default("replicas", 1i64);
        spec.set_default("revisionHistoryLimit", 10i64);
        spec.set_default_if_empty("podManagementPolicy", "OrderedReady");
        default_update_strategy(spec.part("updateStrategy"));
        let retention = spec.part("persistentVolumeClaimRetentionPolicy");
        retention.set_default_if_empty("whenDeleted", "Retain");
        retention.set_default_if_empty("whenScaled", "Retain");
        default_template(spec.part("template"));
        for claim in spec.each("volumeClaimTemplates") {
            claim.insert("apiVersion", "v1");
            claim.insert("kind", "PersistentVolumeClaim");
            default_claim(claim);
        }
    }

    fn validate(&self, set: &Value, errors: &mut FieldErrors) {
        validation::validate(set, self.0, errors);
    }

    fn validate_update(&self, set: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(set, old, self.0, errors);
    }

    fn warnings(&self, subresource: &str, set: &Value, old: Option<&Value>) -> Vec<String> {
        if !subresource.is_empty() {
            return Vec::new();
        }
        let mut texts = Vec::new();
        if warnings::counted_up(set, old) {
            let root = Field::root(set);
            texts.extend(warnings::template(&root.get("spec").get("template")));
        }
        for (at, claim) in set.items_at(&["spec", "volumeClaimTemplates"]).iter().enumerate() {
            // Compat: the paths are upstream's.
            let below = if old.is_some() { ".Spec" } else { "" };
            let path = format!("spec.volumeClaimTemplates[{at}]{below}");
            texts.extend(warnings::claim_spec(&path, claim.get("spec")));
        }
        if set.i64_at(&["spec", "revisionHistoryLimit"]).is_some_and(|limit| limit < 0) {
            texts.push(
                "spec.revisionHistoryLimit: a negative value retains all historical revisions; \
                 a value >= 0 is recommended"
                    .to_owned(),
            );
        }
        texts
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Ready", |set, _| {
                ratio(set, &["status", "readyReplicas"], &["spec", "replicas"])
            }),
            Column::AGE,
            Column::new("Containers", |set, _| of_containers(set, CONTAINERS, "name")).wide(),
            Column::new("Images", |set, _| of_containers(set, CONTAINERS, "image")).wide(),
        ]
    }
}

/// Unlike deployments, a set that names its strategy may leave out how it rolls.
fn default_update_strategy(strategy: &mut Map) {
    if strategy.get("type").is_none_or(is_empty) {
        strategy.insert("type", "RollingUpdate");
        strategy.set_default("rollingUpdate", Map::new());
    }
    let rolls = strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate");
    if let Some(rolling) = strategy.given("rollingUpdate").filter(|_| rolls) {
        rolling.set_default("partition", 0i64);
    }
}
