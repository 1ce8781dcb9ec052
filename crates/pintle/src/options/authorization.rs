//! `--authorization-config`, or the flags that say the same: the authorizers in their order.

use std::{path::PathBuf, time::Duration};

use auth::authz::{
    config::{self, AuthorizationConfig, AuthorizerConfig, AuthorizerType},
    webhook::WebhookConfig,
};

use super::{duration, path};
use crate::flags::{Parsed, quote};

#[derive(Clone, Debug, Default)]
pub(crate) struct AuthorizationOptions {
    pub(crate) config: AuthorizationConfig,
    /// The file it comes from, with its content; followed while the server runs.
    pub(crate) file: Option<(PathBuf, Vec<u8>)>,
    /// Of mode ABAC.
    pub(crate) policy_file: Option<PathBuf>,
}

/// Unlike kube-apiserver, whose default is AlwaysAllow.
const DEFAULT: [AuthorizerType; 2] = [AuthorizerType::Node, AuthorizerType::Rbac];
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
/// The flags that a configuration file replaces.
const REPLACED: [&str; 5] = [
    "authorization-mode",
    "authorization-webhook-config-file",
    "authorization-webhook-version",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
];

impl AuthorizationOptions {
    pub(super) fn from_flags(parsed: &Parsed, errors: &mut Vec<String>) -> Self {
        let policy_file = path(parsed, "authorization-policy-file");
        let Some(file) = path(parsed, "authorization-config") else {
            let authorizers = modes(parsed, errors);
            let config = AuthorizationConfig { authorizers };
            return Self { config, file: None, policy_file };
        };
        if REPLACED.iter().any(|flag| parsed.is_set(flag)) {
            errors.push(
                "--authorization-config can not be specified when --authorization-mode or \
                 --authorization-webhook-* flags are defined"
                    .to_owned(),
            );
        }
        match config::load(&file) {
            Err(why) => {
                errors.push(format!("--authorization-config {}: {why}", file.display()));
                Self::default()
            }
            Ok((content, config)) => {
                if config.has(AuthorizerType::Abac) && policy_file.is_none() {
                    errors.push(NO_POLICY.to_owned());
                }
                Self { config, file: Some((file, content)), policy_file }
            }
        }
    }
}

const NO_POLICY: &str = "authorization-mode ABAC's authorization policy file not passed";

fn modes(parsed: &Parsed, errors: &mut Vec<String>) -> Vec<AuthorizerConfig> {
    let names = parsed.texts("authorization-mode");
    let mut modes: Vec<AuthorizerType> = Vec::new();
    if !parsed.is_changed("authorization-mode") {
        modes.extend(DEFAULT);
    } else if names.is_empty() {
        errors.push("at least one authorization-mode must be passed".to_owned());
    }
    let webhook = path(parsed, "authorization-webhook-config-file");
    for name in &names {
        let Some(mode) = AuthorizerType::parse(name) else {
            errors.push(format!("authorization-mode {} is not a valid mode", quote(name)));
            continue;
        };
        if mode == AuthorizerType::Abac && path(parsed, "authorization-policy-file").is_none() {
            errors.push(NO_POLICY.to_owned());
        }
        if mode == AuthorizerType::Webhook && webhook.is_none() {
            let why = "authorization-mode Webhook's authorization config file not passed";
            errors.push(why.to_owned());
        }
        modes.push(mode);
    }
    let without = |mode: AuthorizerType, flag: &str| {
        (parsed.is_changed(flag) && !modes.contains(&mode))
            .then(|| format!("cannot specify --{flag} without mode {}", mode.name()))
    };
    errors.extend(without(AuthorizerType::Abac, "authorization-policy-file"));
    errors.extend(without(AuthorizerType::Webhook, "authorization-webhook-config-file"));
    let repeated = modes.iter().enumerate().any(|(at, mode)| modes[..at].contains(mode));
    if repeated {
        let names: Vec<String> = names.iter().map(|name| quote(name)).collect();
        let names = names.join(" ");
        errors.push(format!("authorization-mode [{names}] has mode specified more than once"));
    }
    let authorizer = |mode: AuthorizerType| match (mode, &webhook) {
        (AuthorizerType::Webhook, Some(kubeconfig)) => AuthorizerConfig {
            name: "default".to_owned(),
            webhook: Some(WebhookConfig {
                kubeconfig: kubeconfig.clone(),
                timeout: WEBHOOK_TIMEOUT,
                authorized_ttl: duration(parsed, "authorization-webhook-cache-authorized-ttl"),
                unauthorized_ttl: duration(parsed, "authorization-webhook-cache-unauthorized-ttl"),
                version: parsed.text("authorization-webhook-version"),
                // Compat: a webhook of flags leaves the decision to the next mode when it fails.
                denies_on_failure: false,
                match_conditions: Vec::new(),
            }),
            kind: mode,
        },
        _ => AuthorizerConfig::of(mode),
    };
    modes.into_iter().map(authorizer).collect()
}
