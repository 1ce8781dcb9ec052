//! A TLS server that a scenario needs beside the API server: a self-signed certificate, a thread of its own, a task
//! for every connection.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Answers until it is dropped.
pub(crate) struct TlsServer {
    pub(crate) address: SocketAddr,
    /// For the `caBundle` of a webhook or an APIService.
    pub(crate) ca_bundle: String,
    /// Ends the thread when it is dropped.
    _running: oneshot::Sender<()>,
}

impl TlsServer {
    /// `serve` has a connection to its end. One that breaks off shows as a call that fails, and so does a listener.
    pub(crate) fn start<F>(
        ip: IpAddr,
        names: &[&str],
        alpn: &[&str],
        serve: impl Fn(TlsStream<TcpStream>) -> F + Clone + Send + 'static,
    ) -> Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let ip_name = ip.to_string();
        let names: Vec<String> =
            names.iter().copied().chain([ip_name.as_str()]).map(str::to_owned).collect();
        let own = rcgen::generate_simple_self_signed(names)?;
        let ca_bundle = STANDARD.encode(own.cert.pem());
        let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)?;
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = std::net::TcpListener::bind((ip, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting a server beside the API server")?;
        let (running, stopped) = oneshot::channel();
        std::thread::spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    _ = accept(listener, acceptor, serve) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, ca_bundle, _running: running })
    }
}

async fn accept<F>(
    listener: std::net::TcpListener,
    acceptor: TlsAcceptor,
    serve: impl Fn(TlsStream<TcpStream>) -> F + Clone + Send + 'static,
) -> Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (acceptor, serve) = (acceptor.clone(), serve.clone());
        tokio::spawn(async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(stream).await;
            }
        });
    }
}
