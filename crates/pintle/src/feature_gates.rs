//! Feature gates: `--feature-gates=Name=true,kube:Other=false` over the table of 1.36's gates, or of those of
//! the release that `--emulated-version` names.

mod history;
mod table;

use std::collections::BTreeMap;

use history::HISTORY;
use table::GATES;

use crate::{
    flags::parse_bool,
    options::EffectiveVersion,
    version::{FLOOR, MINOR_NUMBER},
};

/// Whether a gate changes anything in Pintle. Setting any other is accepted with a warning.
fn is_effective(name: &str) -> bool {
    EFFECTIVE.contains(&name)
        || admission::order::FEATURE_GATES.contains(&name)
        || controllers::ROLE_GATES.contains(&name)
        || builtin::FeatureGate::ALL.iter().any(|gate| gate.name() == name)
}

/// The gates that this crate asks for by name.
const EFFECTIVE: [&str; 20] = [
    "APIServerIdentity",
    "AllowUnsafeMalformedObjectDeletion",
    "AuthorizePodWebsocketUpgradeCreatePermission",
    "CBORServingAndStorage",
    "ComponentFlagz",
    "ComponentStatusz",
    "ConstrainedImpersonation",
    "CoordinatedLeaderElection",
    "DetectCacheInconsistency",
    "ExtendWebSocketsToKubelet",
    "LoggingAlphaOptions",
    "PodLogsQuerySplitStreams",
    "PortForwardWebsockets",
    "SizeBasedListCostEstimate",
    "StorageVersionAPI",
    "StructuredAuthenticationConfigurationEgressSelector",
    "TranslateStreamCloseWebsocketRequests",
    "UnauthenticatedHTTP2DOSMitigation",
    "UnknownVersionInteroperabilityProxy",
    "WatchCacheInitializationPostStartHook",
];

/// The maturity of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    Stable,
    Deprecated,
}

impl Stage {
    /// Compat: a GA feature has an empty stage in metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

/// One gate: a row of the table.
struct Gate {
    name: &'static str,
    stage: Stage,
    default: bool,
    locked: bool,
    /// Gates that have to be enabled while this one is.
    needs: &'static [&'static str],
}

const fn gate(name: &'static str, stage: Stage, default: bool) -> Gate {
    Gate { name, stage, default, locked: false, needs: &[] }
}

/// A gate that can only be set to its default.
const fn locked(name: &'static str, stage: Stage, default: bool) -> Gate {
    Gate { locked: true, ..gate(name, stage, default) }
}

impl Gate {
    const fn needs(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }
}

/// A gate in one release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GateSpec {
    stage: Stage,
    default: bool,
    locked: bool,
}

impl Gate {
    /// The gate in release 1.`minor`; None: that release did not have it.
    fn at(&self, minor: u32) -> Option<GateSpec> {
        let changed = HISTORY.binary_search_by_key(&self.name, |(name, _)| *name);
        if let (Ok(at), Some(back)) = (changed, minor.checked_sub(FLOOR))
            && let Some(spec) = HISTORY[at].1.get(back as usize)
        {
            return *spec;
        }
        Some(GateSpec { stage: self.stage, default: self.default, locked: self.locked })
    }
}

/// Which features are enabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FeatureGates {
    /// The release whose gates these are.
    minor: u32,
    /// Gates that were named, or set by `AllAlpha` or `AllBeta`.
    set: BTreeMap<&'static str, bool>,
    /// One line for each gate that was set although it will be removed or has no effect.
    pub(crate) warnings: Vec<String>,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self::of(MINOR_NUMBER)
    }
}

impl FeatureGates {
    /// The defaults of a release.
    fn of(minor: u32) -> Self {
        Self { minor, set: BTreeMap::new(), warnings: Vec::new() }
    }

