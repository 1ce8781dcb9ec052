//! Tokens of OpenID issuers: `--oidc-*` flags or the JWT authenticators of an
//! `AuthenticationConfiguration`.

mod claims;
pub mod config;
mod distributed;
mod provider;
#[cfg(test)]
mod tests;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use background::Tasks;
use meta::{Number, Str, User, Value, time::Time};

use self::{
    claims::Mapper,
    config::{AuthenticationConfig, JwtConfig},
    distributed::ClaimResolver,
    provider::Provider,
};
use super::{
    TokenResult, TokenUser,
    jwt::Unverified,
    token_cache::{SUCCESS_TTL, TokenCache},
};
use crate::{
    config_file::{self, ReloadError},
    egress::Egress,
    metrics::Metrics,
};

/// The JWT authenticators of this server; replaced as a whole when their file changes.
pub struct JwtAuthenticators {
    current: ArcSwap<Generation>,
    signing_algorithms: Vec<String>,
    metrics: Metrics,
    egress: Egress,
    /// Issuers are looked for in the background.
    tasks: Tasks,
}

/// The authenticators of one configuration, and what they have found out.
struct Generation {
    issuers: Vec<Arc<JwtAuthenticator>>,
    /// With the configuration: a new one forgets the users of the old one.
    cache: TokenCache,
}

struct JwtAuthenticator {
    config: JwtConfig,
    provider: Arc<Provider>,
    mapper: Mapper,
    resolver: Option<ClaimResolver>,
    signing_algorithms: Vec<String>,
    metrics: Metrics,
}

/// Every algorithm that `--oidc-signing-algs` may name, and that a configuration file allows.
pub const SIGNING_ALGORITHMS: [&str; 9] =
    ["ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"];
/// How long a new configuration may take to reach its issuers.
const RELOAD_TIMEOUT: Duration = Duration::from_mins(1);
/// Compat: clocks differ, as the library of kube-apiserver has it; only for tokens that are not valid
/// yet.
const NOT_BEFORE_LEEWAY_SECONDS: f64 = 300.0;

impl JwtAuthenticators {
    /// The configuration was validated. Issuers are contacted in the background: they may run on this
    /// very cluster.
    pub fn new(
        config: &AuthenticationConfig,
        signing_algorithms: Vec<String>,
        metrics: &Metrics,
        egress: Egress,
        tasks: &Tasks,
    ) -> Result<Self, String> {
        let generation = Generation::new(config, &signing_algorithms, metrics, &egress, tasks)?;
        let current = ArcSwap::from_pointee(generation);
        let (metrics, tasks) = (metrics.clone(), tasks.clone());
        Ok(Self { current, signing_algorithms, metrics, egress, tasks })
    }

    pub(super) async fn user(&self, token: &str) -> TokenResult {
        let generation = self.current.load_full();
        if generation.issuers.is_empty() {
            return Ok(None);
        }
        let lookup = || {
            let (generation, token) = (generation.clone(), Str::new(token));
            Box::pin(async move { generation.user(&token).await }) as _
        };
        generation.cache.get(token, &[], lookup).await
    }

    /// Follows the configuration file. What it says about anonymous requests cannot change.
    pub async fn follow(
        self: Arc<Self>,
        file: PathBuf,
        content: Vec<u8>,
        disallowed_issuers: Vec<Str>,
        every: Duration,
    ) {
        let first = config::parse(&content).map(|config| config.anonymous).unwrap_or_default();
        let metrics = self.metrics.authentication_reloads();
        config_file::follow(file, content, every, "authentication", metrics, |content| {
            let (this, first, disallowed) = (&self, &first, &disallowed_issuers);
            async move {
                let config = config::parse(&content).map_err(ReloadError::Content)?;
                let mut errors = config.validate(disallowed);
                if config.anonymous != *first {
                    let at = meta::field::path("anonymous");
                    errors.forbidden(at, "changed from initial configuration file");
                }
                if !errors.is_empty() {
                    return Err(ReloadError::Content(errors.to_string()));
                }
                this.replace(&config).await.map_err(ReloadError::Retry)
            }
        })
        .await;
    }

