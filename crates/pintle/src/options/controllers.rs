//! `--standalone-controllers`: the controllers of kube-controller-manager that the server runs itself.

use crate::flags::{Parsed, quote};

/// The implemented controllers, under kube-controller-manager's names.
pub(crate) const CONTROLLERS: [&str; 14] = [
    "certificatesigningrequest-cleaner-controller",
    "clusterrole-aggregation-controller",
    GARBAGE_COLLECTOR,
    "legacy-serviceaccount-token-cleaner-controller",
    "namespace-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "service-cidr-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
];

const GARBAGE_COLLECTOR: &str = "garbage-collector-controller";

/// The enabled controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StandaloneControllers(Vec<&'static str>);

impl StandaloneControllers {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains(&name)
    }

    /// Parses `*`, `name`, `-name` as `--controllers` of kube-controller-manager does. The default is
    /// all controllers with the embedded store, and none with etcd, where a kube-controller-manager runs.
    pub(super) fn from_flags(parsed: &Parsed, over_etcd: bool, errors: &mut Vec<String>) -> Self {
        const FLAG: &str = "standalone-controllers";
        if over_etcd && !parsed.is_given(FLAG) {
            return Self::default();
        }
        let named = parsed.texts(FLAG);
        for name in named.iter().filter(|name| *name != "*") {
            let bare = name.strip_prefix('-').unwrap_or(name);
            if !CONTROLLERS.contains(&bare) {
                errors.push(format!(
                    "--{FLAG}: {} is not in the list of known controllers: {}",
                    quote(bare),
                    CONTROLLERS.join(", ")
                ));
            }
        }
        let is = |wanted: &str| named.iter().any(|name| name == wanted);
        let collects_garbage = parsed.bool("enable-garbage-collector");
        if is(GARBAGE_COLLECTOR) && !collects_garbage {
            errors.push(format!("--{FLAG}: {GARBAGE_COLLECTOR} needs --enable-garbage-collector"));
        }
        let on = |name: &&str| {
            !is(&format!("-{name}"))
                && (is("*") || is(name))
                && (*name != GARBAGE_COLLECTOR || collects_garbage)
        };
        Self(CONTROLLERS.into_iter().filter(on).collect())
    }
}