    /// Reads the values of `--feature-gates`, by component; Pintle is the component `kube`.
    pub(crate) fn from_flag(
        flag: &BTreeMap<String, Vec<String>>,
        version: EffectiveVersion,
    ) -> Result<Self, Vec<String>> {
        let one = |error: &str| Err(vec![error.to_owned()]);
        if let Some(other) =
            flag.keys().find(|component| !matches!(component.as_str(), "" | "kube"))
        {
            return one(&format!("component not registered: {other}"));
        }
        if flag.len() > 1 {
            return one(
                "set kube feature gates with default empty prefix or kube: prefix consistently, \
                 do not mix use",
            );
        }
        // A later mention of the same gate wins.
        let mut asked = BTreeMap::new();
        for pair in flag.values().flatten().filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                None => return one(&format!("missing bool value for {}", pair.trim())),
                Some((name, value)) => match parse_bool(value.trim()) {
                    Ok(value) => asked.insert(name.trim(), value),
                    Err(error) => return one(&format!("invalid value of {pair}, err: {error}")),
                },
            };
        }
        Self::from_pairs(&asked, version)
    }

    fn from_pairs(
        asked: &BTreeMap<&str, bool>,
        version: EffectiveVersion,
    ) -> Result<Self, Vec<String>> {
        let minor = version.emulated;
        let mut errors = Vec::new();
        let mut gates = Self::of(minor);
        for (name, value) in asked {
            let Some(gate) = find(name) else {
                errors.push(format!("unrecognized feature gate: {name}"));
                continue;
            };
            let Some(spec) = gate.at(minor) else {
                errors.push(format!(
                    "cannot set feature gate {name} to {value}, feature is PreAlpha at emulated \
                     version 1.{minor}, min compatibility version 1.{}",
                    version.min_compatibility
                ));
                continue;
            };
            if spec.locked && spec.default != *value {
                errors.push(format!(
                    "cannot set feature gate {name} to {value}, feature is locked to {}",
                    spec.default
                ));
                continue;
            }
            gates.set.insert(gate.name, *value);
            gates.warnings.extend(warning(gate, spec, *value));
        }
        gates.set_unnamed("AllAlpha", Stage::Alpha);
        gates.set_unnamed("AllBeta", Stage::Beta);
        if errors.is_empty() {
            errors = gates.unmet_needs();
        }
        if errors.is_empty() { Ok(gates) } else { Err(errors) }
    }

    /// `AllAlpha` and `AllBeta` set every gate of their stage that is not named itself.
    fn set_unnamed(&mut self, all: &str, stage: Stage) {
        if let Some(&value) = self.set.get(all) {
            let minor = self.minor;
            let of_stage = |gate: &&Gate| gate.at(minor).is_some_and(|spec| spec.stage == stage);
            for gate in GATES.iter().filter(of_stage).filter(|gate| !is_group(gate)) {
                self.set.entry(gate.name).or_insert(value);
            }
        }
    }

    fn unmet_needs(&self) -> Vec<String> {
        let on = GATES.iter().filter(|gate| self.enabled(gate.name));
        on.filter_map(|gate| {
            let off: Vec<_> =
                gate.needs.iter().copied().filter(|need| !self.enabled(need)).collect();
            let (name, off) = (gate.name, off.join(" "));
            let unmet =
                format!("{name} is enabled, but depends on features that are disabled: [{off}]");
            (!off.is_empty()).then_some(unmet)
        })
        .collect()
    }

    /// Every gate with its stage as in metrics, and whether it is enabled.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        GATES.iter().map(|gate| {
            let stage = gate.at(self.minor).map_or("PRE-ALPHA", |spec| spec.stage.name());
            (gate.name, stage, self.enabled(gate.name))
        })
    }

    /// The gates whose default differs from the newest release's although the server always behaves as the
    /// newest: what an emulated release did otherwise, and Pintle does not.
    pub(crate) fn not_emulated(&self) -> Vec<&'static str> {
        let newest = Self::default();
        let gates = GATES.iter().filter(|gate| !self.set.contains_key(gate.name));
        let differ = gates.filter(|gate| self.enabled(gate.name) != newest.enabled(gate.name));
        differ.map(|gate| gate.name).filter(|name| !is_effective(name)).collect()
    }

    /// Whether the feature is enabled. Panics for a gate that is not in the table.
    pub(crate) fn enabled(&self, name: &str) -> bool {
        match self.set.get(name) {
            Some(value) => *value,
            None => {
                let gate = find(name).expect("only gates of the table are asked for");
                gate.at(self.minor).is_some_and(|spec| spec.default)
            }
        }
    }
}

fn find(name: &str) -> Option<&'static Gate> {
    GATES.iter().find(|gate| gate.name == name)
}

fn is_group(gate: &Gate) -> bool {
    matches!(gate.name, "AllAlpha" | "AllBeta")
}

