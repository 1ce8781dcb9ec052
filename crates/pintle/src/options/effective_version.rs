//! `--emulated-version` and `--min-compatibility-version`: which minor version the server behaves as, and
//! with which ones it gets along. Pintle knows the behaviour of one version only.

use crate::{
    flags::Parsed,
    version::{Info, MINOR_NUMBER},
};

/// kube-apiserver's range: three minor versions back.
const FLOOR: u32 = MINOR_NUMBER - 3;

/// Sets the version fields by the flags.
pub(super) fn apply(parsed: &Parsed, mut version: Info, errors: &mut Vec<String>) -> Info {
    let emulated = minor(&parsed.texts("emulated-version"));
    let emulated = emulated.unwrap_or_else(|error| {
        errors.push(error);
        None
    });
    let emulated = emulated.unwrap_or(MINOR_NUMBER);
    if !(FLOOR..=MINOR_NUMBER).contains(&emulated) {
        errors.push(format!(
            "emulation version 1.{emulated} is not between [1.{FLOOR}, 1.{MINOR_NUMBER}]"
        ));
    } else if emulated != MINOR_NUMBER {
        errors.push(format!(
            "--emulated-version=1.{emulated} is not available in Pintle: it has the behaviour of \
             1.{MINOR_NUMBER} only"
        ));
    }
    match minor(&parsed.texts("min-compatibility-version")) {
        Err(error) => errors.push(error),
        Ok(None) => {}
        Ok(Some(wanted)) if (FLOOR..=emulated).contains(&wanted) => {
            version.min_compatibility_minor = MINORS[(wanted - FLOOR) as usize];
        }
        Ok(Some(wanted)) => errors.push(format!(
            "minCompatibilityVersion version 1.{wanted} is not between [1.{FLOOR}, 1.{emulated}]"
        )),
    }
    version
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
