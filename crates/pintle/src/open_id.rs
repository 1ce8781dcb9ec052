//! `/.well-known/openid-configuration` and `/openid/v1/jwks`: how others check service account tokens.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use auth::authn::{jwt::PublicKey, service_account::PublicKeys as _};
use http::{HeaderValue, Method, Request, Response, header::CACHE_CONTROL, header::CONTENT_TYPE};
use hyper::body::Incoming;
use meta::{ApiError, Value, json};
use serve::{Body, Claims, Context, Delegate, Serving};

use crate::tokens::ServiceAccountTokens;

/// The documents; none before they are published, and none for an issuer that is no https URL.
#[derive(Default)]
pub(crate) struct OpenId(OnceLock<Published>);

struct Published {
    tokens: Arc<ServiceAccountTokens>,
    jwks_uri: String,
    documents: ArcSwapOption<Documents>,
}

struct Documents {
    configuration: String,
    keys: String,
    /// Of the external signer's keys.
    generation: u64,
}

const CONFIGURATION: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/openid/v1/jwks";
/// Compat: of keys in files, which change with a restart only.
const MAX_AGE_SECONDS: u64 = 3600;

impl OpenId {
    /// `address` is where others reach this server. Compat: an issuer that is no https URL can't be
    /// discovered, and is not.
    pub(crate) fn publish(
        &self,
        tokens: &Arc<ServiceAccountTokens>,
        jwks_uri: &str,
        address: &str,
    ) {
        let issuer = tokens.issuer();
        if !issuer.starts_with("https://") || issuer.contains(['?', '#']) {
            tracing::warn!(%issuer, "the issuer of tokens is no plain https URL: its keys are not published");
            return;
        }
        let jwks_uri = match jwks_uri {
            "" => format!("https://{address}{KEYS}"),
            given => given.to_owned(),
        };
        let published =
            Published { tokens: tokens.clone(), jwks_uri, documents: ArcSwapOption::empty() };
        let _ = self.0.set(published);
    }

    fn answer(&self, path: &str) -> Option<Response<Body>> {
        let published = self.0.get()?;
        let documents = published.current()?;
        let (content_type, body) = match path.strip_suffix('/').unwrap_or(path) {
            CONFIGURATION => ("application/json", &documents.configuration),
            KEYS => ("application/jwk-set+json", &documents.keys),
            _ => return None,
        };
        let external = published.tokens.external_keys();
        let max_age = external.map_or(MAX_AGE_SECONDS, |keys| keys.max_age().as_secs());
        let cache_control = HeaderValue::from_str(&format!("public, max-age={max_age}"));
        let mut response = Response::new(Body::full(body.clone()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(CACHE_CONTROL, cache_control.expect("digits are a header"));
        Some(response)
    }
}

impl Published {
    /// The documents of the keys that there are now. Compat: keys of which none may be published leave
    /// the last documents in place.
    fn current(&self) -> Option<Arc<Documents>> {
        let generation = self.tokens.external_keys().map_or(0, |keys| keys.generation());
        let known = self.documents.load_full();
        if known.as_ref().is_some_and(|known| known.generation == generation) {
            return known;
        }
        let keys = self.tokens.published_keys();
        if keys.is_empty() {
            return known;
        }
        let made = Arc::new(self.documents(&keys, generation));
        self.documents.store(Some(made.clone()));
        Some(made)
    }

    fn documents(&self, keys: &[PublicKey], generation: u64) -> Documents {
        let quoted = |text: &str| json::to_string(&Value::from(text));
        let mut algorithms: Vec<String> = keys.iter().map(|key| quoted(key.algorithm())).collect();
        algorithms.sort();
        algorithms.dedup();
        let configuration = format!(
            r#"{{"issuer":{},"jwks_uri":{},"response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":[{}]}}"#,
            quoted(self.tokens.issuer()),
            quoted(&self.jwks_uri),
            algorithms.join(",")
        );
        let keys: Vec<String> = keys.iter().map(PublicKey::to_jwk).collect();
        let keys = format!(r#"{{"keys":[{}]}}"#, keys.join(","));
        Documents { configuration, keys, generation }
    }
}

impl Delegate for OpenId {
    fn name(&self) -> &'static str {
        "openid"
    }

    fn serve<'a>(&'a self, cx: &'a mut Context, request: Request<Incoming>) -> Serving<'a> {
        Box::pin(async move {
            let answer = self.answer(&cx.info.path).ok_or(ApiError::UnknownPath)?;
            if *request.method() != Method::GET {
                return Err(ApiError::MethodNotAllowed);
            }
            let content_type = answer.headers().get(CONTENT_TYPE);
            let produced = content_type.and_then(|own| own.to_str().ok()).unwrap_or_default();
            serve::generic::accept_only(&request, produced)?;
            Ok(answer)
        })
    }
}

impl OpenId {
    pub(crate) fn claims() -> Claims {
        Claims { paths: Self::PATHS.to_vec(), ..Claims::default() }
    }

    pub(crate) const PATHS: [&str; 2] = [CONFIGURATION, KEYS];
}
