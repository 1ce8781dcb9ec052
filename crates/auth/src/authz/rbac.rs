//! Mode `RBAC`: what the roles allow that are bound to a user, to the user's groups or service
//! account, in the cluster and in the request's namespace.

mod escalation;
mod index;
mod rule;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use meta::{
    User,
    authorization::{NonResourceRule, ResourceRule},
};

pub(crate) use self::rule::quoted;
pub use self::{
    index::{Index, RoleRef},
    rule::{Rule, missing},
};
use super::{Attributes, Authorize, Authorizer, Rules, Verdict, aggregate};

/// Where roles and bindings come from. Asked for every request, so it only hands out what is ready.
pub trait Roles: Send + Sync + 'static {
    fn current(&self) -> Arc<Index>;
}

/// The authorizer.
pub struct Rbac(pub Arc<dyn Roles>);

impl Authorizer for Rbac {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Authorize<'a> {
        let (user, mut errors) = (attributes.user, Vec::new());
        let index = self.0.current();
        for (binding, rules) in index.granted(user, attributes.namespace) {
            match rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    let reason = format!("RBAC: allowed by {}", binding.describe(user));
                    return Verdict::allow(reason).into();
                }
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        // A role that is missing explains a refusal; it is no failure of the server.
        let reason = aggregate(&errors).map(|why| format!("RBAC: {why}"));
        Verdict::no_opinion(reason.unwrap_or_default()).into()
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        let (held, errors) = self.held(user, namespace);
        let mut rules = Rules { error: aggregate(&errors), ..Rules::default() };
        for rule in held {
            if !rule.resources.is_empty() {
                rules.resource.push(ResourceRule {
                    verbs: rule.verbs.clone(),
                    api_groups: rule.api_groups,
                    resources: rule.resources,
                    resource_names: rule.resource_names,
                });
            }
            if !rule.non_resource_urls.is_empty() {
                let urls = rule.non_resource_urls;
                rules.non_resource.push(NonResourceRule { verbs: rule.verbs, urls });
            }
        }
        rules
    }
}

impl Rbac {
    /// The rules that a user holds, and what could not be resolved.
    fn held(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let (index, mut held, mut errors) = (self.0.current(), Vec::new(), Vec::new());
        for (_, rules) in index.granted(user, namespace) {
            match rules {
                Ok(rules) => held.extend_from_slice(rules),
                Err(error) => errors.push(error),
            }
        }
        (held, errors)
    }

    /// A user may not grant rules that it does not hold: Err says, in kube-apiserver's words, which of
    /// these rules the user lacks.
    pub fn confirm_no_escalation(
        &self,
        user: &User,
        namespace: &str,
        wanted: &[Rule],
    ) -> Result<(), String> {
        let (held, errors) = self.held(user, namespace);
        let Ok(lacking) = escalation::missing(&held, wanted) else {
            return Err(format!(
                "user {} is attempting to grant RBAC permissions that are too many to be compared \
                 with those currently held; use fewer or simpler rules",
                meta::field::quote(&user.name),
            ));
        };
        if lacking.rules.is_empty() {
            return Ok(());
        }
        let mut texts: Vec<String> = lacking.rules.iter().map(Rule::compact_text).collect();
        texts.sort();
        texts.dedup();
        if lacking.more > 0 {
            texts.push(format!("... and {} more", lacking.more));
        }
        let mut message = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            meta::field::quote(&user.name),
            rule::quoted(&user.groups),
            texts.join("\n")
        );
        if let Some(errors) = aggregate(&errors) {
            message.push_str(&format!("; resolution errors: [{errors}]"));
        }
        Err(message)
    }
}
