//! Where the collector is, in the notation of gRPC's names.

use std::{path::Path, time::Duration};

use http::Uri;
use tonic::transport::{self, Channel};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A URL. Compat: without TLS, as kube-apiserver's.
    Tcp(String),
    /// A path; one that begins with a zero is the name of an abstract socket.
    Unix(String),
}

/// The scheme of a name, if it is none of those that are known.
pub(crate) fn unsupported_scheme(name: &str) -> Option<&str> {
    let (scheme, _) = name.split_once("//")?;
    let scheme = scheme.strip_suffix(':').unwrap_or_default();
    (!matches!(scheme, "dns" | "unix" | "unix-abstract")).then_some(scheme)
}

impl Endpoint {
    /// `HOST:PORT`, `dns:[//AUTHORITY/]HOST:PORT`, `unix:PATH`, `unix:///PATH` or `unix-abstract:NAME`.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        if let Some(path) = name.strip_prefix("unix:") {
            return Ok(Self::Unix(path.strip_prefix("//").unwrap_or(path).to_owned()));
        }
        if let Some(socket) = name.strip_prefix("unix-abstract:") {
            return Ok(Self::Unix(format!("\0{}", socket.strip_prefix("//").unwrap_or(socket))));
        }
        let host = name.strip_prefix("dns:").unwrap_or(name);
        // The authority names a DNS server, which is the system's.
        let host = match host.strip_prefix("//") {
            Some(rest) => rest.split_once('/').map_or(rest, |(_, host)| host),
            None => host,
        };
        let url = format!("http://{host}");
        let parsed: Result<Uri, _> = url.parse();
        let known = parsed.is_ok_and(|url| url.port_u16().is_some() && url.path() == "/");
        if known { Ok(Self::Tcp(url)) } else { Err("not an address of a collector".to_owned()) }
    }

    /// Prepares a connection, which is opened by the first call. A `dialer` is for collectors on other
    /// machines.
    pub(crate) fn connect(
        &self,
        timeout: Duration,
        dialer: Option<grpc::Dialer>,
    ) -> Result<Channel, String> {
        match self {
            Self::Tcp(url) => {
                let endpoint = transport::Endpoint::from_shared(url.clone());
                let endpoint = endpoint.map_err(|error| format!("{url}: {error}"))?;
                let endpoint = endpoint.connect_timeout(timeout);
                Ok(match dialer {
                    Some(dialer) => endpoint.connect_with_connector_lazy(dialer),
                    None => endpoint.connect_lazy(),
                })
            }
            Self::Unix(path) => {
                let socket = match path.strip_prefix('\0') {
                    Some(name) => grpc::Socket::abstract_name(name),
                    None => grpc::Socket::file(Path::new(path)),
                };
                Ok(grpc::lazy_channel(socket, timeout))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_grpc() {
        let tcp = |url: &str| Ok(Endpoint::Tcp(url.to_owned()));
        let unix = |path: &str| Ok(Endpoint::Unix(path.to_owned()));
        let wrong = || Err("not an address of a collector".to_owned());
        let cases = [
            ("localhost:4317", None, tcp("http://localhost:4317")),
            ("[::1]:4317", None, tcp("http://[::1]:4317")),
            ("dns:host:1", None, tcp("http://host:1")),
            ("dns://8.8.8.8/host:1", None, tcp("http://host:1")),
            ("dns:///host:1", None, tcp("http://host:1")),
            ("unix:/run/otel.sock", None, unix("/run/otel.sock")),
            ("unix:///run/otel.sock", None, unix("/run/otel.sock")),
            ("unix-abstract:otel", None, unix("\0otel")),
            ("http://host:1", Some("http"), wrong()),
            ("host", None, wrong()),
            ("host:1/path", None, wrong()),
            ("", None, wrong()),
        ];
        for (name, scheme, expected) in cases {
            assert_eq!(unsupported_scheme(name), scheme, "{name}");
            assert_eq!(Endpoint::parse(name), expected, "{name}");
        }
    }
}
