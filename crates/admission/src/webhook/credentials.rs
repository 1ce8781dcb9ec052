//! What a call says about who makes it: the `kubeConfigFile` of a WebhookAdmissionConfiguration, whose
//! users are named after the hosts that they are for.

use std::path::Path;

use client::{KubeconfigError, KubeconfigUser, KubeconfigUsers};
use meta::{Map, Str, Value, field::quote};

use super::call::host_port;

pub(super) type AuthInfo = KubeconfigUser;

/// The users of the file, by name.
#[derive(Debug, Default)]
pub struct AuthInfos {
    users: Vec<(Str, AuthInfo)>,
    current: Option<Str>,
}

/// Why the file cannot be used.
pub type AuthInfosError = KubeconfigError;

impl AuthInfos {
    pub fn load(path: &Path) -> Result<Self, AuthInfosError> {
        Ok(Self::of(KubeconfigUsers::load(path)?))
    }

    /// Of a `WebhookAdmissionConfiguration`, the configuration of a webhook plugin.
    pub fn of_configuration(configuration: &Value) -> Result<Self, String> {
        let version = (configuration.str_at(&["apiVersion"]), configuration.str_at(&["kind"]));
        if !matches!(
            version,
            (
                "apiserver.config.k8s.io/v1" | "apiserver.config.k8s.io/v1alpha1",
                "WebhookAdmissionConfiguration"
            ) | ("apiserver.config.k8s.io/v1alpha1", "WebhookAdmission")
        ) {
            let (version, kind) = (quote(version.0), quote(version.1));
            return Err(format!("no kind {kind} is registered for version {version}"));
        }
        let mut fields = configuration.as_object().into_iter().flat_map(Map::keys);
        let is_known = |field: &&Str| match field.as_str() {
            "apiVersion" | "kind" | "kubeConfigFile" => true,
            // Read by `static_manifests`.
            "staticManifestsDir" => version.0 == "apiserver.config.k8s.io/v1",
            _ => false,
        };
        if let Some(field) = fields.find(|field| !is_known(field)) {
            return Err(format!("strict decoding error: unknown field {}", quote(field)));
        }
        let file = Path::new(configuration.str_at(&["kubeConfigFile"]));
        if file.as_os_str().is_empty() {
            return Ok(Self::default());
        }
        if !file.is_absolute() {
            let file = quote(&file.display().to_string());
            return Err(format!(
                "kubeConfigFile: Invalid value: {file}: must be an absolute file path"
            ));
        }
        Self::load(file).map_err(|error| error.to_string())
    }

    fn of(file: KubeconfigUsers) -> Self {
        let users = file.users.into_iter().map(|(name, user)| (Str::from(name), user));
        Self { users: users.collect(), current: file.current.map(Str::from) }
    }

    /// Whom a call to a host is made as; None: anonymously. Compat: the name of the host, with and
    /// without the port 443, each with its leading labels replaced by `*`; then `*`; then the user of
    /// the current context.
    pub(super) fn find(&self, authority: &str) -> Option<(&Str, &AuthInfo)> {
        if self.users.is_empty() {
            return None;
        }
        let host = host_port(authority);
        let mut wanted = names(&format!("{}:{}", host.host, host.port));
        if host.port == 443 {
            wanted.extend(names(&host.host));
        }
        wanted.push("*".to_owned());
        wanted.extend(self.current.iter().map(ToString::to_string));
        wanted.iter().find_map(|name| self.named(name))
    }

    fn named(&self, wanted: &str) -> Option<(&Str, &AuthInfo)> {
        self.users.iter().find(|(name, _)| name == wanted).map(|(name, user)| (name, user))
    }
}

/// `a.b.c`, `*.b.c`, `*.c`.
fn names(host: &str) -> Vec<String> {
    let tails = host.match_indices('.').map(|(at, _)| format!("*{}", &host[at..]));
    std::iter::once(host.to_owned()).chain(tails).collect()
}

#[cfg(test)]
mod tests {
    use client::{Credentials, Secret};

    use super::*;

    /// Users, the current one, an authority, and the user that is found for it.
    type Case<'a> = (&'a [&'a str], Option<&'a str>, &'a str, Option<&'a str>);

    #[test]
    fn a_configuration_is_read_strictly() {
        let of = |fields: Value| {
            let mut configuration = fields;
            configuration.set_at(&["apiVersion"], "apiserver.config.k8s.io/v1");
            configuration.set_at(&["kind"], "WebhookAdmissionConfiguration");
            AuthInfos::of_configuration(&configuration).map(|infos| infos.users.len())
        };
        let cases = [
            (meta::value!({}), Ok(0)),
            (meta::value!({"staticManifestsDir": "/d"}), Ok(0)),
            (meta::value!({"other": "x"}), Err("unknown field \"other\"")),
            (meta::value!({"kubeConfigFile": "relative"}), Err("must be an absolute file path")),
            (meta::value!({"kubeConfigFile": "/no/such/file"}), Err("No such file")),
        ];
        for (fields, expected) in cases {
            match (of(fields), expected) {
                (Ok(users), Ok(expected)) => assert_eq!(users, expected),
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (found, expected) => panic!("{found:?} instead of {expected:?}"),
            }
        }
        let old = meta::value!({
            "apiVersion": "apiserver.config.k8s.io/v1alpha1", "kind": "WebhookAdmission",
            "staticManifestsDir": "/d",
        });
        assert!(AuthInfos::of_configuration(&old).is_err(), "v1 has the field only");
        let other = meta::value!({"apiVersion": "v1", "kind": "Pod"});
        assert!(AuthInfos::of_configuration(&other).is_err());
    }

    #[test]
    fn a_host_has_the_credentials_of_the_closest_name() {
        let user = |name: &str| {
            let token = Secret::new(name.to_owned());
            let user = KubeconfigUser { identity: None, credentials: Credentials::Bearer(token) };
            (name.to_owned(), user)
        };
        let infos = |names: &[&str], current: Option<&str>| {
            let users = names.iter().map(|name| user(name)).collect();
            AuthInfos::of(KubeconfigUsers { users, current: current.map(str::to_owned) })
        };
        let all = ["a.n.svc:443", "a.n.svc", "*.n.svc:8443", "*.svc", "*", "other"];
        let cases: [Case<'_>; 9] = [
            (&all, None, "a.n.svc:443", Some("a.n.svc:443")),
            (&all, None, "a.n.svc", Some("a.n.svc:443")),
            (&all[1..], None, "a.n.svc:443", Some("a.n.svc")),
            (&all, None, "b.n.svc:8443", Some("*.n.svc:8443")),
            (&all, None, "b.n.svc:443", Some("*.svc")),
            (&all, None, "b.n.svc:9", Some("*")),
            (&["other"], None, "b:443", None),
            (&["other"], Some("other"), "b:443", Some("other")),
            (&[], Some("other"), "b:443", None),
        ];
        for (users, current, host, expected) in cases {
            let infos = infos(users, current);
            let found = infos.find(host).map(|(name, _)| name.as_str());
            assert_eq!(found, expected, "{host} among {users:?}");
        }
    }
}
