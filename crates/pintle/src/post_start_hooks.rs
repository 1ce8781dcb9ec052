//! Post-start hooks: objects that the apiserver creates itself, each with its health check, and the
//! controllers that reconcile them. Objects are created concurrently, so that writes share their fsyncs.

use std::{
    net::IpAddr,
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use controllers::{
    AuthenticationInfo, ClusterAuthenticationTrust, DefaultServiceCidr, EndpointReconciler,
    FlowControlBootstrap, FlowControlConfigConsumer, IdentityLease, KubernetesService,
    RequestHeaderInfo, SystemNamespaces, Target, config_map, ensure_flow_control_defaults,
    flow_schemas, get_or_create, namespace, priority_classes, priority_levels,
    reconcile_bootstrap_roles,
};
use flowcontrol::FlowController;
use futures_util::future::{try_join, try_join_all, try_join3};
use meta::{ApiError, Value};
use registry::Kind;
use serve::{
    Tasks,
    health::{Check, Hook},
    lifecycle::Lifecycle,
    pki::Pki,
};
use sha2::{Digest as _, Sha256};

use crate::{
    apiservice_autoregistration::sync_api_services,
    cache_informer::CacheInformer,
    in_process::Api,
    options::{Options, RequestHeaderOptions},
    run::{RELOAD_INTERVAL, Servers, client_ca_file},
    standalone_controllers::ControllerContext,
    tokens::Tokens,
};

/// The implemented hooks of kube-apiserver.
#[derive(Default)]
pub(crate) struct PostStartHooks {
    /// Watch caches and the informers over them, started before the port is open.
    informers: Hook,
    /// The CRD controller.
    extensions: Hook,
    /// Routes, discovery and OpenAPI of the aggregator.
    aggregation: Hook,
    system_namespaces: Hook,
    authentication_info: Hook,
    identity_lease: Hook,
    identity_lease_collector: Hook,
    token_tracking: Hook,
    service_repair: Hook,
    roles: Hook,
    priority_classes: Hook,
    flow_control: Hook,
    flow_control_consumer: Hook,
    bootstrap: Hook,
    service_cidr: Hook,
    autoregistration: Hook,
    /// Set once it was reconciled.
    kubernetes_service: OnceLock<Arc<KubernetesService>>,
}

impl PostStartHooks {
    /// The health checks in the order of the verbose output. kube-apiserver has more, for features that
    /// Pintle lacks (the consumer of priority and fairness, peer proxy, remote APIServices) or does not
    /// need (a loopback serving certificate).
    pub(crate) fn checks(
        &self,
        options: &Options,
        kinds: &[Arc<Kind>],
        lifecycle: &Arc<Lifecycle>,
    ) -> Vec<Check> {
        let stopping = lifecycle.clone();
        let registered = self.autoregistration.clone();
        let custom: Vec<_> =
            kinds.iter().filter(|kind| kind.gvk().group == apiextensions::GROUP).cloned().collect();
        let roles = Some(self.roles.check("rbac/bootstrap-roles")).filter(|_| options.has_rbac());
        let mut checks = vec![
            Check::new("ping", || Ok(())),
            Check::new("log", || Ok(())),
            Check::new("informer-sync", caches_synced(kinds.to_vec())).ready_only(),
            self.informers.check("start-apiserver-admission-initializer"),
            self.informers.check("generic-apiserver-start-informers"),
        ];
        if options.priority_and_fairness {
            checks.extend([
                self.flow_control_consumer.check("priority-and-fairness-config-consumer"),
                self.informers.check("priority-and-fairness-filter"),
            ]);
        } else {
            checks.push(self.informers.check("max-in-flight-filter"));
        }
        checks.extend([
            self.extensions.check("start-apiextensions-informers"),
            self.extensions.check("start-apiextensions-controllers"),
            Check::new("poststarthook/crd-informer-synced", caches_synced(custom)),
            self.system_namespaces.check("start-system-namespaces-controller"),
            self.authentication_info.check("start-cluster-authentication-info-controller"),
            self.identity_lease.check("start-kube-apiserver-identity-lease-controller"),
            self.identity_lease_collector
                .check("start-kube-apiserver-identity-lease-garbage-collector"),
            Check::new("poststarthook/storage-readiness", caches_synced(kinds.to_vec())),
            self.token_tracking.check("start-legacy-token-tracking-controller"),
            self.service_repair.check("start-service-ip-repair-controllers"),
        ]);
        checks.extend(roles);
        checks.extend([
            self.priority_classes.check("scheduling/bootstrap-system-priority-classes"),
            self.flow_control.check("priority-and-fairness-config-producer"),
            self.bootstrap.check("bootstrap-controller"),
            self.service_cidr.check("start-kubernetes-service-cidr-controller"),
            self.aggregation.check("start-kube-aggregator-informers"),
            self.autoregistration.check("apiservice-status-local-available-controller"),
            self.aggregation.check("apiservice-registration-controller"),
            self.autoregistration.check("kube-apiserver-autoregistration"),
            Check { name: "autoregister-completion".to_owned(), ..registered.check("") },
            self.aggregation.check("apiservice-openapi-controller"),
            self.aggregation.check("apiservice-openapiv3-controller"),
            Check::new("shutdown", move || {
                if stopping.shutdown_initiated.is_fired() {
                    Err("process is shutting down".to_owned())
                } else {
                    Ok(())
                }
            })
            .ready_only(),
        ]);
        checks
    }

    /// The pre-shutdown hook: removes this server from the endpoints of service kubernetes.
    pub(crate) async fn before_shutdown(&self) {
        let Some(service) = self.kubernetes_service.get() else { return };
        let left = tokio::time::timeout(LEAVE_TIMEOUT, service.stop()).await;
        if let Ok(Err(error)) = left {
            tracing::warn!(
                "cannot remove this server from the endpoints of service kubernetes: {error}"
            );
        }
    }

    /// Creates missing objects and starts the controllers. `port` is the bound port.
    pub(crate) async fn start(
        &self,
        options: &Options,
        servers: &Servers,
        pki: &Pki,
        tokens: &Arc<Tokens>,
        port: u16,
        flow_controller: Option<Arc<FlowController>>,
    ) -> Result<(), String> {
        // Started with the servers; if one had failed, the process would have exited.
        for hook in [&self.informers, &self.extensions, &self.aggregation] {
            hook.done();
        }
        let api = Arc::new(servers.api());
        let bootstrap = Bootstrap { api: api.clone(), options, servers, pki, port };
        bootstrap.retry_until_deadline(self).await?;

        let tasks = &servers.tasks;
        let configured = self.flow_control_consumer.clone();
        start_apiserver_controllers(&api, &servers.kinds, tasks, flow_controller, configured);
        tasks.critical("allocation-repair", servers.wiring.keep_repairing(&servers.kinds));
        let (kinds, custom) = (&servers.kinds[..], servers.started.clone());
        let quota_usage = servers.quota_usage();
        ControllerContext { api: &api, kinds, custom, tasks, pki, tokens, quota_usage }
            .start(&options.standalone_controllers)
            .map_err(|error| error.to_string())
    }
}

/// A store that does not answer must not block the shutdown.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Adapts the store's leases to the controller's trait.
struct Leases(Arc<builtin::MasterLeases>);

impl controllers::MasterLeases for Leases {
    fn renew(&self, address: IpAddr) -> controllers::Pinned<'_, Result<(), ApiError>> {
        Box::pin(self.0.renew(address))
    }

    fn addresses(&self) -> controllers::Pinned<'_, Result<Vec<IpAddr>, ApiError>> {
        Box::pin(self.0.addresses())
    }

    fn remove(&self, address: IpAddr) -> controllers::Pinned<'_, Result<(), ApiError>> {
        Box::pin(self.0.leave(address))
    }
}

