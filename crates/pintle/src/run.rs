//! From options to a running server, in the order in which things happen.

use std::{
    io::Write as _,
    path::Path,
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use admission::DynamicAdmission;
use aggregator::{Aggregator, ServedGroupVersion};
use apiextensions::CrdController;
use audit::{AuditMetrics, Auditor};
use auth::{
    Authenticator, Authorizer,
    authn::{Anonymous, BootstrapTokens, JwtAuthenticators, TokenWebhook, token_file::TokenFile},
    authz::{
        Abac, AuthorizerChain, FixedAuthorizers, config::AuthorizerType, node::NodeAuthorizer,
        rbac::Rbac,
    },
};
use builtin::{Definitions, StorageFormat, Wiring};
use codec::negotiate::{OFFERED, OFFERED_WITH_CBOR, Offered};
use endpoints::{Kinds, LoopbackClient, Resources};
use flowcontrol::FlowController;
use http::HeaderValue;
use registry::{Engine, Kind, Tuning};
use schema::{ResourceFacts, openapi::Describe as _};
use serve::{
    Chain, Claims, Cors, CpuPool, Delegate, Delegates, FlowControl, MaxInFlight, Tasks,
    connection::Limits,
    generic::Generic,
    health::{Check, Health},
    lifecycle::{InFlight, Lifecycle, ShutdownOptions, stop_signal},
    listener::{Listener, Sharing},
    metrics::Metrics,
    pki::{Pki, PkiPaths, ServerNames},
    tls::{NamedCertKey, Tls, TlsOptions},
};
use store::{
    Backend,
    encrypt::{Encrypted, Encryption, EncryptionConfig},
};
use tokio::sync::watch;

use crate::{
    access::{BearerTokens, RoleRules},
    build_metrics,
    discovery_publisher::{CachedKinds, DiscoveryPublisher},
    dynamic_admission, egress,
    in_process::{Api, Objects},
    logging::Verbosity,
    node_relations::NodeRelations,
    object_counts::CacheCounts,
    options::Options,
    post_start_hooks::{PostStartHooks, server_identity},
    quotas::{CountedUsage, Quotas},
    roles::RoleIndex,
    span_export, storage_metrics,
    stores::Stores,
    tokens::{OpenId, TokenObjects, Tokens},
};

/// Serves until a signal says stop. What goes wrong before that is returned in words.
pub(crate) fn run(
    options: &Options,
    definitions: Definitions,
    verbosity: Verbosity,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(meta::limits::THREAD_STACK_BYTES)
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    let served = runtime.block_on(serve(options, definitions, verbosity));
    // A thread that still computes is not waited for: the process ends all the same.
    runtime.shutdown_timeout(RUNTIME_GRACE);
    served
}

/// For tasks to end that are in the midst of something when the server has stopped.
const RUNTIME_GRACE: std::time::Duration = std::time::Duration::from_secs(5);

async fn serve(
    options: &Options,
    definitions: Definitions,
    verbosity: Verbosity,
) -> Result<(), String> {
    let shutdown = ShutdownOptions {
        delay: options.shutdown_delay_duration,
        send_retry_after: options.shutdown_send_retry_after,
        watch_grace_period: options.shutdown_watch_termination_grace_period,
        request_timeout: options.request_timeout,
    };
    // Asked for first: a signal that comes while starting is not lost.
    let stop = stop_signal(shutdown.longest())
        .map_err(|error| format!("cannot listen to signals: {error}"))?;
    let stores = Stores::open(options)?;
    stores.reachable(options).await?;
    let file = options.encryption.as_ref().map(|config| config.file.as_path());
    let encryption = encryption(file, &options.storage_prefix, &definitions)?;
    if let Err(error) = encryption.prime().await {
        // It may get well; until then what it encrypts can neither be read nor written.
        tracing::error!(%error, "a KMS plugin cannot be used yet");
    }
    let encrypted = |inner: Arc<dyn Backend>| -> Arc<dyn Backend> {
        Arc::new(Encrypted::new(inner, encryption.clone()))
    };
    let backend = encrypted(stores.backend());
    let overrides = stores.overrides().into_iter();
    let overrides = overrides.map(|(resource, inner)| (resource, encrypted(inner))).collect();
    let pki = prepare_pki(options)?;
    let tls = prepare_tls(options, &pki)?;

    let auth_metrics = auth::Metrics::new(&server_identity());
    let auth_stack = AuthStack::new(options, &pki, &auth_metrics)?;
    let cpu_pool = CpuPool::start(CpuPool::threads())
        .map_err(|error| format!("cannot start threads: {error}"))?;
    let gates = &options.feature_gates;
    let quotas = Arc::new(Quotas::default());
    let plugins = options.admission_plugins.build(&|gate| gates.enabled(gate), quotas.clone())?;
    let credentials = |plugin| options.admission_plugins.webhook_credentials(plugin);
    let dynamic_admission = Arc::new(DynamicAdmission::new(
        credentials("MutatingAdmissionWebhook")?,
        credentials("ValidatingAdmissionWebhook")?,
    ));
    let servers = Servers::build(
        options,
        definitions,
        &backend,
        overrides,
        &auth_stack,
        (plugins, dynamic_admission),
        cpu_pool,
    );
    servers.ready().await?;
    auth_stack.roles.follow(&servers.kinds, &servers.tasks);
    dynamic_admission::follow(&servers.dynamic_admission, &servers.kinds, &servers.tasks);
    auth_stack.nodes.connect(&servers.kinds);
    auth_stack.token_objects.connect(&servers.kinds, Arc::new(servers.api()));
    servers.connect().await?;
    quotas.connect(&servers.kinds, servers.local());
    let crd_controller = servers.crd_controller(options, &backend).await;

    let lifecycle = Arc::new(Lifecycle::default());
    let hooks = PostStartHooks::default();
    let mut checks = hooks.checks(options, &servers.kinds, &lifecycle);
    // Compat: behind ping and log.
    let etcd = stores.checks(options);
    checks.splice(2..2, etcd.into_iter().chain(kms_check(options, &encryption)));
    let health = Arc::new(Health::new(checks, options.livez_grace_period));
    let metrics = Metrics::new();
    storage_metrics::register(&metrics.registry, options, &servers.kinds, &servers.extensions);
    let tasks = &servers.tasks;
    tasks.register(&metrics.registry)?;
    storage_metrics::measure(&metrics.registry, options.size_metric_interval, &stores, tasks);
    auth_metrics.register(&metrics.registry)?;
    servers.publisher.register(&metrics.registry);
    servers.admission_metrics.register(&metrics.registry);
    servers.dynamic_admission.register_metrics(&metrics.registry);
    build_metrics::register(&metrics.registry, &options.version, &options.feature_gates);
    let in_flight = Arc::new(InFlight::default());
    let auditor = Auditor::start(&options.audit, AuditMetrics::register(&metrics.registry))?;
    let spans = span_export::start(options.tracing.as_ref(), &metrics.registry, tasks)?;
    let server = chain(
        options,
        &servers,
        &auth_stack,
        &health,
        &metrics,
        &in_flight,
        auditor.clone(),
        spans.as_ref().map(|exporter| exporter.tracer.clone()),
        verbosity,
    )?;
    let flow_controller = match &server.flow_control {
        FlowControl::PriorityAndFairness(controller) => Some(controller.clone()),
        FlowControl::MaxInFlight(_) => None,
    };

    let address = std::net::SocketAddr::new(options.bind_address, options.secure_port);
    let sharing =
        Sharing { address: options.permit_address_sharing, port: options.permit_port_sharing };
    let listener = Listener::bind(address, sharing)
        .map_err(|error| format!("failed to listen on {address}: {error}"))?;
    let bound = listener.address();
    let address = format!("{}:{}", options.external_hostname, bound.port());
    auth_stack.open_id.publish(&auth_stack.tokens, &options.service_accounts.jwks_uri, &address);
    servers.publisher.open(address);
    let limits =
        Limits { streams_max: options.http2_max_streams_per_connection, ..Limits::default() };
    let listening = listener.serve(tls.clone(), Arc::new(Chain(server)), limits);
    let failed = Box::new(listening.handshake_errors().clone());
    metrics.registry.register(failed).map_err(|error| error.to_string())?;
    tasks.restarting("tls-files", move || tls.clone().follow_files(RELOAD_INTERVAL));
    auth_stack.follow_files(options, tasks);
    if let Some(config) = options.encryption.as_ref().filter(|config| config.reload) {
        let (encryption, file) = (encryption.clone(), config.file.clone());
        tasks.restarting("encryption-config", move || {
            let connect = Box::new(kms::connect);
            encryption.clone().follow(file.clone(), ENCRYPTION_INTERVAL, connect)
        });
    }
    let (paths, names) = (pki_paths(options), server_names(options));
    tasks.restarting("certificate-renewal", move || {
        Pki::keep_renewed(paths.clone(), names.clone(), RENEWAL_INTERVAL)
    });

    let port = bound.port();
    hooks.start(options, &servers, &pki, &auth_stack.tokens, port, flow_controller).await?;
    let (publisher, api) = (servers.publisher.clone(), Arc::new(servers.api()));
    tasks.restarting("discovery-publisher", move || {
        let (publisher, api) = (publisher.clone(), api.clone());
        async move { publisher.run(&api).await }
    });
    tasks.critical("crd-controller", crd_controller.run());
    announce(options, &pki, bound)?;

    let before = hooks.before_shutdown();
    let flush = async {
        if let Some(auditor) = auditor {
            auditor.flush(AUDIT_FLUSH_MAX).await;
        }
        if let Some(spans) = spans {
            spans.flush(span_export::FLUSH_MAX).await;
        }
    };
    lifecycle.run(&listening, &in_flight, &shutdown, stop, before, flush).await;
    let left = tasks.stop(TASKS_GRACE).await;
    if left > 0 {
        tracing::warn!(tasks = left, "background tasks did not stop");
    }
    // Caches first, so that none of them takes the end of the store for a failure.
    servers.close();
    stores.close();
    Ok(())
}

/// For background tasks to stop when all requests have ended.
const TASKS_GRACE: std::time::Duration = std::time::Duration::from_secs(5);
/// Compat: what kube-apiserver gives the other servers to serve a new definition.
const ESTABLISH_AFTER: std::time::Duration = std::time::Duration::from_secs(5);
/// What audit backends get to send queued events at shutdown; the rest is lost, and counted.
const AUDIT_FLUSH_MAX: std::time::Duration = std::time::Duration::from_secs(15);
/// How often certificate files are looked at.
pub(crate) const RELOAD_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);
/// How often the encryption configuration is looked at.
const ENCRYPTION_INTERVAL: std::time::Duration = std::time::Duration::from_secs(2);
/// How often the generated certificates are looked at: they are renewed months before they run out.
const RENEWAL_INTERVAL: std::time::Duration = std::time::Duration::from_hours(12);

