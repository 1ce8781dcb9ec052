//! From options to a running server and to its end, in kube-apiserver's phases: `Config`,
//! `CreateServerChain`, `PrepareRun`, `Run`.

use std::{sync::Arc, time::Duration};

use background::Tasks;
use builtin::Definitions;
use futures_util::{FutureExt as _, future::join_all};
use serve::{
    lifecycle::{InFlight, Lifecycle, ShutdownOptions, stop_signal},
    listener::Server,
};

use crate::{
    encryption_at_rest,
    logging::Verbosity,
    options::Options,
    post_start_hooks::{HookContext, PostStartHooks},
    prepare_run::{Prepared, prepare_run},
    servers::{Config, PreShutdownHook, ServerChain, create_server_chain},
    serving, span_export,
    standalone_controllers::ControllerContext,
};

/// Serves until a signal says stop. What goes wrong before that is returned in words.
pub(crate) fn run(
    options: Options,
    definitions: Definitions,
    verbosity: Verbosity,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .thread_stack_size(meta::limits::THREAD_STACK_BYTES)
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    let served = runtime.block_on(serve(Arc::new(options), definitions, verbosity));
    // A thread that still computes is not waited for: the process ends all the same.
    runtime.shutdown_timeout(RUNTIME_GRACE);
    served
}

/// How many tasks a busy thread runs before it looks for requests that have arrived. The library's 61 turns of connections
/// that send long lists take 20 ms, which a short request would wait.
const EVENT_INTERVAL: u32 = 8;

/// For tasks to end that are in the midst of something when the server has stopped.
const RUNTIME_GRACE: Duration = Duration::from_secs(5);

async fn serve(
    options: Arc<Options>,
    definitions: Definitions,
    verbosity: Verbosity,
) -> Result<(), String> {
    let shutdown = shutdown_options(&options);
    // Asked for first: a signal that comes while starting is not lost.
    let stop = stop_signal(shutdown.longest())
        .map_err(|error| format!("cannot listen to signals: {error}"))?;
    let stop = stop.shared();
    let prepare = async {
        let config = Config::new(options, definitions, Tasks::default()).await?;
        prepare_run(create_server_chain(config), verbosity, true).await
    };
    // A store or a KMS plugin may be away for long; nothing is accepted yet, so nothing is to be drained.
    let prepared = tokio::select! {
        prepared = prepare => prepared?,
        () = stop.clone() => return Ok(()),
    };
    prepared.run(stop, &shutdown).await
}

fn shutdown_options(options: &Options) -> ShutdownOptions {
    ShutdownOptions {
        delay: options.shutdown_delay_duration,
        send_retry_after: options.shutdown_send_retry_after,
        watch_grace_period: options.shutdown_watch_termination_grace_period,
        request_timeout: options.request_timeout,
    }
}

impl Prepared {
    /// Accepts connections. The post-start hooks are left to [`Running::start`].
    pub(crate) fn open(self) -> Result<(Running, PostStartHooks), String> {
        let Self { chain, listener, handler, address, .. } = self;
        let (tls, limits) = (chain.config.tls.clone(), serving::limits(&chain.config.options));
        let listening = match listener {
            Some(listener) => listener.serve(tls, handler, limits, &chain.config.tasks),
            None => Server::without_port(address, tls, handler, limits),
        };
        let failed = Box::new(listening.handshake_errors().clone());
        let registry = &chain.config.metrics.registry;
        registry.register(failed).map_err(|error| error.to_string())?;
        follow_files(&chain.config);
        let running = Running {
            chain,
            listening: Arc::new(listening),
            in_flight: self.in_flight,
            lifecycle: self.lifecycle,
            pre_shutdown_hooks: self.pre_shutdown_hooks,
        };
        Ok((running, self.post_start_hooks))
    }

