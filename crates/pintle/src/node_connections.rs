//! What the CONNECT subresources of pods, Services and nodes are built from.

use std::sync::{Arc, OnceLock};

use ::egress::{EgressSelector, EgressType};
use connect::{Gates, Metrics, OwnPort};
use endpoints::{Connecters, LoopbackClient};
use meta::authorization::Authorizer;

use crate::options::Options;

pub(crate) struct NodeConnections {
    /// Set when the port is bound.
    pub(crate) own_port: OwnPort,
    pub(crate) connecters: Connecters,
    pub(crate) egress: EgressSelector,
    metrics: Metrics,
}

impl NodeConnections {
    /// `local` is set once the servers are put together.
    pub(crate) fn new(
        options: &Options,
        egress: EgressSelector,
        authorizer: Arc<dyn Authorizer>,
        local: Arc<OnceLock<LoopbackClient>>,
    ) -> Result<Self, String> {
        let (own_port, metrics) = (OwnPort::default(), Metrics::default());
        let enabled = |gate| options.feature_gates.enabled(gate);
        let connecters = connect::connecters(connect::Options {
            kubelets: options.kubelet.config.clone(),
            egress: egress.proxy(EgressType::Cluster),
            own_port: own_port.clone(),
            authorizer,
            local,
            gates: Gates {
                authorize_create: enabled("AuthorizePodWebsocketUpgradeCreatePermission"),
                translate_websockets: enabled("TranslateStreamCloseWebsocketRequests"),
                port_forward_websockets: enabled("PortForwardWebsockets"),
                websockets_to_kubelet: enabled("ExtendWebSocketsToKubelet"),
                split_log_streams: enabled("PodLogsQuerySplitStreams"),
            },
            bytes_per_second_max: options.kubelet.bytes_per_second_max,
            metrics: metrics.clone(),
        });
        let connecters = connecters.map_err(|error| format!("--kubelet-*: {error}"))?;
        Ok(Self { own_port, connecters, egress, metrics })
    }

    pub(crate) fn register_metrics(&self, registry: &prometheus::Registry) -> Result<(), String> {
        self.metrics.register(registry).map_err(|error| error.to_string())?;
        self.egress.register_metrics(registry).map_err(|error| error.to_string())
    }
}
