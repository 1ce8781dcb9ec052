//! TLS settings of a client, and the rustls configurations that they become.

use std::{path::PathBuf, sync::Arc};

use rustls::{ClientConfig, client::danger::ServerCertVerifier, crypto::CryptoProvider};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};

use crate::{
    certificate_metrics::CertificateMetrics,
    error::{ConfigError, PemOrigin},
    reload::{Reloaded, read},
    secret::Secret,
    system_roots,
    verifier::{InsecureVerifier, RootsVerifier},
};

#[derive(Clone, Debug, Default)]
pub struct Tls {
    pub trust: Trust,
    /// The name that the server's certificate must have; None: the host of the URL.
    pub server_name: Option<String>,
    /// Presented to servers that ask for a certificate.
    pub identity: Option<Identity>,
    /// Where certificates of old kinds are counted.
    pub certificate_metrics: CertificateMetrics,
}

/// Which servers are trusted.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// Those that the host's root certificates vouch for. Compat: kube-apiserver without a CA bundle.
    #[default]
    System,
    /// PEM. The certificates are roots, and trusted themselves as well.
    Bundle(Vec<u8>),
    /// The same in a file, which is read again when it changes.
    File(PathBuf),
    /// `insecureSkipTLSVerify`: any server at all.
    Insecure,
}

/// A client certificate, with those that lead to its root, and its key.
#[derive(Clone, Debug)]
pub struct Identity {
    pub certificate: Pem,
    pub key: Pem,
}

/// PEM bytes, or a file that has them and is read again when it changes.
#[derive(Clone, Debug)]
pub enum Pem {
    Bytes(Secret<Vec<u8>>),
    File(PathBuf),
}

impl Pem {
    pub(crate) fn origin(&self) -> PemOrigin {
        match self {
            Self::Bytes(_) => PemOrigin::Inline,
            Self::File(path) => PemOrigin::File(path.clone()),
        }
    }

    fn bytes(&self) -> Result<Vec<u8>, ConfigError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.expose().clone()),
            Self::File(path) => read(path),
        }
    }

    fn file(&self) -> Option<PathBuf> {
        match self {
            Self::Bytes(_) => None,
            Self::File(path) => Some(path.clone()),
        }
    }
}

/// What connections are made with. A new generation means that a file has changed: connections of
/// the old one are not used any more.
pub(crate) struct TlsConfigs(Reloaded<TlsConfig>);

pub(crate) struct TlsConfig {
    /// Offers HTTP/2 and HTTP/1.1.
    pub(crate) any: Arc<ClientConfig>,
    /// Offers HTTP/1.1 only: a connection that is to be upgraded cannot be HTTP/2.
    pub(crate) http1: Arc<ClientConfig>,
}

impl TlsConfigs {
    pub(crate) fn new(tls: Tls) -> Result<Self, ConfigError> {
        if let Some(name) = &tls.server_name
            && ServerName::try_from(name.as_str()).is_err()
        {
            return Err(ConfigError::ServerName { name: name.clone() });
        }
        let mut files = Vec::new();
        if let Trust::File(path) = &tls.trust {
            files.push(path.clone());
        }
        if let Some(identity) = &tls.identity {
            files.extend(identity.certificate.file());
            files.extend(identity.key.file());
        }
        Reloaded::new(files, move || config(&tls)).map(Self)
    }

    pub(crate) fn current(&self) -> (u64, Arc<TlsConfig>) {
        self.0.current()
    }
}

fn config(tls: &Tls) -> Result<TlsConfig, ConfigError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(ConfigError::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(verifier(tls, provider)?);
    let mut any = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = read_identity(identity)?;
            builder.with_client_auth_cert(chain, key).map_err(|source| {
                let (certificate, key) = (identity.certificate.origin(), identity.key.origin());
                ConfigError::ClientIdentity { certificate, key, source }
            })?
        }
    };
    any.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    let mut http1 = any.clone();
    http1.alpn_protocols = vec![HTTP1.to_vec()];
    Ok(TlsConfig { any: Arc::new(any), http1: Arc::new(http1) })
}

/// Names of protocols in ALPN.
pub(crate) const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

fn verifier(
    tls: &Tls,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, ConfigError> {
    let metrics = tls.certificate_metrics;
    let roots = match &tls.trust {
        Trust::Insecure => return Ok(Arc::new(InsecureVerifier::new(&provider, metrics))),
        Trust::System => system_roots::load(),
        Trust::Bundle(pem) => certificates(pem, &PemOrigin::Inline)?,
        Trust::File(path) => certificates(&read(path)?, &PemOrigin::File(path.clone()))?,
    };
    Ok(Arc::new(RootsVerifier::new(roots, provider, metrics)?))
}

/// Compat: blocks that cannot be read are left out, as by Go; a bundle of which nothing remains is
/// an error.
fn certificates(pem: &[u8], from: &PemOrigin) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
    if found.is_empty() {
        return Err(ConfigError::NoCertificates { from: from.clone() });
    }
    Ok(found)
}

type ChainAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read_identity(identity: &Identity) -> Result<ChainAndKey, ConfigError> {
    let from = identity.certificate.origin();
    let chain = CertificateDer::pem_slice_iter(&identity.certificate.bytes()?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| ConfigError::ClientCertificate { from: from.clone(), source })?;
    if chain.is_empty() {
        return Err(ConfigError::NoCertificates { from });
    }
    let key = PrivateKeyDer::from_pem_slice(&identity.key.bytes()?)
        .map_err(|source| ConfigError::ClientKey { from: identity.key.origin(), source })?;
    Ok((chain, key))
}
