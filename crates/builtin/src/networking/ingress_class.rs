//! Ingress classes.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::defaulting::SetDefault;
use crate::printer_cells::{NONE, name_or_default, text};

pub(crate) struct IngressClass;

const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";

impl Strategy for IngressClass {
    fn default(&self, class: &mut Value) {
        if let Some(parameters) = class.object_at_mut(&["spec"]).given("parameters") {
            parameters.set_default("scope", "Cluster");
        }
    }

    fn validate(&self, class: &Value, errors: &mut FieldErrors) {
        validation::validate(class, errors);
    }

    fn validate_update(&self, class: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(class, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::name_of(|class, _| name_or_default(class, &[IS_DEFAULT])),
            Column::new("Controller", |class, _| text(class, &["spec", "controller"])),
            Column::new("Parameters", |class, _| parameters(class).into()),
            Column::AGE,
        ]
    }
}

/// `IngressParameters.k8s.example.com/external-lb`
fn parameters(class: &Value) -> String {
    let Some(parameters) = class.at(&["spec", "parameters"]).filter(|it| !it.is_null()) else {
        return NONE.to_owned();
    };
    let (kind, name) = (parameters.str_at(&["kind"]), parameters.str_at(&["name"]));
    match parameters.get("apiGroup").and_then(Value::as_str) {
        Some(group) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}
