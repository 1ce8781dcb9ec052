//! Authentication: the first authenticator that knows a credential decides who the user is. The
//! order is kube-apiserver's; those that are not built yet have their line.

pub mod token_file;
pub mod x509;

use meta::{Str, User};

/// What a request brings to say who sent it.
#[derive(Debug, Default)]
pub struct Credentials<'a> {
    /// The client certificate, if it was verified against the client CA.
    pub certificate: Option<x509::Certificate<'a>>,
    /// What follows `Bearer ` in the Authorization header.
    pub bearer: Option<&'a str>,
}

/// Why nobody is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unauthenticated;

/// The authenticators in their order.
#[derive(Debug, Default)]
pub struct Authenticator {
    pub tokens: Option<token_file::TokenFile>,
    /// Requests without credentials are `system:anonymous`.
    pub anonymous: bool,
}

impl Authenticator {
    /// The user behind a request. A credential that is wrong is refused even where no credential
    /// would do: it is a mistake that its sender should hear of.
    pub fn authenticate(&self, credentials: &Credentials<'_>) -> Result<User, Unauthenticated> {
        // Not built yet: the front proxy's headers (request header), before certificates.
        if let Some(certificate) = &credentials.certificate {
            return Ok(with_group(certificate.user(), User::AUTHENTICATED));
        }
        if let Some(token) = credentials.bearer {
            return self.token(token).ok_or(Unauthenticated);
        }
        if self.anonymous { Ok(User::anonymous()) } else { Err(Unauthenticated) }
    }

    /// The user behind a token.
    pub fn token(&self, token: &str) -> Option<User> {
        // Not built yet, in this order: service accounts, bootstrap tokens, OIDC, webhook.
        let user = self.tokens.as_ref().and_then(|tokens| tokens.user(token));
        user.map(|user| with_group(user, User::AUTHENTICATED))
    }
}

fn with_group(mut user: User, group: &'static str) -> User {
    if !user.is_in(group) {
        user.groups.push(Str::new_static(group));
    }
    user
}