/// Which providers encrypt which resources; none without a configuration.
pub(crate) fn encryption(
    file: Option<&Path>,
    prefix: &str,
    definitions: &Definitions,
) -> Result<Arc<Encryption>, String> {
    let config = match file {
        Some(file) => EncryptionConfig::load(file, &kms::connect)?,
        None => EncryptionConfig::default(),
    };
    let stored = definitions.resources.iter().filter_map(|facts| {
        let storage = facts.storage.as_ref()?;
        let mut resource = facts.group_version_resource().group_resource();
        // Both groups of events are stored as those of the core group.
        if resource.resource == "events" {
            resource.group = meta::Str::default();
        }
        Some((storage.prefix.clone(), resource))
    });
    Ok(Arc::new(Encryption::new(prefix, stored, config)))
}

/// Compat: one check for all plugins, and one without any where they may come with a reload.
fn kms_check(options: &Options, encryption: &Arc<Encryption>) -> Option<Check> {
    let may_come = options.encryption.as_ref().is_some_and(|config| config.reload);
    let encryption = encryption.clone();
    (may_come || encryption.health().is_some())
        .then(|| Check::new("kms-providers", move || encryption.health().unwrap_or(Ok(()))))
}

fn prepare_pki(options: &Options) -> Result<Pki, String> {
    Pki::ensure(&pki_paths(options), &server_names(options), SystemTime::now())
        .map_err(|error| error.to_string())
}

