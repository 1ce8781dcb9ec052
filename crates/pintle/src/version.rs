//! The Kubernetes version that `--version` prints and `/version` serves.

use crate::flags::quote;

/// The version that Pintle is a drop-in for, marked as its own build.
pub(crate) const GIT_VERSION: &str = "v1.36.4+pintle";

const MAJOR: &str = "1";
const MINOR: &str = "36";
pub(crate) const MINOR_NUMBER: u32 = 36;
/// The oldest minor version that can be emulated: kube-apiserver's range is three back.
pub(crate) const FLOOR: u32 = MINOR_NUMBER - 3;
/// `minCompatibilityVersion`: one minor version older.
const MIN_COMPATIBILITY_MINOR: &str = "35";

/// The fields of Kubernetes' `version.Info`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Info {
    pub(crate) major: &'static str,
    pub(crate) minor: &'static str,
    pub(crate) emulation_major: &'static str,
    pub(crate) emulation_minor: &'static str,
    pub(crate) min_compatibility_major: &'static str,
    pub(crate) min_compatibility_minor: &'static str,
    pub(crate) git_version: String,
    pub(crate) git_commit: &'static str,
    pub(crate) git_tree_state: &'static str,
    pub(crate) build_date: &'static str,
    /// Compat: the field has Kubernetes' name; its value is the Rust version.
    pub(crate) go_version: &'static str,
    pub(crate) compiler: &'static str,
    pub(crate) platform: String,
}

/// This build, with the version of `--version=v…` if it is set.
pub(crate) fn info(reported: Option<&str>) -> Info {
    Info {
        major: MAJOR,
        minor: MINOR,
        emulation_major: MAJOR,
        emulation_minor: MINOR,
        min_compatibility_major: MAJOR,
        min_compatibility_minor: MIN_COMPATIBILITY_MINOR,
        git_version: reported.unwrap_or(GIT_VERSION).to_owned(),
        git_commit: option_env!("PINTLE_GIT_COMMIT").unwrap_or(""),
        git_tree_state: "",
        // Kubernetes' own placeholder: builds are reproducible, so they have no date.
        build_date: "1970-01-01T00:00:00Z",
        go_version: concat!("rust", env!("CARGO_PKG_RUST_VERSION")),
        compiler: "rustc",
        platform: platform(),
    }
}

impl Info {
    /// The line of `--version`.
    pub(crate) fn line(&self) -> String {
        format!("Kubernetes {}\n", self.git_version)
    }

    /// The response of `/version`, indented as kube-apiserver's.
    pub(crate) fn json(&self) -> String {
        let fields = [
            ("major", self.major),
            ("minor", self.minor),
            ("emulationMajor", self.emulation_major),
            ("emulationMinor", self.emulation_minor),
            ("minCompatibilityMajor", self.min_compatibility_major),
            ("minCompatibilityMinor", self.min_compatibility_minor),
            ("gitVersion", &self.git_version),
            ("gitCommit", self.git_commit),
            ("gitTreeState", self.git_tree_state),
            ("buildDate", self.build_date),
            ("goVersion", self.go_version),
            ("compiler", self.compiler),
            ("platform", &self.platform),
        ];
        let fields = fields.map(|(name, value)| format!("  \"{name}\": {}", quote(value)));
        format!("{{\n{}\n}}", fields.join(",\n"))
    }

    /// The line of `--version=raw`: the whole record, as Go would print it.
    pub(crate) fn raw(&self) -> String {
        let fields = [
            ("Major", self.major),
            ("Minor", self.minor),
            ("EmulationMajor", self.emulation_major),
            ("EmulationMinor", self.emulation_minor),
            ("MinCompatibilityMajor", self.min_compatibility_major),
            ("MinCompatibilityMinor", self.min_compatibility_minor),
            ("GitVersion", &self.git_version),
            ("GitCommit", self.git_commit),
            ("GitTreeState", self.git_tree_state),
            ("BuildDate", self.build_date),
            ("GoVersion", self.go_version),
            ("Compiler", self.compiler),
            ("Platform", &self.platform),
        ];
        let fields = fields.map(|(name, value)| format!("{name}:{}", quote(value)));
        format!("version.Info{{{}}}\n", fields.join(", "))
    }
}

