//! Authorizers without data: always allow, always deny, and the group that may do everything.

use meta::{
    Str, User,
    authorization::{NonResourceRule, ResourceRule},
};

use super::{Attributes, Authorize, Authorizer, Decision, Rules, Verdict};

/// Mode `AlwaysAllow`.
#[derive(Debug)]
pub struct AlwaysAllow;

impl Authorizer for AlwaysAllow {
    fn authorize<'a>(&'a self, _attributes: &'a Attributes<'a>) -> Authorize<'a> {
        Verdict::allow("").into()
    }

    fn rules(&self, _user: &User, _namespace: &str) -> Rules {
        let all = || vec![Str::new_static("*")];
        let resource = ResourceRule {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            ..ResourceRule::default()
        };
        let non_resource = NonResourceRule { verbs: all(), urls: all() };
        Rules { resource: vec![resource], non_resource: vec![non_resource], ..Rules::default() }
    }
}

/// Mode `AlwaysDeny`: no opinion, for good. Later authorizers are still asked, as upstream.
#[derive(Debug)]
pub struct AlwaysDeny;

impl Authorizer for AlwaysDeny {
    fn authorize<'a>(&'a self, _attributes: &'a Attributes<'a>) -> Authorize<'a> {
        Verdict::no_opinion("Everything is forbidden.").into()
    }

    fn rules(&self, _user: &User, _namespace: &str) -> Rules {
        Rules::default()
    }
}

/// `system:masters` may do everything, whatever the mode: an admin
/// with a certificate of this group can always get in.
#[derive(Debug)]
pub struct PrivilegedGroup;

impl Authorizer for PrivilegedGroup {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Authorize<'a> {
        let is_privileged = attributes.user.is_in(User::MASTERS);
        let decision = if is_privileged { Decision::Allow } else { Decision::NoOpinion };
        Verdict { decision, ..Verdict::no_opinion("") }.into()
    }

    /// Compat: rights that are not written down as rules are not listed.
    fn rules(&self, _user: &User, _namespace: &str) -> Rules {
        Rules::default()
    }
}
