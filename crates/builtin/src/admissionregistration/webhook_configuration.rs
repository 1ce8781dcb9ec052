//! The configurations of validating and mutating webhooks, which look alike.

pub(crate) mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use super::match_resources::{default_rules, default_selectors};
use super::static_names::StaticNames;
use crate::defaulting::{SetDefault, default_service_reference};
use crate::printer_cells::count;

pub(crate) struct WebhookConfiguration(pub(crate) StaticNames);

impl Strategy for WebhookConfiguration {
    fn default(&self, configuration: &mut Value) {
        let mutates = configuration.str_at(&["kind"]) == "MutatingWebhookConfiguration";
        for webhook in configuration.object_at_mut(&[]).each("webhooks") {
            webhook.set_default("failurePolicy", "Fail");
            webhook.set_default("timeoutSeconds", 10i64);
            if mutates {
                webhook.set_default("reinvocationPolicy", "Never");
            }
            default_selectors(webhook);
            default_rules(webhook, "rules");
            default_service_reference(webhook.part("clientConfig"));
        }
    }

    fn validate(&self, configuration: &Value, errors: &mut FieldErrors) {
        validation::validate(configuration, errors);
        self.0.validate(configuration, errors);
    }

    fn validate_update(&self, configuration: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(configuration, old, errors);
    }

    fn warnings(&self, _subresource: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
        self.0.warnings(object, old)
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Webhooks", |configuration, _| count(configuration, &["webhooks"])),
            Column::AGE,
        ]
    }
}