/// The controllers that kube-apiserver runs itself, with or without a kube-controller-manager.
fn start_apiserver_controllers(
    api: &Arc<Api>,
    kinds: &[Arc<Kind>],
    tasks: &Tasks,
    flow_controller: Option<Arc<FlowController>>,
    configured: Hook,
) {
    let of = |wanted: &dyn Fn(&Kind) -> bool| -> Vec<Arc<Kind>> {
        kinds.iter().filter(|kind| wanted(kind)).cloned().collect()
    };
    let namespaces = of(&|kind| kind.gvk().group.is_empty() && kind.gvk().kind == "Namespace");
    let own = api.clone();
    tasks.restarting("system-namespaces-controller", move || {
        let events = CacheInformer::start(&namespaces, |event| event.deleted);
        SystemNamespaces { api: own.clone() }.run(events)
    });

    let flow_control = of(&|kind| {
        let gvr = kind.facts.group_version_resource();
        gvr == flow_schemas().gvr || gvr == priority_levels().gvr
    });
    if !flow_control.is_empty() {
        let own = api.clone();
        tasks.restarting("priority-and-fairness-config-producer", move || {
            FlowControlBootstrap { api: own.clone() }.run()
        });
    }
    if let Some(controller) = flow_controller.clone() {
        tasks.restarting("priority-and-fairness-controller", move || {
            let controller = controller.clone();
            async move { controller.run().await }
        });
    }
    let configure = Box::new(move |levels: &[Value], schemas: &[Value]| {
        if let Some(controller) = &flow_controller {
            controller.configure(levels, schemas);
        }
        configured.done();
    });
    let events = CacheInformer::start(&flow_control, |_| true);
    let consumer = FlowControlConfigConsumer { api: api.clone(), configure };
    tasks.critical("priority-and-fairness-config-consumer", consumer.run(events));
}