fn pki_paths(options: &Options) -> PkiPaths {
    PkiPaths { data_dir: options.data_dir.clone(), cert_dir: options.cert_dir.clone() }
}

fn server_names(options: &Options) -> ServerNames {
    let own = [options.bind_address, options.advertise_address];
    ServerNames::new(&own, options.kubernetes_service_ip)
}

fn prepare_tls(options: &Options, pki: &Pki) -> Result<Arc<Tls>, String> {
    let (cert_file, key_file) = match &options.serving_cert {
        Some(pair) => (pair.cert_file.clone(), pair.key_file.clone()),
        None => (pki.serving_cert.clone(), pki.serving_key.clone()),
    };
    let tls = TlsOptions {
        cert_file,
        key_file,
        sni: options.sni_certs.iter().map(sni).collect(),
        client_ca_file: Some(client_ca_file(options, pki).to_owned()),
        request_header_ca_file: options
            .authentication
            .request_header
            .as_ref()
            .map(|front| front.client_ca_file.clone()),
        min_version: options.tls_min_version.name().to_owned(),
        cipher_suites: options.tls_cipher_suites.iter().map(|name| (*name).to_owned()).collect(),
        curve_preferences: options.tls_key_exchanges.iter().map(|kx| kx.id()).collect(),
        disable_http2: !options.http2,
    };
    Tls::new(&tls).map_err(|error| error.to_string())
}