fn warning(gate: &Gate, spec: GateSpec, value: bool) -> Option<String> {
    let name = gate.name;
    let stage = match spec.stage {
        Stage::Stable => "a GA",
        Stage::Deprecated => "a deprecated",
        _ if is_group(gate) && value != spec.default => {
            return Some(format!("some gates that {name} sets have no effect in Pintle yet"));
        }
        _ if value != gate.default && !is_effective(name) => {
            return Some(format!("feature gate {name} has no effect in Pintle yet"));
        }
        _ => return None,
    };
    Some(format!(
        "setting {stage} feature gate: {name}={value}; it will be removed in a future release"
    ))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// Gates by component.
    type Flag<'a> = &'a [(&'a str, &'a [&'a str])];

    fn read(flag: Flag<'_>) -> Result<FeatureGates, Vec<String>> {
        let owned = |gates: &[&str]| gates.iter().map(|&gate| gate.to_owned()).collect();
        FeatureGates::from_flag(
            &flag
                .iter()
                .map(|(component, gates)| ((*component).to_owned(), owned(gates)))
                .collect(),
            EffectiveVersion::default(),
        )
    }

    #[test]
    fn invalid_gates_get_the_messages_of_kube_apiserver() {
        let cases: [(Flag<'_>, &[&str]); 9] = [
            (
                &[("", &["Foo=true", "Bar=false"])],
                &["unrecognized feature gate: Bar", "unrecognized feature gate: Foo"],
            ),
            (&[("", &["WatchList"])], &["missing bool value for WatchList"]),
            (
                &[("", &["WatchList=x"])],
                &[
                    "invalid value of WatchList=x, err: strconv.ParseBool: parsing \"x\": invalid syntax",
                ],
            ),
            (
                &[("kube", &["APIServerTracing=false"])],
                &["cannot set feature gate APIServerTracing to false, feature is locked to true"],
            ),
            (&[("wardle", &["A=true"])], &["component not registered: wardle"]),
            (
                &[("", &["WatchList=true"]), ("kube", &["WatchList=true"])],
                &[
                    "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use",
                ],
            ),
            (
                &[("", &["GangScheduling=true"])],
                &[
                    "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
                ],
            ),
            (&[("", &["GangScheduling=true", "GenericWorkload=true"])], &[]),
            (&[("", &["APIServerTracing=true", "WatchList=false", "WatchList=true"])], &[]),
        ];
        for (flag, expected) in cases {
            assert_eq!(read(flag).err().unwrap_or_default(), expected, "{flag:?}");
        }
    }

    #[test]
    fn a_named_gate_overrides_all_alpha() {
        let gates = read(&[("", &["AllAlpha=true", "HPAScaleToZero=false"])]).unwrap();
        assert!(gates.enabled("GenericWorkload"));
        assert!(!gates.enabled("HPAScaleToZero"));
        assert!(!gates.enabled("ClusterTrustBundle"), "a beta gate keeps its default");
        assert_eq!(gates.warnings, ["some gates that AllAlpha sets have no effect in Pintle yet"]);
    }

    #[test]
    fn setting_a_ga_gate_is_a_warning() {
        let gates = read(&[("kube", &["APIServerTracing=true", "WatchList=true"])]).unwrap();
        assert_eq!(
            gates.warnings,
            [
                "setting a GA feature gate: APIServerTracing=true; it will be removed in a future release"
            ]
        );
    }

    #[test]
    fn a_gate_without_effect_says_so() {
        let gates = read(&[("", &["CoordinatedLeaderElection=true", "EventedPLEG=true"])]);
        let expected = ["feature gate EventedPLEG has no effect in Pintle yet"];
        assert_eq!(gates.unwrap().warnings, expected);
    }

    /// The sources of this crate without their tests.
    fn read_sources(directory: &Path, sources: &mut String) {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                read_sources(&path, sources);
            } else if path.extension().is_some_and(|end| end == "rs") && name != "tests.rs" {
                let text = fs::read_to_string(&path).expect("a source file");
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                sources.push_str(code);
            }
        }
    }

    /// A start with `ConstrainedImpersonation` off warned that it has no effect, although it was asked for.
    #[test]
    fn gates_that_the_server_asks_for_are_set_without_a_warning() {
        let mut sources = String::new();
        read_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut sources);
        let asked = sources.split("enabled(\"").skip(1).filter_map(|rest| rest.split('"').next());
        // Controllers are asked for in the same way.
        let asked: BTreeSet<&str> = asked.filter(|name| !name.contains('-')).collect();
        assert_eq!(asked, EFFECTIVE.into(), "every gate that is asked for by name is effective");
        for name in asked {
            let gate = find(name).expect("only gates of the table are asked for");
            let mut other = vec![format!("{name}={}", !gate.default)];
            // A gate goes with what needs it.
            let needing = GATES.iter().filter(|row| row.default && row.needs.contains(&name));
            other.extend(needing.map(|row| format!("{}=false", row.name)));
            let other: Vec<&str> = other.iter().map(String::as_str).collect();
            let gates = read(&[("", &other)]).unwrap();
            assert_eq!(gates.warnings, Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn the_user_guide_names_the_gates_that_have_an_effect() {
        let guide = include_str!("../../../docs/user-guide.md");
        let (_, list) = guide.split_once("These have an effect:").expect("the list begins so");
        let (list, _) = list.split_once("Setting any other gate").expect("and ends so");
        let quoted = list.split('`').skip(1).step_by(2).filter(|name| find(name).is_some());
        let named: BTreeSet<&str> = quoted.collect();
        let effective = GATES.iter().map(|gate| gate.name).filter(|name| is_effective(name));
        assert_eq!(named, effective.collect());
    }

    /// A gate of the list that nothing asks for would be set without a warning, and without an effect.
    #[test]
    fn gates_that_kinds_look_at_are_asked_for() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut sources = String::new();
        for directory in ["builtin/src", "pintle/src", "admission/src"] {
            read_sources(&crates.join(directory), &mut sources);
        }
        let mut facts = String::new();
        let groups = fs::read_dir(crates.join("builtin/api")).expect("the facts");
        let groups = groups.map(|group| group.expect("an entry").path());
        for group in groups.filter(|path| path.is_dir()) {
            for version in fs::read_dir(group).expect("a group") {
                let path = version.expect("an entry").path();
                facts.push_str(&fs::read_to_string(path).expect("a version"));
            }
        }
        for gate in builtin::FeatureGate::ALL {
            let name = gate.name();
            let in_facts = facts.split(|c: char| !c.is_alphanumeric()).any(|word| word == name);
            let in_code = sources.contains(&format!("FeatureGate::{name}"))
                || sources.contains(&format!("(\"{name}\")"));
            assert!(in_facts || in_code, "nothing depends on {name}");
        }
    }

    #[test]
    fn gates_that_kinds_look_at_are_known_and_off_by_default() {
        for gate in builtin::FeatureGate::ALL {
            let row = GATES.iter().find(|row| row.name == gate.name());
            assert!(row.is_some_and(|row| !row.default && !row.locked), "{}", gate.name());
        }
    }

    #[test]
    fn the_table_is_sorted_and_its_needs_exist() {
        assert!(GATES.is_sorted_by(|a, b| a.name < b.name));
        for gate in GATES {
            assert!(gate.needs.iter().all(|need| find(need).is_some()), "{}", gate.name);
        }
        for minor in FLOOR..=MINOR_NUMBER {
            let unmet = FeatureGates::of(minor).unmet_needs();
            assert_eq!(unmet, Vec::<String>::new(), "1.{minor}");
        }
        assert!(HISTORY.is_sorted_by(|a, b| a.0 < b.0));
        for (name, specs) in HISTORY {
            let gate = find(name).expect("the history is of gates of the table");
            let newest = gate.at(MINOR_NUMBER);
            assert!(specs.iter().any(|spec| *spec != newest), "{name} has not changed");
        }
    }

    #[test]
    fn an_emulated_release_has_its_own_gates() {
        let of = |minor: u32, pair: &str| {
            let flag = BTreeMap::from([(String::new(), vec![pair.to_owned()])]);
            let version = EffectiveVersion {
                emulated: minor,
                min_compatibility: 33,
                ..EffectiveVersion::default()
            };
            FeatureGates::from_flag(&flag, version)
        };
        for (minor, on) in [(33, false), (35, false), (36, true)] {
            assert_eq!(FeatureGates::of(minor).enabled("ComponentFlagz"), on, "1.{minor}");
        }
        // Locked since 1.34.
        assert!(of(33, "APIServerTracing=false").is_ok());
        assert!(of(34, "APIServerTracing=false").is_err());
        // Alpha in 1.35, unknown before.
        assert!(of(35, "ConstrainedImpersonation=true").is_ok());
        let error = "cannot set feature gate ConstrainedImpersonation to true, feature is PreAlpha at \
                     emulated version 1.34, min compatibility version 1.33";
        assert_eq!(of(34, "ConstrainedImpersonation=true").err(), Some(vec![error.to_owned()]));
        assert_eq!(FeatureGates::default().not_emulated(), Vec::<&str>::new());
        let kept = FeatureGates::of(35).not_emulated();
        assert!(kept.contains(&"StrictIPCIDRValidation"), "{kept:?}");
        assert!(!kept.contains(&"ComponentFlagz"), "{kept:?}");
    }
}
