//! From options to a running server and to its end, in kube-apiserver's phases: `Config`,
//! `CreateServerChain`, `PrepareRun`, `Run`.

use std::{sync::Arc, time::Duration};

use builtin::Definitions;
use futures_util::{FutureExt as _, future::join_all};
use serve::lifecycle::{ShutdownOptions, stop_signal};

use crate::{
    encryption_at_rest,
    logging::Verbosity,
    options::Options,
    post_start_hooks::HookContext,
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
        .thread_stack_size(meta::limits::THREAD_STACK_BYTES)
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    let served = runtime.block_on(serve(Arc::new(options), definitions, verbosity));
    // A thread that still computes is not waited for: the process ends all the same.
    runtime.shutdown_timeout(RUNTIME_GRACE);
    served
}

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
        let config = Config::new(options, definitions).await?;
        let chain = create_server_chain(config);
        prepare_run(chain, verbosity).await
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
    /// Accepts connections, runs the post-start hooks, and walks through the phases of the shutdown when
    /// `stop` resolves.
    async fn run(
        self,
        stop: impl Future<Output = ()> + Clone,
        shutdown: &ShutdownOptions,
    ) -> Result<(), String> {
        let Self { chain, listener, handler, .. } = self;
        let Config { options, tasks, pki, .. } = &chain.config;
        let bound = listener.address();
        let tls = chain.config.tls.clone();
        let listening = listener.serve(tls, handler, serving::limits(options));
        let failed = Box::new(listening.handshake_errors().clone());
        let registry = &chain.config.metrics.registry;
        registry.register(failed).map_err(|error| error.to_string())?;
        follow_files(&chain.config);

        let api = Arc::new(chain.api());
        let kinds = &chain.config.kinds;
        let cx = HookContext::new(options.clone(), api, kinds, tasks.clone(), bound.port());
        let started = async {
            self.post_start_hooks.run(cx).await?;
            start_standalone_controllers(&chain)?;
            serving::announce(options, pki, bound)
        };
        tokio::select! {
            started = started => started?,
            () = stop.clone() => tracing::info!("asked to stop before all hooks have ended"),
        }

        let before = run_pre_shutdown_hooks(self.pre_shutdown_hooks);
        let flush = async {
            if let Some(auditor) = &chain.config.auditor {
                auditor.flush(AUDIT_FLUSH_MAX).await;
            }
            if let Some(spans) = &chain.config.spans {
                spans.flush(span_export::FLUSH_MAX).await;
            }
        };
        let lifecycle = &self.lifecycle;
        lifecycle.run(&listening, &self.in_flight, shutdown, stop, before, flush).await;
        let left = tasks.stop(TASKS_GRACE).await;
        if left > 0 {
            tracing::warn!(tasks = left, "background tasks did not stop");
        }
        close(&chain.config);
        Ok(())
    }
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
