//! Storage classes.

pub(crate) mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::defaulting::SetDefault;
use crate::printer_cells::{flag, name_or_default, text, text_or};
use crate::validation::cursor::Field;
use crate::warnings;

pub(crate) struct StorageClass;

const IS_DEFAULT: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

impl Strategy for StorageClass {
    fn default(&self, class: &mut Value) {
        let class = class.object_at_mut(&[]);
        class.set_default("reclaimPolicy", "Delete");
        class.set_default("volumeBindingMode", "Immediate");
    }

    fn validate(&self, class: &Value, errors: &mut FieldErrors) {
        validation::validate(class, errors);
    }

    fn validate_update(&self, class: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(class, old, errors);
    }

    fn warnings(&self, _subresource: &str, class: &Value, _old: Option<&Value>) -> Vec<String> {
        let root = Field::root(class);
        let mut texts = Vec::new();
        for term in root.get("allowedTopologies").items() {
            for expression in term.get("matchLabelExpressions").items() {
                let key = expression.get("key");
                if let Some(text) = warnings::node_label(key.str()) {
                    texts.push(format!("{}: {text}", key.path()));
                }
            }
        }
        texts
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::name_of(|class, _| name_or_default(class, &IS_DEFAULT)),
            Column::new("Provisioner", |class, _| text(class, &["provisioner"])),
            Column::new("ReclaimPolicy", |class, _| text_or(class, &["reclaimPolicy"], "Delete")),
            Column::new("VolumeBindingMode", |class, _| {
                text_or(class, &["volumeBindingMode"], "Immediate")
            }),
            // Compat: a boolean in a column of texts.
            Column::new("AllowVolumeExpansion", |class, _| flag(class, &["allowVolumeExpansion"])),
            Column::AGE,
        ]
    }
}
