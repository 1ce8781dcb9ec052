//! Authentication: the first authenticator that knows a credential decides who the user is. The
//! order is kube-apiserver's; those that are not built yet have their line.

pub mod jwt;
pub mod service_account;
pub mod token_file;
pub mod x509;

use meta::{Str, User};

pub use self::service_account::{ServiceAccounts, TokenUser};

/// What a request brings to say who sent it.
#[derive(Debug, Default)]
pub struct Credentials<'a> {
    /// The client certificate, if it was verified against the client CA.
    pub certificate: Option<x509::Certificate<'a>>,
    /// What follows `Bearer ` in the Authorization header.
    pub bearer: Option<&'a str>,
}

/// Why a request is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unauthenticated;

/// The authenticators in their order.
#[derive(Default)]
pub struct Authenticator {
    pub tokens: Option<token_file::TokenFile>,
    pub service_accounts: Option<ServiceAccounts>,
    /// Who this server is, for tokens.
    pub audiences: Vec<Str>,
    /// Requests without credentials are `system:anonymous`.
    pub anonymous: bool,
}

impl Authenticator {
    /// The user behind a request. A credential that is wrong is refused even where no credential
    /// would do: it is a mistake that its sender should hear of.
    pub async fn authenticate(
        &self,
        credentials: &Credentials<'_>,
    ) -> Result<User, Unauthenticated> {
        // Not built yet: the front proxy's headers (request header), before certificates.
        if let Some(certificate) = &credentials.certificate {
            return Ok(with_group(certificate.user(), User::AUTHENTICATED));
        }
        if let Some(token) = credentials.bearer {
            return match self.token(token, &self.audiences).await {
                Ok(Some(found)) => Ok(found.user),
                Ok(None) | Err(_) => Err(Unauthenticated),
            };
        }
        if self.anonymous { Ok(User::anonymous()) } else { Err(Unauthenticated) }
    }

    /// The user behind a token, if it is meant for one of these audiences. Err: why not.
    pub async fn token(&self, token: &str, audiences: &[Str]) -> Result<Option<TokenUser>, String> {
        // Not built yet, after service accounts: bootstrap tokens, OIDC, webhook.
        let known = |mut found: TokenUser| {
            found.user = with_group(found.user, User::AUTHENTICATED);
            Ok(Some(found))
        };
        if let Some(user) = self.tokens.as_ref().and_then(|tokens| tokens.user(token)) {
            // Tokens of a file are for this server, whatever it is called.
            let both = self.audiences.iter().filter(|name| audiences.contains(name));
            let both: Vec<Str> = both.cloned().collect();
            if both.is_empty() && !audiences.is_empty() {
                return Ok(None);
            }
            return known(TokenUser { user, audiences: both });
        }
        match &self.service_accounts {
            None => Ok(None),
            Some(accounts) => match accounts.user(token, audiences).await? {
                Some(found) => known(found),
                None => Ok(None),
            },
        }
    }
}

fn with_group(mut user: User, group: &'static str) -> User {
    if !user.is_in(group) {
        user.groups.push(Str::new_static(group));
    }
    user
}
