//! Runtime classes.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::printer_cells::text;
use crate::warnings;

pub(crate) struct RuntimeClass;

impl Strategy for RuntimeClass {
    fn validate(&self, class: &Value, errors: &mut FieldErrors) {
        validation::validate(class, errors);
    }

    fn validate_update(&self, class: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(class, old, errors);
    }

    fn warnings(&self, _subresource: &str, class: &Value, _old: Option<&Value>) -> Vec<String> {
        let selector = class.at(&["scheduling", "nodeSelector"]).and_then(Value::as_object);
        let keys = selector.into_iter().flat_map(meta::Map::keys);
        keys.filter_map(|key| warnings::node_label(key))
            .map(|text| format!("scheduling.nodeSelector: {text}"))
            .collect()
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Handler", |class, _| text(class, &["handler"])),
            Column::AGE,
        ]
    }
}
