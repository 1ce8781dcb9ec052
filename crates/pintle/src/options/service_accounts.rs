//! The flags about service account tokens.

use std::{path::PathBuf, time::Duration};

use meta::Str;

use super::duration;
use crate::flags::{Parsed, quote};

#[derive(Clone, Debug)]
pub(crate) struct ServiceAccountOptions {
    /// The first issuer signs; all are accepted.
    pub(crate) issuers: Vec<Str>,
    /// The audiences of this server.
    pub(crate) audiences: Vec<Str>,
    /// Empty: the public key of the signing key.
    pub(crate) key_files: Vec<PathBuf>,
    /// None: the key that Pintle has generated.
    pub(crate) signing_key_file: Option<PathBuf>,
    /// The socket of a program that signs instead.
    pub(crate) signing_endpoint: Option<String>,
    pub(crate) lookup: bool,
    /// Zero: as requested.
    pub(crate) max_expiration: Duration,
    pub(crate) extend_expiration: bool,
    /// Empty: the address of this server.
    pub(crate) jwks_uri: String,
}

/// kubeadm's default issuer.
const ISSUER_DEFAULT: &str = "https://kubernetes.default.svc.cluster.local";
const EXPIRATION_MIN: Duration = Duration::from_hours(1);
const EXPIRATION_MAX: Duration = Duration::from_secs(1 << 32);

impl ServiceAccountOptions {
    pub(super) fn from_flags(parsed: &Parsed, errors: &mut Vec<String>) -> Self {
        let mut issuers: Vec<Str> = Vec::new();
        for issuer in parsed.texts("service-account-issuer") {
            if issuer.is_empty() {
                errors.push("service-account-issuer should not be an empty string".to_owned());
            } else if issuers.iter().any(|known| *known == issuer) {
                let issuer = quote(&issuer);
                errors.push(format!("service-account-issuer {issuer} is already specified"));
            } else {
                issuers.push(issuer.into());
            }
        }
        if issuers.is_empty() {
            issuers.push(Str::new_static(ISSUER_DEFAULT));
        }
        let mut audiences: Vec<Str> =
            parsed.texts("api-audiences").into_iter().map(Str::from).collect();
        if audiences.is_empty() {
            audiences.clone_from(&issuers);
        }
        let max_expiration = duration(parsed, "service-account-max-token-expiration");
        let negative = parsed.nanos("service-account-max-token-expiration") < 0;
        let bounds = EXPIRATION_MIN..=EXPIRATION_MAX;
        if negative || (!max_expiration.is_zero() && !bounds.contains(&max_expiration)) {
            errors.push(
                "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"
                    .to_owned(),
            );
        }
        let jwks_uri = parsed.text("service-account-jwks-uri");
        if !jwks_uri.is_empty() && !jwks_uri.starts_with("https://") {
            errors.push(format!(
                "service-account-jwks-uri requires https scheme, parsed as: {jwks_uri}"
            ));
        }
        let key_files: Vec<PathBuf> =
            parsed.texts("service-account-key-file").into_iter().map(PathBuf::from).collect();
        let signing_key_file = super::path(parsed, "service-account-signing-key-file");
        let signing_endpoint = parsed.text("service-account-signing-endpoint");
        let signing_endpoint = Some(signing_endpoint).filter(|endpoint| !endpoint.is_empty());
        if let Some(endpoint) = &signing_endpoint {
            if signing_key_file.is_some() || !key_files.is_empty() {
                errors.push(
                    "can't set `--service-account-signing-key-file` and/or \
                     `--service-account-key-file` with `--service-account-signing-endpoint` (They \
                     are mutually exclusive)"
                        .to_owned(),
                );
            }
            if !is_socket_name(endpoint) {
                errors.push(format!(
                    "invalid value {} passed for `--service-account-signing-endpoint`, when \
                     prefixed with @ must be a valid abstract socket name",
                    quote(endpoint)
                ));
            }
        }
        Self {
            issuers,
            audiences,
            key_files,
            signing_key_file,
            signing_endpoint,
            lookup: parsed.bool("service-account-lookup"),
            max_expiration,
            extend_expiration: parsed.bool("service-account-extend-token-expiration"),
            jwks_uri,
        }
    }
}

/// Compat: what kube-apiserver takes for an abstract socket: letters, digits, `_` and `-`, in parts with
/// dots between them.
fn is_socket_name(endpoint: &str) -> bool {
    let Some(name) = endpoint.strip_prefix('@') else { return true };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    name.split('.').all(|part| !part.is_empty() && part.bytes().all(plain))
}