    /// Accepts connections, runs the post-start hooks, and walks through the phases of the shutdown when
    /// `stop` resolves.
    async fn run(
        self,
        stop: impl Future<Output = ()> + Clone,
        shutdown: &ShutdownOptions,
    ) -> Result<(), String> {
        let (running, hooks) = self.open()?;
        let Config { options, pki, .. } = &running.chain.config;
        let started = async {
            running.start(hooks).await?;
            serving::announce(options, pki, running.listening.address())
        };
        tokio::select! {
            started = started => started?,
            () = stop.clone() => tracing::info!("asked to stop before all hooks have ended"),
        }

        let Running { chain, listening, in_flight, lifecycle, pre_shutdown_hooks } = running;
        let before = run_pre_shutdown_hooks(pre_shutdown_hooks);
        let flush = async {
            if let Some(auditor) = &chain.config.auditor {
                auditor.flush(AUDIT_FLUSH_MAX).await;
            }
            if let Some(spans) = &chain.config.spans {
                spans.flush(span_export::FLUSH_MAX).await;
            }
        };
        lifecycle.run(&listening, &in_flight, shutdown, stop, before, flush).await;
        stop_tasks_and_stores(&chain.config, TASKS_GRACE).await;
        Ok(())
    }
}

/// A server that accepts connections.
pub(crate) struct Running {
    pub(crate) chain: ServerChain,
    pub(crate) listening: Arc<Server>,
    in_flight: Arc<InFlight>,
    lifecycle: Arc<Lifecycle>,
    pre_shutdown_hooks: Vec<PreShutdownHook>,
}

impl Running {
    /// Runs the post-start hooks and starts the controllers: afterwards the server is ready.
    pub(crate) async fn start(&self, hooks: PostStartHooks) -> Result<(), String> {
        let Config { options, tasks, kinds, .. } = &self.chain.config;
        let api = Arc::new(self.chain.api());
        let port = self.listening.address().port();
        let cx = HookContext::new(options.clone(), api, kinds, tasks.clone(), port);
        hooks.run(cx).await?;
        start_standalone_controllers(&self.chain)
    }

    /// Ends it at once, without waiting for its clients.
    pub(crate) async fn cut_off(self) {
        self.listening.shutdown(Duration::ZERO).await;
        stop_tasks_and_stores(&self.chain.config, TASKS_GRACE).await;
        // Requests that were cut off may hold the pool for a moment.
        self.chain.config.cpu_pool.close();
    }
}

async fn stop_tasks_and_stores(config: &Config, grace: Duration) {
    let left = config.tasks.stop(grace).await;
    if left > 0 {
        tracing::warn!(tasks = left, "background tasks did not stop");
    }
    close(config);
}

/// For background tasks to stop when all requests have ended.
const TASKS_GRACE: Duration = Duration::from_secs(5);
/// What audit backends get to send queued events at shutdown; the rest is lost, and counted.
const AUDIT_FLUSH_MAX: Duration = Duration::from_secs(15);

/// Files that may change while the server runs.
fn follow_files(config: &Config) {
    let Config { options, tasks, .. } = config;
    serving::follow_certificates(options, &config.tls, tasks);
    config.auth.follow_files(options, tasks);
    encryption_at_rest::follow_file(options, &config.encryption, tasks);
}

/// Those of kube-controller-manager, for clusters without one.
fn start_standalone_controllers(chain: &ServerChain) -> Result<(), String> {
    let Config { kinds, tasks, pki, .. } = &chain.config;
    let context = ControllerContext {
        api: &Arc::new(chain.api()),
        kinds,
        custom: chain.aggregator.custom_kinds.clone(),
        tasks,
        pki,
        tokens: &chain.config.auth.tokens,
        quota_usage: chain.config.quota_usage(),
        namespace_grace: chain.config.options.namespace_grace,
    };
    let wanted = &chain.config.options.standalone_controllers;
    context.start(wanted).map_err(|error| error.to_string())
}

async fn run_pre_shutdown_hooks(hooks: Vec<PreShutdownHook>) {
    join_all(hooks.into_iter().map(async |hook| {
        if let Err(error) = (hook.run)().await {
            tracing::warn!("PreShutdownHook \"{}\" failed: {error}", hook.name);
        }
    }))
    .await;
}

fn close(config: &Config) {
    // Caches first, so that none of them takes the end of the store for a failure.
    for storage in config.kinds.iter().filter_map(|kind| kind.storage.as_ref()) {
        storage.cache.close();
    }
    config.stores.close();
}
