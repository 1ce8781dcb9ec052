//! An OpenID issuer: its discovery document and its keys, fetched when they are needed.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use background::Tasks;
use bytes::Bytes;
use client::{Call, Client, Dial, Trust, go_text, url_error};
use codec::json::{DecodeOptions, decode_any};
use http::{HeaderMap, HeaderValue, Method, Uri, header::AUTHORIZATION};
use meta::{Value, field::quote};
use tokio::sync::watch;

use super::config::JwtConfig;
use crate::{
    authn::jwt::{PublicKey, Unverified},
    metrics::Metrics,
};

pub(super) struct Provider {
    issuer: String,
    discovery_url: Uri,
    client: Client,
    jwks_url: OnceLock<Uri>,
    keys: ArcSwap<Vec<PublicKey>>,
    /// When the keys were last fetched, or tried to. Held while they are fetched.
    fetched: tokio::sync::Mutex<Option<Instant>>,
    /// Whether the issuer was found; what went wrong until then.
    found: watch::Sender<Result<(), String>>,
    metrics: Metrics,
    /// The hash of the keys, as metrics show it.
    shown: Mutex<String>,
}

/// Compat: how often an issuer that was not found yet is tried.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(10);
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);
/// A larger document fails the fetch.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// More keys than this are not looked at.
const KEYS_MAX: usize = 256;
/// Anyone can send a token with a key that does not exist; the issuer is asked for new keys no more
/// often than this.
const FETCH_INTERVAL_MIN: Duration = Duration::from_secs(5);

impl Provider {
    /// Looks for the issuer in the background, until it is found or the provider is dropped.
    pub(super) fn start(
        config: &JwtConfig,
        metrics: Metrics,
        dial: Option<Arc<dyn Dial>>,
        tasks: &Tasks,
    ) -> Result<Arc<Self>, String> {
        let url = match config.discovery_url.as_str() {
            "" => format!("{}/.well-known/openid-configuration", config.url.trim_end_matches('/')),
            given => given.to_owned(),
        };
        let discovery_url =
            url.parse().map_err(|_| format!("oidc: invalid discovery URL: {url}"))?;
        let trust = match config.certificate_authority.as_str() {
            "" => Trust::System,
            bundle => Trust::Bundle(bundle.as_bytes().to_vec()),
        };
        let tls = client::Tls { trust, ..client::Tls::default() };
        let mut transport = client::Config { tls, ..client::Config::default() };
        if let Some(dial) = dial {
            transport.dial = dial;
        }
        let client = Client::new(transport);
        let missing =
            format!("oidc: authenticator for issuer {} is not initialized", quote(&config.url));
        let provider = Arc::new(Self {
            issuer: config.url.clone(),
            discovery_url,
            client: client.map_err(|error| format!("oidc: {error}"))?,
            jwks_url: OnceLock::new(),
            keys: ArcSwap::default(),
            fetched: tokio::sync::Mutex::new(None),
            found: watch::channel(Err(missing)).0,
            metrics,
            shown: Mutex::default(),
        });
        let discovered = Arc::downgrade(&provider);
        tasks.restarting("openid-discovery", move || discover(discovered.clone()));
        Ok(provider)
    }

    pub(super) async fn ready_before(&self, deadline: Instant) -> Result<(), String> {
        let mut found = self.found.subscribe();
        let ready = found.wait_for(Result::is_ok);
        match tokio::time::timeout_at(deadline.into(), ready).await {
            Ok(Ok(_)) => Ok(()),
            _ => {
                let why = self.found.borrow().clone().err().unwrap_or_default();
                let issuer = quote(&self.issuer);
                Err(format!("oidc: authenticator for issuer {issuer} is not healthy: {why}"))
            }
        }
    }

    /// Whether the issuer has signed a token. New keys are fetched if none of the known ones did.
    pub(super) async fn verify(&self, token: &Unverified<'_>) -> Result<(), String> {
        let Some(url) = self.jwks_url.get() else {
            return Err("oidc: authenticator not initialized".to_owned());
        };
        let known = self.keys.load_full();
        if token.is_signed_by_any(&known) {
            return Ok(());
        }
        let failed = || "oidc: verify token: failed to verify id token signature".to_owned();
        let mut fetched = self.fetched.lock().await;
        let current = self.keys.load_full();
        // Another request has fetched them meanwhile.
        if !Arc::ptr_eq(&known, &current) {
            return if token.is_signed_by_any(&current) { Ok(()) } else { Err(failed()) };
        }
        if fetched.is_some_and(|at| at.elapsed() < FETCH_INTERVAL_MIN) {
            return Err(failed());
        }
        let keys = self.fetch_keys(url).await;
        *fetched = Some(Instant::now());
        let keys = keys.map_err(|why| format!("oidc: verify token: fetching keys {why}"))?;
        let signed = token.is_signed_by_any(&keys);
        self.keys.store(Arc::new(keys));
        if signed { Ok(()) } else { Err(failed()) }
    }

