//! Constrained impersonation: rights to act as certain users for certain verbs. The modes are tried one after the other, the right to be
//! any user for any request (`impersonate`) last; a refusal has the reason of the first check.

use auth::Attributes;
use meta::{ApiError, RequestInfo, Str, User, field::quote, names::is_dns1123_subdomain};

use super::{Checks, RequestedIdentity, service_account};

/// What kind of identity is impersonated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The node that the sender's own pod runs on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// All other users.
    UserInfo,
    Legacy,
}

const MODES: [Mode; 5] =
    [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

/// From this many groups or extra values on, the right to all of them is asked for first.
const MANY: usize = 4;
const GROUP: &str = "authentication.k8s.io";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn verb(self) -> Str {
        match self {
            Self::Legacy => Str::new_static("impersonate"),
            _ => format!("impersonate:{}", self.name()).into(),
        }
    }

    /// Whether the requested identity is one for this mode.
    fn applies(self, requested: &RequestedIdentity, sender: &User) -> bool {
        let bare =
            requested.uid.is_empty() && requested.groups.is_empty() && requested.extra.is_empty();
        let (node, account) = (node(&requested.name), service_account(&requested.name));
        match self {
            Self::AssociatedNode => bare && node.is_some() && own_node(sender) == node,
            Self::ArbitraryNode => bare && node.is_some(),
            Self::ServiceAccount => bare && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }
}

/// The name in `system:node:NAME`.
fn node(user: &str) -> Option<&str> {
    let name = user.strip_prefix("system:node:")?;
    is_dns1123_subdomain(name).is_empty().then_some(name)
}

/// The node that a service account's token was made for.
fn own_node(sender: &User) -> Option<&str> {
    service_account(&sender.name)?;
    let (_, values) = sender.extra.iter().find(|(key, _)| key == NODE_NAME)?;
    match values.as_slice() {
        [only] => Some(only),
        _ => None,
    }
}

impl RequestedIdentity {
    /// The user to act as, and the verb of the mode that allows it (empty for `impersonate` itself);
    /// None: the request impersonates no user. `info` is what it does.
    pub(super) async fn constrained(
        self,
        checks: &Checks<'_>,
        sender: &User,
        info: &RequestInfo,
    ) -> Result<Option<(User, Str)>, ApiError> {
        if self.name.is_empty() {
            if self.groups.is_empty() && self.extra.is_empty() && self.uid.is_empty() {
                return Ok(None);
            }
            let requested = self.as_go();
            let why = format!("requested {requested} without impersonating a user name");
            return Err(ApiError::BadRequest(why));
        }
        let mut first = None;
        for mode in MODES.into_iter().filter(|mode| mode.applies(&self, sender)) {
            match self.check_mode(mode, checks, sender, info).await {
                Ok(()) => {
                    let constraint =
                        if mode == Mode::Legacy { Str::default() } else { mode.verb() };
                    return Ok(Some((self.become_user(mode), constraint)));
                }
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        Err(first.unwrap_or_else(|| ApiError::internal("all impersonation modes failed")))
    }

    async fn check_mode(
        &self,
        mode: Mode,
        checks: &Checks<'_>,
        sender: &User,
        info: &RequestInfo,
    ) -> Result<(), ApiError> {
        // That it is the sender's own node was seen above; which one it is has no say in the rest.
        let mut sender = sender.clone();
        if mode == Mode::AssociatedNode {
            let mut keys: Vec<Str> = sender.extra.iter().map(|(key, _)| key.clone()).collect();
            keys.sort();
            sender.extra = vec![(Str::new_static(NODE_KEYS), keys)];
        }
        if mode != Mode::Legacy {
            let verb = format!("impersonate-on:{}:{}", mode.name(), info.verb);
            let on = Attributes { verb: &verb, ..Attributes::of_request(&sender, info) };
            checks.ask(&on).await?;
        }
        let verb = mode.verb();
        let part = |resource: &'static str, name| {
            let own = mode != Mode::Legacy || matches!(resource, "userextras" | "uids");
            let group = if own { GROUP } else { "" };
            Attributes {
                version: "v1",
                name,
                ..Attributes::of_resource(&sender, &verb, group, resource)
            }
        };
        let refuse = |asked: &Attributes<'_>, why: &str| Err(ApiError::forbidden(asked, why));
        match (service_account(&self.name), node(&self.name)) {
            (Some((namespace, name)), _) => {
                let account = Attributes { namespace, ..part("serviceaccounts", name) };
                checks.ask(&account).await?;
            }
            (None, Some(name)) if mode != Mode::Legacy => {
                let name = if mode == Mode::AssociatedNode { "*" } else { name };
                checks.ask(&part("nodes", name)).await?;
            }
            _ => checks.ask(&part("users", &self.name)).await?,
        }
        if !self.uid.is_empty() {
            checks.ask(&part("uids", &self.uid)).await?;
        }
        if mode != Mode::Legacy {
            if self.groups.iter().any(Str::is_empty) {
                let why = "impersonating the empty string group is not allowed";
                return refuse(&part("groups", ""), why);
            }
            if self.groups.iter().any(|group| group == User::MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return refuse(&part("groups", User::MASTERS), why);
            }
        }
        let groups: Vec<_> = self.groups.iter().map(|group| part("groups", group)).collect();
        ask_all(checks, mode, &groups, &part("groups", "*")).await?;
        if mode != Mode::Legacy
            && let Some(why) = self.wrong_extra()
        {
            return refuse(&part("userextras", ""), &why);
        }
        let extra = |key, value| Attributes { subresource: key, ..part("userextras", value) };
        let values = self.extra.iter();
        let values = values.flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
        let values: Vec<_> =
            values.map(|(key, value)| extra(key.as_str(), value.as_str())).collect();
        ask_all(checks, mode, &values, &extra("*", "*")).await
    }

    /// What legacy impersonation lets pass and this does not.
    fn wrong_extra(&self) -> Option<String> {
        for (key, values) in &self.extra {
            if key.is_empty() {
                return Some(
                    "impersonating the empty string key in extra is not allowed".to_owned(),
                );
            }
            let domain = key.split_once('/').filter(|(_, path)| !path.is_empty());
            if !domain.is_some_and(|(domain, _)| is_dns1123_subdomain(domain).is_empty()) {
                return Some(format!(
                    "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \
                     {}: must be a domain-prefixed path (such as \"acme.io/foo\")",
                    quote(key)
                ));
            }
            if key.chars().any(char::is_uppercase) {
                let key = quote(key);
                return Some(format!(
                    "impersonating a non-lowercase key in extra is not allowed: {key}"
                ));
            }
            if values.iter().any(Str::is_empty) {
                let why = "impersonating the empty string value in extra is not allowed";
                return Some(why.to_owned());
            }
        }
        None
    }

    fn become_user(mut self, mode: Mode) -> User {
        if mode != Mode::Legacy && node(&self.name).is_some() {
            self.groups = vec![Str::new_static("system:nodes")];
        }
        self.with_groups()
    }

    /// As Go shows it.
    fn as_go(&self) -> String {
        let list = |texts: &[Str]| {
            let texts: Vec<String> = texts.iter().map(|text| quote(text)).collect();
            format!("[]string{{{}}}", texts.join(", "))
        };
        let groups = match self.groups.as_slice() {
            [] => "[]string(nil)".to_owned(),
            groups => list(groups),
        };
        let extra = match self.extra.as_slice() {
            [] => "map[string][]string(nil)".to_owned(),
            extra => {
                let pairs =
                    extra.iter().map(|(key, values)| format!("{}:{}", quote(key), list(values)));
                format!("map[string][]string{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
        };
        let uid = quote(&self.uid);
        format!("&user.DefaultInfo{{Name:\"\", UID:{uid}, Groups:{groups}, Extra:{extra}}}")
    }
}

/// All parts, or, where there are many, the right to any of them first.
async fn ask_all(
    checks: &Checks<'_>,
    mode: Mode,
    parts: &[Attributes<'_>],
    any: &Attributes<'_>,
) -> Result<(), ApiError> {
    let many = mode != Mode::Legacy && parts.len() >= MANY;
    if many && checks.ask(any).await.is_ok() {
        return Ok(());
    }
    for part in parts {
        checks.ask(part).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use auth::{Authorize, Authorizer, Verdict, authz::Rules};
    use futures_util::FutureExt as _;

    use super::*;

    /// Allows what is listed as `verb group/resource[/subresource] name`, `*` for any name.
    struct Listed(&'static [&'static str]);

    impl Authorizer for Listed {
        fn authorize<'a>(&'a self, info: &'a Attributes<'a>) -> Authorize<'a> {
            let mut resource = format!("{}/{}", info.group, info.resource);
            if !info.subresource.is_empty() {
                resource = format!("{resource}/{}", info.subresource);
            }
            let asked = |name: &str| format!("{} {resource} {name}", info.verb);
            let allowed =
                self.0.iter().any(|rule| *rule == asked(info.name) || *rule == asked("ANY"));
            (if allowed { Verdict::allow("") } else { Verdict::no_opinion("") }).into()
        }

        fn rules(&self, _user: &User, _namespace: &str) -> Rules {
            Rules::default()
        }
    }

    fn requested(name: &str, groups: &[&str]) -> RequestedIdentity {
        RequestedIdentity {
            name: name.into(),
            groups: groups.iter().map(Str::new).collect(),
            ..RequestedIdentity::default()
        }
    }

    fn acts_as(
        rules: &'static [&'static str],
        sender: &User,
        requested: RequestedIdentity,
    ) -> Result<Vec<Str>, String> {
        let info = RequestInfo {
            verb: "list".into(),
            is_resource: true,
            resource: "pods".into(),
            ..RequestInfo::default()
        };
        let listed = Listed(rules);
        let checks = Checks { authorizer: &listed, metrics: None };
        let user = requested.constrained(&checks, sender, &info).now_or_never();
        let user = user.expect("decided from memory");
        user.map(|user| user.unwrap().0.groups).map_err(|error| error.to_string())
    }

    #[test]
    fn a_narrow_right_counts_for_its_mode_its_user_and_its_verb() {
        let joe = User { name: "joe".into(), ..User::default() };
        let user_info: &[&str] = &[
            "impersonate-on:user-info:list /pods ",
            "impersonate:user-info authentication.k8s.io/users jane",
        ];
        assert_eq!(
            acts_as(user_info, &joe, requested("jane", &[])),
            Ok(vec!["system:authenticated".into()])
        );
        let other = acts_as(user_info, &joe, requested("jim", &[]));
        assert_eq!(
            other,
            Err("users.authentication.k8s.io \"jim\" is forbidden: User \"joe\" cannot \
                 impersonate:user-info resource \"users\" in API group \"authentication.k8s.io\" at \
                 the cluster scope"
                .to_owned())
        );
        let on = acts_as(&user_info[1..], &joe, requested("jane", &[]));
        assert_eq!(
            on,
            Err("pods is forbidden: User \"joe\" cannot impersonate-on:user-info:list resource \
                 \"pods\" in API group \"\" at the cluster scope"
                .to_owned())
        );
        // The old right is as good as ever.
        let legacy: &[&str] = &["impersonate /users jane", "impersonate /groups system:masters"];
        let groups = acts_as(legacy, &joe, requested("jane", &["system:masters"]));
        assert_eq!(groups, Ok(vec!["system:masters".into(), "system:authenticated".into()]));
    }

    #[test]
    fn masters_are_out_of_narrow_reach() {
        let joe = User { name: "joe".into(), ..User::default() };
        let rules: &[&str] = &[
            "impersonate-on:user-info:list /pods ",
            "impersonate:user-info authentication.k8s.io/users ANY",
            "impersonate:user-info authentication.k8s.io/groups ANY",
        ];
        let refused = acts_as(rules, &joe, requested("jane", &["system:masters"])).unwrap_err();
        assert!(
            refused.ends_with(": impersonating the system:masters group is not allowed"),
            "{refused}"
        );
        assert!(acts_as(rules, &joe, requested("jane", &["devs"])).is_ok());
    }

    #[test]
    fn nodes_are_impersonated_by_name_or_by_where_one_runs() {
        let mut agent = User { name: "system:serviceaccount:ns:agent".into(), ..User::default() };
        let any: &[&str] = &[
            "impersonate-on:arbitrary-node:list /pods ",
            "impersonate:arbitrary-node authentication.k8s.io/nodes n1",
        ];
        let nodes: Vec<Str> = vec!["system:nodes".into(), "system:authenticated".into()];
        assert_eq!(acts_as(any, &agent, requested("system:node:n1", &[])), Ok(nodes.clone()));
        assert!(acts_as(any, &agent, requested("system:node:n2", &[])).is_err());
        let own: &[&str] = &[
            "impersonate-on:associated-node:list /pods ",
            "impersonate:associated-node authentication.k8s.io/nodes *",
        ];
        assert!(acts_as(own, &agent, requested("system:node:n1", &[])).is_err());
        agent.extra = vec![(NODE_NAME.into(), vec!["n1".into()])];
        assert_eq!(acts_as(own, &agent, requested("system:node:n1", &[])), Ok(nodes));
        assert!(acts_as(own, &agent, requested("system:node:n2", &[])).is_err());
    }

    #[test]
    fn an_identity_without_a_name_is_shown_as_it_was_sent() {
        let (listed, user, info) = (Listed(&[]), User::default(), RequestInfo::default());
        let checks = Checks { authorizer: &listed, metrics: None };
        let refused = requested("", &["a"]).constrained(&checks, &user, &info).now_or_never();
        let refused = refused.expect("decided from memory");
        assert_eq!(
            refused.unwrap_err().to_string(),
            "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"a\"}, \
             Extra:map[string][]string(nil)} without impersonating a user name"
        );
    }
}
