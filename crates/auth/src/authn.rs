//! Authentication: the first authenticator that knows a credential decides who the user is. The
//! order is kube-apiserver's.

pub mod bootstrap;
pub mod jwt;
pub mod oidc;
pub mod request_header;
pub mod service_account;
mod token_cache;
pub mod token_file;
pub mod webhook;
pub mod x509;

use std::sync::Arc;

use meta::{Str, User};

pub use self::{
    bootstrap::BootstrapTokens,
    oidc::JwtAuthenticators,
    request_header::RequestHeader,
    service_account::{ServiceAccounts, TokenUser},
    webhook::TokenWebhook,
};
use crate::authz::aggregate;

/// What a request brings to say who sent it.
#[derive(Debug, Default)]
pub struct Credentials<'a> {
    /// The user that a front proxy names, or why it may not.
    pub front_proxy: Option<Result<User, String>>,
    /// The client certificate, if it was verified against the client CA.
    pub certificate: Option<x509::Certificate<'a>>,
    /// Why a certificate was not; a token may still be good.
    pub certificate_error: Option<&'a str>,
    /// What follows `Bearer ` in the Authorization header.
    pub bearer: Option<&'a str>,
    /// Of the request: whether it may be anonymous can depend on it.
    pub path: &'a str,
}

/// What there is to say about a token beside its user: for the audit event and the response.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TokenNotes {
    pub annotations: Vec<(&'static str, String)>,
    pub warnings: Vec<&'static str>,
}

/// Why a request is not authenticated: for the log, the client is not told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unauthenticated(pub String);

/// The user behind a token; `Ok(None)`: the authenticator does not know it. Err: why it is not good.
pub type TokenResult = Result<Option<TokenUser>, String>;

/// The authenticators in their order.
#[derive(Default)]
pub struct Authenticator {
    pub request_header: Option<RequestHeader>,
    pub tokens: Option<token_file::TokenFile>,
    pub service_accounts: Option<ServiceAccounts>,
    pub bootstrap_tokens: Option<BootstrapTokens>,
    pub jwt: Option<Arc<JwtAuthenticators>>,
    pub webhook: Option<TokenWebhook>,
    /// Who this server is, for tokens.
    pub audiences: Vec<Str>,
    pub anonymous: Anonymous,
}

/// Which requests without credentials are `system:anonymous`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Anonymous {
    pub enabled: bool,
    /// Only requests for these paths; empty: all.
    pub paths: Vec<String>,
}

impl Anonymous {
    fn allows(&self, path: &str) -> bool {
        self.enabled && (self.paths.is_empty() || self.paths.iter().any(|allowed| allowed == path))
    }
}

impl Authenticator {
    /// The user behind a request. A credential that is not good does not keep the next one from being
    /// tried; but if none is good, the request is refused and not anonymous: its sender has made a
    /// mistake and should hear of it.
    pub async fn authenticate(
        &self,
        credentials: Credentials<'_>,
        notes: &mut TokenNotes,
    ) -> Result<User, Unauthenticated> {
        let mut errors = Vec::new();
        match credentials.front_proxy {
            Some(Ok(user)) => return Ok(with_group(user, User::AUTHENTICATED)),
            Some(Err(why)) => errors.push(why),
            None => {}
        }
        if let Some(certificate) = &credentials.certificate {
            return Ok(with_group(certificate.user(), User::AUTHENTICATED));
        }
        errors.extend(credentials.certificate_error.map(str::to_owned));
        if let Some(token) = credentials.bearer {
            match self.token(token, &self.audiences, notes).await {
                Ok(Some(found)) => return Ok(found.user),
                Ok(None) => errors.push(INVALID_TOKEN.to_owned()),
                Err(why) => errors.extend([INVALID_TOKEN.to_owned(), why]),
            }
        }
        match aggregate(&errors) {
            Some(why) => Err(Unauthenticated(why)),
            None if self.anonymous.allows(credentials.path) => Ok(User::anonymous()),
            None => Err(Unauthenticated("no credentials".to_owned())),
        }
    }

    /// The user behind a token, if it is meant for one of these audiences. An authenticator that fails
    /// does not keep the next one from being asked.
    pub async fn token(
        &self,
        token: &str,
        audiences: &[Str],
        notes: &mut TokenNotes,
    ) -> TokenResult {
        let mut errors = Vec::new();
        let mut found = None;
        if let Some(user) = self.tokens.as_ref().and_then(|tokens| tokens.user(token)) {
            found = self.for_this_server(user, audiences);
        }
        if let (None, Some(accounts)) = (&found, &self.service_accounts) {
            found = known(accounts.user(token, audiences, notes).await, &mut errors);
        }
        if let (None, Some(bootstrap)) = (&found, &self.bootstrap_tokens)
            && let Some(user) = bootstrap.user(token).await
        {
            found = self.for_this_server(user, audiences);
        }
        // Behind service accounts: a token of theirs must not make an issuer be asked for keys.
        if let (None, Some(jwt)) = (&found, &self.jwt) {
            let user = known(jwt.user(token).await, &mut errors).map(|found| found.user);
            found = user.and_then(|user| self.for_this_server(user, audiences));
        }
        if let (None, Some(webhook)) = (&found, &self.webhook) {
            found = known(webhook.user(token, audiences).await, &mut errors);
        }
        match (found, aggregate(&errors)) {
            (Some(mut found), _) => {
                found.user = with_group(found.user, User::AUTHENTICATED);
                Ok(Some(found))
            }
            (None, Some(why)) => Err(why),
            (None, None) => Ok(None),
        }
    }

    /// A user of an authenticator that knows no audiences: its tokens are for this server, whatever it
    /// is called.
    fn for_this_server(&self, user: User, wanted: &[Str]) -> Option<TokenUser> {
        let both = self.audiences.iter().filter(|name| wanted.contains(name));
        let audiences: Vec<Str> = both.cloned().collect();
        (!audiences.is_empty() || wanted.is_empty()).then_some(TokenUser { user, audiences })
    }
}

const INVALID_TOKEN: &str = "invalid bearer token";

fn known(result: TokenResult, errors: &mut Vec<String>) -> Option<TokenUser> {
    result.unwrap_or_else(|why| {
        errors.push(why);
        None
    })
}

fn with_group(mut user: User, group: &'static str) -> User {
    if !user.is_in(group) {
        user.groups.push(Str::new_static(group));
    }
    user
}

#[cfg(test)]
mod tests;
