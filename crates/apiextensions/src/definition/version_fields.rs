//! Validation of subresources, additionalPrinterColumns and selectableFields.

use std::collections::BTreeSet;

use meta::{FieldErrors, FieldPath, Value};
use schema::structural::{JsonType, StructuralNode};

pub(super) fn check_subresources(subresources: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(scale) = subresources.get("scale").filter(|scale| !scale.is_null()) else { return };
    let mut check = |name: &str, below: &[&str], required: bool, why: &str| {
        let at = path.child(&format!("scale.{name}"));
        let json_path = scale.str_at(&[name]);
        if json_path.is_empty() {
            if required {
                errors.required(at, "");
            }
        } else if !check_json_path(json_path, &at, errors)
            && !below.iter().any(|root| json_path.starts_with(root))
        {
            errors.invalid(at, json_path, why);
        }
    };
    check("specReplicasPath", &[".spec."], true, "should be a json path under .spec");
    check("statusReplicasPath", &[".status."], true, "should be a json path under .status");
    let why = "should be a json path under either .spec or .status";
    check("labelSelectorPath", &[".spec.", ".status."], false, why);
}

pub(super) fn check_column(column: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] =
        ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    if column.str_at(&["name"]).is_empty() {
        errors.required(path.child("name"), "");
    }
    let one_of_types = format!("must be one of {}", TYPES.join(","));
    match column.str_at(&["type"]) {
        "" => errors.required(path.child("type"), &one_of_types),
        ty if !TYPES.contains(&ty) => errors.invalid(path.child("type"), ty, &one_of_types),
        _ => {}
    }
    let format = column.str_at(&["format"]);
    if !format.is_empty() && !FORMATS.contains(&format) {
        let why = format!("must be one of {}", FORMATS.join(","));
        errors.invalid(path.child("format"), format, &why);
    }
    // Go's name of the field.
    let at = path.child("JSONPath");
    match column.str_at(&["jsonPath"]) {
        "" => errors.required(at, ""),
        json_path => _ = check_json_path(json_path, &at, errors),
    }
}

/// Returns whether the path is invalid.
fn check_json_path(json_path: &str, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let wrong = !json_path.starts_with('.');
    if wrong {
        errors.invalid(path, json_path, "must be a simple json path starting with .");
    }
    wrong
}

/// `allow_too_many`: the stored definition has the same, too many, fields.
pub(super) fn check_selectable_fields(
    fields: &[Value],
    schema: &StructuralNode,
    allow_too_many: bool,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    const FIELDS_MAX: usize = 8;
    let mut seen = BTreeSet::new();
    for (at, field) in fields.iter().enumerate() {
        let at = path.index(at).child("jsonPath");
        let json_path = field.str_at(&["jsonPath"]);
        if json_path.is_empty() {
            errors.required(at, "");
            continue;
        }
        let (place, node) = match schema.find(json_path, false) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(at, json_path, &format!("is an invalid path: {why}"));
                continue;
            }
        };
        if place.root_field() == "metadata" {
            errors.invalid(&at, json_path, "must not point to fields in metadata");
        }
        if !matches!(node.ty, JsonType::String | JsonType::Boolean | JsonType::Integer) {
            let why = "must point to a field of type string, boolean or integer. Enum string \
                       fields and strings with formats are allowed.";
            errors.invalid(&at, json_path, why);
        }
        if !seen.insert(place.to_string()) {
            errors.duplicate(&at, json_path);
        }
    }
    if seen.len() > FIELDS_MAX && !allow_too_many {
        errors.too_many(path, seen.len(), FIELDS_MAX);
    }
}
