//! The flags about authentication, but for those of service account tokens.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use auth::{
    authn::{
        RequestHeader,
        oidc::{
            SIGNING_ALGORITHMS,
            config::{self, AuthenticationConfig, ClaimOrExpression, ClaimRule, JwtConfig},
        },
    },
    authz::config::{AuthorizationConfig, AuthorizerType},
};
use http::HeaderName;
use meta::Str;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};

use super::{CertKey, duration, path};
use crate::flags::{Parsed, quote};

#[derive(Clone, Debug)]
pub(crate) struct AuthenticationOptions {
    /// As the flag says, unless the file does.
    pub(crate) anonymous: bool,
    /// From `--authentication-config` or the `--oidc-*` flags.
    pub(crate) config: AuthenticationConfig,
    /// The file of the former with its content; followed while the server runs.
    pub(crate) config_file: Option<(PathBuf, Vec<u8>)>,
    /// The algorithms of JWTs.
    pub(crate) signing_algorithms: Vec<String>,
    pub(crate) client_ca_file: Option<PathBuf>,
    pub(crate) token_auth_file: Option<PathBuf>,
    pub(crate) bootstrap_tokens: bool,
    pub(crate) request_header: Option<RequestHeaderOptions>,
    pub(crate) token_webhook: Option<TokenWebhookOptions>,
    /// Certificates that this server shows as a client: read at start, so that a wrong one is found.
    pub(crate) client_pairs: Vec<(&'static str, CertKey)>,
}

#[derive(Clone, Debug)]
pub(crate) struct RequestHeaderOptions {
    pub(crate) client_ca_file: PathBuf,
    pub(crate) headers: RequestHeader,
    /// As the flags spell them, for aggregated API servers.
    pub(crate) published: PublishedHeaders,
}

/// The values of the `--requestheader-*` flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PublishedHeaders {
    pub(crate) allowed_names: Vec<String>,
    pub(crate) username_headers: Vec<String>,
    pub(crate) uid_headers: Vec<String>,
    pub(crate) group_headers: Vec<String>,
    pub(crate) extra_headers_prefix: Vec<String>,
}

