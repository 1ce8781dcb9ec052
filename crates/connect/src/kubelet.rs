//! How the kubelet of a node is reached: its address and port by the node's status, and the client that
//! has the server's credentials for kubelets.

use std::{path::PathBuf, sync::Arc, time::Duration};

use client::{Client, Config, Dial, Identity, Limits, Pem, Tls, Trust};
use meta::{ApiError, Value};

use crate::allowed_address::AllowedDial;

/// `--kubelet-*`.
#[derive(Clone, Debug)]
pub struct KubeletConfig {
    /// Where the node does not say which.
    pub port: u16,
    pub preferred_address_types: Vec<String>,
    /// None: kubelets' certificates are not verified.
    pub certificate_authority: Option<PathBuf>,
    /// Certificate and key.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// To connect.
    pub timeout: Duration,
}

/// Clients of all kubelets.
pub(crate) struct Kubelets {
    config: KubeletConfig,
    /// Verifies certificates, if there is an authority.
    pub(crate) client: Client,
    /// `insecureSkipTLSVerifyBackend`.
    pub(crate) insecure: Client,
}

/// Where a kubelet is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConnectionInfo {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `status.declaredFeatures` has `ExtendWebSocketsToKubelet`.
    pub(crate) speaks_websocket: bool,
}

impl Kubelets {
    pub(crate) fn new(
        config: KubeletConfig,
        dial: &Arc<AllowedDial>,
    ) -> Result<Self, client::ConfigError> {
        let trust = config.certificate_authority.clone().map_or(Trust::Insecure, Trust::File);
        let client = |trust| {
            let identity = config.client_certificate.clone().map(|(certificate, key)| Identity {
                certificate: Pem::File(certificate),
                key: Pem::File(key),
            });
            Client::new(Config {
                tls: Tls { trust, identity, ..Tls::default() },
                dial: dial.clone() as Arc<dyn Dial>,
                limits: Limits::for_proxy(),
                ..Config::default()
            })
        };
        Ok(Self { client: client(trust)?, insecure: client(Trust::Insecure)?, config })
    }

    /// Where the kubelet of this node is, as kube-apiserver finds it.
    pub(crate) fn connection_info(&self, node: &Value) -> Result<ConnectionInfo, ApiError> {
        let addresses = node.items_at(&["status", "addresses"]);
        let mut types = self.config.preferred_address_types.iter();
        let found = types.find_map(|wanted| {
            addresses.iter().find(|address| address.str_at(&["type"]) == wanted.as_str())
        });
        let Some(address) = found else { return Err(no_address(addresses)) };
        let port = node.i64_at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"]);
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        let features = node.items_at(&["status", "declaredFeatures"]);
        Ok(ConnectionInfo {
            host: address.str_at(&["address"]).to_owned(),
            port: port.unwrap_or(self.config.port),
            speaks_websocket: features
                .iter()
                .any(|feature| feature.as_str() == Some("ExtendWebSocketsToKubelet")),
        })
    }
}

/// Compat: an error without a code of its own, with Go's way to print a list.
fn no_address(addresses: &[Value]) -> ApiError {
    let shown: Vec<String> = addresses
        .iter()
        .map(|address| {
            format!("{{{} {}}}", address.str_at(&["type"]), address.str_at(&["address"]))
        })
        .collect();
    let shown = shown.join(" ");
    ApiError::Storage(format!("no preferred addresses found; known addresses: [{shown}]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allowed_address::{OwnPort, SystemResolver, Way};

    fn kubelets(types: &[&str]) -> Kubelets {
        let config = KubeletConfig {
            port: 10250,
            preferred_address_types: types.iter().map(|name| (*name).to_owned()).collect(),
            certificate_authority: None,
            client_certificate: None,
            timeout: Duration::from_secs(5),
        };
        let dial = AllowedDial {
            way: Way::Direct(Arc::new(client::TcpDial::default())),
            resolver: Arc::new(SystemResolver),
            own_port: OwnPort::default(),
        };
        Kubelets::new(config, &Arc::new(dial)).unwrap()
    }

    #[test]
    fn the_preferred_address_and_the_port_of_the_node_are_used() {
        let kubelets = kubelets(&["InternalIP", "Hostname"]);
        let both =
            "addresses: [{type: Hostname, address: n1}, {type: InternalIP, address: 192.0.2.1}]";
        let cases = [
            (format!("{{{both}}}"), Ok(("192.0.2.1", 10250, false))),
            (
                format!("{{{both}, daemonEndpoints: {{kubeletEndpoint: {{Port: 99}}}}}}"),
                Ok(("192.0.2.1", 99, false)),
            ),
            (
                "{addresses: [{type: Hostname, address: n1}], declaredFeatures: \
                 [ExtendWebSocketsToKubelet]}"
                    .to_owned(),
                Ok(("n1", 10250, true)),
            ),
            (
                "{addresses: [{type: ExternalIP, address: 192.0.2.2}, {type: ExternalDNS, address: x}]}"
                    .to_owned(),
                Err("no preferred addresses found; known addresses: [{ExternalIP 192.0.2.2} \
                     {ExternalDNS x}]"),
            ),
            ("{}".to_owned(), Err("no preferred addresses found; known addresses: []")),
        ];
        for (status, expected) in cases {
            let node = codec::yaml::load(format!("status: {status}").as_bytes()).unwrap().value;
            let found = kubelets.connection_info(&node);
            let expected = expected.map_err(str::to_owned).map(|(host, port, speaks_websocket)| {
                ConnectionInfo { host: host.to_owned(), port, speaks_websocket }
            });
            assert_eq!(found.map_err(|error| error.to_string()), expected, "{status}");
        }
    }
}
