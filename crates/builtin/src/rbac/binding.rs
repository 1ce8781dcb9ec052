//! Role bindings and cluster role bindings, which look alike.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::defaulting::SetDefault;

pub(crate) struct Binding;

impl Strategy for Binding {
    fn default(&self, binding: &mut Value) {
        let binding = binding.object_at_mut(&[]);
        binding.part("roleRef").set_default_if_empty("apiGroup", GROUP);
        for subject in binding.each("subjects") {
            if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
                subject.set_default_if_empty("apiGroup", GROUP);
            }
        }
    }

    fn validate(&self, binding: &Value, errors: &mut FieldErrors) {
        validation::validate(binding, errors);
    }

    fn validate_update(&self, binding: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(binding, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Role", |binding, _| role(binding).into()),
            Column::AGE,
            Column::new("Users", |binding, _| subjects(binding, "User").into()).wide(),
            Column::new("Groups", |binding, _| subjects(binding, "Group").into()).wide(),
            Column::new("ServiceAccounts", |binding, _| subjects(binding, "ServiceAccount").into())
                .wide(),
        ]
    }
}

const GROUP: &str = "rbac.authorization.k8s.io";

fn role(binding: &Value) -> String {
    format!("{}/{}", binding.str_at(&["roleRef", "kind"]), binding.str_at(&["roleRef", "name"]))
}

/// The names of the subjects of a kind; service accounts have a namespace before theirs.
fn subjects(binding: &Value, kind: &str) -> String {
    let subjects = binding.items_at(&["subjects"]).iter();
    let subjects = subjects.filter(|subject| subject.str_at(&["kind"]) == kind);
    let names: Vec<String> = subjects
        .map(|subject| match (kind, subject.str_at(&["name"])) {
            ("ServiceAccount", name) => format!("{}/{name}", subject.str_at(&["namespace"])),
            (_, name) => name.to_owned(),
        })
        .collect();
    names.join(", ")
}
