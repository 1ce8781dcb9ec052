//! `--emulated-version` and `--min-compatibility-version`: which minor version the server behaves as, and
//! with which ones it gets along.
//!
//! Feature gates and the table of served APIs are those of the emulated version. What gates decide that have no
//! effect in Pintle stays as in the newest version; a warning names them.

use crate::{
    feature_gates::FeatureGates,
    flags::Parsed,
    version::{FLOOR, Info, MINOR_NUMBER},
};

/// The versions that the flags ask for, as minor versions of 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EffectiveVersion {
    pub(crate) emulated: u32,
    pub(crate) min_compatibility: u32,
    /// Newer versions of what the emulated version serves are served as well.
    pub(crate) forward_compatible: bool,
    /// `--runtime-config` may enable what is newer than the emulated version.
    pub(crate) runtime_config_forward_compatible: bool,
}

impl Default for EffectiveVersion {
    fn default() -> Self {
        Self {
            emulated: MINOR_NUMBER,
            min_compatibility: STORED_FOR,
            forward_compatible: false,
            runtime_config_forward_compatible: false,
        }
    }
}

/// Objects are stored in versions that this minor version can read, whatever the flags say.
const STORED_FOR: u32 = MINOR_NUMBER - 1;

impl EffectiveVersion {
    pub(super) fn from_flags(parsed: &Parsed, errors: &mut Vec<String>) -> Self {
        let mut read = |flag: &str| {
            minor(&parsed.texts(flag)).unwrap_or_else(|error| {
                errors.push(error);
                None
            })
        };
        let emulated = read("emulated-version").unwrap_or(MINOR_NUMBER);
        let min_compatibility = read("min-compatibility-version");
        // Compat: one version older, if that is in the range.
        let min_compatibility = min_compatibility.unwrap_or(emulated.saturating_sub(1).max(FLOOR));
        if !(FLOOR..=MINOR_NUMBER).contains(&emulated) {
            errors.push(format!(
                "emulation version 1.{emulated} is not between [1.{FLOOR}, 1.{MINOR_NUMBER}]"
            ));
        }
        if !(FLOOR..=emulated).contains(&min_compatibility) {
            errors.push(format!(
                "minCompatibilityVersion version 1.{min_compatibility} is not between [1.{FLOOR}, \
                 1.{emulated}]"
            ));
        }
        let version = Self {
            emulated,
            min_compatibility,
            forward_compatible: parsed.bool("emulation-forward-compatible"),
            runtime_config_forward_compatible: parsed
                .bool("runtime-config-emulation-forward-compatible"),
        };
        for (set, name) in [
            (version.forward_compatible, "EmulationForwardCompatible"),
            (version.runtime_config_forward_compatible, "RuntimeConfigEmulationForwardCompatible"),
        ] {
            if set && emulated == MINOR_NUMBER {
                errors.push(format!(
                    "ServerRunOptions.{name} cannot be set to true if the emulation version is the \
                     same as the binary version"
                ));
            }
        }
        version
    }

    /// The fields of `/version`.
    pub(super) fn apply(self, mut version: Info) -> Info {
        let text = |minor: u32| {
            let at = minor.clamp(FLOOR, MINOR_NUMBER) - FLOOR;
            MINORS[at as usize]
        };
        version.emulation_minor = text(self.emulated);
        version.min_compatibility_minor = text(self.min_compatibility);
        version
    }

    /// What is not as in the emulated version, one line each.
    pub(super) fn warnings(self, gates: &FeatureGates) -> Vec<String> {
        let mut warnings = Vec::new();
        let gates = gates.not_emulated();
        if !gates.is_empty() {
            warnings.push(format!(
                "--emulated-version=1.{}: Pintle behaves as 1.{MINOR_NUMBER} in what these feature \
                 gates decide: {}",
                self.emulated,
                gates.join(", ")
            ));
        }
        if self.min_compatibility < STORED_FOR {
            warnings.push(format!(
                "--min-compatibility-version=1.{}: objects are stored in the versions of \
                 1.{STORED_FOR}, of which an older server may not be able to read all",
                self.min_compatibility
            ));
        }
        warnings
    }
}

/// From [`FLOOR`] on.
const MINORS: [&str; 4] = ["33", "34", "35", "36"];

/// The minor version of component `kube` in `kube=1.35` or `1.35`.
fn minor(flag: &[String]) -> Result<Option<u32>, String> {
    let mut found: Option<u32> = None;
    for pair in flag {
        let (component, version) = pair.split_once('=').unwrap_or(("kube", pair));
        let (component, version) = (component.trim(), version.trim());
        let mut parts = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
        let (Some(Ok(major)), Some(Ok(minor)), patch) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(format!("could not parse {version:?} as version"));
        };
        if patch.is_some_and(|patch| patch != Ok(0)) {
            return Err(format!("patch version not allowed, got: {component}={version}"));
        }
        if let Some(known) = found {
            return Err(format!(
                "duplicate version flag, {component}=1.{known} and {component}={version}"
            ));
        }
        if component != "kube" {
            return Err(format!("component not registered: {component}"));
        }
        // Another major version is out of every range.
        found = Some(if major == 1 { minor } else { u32::MAX });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_a_component_and_no_patch() {
        type Case<'a> = (&'a [&'a str], Result<Option<u32>, &'a str>);
        let cases: [Case<'_>; 8] = [
            (&[], Ok(None)),
            (&["1.35"], Ok(Some(35))),
            (&["kube=1.35"], Ok(Some(35))),
            (&["kube=v1.36.0"], Ok(Some(36))),
            (&["kube=1.35.2"], Err("patch version not allowed, got: kube=1.35.2")),
            (&["wardle=1.2"], Err("component not registered: wardle")),
            (&["1.35", "1.34"], Err("duplicate version flag, kube=1.35 and kube=1.34")),
            (&["new"], Err("could not parse \"new\" as version")),
        ];
        for (flag, expected) in cases {
            let flag: Vec<String> = flag.iter().map(|&text| text.to_owned()).collect();
            assert_eq!(minor(&flag), expected.map_err(str::to_owned), "{flag:?}");
        }
    }
}
