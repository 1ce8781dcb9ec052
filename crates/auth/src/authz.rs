//! Authorization: may this user do this?

use meta::{RequestInfo, Str, User};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow,
    Deny,
    /// Nothing to say; the next authorizer is asked, and in the end the answer is no.
    NoOpinion,
}

/// A decision, why, and what went wrong on the way to it.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub decision: Decision,
    pub reason: String,
    pub error: Option<String>,
}

pub trait Authorizer: Send + Sync + 'static {
    fn decide(&self, user: &User, info: &RequestInfo) -> Verdict;

    /// What the user may do in a namespace, as far as it can be listed.
    fn rules(&self, user: &User, namespace: &str) -> Rules;
}

/// Everything that somebody may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub resource: Vec<ResourceRule>,
    pub non_resource: Vec<NonResourceRule>,
    /// There may be more that can't be listed (a webhook decides).
    pub incomplete: bool,
    pub error: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRule {
    pub verbs: Vec<Str>,
    pub api_groups: Vec<Str>,
    pub resources: Vec<Str>,
    pub resource_names: Vec<Str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NonResourceRule {
    pub verbs: Vec<Str>,
    pub urls: Vec<Str>,
}

/// Until RBAC, Node, ABAC and webhooks are built: `system:masters` may do everything, whoever is known
/// may ask about himself and what is served, everybody may ask how the server is, and nobody may do
/// anything else.
#[derive(Debug)]
pub struct MastersOnly;

impl Authorizer for MastersOnly {
    fn decide(&self, user: &User, info: &RequestInfo) -> Verdict {
        let allow = user.is_in(User::MASTERS)
            || is_public(info)
            || (user.is_in(User::AUTHENTICATED) && is_basic(info));
        let decision = if allow { Decision::Allow } else { Decision::NoOpinion };
        Verdict { decision, reason: String::new(), error: None }
    }

    fn rules(&self, user: &User, _namespace: &str) -> Rules {
        let all = || vec![Str::new_static("*")];
        if user.is_in(User::MASTERS) {
            let resource = ResourceRule {
                verbs: all(),
                api_groups: all(),
                resources: all(),
                ..ResourceRule::default()
            };
            let non_resource = NonResourceRule { verbs: all(), urls: all() };
            return Rules {
                resource: vec![resource],
                non_resource: vec![non_resource],
                ..Rules::default()
            };
        }
        let public = NonResourceRule {
            verbs: vec![Str::new_static("get")],
            urls: PUBLIC_PATHS.map(Str::new_static).to_vec(),
        };
        Rules { non_resource: vec![public], ..Rules::default() }
    }
}

/// What everybody who is known may do, as by the roles `system:basic-user` and `system:discovery`:
/// ask about oneself, and see what there is.
fn is_basic(info: &RequestInfo) -> bool {
    if info.is_resource {
        let what = (info.group.as_str(), info.resource.as_str());
        return info.verb == "create"
            && info.subresource.is_empty()
            && matches!(
                what,
                ("authorization.k8s.io", "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
                    | ("authentication.k8s.io", "selfsubjectreviews")
            );
    }
    let below = |root: &str| {
        info.path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    info.verb == "get" && ["/api", "/apis", "/openapi"].into_iter().any(below)
}

/// What kube-apiserver shows to `system:unauthenticated` through the role
/// `system:public-info-viewer`.
fn is_public(info: &RequestInfo) -> bool {
    !info.is_resource && info.verb == "get" && PUBLIC_PATHS.contains(&info.path.as_str())
}

const PUBLIC_PATHS: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_masters_may_do_more_than_look_at_the_health() {
        let jane = User { name: "jane".into(), ..User::default() };
        let root = User { groups: vec![User::MASTERS.into()], ..User::default() };
        let get = |path: &str| RequestInfo {
            path: path.into(),
            verb: "get".into(),
            ..RequestInfo::default()
        };
        let pods = RequestInfo { verb: "list".into(), is_resource: true, ..get("/api/v1/pods") };
        let cases = [
            (&jane, get("/readyz"), Decision::Allow),
            (&jane, get("/version"), Decision::Allow),
            (&jane, get("/metrics"), Decision::NoOpinion),
            (&jane, RequestInfo { verb: "post".into(), ..get("/readyz") }, Decision::NoOpinion),
            (&jane, pods.clone(), Decision::NoOpinion),
            (&root, pods, Decision::Allow),
            (&root, get("/metrics"), Decision::Allow),
        ];
        for (user, info, expected) in cases {
            assert_eq!(MastersOnly.decide(user, &info).decision, expected, "{info:?}");
        }
    }
}
