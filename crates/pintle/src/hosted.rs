//! A server inside another process, such as a test.
//!
//! It has a thread with a runtime of its own, so that it outlives the runtime of one test and is not
//! slowed down by it. It leaves the process alone: no signal handlers, no logger, no output, no exit; what it
//! logs goes to the `tracing` subscriber of the process, if there is one.

use std::{sync::Arc, thread};

use background::Tasks;
use builtin::Definitions;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serve::listener::Server;
use tokio::{
    io::DuplexStream,
    runtime::{Builder, Handle},
    sync::{Notify, oneshot},
};

use crate::{
    flags,
    logging::Verbosity,
    options::Options,
    prepare_run::prepare_run,
    servers::{Config, create_server_chain},
    serving,
};

/// How a hosted server is started.
#[derive(Debug, Clone, Default)]
pub struct HostOptions {
    /// Flags of the command line. Unless they say otherwise, objects are kept in memory and nothing is
    /// written.
    pub flags: Vec<String>,
    /// Opens a port (`--secure-port`, a free one by default) for clients of other processes, over TLS.
    pub opens_port: bool,
}

/// A running server. Dropping it ends it: its thread, its connections, its objects.
pub struct HostedServer {
    ready: Ready,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What the thread of the server has to say when all post-start hooks have ended.
struct Ready {
    listening: Arc<Server>,
    runtime: Handle,
    /// Of the administrator.
    certificates: Vec<CertificateDer<'static>>,
    url: Option<String>,
    kubeconfig: Option<String>,
}

impl HostedServer {
    /// Starts a server; returns when it is ready. May be called on any runtime.
    pub async fn start(options: HostOptions) -> Result<Self, String> {
        let (report, ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("pintle".to_owned())
            .stack_size(meta::limits::THREAD_STACK_BYTES)
            .spawn(move || host(options, report, stopped))
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        match ready.await {
            Ok(Ok(ready)) => Ok(Self { ready, stop: Some(stop), thread: Some(thread) }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err("the server has panicked".to_owned()),
        }
    }

    /// A connection in memory, on which the server expects HTTP/1.1 of the administrator (a member of
    /// `system:masters`).
    pub fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let _runtime = self.ready.runtime.enter();
        self.ready.listening.attach(theirs, self.ready.certificates.clone());
        ours
    }

    /// `https://127.0.0.1:port`, if a port is open.
    pub fn url(&self) -> Option<&str> {
        self.ready.url.as_deref()
    }

    /// A kubeconfig of the administrator, if a port is open.
    pub fn kubeconfig(&self) -> Option<&str> {
        self.ready.kubeconfig.as_deref()
    }
}

/// Bytes of one direction of a connection in memory: a page of a list in one go.
const PIPE_BYTES: usize = 64 << 10;

impl Drop for HostedServer {
    fn drop(&mut self) {
        // The thread has ended by itself if nothing listens.
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread of the server.
fn host(
    options: HostOptions,
    report: oneshot::Sender<Result<Ready, String>>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = report.send(Err(format!("cannot start the runtime: {error}")));
            return;
        }
    };
    runtime.block_on(serve(options, report, stopped));
    // Threads of the runtime that read files are waited for.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
}

async fn serve(
    options: HostOptions,
    report: oneshot::Sender<Result<Ready, String>>,
    stopped: oneshot::Receiver<()>,
) {
    let broken = Arc::new(Notify::new());
    let running = match start(&options, &broken).await {
        Ok((running, ready)) => {
            // If the start was given up, `stopped` resolves as well.
            let _ = report.send(Ok(ready));
            running
        }
        Err(error) => {
            let _ = report.send(Err(error));
            return;
        }
    };
    tokio::select! {
        _ = stopped => {}
        () = broken.notified() => tracing::error!("the server has ended, a task of it panicked"),
    }
    running.cut_off().await;
}

async fn start(
    host: &HostOptions,
    broken: &Arc<Notify>,
) -> Result<(crate::run::Running, Ready), String> {
    let definitions = Definitions::load();
    let options = Arc::new(parse(host, &definitions)?);
    let notify = broken.clone();
    let tasks = Tasks::new(move |task| {
        tracing::error!(task, "the server cannot go on without this task");
        notify.notify_one();
    });
    let config = Config::new(options.clone(), definitions, tasks).await?;
    let chain = create_server_chain(config);
    let prepared = prepare_run(chain, Verbosity::of_host(), host.opens_port).await?;
    let (running, hooks) = prepared.open()?;
    running.start(hooks).await?;

    let pki = &running.chain.config.pki;
    let url = host.opens_port.then(|| serving::url(&options, running.listening.address()));
    let kubeconfig = url.as_deref().map(|url| serving::admin_kubeconfig(&options, pki, url));
    let admin = pki.admin_cert.read().map_err(|error| format!("{}: {error}", pki.admin_cert))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&admin).collect();
    let ready = Ready {
        listening: running.listening.clone(),
        runtime: Handle::current(),
        certificates: certificates.map_err(|error| format!("{}: {error}", pki.admin_cert))?,
        url,
        kubeconfig: kubeconfig.transpose()?,
    };
    Ok((running, ready))
}

/// The flags with the defaults of a hosted server.
fn parse(host: &HostOptions, definitions: &Definitions) -> Result<Options, String> {
    let parsed = flags::parse(host.flags.iter().cloned());
    let mut parsed = parsed.map_err(|error| error.to_string())?;
    crate::refuse_arguments(&parsed).map_err(|errors| errors.join("\n"))?;
    let defaults = [
        ("storage-backend", "memory", !parsed.is_set("etcd-servers")),
        ("bind-address", "127.0.0.1", true),
        ("secure-port", "0", host.opens_port),
        // Endpoints may not be loopback addresses; this one is for documentation.
        ("advertise-address", "192.0.2.1", true),
    ];
    for (flag, value, _) in defaults.into_iter().filter(|(.., applies)| *applies) {
        parsed.set_default(flag, value).map_err(|error| error.to_string())?;
    }
    let options = Options::from_parsed(&parsed, definitions);
    let options = options.map_err(|errors| errors.join("\n"))?;
    for warning in &options.warnings {
        tracing::warn!("{warning}");
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use std::{any::Any, sync::Weak, time::Duration};

    use endpoints::ResourceRef;

    use super::*;

    type Part = (String, Weak<dyn Any + Send + Sync>);

    fn part<T: Any + Send + Sync>(name: impl Into<String>, part: &Arc<T>) -> Part {
        let part: Arc<dyn Any + Send + Sync> = part.clone();
        (name.into(), Arc::downgrade(&part))
    }

    /// What a server consists of.
    fn parts(running: &crate::run::Running) -> Vec<Part> {
        let crate::servers::ServerChain {
            config, aggregator, kube_apiserver, apiextensions, ..
        } = &running.chain;
        let mut parts = vec![
            part("aggregator", &aggregator.aggregator),
            part("publisher", &aggregator.publisher),
            part("registration", &aggregator.aggregation.registration),
            part("resources of the aggregator", &aggregator.resources),
            part("resources of kube-apiserver", &kube_apiserver.resources),
            part("resources of apiextensions", &apiextensions.resources),
            part("engine", &kube_apiserver.resources.engine),
            part("schema", &config.schema),
            part("metrics", &config.metrics),
            part("TLS", &config.tls),
            part("quotas", &config.quotas),
            part("dynamic admission", &config.dynamic_admission),
            part("rest storage", &config.rest_storage),
            part("encryption", &config.encryption),
            part("listener", &running.listening),
        ];
        for kind in config.kinds.iter().chain(apiextensions.resources.kinds().iter()) {
            parts.push(part(kind.gvk().to_string(), kind));
        }
        parts
    }

    /// Parts that refer to each other would stay, with all objects of the server.
    #[test]
    fn no_part_outlives_its_server() {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let parts = runtime.block_on(async {
            let broken = Arc::new(Notify::new());
            let host = HostOptions { flags: Vec::new(), opens_port: true };
            let (running, ready) = start(&host, &broken).await.expect("starts");
            let local = running.chain.local();
            let crds = ResourceRef {
                group: "apiextensions.k8s.io",
                version: "v1",
                resource: "customresourcedefinitions",
                ..ResourceRef::default()
            };
            local.create(&crds, &definition()).await.expect("created");
            let lamps = ResourceRef { group: "example.com", resource: "lamps", ..crds };
            let served = async {
                while local.list(&lamps).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_mins(1), served).await.expect("is served");
            let parts = parts(&running);
            assert!(parts.iter().any(|(name, _)| name.contains("Lamp")), "the custom kind");
            running.cut_off().await;
            drop(ready);
            parts
        });
        drop(runtime);
        let left = parts.iter().filter(|(_, part)| part.strong_count() > 0);
        let left: Vec<_> = left.map(|(name, part)| (name, part.strong_count())).collect();
        assert!(left.is_empty(), "{left:#?}");
    }

    #[tokio::test]
    async fn an_object_that_is_only_created_is_stored_or_refused_like_any_other() {
        let broken = Arc::new(Notify::new());
        let (running, _ready) = start(&HostOptions::default(), &broken).await.expect("starts");
        let local = running.chain.local();
        let maps = ResourceRef {
            version: "v1",
            resource: "configmaps",
            namespace: "default",
            ..ResourceRef::default()
        };
        let map = meta::value!({"metadata": {"name": "one"}, "data": {"a": "1"}});
        local.create_only(&maps, &map).await.expect("created");
        let stored =
            local.get(&ResourceRef { name: "one", ..maps.clone() }).await.expect("is there");
        assert_eq!(stored.str_at(&["data", "a"]), "1");
        let again = local.create_only(&maps, &map).await;
        assert!(matches!(again, Err(meta::ApiError::AlreadyExists { .. })), "{again:?}");
        let invalid = meta::value!({"metadata": {"name": "Not_A_Name"}});
        let invalid = local.create_only(&maps, &invalid).await;
        assert!(matches!(invalid, Err(meta::ApiError::Invalid { .. })), "{invalid:?}");
        running.cut_off().await;
    }

    /// With a webhook for conversion, whose client looks up Services.
    fn definition() -> meta::Value {
        let version = |name: &str, storage: bool| {
            meta::value!({
                "name": name, "served": true, "storage": storage,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            })
        };
        let mut definition = meta::value!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "lamps.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "lamps", "kind": "Lamp"},
                "conversion": {"strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"],
                    "clientConfig": {"service": {"namespace": "default", "name": "converter"}},
                }},
            },
        });
        let versions = vec![version("v1", true), version("v2", false)];
        definition.set_at(&["spec", "versions"], meta::Value::Array(versions));
        definition
    }
}
