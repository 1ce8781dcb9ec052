//! Requests that other API servers of the cluster answer: the proxy to them, and the hooks that let it know of
//! them. Without `--peer-ca-file` there is none.

use std::sync::Arc;

use aggregator::{IDENTITY_LABEL, PeerDiscovery, PeerEndpoints, PeerProxy, PeerSettings};
use builtin::PeerLeases;
use client::{HostPort, Identity, Pem, TcpDial};
use controllers::BoxFuture;
use egress::EgressType;
use meta::ApiError;
use store::Entry;

use super::super::{Config, GenericApiServer, server_identity};
use crate::{
    cache_informer::{CacheEvent, CacheInformer},
    in_process::tree,
    post_start_hooks::HookContext,
};

struct LeasedEndpoints(Arc<PeerLeases>);

impl PeerEndpoints for LeasedEndpoints {
    fn endpoint<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<HostPort>, ApiError>> {
        Box::pin(async move {
            let found = self.0.endpoint(id).await?;
            Ok(found.map(|(host, port)| HostPort { host: host.to_string(), port }))
        })
    }
}

/// None: the flag is not set, or no other server shares the store.
pub(crate) fn peer_proxy(config: &Config) -> Result<Option<Arc<PeerProxy>>, String> {
    let options = &config.options;
    let Some(ca_file) = &options.peer_ca_file else { return Ok(None) };
    let Some(leases) = config.rest_storage.peer_leases() else { return Ok(None) };
    let mut pairs = options.authentication.client_pairs.iter();
    let (_, pair) = pairs
        .find(|(flag, _)| *flag == "proxy-client-cert-file")
        .ok_or("error building peer proxy handler, proxy-cert-file not specified")?;
    let dial = config.node_connections.egress.proxy(EgressType::ControlPlane);
    let settings = PeerSettings {
        id: server_identity(),
        ca_file: ca_file.clone(),
        identity: Identity {
            certificate: Pem::File(pair.cert_file.clone()),
            key: Pem::File(pair.key_file.clone()),
        },
        dial: dial.unwrap_or_else(|| Arc::new(TcpDial::default())),
        endpoints: Arc::new(LeasedEndpoints(leases)),
    };
    let proxy = PeerProxy::new(settings, &config.group_versions, config.schema.clone());
    proxy.map(Some).map_err(|error| format!("--peer-ca-file {}: {error}", ca_file.display()))
}

pub(super) fn install(proxy: &Arc<PeerProxy>, server: &mut GenericApiServer) {
    let own = proxy.clone();
    server.add_post_start_hook("mixed-version-proxy-handler", async move |cx| {
        // The group-versions of other servers and of definitions are known.
        cx.after("apiservice-registration-controller").await;
        own.open();
        Ok(())
    });
    // The table of what this server has is always current.
    server.add_post_start_hook("local-discovery-cache-sync", async |_| Ok(()));
    let own = proxy.clone();
    server.add_post_start_hook("peer-discovery-workers", async move |cx| {
        start_discovery(own, &cx);
        Ok(())
    });
}

fn start_discovery(proxy: Arc<PeerProxy>, cx: &HookContext) {
    let leases = cx.kinds_of("coordination.k8s.io", &["Lease"]);
    let api: Arc<dyn controllers::ApiClient> = cx.api.clone();
    cx.tasks.restarting("peer-discovery-cache-sync", move || {
        let events = CacheInformer::start(&leases, says_of_a_server);
        PeerDiscovery::new(api.clone(), proxy.clone()).run(events)
    });
}

/// Whether a server has come, gone or started anew. Most events of leases are renewals, of nodes above all.
fn says_of_a_server(event: &CacheEvent<'_>) -> bool {
    let (label, value) = IDENTITY_LABEL;
    let has_label = |(key, known): &(_, _)| key == label && known == value;
    if event.entry.namespace != "kube-system" || !event.entry.labels.iter().any(has_label) {
        return false;
    }
    let holder = |entry: &Entry| {
        let lease = tree(entry).unwrap_or_default();
        lease.str_at(&["spec", "holderIdentity"]).to_owned()
    };
    event.deleted || event.previous.is_none_or(|previous| holder(previous) != holder(event.entry))
}