    #[cfg(test)]
    pub(super) async fn forget_last_fetch(&self) {
        *self.fetched.lock().await = None;
    }

    async fn fetch_keys(&self, url: &Uri) -> Result<Vec<PublicKey>, String> {
        let fetched = self.fetch(url).await;
        let keys = fetched.and_then(|body| {
            let set = parse(&body)?;
            let keys = set.get("keys").and_then(Value::as_array).ok_or("no keys in the key set")?;
            let keys = keys.iter().take(KEYS_MAX).filter_map(PublicKey::from_jwk).collect();
            Ok((body, keys))
        });
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let body = keys.as_ref().ok().map(|(body, _): &(Bytes, Vec<PublicKey>)| &body[..]);
        self.metrics.jwks(&self.issuer, body, &mut shown);
        keys.map(|(_, keys)| keys)
    }

    async fn discover(&self) -> Result<(), String> {
        let document = parse(&self.fetch(&self.discovery_url).await?)?;
        let issuer = document.str_at(&["issuer"]);
        if issuer != self.issuer {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {} got {}",
                quote(&self.issuer),
                quote(issuer)
            ));
        }
        let url = document.str_at(&["jwks_uri"]);
        if url.is_empty() {
            return Err("provider did not return JWKS URL".to_owned());
        }
        let url: Uri = url.parse().map_err(|_| format!("jwks_uri {} is no URL", quote(url)))?;
        // Keys that anyone on the way can replace would prove nothing.
        if url.scheme_str() != self.discovery_url.scheme_str() {
            return Err(format!("jwks_uri {} must be https", quote(&url.to_string())));
        }
        let _ = self.jwks_url.set(url);
        Ok(())
    }

    async fn fetch(&self, url: &Uri) -> Result<Bytes, String> {
        self.get(url, HeaderMap::new()).await
    }

    /// Fetches with a token that the issuer has given for it; none, if it is empty.
    pub(super) async fn fetch_as(&self, url: &Uri, access_token: &str) -> Result<Bytes, String> {
        let mut headers = HeaderMap::new();
        if !access_token.is_empty() {
            let value = HeaderValue::from_str(&format!("Bearer {access_token}"));
            let mut value = value.map_err(|_| "the access token is no header".to_owned())?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        self.get(url, headers).await
    }

    async fn get(&self, url: &Uri, headers: HeaderMap) -> Result<Bytes, String> {
        let call = Call {
            method: Method::GET,
            url: url.clone(),
            headers,
            body: Bytes::new(),
            connect_to: None,
            deadline: tokio::time::Instant::now() + FETCH_TIMEOUT,
            response_bytes_max: DOCUMENT_BYTES_MAX,
        };
        let answer = self.client.call(call).await;
        let answer =
            answer.map_err(|error| url_error(&Method::GET, &url.to_string(), &go_text(&error)))?;
        if answer.status() != 200 {
            return Err(format!("{url}: {}", answer.status()));
        }
        Ok(answer.into_body())
    }
}

async fn discover(provider: Weak<Provider>) {
    loop {
        let Some(current) = provider.upgrade() else { return };
        match current.discover().await {
            Ok(()) => {
                drop(current.found.send_replace(Ok(())));
                return;
            }
            Err(why) => {
                let issuer = &current.issuer;
                tracing::error!(issuer, "oidc authenticator: initializing plugin: {why}");
                drop(current.found.send_replace(Err(why)));
            }
        }
        drop(current);
        tokio::time::sleep(DISCOVERY_INTERVAL).await;
    }
}

fn parse(body: &[u8]) -> Result<Value, String> {
    let decoded = decode_any(body, DecodeOptions { strict: false });
    decoded.map(|decoded| decoded.value).map_err(|error| format!("not JSON: {error}"))
}
