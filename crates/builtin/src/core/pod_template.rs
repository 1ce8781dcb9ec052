//! Pod templates.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::core::pod_spec::default_template;
use crate::printer_cells::{labels, of_containers};
use crate::validation::cursor::Field;
use crate::validation::pod_spec::PodSpecOptions;
use crate::warnings;

pub(crate) struct PodTemplate(pub(crate) PodSpecOptions);

const CONTAINERS: &[&str] = &["template", "spec", "containers"];

impl Strategy for PodTemplate {
    fn default(&self, object: &mut Value) {
        default_template(object.object_at_mut(&["template"]));
    }

    fn validate(&self, template: &Value, errors: &mut FieldErrors) {
        validation::validate(template, self.0, errors);
    }

    fn validate_update(&self, template: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(template, old, self.0, errors);
    }

    fn warnings(&self, _subresource: &str, template: &Value, old: Option<&Value>) -> Vec<String> {
        if !warnings::counted_up(template, old) {
            return Vec::new();
        }
        warnings::template(&Field::root(template).get("template"))
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Containers", |template, _| of_containers(template, CONTAINERS, "name")),
            Column::new("Images", |template, _| of_containers(template, CONTAINERS, "image")),
            Column::new("Pod Labels", |template, _| {
                labels(template, &["template", "metadata", "labels"])
            }),
        ]
    }
}
