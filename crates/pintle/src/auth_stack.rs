//! Authentication and authorization, as the flags put them together.

use std::sync::Arc;

use auth::{
    Authenticator, Authorizer,
    authn::{Anonymous, BootstrapTokens, JwtAuthenticators, TokenWebhook, token_file::TokenFile},
    authz::{
        Abac, AuthorizerChain, FixedAuthorizers, config::AuthorizerType, node::NodeAuthorizer,
        rbac::Rbac,
    },
};
use background::Tasks;
use prometheus::Registry;
use serve::pki::Pki;

use crate::{
    node_relations::NodeRelations,
    open_id::OpenId,
    options::Options,
    roles::RoleIndex,
    serving::RELOAD_INTERVAL,
    tokens::{ServiceAccountTokens, TokenObjects},
};

/// Authentication and authorization, as the flags put them together; reviews use the same.
pub(crate) struct AuthStack {
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) authorizer: Arc<AuthorizerChain>,
    /// What RBAC decides by; empty until there is something to follow.
    pub(crate) roles: Arc<RoleIndex>,
    /// What nodes are allowed by.
    pub(crate) nodes: Arc<NodeRelations>,
    pub(crate) tokens: Arc<ServiceAccountTokens>,
    pub(crate) token_objects: Arc<TokenObjects>,
    pub(crate) open_id: Arc<OpenId>,
}

impl AuthStack {
    pub(crate) async fn new(
        options: &Options,
        pki: &Pki,
        metrics: &auth::Metrics,
        registry: &Registry,
        egress: auth::Egress,
        tasks: &Tasks,
    ) -> Result<Self, String> {
        let authentication = &options.authentication;
        check_client_files(options)?;
        let file = match &authentication.token_auth_file {
            None => None,
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|error| format!("--token-auth-file {}: {error}", file.display()))?;
                Some(TokenFile::parse(&text).map_err(|why| format!("--token-auth-file: {why}"))?)
            }
        };
        let tokens = ServiceAccountTokens::load(&options.service_accounts, pki, registry).await?;
        let token_objects = Arc::new(TokenObjects::default());
        let accounts =
            tokens.authenticator(&options.service_accounts, token_objects.clone(), metrics);
        let webhook =
            match &authentication.token_webhook {
                None => None,
                Some(webhook) => {
                    let audiences = tokens.audiences().to_vec();
                    let (file, version) = (&webhook.config_file, &webhook.version);
                    let made = TokenWebhook::load(
                        file,
                        version,
                        audiences,
                        webhook.cache_ttl,
                        metrics,
                        &egress,
                    );
                    Some(made.map_err(|why| {
                        format!("--authentication-token-webhook-config-file: {why}")
                    })?)
                }
            };
        let authenticator = Authenticator {
            request_header: authentication
                .request_header
                .as_ref()
                .map(|front| front.headers.clone()),
            tokens: file,
            service_accounts: Some(accounts),
            bootstrap_tokens: authentication
                .bootstrap_tokens
                .then(|| BootstrapTokens::new(token_objects.clone())),
            jwt: jwt_authenticators(options, metrics, egress.clone(), tasks)?,
            webhook,
            audiences: tokens.audiences().to_vec(),
            anonymous: authentication
                .config
                .anonymous
                .clone()
                .unwrap_or(Anonymous { enabled: authentication.anonymous, paths: Vec::new() }),
        };
        let roles = Arc::new(RoleIndex::default());
        let nodes = Arc::new(NodeRelations::default());
        let modes = &options.authorization.config;
        let fixed = FixedAuthorizers {
            node: modes
                .has(AuthorizerType::Node)
                .then(|| Arc::new(NodeAuthorizer::new(nodes.clone())) as Arc<dyn Authorizer>),
            rbac: modes
                .has(AuthorizerType::Rbac)
                .then(|| Arc::new(Rbac(roles.clone())) as Arc<dyn Authorizer>),
            abac: abac(options)?,
            webhook_dial: egress.control_plane,
        };
        let authorizer = Arc::new(AuthorizerChain::new(modes, fixed, metrics)?);
        Ok(Self {
            authenticator: Arc::new(authenticator),
            authorizer,
            roles,
            nodes,
            tokens: Arc::new(tokens),
            token_objects,
            open_id: Arc::default(),
        })
    }

    /// Reloads the configuration files of authentication and authorization when they change, and the keys
    /// of an external signer.
    pub(crate) fn follow_files(&self, options: &Options, tasks: &Tasks) {
        if let Some(keys) = self.tokens.external_keys().cloned() {
            tasks.restarting("external-signer-keys", move || keys.clone().keep_fresh());
        }
        let issuers = options.service_accounts.issuers.clone();
        let file = options.authentication.config_file.clone();
        if let (Some(jwt), Some((file, content))) = (&self.authenticator.jwt, file) {
            let follow = jwt.clone().follow(file, content, issuers, RELOAD_INTERVAL);
            tasks.critical("authentication-config", follow);
        }
        if let Some((file, content)) = options.authorization.file.clone() {
            let follow = self.authorizer.clone().follow(file, content, RELOAD_INTERVAL);
            tasks.critical("authorization-config", follow);
        }
    }
}

fn jwt_authenticators(
    options: &Options,
    metrics: &auth::Metrics,
    egress: auth::Egress,
    tasks: &Tasks,
) -> Result<Option<Arc<JwtAuthenticators>>, String> {
    let authentication = &options.authentication;
    // A file without issuers may get some.
    if authentication.config.jwt.is_empty() && authentication.config_file.is_none() {
        return Ok(None);
    }
    let algorithms = authentication.signing_algorithms.clone();
    let config = &authentication.config;
    let made = JwtAuthenticators::new(config, algorithms, metrics, egress, tasks)?;
    Ok(Some(Arc::new(made)))
}

/// The policies of mode ABAC, if it is one of the modes.
fn abac(options: &Options) -> Result<Option<Arc<dyn Authorizer>>, String> {
    let modes = &options.authorization.config;
    let file = options.authorization.policy_file.as_ref();
    let Some(file) = file.filter(|_| modes.has(AuthorizerType::Abac)) else { return Ok(None) };
    let named = |why: String| format!("--authorization-policy-file {}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    Ok(Some(Arc::new(Abac::parse(&text).map_err(named)?)))
}

/// Reads the files of flags for outgoing connections, so that a wrong one stops the start and not a
/// later call.
fn check_client_files(options: &Options) -> Result<(), String> {
    let check = |flag: &str, tls: client::Tls| {
        let config = client::Config { tls, ..client::Config::default() };
        client::Client::new(config).map_err(|error| format!("--{flag}: {error}"))
    };
    for (flag, pair) in &options.authentication.client_pairs {
        let identity = client::Identity {
            certificate: client::Pem::File(pair.cert_file.clone()),
            key: client::Pem::File(pair.key_file.clone()),
        };
        check(flag, client::Tls { identity: Some(identity), ..client::Tls::default() })?;
    }
    Ok(())
}
