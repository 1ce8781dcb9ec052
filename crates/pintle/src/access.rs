//! What reviews and escalation checks ask: the same roles and authenticators that decide about every
//! request.

use std::sync::Arc;

use auth::{
    Authenticator,
    authn::TokenNotes,
    authz::rbac::{Rbac, RoleRef, Roles as _, Rule},
};
use builtin::TokenUser;
use meta::{Str, User, Value};
use registry::BoxFuture;

use crate::roles::RoleIndex;

/// Rules of roles, from the index that RBAC decides by.
pub(crate) struct RoleRules(pub(crate) Arc<RoleIndex>);

impl builtin::RuleResolver for RoleRules {
    fn confirm_no_escalation(
        &self,
        user: &User,
        namespace: &str,
        rules: &[Value],
    ) -> Result<(), String> {
        let rules: Vec<Rule> = rules.iter().map(Rule::from_object).collect();
        Rbac(self.0.clone()).confirm_no_escalation(user, namespace, &rules)
    }

    fn rules_of_role(&self, kind: &str, namespace: &str, name: &str) -> Option<Vec<Value>> {
        let role = RoleRef { kind: Str::new(kind), name: Str::new(name) };
        let index = self.0.current();
        let rules = index.rules_of(&role, namespace).ok()?;
        Some(rules.iter().map(Rule::to_object).collect())
    }
}

/// Users of bearer tokens, as requests are authenticated.
pub(crate) struct BearerTokens(pub(crate) Arc<Authenticator>);

impl builtin::TokenAuthenticator for BearerTokens {
    fn authenticate_token<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [Str],
    ) -> BoxFuture<'a, Result<Option<TokenUser>, String>> {
        Box::pin(async move {
            // A review that names no audience is about this server's.
            let own = &self.0.audiences;
            let audiences = if audiences.is_empty() { own } else { audiences };
            // Compat: an unknown token is reported in `status.error` too.
            match self.0.token(token, audiences, &mut TokenNotes::default()).await {
                Ok(Some(found)) => {
                    Ok(Some(TokenUser { user: found.user, audiences: found.audiences }))
                }
                Ok(None) => Err("invalid bearer token".to_owned()),
                Err(why) => Err(format!("[invalid bearer token, {why}]")),
            }
        })
    }
}
