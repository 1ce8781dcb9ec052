//! What every API server has, whatever it serves: its hooks and checks come first.

use std::{
    io::Write as _,
    sync::{Arc, OnceLock},
    time::{Duration, Instant, SystemTime},
};

use controllers::{FlowControlConfigConsumer, flow_schemas, priority_levels};
use flowcontrol::FlowController;
use futures_util::future::LocalBoxFuture;
use meta::Value;
use parking_lot::Mutex;
use registry::Kind;
use serve::{
    health::{Check, Hook},
    lifecycle::Lifecycle,
};

use super::Config;
use crate::{
    cache_informer::CacheInformer,
    encryption_at_rest::kms_check,
    post_start_hooks::{HookContext, PostStartHooks},
};

/// Hooks and checks of the chain, in the order in which they were added.
#[derive(Default)]
pub(crate) struct GenericApiServer {
    pub(crate) checks: Vec<Check>,
    pub(crate) post_start_hooks: PostStartHooks,
    pub(crate) pre_shutdown_hooks: Vec<PreShutdownHook>,
}

/// Runs at shutdown, while requests are still served.
pub(crate) struct PreShutdownHook {
    pub(crate) name: &'static str,
    pub(crate) run: Box<dyn FnOnce() -> LocalBoxFuture<'static, Result<(), String>>>,
}

impl GenericApiServer {
    pub(super) fn new(config: &Config, flow_controller: Option<&Arc<FlowController>>) -> Self {
        let options = &config.options;
        let mut server = Self::default();
        server.add_check(Check::new("ping", || Ok(())));
        server.add_check(log_check());
        server.add_check(serving_certificate_check(config));
        server.checks.extend(config.stores.checks(options, &config.tasks));
        server.checks.extend(kms_check(options, &config.encryption));
        let synced = caches_synced(config.kinds.clone());
        server.add_check(Check::new("informer-sync", synced).ready_only());

        // Plugins and informers read the watch caches, which are filled before the port is open.
        server.add_post_start_hook("start-apiserver-admission-initializer", async |_| Ok(()));
        server.add_post_start_hook("generic-apiserver-start-informers", async |_| Ok(()));
        if let Some(controller) = flow_controller {
            let (consumer, filter) = (controller.clone(), controller.clone());
            server.add_post_start_hook("priority-and-fairness-config-consumer", async |cx| {
                consume_flow_control_config(cx, consumer).await;
                Ok(())
            });
            server.add_post_start_hook("priority-and-fairness-filter", async move |cx| {
                cx.tasks.restarting("priority-and-fairness-controller", move || {
                    let controller = filter.clone();
                    async move { controller.run().await }
                });
                Ok(())
            });
        } else {
            server.add_post_start_hook("max-in-flight-filter", async |_| Ok(()));
        }
        // Lists are weighed by the numbers of objects in the watch caches, which are always current.
        server.add_post_start_hook("storage-object-count-tracker-hook", async |_| Ok(()));
        server
    }

    pub(super) fn add_check(&mut self, check: Check) {
        self.checks.push(check);
    }

    /// Adds a hook, and the check that fails until it has ended.
    pub(super) fn add_post_start_hook<F>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(HookContext) -> F + 'static,
    ) -> Hook
    where
        F: Future<Output = Result<(), String>> + 'static,
    {
        let hook = self.post_start_hooks.add(name, run);
        self.checks.push(hook.check(name));
        hook
    }

    pub(super) fn add_pre_shutdown_hook<F>(
        &mut self,
        name: &'static str,
        run: impl FnOnce() -> F + 'static,
    ) where
        F: Future<Output = Result<(), String>> + 'static,
    {
        let run: Box<dyn FnOnce() -> LocalBoxFuture<'static, Result<(), String>>> =
            Box::new(move || Box::pin(run()));
        self.pre_shutdown_hooks.push(PreShutdownHook { name, run });
    }

    pub(super) fn add_shutdown_check(&mut self, lifecycle: &Arc<Lifecycle>) {
        let lifecycle = lifecycle.clone();
        let is_stopping = move || {
            if lifecycle.shutdown_initiated.is_fired() {
                Err("process is shutting down".to_owned())
            } else {
                Ok(())
            }
        };
        self.add_check(Check::new("shutdown", is_stopping).ready_only());
    }
}

/// Fails when standard error was blocked for two minutes, by a full pipe for example: every line of the
/// log would wait for it. Looking begins with the first request for the check, on a thread that may block.
fn log_check() -> Check {
    static FLUSHED: OnceLock<Arc<Mutex<Instant>>> = OnceLock::new();
    Check::new("log", || {
        let flushed = FLUSHED.get_or_init(|| {
            let flushed = Arc::new(Mutex::new(Instant::now()));
            let noted = flushed.clone();
            let flush = move || {
                loop {
                    let _ = std::io::stderr().lock().flush();
                    *noted.lock() = Instant::now();
                    std::thread::park_timeout(FLUSH_INTERVAL);
                }
            };
            // Without its thread the check fails after a while, which is right as well.
            let _ = std::thread::Builder::new().name("pintle-log-check".to_owned()).spawn(flush);
            flushed
        });
        let is_recent = flushed.lock().elapsed() < 2 * FLUSH_INTERVAL;
        if is_recent { Ok(()) } else { Err("logging blocked".to_owned()) }
    })
}

const FLUSH_INTERVAL: Duration = Duration::from_mins(1);

/// Compat: named for the certificate that kube-apiserver makes for itself. Pintle calls itself without
/// TLS; what runs out here is the generated serving certificate, if renewing it failed, and a restart makes
/// a new one.
fn serving_certificate_check(config: &Config) -> Check {
    let generated = config.options.serving_cert.is_none().then(|| config.pki.clone());
    let is_valid = move || match &generated {
        Some(pki) if pki.serving_cert_has_expired(SystemTime::now()) => {
            Err("loopback serving certificate is expired".to_owned())
        }
        _ => Ok(()),
    };
    Check::new("loopback-serving-certificate", is_valid).alive_only()
}

/// Starts the controller that hands FlowSchemas and PriorityLevelConfigurations to flow control, and
/// waits until it has done so once.
async fn consume_flow_control_config(cx: HookContext, controller: Arc<FlowController>) {
    let kinds = [flow_schemas().gvr, priority_levels().gvr];
    let kinds: Vec<_> = kinds.iter().filter_map(|resource| cx.kind_of(resource)).collect();
    if kinds.len() < 2 {
        // `--runtime-config` has turned them off: the mandatory ones are built in.
        controller.configure(&[], &[]);
        return;
    }
    // The first configuration is complete.
    cx.after("priority-and-fairness-config-producer").await;
    let configured = Hook::default();
    let done = configured.clone();
    let configure = Box::new(move |levels: &[Value], schemas: &[Value]| {
        controller.configure(levels, schemas);
        done.done();
    });
    let consumer = FlowControlConfigConsumer { api: cx.api.clone(), configure };
    let events = CacheInformer::start(&kinds, |_| true);
    cx.tasks.critical("priority-and-fairness-config-consumer", consumer.run(events));
    configured.finished().await;
}

/// A check that all watch caches are filled.
pub(super) fn caches_synced(
    kinds: Vec<Arc<Kind>>,
) -> impl Fn() -> Result<(), String> + Send + Sync {
    move || {
        let mut storages = kinds.iter().filter_map(|kind| kind.storage.as_ref());
        match storages.find(|storage| !storage.cache.is_ready()) {
            None => Ok(()),
            Some(storage) => Err(format!("{} is being read", storage.prefix)),
        }
    }
}
