//! Feature gates: `--feature-gates=Name=true,kube:Other=false` over the table of 1.36's gates.

mod table;

use std::collections::BTreeMap;

use crate::flags::parse_bool;
use table::GATES;

/// Whether a gate changes anything in Pintle. Setting any other is accepted with a warning.
fn is_effective(name: &str) -> bool {
    EFFECTIVE.contains(&name)
        || admission::order::FEATURE_GATES.contains(&name)
        || builtin::FeatureGate::ALL.iter().any(|gate| gate.name() == name)
}

/// The gates that the wiring asks for by name.
const EFFECTIVE: [&str; 11] = [
    "APIServerIdentity",
    "AllowUnsafeMalformedObjectDeletion",
    "CBORServingAndStorage",
    "ComponentFlagz",
    "ComponentStatusz",
    "ConstrainedImpersonation",
    "LoggingAlphaOptions",
    "SizeBasedListCostEstimate",
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

/// Which features are enabled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FeatureGates {
    /// Gates that were named, or set by `AllAlpha` or `AllBeta`.
    set: BTreeMap<&'static str, bool>,
    /// One line for each gate that was set although it will be removed or has no effect.
    pub(crate) warnings: Vec<String>,
}

impl FeatureGates {
    /// Reads the values of `--feature-gates`, by component; Pintle is the component `kube`.
    pub(crate) fn from_flag(flag: &BTreeMap<String, Vec<String>>) -> Result<Self, Vec<String>> {
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
        Self::from_pairs(&asked)
    }

    fn from_pairs(asked: &BTreeMap<&str, bool>) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let mut gates = Self::default();
        for (name, value) in asked {
            let Some(gate) = find(name) else {
                errors.push(format!("unrecognized feature gate: {name}"));
                continue;
            };
            if gate.locked && gate.default != *value {
                errors.push(format!(
                    "cannot set feature gate {name} to {value}, feature is locked to {}",
                    gate.default
                ));
                continue;
            }
            gates.set.insert(gate.name, *value);
            gates.warnings.extend(warning(gate, *value));
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
            for gate in GATES.iter().filter(|gate| gate.stage == stage && !is_group(gate)) {
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
        GATES.iter().map(|gate| (gate.name, gate.stage.name(), self.enabled(gate.name)))
    }

    /// Whether the feature is enabled. Panics for a gate that is not in the table.
    pub(crate) fn enabled(&self, name: &str) -> bool {
        match self.set.get(name) {
            Some(value) => *value,
            None => find(name).expect("only gates of the table are asked for").default,
        }
    }
}

fn find(name: &str) -> Option<&'static Gate> {
    GATES.iter().find(|gate| gate.name == name)
}

fn is_group(gate: &Gate) -> bool {
    matches!(gate.name, "AllAlpha" | "AllBeta")
}

fn warning(gate: &Gate, value: bool) -> Option<String> {
    let name = gate.name;
    let stage = match gate.stage {
        Stage::Stable => "a GA",
        Stage::Deprecated => "a deprecated",
        _ if is_group(gate) && value != gate.default => {
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

    /// A start with `ConstrainedImpersonation` off warned that it has no effect, although it was asked for.
    #[test]
    fn gates_that_the_server_asks_for_are_set_without_a_warning() {
        let sources = [
            include_str!("options/validate.rs"),
            include_str!("prepare_run.rs"),
            include_str!("servers.rs"),
            include_str!("servers/config.rs"),
            include_str!("servers/kube_apiserver.rs"),
        ];
        let sources = sources.concat();
        let asked = sources.split(".enabled(\"").skip(1).filter_map(|rest| rest.split('"').next());
        let asked: std::collections::BTreeSet<&str> = asked.collect();
        assert_eq!(asked, EFFECTIVE.into(), "every gate that is asked for by name is effective");
        for name in asked {
            let gate = find(name).expect("only gates of the table are asked for");
            let other = format!("{name}={}", !gate.default);
            let gates = read(&[("", &[other.as_str()])]).unwrap();
            assert_eq!(gates.warnings, Vec::<String>::new(), "{name}");
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
        assert_eq!(FeatureGates::default().unmet_needs(), Vec::<String>::new());
    }
}
