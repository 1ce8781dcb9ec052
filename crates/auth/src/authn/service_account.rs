//! Tokens of service accounts: bound ones, which run out and end with what they are bound to, and
//! legacy ones, which live in a Secret for as long as it is there.

mod legacy;
#[cfg(test)]
mod tests;
mod verified;

use std::sync::Arc;

use meta::{BoxFuture, Str, User, Value, time::Time};

pub use self::legacy::legacy_claims;
use self::verified::Verified;
use super::{
    TokenNotes,
    jwt::{PublicKey, Unverified},
};
use crate::metrics::Metrics;

/// Who is behind a token, and which of the audiences asked for it is meant for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUser {
    pub user: User,
    pub audiences: Vec<Str>,
}

/// What tokens may be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    ServiceAccount,
    Pod,
    Secret,
    Node,
}

/// The objects that tokens speak of.
pub trait Objects: Send + Sync + 'static {
    /// An object as far as it is needed: its metadata, of secrets all. `fresh`: as of
    /// now, not of a moment ago.
    fn find<'a>(
        &'a self,
        kind: Bound,
        namespace: &'a str,
        name: &'a str,
        fresh: bool,
    ) -> BoxFuture<'a, Option<Value>>;

    /// Whether the account lists the secret among its own, which says that it was made for it by a
    /// controller.
    fn account_names_secret<'a>(
        &'a self,
        namespace: &'a str,
        account: &'a str,
        secret: &'a str,
    ) -> BoxFuture<'a, bool>;

    /// A legacy token was used today.
    fn note_use(&self, secret: &Value);
}

/// The keys that verify tokens.
pub trait PublicKeys: Send + Sync + 'static {
    /// Those that have signed a token with this key id; without one, all.
    fn of_id<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Vec<PublicKey>>;

    /// Another number after the keys have changed.
    fn generation(&self) -> u64;
}

impl PublicKeys for Vec<PublicKey> {
    fn of_id<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Vec<PublicKey>> {
        let fitting = self.iter().filter(|key| id.is_empty() || key.id() == id).cloned();
        Box::pin(std::future::ready(fitting.collect()))
    }

    fn generation(&self) -> u64 {
        0
    }
}

pub struct Options {
    /// The first signs, all are accepted.
    pub issuers: Vec<Str>,
    pub keys: Arc<dyn PublicKeys>,
    /// Who this server is, for tokens.
    pub audiences: Vec<Str>,
    /// Whether legacy tokens end with their Secret and account. Bound ones always do.
    pub lookup: bool,
    pub metrics: Metrics,
}

/// The authenticator.
pub struct ServiceAccounts {
    options: Options,
    objects: Arc<dyn Objects>,
    verified: Verified,
}

const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// Clocks differ.
const LEEWAY_SECONDS: i64 = 60;

impl ServiceAccounts {
    pub fn new(options: Options, objects: Arc<dyn Objects>) -> Self {
        Self { options, objects, verified: Verified::default() }
    }

    /// Who is behind a token. None: it is none of a service account. Err: it is one, and not good.
    pub async fn user(
        &self,
        token: &str,
        audiences: &[Str],
        notes: &mut TokenNotes,
    ) -> Result<Option<TokenUser>, String> {
        // Read before the keys: a token that an old key has verified is not remembered under new keys.
        let generation = self.options.keys.generation();
        let claims = match self.verified.get(token, generation) {
            Some(claims) => claims,
            None => match self.claims(token).await {
                None => return Ok(None),
                Some(claims) => self.verified.put(token, claims?, generation),
            },
        };
        let counters = &self.options.metrics.service_accounts;
        if claims.get("aud").is_none() {
            counters.legacy.inc();
            let subject = claims.str_at(&["sub"]).to_owned();
            notes.annotations.push(("authentication.k8s.io/legacy-token", subject));
        }
        let audiences = self.intended(&claims, audiences)?;
        let user = if claims.str_at(&["iss"]) == LEGACY_ISSUER {
            self.legacy_user(token, &claims, notes).await?
        } else {
            self.bound_user(&claims, notes).await?
        };
        Ok(Some(TokenUser { user, audiences }))
    }

    /// The claims of a token that one of the issuers has made; None: it says that it is of another.
    async fn claims(&self, token: &str) -> Option<Result<Value, String>> {
        let token = Unverified::parse(token)?;
        let issuer = token.issuer();
        let known =
            issuer == LEGACY_ISSUER || self.options.issuers.iter().any(|known| known == issuer);
        if !known {
            return None;
        }
        let keys = self.options.keys.of_id(token.key_id()).await;
        Some(token.verify(&keys))
    }

