//! Bootstrap tokens: `id.secret`, kept in a Secret of kube-system. A node that joins the cluster uses
//! one to ask for its certificate.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use meta::{Str, User, Value, time::Time};
use sha2::{Digest as _, Sha256};

use super::service_account::{Bound, Objects};

pub struct BootstrapTokens {
    objects: Arc<dyn Objects>,
}

const NAMESPACE: &str = "kube-system";
const SECRET_PREFIX: &str = "bootstrap-token-";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const USER_PREFIX: &str = "system:bootstrap:";
const DEFAULT_GROUP: &str = "system:bootstrappers";
const GROUP_PREFIX: &str = "system:bootstrappers:";

impl BootstrapTokens {
    pub fn new(objects: Arc<dyn Objects>) -> Self {
        Self { objects }
    }

    /// The user of a token; None: it is not a bootstrap token, or not a valid one.
    pub async fn user(&self, token: &str) -> Option<User> {
        let (id, secret) = parse(token)?;
        let name = format!("{SECRET_PREFIX}{id}");
        let found = self.objects.find(Bound::Secret, NAMESPACE, &name, false).await?;
        match user(&found, id, secret, Time::now()) {
            Ok(user) => Some(user),
            Err(why) => {
                tracing::trace!(
                    v = 3,
                    "Bootstrap secret {NAMESPACE}/{name} matching bearer token {why}"
                );
                None
            }
        }
    }
}

/// Id and secret of a token in the right form.
fn parse(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let is_part = |part: &str, length| {
        part.len() == length
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    (is_part(id, 6) && is_part(secret, 16)).then_some((id, secret))
}

fn user(object: &Value, id: &str, secret: &str, now: Time) -> Result<User, String> {
    if object.at(&["metadata", "deletionTimestamp"]).is_some() {
        return Err("is deleted and awaiting removal".to_owned());
    }
    if object.str_at(&["type"]) != SECRET_TYPE {
        return Err(format!("has invalid type, expected {SECRET_TYPE}"));
    }
    let data = |key: &str| -> String {
        let bytes = BASE64.decode(object.str_at(&["data", key])).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default()
    };
    // By their hashes: takes the same time however much of it is right.
    if Sha256::digest(data("token-secret")) != Sha256::digest(secret) {
        return Err("has invalid value for key token-secret".to_owned());
    }
    if data("token-id") != id {
        return Err("has invalid value for key token-id".to_owned());
    }
    let expiration = data("expiration");
    // A time that cannot be read has passed.
    if !expiration.is_empty() && !Time::parse(&expiration).is_ok_and(|end| end > now) {
        return Err("has expired".to_owned());
    }
    if data("usage-bootstrap-authentication") != "true" {
        return Err("not marked usage-bootstrap-authentication=true".to_owned());
    }
    let mut groups = vec![Str::new_static(DEFAULT_GROUP)];
    let extra = data("auth-extra-groups");
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        if !is_group(group) {
            return Err("has invalid value for key auth-extra-groups".to_owned());
        }
        groups.push(Str::new(group));
    }
    groups.sort();
    groups.dedup();
    let name = Str::from(format!("{USER_PREFIX}{id}"));
    Ok(User { name, groups, ..User::default() })
}

/// Compat: `\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z`. A token cannot make its user a
/// member of any other group.
fn is_group(group: &str) -> bool {
    let Some(name) = group.strip_prefix(GROUP_PREFIX) else { return false };
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=256).contains(&name.len())
        && name.bytes().all(|byte| alphanumeric(byte) || byte == b':' || byte == b'-')
        && name.bytes().last().is_some_and(alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(data: &[(&str, &str)]) -> Value {
        let mut secret = Value::object();
        secret.set_at(&["type"], SECRET_TYPE);
        let good = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        for (key, text) in good.iter().chain(data) {
            secret.set_at(&["data", key], BASE64.encode(text));
        }
        secret
    }

    fn check(secret: &Value, token: &str) -> Result<Vec<String>, String> {
        let (id, part) = parse(token).ok_or("form")?;
        let now = Time::parse("2026-01-01T00:00:00Z").unwrap();
        let user = user(secret, id, part, now)?;
        Ok([user.name].iter().chain(&user.groups).map(ToString::to_string).collect())
    }

    const TOKEN: &str = "abcdef.0123456789abcdef";

    /// Fields of a secret that differ from those of a good one.
    type Fields<'a> = &'a [(&'a str, &'a str)];

    #[test]
    fn a_token_is_a_bootstrapper_with_the_groups_of_its_secret() {
        let cases: [(Fields<'_>, &[&str]); 3] = [
            (&[], &["system:bootstrap:abcdef", "system:bootstrappers"]),
            (
                &[
                    ("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a-1:x"),
                    ("expiration", "2026-01-01T00:00:01Z"),
                ],
                &[
                    "system:bootstrap:abcdef",
                    "system:bootstrappers",
                    "system:bootstrappers:a-1:x",
                    "system:bootstrappers:b",
                ],
            ),
            (&[("auth-extra-groups", "")], &["system:bootstrap:abcdef", "system:bootstrappers"]),
        ];
        for (data, expected) in cases {
            assert_eq!(check(&secret(data), TOKEN).unwrap(), expected, "{data:?}");
        }
    }

    #[test]
    fn what_makes_a_token_invalid() {
        let cases: [(Fields<'_>, &str, &str); 11] = [
            (&[], "abcdef.0123456789abcdeF", "form"),
            (&[], "abcdef.0123456789abcde", "form"),
            (&[], "abcde.0123456789abcdef", "form"),
            (&[], "abcdef.0123456789abcdee", "has invalid value for key token-secret"),
            (&[("token-secret", "")], TOKEN, "has invalid value for key token-secret"),
            (&[("token-id", "abcdeg")], TOKEN, "has invalid value for key token-id"),
            (&[("expiration", "2026-01-01T00:00:00Z")], TOKEN, "has expired"),
            (&[("expiration", "tomorrow")], TOKEN, "has expired"),
            (
                &[("usage-bootstrap-authentication", "True")],
                TOKEN,
                "not marked usage-bootstrap-authentication=true",
            ),
            (
                &[("auth-extra-groups", "system:masters")],
                TOKEN,
                "has invalid value for key auth-extra-groups",
            ),
            (
                &[("auth-extra-groups", "system:bootstrappers:a,")],
                TOKEN,
                "has invalid value for key auth-extra-groups",
            ),
        ];
        for (data, token, expected) in cases {
            assert_eq!(check(&secret(data), token).unwrap_err(), expected, "{data:?} {token}");
        }
        let mut other = secret(&[]);
        other.set_at(&["type"], "Opaque");
        assert!(check(&other, TOKEN).unwrap_err().starts_with("has invalid type"));
        let mut deleted = secret(&[]);
        deleted.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
        assert_eq!(check(&deleted, TOKEN).unwrap_err(), "is deleted and awaiting removal");
    }
}