/// A check that all watch caches are filled.
fn caches_synced(kinds: Vec<Arc<Kind>>) -> impl Fn() -> Result<(), String> + Send + Sync {
    move || {
        let mut storages = kinds.iter().filter_map(|kind| kind.storage.as_ref());
        match storages.find(|storage| !storage.cache.is_ready()) {
            None => Ok(()),
            Some(storage) => Err(format!("{} is being read", storage.prefix)),
        }
    }
}

/// How long the creation of the first objects may take on a slow machine.
const BOOTSTRAP_TIMEOUT: Duration = Duration::from_secs(30);

/// What the hooks of one start need.
struct Bootstrap<'a> {
    api: Arc<Api>,
    options: &'a Options,
    servers: &'a Servers,
    pki: &'a Pki,
    port: u16,
}

impl Bootstrap<'_> {
    /// Retries while the store is slow; existing objects are not created again.
    async fn retry_until_deadline(&self, hooks: &PostStartHooks) -> Result<(), String> {
        let deadline = Instant::now() + BOOTSTRAP_TIMEOUT;
        loop {
            let Err(error) = self.all(hooks).await else { return Ok(()) };
            let slow = matches!(
                error,
                ApiError::TooLargeResourceVersion { .. }
                    | ApiError::Timeout(_)
                    | ApiError::Conflict { .. }
            );
            if !slow || Instant::now() >= deadline {
                return Err(format!("cannot create the first objects: {error}"));
            }
            tracing::warn!(%error, "cannot create the first objects yet; retrying");
        }
    }

    async fn all(&self, hooks: &PostStartHooks) -> Result<(), ApiError> {
        let in_namespaces = async {
            self.system_namespaces().await?;
            hooks.system_namespaces.done();
            let authentication_info = async {
                self.authentication_info().await?;
                hooks.authentication_info.done();
                Ok::<(), ApiError>(())
            };
            let tracking = async {
                self.token_tracking().await?;
                hooks.token_tracking.done();
                Ok::<(), ApiError>(())
            };
            let lease = async {
                self.identity_lease().await?;
                hooks.identity_lease.done();
                hooks.identity_lease_collector.done();
                Ok::<(), ApiError>(())
            };
            let roles = async {
                if self.options.has_rbac() {
                    reconcile_bootstrap_roles(&*self.api).await?;
                }
                hooks.roles.done();
                Ok::<(), ApiError>(())
            };
            let bootstrap = async {
                self.servers.wiring.repair(&self.servers.kinds).await?;
                hooks.service_repair.done();
                self.kubernetes_service(hooks).await?;
                hooks.bootstrap.done();
                Ok::<(), ApiError>(())
            };
            let small = try_join3(authentication_info, tracking, roles);
            try_join(small, try_join(lease, bootstrap)).await?;
            Ok::<(), ApiError>(())
        };
        let cluster_wide = async {
            let classes = async {
                self.priority_classes().await?;
                hooks.priority_classes.done();
                Ok::<(), ApiError>(())
            };
            let flow_control = async {
                let levels = priority_levels();
                let make = ensure_flow_control_defaults(&*self.api);
                self.served(&levels, std::iter::once(make)).await?;
                hooks.flow_control.done();
                Ok::<(), ApiError>(())
            };
            let cidr = async {
                self.service_cidr().await?;
                hooks.service_cidr.done();
                Ok::<(), ApiError>(())
            };
            let registration = async {
                sync_api_services(&self.api, &self.servers.publisher.served()).await?;
                hooks.autoregistration.done();
                Ok::<(), ApiError>(())
            };
            try_join(try_join3(classes, flow_control, cidr), registration).await?;
            Ok::<(), ApiError>(())
        };
        try_join(in_namespaces, cluster_wide).await?;
        Ok(())
    }

    async fn system_namespaces(&self) -> Result<(), ApiError> {
        let target = Target::cluster("", "v1", "namespaces");
        let objects = controllers::SYSTEM_NAMESPACES.map(namespace);
        try_join_all(objects.iter().map(|object| get_or_create(&*self.api, &target, object)))
            .await?;
        Ok(())
    }

    async fn priority_classes(&self) -> Result<(), ApiError> {
        let target = Target::cluster("scheduling.k8s.io", "v1", "priorityclasses");
        let classes = priority_classes();
        self.served(&target, classes.iter().map(|class| get_or_create(&*self.api, &target, class)))
            .await
    }

    /// Awaits the futures if the resource is served, and does nothing otherwise.
    async fn served<T>(
        &self,
        target: &Target,
        makers: impl Iterator<Item = impl Future<Output = Result<T, ApiError>>>,
    ) -> Result<(), ApiError> {
        let kinds = &self.servers.kinds;
        if kinds.iter().any(|kind| kind.facts.group_version_resource() == target.gvr) {
            try_join_all(makers).await?;
        }
        Ok(())
    }

    /// Creates ServiceCIDR `kubernetes`, and starts the controller that recreates it.
    async fn service_cidr(&self) -> Result<(), ApiError> {
        let target = DefaultServiceCidr::target();
        let kinds = self.servers.kinds.iter();
        let served = kinds.filter(|kind| kind.facts.group_version_resource() == target.gvr);
        let served: Vec<Arc<Kind>> = served.cloned().collect();
        if served.is_empty() {
            return Ok(());
        }
        let ranges = self.options.service_cluster_ip_ranges.iter();
        let ranges = ranges.map(ToString::to_string).collect();
        let (api, ranges): (_, Vec<String>) = (self.api.clone(), ranges);
        let cidr = move || DefaultServiceCidr { api: api.clone(), ranges: ranges.clone() };
        cidr().sync().await?;
        self.servers.tasks.restarting("default-service-cidr-controller", move || {
            cidr().run(CacheInformer::start(&served, |event| {
                event.deleted && event.entry.name == DefaultServiceCidr::NAME
            }))
        });
        Ok(())
    }

    /// Creates service `default/kubernetes` with this server's endpoint, and starts its controller.
    async fn kubernetes_service(&self, hooks: &PostStartHooks) -> Result<(), ApiError> {
        let service = KubernetesService {
            api: self.api.clone(),
            address: self.options.kubernetes_service_ip,
            advertised: self.options.advertise_address,
            secure_port: self.port,
            endpoints: match (
                self.options.reconciles_endpoints,
                self.servers.wiring.master_leases(),
            ) {
                (false, _) => EndpointReconciler::None,
                (true, None) => EndpointReconciler::MasterCount,
                (true, Some(leases)) => EndpointReconciler::Lease(Arc::new(Leases(leases))),
            },
        };
        let service = Arc::new(service);
        drop(hooks.kubernetes_service.set(service.clone()));
        service.sync().await?;
        let wanted = ["Service", "Endpoints", "EndpointSlice"];
        let kinds = self.servers.kinds.iter();
        let kinds = kinds.filter(|kind| wanted.contains(&kind.gvk().kind.as_str()));
        let kinds: Vec<Arc<Kind>> = kinds.cloned().collect();
        self.servers.tasks.restarting("kubernetes-service-controller", move || {
            let events = CacheInformer::start(&kinds, |event| {
                let named = event.entry.name == "kubernetes";
                event.deleted && event.entry.namespace == "default" && named
            });
            let service = service.clone();
            async move { service.run(events).await }
        });
        Ok(())
    }

    /// Creates ConfigMap `extension-apiserver-authentication`, and starts the controller that keeps it
    /// current.
    async fn authentication_info(&self) -> Result<(), ApiError> {
        let client_ca = client_ca_file(self.options, self.pki).to_owned();
        let front = self.options.authentication.request_header.clone();
        let read = Box::new(move || authentication_info(&client_ca, front.as_ref()));
        let trust = ClusterAuthenticationTrust { api: self.api.clone(), read };
        trust.sync().await?;
        let kinds = self.servers.kinds.iter();
        let kinds =
            kinds.filter(|kind| kind.gvk().group.is_empty() && kind.gvk().kind == "ConfigMap");
        let events = CacheInformer::start(&kinds.cloned().collect::<Vec<_>>(), |event| {
            event.entry.namespace == "kube-system"
                && event.entry.name == ClusterAuthenticationTrust::NAME
        });
        let tasks = &self.servers.tasks;
        tasks.critical("cluster-authentication-trust", trust.run(events, RELOAD_INTERVAL));
        Ok(())
    }

    /// ConfigMap with the date since which uses of legacy service account tokens are tracked.
    async fn token_tracking(&self) -> Result<(), ApiError> {
        let target = Target::cluster("", "v1", "configmaps").in_namespace("kube-system");
        let today = meta::time::now();
        let today = today.split('T').next().unwrap_or_default().to_owned();
        let name = "kube-apiserver-legacy-service-account-token-tracking";
        get_or_create(&*self.api, &target, &config_map(name, &[("since", today)])).await.map(drop)
    }

    async fn identity_lease(&self) -> Result<(), ApiError> {
        let lease = IdentityLease::new(self.api.clone(), server_identity(), hostname());
        lease.renew().await?;
        let lease = Arc::new(lease);
        self.servers.tasks.restarting("apiserver-identity-lease", move || {
            let lease = lease.clone();
            async move { lease.run().await }
        });
        Ok(())
    }
}

