//! TLS over a stream that is open already: what a proxy needs that is reached before the server is.

use std::{io, time::Duration};

use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::{
    dial::Stream,
    error::{ConfigError, Error},
    tls::{Tls, TlsConfigs},
};

/// Compat: as long as Go's transport waits for a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes TLS streams with one configuration, whose files are read again when they change.
pub struct TlsStreams(TlsConfigs);

impl TlsStreams {
    pub fn new(tls: Tls) -> Result<Self, ConfigError> {
        TlsConfigs::new(tls).map(Self)
    }

    /// HTTP/1.1 is spoken over the result.
    pub async fn connect(
        &self,
        server_name: &str,
        stream: Box<dyn Stream>,
    ) -> Result<Box<dyn Stream>, Error> {
        let name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| ConfigError::ServerName { name: server_name.to_owned() })?;
        let (_, configs) = self.0.current();
        let handshake = TlsConnector::from(configs.http1.clone()).connect(name, stream);
        let timed_out = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "TLS handshake timeout"));
        let done = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await;
        match done.unwrap_or_else(timed_out) {
            Ok(stream) => Ok(Box::new(stream)),
            Err(source) => {
                let server_name = server_name.to_owned();
                Err(match source.downcast::<rustls::Error>() {
                    Ok(source) => Error::Tls { server_name, source },
                    Err(source) => Error::TlsHandshake { server_name, source },
                })
            }
        }
    }
}
