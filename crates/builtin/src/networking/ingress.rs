//! Ingresses.

pub(crate) mod validation;

use meta::{FieldErrors, Value};
use registry::{Cell, Column, Strategy};

use crate::printer_cells::{NONE, SHOWN_MAX, load_balancer, text_or};
use crate::warnings;

pub(crate) struct Ingress;

const CLASS: &str = "kubernetes.io/ingress.class";

impl Strategy for Ingress {
    fn validate(&self, ingress: &Value, errors: &mut FieldErrors) {
        validation::validate(ingress, errors);
    }

    fn validate_update(&self, ingress: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(ingress, old, errors);
    }

    fn warnings(&self, subresource: &str, ingress: &Value, old: Option<&Value>) -> Vec<String> {
        if subresource == "status" {
            return warnings::load_balancer(ingress);
        }
        let is_old_way = ingress.at(&["metadata", "annotations", CLASS]).is_some()
            && ingress.at(&["spec", "ingressClassName"]).is_none();
        if old.is_some() || !is_old_way {
            return Vec::new();
        }
        vec![format!(
            "annotation \"{CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"
        )]
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Class", |ingress, _| {
                text_or(ingress, &["spec", "ingressClassName"], NONE)
            }),
            Column::new("Hosts", |ingress, _| hosts(ingress).into()),
            Column::new("Address", |ingress, _| load_balancer(ingress).into()),
            Column::new("Ports", |ingress, _| ports(ingress)),
            Column::AGE,
        ]
    }
}

/// The hosts of the rules, `*` for all. Compat: what lies beyond the third is counted in rules, also
/// those without a host.
fn hosts(ingress: &Value) -> String {
    let rules = ingress.items_at(&["spec", "rules"]);
    let (mut shown, mut more) = (Vec::new(), false);
    for rule in rules {
        more |= shown.len() == SHOWN_MAX;
        let host = rule.str_at(&["host"]);
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    match (shown.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, false) => shown.join(","),
        (false, true) => format!("{} + {} more...", shown.join(","), rules.len() - SHOWN_MAX),
    }
}

fn ports(ingress: &Value) -> Cell {
    let tls = !ingress.items_at(&["spec", "tls"]).is_empty();
    if tls { "80, 443".into() } else { "80".into() }
}
