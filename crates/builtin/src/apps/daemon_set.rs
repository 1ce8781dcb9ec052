//! Daemon sets.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy, WriteContext, keep_all_but_status};

use super::CONTAINERS;
use crate::core::pod_spec::default_template;
use crate::defaulting::SetDefault;
use crate::printer_cells::{labels, number, of_containers, selector};
use crate::validation::cursor::Field;
use crate::validation::pod_spec::PodSpecOptions;
use crate::warnings;

pub(crate) struct DaemonSet(pub(crate) PodSpecOptions);

impl Strategy for DaemonSet {
    fn default(&self, set: &mut Value) {
        let spec = set.object_at_mut(&["spec"]);
        spec.set_default("revisionHistoryLimit", 10i64);
        let strategy = spec.part("updateStrategy");
        strategy.set_default_if_empty("type", "RollingUpdate");
        if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
            let rolling = strategy.part("rollingUpdate");
            rolling.set_default("maxUnavailable", 1i64);
            rolling.set_default("maxSurge", 0i64);
        } else if let Some(rolling) = strategy.given("rollingUpdate") {
            // Compat: upstream can't tell an amount that was left out from none.
            rolling.set_default("maxUnavailable", 0i64);
            rolling.set_default("maxSurge", 0i64);
        }
        default_template(spec.part("template"));
        // Compat: the annotation stands for a field that Go always has.
        let generation = template_generation(set);
        set_template_generation(set, generation);
    }

    fn prepare_for_create(&self, set: &mut Value, _cx: &WriteContext<'_>) {
        let given = template_generation(set);
        set_template_generation(set, given.max(1));
    }

    fn prepare_for_update(&self, set: &mut Value, old: &Value, _cx: &WriteContext<'_>) {
        let template = |set: &Value| set.at(&["spec", "template"]).cloned();
        let changed = template(set) != template(old);
        set_template_generation(set, template_generation(old) + i64::from(changed));
    }

    fn prepare_for_subresource(
        &self,
        subresource: &str,
        set: &mut Value,
        old: &Value,
        _cx: &WriteContext<'_>,
    ) {
        keep_all_but_status(subresource, set, old);
        // It is part of the spec, wherever it is written down.
        set_template_generation(set, template_generation(old));
    }

    fn validate(&self, set: &Value, errors: &mut FieldErrors) {
        validation::validate(set, self.0, errors);
    }

    fn validate_update(&self, set: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(set, old, self.0, errors);
    }

    fn warnings(&self, _subresource: &str, set: &Value, old: Option<&Value>) -> Vec<String> {
        if old.is_some_and(|old| template_generation(old) == template_generation(set)) {
            return Vec::new();
        }
        let root = Field::root(set);
        warnings::template(&root.get("spec").get("template"))
    }

    fn internal_annotations(&self) -> &'static [&'static str] {
        &[GENERATION]
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Desired", |set, _| number(set, &["status", "desiredNumberScheduled"])),
            Column::integer("Current", |set, _| number(set, &["status", "currentNumberScheduled"])),
            Column::integer("Ready", |set, _| number(set, &["status", "numberReady"])),
            Column::integer("Up-to-date", |set, _| {
                number(set, &["status", "updatedNumberScheduled"])
            }),
            Column::integer("Available", |set, _| number(set, &["status", "numberAvailable"])),
            Column::new("Node Selector", |set, _| {
                labels(set, &["spec", "template", "spec", "nodeSelector"])
            }),
            Column::AGE,
            Column::new("Containers", |set, _| of_containers(set, CONTAINERS, "name")).wide(),
            Column::new("Images", |set, _| of_containers(set, CONTAINERS, "image")).wide(),
            Column::new("Selector", |set, _| selector(set, &["spec", "selector"])).wide(),
        ]
    }
}

/// How often the template has changed. Compat: a field once, an annotation now, which the old way to
/// roll out by hand still reads.
fn template_generation(set: &Value) -> i64 {
    set.str_at(&["metadata", "annotations", GENERATION]).parse().unwrap_or_default()
}

fn set_template_generation(set: &mut Value, generation: i64) {
    set.set_at(&["metadata", "annotations", GENERATION], generation.to_string());
}

const GENERATION: &str = "deprecated.daemonset.template.generation";
