//! Pod templates, as all controllers have them.

use meta::{
    FieldErrors,
    names::{validate_annotations, validate_labels},
};

use super::{
    cursor::Field,
    pod::annotations,
    pod_spec::{self, Owner},
    ratcheting::ratchet,
};

pub(crate) fn validate(template: &Field<'_>, errors: &mut FieldErrors) {
    let metadata = template.get("metadata");
    // Compat: upstream leaves `metadata` out of these paths.
    let labels = template.get("labels").with(metadata.value_at(&["labels"]));
    let notes = template.get("annotations").with(metadata.value_at(&["annotations"]));
    validate_labels(labels.value(), &labels.path(), errors);
    validate_annotations(notes.value(), &notes.path(), errors);
    let spec = template.get("spec");
    annotations::validate(&notes, &spec, errors);
    pod_spec::validate(&spec, &Owner::TEMPLATE, errors);
    annotations::match_fields(&notes, &spec, errors);
    let ephemeral = spec.get("ephemeralContainers");
    if !ephemeral.is_empty() {
        ephemeral.forbidden(errors, "ephemeral containers not allowed in pod template");
    }
}

/// What controllers want that keep their pods running for good.
pub(crate) fn runs_forever(template: &Field<'_>, kind: &str, errors: &mut FieldErrors) {
    let spec = template.get("spec");
    let (policy, deadline) = (spec.get("restartPolicy"), spec.get("activeDeadlineSeconds"));
    policy.one_of_or_default(errors, &["Always"]);
    if deadline.is_set() {
        deadline.forbidden(errors, &format!("activeDeadlineSeconds in {kind} is not Supported"));
    }
}

/// The kind `PodTemplate`, which is nothing but one.
pub(crate) fn object(template: &meta::Value, errors: &mut FieldErrors) {
    validate(&Field::root(template).get("template"), errors);
}

pub(crate) fn object_update(template: &meta::Value, old: &meta::Value, errors: &mut FieldErrors) {
    object(template, errors);
    ratchet(old, object, errors);
}
