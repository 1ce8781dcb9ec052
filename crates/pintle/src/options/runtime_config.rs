//! `--runtime-config`: which of the built-in APIs are served.

use std::collections::{BTreeMap, BTreeSet};

use crate::flags::parse_bool;

/// The APIs that the flag enables or disables; others keep their default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RuntimeConfig {
    /// `api/all`, `api/ga`, `api/beta`, `api/alpha`, in the order in which they apply.
    stages: Vec<(Stage, bool)>,
    /// By `group/version`; the core group is `/v1`.
    versions: BTreeMap<String, bool>,
    /// By `group/version/resource`.
    resources: BTreeMap<String, bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    All,
    Stable,
    Beta,
    Alpha,
}

const STAGES: [(&str, Stage); 4] = [
    ("api/all", Stage::All),
    ("api/ga", Stage::Stable),
    ("api/beta", Stage::Beta),
    ("api/alpha", Stage::Alpha),
];

impl RuntimeConfig {
    /// Parses the flag. `known` are the existing group-versions, such as `apps/v1` and `v1`.
    pub(super) fn from_flag(
        flag: &BTreeMap<String, String>,
        known: &[&str],
    ) -> Result<Self, Vec<String>> {
        if flag.len() == 1 && flag.get("api/all").is_some_and(|value| value == "false") {
            return Err(vec!["invalid runtime-config with only api/all=false".to_owned()]);
        }
        let mut config = Self::default();
        let mut errors = Vec::new();
        let mut unknown = BTreeSet::new();
        for (name, stage) in STAGES {
            match flag.get(name).map(String::as_str) {
                None => {}
                Some("true") => config.stages.push((stage, true)),
                Some("false") => config.stages.push((stage, false)),
                Some(value) => errors.push(format!("invalid value {name}={value}")),
            }
        }
        for (key, value) in flag {
            // Compat: api/legacy has no effect, but old command lines have it.
            if key == "api/legacy" || STAGES.iter().any(|(name, _)| name == key) {
                continue;
            }
            if let Err(error) = config.switch(key, value, known, &mut unknown) {
                errors.push(error);
            }
        }
        if !unknown.is_empty() {
            let unknown: Vec<String> = unknown.into_iter().collect();
            errors.push(format!("unknown api groups {}", unknown.join(",")));
        }
        if errors.is_empty() { Ok(config) } else { Err(errors) }
    }

