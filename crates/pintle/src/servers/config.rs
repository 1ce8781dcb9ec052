//! What the three servers are made from: kube-apiserver's `Config`, completed.

use std::sync::{Arc, OnceLock, Weak};

use ::egress::{EgressSelector, EgressType};
use admission::DynamicAdmission;
use aggregator::{PeerProxy, ServedGroupVersion};
use audit::{AuditMetrics, Auditor};
use background::Tasks;
use builtin::{Definitions, RestStorageProvider, StorageFormat};
use codec::negotiate::{OFFERED, OFFERED_WITH_CBOR, Offered};
use endpoints::{Kinds, LoopbackClient, Resources};
use otlp::Exporter;
use registry::{Engine, Kind, RegistryOptions};
use schema::{ResourceFacts, Schema, openapi::Describe as _};
use serve::{
    CpuPool, StorageVersions,
    metrics::Metrics,
    pki::{Pki, PkiError},
    tls::Tls,
};
use store::{
    Backend, EncodingCache,
    encrypt::{Encrypted, Encryption},
};
use tokio::task::JoinHandle;

use super::emulation::Emulation;
use super::{StorageVersionManager, peer_proxy, server_identity};
use crate::{
    access::{BearerTokens, RoleRules},
    admission_manifests::AdmissionManifests,
    auth_stack::AuthStack,
    egress, encryption_at_rest,
    in_process::CachedObjects,
    measured_store::StoreMetrics,
    node_connections::NodeConnections,
    options::Options,
    quotas::{CountedUsage, Quotas},
    serving, span_export,
    stores::Stores,
};

pub(crate) struct Config {
    pub(crate) options: Arc<Options>,
    pub(crate) stores: Stores,
    pub(crate) encryption: Arc<Encryption>,
    /// The main store, encrypted.
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) pki: Pki,
    /// Writes the files of new certificates and keys; None once they are on disk.
    pki_files: Option<JoinHandle<Result<(), PkiError>>>,
    pub(crate) tls: Arc<Tls>,
    pub(crate) auth: AuthStack,
    pub(crate) auth_metrics: auth::Metrics,
    pub(crate) schema: Arc<Schema>,
    /// The built-in kinds that are served, of all three servers.
    pub(crate) kinds: Vec<Arc<Kind>>,
    /// Their group-versions, as discovery shows them.
    pub(crate) group_versions: Vec<ServedGroupVersion>,
    /// What kinds do beyond keeping objects.
    pub(crate) rest_storage: Arc<RestStorageProvider>,
    pub(crate) admission_metrics: admission::Metrics,
    /// Webhooks and policies.
    pub(crate) dynamic_admission: Arc<DynamicAdmission>,
    pub(crate) admission_manifests: AdmissionManifests,
    pub(crate) quotas: Arc<Quotas>,
    engine: Arc<Engine>,
    /// Plugins look up custom resources and write through servers that are made after them, and that own them.
    custom: Arc<OnceLock<Weak<Resources>>>,
    local: Arc<OnceLock<LoopbackClient>>,
    pub(crate) node_connections: NodeConnections,
    /// None: StorageVersions are not written.
    pub(crate) storage_versions: Option<Arc<StorageVersionManager>>,
    /// None: requests are not sent on to other API servers of the cluster.
    pub(crate) peer_proxy: Option<Arc<PeerProxy>>,
    pub(crate) cpu_pool: CpuPool,
    pub(crate) tasks: Tasks,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) auditor: Option<Arc<Auditor>>,
    /// None: no collector of spans is configured.
    pub(crate) spans: Option<Arc<Exporter>>,
}

