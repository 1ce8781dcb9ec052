//! API services: which server answers for a group and version.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::fill::default_service_reference;
use crate::format::condition;
use crate::validation::api_service;

pub(crate) struct ApiService;

impl Strategy for ApiService {
    fn default(&self, service: &mut Value) {
        default_service_reference(service.object_at_mut(&["spec"]));
    }

    fn validate(&self, service: &Value, errors: &mut FieldErrors) {
        api_service::validate(service, errors);
    }

    fn validate_update(&self, service: &Value, old: &Value, errors: &mut FieldErrors) {
        api_service::validate_update(service, old, errors);
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
