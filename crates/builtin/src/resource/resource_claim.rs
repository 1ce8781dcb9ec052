//! Resource claims.

pub(crate) mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use super::device::default_claim_spec;
use crate::conversion::device::claim_to_newest;
use crate::printer_cells::is_being_deleted;

pub(crate) struct ResourceClaim;

impl Strategy for ResourceClaim {
    fn default(&self, claim: &mut Value) {
        default_claim_spec(claim.object_at_mut(&["spec"]));
    }

    fn validate(&self, claim: &Value, errors: &mut FieldErrors) {
        validation::validate(&claim_to_newest(claim.clone()), errors);
    }

    fn validate_update(&self, claim: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(claim, old, errors);
    }

    fn validate_subresource(
        &self,
        _subresource: &str,
        claim: &Value,
        old: &Value,
        errors: &mut FieldErrors,
    ) {
        let [claim, old] = [claim, old].map(|claim| claim_to_newest(claim.clone()));
        validation::validate_status(&claim, &old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![Column::NAME, Column::new("State", |claim, _| state(claim).into()), Column::AGE]
    }
}

/// `pending`, `allocated,reserved`, `deleted,allocated`
fn state(claim: &Value) -> String {
    let allocation = claim.at(&["status", "allocation"]);
    let allocated = allocation.is_some_and(|allocation| !allocation.is_null());
    let reserved = !claim.items_at(&["status", "reservedFor"]).is_empty();
    let deleted = is_being_deleted(claim);
    let states = [
        (deleted, "deleted"),
        (!deleted && !allocated, "pending"),
        (allocated, "allocated"),
        (allocated && reserved, "reserved"),
    ];
    let states: Vec<&str> = states.iter().filter(|(is, _)| *is).map(|(_, state)| *state).collect();
    states.join(",")
}
