//! JSON Web Tokens in the compact form: made with one key, read with several. The algorithm of a service
//! account token is its key's, never the token's choice; tokens of OpenID issuers may use any signature
//! that fits the type of the key. What is not a signature (`none`, HS256, encryption) is not known.

mod der;
mod keys;
#[cfg(test)]
mod tests;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use codec::json::{DecodeOptions, decode_any};
use meta::{Value, value};

pub use self::keys::{PublicKey, SigningKey};

/// A token that is not believed yet.
#[derive(Debug)]
pub struct Unverified<'a> {
    header: Value,
    claims: Value,
    /// What was signed.
    message: &'a str,
    signature: Vec<u8>,
}

/// No token that this server makes is longer.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

impl<'a> Unverified<'a> {
    /// None: this is not a token in compact form.
    pub fn parse(token: &'a str) -> Option<Self> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (message, signature) = token.rsplit_once('.')?;
        let (header, payload) = message.split_once('.')?;
        if payload.contains('.') {
            return None;
        }
        let object = |text: &str| {
            let json = BASE64URL.decode(text).ok()?;
            let decoded = decode_any(&json, DecodeOptions { strict: true }).ok()?;
            // Two members of one name can be read in two ways.
            (decoded.strict.is_empty() && decoded.value.as_object().is_some())
                .then_some(decoded.value)
        };
        let (header, claims) = (object(header)?, object(payload)?);
        // Extensions that must be understood are not.
        if header.get("crit").is_some() {
            return None;
        }
        Some(Self { header, claims, message, signature: BASE64URL.decode(signature).ok()? })
    }

    /// The issuer that the token claims; unverified, so only good for choosing the verifier.
    pub fn issuer(&self) -> &str {
        self.claims.str_at(&["iss"])
    }

    pub(crate) fn claims(&self) -> &Value {
        &self.claims
    }

    pub(crate) fn algorithm(&self) -> &str {
        self.header.str_at(&["alg"])
    }

    pub(crate) fn key_id(&self) -> &str {
        self.header.str_at(&["kid"])
    }

    /// Whether one of these keys has signed the token, with the token's algorithm.
    pub(crate) fn is_signed_by_any(&self, keys: &[PublicKey]) -> bool {
        let (id, algorithm) = (self.key_id(), self.algorithm());
        let mut fitting = keys.iter().filter(|key| id.is_empty() || key.id() == id);
        fitting.any(|key| key.verifies_as(algorithm, self.message.as_bytes(), &self.signature))
    }

    pub(crate) fn into_claims(self) -> Value {
        self.claims
    }

    /// The claims, if one of these keys has signed them.
    pub fn verify(self, keys: &[PublicKey]) -> Result<Value, String> {
        let (id, algorithm) = (self.header.str_at(&["kid"]), self.header.str_at(&["alg"]));
        let mut fitting = keys.iter().filter(|key| id.is_empty() || key.id() == id).peekable();
        if fitting.peek().is_none() {
            return Err("invalid signature, no keys found".to_owned());
        }
        let signed = fitting.any(|key| {
            key.algorithm() == algorithm && key.verifies(self.message.as_bytes(), &self.signature)
        });
        // Compat: the words of the library that kube-apiserver uses.
        let wrong = "go-jose/go-jose: error in cryptographic primitive";
        if signed { Ok(self.claims) } else { Err(wrong.to_owned()) }
    }
}

impl SigningKey {
    /// A token with these claims.
    pub fn token(&self, claims: &Value) -> Result<String, String> {
        let public = self.public();
        let header = value!({"alg": (public.algorithm()), "kid": (public.id())});
        let [header, claims] =
            [&header, claims].map(|part| BASE64URL.encode(meta::json::to_string(part)));
        let message = format!("{header}.{claims}");
        let signature = BASE64URL.encode(self.sign(message.as_bytes())?);
        Ok(format!("{message}.{signature}"))
    }
}