    fn switch(
        &mut self,
        key: &str,
        value: &str,
        known: &[&str],
        unknown: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        // Compat: kube-apiserver takes v1/anything as v1 as well.
        let is_core = ["v1", "api/v1"].iter().any(|core| {
            key.strip_prefix(core).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        let key = if is_core { "/v1" } else { key };
        let parts: Vec<&str> = key.split('/').collect();
        let (group, version, resource) = match parts[..] {
            [group, version] => (group, version, None),
            [group, version, resource] => (group, version, Some(resource)),
            _ => return Err(format!("runtime-config invalid key {key}")),
        };
        let of_group = |known: &&str| known.split_once('/').map_or("", |(group, _)| group) == group;
        if !known.iter().any(of_group) {
            unknown.insert(format!("{group}/{version}"));
            return Ok(());
        }
        let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        if !known.contains(&name.as_str()) {
            return Err(format!("group version {name} that has not been registered"));
        }
        let on = match value {
            "" => true,
            value => parse_bool(value)
                .map_err(|error| format!("invalid value of {key}: {value}, err: {error}"))?,
        };
        match resource {
            None => self.versions.insert(format!("{group}/{version}"), on),
            Some(resource) if resource.chars().any(char::is_uppercase) => {
                return Err(format!(
                    "invalid key {key}: group/version/resource and resource is always lowercase \
                     plural, not \"{resource}\""
                ));
            }
            Some(resource) => self.resources.insert(format!("{group}/{version}/{resource}"), on),
        };
        Ok(())
    }

    /// Whether a resource is served; `default` applies unless the flag names it. The core group is
    /// `""`.
    pub(crate) fn serves(&self, group: &str, version: &str, resource: &str, default: bool) -> bool {
        let by_resource = || self.resources.get(&format!("{group}/{version}/{resource}")).copied();
        let by_version = || self.versions.get(&format!("{group}/{version}")).copied();
        let by_stage = || {
            let of_version = Stage::of(version);
            let last = self.stages.iter().rev();
            last.copied()
                .find(|(stage, _)| *stage == Stage::All || Some(*stage) == of_version)
                .map(|(_, on)| on)
        };
        by_resource().or_else(by_version).or_else(by_stage).unwrap_or(default)
    }

    /// Whether a key of the flag enables exactly this resource, or its group-version.
    pub(crate) fn enables(&self, group: &str, version: &str, resource: Option<&str>) -> bool {
        let set = match resource {
            Some(resource) => self.resources.get(&format!("{group}/{version}/{resource}")),
            None => self.versions.get(&format!("{group}/{version}")),
        };
        set == Some(&true)
    }

    /// The explicit setting of a group-version, by its key in the flag.
    pub(super) fn explicit_setting(&self, key: &str) -> Option<bool> {
        let stage = STAGES.iter().find(|(name, _)| *name == key).map(|(_, stage)| *stage);
        match stage {
            Some(stage) => self.stages.iter().find(|(s, _)| *s == stage).map(|(_, on)| *on),
            None => self.versions.get(key).copied(),
        }
    }
}

impl Stage {
    /// `v1` is stable, `v1beta2` beta, `v1alpha1` alpha; anything else has no stage.
    fn of(version: &str) -> Option<Self> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let rest = version.strip_prefix('v')?;
        if digits(rest) {
            return Some(Self::Stable);
        }
        let staged = |word| rest.split_once(word).is_some_and(|(n, m)| digits(n) && digits(m));
        if staged("beta") {
            Some(Self::Beta)
        } else if staged("alpha") {
            Some(Self::Alpha)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["v1", "apps/v1", "resource.k8s.io/v1beta2", "storage.k8s.io/v1alpha1"];

    fn read(flag: &str) -> Result<RuntimeConfig, Vec<String>> {
        let pairs = flag.split(',').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key.to_owned(), value.to_owned())
        };
        RuntimeConfig::from_flag(&pairs.map(pair).collect(), KNOWN)
    }

    #[test]
    fn keys_that_do_not_exist_are_errors() {
        let cases: [(&str, &[&str]); 9] = [
            ("api/all=false", &["invalid runtime-config with only api/all=false"]),
            ("foo=true", &["runtime-config invalid key foo"]),
            ("a/b/c/d=true", &["runtime-config invalid key a/b/c/d"]),
            ("foo/v1=true,bar/v1,apps/v1=true", &["unknown api groups bar/v1,foo/v1"]),
            ("apps/v9=true", &["group version apps/v9 that has not been registered"]),
            ("api/beta=yes", &["invalid value api/beta=yes"]),
            (
                "apps/v1=yes",
                &[
                    "invalid value of apps/v1: yes, err: strconv.ParseBool: parsing \"yes\": invalid syntax",
                ],
            ),
            (
                "apps/v1/Deployments=true",
                &[
                    "invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not \"Deployments\"",
                ],
            ),
            ("api/legacy=false,v1,api/v1/pods=true", &[]),
        ];
        for (flag, expected) in cases {
            assert_eq!(read(flag).err().unwrap_or_default(), expected, "{flag}");
        }
    }

    #[test]
    fn the_more_exact_key_wins() {
        let beta = ("resource.k8s.io", "v1beta2", "resourceslices");
        let cases = [
            ("", ("apps", "v1", "deployments"), true, true),
            ("api/all=false,apps/v1=true", ("apps", "v1", "deployments"), true, true),
            ("api/all=false,apps/v1=true", ("", "v1", "pods"), true, false),
            ("api/all=false,v1", ("", "v1", "pods"), true, true),
            ("api/beta=true", beta, false, true),
            ("api/beta=true", ("storage.k8s.io", "v1alpha1", "x"), false, false),
            ("api/alpha=true", ("storage.k8s.io", "v1alpha1", "x"), false, true),
            ("api/ga=false,api/all=true", ("apps", "v1", "deployments"), true, false),
            ("resource.k8s.io/v1beta2/resourceslices=true", beta, false, true),
            ("api/beta=true,resource.k8s.io/v1beta2=false", beta, false, false),
            ("apps/v1=true,apps/v1/deployments=false", ("apps", "v1", "deployments"), true, false),
        ];
        for (flag, (group, version, resource), default, expected) in cases {
            let config = read(flag).unwrap();
            assert_eq!(config.serves(group, version, resource, default), expected, "{flag}");
        }
    }
}
