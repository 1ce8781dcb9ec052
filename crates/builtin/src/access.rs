//! What reviews ask about: users and what they may do. Given by the server, so that this room knows
//! neither authentication nor authorization.

use meta::{RequestInfo, Str, User, Value, rules::Rules};
use registry::Pinned;

pub trait Access: Send + Sync + 'static {
    /// May this user do this?
    fn decide<'a>(&'a self, user: &'a User, info: &'a RequestInfo) -> Pinned<'a, Authorization>;

    /// What may this user do in this namespace?
    fn rules<'a>(&'a self, user: &'a User, namespace: &'a str) -> Pinned<'a, Rules>;

    /// Nobody hands out rights that he doesn't have: Err says which of these rules the user lacks.
    fn may_grant(&self, user: &User, namespace: &str, rules: &[Value]) -> Result<(), String>;

    /// The rules of a role or cluster role; None: there is no such role.
    fn rules_of_role(&self, kind: &str, namespace: &str, name: &str) -> Option<Vec<Value>>;

    /// Who is behind this token? `Ok(None)`: nobody knows it.
    fn token<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [Str],
    ) -> Pinned<'a, Result<Option<TokenUser>, String>>;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authorization {
    pub allowed: bool,
    pub denied: bool,
    pub reason: String,
    pub error: String,
}

/// The user that a token stands for, and for whom it was meant.
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
