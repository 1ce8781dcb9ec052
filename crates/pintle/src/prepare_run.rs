//! kube-apiserver's `PrepareRun`: caches are filled, custom resources served, health checks and metrics
//! installed, the handler chain put together and the port bound. Nothing is accepted yet.

use std::{net::SocketAddr, path::Path, sync::Arc, time::SystemTime};

use http::HeaderValue;
use registry::Kind;
use serve::{
    Chain, Cors, Delegates, FlowControl, MaxInFlight, debug_socket,
    generic::{Generic, SetVerbosity},
    health::Health,
    lifecycle::{InFlight, Lifecycle},
    listener::Listener,
    zpages::{StatuszInfo, Zpages},
};

use crate::{
    build_metrics, consistency_checks, dynamic_admission,
    in_process::WritingClient,
    logging::Verbosity,
    options::Options,
    post_start_hooks::PostStartHooks,
    schema_metrics,
    servers::{Config, GenericApiServer, PreShutdownHook, ServerChain, offered},
    serving, storage_metrics,
};

/// All that [`run`](crate::run) needs.
pub(crate) struct Prepared {
    pub(crate) chain: ServerChain,
    pub(crate) handler: Arc<Chain>,
    /// None: no port is open.
    pub(crate) listener: Option<Listener>,
    /// Where it listens, or would.
    pub(crate) address: SocketAddr,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) post_start_hooks: PostStartHooks,
    pub(crate) pre_shutdown_hooks: Vec<PreShutdownHook>,
}

pub(crate) async fn prepare_run(
    mut chain: ServerChain,
    verbosity: Verbosity,
    opens_port: bool,
) -> Result<Prepared, String> {
    fill_caches(&chain).await?;
    connect(&chain).await?;
    let (local, publisher) = (chain.local(), chain.aggregator.publisher.clone());
    chain.apiextensions.serve_definitions(&chain.config, local, publisher).await;

    let generic = std::mem::take(&mut chain.generic);
    let GenericApiServer { checks, post_start_hooks, pre_shutdown_hooks } = generic;
    let health = Arc::new(Health::new(checks, chain.config.options.livez_grace_period));
    install_metrics(&chain)?;
    let in_flight = Arc::new(InFlight::default());
    let set_verbosity: SetVerbosity = Arc::new(move |level| verbosity.set(level.unsigned_abs()));
    serve_debug_socket(&chain, &set_verbosity)?;
    let delegates = delegates(&chain, health, set_verbosity);
    let handler = handler_chain(&chain, delegates, &in_flight)?;

    // A client that trusts the server now can trust it after a power cut as well.
    chain.config.write_pki_files().await?;
    let options = &chain.config.options;
    let listener = opens_port.then(|| serving::bind(options)).transpose()?;
    let bound = match &listener {
        Some(listener) => listener.address(),
        None => SocketAddr::new(options.bind_address, options.secure_port.max(1)),
    };
    let port = bound.port();
    chain.config.node_connections.own_port.set(port);
    let address = format!("{}:{port}", options.external_hostname);
    let auth = &chain.config.auth;
    auth.open_id.publish(&auth.tokens, &options.service_accounts.jwks_uri, &address);
    chain.aggregator.publisher.open(address);
    let lifecycle = chain.lifecycle.clone();
    let (post_start, pre_shutdown) = (post_start_hooks, pre_shutdown_hooks);
    Ok(Prepared {
        chain,
        handler,
        listener,
        address: bound,
        in_flight,
        lifecycle,
        post_start_hooks: post_start,
        pre_shutdown_hooks: pre_shutdown,
    })
}

/// All caches read what there is. What the server itself decides by is waited for; other resources no
/// longer than `--storage-initialization-timeout`.
async fn fill_caches(chain: &ServerChain) -> Result<(), String> {
    let (needed, others): (Vec<_>, Vec<_>) =
        chain.config.kinds.iter().partition(|kind| is_needed(kind));
    let fill = async |kinds: Vec<&Arc<Kind>>| {
        for storage in kinds.iter().filter_map(|kind| kind.storage.as_ref()) {
            storage.cache.ready_or_corrupt().await.map_err(|error| error.to_string())?;
        }
        Ok::<(), String>(())
    };
    fill(needed).await?;
    let limit = chain.config.options.storage_initialization_timeout;
    match tokio::time::timeout(limit, fill(others)).await {
        Ok(filled) => filled,
        Err(_) => {
            tracing::warn!("Deadline exceeded while waiting for storage readiness... ignoring");
            Ok(())
        }
    }
}

