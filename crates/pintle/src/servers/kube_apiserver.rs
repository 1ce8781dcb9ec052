//! The server in the middle: the built-in resources, and the objects and controllers that a cluster has
//! from its first start on.

mod bootstrap_objects;
mod cluster_authentication;
mod identity_lease;
mod kubernetes_service;
mod leader_election;
mod peer_endpoints;
mod peer_proxy;
mod service_ip_repair;

use std::sync::Arc;

use endpoints::Resources;
use serve::{Claims, Delegate};

use self::{
    identity_lease::IdentityLeaseHooks, kubernetes_service::KubernetesServiceHooks,
    leader_election::LeaderElectionHooks, peer_endpoints::PeerEndpointHooks,
};
pub(crate) use self::{identity_lease::server_identity, peer_proxy::peer_proxy};
use super::{Config, GenericApiServer, REGISTRATION_GROUP, delegate};
use crate::{open_id::OpenId, serving::client_ca};

pub(crate) struct KubeApiServer {
    /// The built-in groups.
    pub(crate) resources: Arc<Resources>,
    open_id: Arc<OpenId>,
}

impl KubeApiServer {
    pub(super) fn new(config: &Config) -> Self {
        let resources = config.resources("kube-apiserver", &|group| {
            group != REGISTRATION_GROUP && group != apiextensions::GROUP
        });
        Self { resources, open_id: config.auth.open_id.clone() }
    }

    pub(super) fn delegates(&self) -> Vec<(Arc<dyn Delegate>, Claims)> {
        vec![(self.open_id.clone(), OpenId::claims()), delegate(&self.resources)]
    }

    pub(super) fn paths() -> Vec<String> {
        OpenId::PATHS.map(str::to_owned).to_vec()
    }

    pub(super) fn install(config: &Config, server: &mut GenericApiServer) {
        let options = &config.options;
        let namespaces = bootstrap_objects::system_namespaces;
        server.add_post_start_hook("start-system-namespaces-controller", namespaces);
        if options.feature_gates.enabled("CoordinatedLeaderElection") {
            let election = LeaderElectionHooks::default();
            let stop = election.clone();
            let name = "start-kube-apiserver-coordinated-leader-election-controller";
            server.add_post_start_hook(name, async move |cx| {
                election.start(&cx);
                Ok(())
            });
            server.add_pre_shutdown_hook(
                "stop-kube-apiserver-coordinated-leader-election-controller",
                async || stop.stop().await,
            );
        }
        if options.feature_gates.enabled("UnknownVersionInteroperabilityProxy") {
            let peers = PeerEndpointHooks::new(&config.rest_storage);
            let stop = peers.clone();
            let name = "peer-endpoint-reconciler-controller";
            server.add_post_start_hook(name, async |cx| {
                peers.start(cx);
                Ok(())
            });
            server.add_pre_shutdown_hook(name, async || stop.stop().await);
            if let Some(proxy) = &config.peer_proxy {
                peer_proxy::install(proxy, server);
            }
        }
        let client_ca = client_ca(options, &config.pki);
        let front_proxy_ca = config.pki.front_proxy_ca_cert.clone();
        server.add_post_start_hook("start-cluster-authentication-info-controller", async |cx| {
            cluster_authentication::start(cx, client_ca, front_proxy_ca).await
        });
        if options.feature_gates.enabled("APIServerIdentity") {
            Self::install_identity(server);
        }
        if options.feature_gates.enabled("WatchCacheInitializationPostStartHook") {
            // The port opens when the caches are filled or `--storage-initialization-timeout` is over.
            server.add_post_start_hook("storage-readiness", async |_| Ok(()));
        }
        let tracking = bootstrap_objects::token_tracking;
        server.add_post_start_hook("start-legacy-token-tracking-controller", tracking);

        let rest_storage = config.rest_storage.clone();
        server.add_post_start_hook("start-service-ip-repair-controllers", async move |cx| {
            service_ip_repair::start(cx, rest_storage).await
        });
        if options.has_rbac() && config.serves("rbac.authorization.k8s.io", "ClusterRole") {
            let roles = bootstrap_objects::bootstrap_roles;
            server.add_post_start_hook("rbac/bootstrap-roles", roles);
        }
        // Compat: the hooks of a group go with it when `--runtime-config` turns it off.
        if config.serves("scheduling.k8s.io", "PriorityClass") {
            let classes = bootstrap_objects::priority_classes;
            server.add_post_start_hook("scheduling/bootstrap-system-priority-classes", classes);
        }
        if config.serves("flowcontrol.apiserver.k8s.io", "FlowSchema") {
            let flow_control = bootstrap_objects::flow_control;
            server.add_post_start_hook("priority-and-fairness-config-producer", flow_control);
        }
        let service = KubernetesServiceHooks::new(&config.rest_storage);
        let stop = service.clone();
        server.add_post_start_hook("bootstrap-controller", async |cx| service.start(cx).await);
        server.add_pre_shutdown_hook("stop-kubernetes-service-controller", async || {
            stop.stop().await
        });
        let cidr = bootstrap_objects::service_cidr;
        server.add_post_start_hook("start-kubernetes-service-cidr-controller", cidr);
    }

    fn install_identity(server: &mut GenericApiServer) {
        let lease = IdentityLeaseHooks::default();
        let stop = lease.clone();
        server.add_post_start_hook("start-kube-apiserver-identity-lease-controller", async |cx| {
            lease.start(cx).await
        });
        server.add_pre_shutdown_hook("stop-kube-apiserver-identity-lease-controller", async || {
            stop.stop().await
        });
        let name = "start-kube-apiserver-identity-lease-garbage-collector";
        server.add_post_start_hook(name, async |cx| {
            // Expired leases of other servers are deleted where the own one is renewed.
            cx.after("start-kube-apiserver-identity-lease-controller").await;
            Ok(())
        });
    }
}