impl PublishedHeaders {
    /// Those that this server sends, under the name in the certificate that it generates.
    pub(crate) fn generated() -> Self {
        let only = |name: &str| vec![name.to_owned()];
        Self {
            allowed_names: only("front-proxy-client"),
            username_headers: only("X-Remote-User"),
            uid_headers: only("X-Remote-Uid"),
            group_headers: only("X-Remote-Group"),
            extra_headers_prefix: only("X-Remote-Extra-"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TokenWebhookOptions {
    pub(crate) config_file: PathBuf,
    pub(crate) version: String,
    pub(crate) cache_ttl: Duration,
}

impl AuthenticationOptions {
    pub(super) fn from_flags(
        parsed: &Parsed,
        authorization: &AuthorizationConfig,
        service_account_issuers: &[Str],
        errors: &mut Vec<String>,
        warnings: &mut Vec<String>,
    ) -> Self {
        let mut anonymous = parsed.bool("anonymous-auth");
        // Compat: anonymous users would be allowed everything.
        if anonymous && authorization.has(AuthorizerType::AlwaysAllow) {
            anonymous = false;
            warnings.push(
                "AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting \
                 AnonymousAuth to false. You should use a different authorizer"
                    .to_owned(),
            );
        }
        let client_ca_file = path(parsed, "client-ca-file");
        let request_header = RequestHeaderOptions::from_flags(parsed, errors, warnings);
        if let (Some(client_ca), Some(front)) = (&client_ca_file, &request_header) {
            overlap(client_ca, front, errors, warnings);
        }
        let (config, config_file) = jwt_authenticators(parsed, errors);
        let wrong = config.validate(service_account_issuers);
        if !wrong.is_empty() {
            errors.push(format!("invalid authentication configuration: {wrong}"));
        }
        if config.anonymous.is_some() && parsed.is_set("anonymous-auth") {
            errors.push(
                "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is \
                 configured in authentication configuration file"
                    .to_owned(),
            );
        }
        let signing_algorithms = signing_algorithms(parsed, config_file.is_some(), errors);
        Self {
            anonymous,
            config,
            config_file,
            signing_algorithms,
            client_ca_file,
            token_auth_file: path(parsed, "token-auth-file"),
            bootstrap_tokens: parsed.bool("enable-bootstrap-token-auth"),
            request_header,
            token_webhook: path(parsed, "authentication-token-webhook-config-file").map(
                |config_file| TokenWebhookOptions {
                    config_file,
                    version: parsed.text("authentication-token-webhook-version"),
                    cache_ttl: duration(parsed, "authentication-token-webhook-cache-ttl"),
                },
            ),
            client_pairs: client_pairs(parsed, errors, warnings),
        }
    }
}

const OIDC_FLAGS: [&str; 9] = [
    "oidc-ca-file",
    "oidc-client-id",
    "oidc-groups-claim",
    "oidc-groups-prefix",
    "oidc-issuer-url",
    "oidc-required-claim",
    "oidc-signing-algs",
    "oidc-username-claim",
    "oidc-username-prefix",
];

/// The JWT authenticators of the file, or of the flags.
fn jwt_authenticators(
    parsed: &Parsed,
    errors: &mut Vec<String>,
) -> (AuthenticationConfig, Option<(PathBuf, Vec<u8>)>) {
    let flags_set = OIDC_FLAGS.iter().any(|flag| parsed.is_set(flag));
    if let Some(file) = path(parsed, "authentication-config") {
        if flags_set {
            let why = "authentication-config file and oidc-* flags are mutually exclusive";
            errors.push(why.to_owned());
        }
        return match config::load(&file) {
            Ok((content, config)) => (config, Some((file, content))),
            Err(why) => {
                errors.push(format!(
                    "failed to load authentication configuration from file {}: {why}",
                    quote(&file.display().to_string())
                ));
                Default::default()
            }
        };
    }
    let (issuer, client) = (parsed.text("oidc-issuer-url"), parsed.text("oidc-client-id"));
    if !flags_set {
        return Default::default();
    }
    if issuer.is_empty() || client.is_empty() {
        errors.push(
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags \
             are set"
                .to_owned(),
        );
        return Default::default();
    }
    let claim = parsed.text("oidc-username-claim");
    // Compat: names that are not e-mail addresses could be those of another issuer.
    let prefix = match parsed.text("oidc-username-prefix").as_str() {
        "" if claim != "email" => format!("{issuer}#"),
        "-" => String::new(),
        given => given.to_owned(),
    };
    let username = ClaimOrExpression { claim, prefix: Some(prefix), expression: String::new() };
    let groups = match parsed.text("oidc-groups-claim") {
        none if none.is_empty() => ClaimOrExpression::default(),
        claim => ClaimOrExpression {
            claim,
            prefix: Some(parsed.text("oidc-groups-prefix")),
            expression: String::new(),
        },
    };
    let certificate_authority = match path(parsed, "oidc-ca-file") {
        None => String::new(),
        Some(file) => std::fs::read_to_string(&file).unwrap_or_else(|error| {
            errors.push(format!("--oidc-ca-file {}: {error}", file.display()));
            String::new()
        }),
    };
    let required = parsed.map("oidc-required-claim").into_iter();
    let rule = |(claim, required_value): (String, String)| ClaimRule {
        claim,
        required_value,
        ..ClaimRule::default()
    };
    let jwt = JwtConfig {
        url: issuer,
        audiences: vec![client],
        certificate_authority,
        username,
        groups,
        claim_rules: required.map(rule).collect(),
        ..JwtConfig::default()
    };
    (AuthenticationConfig { jwt: vec![jwt], anonymous: None }, None)
}

/// A file allows every algorithm that fits a key of the issuer.
fn signing_algorithms(parsed: &Parsed, has_file: bool, errors: &mut Vec<String>) -> Vec<String> {
    if has_file {
        return SIGNING_ALGORITHMS.map(str::to_owned).to_vec();
    }
    let given = parsed.texts("oidc-signing-algs");
    for unknown in given.iter().filter(|name| !SIGNING_ALGORITHMS.contains(&name.as_str())) {
        errors.push(format!("oidc: unsupported signing alg: {}", quote(unknown)));
    }
    given
}

const FLAGS: [&str; 5] = [
    "requestheader-username-headers",
    "requestheader-group-headers",
    "requestheader-extra-headers-prefix",
    "requestheader-allowed-names",
    "requestheader-uid-headers",
];

impl RequestHeaderOptions {
    fn from_flags(
        parsed: &Parsed,
        errors: &mut Vec<String>,
        warnings: &mut Vec<String>,
    ) -> Option<Self> {
        let mut values = FLAGS.map(|flag| {
            let values = parsed.texts(flag);
            if values.iter().any(|value| value.trim().is_empty()) {
                errors.push(format!("empty value in {}", quote(flag)));
            }
            values
        });
        // Compat: kube-apiserver's words; the last one was added later and is an error.
        let standard = ["X-Remote-User", "X-Remote-Group", "X-Remote-Extra-", "", "X-Remote-Uid"];
        for ((flag, name), values) in FLAGS.iter().zip(standard).zip(&values) {
            let has_it = values.iter().any(|value| value.eq_ignore_ascii_case(name));
            if name.is_empty() || values.is_empty() || has_it {
                continue;
            }
            let what = if name.ends_with('-') { "header prefix" } else { "header" };
            let text = format!(
                "--{flag} is set without specifying the standard {name} {what} - API aggregation \
                 will not work"
            );
            if name == "X-Remote-Uid" { errors.push(text) } else { warnings.push(text) }
        }
        let Some(client_ca_file) = path(parsed, "requestheader-client-ca-file") else {
            for flag in FLAGS.iter().filter(|flag| parsed.is_changed(flag)) {
                warnings
                    .push(format!("--{flag} has no effect without --requestheader-client-ca-file"));
            }
            return None;
        };
        let mut names = |flag: &str, values: &[String]| -> Vec<HeaderName> {
            let mut names = Vec::new();
            for value in values.iter().map(|value| value.trim()) {
                match HeaderName::from_bytes(value.as_bytes()) {
                    Ok(name) => names.push(name),
                    Err(_) if value.is_empty() => {}
                    Err(_) => errors.push(format!("--{flag}: {} is not a header", quote(value))),
                }
            }
            names
        };
        let headers = RequestHeader {
            allowed_names: values[3].clone(),
            username_headers: names(FLAGS[0], &values[0]),
            group_headers: names(FLAGS[1], &values[1]),
            uid_headers: names(FLAGS[4], &values[4]),
            extra_prefixes: values[2].iter().map(|prefix| prefix.to_ascii_lowercase()).collect(),
        };
        let mut take = |at: usize| std::mem::take(&mut values[at]);
        let published = PublishedHeaders {
            username_headers: take(0),
            group_headers: take(1),
            extra_headers_prefix: take(2),
            allowed_names: take(3),
            uid_headers: take(4),
        };
        Some(Self { client_ca_file, headers, published })
    }
}

/// If a CA signs both users and front proxies, only its allowed names keep a user from naming another
/// one in headers.
fn overlap(
    client_ca: &Path,
    front: &RequestHeaderOptions,
    errors: &mut Vec<String>,
    warnings: &mut Vec<String>,
) {
    // A file that cannot be read is reported when it is loaded.
    let certificates = |file: &Path| -> Vec<CertificateDer<'static>> {
        let pem = std::fs::read(file).unwrap_or_default();
        CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect()
    };
    let (clients, proxies) = (certificates(client_ca), certificates(&front.client_ca_file));
    if !clients.iter().any(|certificate| proxies.contains(certificate)) {
        return;
    }
    if front.headers.allowed_names.is_empty() {
        errors.push(
            "--requestheader-client-ca-file and --client-ca-file contain overlapping \
             certificates; --requestheader-allowed-names must be specified to ensure regular \
             client certificates cannot set authenticating proxy headers for arbitrary users"
                .to_owned(),
        );
    } else {
        warnings.push(
            "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates: \
             every client certificate with a name of --requestheader-allowed-names can act as any \
             user"
                .to_owned(),
        );
    }
}

/// Client certificates that this server shows to others.
fn client_pairs(
    parsed: &Parsed,
    errors: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> Vec<(&'static str, CertKey)> {
    let flags = [
        (
            "kubelet-client-certificate",
            "kubelet-client-key",
            Some("Pintle does not connect to kubelets yet"),
        ),
        ("proxy-client-cert-file", "proxy-client-key-file", None),
    ];
    if parsed.is_changed("kubelet-certificate-authority") {
        let why = flags[0].2.unwrap_or_default();
        warnings.push(format!("--kubelet-certificate-authority is checked but not used: {why}"));
    }
    let mut pairs = Vec::new();
    for (cert, key, why) in flags {
        match (path(parsed, cert), path(parsed, key)) {
            (None, None) => {}
            (Some(cert_file), Some(key_file)) => {
                if let Some(why) = why {
                    warnings.push(format!("--{cert} and --{key} are checked but not used: {why}"));
                }
                pairs.push((cert, CertKey { cert_file, key_file }));
            }
            _ => errors.push(format!("--{cert} and --{key} go together")),
        }
    }
    pairs
}