impl Config {
    /// Opens what the options name: store, keys, files.
    pub(crate) async fn new(
        options: Arc<Options>,
        mut definitions: Definitions,
        tasks: Tasks,
    ) -> Result<Self, String> {
        EncodingCache::process().set_bytes_max(options.encoding_cache_bytes);
        let egress = egress::selector(&options)?;
        let stores = Stores::open(&options, egress::dialer(&egress, EgressType::Etcd), &tasks)?;
        stores.reachable(&options).await?;
        let file = options.encryption.as_ref().map(|config| config.file.as_path());
        let encryption =
            encryption_at_rest::encryption(file, &options.storage_prefix, &definitions, &tasks)?;
        encryption_at_rest::wait_for_plugins(&encryption).await;
        let metrics = Metrics::new(options.metrics.clone());
        let prefix = &options.storage_prefix;
        let store_metrics = StoreMetrics::register(&metrics.registry, prefix, &definitions);
        let encrypted = |inner: Arc<dyn Backend>| -> Arc<dyn Backend> {
            Arc::new(Encrypted::new(store_metrics.measure(inner), encryption.clone()))
        };
        let backend = encrypted(stores.backend());
        let overrides = stores.overrides().into_iter();
        let overrides = overrides.map(|(resource, inner)| (resource, encrypted(inner))).collect();
        let (pki, files) = serving::prepare_pki(&options)?;
        let writes_files = !files.is_empty();
        let pki_files = writes_files.then(|| tokio::task::spawn_blocking(|| files.write()));
        let tls = serving::prepare_tls(&options, &pki)?;
        let auth_metrics = auth::Metrics::new(&server_identity());
        let auth = AuthStack::new(
            &options,
            &pki,
            &auth_metrics,
            &metrics.registry,
            egress::of_auth(&egress, &options),
            &tasks,
        )
        .await?;
        let cpu_pool = CpuPool::start(CpuPool::threads())
            .map_err(|error| format!("cannot start threads: {error}"))?;
        metrics.on_reset(move || store_metrics.reset());
        let audit_metrics = AuditMetrics::register(&metrics.registry);
        let control_plane = egress.proxy(EgressType::ControlPlane);
        let auditor = Auditor::start_with(&options.audit, audit_metrics, control_plane, &tasks)?;
        let spans = span_export::start(
            options.tracing.as_ref(),
            &metrics.registry,
            &tasks,
            egress::dialer(&egress, EgressType::ControlPlane),
        )?;

        let schema = Arc::new(std::mem::take(&mut definitions.schema));
        let emulation = Emulation::new(&options, &definitions.resources);
        emulation.check()?;
        let served = |facts: &ResourceFacts| is_served(&options, facts) && emulation.serves(facts);
        let kind_options = kind_options(&options, &auth, overrides);
        let (kinds, rest_storage) =
            builtin::kinds(&definitions, &schema, &served, &backend, &kind_options);
        let group_versions = group_versions(&definitions, &kinds);
        let storage_versions = StorageVersionManager::new(&options, &definitions, &kinds);

        let (custom, local) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
        let node_connections =
            NodeConnections::new(&options, egress, auth.authorizer.clone(), local.clone())?;
        let objects = CachedObjects::new(&kinds, custom.clone(), local.clone(), schema.clone());
        let dynamic_admission = Arc::new(dynamic_admission(&options, &node_connections.egress)?);
        let enabled = |gate: &str| options.feature_gates.enabled(gate);
        let crd_strategy = &kind_options.crd_strategy;
        let admission_manifests = AdmissionManifests::new(
            options.admission_plugins.manifest_directories(&enabled)?,
            builtin::static_admission_kinds(&definitions, &schema, crd_strategy),
            &dynamic_admission,
            &server_identity(),
        );
        admission_manifests.start(&tasks)?;
        let quotas = Arc::new(Quotas::new(&enabled, options.etcd.is_some()));
        let admission = admission_chain(&options, &auth, objects, &quotas, &dynamic_admission)?;
        let admission_metrics = admission.metrics().clone();
        let engine = Engine::new(
            admission,
            auth.authorizer.clone(),
            registry_options(&options),
            schema.clone(),
            Box::new(field_descriptions),
        );
        let mut config = Self {
            options,
            stores,
            encryption,
            backend,
            pki,
            pki_files,
            tls,
            auth,
            auth_metrics,
            schema,
            kinds,
            group_versions,
            rest_storage: Arc::new(rest_storage),
            admission_metrics,
            dynamic_admission,
            admission_manifests,
            quotas,
            engine,
            custom,
            local,
            node_connections,
            storage_versions,
            peer_proxy: None,
            cpu_pool,
            tasks,
            metrics,
            auditor,
            spans,
        };
        config.peer_proxy = peer_proxy(&config)?;
        Ok(config)
    }

    /// Returns when the files of new certificates and keys are on disk.
    pub(crate) async fn write_pki_files(&mut self) -> Result<(), String> {
        let Some(writing) = self.pki_files.take() else { return Ok(()) };
        let written = writing.await.map_err(|error| error.to_string())?;
        written.map_err(|error| error.to_string())
    }

    /// The built-in resources of some groups, as a server answers them.
    pub(super) fn resources(
        &self,
        server: &'static str,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Arc<Resources> {
        let kinds = self.kinds.iter().filter(|kind| wanted(&kind.gvk().group)).cloned();
        let resources = Resources::new(server, self.engine.clone(), Kinds::new(kinds));
        let resources = resources.with_connecters(self.node_connections.connecters.clone());
        Arc::new(resources.with_cpu_pool(self.cpu_pool.clone()))
    }

    /// Whether a built-in kind is served in any version.
    pub(super) fn serves(&self, group: &str, kind: &str) -> bool {
        self.kinds.iter().any(|own| own.gvk().group == group && own.gvk().kind == kind)
    }

    /// Admission plugins may now use the servers.
    pub(super) fn connect_admission(&self, custom: &Arc<Resources>, local: LoopbackClient) {
        let _ = self.custom.set(Arc::downgrade(custom));
        drop(self.local.set(local));
    }

    /// None: writes do not wait for StorageVersions.
    pub(crate) fn storage_version_barrier(&self) -> Option<Arc<StorageVersions>> {
        self.storage_versions.as_ref().map(|manager| manager.barrier.clone())
    }

    /// What is read from the store each time.
    pub(super) fn bypasses_cache(&self) -> Arc<dyn Fn(&meta::GroupResource) -> bool + Send + Sync> {
        from_store(&self.options)
    }

