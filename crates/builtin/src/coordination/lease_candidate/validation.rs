//! Validation of lease candidates.

use cel::Version;
use meta::{FieldErrors, Value};

use crate::{
    coordination::lease::validation::{OLDEST_EMULATION_VERSION, strategy},
    validation::cursor::Field,
};

pub(crate) fn validate(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
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