/// The platform under Go's names, which clients compare with image platforms.
fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    };
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    format!("{system}/{architecture}")
}

/// Checks a version to report: a semantic version that differs from ours only after the patch number.
pub(crate) fn check_override(version: &str) -> Result<(), String> {
    if version == GIT_VERSION {
        return Ok(());
    }
    if semantic_numbers(version)? != semantic_numbers(GIT_VERSION)? {
        return Err(format!(
            "version {} must match major/minor/patch of default version {}",
            quote(version),
            quote(GIT_VERSION)
        ));
    }
    Ok(())
}

/// The three numbers of a valid semantic version.
fn semantic_numbers(version: &str) -> Result<Vec<u64>, String> {
    let text = version.trim().strip_prefix('v').unwrap_or(version.trim());
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (numbers, extra) = text.split_at(end);
    if !numbers.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("could not parse {} as version", quote(version)));
    }
    let components: Vec<&str> = numbers.split('.').collect();
    if components.len() != 3 {
        return Err(format!("illegal version string {}", quote(version)));
    }
    let zero_prefixed = |component: &str| component.len() > 1 && component.starts_with('0');
    let illegal = |component: &str| {
        format!(
            "illegal zero-prefixed version component {} in {}",
            quote(component),
            quote(version)
        )
    };
    let mut parsed = Vec::with_capacity(3);
    for component in components {
        if zero_prefixed(component) {
            return Err(illegal(component));
        }
        parsed.push(
            component.parse().map_err(|_| format!("illegal version string {}", quote(version)))?,
        );
    }
    let (pre_release, build) = match extra.split_once('+') {
        Some((pre_release, build)) => (pre_release, Some(build)),
        None => (extra, None),
    };
    let pre_release = match pre_release.strip_prefix('-') {
        Some(identifiers) => Some(identifiers),
        None if pre_release.is_empty() => None,
        None => Some("_"),
    };
    let well_formed = |identifier: &str| {
        !identifier.is_empty() && identifier.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if !pre_release.into_iter().chain(build).flat_map(|part| part.split('.')).all(well_formed) {
        return Err(format!(
            "could not parse pre-release/metadata ({extra}) in version {}",
            quote(version)
        ));
    }
    for identifier in pre_release.into_iter().flat_map(|part| part.split('.')) {
        if zero_prefixed(identifier) && identifier.bytes().all(|b| b.is_ascii_digit()) {
            return Err(illegal(identifier));
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reported_version_differs_from_ours_after_the_patch_number_only() {
        let cases = [
            (GIT_VERSION, ""),
            ("v1.36.4", ""),
            ("v1.36.4-rc.1+build.7", ""),
            ("v1.36.4+a-b", ""),
            (
                "v1.36.5",
                "version \"v1.36.5\" must match major/minor/patch of default version \"v1.36.4+pintle\"",
            ),
            ("vfoo", "could not parse \"vfoo\" as version"),
            ("v1.36", "illegal version string \"v1.36\""),
            ("v1.036.4", "illegal zero-prefixed version component \"036\" in \"v1.036.4\""),
            ("v1.36.4-01", "illegal zero-prefixed version component \"01\" in \"v1.36.4-01\""),
            ("v1.36.4_x", "could not parse pre-release/metadata (_x) in version \"v1.36.4_x\""),
            ("v1.36.4-", "could not parse pre-release/metadata (-) in version \"v1.36.4-\""),
            (
                "v1.36.99999999999999999999999",
                "illegal version string \"v1.36.99999999999999999999999\"",
            ),
        ];
        for (version, expected) in cases {
            assert_eq!(check_override(version).err().unwrap_or_default(), expected, "{version}");
        }
    }

    #[test]
    fn the_version_is_printed_as_kubernetes_prints_it() {
        assert_eq!(info(None).line(), "Kubernetes v1.36.4+pintle\n");
        assert_eq!(info(Some("v1.36.4-x")).line(), "Kubernetes v1.36.4-x\n");
        let raw = info(None).raw();
        assert!(
            raw.starts_with("version.Info{Major:\"1\", Minor:\"36\", EmulationMajor:\"1\","),
            "{raw}"
        );
        assert!(raw.contains("GitVersion:\"v1.36.4+pintle\""), "{raw}");
    }
}
