//! Which kinds `--emulated-version` leaves out: kube-apiserver's `ResourceExpirationEvaluator`.

use std::cmp::Ordering;

use schema::ResourceFacts;

use super::config::is_served;
use crate::options::Options;

pub(super) struct Emulation<'a> {
    options: &'a Options,
    resources: &'a [ResourceFacts],
}

impl<'a> Emulation<'a> {
    pub(super) fn new(options: &'a Options, resources: &'a [ResourceFacts]) -> Self {
        Self { options, resources }
    }

    /// Whether the emulated version has this version of a resource, or a flag lets a newer one be served.
    pub(super) fn serves(&self, facts: &ResourceFacts) -> bool {
        if !self.is_newer(facts) {
            return true;
        }
        let version = self.options.effective_version;
        let (gv, config) = (facts.group_version(), &self.options.runtime_config);
        let enables = |resource| config.enables(&gv.group, &gv.version, resource);
        version.forward_compatible && self.has_older(facts)
            || version.runtime_config_forward_compatible
                && (enables(Some(facts.plural.as_str())) || enables(None))
    }

    /// Fails if `--runtime-config` enables what the emulated version does not have.
    pub(super) fn check(&self) -> Result<(), String> {
        let emulated = self.options.effective_version.emulated;
        let config = &self.options.runtime_config;
        for facts in self.resources.iter().filter(|facts| !self.serves(facts)) {
            let gv = facts.group_version();
            if config.enables(&gv.group, &gv.version, Some(facts.plural.as_str())) {
                return Err(format!(
                    "cannot enable resource {}/{}, Resource={} in runtime-config because it is \
                     introduced at 1.{} after the current version 1.{emulated}. {CONSIDER}",
                    gv.group,
                    gv.version,
                    facts.plural,
                    builtin::introduced_in(&facts.kind),
                ));
            }
            let of_version = |other: &&ResourceFacts| other.group_version() == gv;
            if config.enables(&gv.group, &gv.version, None)
                && !self.resources.iter().filter(of_version).any(|other| self.serves(other))
            {
                return Err(format!(
                    "cannot enable version {gv} in runtime-config because all the resources have \
                     been introduced after the current version 1.{emulated}. {CONSIDER}"
                ));
            }
        }
        Ok(())
    }

    fn is_newer(&self, facts: &ResourceFacts) -> bool {
        builtin::introduced_in(&facts.kind) > self.options.effective_version.emulated
    }

    /// Whether an older version of the resource that is no alpha is served.
    fn has_older(&self, facts: &ResourceFacts) -> bool {
        let gv = facts.group_version();
        self.resources.iter().any(|other| {
            let own = other.group_version();
            own.group == gv.group
                && other.plural == facts.plural
                && !own.version.contains("alpha")
                && meta::compare_versions(&own.version, &gv.version) == Ordering::Less
                && is_served(self.options, other)
                && self.serves(other)
        })
    }
}

const CONSIDER: &str = "Consider setting --runtime-config-emulation-forward-compatible=true";
