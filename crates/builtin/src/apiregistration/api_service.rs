//! API services: which server answers for a group and version.

mod validation;

use meta::{FieldErrors, Value, value};
use registry::{Column, Strategy, WriteContext};

use crate::defaulting::default_service_reference;
use crate::printer_cells::condition;

pub(crate) struct ApiService;

impl Strategy for ApiService {
    fn default(&self, service: &mut Value) {
        default_service_reference(service.object_at_mut(&["spec"]));
    }

    /// What the server answers itself is always there.
    fn prepare_for_create(&self, service: &mut Value, cx: &WriteContext<'_>) {
        if service.at(&["spec", "service"]).is_none_or(Value::is_null) {
            let condition = value!({
                "type": "Available",
                "status": "True",
                "lastTransitionTime": (cx.now.to_rfc3339()),
                "reason": "Local",
                "message": "Local APIServices are always available",
            });
            service.set_at(&["status", "conditions"], vec![condition]);
        }
    }

    fn validate(&self, service: &Value, errors: &mut FieldErrors) {
        validation::validate(service, errors);
    }

    fn validate_update(&self, service: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(service, old, errors);
    }

    /// Compat: the name and the spec are not looked at again.
    fn validate_subresource(
        &self,
        _subresource: &str,
        service: &Value,
        old: &Value,
        errors: &mut FieldErrors,
    ) {
        validation::validate_status(service, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Service", |api, _| service(api).into()),
            Column::new("Available", |api, _| available(api).into()),
            Column::AGE,
        ]
    }
}

fn service(api: &Value) -> String {
    match api.at(&["spec", "service"]).filter(|service| !service.is_null()) {
        Some(service) => {
            format!("{}/{}", service.str_at(&["namespace"]), service.str_at(&["name"]))
        }
        None => "Local".to_owned(),
    }
}

/// `True`, or why not: `False (ServiceNotFound)`.
fn available(api: &Value) -> String {
    let Some(available) = condition(api, "Available") else { return "Unknown".to_owned() };
    match (available.str_at(&["status"]), available.str_at(&["reason"])) {
        (status, "") | (status @ "True", _) => status.to_owned(),
        (status, reason) => format!("{status} ({reason})"),
    }
}