    /// Those of the audiences that a token is meant for. Legacy tokens name none: they are for this
    /// server.
    fn intended(&self, claims: &Value, wanted: &[Str]) -> Result<Vec<Str>, String> {
        let named = match claims.get("aud") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(several)) => {
                several.iter().filter_map(Value::as_str).map(Str::new).collect()
            }
            _ => Vec::new(),
        };
        let named = if named.is_empty() { self.options.audiences.clone() } else { named };
        let both: Vec<Str> = named.iter().filter(|name| wanted.contains(name)).cloned().collect();
        if both.is_empty() && !self.options.audiences.is_empty() {
            let quoted = crate::authz::rbac::quoted;
            return Err(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(&named),
                quoted(wanted)
            ));
        }
        Ok(both)
    }

    async fn bound_user(&self, claims: &Value, notes: &mut TokenNotes) -> Result<User, String> {
        let now = Time::now();
        check_times(claims, now)?;
        // What the cache has not seen yet is looked for once more.
        match self.check_objects(claims, now, false).await {
            Ok(()) => {}
            Err(_) => self.check_objects(claims, now, true).await?,
        }
        self.note_age(claims, now, notes);
        Ok(bound_user(claims))
    }

    /// A token of a pod lives on after it should have been renewed, so that old clients go on working; its
    /// use is noted.
    fn note_age(&self, claims: &Value, now: Time, notes: &mut TokenNotes) {
        let warn_after = claims.at(&["kubernetes.io", "warnafter"]).and_then(Value::as_i64);
        let Some(warn_after) = warn_after.filter(|at| *at != 0) else { return };
        let counters = &self.options.metrics.service_accounts;
        let late = now.unix_seconds() - warn_after;
        if late <= 0 {
            counters.valid.inc();
            return;
        }
        counters.stale.inc();
        let subject = claims.str_at(&["sub"]);
        let text = format!("subject: {subject}, seconds after warning threshold: {late}");
        notes.annotations.push(("authentication.k8s.io/stale-token", text));
    }

    /// Whether everything that a token is bound to is still there, and still the same.
    async fn check_objects(&self, claims: &Value, now: Time, fresh: bool) -> Result<(), String> {
        let kubernetes = claims.get("kubernetes.io").unwrap_or(&Value::Null);
        let namespace = kubernetes.str_at(&["namespace"]);
        let named = |part: &str| {
            let text = |field| kubernetes.str_at(&[part, field]);
            kubernetes.get(part).map(|_| (text("name"), text("uid")))
        };
        let (name, uid) = named("serviceaccount").unwrap_or_default();
        let account = self.objects.find(Bound::ServiceAccount, namespace, name, fresh).await;
        let Some(account) = account else {
            return Err(format!("serviceaccounts {} not found", meta::field::quote(name)));
        };
        let actual = account.str_at(&["metadata", "uid"]);
        if actual != uid {
            return Err(format!("service account UID ({actual}) does not match claim ({uid})"));
        }
        if is_deleted(&account, now) {
            return Err(format!("service account {namespace}/{name} has been deleted"));
        }
        let invalidated = || Err("service account token has been invalidated".to_owned());
        let mut others = vec![("secret", Bound::Secret, namespace), ("pod", Bound::Pod, namespace)];
        // The node of a token that is bound to a pod only says where the pod is.
        if named("pod").is_none() {
            others.push(("node", Bound::Node, ""));
        }
        for (part, kind, namespace) in others {
            let Some((name, uid)) = named(part) else { continue };
            let Some(found) = self.objects.find(kind, namespace, name, fresh).await else {
                return invalidated();
            };
            let actual = found.str_at(&["metadata", "uid"]);
            if actual != uid {
                return Err(format!(
                    "{part} UID ({actual}) does not match service account {part} ref claim ({uid})"
                ));
            }
            if is_deleted(&found, now) {
                return invalidated();
            }
        }
        Ok(())
    }
}

fn seconds(claims: &Value, name: &str) -> Option<i64> {
    claims.get(name)?.as_i64()
}

fn check_times(claims: &Value, now: Time) -> Result<(), String> {
    let now = now.unix_seconds();
    if seconds(claims, "nbf").is_some_and(|from| now + LEEWAY_SECONDS < from) {
        return Err("service account token is not valid yet".to_owned());
    }
    // A token that never ends was not made by this server.
    if seconds(claims, "exp").is_none_or(|end| now - LEEWAY_SECONDS > end) {
        return Err("service account token has expired".to_owned());
    }
    if seconds(claims, "iat").is_some_and(|made| now + LEEWAY_SECONDS < made) {
        return Err("service account token is issued in the future".to_owned());
    }
    Ok(())
}

/// On its way out for longer than clocks differ.
fn is_deleted(object: &Value, now: Time) -> bool {
    let deleted = Time::parse(object.str_at(&["metadata", "deletionTimestamp"]));
    deleted.is_ok_and(|at| at.unix_seconds() < now.unix_seconds() - LEEWAY_SECONDS)
}

/// The user that claims speak of; they are verified.
fn bound_user(claims: &Value) -> User {
    let text = |path: &[&str]| {
        let text = claims.at(&["kubernetes.io"]).map(|part| part.str_at(path));
        Str::new(text.unwrap_or_default())
    };
    let mut user = account_user(
        &text(&["namespace"]),
        &text(&["serviceaccount", "name"]),
        &text(&["serviceaccount", "uid"]),
    );
    let id = claims.str_at(&["jti"]);
    let credential = if id.is_empty() { String::new() } else { format!("JTI={id}") };
    let (pod, pod_uid) = (text(&["pod", "name"]), text(&["pod", "uid"]));
    let (node, node_uid) = (text(&["node", "name"]), text(&["node", "uid"]));
    // Sorted by key.
    let extra = [
        ("credential-id", Str::from(credential)),
        ("node-name", node.clone()),
        ("node-uid", if node.is_empty() { Str::default() } else { node_uid }),
        ("pod-name", if pod_uid.is_empty() { Str::default() } else { pod.clone() }),
        ("pod-uid", if pod.is_empty() { Str::default() } else { pod_uid }),
    ];
    user.extra = extra
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (format!("authentication.kubernetes.io/{key}").into(), vec![value]))
        .collect();
    user
}

/// A service account as a user.
fn account_user(namespace: &str, name: &str, uid: &str) -> User {
    User { uid: Str::new(uid), ..User::service_account(namespace, name) }
}
