//! Distributed claims (OpenID Connect Core 5.6.2): a token may name another server that knows the groups of
//! the user.
//!
//! The issuer has signed where to ask, so that a client cannot choose it; the answer is a token again, and
//! its issuer is found and its signature verified like that of any other.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use background::Tasks;
use client::Dial;
use http::Uri;
use meta::{Value, field::quote, time::Time};

use super::{check, config::JwtConfig, provider::Provider};
use crate::{authn::jwt::Unverified, metrics::Metrics};

pub(super) struct ClaimResolver {
    config: JwtConfig,
    metrics: Metrics,
    dial: Option<Arc<dyn Dial>>,
    tasks: Tasks,
    /// By the issuer of the answers.
    providers: Mutex<BTreeMap<String, Arc<Provider>>>,
}

/// Of one authenticator; tokens whose claims come from further ones are refused.
const ISSUERS_MAX: usize = 16;
/// What the issuer of an answer gets to be found. Compat: kube-apiserver refuses tokens until it is.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

impl ClaimResolver {
    /// None: groups come from an expression or not at all.
    pub(super) fn new(
        config: &JwtConfig,
        metrics: &Metrics,
        dial: Option<Arc<dyn Dial>>,
        tasks: &Tasks,
    ) -> Option<Self> {
        let of_claim = !config.groups.claim.is_empty();
        of_claim.then(|| Self {
            config: config.clone(),
            metrics: metrics.clone(),
            dial,
            tasks: tasks.clone(),
            providers: Mutex::default(),
        })
    }

    /// Fetches the groups of a verified token, if they are elsewhere.
    pub(super) async fn expand(
        &self,
        claims: &mut Value,
        issuer: &Provider,
        algorithms: &[String],
    ) -> Result<(), String> {
        let claim = self.config.groups.claim.as_str();
        let Some((url, access_token)) = source(claims, claim)? else { return Ok(()) };
        let failed =
            |why: String| format!("while getting distributed claim {}: {why}", quote(claim));
        let endpoint: Uri =
            url.parse().map_err(|_| failed(format!("{} is no URL", quote(&url))))?;
        // Without TLS anyone on the path could replace the groups.
        if endpoint.scheme_str() != scheme(&self.config.url) {
            return Err(failed(format!("{} must be https", quote(&url))));
        }
        let answer = issuer.fetch_as(&endpoint, &access_token).await.map_err(failed)?;
        let answer = std::str::from_utf8(&answer).map_err(|_| failed("not a token".to_owned()))?;
        let token =
            Unverified::parse(answer.trim()).ok_or_else(|| failed("not a token".to_owned()))?;
        let verified = |why: String| format!("verify distributed claim token: {why}");
        check(token.claims(), &self.config.audiences, Time::now()).map_err(verified)?;
        if !algorithms.iter().any(|allowed| allowed == token.algorithm()) {
            return Err(verified("oidc: id token signed with unsupported algorithm".to_owned()));
        }
        let provider = self.provider(token.issuer())?;
        provider.ready_before(Instant::now() + DISCOVERY_TIMEOUT).await?;
        provider.verify(&token).await.map_err(verified)?;
        let Some(value) = token.claims().get(claim) else {
            return Err(format!(
                "jwt returned by distributed claim endpoint {} did not contain claim: {claim}",
                quote(&url)
            ));
        };
        if let Some(claims) = claims.as_object_mut() {
            claims.insert(claim, value.clone());
        }
        Ok(())
    }

    fn provider(&self, issuer: &str) -> Result<Arc<Provider>, String> {
        if scheme(issuer).is_none() || scheme(issuer) != scheme(&self.config.url) {
            return Err(format!("verifying untrusted issuer {issuer} failed: it must be https"));
        }
        let mut providers = self.providers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = providers.get(issuer) {
            return Ok(known.clone());
        }
        if providers.len() >= ISSUERS_MAX {
            return Err(format!("verifying untrusted issuer {issuer} failed: too many issuers"));
        }
        let config = JwtConfig {
            url: issuer.to_owned(),
            discovery_url: String::new(),
            ..self.config.clone()
        };
        let (metrics, dial) = (self.metrics.clone(), self.dial.clone());
        let provider = Provider::start(&config, metrics, dial, &self.tasks)?;
        providers.insert(issuer.to_owned(), provider.clone());
        Ok(provider)
    }
}

fn scheme(url: &str) -> Option<&str> {
    url.split_once("://").map(|(scheme, _)| scheme)
}

/// Where a claim is, and what to show there; None: it is here, or nowhere.
fn source(claims: &Value, claim: &str) -> Result<Option<(String, String)>, String> {
    let Some(names) = claims.get("_claim_names") else { return Ok(None) };
    if claims.get(claim).is_some() {
        return Ok(None);
    }
    let names = names.as_object().ok_or("oidc: error parsing distributed claim names")?;
    let Some(sources) = claims.get("_claim_sources") else {
        return Err("oidc: no claim sources".to_owned());
    };
    let sources = sources.as_object().ok_or("oidc: could not parse claim sources")?;
    let Some(name) = names.get(claim) else { return Ok(None) };
    let name = name.as_str().ok_or("oidc: error parsing distributed claim names")?;
    let source = sources.get(name).ok_or_else(|| {
        format!("id token _claim_names contained a source {name} missing in _claims_sources")
    })?;
    let (url, token) = (source.str_at(&["endpoint"]), source.str_at(&["access_token"]));
    // Compat: a claim that came along (`JWT`) is ignored.
    Ok((!url.is_empty()).then(|| (url.to_owned(), token.to_owned())))
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn a_claim_is_fetched_only_if_it_is_elsewhere() {
        let source_of = |claims: Value| {
            let found = source(&claims, "groups");
            found.map(|found| found.map(|(url, token)| format!("{url} {token}")))
        };
        let names = value!({"groups": "a"});
        let sources =
            value!({"a": {"endpoint": "https://x", "access_token": "t"}, "b": {"JWT": "x"}});
        let cases = [
            (value!({"groups": ["dev"]}), Ok(None)),
            (value!({}), Ok(None)),
            (
                value!({"_claim_names": (names.clone()), "_claim_sources": (sources.clone())}),
                Ok(Some("https://x t".to_owned())),
            ),
            (
                value!({"groups": [], "_claim_names": (names.clone()), "_claim_sources": (sources.clone())}),
                Ok(None),
            ),
            (value!({"_claim_names": {"x": "a"}, "_claim_sources": (sources.clone())}), Ok(None)),
            (
                value!({"_claim_names": {"groups": "b"}, "_claim_sources": (sources.clone())}),
                Ok(None),
            ),
            (value!({"_claim_names": (names.clone())}), Err("oidc: no claim sources".to_owned())),
            (
                value!({"_claim_names": {"groups": "c"}, "_claim_sources": (sources.clone())}),
                Err("id token _claim_names contained a source c missing in _claims_sources"
                    .to_owned()),
            ),
            (
                value!({"_claim_names": [], "_claim_sources": (sources.clone())}),
                Err("oidc: error parsing distributed claim names".to_owned()),
            ),
            (
                value!({"_claim_names": (names), "_claim_sources": 7}),
                Err("oidc: could not parse claim sources".to_owned()),
            ),
        ];
        for (claims, expected) in cases {
            let shown = meta::json::to_string(&claims);
            assert_eq!(source_of(claims), expected, "{shown}");
        }
    }
}
