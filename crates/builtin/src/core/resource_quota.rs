//! Resource quotas: what is used of what is allowed.

mod validation;

use meta::{FieldErrors, Map, Value};
use registry::{Column, Strategy};

use crate::defaulting::{SetDefault, round_resources};
use crate::printer_cells::quantity;
use crate::validation::pod_spec;

pub(crate) struct ResourceQuota;

impl Strategy for ResourceQuota {
    fn default(&self, quota: &mut Value) {
        let quota = quota.object_at_mut(&[]);
        for part in ["spec", "status"] {
            if let Some(part) = quota.given(part) {
                round_resources(part, &["hard", "used"]);
            }
        }
    }

    fn validate(&self, quota: &Value, errors: &mut FieldErrors) {
        validation::validate(quota, errors);
    }

    fn validate_update(&self, quota: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(quota, old, errors);
    }

    fn warnings(&self, subresource: &str, quota: &Value, old: Option<&Value>) -> Vec<String> {
        if !subresource.is_empty() || old.is_some() {
            return Vec::new();
        }
        requests_above_limits(quota)
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Request", |quota, _| used_of_hard(quota, false).into()),
            Column::new("Limit", |quota, _| used_of_hard(quota, true).into()),
            Column::AGE,
        ]
    }
}

/// `limits.cpu: 1/2, limits.memory: 1Gi/4Gi`, either of the limits or of everything else.
fn used_of_hard(quota: &Value, limits: bool) -> String {
    let hard = quota.at(&["status", "hard"]).and_then(Value::as_object);
    let resources = hard.into_iter().flat_map(Map::keys);
    let resources = resources.filter(|resource| resource.starts_with("limits.") == limits);
    let lines: Vec<String> = resources
        .map(|resource| {
            let used = quantity(quota, &["status", "used", resource]);
            format!("{resource}: {used}/{}", quantity(quota, &["status", "hard", resource]))
        })
        .collect();
    lines.join(", ")
}

/// What may be asked for should not be more than what may be used.
fn requests_above_limits(quota: &Value) -> Vec<String> {
    let hard = |name: &str| quota.at(&["spec", "hard", name]).and_then(pod_spec::quantity);
    let mut texts = Vec::new();
    for resource in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let (full, limit_name) = (format!("requests.{resource}"), format!("limits.{resource}"));
        let names = match resource {
            "cpu" | "memory" => vec![full.as_str(), resource],
            _ => vec![full.as_str()],
        };
        let request = names.iter().find_map(|name| Some((name, hard(name)?)));
        if let (Some((name, request)), Some(limit)) = (request, hard(&limit_name))
            && request > limit
        {
            texts.push(format!(
                "ResourceQuota {name} ({request}) should be less than {limit_name} ({limit})"
            ));
        }
    }
    texts
}
