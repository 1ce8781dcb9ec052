//! Authorization: may this user do this? Each authorizer allows, denies, or has no opinion; a union
//! asks them in turn.

pub mod abac;
pub mod always;
pub mod chain;
pub mod config;
pub mod node;
pub mod rbac;
pub mod union;
pub mod webhook;

pub use meta::authorization::{Attributes, Authorize, Authorizer, Decision, Rules, Verdict};

pub use self::{
    abac::Abac,
    always::{AlwaysAllow, AlwaysDeny, PrivilegedGroup},
    chain::{AuthorizerChain, FixedAuthorizers},
    union::Union,
};

/// Several errors as one text, each said once; None if there are none.
pub(crate) fn aggregate(errors: &[String]) -> Option<String> {
    let mut once: Vec<&str> = Vec::new();
    for error in errors {
        if !once.contains(&error.as_str()) {
            once.push(error);
        }
    }
    match once.as_slice() {
        [] => None,
        [one] => Some((*one).to_owned()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}
