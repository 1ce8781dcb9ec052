//! Authorization: may this user do this?

use meta::{RequestInfo, User};

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
}

/// Until RBAC, Node, ABAC and webhooks are built: `system:masters` may do everything, everybody may
/// ask how the server is, and nobody may do anything else.
#[derive(Debug)]
pub struct MastersOnly;

impl Authorizer for MastersOnly {
    fn decide(&self, user: &User, info: &RequestInfo) -> Verdict {
        let allow = user.is_in(User::MASTERS) || is_public(info);
        let decision = if allow { Decision::Allow } else { Decision::NoOpinion };
        Verdict { decision, reason: String::new(), error: None }
    }
}

/// What kube-apiserver shows to `system:unauthenticated` through the role
/// `system:public-info-viewer`.
fn is_public(info: &RequestInfo) -> bool {
    let path = info.path.as_str();
    !info.is_resource
        && info.verb == "get"
        && matches!(path, "/healthz" | "/livez" | "/readyz" | "/version" | "/version/")
}

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
