//! The remote half of the aggregator: APIServices that other servers answer for, and the controllers that
//! follow them.

use std::sync::Arc;

use aggregator::{
    AvailabilityMetrics, DiscoveryManager, LocalAvailableController, OpenApiController,
    OpenApiMetrics, OpenApiV3Controller, Registration, RemoteApis, RemoteAvailableController,
    RemoteClient, RemoteSettings,
};
use client::{
    ClusterIp, Dial, Endpoints, HostPort, Identity, Loopback, Pem, Secret, ServiceResolver, TcpDial,
};
use egress::EgressType;
use prometheus::Registry;
use proxy::Redirects;
use registry::Kind;
use schema::Schema;
use serve::pki::Pki;

use super::REGISTRATION_GROUP;
use crate::{
    cache_informer::{CacheInformer, concerns_remote_api_service},
    discovery_publisher::DiscoveryPublisher,
    options::Options,
    post_start_hooks::HookContext,
    servers::Config,
    service_objects::ServiceObjects,
};

pub(crate) struct Aggregation {
    pub(crate) registration: Arc<Registration>,
    apis: Arc<RemoteApis>,
    pub(crate) client: Arc<RemoteClient>,
    services: ServiceObjects,
    schema: Arc<Schema>,
    availability: AvailabilityMetrics,
    openapi: OpenApiMetrics,
}

impl Aggregation {
    pub(super) fn new(config: &Config, publisher: &Arc<DiscoveryPublisher>) -> Self {
        let options = &config.options;
        let services = ServiceObjects::new(&config.kinds);
        let otherwise: Arc<dyn ServiceResolver> = if options.aggregator_routing {
            Arc::new(Endpoints::new(services.clone()))
        } else {
            Arc::new(ClusterIp(services.clone()))
        };
        let resolver = match options.secure_port {
            // A port that is not known yet is no place to go to.
            0 => otherwise,
            port => {
                let host = options.advertise_address.to_string();
                Arc::new(Loopback { host: HostPort { host, port }, otherwise })
            }
        };
        let settings = RemoteSettings {
            identity: proxy_client_identity(options, &config.pki),
            resolver,
            dial: cluster_dial(config),
            redirects: if options.aggregator_reject_forwarding_redirect {
                Redirects::Refuse
            } else {
                Redirects::Pass
            },
        };
        // Weak: the publisher reads from those that call it.
        let changed = || {
            let publisher = Arc::downgrade(publisher);
            move || {
                if let Some(publisher) = publisher.upgrade() {
                    publisher.on_remote_apis_changed();
                }
            }
        };
        let registration = Registration::new(settings, changed());
        let apis = RemoteApis::new(changed());
        publisher.connect(registration.clone(), apis.clone());
        let client = Arc::new(RemoteClient::new(registration.clone(), apis.clone()));
        Self {
            registration,
            apis,
            client,
            services,
            schema: config.schema.clone(),
            availability: AvailabilityMetrics::default(),
            openapi: OpenApiMetrics::default(),
        }
    }

    pub(super) fn register_metrics(&self, registry: &Registry) {
        self.availability.register(registry);
        self.openapi.register(registry);
    }

    /// Remote group-versions are answered when this returns.
    pub(super) async fn start_registration(&self, cx: &HookContext) -> Result<(), String> {
        if !cx.api.serves_api_services() {
            // `--runtime-config` has turned them off.
            return Ok(());
        }
        let api: Arc<dyn controllers::ApiClient> = cx.api.clone();
        self.registration.sync(&*api).await.map_err(|error| error.to_string())?;
        let (registration, kinds) = (self.registration.clone(), api_services(cx));
        cx.tasks.restarting("apiservice-registration-controller", move || {
            // An APIService without a Service changes nothing here; at the start there are only such ones.
            let events = CacheInformer::start(&kinds, concerns_remote_api_service);
            registration.clone().run(api.clone(), events)
        });
        Ok(())
    }

