//! Pod templates, as all controllers have them.

use meta::{
    FieldErrors,
    names::{validate_annotations, validate_labels},
};

use crate::{
    core::pod::validation::annotations,
    validation::{
        cursor::Field,
        pod_spec::{self, Owner, PodSpecOptions},
    },
};

pub(crate) fn validate(template: &Field<'_>, options: PodSpecOptions, errors: &mut FieldErrors) {
    let metadata = template.get("metadata");
    // Compat: upstream leaves `metadata` out of these paths.
    let labels = template.get("labels").with(metadata.value_at(&["labels"]));
    let notes = template.get("annotations").with(metadata.value_at(&["annotations"]));
    validate_labels(labels.value(), &labels.path(), errors);
    validate_annotations(notes.value(), &notes.path(), errors);
    let spec = template.get("spec");
    annotations::validate(&notes, &spec, errors);
    pod_spec::validate(&spec, &Owner::template(options), errors);
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