    /// What the quota controller counts.
    pub(crate) fn quota_usage(&self) -> Arc<CountedUsage> {
        let (custom, schema) = (self.custom.clone(), self.schema.clone());
        Arc::new(CountedUsage {
            objects: Arc::new(CachedObjects::new(&self.kinds, custom, Arc::default(), schema)),
            quotas: self.quotas.clone(),
        })
    }
}

/// Whether feature gates and `--runtime-config` let a resource be served.
pub(super) fn is_served(options: &Options, facts: &ResourceFacts) -> bool {
    let gv = facts.group_version();
    let gate = builtin::gate_of(&facts.kind);
    let (config, on_by_default) = (&options.runtime_config, facts.on_by_default);
    gate.is_none_or(|gate| options.feature_gates.enabled(gate.name()))
        && config.serves(&gv.group, &gv.version, &facts.plural, on_by_default)
}

fn kind_options(
    options: &Options,
    auth: &AuthStack,
    overrides: Vec<(meta::GroupResource, Arc<dyn Backend>)>,
) -> builtin::Options {
    builtin::Options {
        prefix: options.storage_prefix.clone(),
        form: options.etcd.as_ref().map_or(StorageFormat::Own, |etcd| etcd.form),
        overrides,
        from_store: from_store(options),
        event_ttl: options.event_ttl,
        crd_strategy: Arc::new(apiextensions::definition::CustomResourceDefinition),
        access: builtin::Access {
            authorizer: auth.authorizer.clone(),
            rule_resolver: Arc::new(RoleRules(auth.roles.clone())),
            token_authenticator: Arc::new(BearerTokens(auth.authenticator.clone())),
        },
        tokens: auth.tokens.clone(),
        service_cluster_ip_ranges: options
            .service_cluster_ip_ranges
            .iter()
            .map(ToString::to_string)
            .collect(),
        service_node_ports: options.service_node_port_range.bounds(),
        allow_privileged: options.allow_privileged,
        features: builtin::FeatureGates::new(|gate| options.feature_gates.enabled(gate)),
    }
}

fn dynamic_admission(
    options: &Options,
    egress: &EgressSelector,
) -> Result<DynamicAdmission, String> {
    let credentials = |plugin| options.admission_plugins.webhook_credentials(plugin);
    Ok(DynamicAdmission::new(
        credentials("MutatingAdmissionWebhook")?,
        credentials("ValidatingAdmissionWebhook")?,
        egress::of_webhooks(egress),
    ))
}

fn admission_chain(
    options: &Options,
    auth: &AuthStack,
    objects: CachedObjects,
    quotas: &Arc<Quotas>,
    dynamic_admission: &Arc<DynamicAdmission>,
) -> Result<admission::Chain, String> {
    let gates = &options.feature_gates;
    let enabled = |gate: &str| gates.enabled(gate);
    let evaluators = quotas.evaluators.clone();
    let plugins = options.admission_plugins.build(&enabled, evaluators, quotas.clone())?;
    let cluster = admission::Cluster {
        objects: Box::new(objects),
        authorizer: auth.authorizer.clone(),
        dynamic_admission: dynamic_admission.clone(),
    };
    let chain = admission::Chain::new(plugins, cluster);
    log_plugins(&chain);
    Ok(chain)
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

/// The built-in group-versions with their resources, as discovery shows them.
fn group_versions(definitions: &Definitions, kinds: &[Arc<Kind>]) -> Vec<ServedGroupVersion> {
    let facts: Vec<Arc<ResourceFacts>> =
        kinds.iter().map(|kind| Arc::new(kind.facts.clone())).collect();
    let group_versions = definitions.group_versions.iter();
    let served = group_versions.map(|group_version| ServedGroupVersion::new(group_version, &facts));
    served.filter(|served| !served.resources.is_empty()).collect()
}

fn registry_options(options: &Options) -> RegistryOptions {
    RegistryOptions {
        min_request_timeout: options.min_request_timeout,
        offered: offered(options),
        delete_collection_workers: options.delete_collection_workers,
        garbage_collection: options.enable_garbage_collector,
        unsafe_deletion: options.feature_gates.enabled("AllowUnsafeMalformedObjectDeletion"),
    }
}

fn from_store(options: &Options) -> Arc<dyn Fn(&meta::GroupResource) -> bool + Send + Sync> {
    let watch_cache = options.watch_cache.clone();
    Arc::new(move |resource| watch_cache.is_off(resource))
}

/// The formats in which the API is spoken.
pub(crate) fn offered(options: &Options) -> Offered {
    if options.feature_gates.enabled("CBORServingAndStorage") { OFFERED_WITH_CBOR } else { OFFERED }
}

/// What is said about fields of types. The texts are unpacked when a table asks for those of its
/// columns, which every kind does once.
fn field_descriptions(fields: &[(&str, &str)]) -> Vec<String> {
    let descriptions = descriptions::Descriptions::load();
    let text = |(definition, field): &(&str, &str)| descriptions.field(definition, field);
    fields.iter().map(|field| text(field).unwrap_or_default().into_owned()).collect()
}