/// The admin of `admin.kubeconfig` is known by the own CA unless another one is given.
pub(crate) fn client_ca_file<'a>(options: &'a Options, pki: &'a Pki) -> &'a Path {
    options.authentication.client_ca_file.as_ref().unwrap_or(&pki.ca_cert)
}

fn sni(given: &crate::flags::NamedCertKey) -> NamedCertKey {
    NamedCertKey {
        cert_file: given.cert_file.clone().into(),
        key_file: given.key_file.clone().into(),
        names: given.names.clone(),
    }
}

/// Authentication and authorization, as the flags put them together; reviews use the same.
struct AuthStack {
    authenticator: Arc<Authenticator>,
    authorizer: Arc<AuthorizerChain>,
    /// What RBAC decides by; empty until there is something to follow.
    roles: Arc<RoleIndex>,
    /// What nodes are allowed by.
    nodes: Arc<NodeRelations>,
    tokens: Arc<Tokens>,
    token_objects: Arc<TokenObjects>,
    open_id: Arc<OpenId>,
}

impl AuthStack {
    fn new(options: &Options, pki: &Pki, metrics: &auth::Metrics) -> Result<Self, String> {
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
        let tokens = Tokens::load(&options.service_accounts, pki)?;
        let token_objects = Arc::new(TokenObjects::default());
        let accounts = tokens.authenticator(&options.service_accounts, token_objects.clone());
        let webhook = match &authentication.token_webhook {
            None => None,
            Some(webhook) => {
                let audiences = tokens.audiences().to_vec();
                let (file, version) = (&webhook.config_file, &webhook.version);
                let made = TokenWebhook::load(file, version, audiences, webhook.cache_ttl, metrics);
                Some(
                    made.map_err(|why| {
                        format!("--authentication-token-webhook-config-file: {why}")
                    })?,
                )
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
            jwt: jwt_authenticators(options, metrics)?,
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
}

impl AuthStack {
    /// Reloads the configuration files of authentication and authorization when they change.
    fn follow_files(&self, options: &Options, tasks: &Tasks) {
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
) -> Result<Option<Arc<JwtAuthenticators>>, String> {
    let authentication = &options.authentication;
    // A file without issuers may get some.
    if authentication.config.jwt.is_empty() && authentication.config_file.is_none() {
        return Ok(None);
    }
    let algorithms = authentication.signing_algorithms.clone();
    let made = JwtAuthenticators::new(&authentication.config, algorithms, metrics)?;
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
    if let Some(file) = &options.kubelet_ca_file {
        let trust = client::Trust::File(file.clone());
        check("kubelet-certificate-authority", client::Tls { trust, ..client::Tls::default() })?;
    }
    if let Some(file) = &options.egress_selector_config {
        let flag = "--egress-selector-config-file";
        let warnings =
            egress::check(file).map_err(|why| format!("{flag} {}: {why}", file.display()))?;
        for warning in warnings {
            tracing::warn!("{flag}: {warning}");
        }
    }
    Ok(())
}

/// The three servers of the chain.
pub(crate) struct Servers {
    schema: Arc<schema::Schema>,
    aggregator: Arc<Aggregator>,
    pub(crate) publisher: Arc<DiscoveryPublisher>,
    /// Custom resources that have a cache, for the garbage collector.
    pub(crate) started: watch::Receiver<CachedKinds>,
    pub(crate) tasks: Tasks,
    /// The aggregator's own resources.
    registration: Arc<Resources>,
    builtin: Arc<Resources>,
    pub(crate) extensions: Arc<Resources>,
    pub(crate) kinds: Vec<Arc<Kind>>,
    pub(crate) wiring: Wiring,
    admission_metrics: admission::Metrics,
    /// Webhooks and policies.
    dynamic_admission: Arc<DynamicAdmission>,
    cpu_pool: CpuPool,
}

/// Compat: in the words of kube-apiserver, which scripts look for.
fn log_plugins(chain: &admission::Chain) {
    for (phase, names) in ["mutating", "validating"].into_iter().zip(chain.names()) {
        if !names.is_empty() {
            tracing::info!(
                "Loaded {} {phase} admission controller(s) successfully in the following order: {}.",
                names.len(),
                names.join(",")
            );
        }
    }
}

pub(crate) const REGISTRATION_GROUP: &str = "apiregistration.k8s.io";

impl Servers {
    fn build(
        options: &Options,
        mut definitions: Definitions,
        backend: &Arc<dyn Backend>,
        overrides: Vec<(meta::GroupResource, Arc<dyn Backend>)>,
        auth_stack: &AuthStack,
        (plugins, dynamic_admission): (Vec<Box<dyn admission::Plugin>>, Arc<DynamicAdmission>),
        cpu_pool: CpuPool,
    ) -> Self {
        let schema = Arc::new(std::mem::take(&mut definitions.schema));
        let served = |facts: &ResourceFacts| {
            let gv = facts.group_version();
            let gate = builtin::gate_of(&facts.kind);
            gate.is_none_or(|gate| options.feature_gates.enabled(gate.name()))
                && options.runtime_config.serves(
                    &gv.group,
                    &gv.version,
                    &facts.plural,
                    facts.on_by_default,
                )
        };
        let access = builtin::Access {
            authorizer: auth_stack.authorizer.clone(),
            rule_resolver: Arc::new(RoleRules(auth_stack.roles.clone())),
            token_authenticator: Arc::new(BearerTokens(auth_stack.authenticator.clone())),
        };
        let kind_options = builtin::Options {
            prefix: options.storage_prefix.clone(),
            form: options.etcd.as_ref().map_or(StorageFormat::Own, |etcd| etcd.form),
            overrides,
            from_store: from_store(options),
            event_ttl: options.event_ttl,
            crd_strategy: Arc::new(apiextensions::definition::CustomResourceDefinition),
            access,
            tokens: auth_stack.tokens.clone(),
            service_cluster_ip_ranges: options
                .service_cluster_ip_ranges
                .iter()
                .map(ToString::to_string)
                .collect(),
            service_node_ports: options.service_node_port_range.bounds(),
            allow_privileged: options.allow_privileged,
            features: builtin::FeatureGates::new(|gate| options.feature_gates.enabled(gate)),
        };
        let (kinds, wiring) =
            builtin::kinds(&definitions, &schema, &served, backend, &kind_options);
        let (custom, local) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
        let cluster = admission::Cluster {
            objects: Box::new(Objects::new(&kinds, custom.clone(), local.clone(), schema.clone())),
            authorizer: auth_stack.authorizer.clone(),
            dynamic_admission: dynamic_admission.clone(),
        };
        let admission = admission::Chain::new(plugins, cluster);
        log_plugins(&admission);
        let admission_metrics = admission.metrics().clone();
        let words = Box::new(field_descriptions);
        let engine = Engine::new(
            admission,
            auth_stack.authorizer.clone(),
            tuning(options),
            schema.clone(),
            words,
        );
        let resources = |name, wanted: &dyn Fn(&str) -> bool| {
            let kinds = kinds.iter().filter(|kind| wanted(&kind.gvk().group)).cloned();
            let resources = Resources::new(name, engine.clone(), Kinds::new(kinds));
            Arc::new(resources.with_cpu_pool(cpu_pool.clone()))
        };
        let registration = resources("kube-aggregator", &|group| group == REGISTRATION_GROUP);
        let extensions =
            resources("apiextensions-apiserver", &|group| group == apiextensions::GROUP);
        drop(custom.set(extensions.clone()));
        let builtin = resources("kube-apiserver", &|group| {
            group != REGISTRATION_GROUP && group != apiextensions::GROUP
        });
        drop(local.set(LoopbackClient::new(vec![
            registration.clone(),
            builtin.clone(),
            extensions.clone(),
        ])));
        let aggregator = Arc::new(Aggregator::default());
        let served = served_built_in(&definitions, &kinds);
        let (publisher, started) =
            DiscoveryPublisher::new(aggregator.clone(), schema.clone(), served, extensions.clone());
        Self {
            schema,
            aggregator,
            publisher,
            started,
            tasks: Tasks::default(),
            registration,
            builtin,
            extensions,
            kinds,
            wiring,
            admission_metrics,
            dynamic_admission,
            cpu_pool,
        }
    }

    /// Serves the custom resources that are defined already; it goes on with its `run`.
    async fn crd_controller(&self, options: &Options, backend: &Arc<dyn Backend>) -> CrdController {
        let mut kinds = self.kinds.iter();
        let definitions = kinds
            .find(|kind| kind.gvk().kind == "CustomResourceDefinition")
            .and_then(|kind| kind.storage.clone());
        CrdController::start(apiextensions::Options {
            definitions: definitions.expect("definitions are always served"),
            resources: self.extensions.clone(),
            local: self.local(),
            backend: backend.clone(),
            prefix: options.storage_prefix.clone(),
            from_store: from_store(options),
            schema: self.schema.clone(),
            event_handler: self.publisher.clone(),
            establish_after: if options.servers > 1 {
                ESTABLISH_AFTER
            } else {
                std::time::Duration::ZERO
            },
        })
        .await
    }

    /// All caches have read what there is.
    async fn ready(&self) -> Result<(), String> {
        for storage in self.kinds.iter().filter_map(|kind| kind.storage.as_ref()) {
            storage.cache.ready_or_corrupt().await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// What kinds do beyond keeping objects may now use the whole server.
    async fn connect(&self) -> Result<(), String> {
        let client = Arc::new(self.api());
        let connected = self.wiring.connect(client, &self.kinds).await;
        connected.map_err(|error| format!("cannot read the services: {error}"))
    }

    fn close(&self) {
        for storage in self.kinds.iter().filter_map(|kind| kind.storage.as_ref()) {
            storage.cache.close();
        }
    }

    pub(crate) fn api(&self) -> Api {
        let (kinds, extensions) = (self.kinds.clone(), self.extensions.clone());
        Api { local: self.local(), kinds, extensions }
    }

    /// What the quota controller counts.
    pub(crate) fn quota_usage(&self, options: &Options) -> Arc<CountedUsage> {
        let gates = &options.feature_gates;
        let custom = Arc::new(OnceLock::from(self.extensions.clone()));
        Arc::new(CountedUsage {
            evaluators: Arc::new(builtin::quota_evaluators(&|gate| gates.enabled(gate))),
            objects: Arc::new(Objects::new(
                &self.kinds,
                custom,
                Arc::default(),
                self.schema.clone(),
            )),
        })
    }

    fn local(&self) -> LoopbackClient {
        LoopbackClient::new(vec![
            self.registration.clone(),
            self.builtin.clone(),
            self.extensions.clone(),
        ])
    }
}

/// The built-in group-versions with their resources, as discovery shows them.
fn served_built_in(definitions: &Definitions, kinds: &[Arc<Kind>]) -> Vec<ServedGroupVersion> {
    let facts: Vec<Arc<ResourceFacts>> =
        kinds.iter().map(|kind| Arc::new(kind.facts.clone())).collect();
    let group_versions = definitions.group_versions.iter();
    let served = group_versions.map(|group_version| ServedGroupVersion::new(group_version, &facts));
    served.filter(|served| !served.resources.is_empty()).collect()
}

/// None: `--enable-priority-and-fairness=false`.
fn flow_controller(options: &Options, servers: &Servers) -> Option<Arc<FlowController>> {
    let seats = options.max_requests_inflight + options.max_mutating_requests_inflight;
    let resources = [&servers.builtin, &servers.extensions, &servers.registration];
    let options = options.priority_and_fairness.then(|| flowcontrol::Options {
        seats: u32::try_from(seats).unwrap_or(u32::MAX),
        lists_by_size: options.feature_gates.enabled("SizeBasedListCostEstimate"),
        counts: Arc::new(CacheCounts::new(resources.map(Arc::clone).to_vec())),
    })?;
    Some(Arc::new(FlowController::new(options)))
}

#[expect(clippy::too_many_arguments, reason = "all that the chain is put together from")]
fn chain(
    options: &Options,
    servers: &Servers,
    auth_stack: &AuthStack,
    health: &Arc<Health>,
    metrics: &Arc<Metrics>,
    in_flight: &Arc<InFlight>,
    audit: Option<Arc<Auditor>>,
    tracer: Option<trace::Tracer>,
    verbosity: Verbosity,
) -> Result<Arc<serve::Server>, String> {
    let flow_controller = flow_controller(options, servers);
    if let Some(controller) = &flow_controller {
        metrics.add_flow_control(controller.clone());
    }
    let aggregator = servers.aggregator.clone();
    let health_paths = health.paths();
    let index = move || {
        let mut paths = aggregator.paths();
        paths.extend(health_paths.iter().cloned());
        paths.extend(["/metrics", "/metrics/slis", "/version"].map(str::to_owned));
        paths.extend(OpenId::PATHS.map(str::to_owned));
        paths.sort();
        paths
    };
    let generic = Generic {
        health: health.clone(),
        metrics: metrics.clone(),
        version: options.version.json().into(),
        index: Box::new(index),
        flow_control: flow_controller.clone(),
        profiling: options.profiling,
        set_verbosity: Box::new(move |level| verbosity.set(level.unsigned_abs())),
    };
    let resources = |resources: &Arc<Resources>| -> (Arc<dyn Delegate>, Claims) {
        (resources.clone(), resources.claims())
    };
    let delegates = Delegates::new(
        vec![
            (Arc::new(generic), Generic::claims()),
            (auth_stack.open_id.clone(), OpenId::claims()),
            // The aggregator: discovery of the whole, and its own APIServices.
            (servers.aggregator.clone(), Aggregator::claims()),
            resources(&servers.registration),
            resources(&servers.builtin),
            // The end of the chain: what it doesn't serve is a 404.
            resources(&servers.extensions),
        ],
        servers.aggregator.clone(),
    );
    servers.extensions.connect(delegates.clone());
    let hsts = match options.strict_transport_security_directives.join("; ") {
        none if none.is_empty() => None,
        directives => Some(
            HeaderValue::from_str(&directives)
                .map_err(|_| "--strict-transport-security-directives: not a header".to_owned())?,
        ),
    };
    Ok(Arc::new(serve::Server {
        authenticator: auth_stack.authenticator.clone(),
        authorizer: auth_stack.authorizer.clone(),
        audit,
        tracer,
        constrained_impersonation: options.feature_gates.enabled("ConstrainedImpersonation"),
        unauthenticated_http2_dos_mitigation: options
            .feature_gates
            .enabled("UnauthenticatedHTTP2DOSMitigation"),
        delegates,
        in_flight: in_flight.clone(),
        metrics: metrics.clone(),
        cpu_pool: servers.cpu_pool.clone(),
        flow_control: match flow_controller {
            Some(controller) => FlowControl::PriorityAndFairness(controller),
            None => FlowControl::MaxInFlight(MaxInFlight::new(
                options.max_requests_inflight,
                options.max_mutating_requests_inflight,
            )),
        },
        request_timeout: options.request_timeout,
        cors: Cors::new(&options.cors_allowed_origins)?,
        hsts,
        goaway_chance: options.goaway_chance,
        offered: offered(options),
    }))
}

fn tuning(options: &Options) -> Tuning {
    Tuning {
        min_request_timeout: options.min_request_timeout,
        offered: offered(options),
        delete_collection_workers: options.delete_collection_workers,
        unsafe_deletion: options.feature_gates.enabled("AllowUnsafeMalformedObjectDeletion"),
    }
}

/// What is read from the store each time.
fn from_store(options: &Options) -> Arc<dyn Fn(&meta::GroupResource) -> bool + Send + Sync> {
    let watch_cache = options.watch_cache.clone();
    Arc::new(move |resource| watch_cache.is_off(resource))
}

/// The formats in which the API is spoken.
fn offered(options: &Options) -> Offered {
    if options.feature_gates.enabled("CBORServingAndStorage") { OFFERED_WITH_CBOR } else { OFFERED }
}

/// The one line on standard output: where the server is, and what to type.
fn announce(options: &Options, pki: &Pki, bound: std::net::SocketAddr) -> Result<(), String> {
    let host = if bound.ip().is_unspecified() {
        std::net::SocketAddr::new(options.advertise_address, bound.port())
    } else {
        bound
    };
    let url = format!("https://{host}");
    let server_ca = match &options.serving_cert {
        // The given certificate may be of any CA; the kubeconfig trusts the certificate itself.
        Some(pair) => Some(
            std::fs::read_to_string(&pair.cert_file)
                .map_err(|error| format!("{}: {error}", pair.cert_file.display()))?,
        ),
        None => None,
    };
    let kubeconfig = pki
        .write_admin_kubeconfig(&url, server_ca.as_deref())
        .map_err(|error| error.to_string())?;
    let line =
        format!("Ready at {url}; try: kubectl --kubeconfig {} get ns\n", kubeconfig.display());
    let mut out = std::io::stdout().lock();
    // Standard output may be closed; that is no reason to stop.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    Ok(())
}

/// What is said about fields of types. The texts are unpacked when a table asks for those of its
/// columns, which every kind does once.
fn field_descriptions(fields: &[(&str, &str)]) -> Vec<String> {
    let descriptions = descriptions::Descriptions::load();
    let text = |(definition, field): &(&str, &str)| descriptions.field(definition, field);
    fields.iter().map(|field| text(field).unwrap_or_default().into_owned()).collect()
}
