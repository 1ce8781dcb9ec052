//! The configurations of validating and mutating webhooks, which look alike.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use super::match_resources::{default_rules, default_selectors};
use crate::fill::{Fill, default_service_reference};
use crate::format::count;
use crate::validation::admission;
use crate::warnings;

pub(crate) struct WebhookConfiguration;

impl Strategy for WebhookConfiguration {
    fn default(&self, configuration: &mut Value) {
        let mutates = configuration.str_at(&["kind"]) == "MutatingWebhookConfiguration";
        for webhook in configuration.object_at_mut(&[]).each("webhooks") {
            webhook.fill("failurePolicy", "Fail");
            webhook.fill("timeoutSeconds", 10i64);
            if mutates {
                webhook.fill("reinvocationPolicy", "Never");
            }
            default_selectors(webhook);
            default_rules(webhook, "rules");
            default_service_reference(webhook.part("clientConfig"));
        }
    }

    fn validate(&self, configuration: &Value, errors: &mut FieldErrors) {
        admission::webhooks(configuration, errors);
    }

    fn validate_update(&self, configuration: &Value, old: &Value, errors: &mut FieldErrors) {
        admission::webhooks_update(configuration, old, errors);
    }

    fn warnings(&self, _subresource: &str, object: &Value, _old: Option<&Value>) -> Vec<String> {
        warnings::reserved_for_files(object)
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Webhooks", |configuration, _| count(configuration, &["webhooks"])),
            Column::AGE,
        ]
    }
}