/// Whether authorization, admission, allocation or routing depend on a kind.
fn is_needed(kind: &Kind) -> bool {
    match kind.gvk().group.as_str() {
        "" => !matches!(kind.gvk().kind.as_str(), "Event" | "Pod" | "PodTemplate" | "Endpoints"),
        "rbac.authorization.k8s.io"
        | "admissionregistration.k8s.io"
        | "apiextensions.k8s.io"
        | "apiregistration.k8s.io"
        | "flowcontrol.apiserver.k8s.io"
        | "networking.k8s.io"
        | "node.k8s.io"
        | "policy"
        | "scheduling.k8s.io"
        | "storage.k8s.io" => true,
        _ => false,
    }
}

/// What was made before the servers, and needs their objects, gets them.
async fn connect(chain: &ServerChain) -> Result<(), String> {
    let Config { auth, kinds, tasks, .. } = &chain.config;
    auth.roles.follow(kinds, tasks);
    dynamic_admission::follow(&chain.config.dynamic_admission, kinds, tasks);
    auth.nodes.connect(kinds);
    auth.token_objects.connect(kinds, chain.local());
    let connected =
        chain.config.rest_storage.connect(Arc::new(WritingClient(chain.local())), kinds).await;
    connected.map_err(|error| format!("cannot read the services: {error}"))?;
    chain.config.quotas.connect(kinds, chain.local());
    Ok(())
}

fn install_metrics(chain: &ServerChain) -> Result<(), String> {
    let Config { options, tasks, metrics, .. } = &chain.config;
    let registry = &metrics.registry;
    storage_metrics::register(
        registry,
        options,
        &chain.config.kinds,
        &chain.apiextensions.resources,
    );
    storage_metrics::measure(registry, options.size_metric_interval, &chain.config.stores, tasks);
    if options.feature_gates.enabled("DetectCacheInconsistency") {
        let kinds = &chain.config.kinds;
        consistency_checks::start(kinds, &chain.apiextensions.resources, tasks);
    }
    client::register_metrics(registry)?;
    builtin::register_service_metrics(registry)?;
    kms::register_metrics(registry)?;
    if options.etcd.is_some() {
        etcd::register_metrics(registry)?;
    }
    tasks.register(registry)?;
    controllers::register_workqueue_metrics(registry)?;
    chain.config.auth_metrics.register(registry)?;
    chain.aggregator.register_metrics(registry);
    if let Some(peers) = &chain.config.peer_proxy {
        peers.register_metrics(registry);
    }
    chain.config.node_connections.register_metrics(registry)?;
    chain.config.admission_metrics.register(registry);
    chain.config.dynamic_admission.register_metrics(registry);
    chain.config.admission_manifests.metrics.register(registry);
    schema_metrics::register(registry)?;
    build_metrics::register(registry, &options.version, &options.feature_gates);
    if let Some(controller) = &chain.flow_controller {
        metrics.add_flow_control(controller.clone());
    }
    Ok(())
}

/// `--debug-socket-path`.
fn serve_debug_socket(chain: &ServerChain, set_verbosity: &SetVerbosity) -> Result<(), String> {
    let Some(path) = &chain.config.options.debug_socket_path else { return Ok(()) };
    let listener = debug_socket::bind(path)
        .map_err(|error| format!("--debug-socket-path {}: {error}", path.display()))?;
    let (listener, set_verbosity) = (Arc::new(listener), set_verbosity.clone());
    chain.config.tasks.restarting("debug-socket", move || {
        debug_socket::serve(listener.clone(), set_verbosity.clone())
    });
    Ok(())
}