    pub(super) fn start_local_availability(&self, cx: &HookContext) {
        let api: Arc<dyn controllers::ApiClient> = cx.api.clone();
        let (metrics, kinds) = (self.availability.clone(), api_services(cx));
        cx.tasks.restarting("apiservice-status-local-available-controller", move || {
            let events = CacheInformer::start(&kinds, |_| true);
            LocalAvailableController { api: api.clone(), metrics: metrics.clone() }.run(events)
        });
    }

    pub(super) fn start_remote_availability(&self, cx: &HookContext) {
        let api: Arc<dyn controllers::ApiClient> = cx.api.clone();
        let mut kinds = api_services(cx);
        kinds.extend(cx.kinds_of("", &["Service"]));
        kinds.extend(cx.kinds_of("discovery.k8s.io", &["EndpointSlice"]));
        let registration = self.registration.clone();
        let (services, metrics) = (self.services.clone(), self.availability.clone());
        cx.tasks.restarting("apiservice-status-remote-available-controller", move || {
            let events = CacheInformer::start(&kinds, |_| true);
            let lookup = Arc::new(services.clone());
            let (registration, metrics) = (registration.clone(), metrics.clone());
            RemoteAvailableController::new(api.clone(), registration, lookup, metrics).run(events)
        });
    }

    pub(super) fn start_discovery(&self, cx: &HookContext) {
        let (registration, apis) = (self.registration.clone(), self.apis.clone());
        let schema = self.schema.clone();
        cx.tasks.restarting("apiservice-discovery-controller", move || {
            let events = registration.subscribe();
            DiscoveryManager::new(registration.clone(), apis.clone(), schema.clone()).run(events)
        });
    }

    pub(super) fn start_openapi(&self, cx: &HookContext) {
        let (registration, apis) = (self.registration.clone(), self.apis.clone());
        let metrics = self.openapi.clone();
        cx.tasks.restarting("apiservice-openapi-controller", move || {
            let events = registration.subscribe();
            OpenApiController::new(registration.clone(), apis.clone(), metrics.clone()).run(events)
        });
    }

    pub(super) fn start_openapiv3(&self, cx: &HookContext) {
        let (registration, apis) = (self.registration.clone(), self.apis.clone());
        cx.tasks.restarting("apiservice-openapiv3-controller", move || {
            let events = registration.subscribe();
            OpenApiV3Controller::new(registration.clone(), apis.clone()).run(events)
        });
    }
}

fn api_services(cx: &HookContext) -> Vec<Arc<Kind>> {
    cx.kinds_of(REGISTRATION_GROUP, &["APIService"])
}

/// Aggregated servers are in the cluster.
fn cluster_dial(config: &Config) -> Arc<dyn Dial> {
    let proxy = config.node_connections.egress.proxy(EgressType::Cluster);
    proxy.unwrap_or_else(|| Arc::new(TcpDial::default()))
}

/// By which aggregated servers know this one. Without flags it is the generated certificate, whose CA is
/// published in ConfigMap `extension-apiserver-authentication`; with another CA published, it would be
/// refused.
fn proxy_client_identity(options: &Options, pki: &Pki) -> Option<Identity> {
    let mut pairs = options.authentication.client_pairs.iter();
    let given = pairs.find(|(flag, _)| *flag == "proxy-client-cert-file");
    let (certificate, key) = match given {
        Some((_, pair)) => (Pem::File(pair.cert_file.clone()), Pem::File(pair.key_file.clone())),
        None if options.authentication.request_header.is_none() => {
            (client_pem(&pki.front_proxy_client_cert), client_pem(&pki.front_proxy_client_key))
        }
        None => return None,
    };
    Some(Identity { certificate, key })
}

fn client_pem(generated: &serve::Pem) -> Pem {
    match generated {
        serve::Pem::File(_) | serve::Pem::Unwritten(_) => Pem::File(generated.path().to_owned()),
        serve::Pem::Memory(text) => Pem::Bytes(Secret::new(text.as_bytes().to_vec())),
    }
}
