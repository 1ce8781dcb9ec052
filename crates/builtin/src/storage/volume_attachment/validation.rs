//! Validation of volume attachments.

use meta::{FieldErrors, Value, names::is_dns1123_subdomain};

use crate::core::persistent_volume::validation as volume_validation;
use crate::validation::{
    cursor::{Field, IMMUTABLE},
    pod_spec::volume_sources::csi_driver_name,
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    csi_driver_name(&spec.get("attacher"), errors);
    let source = spec.get("source");
    let (inline, name) = (source.get("inlineVolumeSpec"), source.get("persistentVolumeName"));
    let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline.is_set(), name.is_set()) {
        (false, false) => source.required(errors, why),
        (true, true) => source.forbidden(errors, why),
        (false, true) if name.is_empty() => {
            name.required(errors, "must specify non empty persistentVolumeName");
        }
        (true, false) => volume_validation::inline(&inline, errors),
        _ => {}
    }
    spec.get("nodeName").rule(errors, is_dns1123_subdomain);
    let status = root.get("status");
    for name in ["attachError", "detachError"] {
        let error = status.get(name);
        let code = error.get("errorCode");
        if !(0..=i64::from(i32::MAX)).contains(&code.int_or_zero()) {
            code.in_range(errors, 0, i64::from(i32::MAX));
        }
        if error.get("message").len() > 1024 {
            errors.too_long(error.get("message").path(), 256 * 1024);
        }
    }
    if name.is_set() {
        name.rule(errors, is_dns1123_subdomain);
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
    if object.get("spec") != old.get("spec") {
        let root = Field::root(object);
        root.get("spec").invalid(errors, IMMUTABLE);
    }
}
