//! A resource claim template: the metadata and the spec of the claims that are made from it.

use meta::{FieldErrors, Value};

use crate::resource::resource_claim::validation::{claim_spec, validate_update as same_spec};
use crate::validation::{cursor::Field, template_meta};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    template_meta(&spec.get("metadata"), errors);
    claim_spec(&spec.get("spec"), errors);
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
    same_spec(object, old, errors);
}