/// The delegates in order: the generic endpoints first, then the three servers.
fn delegates(
    chain: &ServerChain,
    health: Arc<Health>,
    set_verbosity: SetVerbosity,
) -> Arc<Delegates> {
    let (paths, health_paths) = (chain.paths(), health.paths());
    let options = &chain.config.options;
    let zpages = zpages(options);
    let mut pages = Vec::new();
    pages.extend(zpages.flags.is_some().then_some("/flagz"));
    pages.extend(zpages.status.is_some().then_some("/statusz"));
    pages.extend(options.logs_handler.then_some("/logs"));
    let index = move || {
        let mut paths = paths();
        paths.extend(health_paths.iter().cloned());
        paths.extend(["/metrics", "/metrics/slis", "/version"].map(str::to_owned));
        paths.extend(pages.iter().map(|&page| page.to_owned()));
        paths.sort();
        paths
    };
    let generic = Generic {
        health,
        metrics: chain.config.metrics.clone(),
        version: options.version.json().into(),
        index: Box::new(index),
        flow_control: chain.flow_controller.clone(),
        profiling: options.profiling,
        logs: options.logs_handler.then(|| Path::new(serve::logs::LOG_DIR)),
        zpages,
        cpu_pool: chain.config.cpu_pool.clone(),
        set_verbosity,
    };
    let mut delegates: Vec<(Arc<dyn serve::Delegate>, serve::Claims)> =
        vec![(Arc::new(generic), Generic::claims())];
    delegates.extend(chain.delegates());
    let delegates = Delegates::new(delegates, chain.aggregator.aggregator.clone());
    // The group-versions of custom resources and of other servers come and go.
    chain.apiextensions.resources.connect(&delegates);
    chain.aggregator.aggregation.registration.connect(&delegates);
    delegates
}

fn zpages(options: &Options) -> Zpages {
    let (gates, version) = (&options.feature_gates, &options.version);
    let minor = |major, minor| format!("{major}.{minor}");
    let status = StatuszInfo {
        started: SystemTime::now(),
        go_version: version.go_version.to_owned(),
        binary_version: version.git_version.trim_start_matches('v').to_owned(),
        emulation_version: minor(version.emulation_major, version.emulation_minor),
    };
    Zpages {
        flags: gates.enabled("ComponentFlagz").then(|| options.flag_values.clone()),
        status: gates.enabled("ComponentStatusz").then_some(status),
    }
}

/// kube-apiserver's `BuildHandlerChain`; [`serve::chain`] has its order.
fn handler_chain(
    chain: &ServerChain,
    delegates: Arc<Delegates>,
    in_flight: &Arc<InFlight>,
) -> Result<Arc<Chain>, String> {
    let Config { options, auth, .. } = &chain.config;
    let gates = &options.feature_gates;
    let hsts = match options.strict_transport_security_directives.join("; ") {
        none if none.is_empty() => None,
        directives => Some(
            HeaderValue::from_str(&directives)
                .map_err(|_| "--strict-transport-security-directives: not a header".to_owned())?,
        ),
    };
    let flow_control = match &chain.flow_controller {
        Some(controller) => FlowControl::PriorityAndFairness(controller.clone()),
        None => FlowControl::MaxInFlight(MaxInFlight::new(
            options.max_requests_inflight,
            options.max_mutating_requests_inflight,
        )),
    };
    Ok(Arc::new(Chain(Arc::new(serve::Server {
        authenticator: auth.authenticator.clone(),
        authorizer: auth.authorizer.clone(),
        audit: chain.config.auditor.clone(),
        tracer: chain.config.spans.as_ref().map(|exporter| exporter.tracer.clone()),
        constrained_impersonation: gates.enabled("ConstrainedImpersonation"),
        unauthenticated_http2_dos_mitigation: gates.enabled("UnauthenticatedHTTP2DOSMitigation"),
        delegates,
        storage_versions: chain.config.storage_version_barrier(),
        peer_proxy: chain.config.peer_proxy.clone().map(|peers| peers as Arc<dyn serve::PeerProxy>),
        in_flight: in_flight.clone(),
        send_retry_after: options.shutdown_send_retry_after,
        metrics: chain.config.metrics.clone(),
        cpu_pool: chain.config.cpu_pool.clone(),
        flow_control,
        request_timeout: options.request_timeout,
        cors: Cors::new(&options.cors_allowed_origins)?,
        hsts,
        goaway_chance: options.goaway_chance,
        offered: offered(options),
    }))))
}
