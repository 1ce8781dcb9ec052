//! From options to a running server, in the order in which things happen.

use std::{
    io::Write as _,
    path::Path,
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use aggregator::{Aggregator, ServedGroupVersion};
use apiextensions::CrdController;
use auth::{
    Authenticator, Authorizer,
    authn::{Anonymous, BootstrapTokens, TokenWebhook, token_file::TokenFile},
    authz::{AlwaysAllow, AlwaysDeny, PrivilegedGroup, Union, node::NodeAuthorizer, rbac::Rbac},
};
use builtin::{Definitions, StorageFormat, Wiring};
use codec::negotiate::{OFFERED, OFFERED_WITH_CBOR, Offered};
use endpoints::{Kinds, LoopbackClient, Resources};
use flowcontrol::FlowController;
use http::HeaderValue;
use parking_lot::Mutex;
use registry::{Engine, Kind, Tuning};
use schema::{ResourceFacts, openapi::Describe as _};
use serve::{
    Chain, Claims, Cors, Delegate, Delegates, FlowControl, MaxInFlight,
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
use tokio::sync::mpsc;

use crate::{
    access::{BearerTokens, RoleRules},
    build_metrics,
    discovery_publisher::DiscoveryPublisher,
    egress,
    in_process::{Api, Objects},
    logging::Verbosity,
    node_relations::NodeRelations,
    object_counts::CacheCounts,
    options::{AuthorizationMode, Options},
    post_start_hooks::PostStartHooks,
    roles::RoleIndex,
    storage_metrics,
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
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.block_on(serve(options, definitions, verbosity))
}

async fn serve(
    options: &Options,
    definitions: Definitions,
    verbosity: Verbosity,
) -> Result<(), String> {
    // Asked for first: a signal that comes while starting is not lost.
    let stop = stop_signal().map_err(|error| format!("cannot listen to signals: {error}"))?;
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

    let auth_stack = AuthStack::new(options, &pki)?;
    let gates = &options.feature_gates;
    let plugins = options.admission_plugins.build(&|gate| gates.enabled(gate))?;
    let servers = Servers::build(options, definitions, &backend, overrides, &auth_stack, plugins);
    servers.ready().await?;
    auth_stack.roles.follow(&servers.kinds);
    auth_stack.nodes.connect(&servers.kinds);
    auth_stack.token_objects.connect(&servers.kinds, Arc::new(servers.api()));
    servers.connect().await?;
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
    storage_metrics::measure(&metrics.registry, options.size_metric_interval, &stores);
    servers.publisher.register(&metrics.registry);
    servers.admission_metrics.register(&metrics.registry);
    build_metrics::register(&metrics.registry, &options.version, &options.feature_gates);
    let in_flight = Arc::new(InFlight::default());
    let server = chain(options, &servers, &auth_stack, &health, &metrics, &in_flight, verbosity)?;
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
    tokio::spawn(tls.follow_files(RELOAD_INTERVAL));
    if let Some(config) = options.encryption.as_ref().filter(|config| config.reload) {
        let connect = Box::new(kms::connect);
        tokio::spawn(encryption.clone().follow(config.file.clone(), ENCRYPTION_INTERVAL, connect));
    }
    tokio::spawn(Pki::keep_renewed(pki_paths(options), server_names(options), RENEWAL_INTERVAL));

    let port = bound.port();
    hooks.start(options, &servers, &pki, &auth_stack.tokens, port, flow_controller).await?;
    tokio::spawn(servers.publisher.clone().run(servers.api()));
    tokio::spawn(crd_controller.run());
    announce(options, &pki, bound)?;

    let shutdown = ShutdownOptions {
        delay: options.shutdown_delay_duration,
        send_retry_after: options.shutdown_send_retry_after,
        watch_grace_period: options.shutdown_watch_termination_grace_period,
        request_timeout: options.request_timeout,
    };
    let before = hooks.before_shutdown();
    lifecycle.run(&listening, &in_flight, &shutdown, stop, before, async {}).await;
    // Caches first, so that none of them takes the end of the store for a failure.
    servers.close();
    stores.close();
    Ok(())
}

/// Compat: what kube-apiserver gives the other servers to serve a new definition.
const ESTABLISH_AFTER: std::time::Duration = std::time::Duration::from_secs(5);
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
    authorizer: Arc<dyn Authorizer>,
    /// What RBAC decides by; empty until there is something to follow.
    roles: Arc<RoleIndex>,
    /// What nodes are allowed by.
    nodes: Arc<NodeRelations>,
    tokens: Arc<Tokens>,
    token_objects: Arc<TokenObjects>,
    open_id: Arc<OpenId>,
}

impl AuthStack {
    fn new(options: &Options, pki: &Pki) -> Result<Self, String> {
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
        let webhook =
            match &authentication.token_webhook {
                None => None,
                Some(webhook) => {
                    let audiences = tokens.audiences().to_vec();
                    let (file, version) = (&webhook.config_file, &webhook.version);
                    let made = TokenWebhook::load(file, version, audiences, webhook.cache_ttl);
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
            webhook,
            audiences: tokens.audiences().to_vec(),
            anonymous: Anonymous { enabled: authentication.anonymous, paths: Vec::new() },
        };
        let roles = Arc::new(RoleIndex::default());
        let nodes = Arc::new(NodeRelations::default());
        let mut authorizers: Vec<Arc<dyn Authorizer>> = vec![Arc::new(PrivilegedGroup)];
        authorizers.extend(options.authorization_modes.iter().map(|mode| -> Arc<dyn Authorizer> {
            match mode {
                AuthorizationMode::AlwaysAllow => Arc::new(AlwaysAllow),
                AuthorizationMode::AlwaysDeny => Arc::new(AlwaysDeny),
                AuthorizationMode::Node => Arc::new(NodeAuthorizer::new(nodes.clone())),
                AuthorizationMode::Rbac => Arc::new(Rbac(roles.clone())),
            }
        }));
        let authorizer = Arc::new(Union(authorizers));
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
    /// New caches of custom resources, for the garbage collector.
    pub(crate) started: Mutex<Option<mpsc::UnboundedReceiver<Arc<Kind>>>>,
    /// The aggregator's own resources.
    registration: Arc<Resources>,
    builtin: Arc<Resources>,
    pub(crate) extensions: Arc<Resources>,
    pub(crate) kinds: Vec<Arc<Kind>>,
    pub(crate) wiring: Wiring,
    admission_metrics: admission::Metrics,
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
        plugins: Vec<Box<dyn admission::Plugin>>,
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
        let custom = Arc::new(OnceLock::new());
        let cluster = admission::Cluster {
            objects: Box::new(Objects::new(&kinds, custom.clone())),
            authorizer: auth_stack.authorizer.clone(),
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
            Arc::new(Resources::new(name, engine.clone(), Kinds::new(kinds)))
        };
        let registration = resources("kube-aggregator", &|group| group == REGISTRATION_GROUP);
        let extensions =
            resources("apiextensions-apiserver", &|group| group == apiextensions::GROUP);
        drop(custom.set(extensions.clone()));
        let builtin = resources("kube-apiserver", &|group| {
            group != REGISTRATION_GROUP && group != apiextensions::GROUP
        });
        let aggregator = Arc::new(Aggregator::default());
        let served = served_built_in(&definitions, &kinds);
        let (publisher, started) =
            DiscoveryPublisher::new(aggregator.clone(), schema.clone(), served, extensions.clone());
        let started = Mutex::new(Some(started));
        Self {
            schema,
            aggregator,
            publisher,
            started,
            registration,
            builtin,
            extensions,
            kinds,
            wiring,
            admission_metrics,
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

fn chain(
    options: &Options,
    servers: &Servers,
    auth_stack: &AuthStack,
    health: &Arc<Health>,
    metrics: &Arc<Metrics>,
    in_flight: &Arc<InFlight>,
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
        constrained_impersonation: options.feature_gates.enabled("ConstrainedImpersonation"),
        unauthenticated_http2_dos_mitigation: options
            .feature_gates
            .enabled("UnauthenticatedHTTP2DOSMitigation"),
        delegates,
        in_flight: in_flight.clone(),
        metrics: metrics.clone(),
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
