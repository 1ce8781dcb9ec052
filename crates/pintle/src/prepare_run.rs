//! kube-apiserver's `PrepareRun`: caches are filled, custom resources served, health checks and metrics
//! installed, the handler chain put together and the port bound. Nothing is accepted yet.

use std::{path::Path, sync::Arc, time::SystemTime};

use http::HeaderValue;
use registry::Kind;
use serve::{
    Chain, Cors, Delegates, FlowControl, MaxInFlight,
    generic::Generic,
    health::Health,
    lifecycle::{InFlight, Lifecycle},
    listener::Listener,
    zpages::{StatuszInfo, Zpages},
};

use crate::{
    build_metrics, dynamic_admission,
    logging::Verbosity,
    options::Options,
    post_start_hooks::PostStartHooks,
    servers::{Config, GenericApiServer, PreShutdownHook, ServerChain, offered},
    serving, storage_metrics,
};

/// All that [`run`](crate::run) needs.
pub(crate) struct Prepared {
    pub(crate) chain: ServerChain,
    pub(crate) handler: Arc<Chain>,
    pub(crate) listener: Listener,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) post_start_hooks: PostStartHooks,
    pub(crate) pre_shutdown_hooks: Vec<PreShutdownHook>,
}

pub(crate) async fn prepare_run(
    mut chain: ServerChain,
    verbosity: Verbosity,
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
    let delegates = delegates(&chain, health, verbosity);
    let handler = handler_chain(&chain, delegates, &in_flight)?;

    let options = &chain.config.options;
    let listener = serving::bind(options)?;
    let address = format!("{}:{}", options.external_hostname, listener.address().port());
    let auth = &chain.config.auth;
    auth.open_id.publish(&auth.tokens, &options.service_accounts.jwks_uri, &address);
    chain.aggregator.publisher.open(address);
    let lifecycle = chain.lifecycle.clone();
    let (post_start, pre_shutdown) = (post_start_hooks, pre_shutdown_hooks);
    Ok(Prepared {
        chain,
        handler,
        listener,
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
    auth.token_objects.connect(kinds, Arc::new(chain.api()));
    let connected = chain.config.wiring.connect(Arc::new(chain.api()), kinds).await;
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
    tasks.register(registry)?;
    controllers::register_workqueue_metrics(registry)?;
    chain.config.auth_metrics.register(registry)?;
    chain.aggregator.register_metrics(registry);
    chain.config.admission_metrics.register(registry);
    chain.config.dynamic_admission.register_metrics(registry);
    build_metrics::register(registry, &options.version, &options.feature_gates);
    if let Some(controller) = &chain.flow_controller {
        metrics.add_flow_control(controller.clone());
    }
    Ok(())
}

/// Who answers which request: the generic endpoints first, then the three servers.
fn delegates(chain: &ServerChain, health: Arc<Health>, verbosity: Verbosity) -> Arc<Delegates> {
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
        set_verbosity: Box::new(move |level| verbosity.set(level.unsigned_abs())),
    };
    let mut delegates: Vec<(Arc<dyn serve::Delegate>, serve::Claims)> =
        vec![(Arc::new(generic), Generic::claims())];
    delegates.extend(chain.delegates());
    let delegates = Delegates::new(delegates, chain.aggregator.aggregator.clone());
    // The group-versions of custom resources and of other servers come and go.
    chain.apiextensions.resources.connect(delegates.clone());
    chain.aggregator.aggregation.registration.connect(delegates.clone());
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
        constrained_impersonation: gates.enabled("ConstrainedImpersonation"),
        unauthenticated_http2_dos_mitigation: gates.enabled("UnauthenticatedHTTP2DOSMitigation"),
        delegates,
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
