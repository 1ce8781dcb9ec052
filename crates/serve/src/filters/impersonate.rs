//! Impersonation: `kubectl --as`. Every part of the other identity must be allowed to the
//! sender on its own, with the verb `impersonate`; or, more narrowly, with `impersonate:MODE` together
//! with `impersonate-on:MODE:VERB` for what is done as the other (`constrained.rs`).

mod constrained;

use std::time::Instant;

use auth::{Attributes, Authorizer};
use http::{HeaderMap, HeaderName};
use meta::{ApiError, Str, User, field::quote};
use percent_encoding::percent_decode_str;

use crate::{context::Context, metrics::ImpersonationMetrics};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// From here on `cx.user` is the user that the request acts as; `cx.authenticated_user` stays who sent
/// it. The headers are taken out: they are meant for this server only.
pub(crate) async fn impersonate(
    authorizer: &dyn Authorizer,
    cx: &mut Context,
    headers: &mut HeaderMap,
    constrained: Option<&ImpersonationMetrics>,
) -> Result<(), ApiError> {
    if !headers.keys().any(is_impersonation) {
        return Ok(());
    }
    // An identity that can't be read must not pass as if there were none.
    if headers.iter().any(|(name, value)| is_impersonation(name) && value.to_str().is_err()) {
        return Err(ApiError::bad_request("impersonation headers must be text"));
    }
    let requested = RequestedIdentity::read(headers);
    let checks = Checks { authorizer, metrics: constrained };
    let other = match constrained {
        None => requested.user(&checks, &cx.user).await?.map(|user| (user, Str::default())),
        Some(metrics) => {
            // Compat: what names no user is no attempt.
            let (named, began) = (!requested.name.is_empty(), Instant::now());
            let other = requested.constrained(&checks, &cx.user, &cx.info).await;
            if named {
                let constraint = other.as_ref().ok().and_then(Option::as_ref);
                metrics.attempted(constraint.map(|(_, verb)| verb.as_str()), began.elapsed());
            }
            other?
        }
    };
    if let Some((other, constraint)) = other {
        cx.audit.impersonated(&other, &constraint);
        tracing::debug!(user = %cx.user.name, acts_as = %other.name, "impersonation");
        cx.authenticated_user = Some(std::mem::replace(&mut cx.user, other));
    }
    let names = headers.keys().filter(|name| is_impersonation(name)).cloned();
    for name in names.collect::<Vec<_>>() {
        headers.remove(name);
    }
    Ok(())
}

fn is_impersonation(name: &HeaderName) -> bool {
    let name = name.as_str();
    matches!(name, USER | GROUP | UID) || name.starts_with(EXTRA)
}

/// The identity that the `Impersonate-*` headers ask for.
#[derive(Debug, Default)]
struct RequestedIdentity {
    name: Str,
    uid: Str,
    groups: Vec<Str>,
    extra: Vec<(Str, Vec<Str>)>,
}

impl RequestedIdentity {
    fn read(headers: &HeaderMap) -> Self {
        let texts = |name: &str| -> Vec<Str> {
            let values = headers.get_all(name).iter();
            values.filter_map(|value| value.to_str().ok()).map(Str::new).collect()
        };
        let first = |name| texts(name).into_iter().next().unwrap_or_default();
        let mut extra: Vec<(Str, Vec<Str>)> = headers
            .keys()
            .filter_map(|name| {
                let key = name.as_str().strip_prefix(EXTRA)?;
                // Malformed keys count as they are.
                let decoded = percent_decode_str(key).decode_utf8();
                let decoded = decoded.map_or_else(|_| Str::new(key), Str::new);
                Some((decoded, texts(name.as_str())))
            })
            .collect();
        extra.sort();
        Self { name: first(USER), uid: first(UID), groups: texts(GROUP), extra }
    }

    /// The user to act as; None: the request impersonates no user.
    async fn user(self, checks: &Checks<'_>, sender: &User) -> Result<Option<User>, ApiError> {
        if self.name.is_empty() {
            if self.groups.is_empty() && self.extra.is_empty() && self.uid.is_empty() {
                return Ok(None);
            }
            return Err(ApiError::BadRequest(format!(
                "requested {} without impersonating a user name",
                self.show()
            )));
        }
        self.check(checks, sender).await?;
        Ok(Some(self.with_groups()))
    }

    /// The user, with the groups that follow from the name.
    fn with_groups(self) -> User {
        let mut groups = self.groups;
        if groups.is_empty()
            && let Some((namespace, _)) = service_account(&self.name)
        {
            groups.push(Str::new_static("system:serviceaccounts"));
            groups.push(format!("system:serviceaccounts:{namespace}").into());
        }
        let has = |groups: &[Str], group: &str| groups.iter().any(|name| name == group);
        if self.name == User::ANONYMOUS {
            if !has(&groups, User::UNAUTHENTICATED) {
                groups.push(Str::new_static(User::UNAUTHENTICATED));
            }
        } else if !has(&groups, User::AUTHENTICATED) && !has(&groups, User::UNAUTHENTICATED) {
            groups.push(Str::new_static(User::AUTHENTICATED));
        }
        User { name: self.name, uid: self.uid, groups, extra: self.extra }
    }