    /// Takes over a configuration once all of its issuers answer.
    async fn replace(&self, config: &AuthenticationConfig) -> Result<(), String> {
        let (algorithms, metrics) = (&self.signing_algorithms, &self.metrics);
        let next = Generation::new(config, algorithms, metrics, &self.egress, &self.tasks)?;
        let deadline = Instant::now() + RELOAD_TIMEOUT;
        for issuer in &next.issuers {
            issuer.provider.ready_before(deadline).await?;
        }
        self.current.store(Arc::new(next));
        Ok(())
    }
}

impl Generation {
    fn new(
        config: &AuthenticationConfig,
        signing_algorithms: &[String],
        metrics: &Metrics,
        egress: &Egress,
        tasks: &Tasks,
    ) -> Result<Self, String> {
        let issuer = |jwt: &JwtConfig| {
            let dial = egress.of_issuer(&jwt.egress_selector_type)?;
            Ok(Arc::new(JwtAuthenticator {
                provider: Provider::start(jwt, metrics.clone(), dial.clone(), tasks)?,
                mapper: Mapper::new(jwt)?,
                resolver: ClaimResolver::new(jwt, metrics, dial, tasks),
                config: jwt.clone(),
                signing_algorithms: signing_algorithms.to_vec(),
                metrics: metrics.clone(),
            }))
        };
        let issuers = config.jwt.iter().map(issuer).collect::<Result<_, String>>()?;
        Ok(Self { issuers, cache: TokenCache::new(SUCCESS_TTL, Duration::ZERO, metrics) })
    }

    /// The issuer that a token names decides about it.
    async fn user(&self, token: &str) -> TokenResult {
        let issuer = {
            let Some(unverified) = Unverified::parse(token) else { return Ok(None) };
            let name = issuer_of(unverified.claims());
            self.issuers.iter().find(|known| known.config.url == name)
        };
        match issuer {
            None => Ok(None),
            Some(issuer) => issuer.user(token).await.map(Some),
        }
    }
}

impl JwtAuthenticator {
    async fn user(&self, token: &str) -> Result<TokenUser, String> {
        let began = Instant::now();
        let user = self.verified_user(token).await;
        self.metrics.jwt(&self.config.url, user.is_ok(), began.elapsed());
        // Compat: the audiences are those of this server, which the caller fills in.
        user.map(|user| TokenUser { user, audiences: Vec::new() })
    }

    async fn verified_user(&self, token: &str) -> Result<User, String> {
        let token = Unverified::parse(token).ok_or("oidc: malformed jwt")?;
        let failed = |why: String| format!("oidc: verify token: {why}");
        check(token.claims(), &self.config.audiences, Time::now()).map_err(failed)?;
        let algorithm = token.algorithm();
        if !self.signing_algorithms.iter().any(|allowed| allowed == algorithm) {
            return Err(failed(format!(
                "oidc: id token signed with unsupported algorithm, expected {:?} got {algorithm:?}",
                self.signing_algorithms
            )));
        }
        self.provider.verify(&token).await?;
        let mut claims = token.into_claims();
        if let Some(resolver) = &self.resolver {
            let expanded = resolver.expand(&mut claims, &self.provider, &self.signing_algorithms);
            expanded
                .await
                .map_err(|why| format!("oidc: could not expand distributed claims: {why}"))?;
        }
        self.mapper.user(&claims)
    }
}

/// Compat: Google's tokens may name it without the scheme.
fn issuer_of(claims: &Value) -> &str {
    match claims.str_at(&["iss"]) {
        "accounts.google.com" => "https://accounts.google.com",
        issuer => issuer,
    }
}

/// Audience and times of a token.
fn check(claims: &Value, audiences: &[String], now: Time) -> Result<(), String> {
    let meant: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !audiences.iter().any(|audience| meant.contains(&audience.as_str())) {
        return Err(format!("oidc: expected audience in {audiences:?} got {meant:?}"));
    }
    let now = now.unix_seconds() as f64;
    let seconds = |name: &str| match claims.get(name) {
        Some(Value::Number(Number::Int(seconds))) => Some(*seconds as f64),
        Some(Value::Number(Number::Float(seconds))) => Some(*seconds),
        _ => None,
    };
    // A token that does not say when it ends has ended.
    if seconds("exp").is_none_or(|end| now > end) {
        return Err("oidc: token is expired".to_owned());
    }
    if seconds("nbf").is_some_and(|from| now + NOT_BEFORE_LEEWAY_SECONDS < from) {
        return Err("oidc: current time is before the nbf (not before) time".to_owned());
    }
    Ok(())
}
