//! Reviews ask those who decide about every request.

use std::{future::ready, sync::Arc};

use auth::{
    Authenticator, Authorizer, Decision,
    authz::rbac::{Rbac, RoleRef, Roles as _, Rule},
};
use builtin::{Authorization, TokenUser};
use meta::{ApiError, RequestInfo, Str, User, Value, rules::Rules};
use registry::Pinned;

use crate::roles::RoleIndex;

pub(crate) struct Access {
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) roles: Arc<RoleIndex>,
}

impl registry::Judge for Access {
    fn check(&self, user: &User, info: &RequestInfo) -> Result<(), ApiError> {
        let verdict = self.authorizer.decide(user, info);
        match (verdict.decision, verdict.error) {
            (Decision::Allow, _) => Ok(()),
            (_, Some(error)) => Err(ApiError::Internal(error)),
            (_, None) => Err(ApiError::forbidden(user, info, &verdict.reason)),
        }
    }
}

impl builtin::Access for Access {
    fn decide<'a>(&'a self, user: &'a User, info: &'a RequestInfo) -> Pinned<'a, Authorization> {
        let verdict = self.authorizer.decide(user, info);
        Box::pin(ready(Authorization {
            allowed: verdict.decision == Decision::Allow,
            denied: verdict.decision == Decision::Deny,
            reason: verdict.reason,
            error: verdict.error.unwrap_or_default(),
        }))
    }

    fn rules<'a>(&'a self, user: &'a User, namespace: &'a str) -> Pinned<'a, Rules> {
        Box::pin(ready(self.authorizer.rules(user, namespace)))
    }

    fn may_grant(&self, user: &User, namespace: &str, rules: &[Value]) -> Result<(), String> {
        let rules: Vec<Rule> = rules.iter().map(Rule::from_object).collect();
        Rbac(self.roles.clone()).confirm_no_escalation(user, namespace, &rules)
    }

    fn rules_of_role(&self, kind: &str, namespace: &str, name: &str) -> Option<Vec<Value>> {
        let role = RoleRef { kind: Str::new(kind), name: Str::new(name) };
        let index = self.roles.current();
        let rules = index.rules_of(&role, namespace).ok()?;
        Some(rules.iter().map(Rule::to_object).collect())
    }

    fn token<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [Str],
    ) -> Pinned<'a, Result<Option<TokenUser>, String>> {
        Box::pin(async move {
            // A review that names no audience asks for this server's.
            let own = &self.authenticator.audiences;
            let audiences = if audiences.is_empty() { own } else { audiences };
            // Compat: an unknown token is told as an error, too.
            match self.authenticator.token(token, audiences).await {
                Ok(Some(found)) => {
                    Ok(Some(TokenUser { user: found.user, audiences: found.audiences }))
                }
                Ok(None) => Err("invalid bearer token".to_owned()),
                Err(why) => Err(format!("[invalid bearer token, {why}]")),
            }
        })
    }
}
