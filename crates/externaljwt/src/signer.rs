//! Tokens signed by the other program.

use std::sync::Arc;
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use codec::json::{DecodeOptions, decode_any};
use meta::{Value, field::quote, json};

use crate::{
    Metrics,
    client::{Client, SignJwtResponse},
    key_cache::KeyCache,
    metrics::Failure,
};

pub struct ExternalSigner {
    client: Arc<Client>,
    keys: Arc<KeyCache>,
    metrics: Metrics,
    max_expiration: Duration,
}

/// Compat: a signer that signs for less is refused.
const EXPIRATION_SECONDS_MIN: i64 = 600;
const KEY_ID_BYTES_MAX: usize = 1024;
const ALGORITHMS: [&str; 4] = ["RS256", "ES256", "ES384", "ES512"];

impl ExternalSigner {
    /// Waits for the signer to be there, and asks it for its keys and bounds.
    pub async fn connect(endpoint: &str, metrics: Metrics) -> Result<Self, String> {
        let setting_up = |why: &str| format!("while setting up external-jwt-signer: {why}");
        let client = Arc::new(Client::new(endpoint, metrics.clone()));
        let keys = KeyCache::filled(client.clone(), metrics.clone()).await;
        let keys = keys.map_err(|failure| setting_up(&failure.why))?;
        let seconds = client.max_token_expiration().await;
        let seconds = seconds.map_err(|error| setting_up(&error.to_string()))?;
        if seconds < EXPIRATION_SECONDS_MIN {
            return Err(format!(
                "max token life supported by external-jwt-signer ({seconds}s) is less than \
                 acceptable (min {EXPIRATION_SECONDS_MIN}s)"
            ));
        }
        let max_expiration = Duration::from_secs(seconds.unsigned_abs());
        Ok(Self { client, keys: Arc::new(keys), metrics, max_expiration })
    }

    pub fn keys(&self) -> &Arc<KeyCache> {
        &self.keys
    }

    /// The longest life of a token that it signs.
    pub fn max_expiration(&self) -> Duration {
        self.max_expiration
    }

    /// A token with these claims.
    pub async fn token(&self, claims: &Value) -> Result<String, String> {
        let token = self.sign(claims).await;
        self.metrics.signed(&token);
        token.map_err(|failure| failure.why)
    }

    async fn sign(&self, claims: &Value) -> Result<String, Failure> {
        let payload = BASE64URL.encode(json::to_string(claims));
        let signed = self.client.sign(payload.clone()).await;
        let SignJwtResponse { header, signature } =
            signed.map_err(|error| Failure::call("while signing jwt", &error))?;
        let id = key_id(&header);
        let id = id.map_err(|why| Failure::answer(format!("while validating header: {why}")))?;
        // The key may be newer than what is known here.
        let keys = self.keys.of_id(&id, Duration::ZERO).await;
        if keys.iter().any(|key| key.excluded_from_discovery) {
            return Err(Failure::answer(format!(
                "while validating header: key used for signing JWT (kid: {id}) is excluded from \
                 OIDC discovery docs"
            )));
        }
        if signature.is_empty() {
            return Err(Failure::answer("empty signature returned"));
        }
        Ok(format!("{header}.{payload}.{signature}"))
    }
}

/// The id of the key that has signed, if the header is one that this server would have made.
fn key_id(header: &str) -> Result<String, String> {
    let json = BASE64URL.decode(header);
    let json = json.map_err(|error| format!("while unwrapping header: {error}"))?;
    let decoded = decode_any(&json, DecodeOptions { strict: true });
    let decoded = decoded.map_err(|error| format!("while parsing header JSON: {error}"))?;
    let Some(members) = decoded.value.as_object().filter(|_| decoded.strict.is_empty()) else {
        return Err("while parsing header JSON: not an object".to_owned());
    };
    let known = ["alg", "kid", "typ"];
    if let Some((name, _)) = members.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        return Err(format!("while parsing header JSON: json: unknown field {}", quote(name)));
    }
    let text = |name: &str| decoded.value.str_at(&[name]);
    let (algorithm, id) = (text("alg"), text("kid"));
    if text("typ") != "JWT" {
        return Err("bad type".to_owned());
    }
    if id.is_empty() {
        return Err("key id missing".to_owned());
    }
    if id.len() > KEY_ID_BYTES_MAX {
        return Err("key id longer than 1 kb".to_owned());
    }
    if !ALGORITHMS.contains(&algorithm) {
        return Err(format!("bad signing algorithm {}", quote(algorithm)));
    }
    Ok(id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_checked_in_the_words_of_kube_apiserver() {
        let long = format!(r#"{{"alg":"RS256","kid":"{}","typ":"JWT"}}"#, "k".repeat(1025));
        let cases = [
            (r#"{"alg":"ES256","kid":"k","typ":"JWT"}"#, Ok("k")),
            (r#"{"alg":"ES256","kid":"k"}"#, Err("bad type")),
            (r#"{"alg":"ES256","typ":"JWT"}"#, Err("key id missing")),
            (long.as_str(), Err("key id longer than 1 kb")),
            (r#"{"alg":"none","kid":"k","typ":"JWT"}"#, Err("bad signing algorithm \"none\"")),
            (r#"{"alg":"HS256","kid":"k","typ":"JWT"}"#, Err("bad signing algorithm \"HS256\"")),
            (
                r#"{"alg":"ES256","kid":"k","typ":"JWT","jku":"https://x"}"#,
                Err("while parsing header JSON: json: unknown field \"jku\""),
            ),
            ("[]", Err("while parsing header JSON: not an object")),
            (
                r#"{"alg":"ES256","alg":"none","kid":"k","typ":"JWT"}"#,
                Err("while parsing header JSON: not an object"),
            ),
        ];
        for (header, expected) in cases {
            let found = key_id(&BASE64URL.encode(header));
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{header}");
        }
        let refused = key_id("not base64!").expect_err("no header");
        assert!(refused.starts_with("while unwrapping header: "), "{refused}");
    }
}
