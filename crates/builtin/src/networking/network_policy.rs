//! Network policies.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::defaulting::{SetDefault, is_empty};
use crate::printer_cells::selector;
use crate::validation::cursor::Field;
use crate::warnings;

pub(crate) struct NetworkPolicy;

impl Strategy for NetworkPolicy {
    fn default(&self, policy: &mut Value) {
        let spec = policy.object_at_mut(&["spec"]);
        let has_egress = spec.get("egress").is_some_and(|rules| !is_empty(rules));
        let types = if has_egress { vec!["Ingress", "Egress"] } else { vec!["Ingress"] };
        spec.set_default_if_empty("policyTypes", types);
        for rules in ["ingress", "egress"] {
            for port in spec.each(rules).flat_map(|rule| rule.each("ports")) {
                port.set_default("protocol", "TCP");
            }
        }
    }

    fn validate(&self, policy: &Value, errors: &mut FieldErrors) {
        validation::validate(policy, errors);
    }

    fn validate_update(&self, policy: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(policy, old, errors);
    }

    fn warnings(&self, _subresource: &str, policy: &Value, _old: Option<&Value>) -> Vec<String> {
        let root = Field::root(policy);
        let spec = root.get("spec");
        let mut texts = Vec::new();
        for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
            for rule in spec.get(rules).items() {
                for peer in rule.get(peers).items() {
                    let block = peer.get("ipBlock");
                    let cidr = block.get("cidr");
                    texts.extend(warnings::cidr(&cidr.path().to_string(), cidr.str()));
                    for except in block.get("except").items() {
                        texts.extend(warnings::cidr(&except.path().to_string(), except.str()));
                    }
                }
            }
        }
        texts
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Pod-Selector", |policy, _| selector(policy, &["spec", "podSelector"])),
            Column::AGE,
        ]
    }
}
