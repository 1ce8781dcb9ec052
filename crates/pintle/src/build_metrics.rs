//! Constant metrics: the build and the feature gates.

use prometheus::{IntGaugeVec, Opts, Registry};

use crate::{feature_gates::FeatureGates, version::Info};

/// Registers `kubernetes_build_info`, `version_info` and `kubernetes_feature_enabled`.
pub(crate) fn register(registry: &Registry, version: &Info, gates: &FeatureGates) {
    let gauge = |name: &str, help: &str, labels: &[&str]| {
        let gauge = IntGaugeVec::new(Opts::new(name, help), labels).expect("valid names");
        registry.register(Box::new(gauge.clone())).expect("registered once");
        gauge
    };
    let fields = [
        ("build_date", version.build_date),
        ("compiler", version.compiler),
        ("git_commit", version.git_commit),
        ("git_tree_state", version.git_tree_state),
        ("git_version", &version.git_version),
        ("go_version", version.go_version),
        ("major", version.major),
        ("minor", version.minor),
        ("platform", &version.platform),
    ];
    let build = gauge("kubernetes_build_info", "What was built.", &fields.map(|(name, _)| name));
    build.with_label_values(&fields.map(|(_, value)| value)).set(1);

    let labels = ["binary", "component", "emulation", "min_compat"];
    let versions = gauge("version_info", "Versions of the component.", &labels);
    let emulation = format!("{}.{}", version.emulation_major, version.emulation_minor);
    let compatible =
        format!("{}.{}", version.min_compatibility_major, version.min_compatibility_minor);
    let binary = version.git_version.trim_start_matches('v');
    versions.with_label_values(&[binary, "kube", &emulation, &compatible]).set(1);

    let features =
        gauge("kubernetes_feature_enabled", "Whether a feature gate is on.", &["name", "stage"]);
    for (name, stage, on) in gates.all() {
        features.with_label_values(&[name, stage]).set(i64::from(on));
    }
}
