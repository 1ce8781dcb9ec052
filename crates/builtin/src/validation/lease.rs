//! Leases, and those who stand for them.

use cel::Version;
use meta::{FieldErrors, Value, names::is_qualified_name};

use super::cursor::Field;

pub(crate) fn lease(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let seconds = spec.get("leaseDurationSeconds");
    if seconds.int().is_some_and(|seconds| seconds <= 0) {
        seconds.invalid(errors, "must be greater than 0");
    }
    spec.get("leaseTransitions").non_negative(errors);
    let choice = spec.get("strategy");
    if choice.is_set() {
        strategy(&choice, errors);
    }
    let preferred = spec.get("preferredHolder");
    if !preferred.is_empty() && choice.is_empty() {
        preferred.forbidden(errors, "may only be specified if `strategy` is defined");
    }
}

pub(crate) fn candidate(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    spec.get("leaseName").require(errors);
    let [emulated, binary] = ["emulationVersion", "binaryVersion"].map(|name| spec.get(name));
    let emulated_version = version(&emulated, errors);
    if binary.require(errors) {
        let binary_version = version(&binary, errors);
        // What can't be read counts as no version at all, which every version is newer than.
        let is_older = match (&binary_version, &emulated_version) {
            (Some(binary), Some(emulated)) => binary.compare(emulated).is_lt(),
            (None, Some(emulated)) => !is_zero(emulated),
            _ => false,
        };
        if is_older {
            binary.invalid(errors, "must be greater than or equal to `emulationVersion`");
        }
    }
    let choice = spec.get("strategy");
    if choice.require(errors) {
        if choice.is(OLDEST_EMULATION_VERSION) && emulated_version.as_ref().is_none_or(is_zero) {
            let why = "must be specified when `strategy` is 'OldestEmulationVersion'";
            emulated.required(errors, why);
        }
        strategy(&choice, errors);
    }
    if let Some(old) = old {
        spec.get("leaseName").immutable(&Field::root(old).get("spec").get("leaseName"), errors);
    }
}

const OLDEST_EMULATION_VERSION: &str = "OldestEmulationVersion";

fn version(field: &Field<'_>, errors: &mut FieldErrors) -> Option<Version> {
    if field.is_empty() {
        return None;
    }
    let version = Version::parse(field.str()).ok();
    if version.is_none() {
        field.invalid(errors, "must be a valid semantic version");
    }
    version
}

fn is_zero(version: &Version) -> bool {
    Version::parse("0.0.0").is_ok_and(|zero| version.compare(&zero).is_eq())
}

/// How the holder is chosen. Others than ours have a domain.
fn strategy(choice: &Field<'_>, errors: &mut FieldErrors) {
    // Compat: upstream names the field twice.
    let place = choice.path().child("strategy");
    if !choice.str().contains('/') {
        if !choice.is(OLDEST_EMULATION_VERSION) {
            errors.not_supported(place, choice.str(), &[OLDEST_EMULATION_VERSION]);
        }
        return;
    }
    for why in is_qualified_name(choice.str()) {
        errors.invalid(&place, choice.str(), &why);
    }
}
