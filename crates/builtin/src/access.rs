//! Authentication and authorization, as reviews and escalation checks use them.

use std::sync::Arc;

use meta::{Str, User, Value, authorization::Authorizer};
use registry::BoxFuture;

/// Given by the server, which puts them together from its flags.
#[derive(Clone)]
pub struct Access {
    pub authorizer: Arc<dyn Authorizer>,
    pub rule_resolver: Arc<dyn RuleResolver>,
    pub token_authenticator: Arc<dyn TokenAuthenticator>,
}

/// Knows the rules of roles, and which of them a user holds: a user may not grant others.
pub trait RuleResolver: Send + Sync + 'static {
    /// Err says, in kube-apiserver's words, which of these rules the user does not hold.
    fn confirm_no_escalation(
        &self,
        user: &User,
        namespace: &str,
        rules: &[Value],
    ) -> Result<(), String>;

    /// The rules of a role or cluster role; None: there is no such role.
    fn rules_of_role(&self, kind: &str, namespace: &str, name: &str) -> Option<Vec<Value>>;
}

/// Knows the user of a bearer token.
pub trait TokenAuthenticator: Send + Sync + 'static {
    /// `Ok(None)`: no authenticator knows the token.
    fn authenticate_token<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [Str],
    ) -> BoxFuture<'a, Result<Option<TokenUser>, String>>;
}

/// The user of a token, and its audiences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenUser {
    pub user: User,
    pub audiences: Vec<Str>,
}

/// A user as reviews show it.
pub(crate) fn user_info(user: &User) -> Value {
    let mut info = Value::object();
    for (field, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            info.set_at(&[field], text.clone());
        }
    }
    if !user.groups.is_empty() {
        info.set_at(&["groups"], user.groups.clone());
    }
    for (key, values) in &user.extra {
        info.set_at(&["extra", key], values.clone());
    }
    info
}

/// The texts of a list in an object.
pub(crate) fn texts(object: &Value, path: &[&str]) -> Vec<Str> {
    object.items_at(path).iter().filter_map(Value::as_str).map(Str::new).collect()
}