    async fn check(&self, checks: &Checks<'_>, sender: &User) -> Result<(), ApiError> {
        let part = |resource: &'static str, name| {
            let own = matches!(resource, "userextras" | "uids");
            let (group, version) = if own { ("authentication.k8s.io", "v1") } else { ("", "") };
            Attributes {
                version,
                name,
                ..Attributes::of_resource(sender, "impersonate", group, resource)
            }
        };
        match service_account(&self.name) {
            Some((namespace, name)) => {
                let account = Attributes { namespace, ..part("serviceaccounts", name) };
                checks.ask(&account).await?;
            }
            None => checks.ask(&part("users", &self.name)).await?,
        }
        for group in &self.groups {
            checks.ask(&part("groups", group)).await?;
        }
        for (key, values) in &self.extra {
            for value in values {
                let extra = Attributes { subresource: key, ..part("userextras", value) };
                checks.ask(&extra).await?;
            }
        }
        if self.uid.is_empty() {
            return Ok(());
        }
        checks.ask(&part("uids", &self.uid)).await
    }

    /// The impersonated user as Go prints it (`%#v`).
    fn show(&self) -> String {
        let quoted = |texts: &[Str]| texts.iter().map(|text| quote(text)).collect::<Vec<_>>();
        let list = |texts: &[Str]| match texts {
            [] => "[]string(nil)".to_owned(),
            texts => format!("[]string{{{}}}", quoted(texts).join(", ")),
        };
        let extra: Vec<String> = self
            .extra
            .iter()
            .map(|(key, texts)| format!("{}:{}", quote(key), list(texts)))
            .collect();
        let extra = match extra.as_slice() {
            [] => "map[string][]string(nil)".to_owned(),
            extra => format!("map[string][]string{{{}}}", extra.join(", ")),
        };
        format!(
            "&user.DefaultInfo{{Name:\"\", UID:{}, Groups:{}, Extra:{extra}}}",
            quote(&self.uid),
            list(&self.groups)
        )
    }
}

/// Asks for the rights to the parts of another identity, and counts where metrics are given.
struct Checks<'a> {
    authorizer: &'a dyn Authorizer,
    metrics: Option<&'a ImpersonationMetrics>,
}

impl Checks<'_> {
    /// Compat: an authorizer that fails refuses here, where for the request itself it is a 500.
    async fn ask(&self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        let began = Instant::now();
        let verdict = self.authorizer.authorize(attributes).await;
        let allowed = verdict.is_allowed();
        if let Some(metrics) = self.metrics {
            metrics.checked(attributes.verb, allowed, began.elapsed());
        }
        if allowed { Ok(()) } else { Err(ApiError::forbidden(attributes, &verdict.reason)) }
    }
}

/// Namespace and name in `system:serviceaccount:NAMESPACE:NAME`.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use auth::authz::PrivilegedGroup;
    use futures_util::FutureExt as _;
    use http::HeaderValue;

    use super::*;

    fn acts_as(
        sender: &User,
        pairs: &[(&'static str, &'static str)],
    ) -> Result<Option<User>, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let checks = Checks { authorizer: &PrivilegedGroup, metrics: None };
        let user = RequestedIdentity::read(&headers).user(&checks, sender).now_or_never();
        user.expect("decided from memory").map_err(|error| error.to_string())
    }

    /// Headers, and the name and groups that follow from them.
    type Case = (&'static [(&'static str, &'static str)], &'static str, &'static [&'static str]);

    #[test]
    fn masters_may_be_anybody() {
        let root = User { groups: vec![User::MASTERS.into()], ..User::default() };
        let cases: [Case; 4] = [
            (&[(USER, "jane")], "jane", &["system:authenticated"]),
            (
                &[(USER, "jane"), (GROUP, "a"), (GROUP, "b")],
                "jane",
                &["a", "b", "system:authenticated"],
            ),
            (
                &[(USER, "system:serviceaccount:ns:robot")],
                "system:serviceaccount:ns:robot",
                &["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
            ),
            (&[(USER, "system:anonymous")], "system:anonymous", &["system:unauthenticated"]),
        ];
        for (headers, name, groups) in cases {
            let user = acts_as(&root, headers).unwrap().unwrap();
            assert_eq!(
                (user.name.as_str(), user.groups.as_slice()),
                (name, &groups.iter().map(Str::new).collect::<Vec<_>>()[..])
            );
        }
        let extra =
            acts_as(&root, &[(USER, "u"), ("impersonate-extra-a%2fb", "x")]).unwrap().unwrap();
        assert_eq!(extra.extra, [("a/b".into(), vec!["x".into()])]);
        assert_eq!(acts_as(&root, &[]), Ok(None));
    }

    #[test]
    fn others_may_not_and_hear_why() {
        let joe = User { name: "joe".into(), ..User::default() };
        assert_eq!(
            acts_as(&joe, &[(USER, "jane")]),
            Err("users \"jane\" is forbidden: User \"joe\" cannot impersonate resource \"users\" \
                 in API group \"\" at the cluster scope"
                .to_owned())
        );
        assert_eq!(
            acts_as(&joe, &[(GROUP, "system:masters")]),
            Err("requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"system:masters\"}, \
                 Extra:map[string][]string(nil)} without impersonating a user name"
                .to_owned())
        );
    }
}