/// What aggregated API servers need to know, from the files of now.
fn authentication_info(
    client_ca: &Path,
    front: Option<&RequestHeaderOptions>,
) -> Result<AuthenticationInfo, String> {
    let read = |file: &Path| {
        std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
    };
    let request_header = front.map(|front| {
        let headers = front.published.clone();
        Ok::<_, String>(RequestHeaderInfo {
            client_ca: read(&front.client_ca_file)?,
            allowed_names: headers.allowed_names,
            username_headers: headers.username_headers,
            uid_headers: headers.uid_headers,
            group_headers: headers.group_headers,
            extra_headers_prefix: headers.extra_headers_prefix,
        })
    });
    Ok(AuthenticationInfo {
        client_ca: read(client_ca)?,
        request_header: request_header.transpose()?,
    })
}

fn hostname() -> String {
    serve::pki::hostname().unwrap_or_else(|| "localhost".to_owned())
}

/// The identity of this API server, as leases and metrics have it.
pub(crate) fn server_identity() -> String {
    identity(&hostname())
}

/// The name of the identity lease: `apiserver-` and a hash of the hostname. It is kube-apiserver's hash,
/// so that Pintle takes over the lease of a kube-apiserver on the same machine.
fn identity(hostname: &str) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut hashed = Sha256::new();
    for part in [hostname, "kube-apiserver"] {
        hashed.update((part.len() as u16).to_be_bytes());
        hashed.update(part);
    }
    let hash = hashed.finalize();
    let mut text = "apiserver-".to_owned();
    let (mut bits, mut held) = (0u32, 0u32);
    for byte in &hash[..16] {
        held = (held << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(ALPHABET[(held >> bits) as usize & 31]));
        }
    }
    if bits > 0 {
        text.push(char::from(ALPHABET[(held << (5 - bits)) as usize & 31]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_kube_apiservers_hash_of_the_hostname() {
        // The lease of kube-apiserver on a machine of this name.
        assert_eq!(identity("vm"), "apiserver-wlv32tlttr4jl3gtroqexyxapa");
    }
}
