//! Network policies.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::fill::{Fill, is_empty};
use crate::format::selector;
use crate::validation::networking;

pub(crate) struct NetworkPolicy;

impl Strategy for NetworkPolicy {
    fn default(&self, policy: &mut Value) {
        let spec = policy.object_at_mut(&["spec"]);
        let has_egress = spec.get("egress").is_some_and(|rules| !is_empty(rules));
        let types = if has_egress { vec!["Ingress", "Egress"] } else { vec!["Ingress"] };
        spec.fill_empty("policyTypes", types);
        for rules in ["ingress", "egress"] {
            for port in spec.each(rules).flat_map(|rule| rule.each("ports")) {
                port.fill("protocol", "TCP");
            }
        }
    }

    fn validate(&self, policy: &Value, errors: &mut FieldErrors) {
        networking::network_policy(policy, errors);
    }

    fn validate_update(&self, policy: &Value, old: &Value, errors: &mut FieldErrors) {
        networking::network_policy_update(policy, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Pod-Selector", |policy, _| selector(policy, &["spec", "podSelector"])),
            Column::AGE,
        ]
    }
}
