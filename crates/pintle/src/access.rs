//! Reviews ask those who decide about every request.

use std::{future::ready, sync::Arc};

use auth::{Authenticator, Authorizer, Decision};
use builtin::{Judgement, NonResourceRule, ResourceRule, Rules, TokenUser};
use meta::{RequestInfo, Str, User};
use registry::Pinned;

pub(crate) struct Access {
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
}

impl builtin::Access for Access {
    fn decide<'a>(&'a self, user: &'a User, info: &'a RequestInfo) -> Pinned<'a, Judgement> {
        let verdict = self.authorizer.decide(user, info);
        Box::pin(ready(Judgement {
            allowed: verdict.decision == Decision::Allow,
            denied: verdict.decision == Decision::Deny,
            reason: verdict.reason,
            error: verdict.error.unwrap_or_default(),
        }))
    }

    fn rules<'a>(&'a self, user: &'a User, namespace: &'a str) -> Pinned<'a, Rules> {
        let rules = self.authorizer.rules(user, namespace);
        let resource = rules.resource.into_iter().map(|rule| ResourceRule {
            verbs: rule.verbs,
            api_groups: rule.api_groups,
            resources: rule.resources,
            resource_names: rule.resource_names,
        });
        let non_resource = rules.non_resource.into_iter();
        let non_resource =
            non_resource.map(|rule| NonResourceRule { verbs: rule.verbs, urls: rule.urls });
        Box::pin(ready(Rules {
            resource: resource.collect(),
            non_resource: non_resource.collect(),
            incomplete: rules.incomplete,
            error: rules.error.unwrap_or_default(),
        }))
    }

    fn token<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [Str],
    ) -> Pinned<'a, Result<Option<TokenUser>, String>> {
        let user = self.authenticator.token(token);
        // Tokens of a file are good for every audience.
        let found = user.map(|user| TokenUser { user, audiences: audiences.to_vec() });
        Box::pin(ready(match found {
            Some(found) => Ok(Some(found)),
            // Compat: an unknown token is told as an error, too.
            None => Err("invalid bearer token".to_owned()),
        }))
    }
}
