//! Validation of service CIDRs.

use meta::{FieldErrors, Value};

use crate::validation::{
    cursor::{Field, IMMUTABLE},
    ip::{canonical_cidr, parse_cidr},
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    service_ranges(&spec.get("cidrs"), errors);
}

fn service_ranges(ranges: &Field<'_>, errors: &mut FieldErrors) {
    if ranges.is_empty() {
        return ranges.required(errors, "at least one CIDR required");
    }
    if ranges.len() > 2 {
        let shown = ranges.value().map(meta::json::to_string).unwrap_or_default();
        let shown = format!(r#"{{"CIDRs":{shown}}}"#);
        return ranges.invalid_shown(errors, &shown, "may only hold up to 2 values");
    }
    for range in ranges.items() {
        canonical_cidr(&range, errors);
    }
    let families: Vec<bool> = ranges
        .items()
        .filter_map(|range| parse_cidr(range.str()))
        .map(|range| range.address.is_ipv4())
        .collect();
    if families.len() == 2 && families[0] == families[1] {
        let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and \
                   2001:db8::/64";
        ranges.invalid(errors, why);
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let ranges = spec.get("cidrs");
    let before = old.items_at(&["spec", "cidrs"]);
    match (before.len(), ranges.len()) {
        (old, new) if old == new || (old == 1 && new == 2) => {
            for (range, before) in ranges.items().zip(before) {
                if range.value() != Some(before) {
                    range.invalid(errors, IMMUTABLE);
                }
            }
            if old != new {
                service_ranges(&ranges, errors);
            }
        }
        _ => ranges.invalid(errors, IMMUTABLE),
    }
}
