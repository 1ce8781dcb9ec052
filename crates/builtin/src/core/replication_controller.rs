//! Replication controllers: what replica sets were before them.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy, WriteContext, keep_all_but_status};

use crate::core::pod_spec::default_template;
use crate::defaulting::SetDefault;
use crate::printer_cells::{labels, number, of_containers};
use crate::validation::cursor::Field;
use crate::validation::pod_spec::PodSpecOptions;
use crate::warnings;

pub(crate) struct ReplicationController(pub(crate) PodSpecOptions);

const CONTAINERS: &[&str] = &["spec", "template", "spec", "containers"];

impl Strategy for ReplicationController {
    fn default(&self, rc: &mut Value) {
        let rc = rc.object_at_mut(&[]);
        let spec = rc.part("spec");
        let Some(template) = spec.given("template") else { return };
        default_template(template);
        let Some(labels) = template.given("metadata").and_then(|own| own.get("labels")) else {
            return;
        };
        let labels = labels.clone();
        spec.set_default_if_empty("selector", labels.clone());
        rc.part("metadata").set_default_if_empty("labels", labels);
    }

    fn prepare_for_subresource(
        &self,
        subresource: &str,
        rc: &mut Value,
        old: &Value,
        _cx: &WriteContext<'_>,
    ) {
        keep_all_but_status(subresource, rc, old);
        // A write of the status without labels leaves only those of the template.
        self.default(rc);
    }

    fn validate(&self, controller: &Value, errors: &mut FieldErrors) {
        validation::validate(controller, self.0, errors);
    }

    fn validate_update(&self, controller: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(controller, old, self.0, errors);
    }

    fn warnings(&self, _subresource: &str, controller: &Value, old: Option<&Value>) -> Vec<String> {
        // Compat: upstream mixes the two up, so an update is warned about what was there before.
        let counted = warnings::counted_up(controller, old);
        let texts = old.map_or_else(
            || warnings::controller(controller, None),
            |old| {
                let root = Field::root(old);
                warnings::template(&root.get("spec").get("template"))
            },
        );
        if counted { texts } else { Vec::new() }
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Desired", |rc, _| number(rc, &["spec", "replicas"])),
            Column::integer("Current", |rc, _| number(rc, &["status", "replicas"])),
            Column::integer("Ready", |rc, _| number(rc, &["status", "readyReplicas"])),
            Column::AGE,
            Column::new("Containers", |rc, _| of_containers(rc, CONTAINERS, "name")).wide(),
            Column::new("Images", |rc, _| of_containers(rc, CONTAINERS, "image")).wide(),
            Column::new("Selector", |rc, _| labels(rc, &["spec", "selector"])).wide(),
        ]
    }
}
