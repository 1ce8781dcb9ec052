//! `PodSecurityConfiguration`: the policy of namespaces without labels, and what is exempt.

use std::collections::HashSet;

use meta::{
    FieldErrors, Value,
    field::path,
    names::{name_is_dns_label, name_is_dns_subdomain},
};

use super::policy::{Level, LevelVersion, Policy, Version};
use crate::configuration::PluginConfiguration;
use codec::config_file::FieldType;

pub(crate) struct Configuration {
    pub(crate) defaults: Policy,
    pub(crate) exempt_users: HashSet<String>,
    pub(crate) exempt_namespaces: HashSet<String>,
    pub(crate) exempt_runtime_classes: HashSet<String>,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            defaults: Policy::PRIVILEGED,
            exempt_users: HashSet::new(),
            exempt_namespaces: HashSet::new(),
            exempt_runtime_classes: HashSet::new(),
        }
    }
}

const VERSIONS: [(&str, &str); 3] = [
    ("pod-security.admission.config.k8s.io/v1", "PodSecurityConfiguration"),
    ("pod-security.admission.config.k8s.io/v1beta1", "PodSecurityConfiguration"),
    ("pod-security.admission.config.k8s.io/v1alpha1", "PodSecurityConfiguration"),
];

const TEXTS: FieldType = FieldType::TEXTS;

const FIELDS: FieldType = FieldType::Fields(&[
    ("apiVersion", FieldType::Text),
    ("kind", FieldType::Text),
    (
        "defaults",
        FieldType::Fields(&[
            ("enforce", FieldType::Text),
            ("enforce-version", FieldType::Text),
            ("audit", FieldType::Text),
            ("audit-version", FieldType::Text),
            ("warn", FieldType::Text),
            ("warn-version", FieldType::Text),
        ]),
    ),
    (
        "exemptions",
        FieldType::Fields(&[
            ("usernames", TEXTS),
            ("namespaces", TEXTS),
            ("runtimeClasses", TEXTS),
        ]),
    ),
]);

impl Configuration {
    pub(crate) fn read(configuration: Option<&PluginConfiguration>) -> Result<Self, String> {
        let Some(given) = configuration else { return Ok(Self::default()) };
        let value = given.decode(&VERSIONS, &FIELDS)?;
        let mut errors = FieldErrors::default();
        let mut mode = |name: &str| {
            let mut read = LevelVersion::PRIVILEGED;
            let at = path("defaults");
            let level = value.str_at(&["defaults", name]);
            if !level.is_empty() {
                match Level::parse(level) {
                    Ok(level) => read.level = level,
                    Err(why) => errors.invalid(at.child(name), level, why),
                }
            }
            let name = format!("{name}-version");
            let version = value.str_at(&["defaults", &name]);
            if !version.is_empty() {
                match Version::parse(version) {
                    Ok(version) => read.version = version,
                    Err(why) => errors.invalid(at.child(&name), version, why),
                }
            }
            read
        };
        let (enforce, warn, audit) = (mode("enforce"), mode("warn"), mode("audit"));
        let namespaces = |name: &str| name_is_dns_label(name, false);
        let classes = |name: &str| name_is_dns_subdomain(name, false);
        let users = |name: &str| match name {
            "" => vec!["username must not be empty".to_owned()],
            _ => Vec::new(),
        };
        let read = Self {
            defaults: Policy { enforce, audit, warn },
            exempt_namespaces: exemptions(value, "namespaces", namespaces, &mut errors),
            exempt_runtime_classes: exemptions(value, "runtimeClasses", classes, &mut errors),
            exempt_users: exemptions(value, "usernames", users, &mut errors),
        };
        if errors.is_empty() { Ok(read) } else { Err(given.wrong(&errors.to_string())) }
    }
}

fn exemptions(
    value: &Value,
    field: &str,
    wrong: impl Fn(&str) -> Vec<String>,
    errors: &mut FieldErrors,
) -> HashSet<String> {
    let mut read = HashSet::new();
    for (at, name) in value.items_at(&["exemptions", field]).iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        let at = path("exemptions").child(field).index(at);
        let why = wrong(name);
        if !why.is_empty() {
            errors.invalid(at, name, &why.join(", "));
        } else if !read.insert(name.to_owned()) {
            errors.duplicate(at, name);
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Configurations, harness::yaml};

    #[test]
    fn configurations_are_checked() {
        let head =
            "apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration";
        let level = "must be one of privileged, baseline, restricted";
        let cases = [
            (format!("{{{head}}}"), Ok("privileged:latest privileged:latest privileged:latest")),
            (
                format!("{{{head}, defaults: {{enforce: baseline, enforce-version: v1.30, warn: restricted}}, exemptions: {{usernames: [u], namespaces: [ns], runtimeClasses: [r]}}}}"),
                Ok("baseline:v1.30 privileged:latest restricted:latest"),
            ),
            (
                format!("{{{head}, defaults: {{enforce: strict}}}}"),
                Err(format!("defaults.enforce: Invalid value: \"strict\": {level}")),
            ),
            (
                format!("{{{head}, defaults: {{warn-version: v2}}}}"),
                Err("defaults.warn-version: Invalid value: \"v2\": must be \"latest\" or \"v1.x\"".to_owned()),
            ),
            (
                format!("{{{head}, exemptions: {{usernames: ['', a, a]}}}}"),
                Err("[exemptions.usernames[0]: Invalid value: \"\": username must not be empty, exemptions.usernames[2]: Duplicate value: \"a\"]".to_owned()),
            ),
            (
                format!("{{{head}, default: {{}}}}"),
                Err("strict decoding error: unknown field \"default\"".to_owned()),
            ),
            (
                "{apiVersion: v1, kind: Pod}".to_owned(),
                Err("no kind \"Pod\" is registered for version \"v1\": only PodSecurityConfiguration \
                     of pod-security.admission.config.k8s.io/v1 is"
                    .to_owned()),
            ),
        ];
        for (text, expected) in cases {
            let all = Configurations::for_test("PodSecurity", yaml(&text));
            let read = Configuration::read(all.of("PodSecurity")).map(|read| {
                let Policy { enforce, audit, warn } = read.defaults;
                format!("{enforce} {audit} {warn}")
            });
            let prefix = "couldn't init admission plugin \"PodSecurity\": test.yaml: ";
            let expected = expected.map(str::to_owned).map_err(|why| format!("{prefix}{why}"));
            assert_eq!(read, expected, "{text}");
        }
    }
}
