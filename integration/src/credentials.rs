//! Server address and credentials of a kubeconfig, for the raw HTTP client.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;
use rustls::client::WantsClientCert;
use rustls::crypto::aws_lc_rs;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

use crate::certificates::Pair;

pub(crate) struct Credentials {
    /// `https://host:port`
    pub(crate) url: String,
    authority: Vec<u8>,
    /// Certificate chain and key, both PEM.
    identity: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) token: Option<String>,
}

impl Credentials {
    /// Reads the only cluster and the only user of a file that a server wrote for its administrator.
    pub(crate) fn read(kubeconfig: &Path) -> Self {
        let config = Kubeconfig::read_from(kubeconfig).expect("the kubeconfig can be read");
        // As a tree, because the fields that matter hide their value from everything but serde.
        let config = serde_json::to_value(config).expect("a kubeconfig is a JSON tree as well");
        let cluster = &config["clusters"][0]["cluster"];
        let user = &config["users"][0]["user"];
        let authority = data(cluster, "certificate-authority").expect("the kubeconfig names a CA");
        let identity = data(user, "client-certificate").zip(data(user, "client-key"));
        let token = user["token"].as_str().map(str::to_owned);
        let url = cluster["server"].as_str().expect("the kubeconfig names a server").to_owned();
        Self { url, authority, identity, token }
    }

    /// The same server, with another client certificate.
    pub(crate) fn with_identity(&self, pair: &Pair) -> Self {
        Self {
            url: self.url.clone(),
            authority: self.authority.clone(),
            identity: Some((pair.certificate.clone().into(), pair.key.clone().into())),
            token: None,
        }
    }

    /// A TLS configuration that trusts the server; `identified` decides whether the client shows
    /// its certificate.
    pub(crate) fn tls(&self, identified: bool, protocol: &[u8]) -> ClientConfig {
        let builder = self.trusting();
        let mut tls = match &self.identity {
            Some((chain, key)) if identified => {
                let key = PrivateKeyDer::from_pem_slice(key).expect("the key is PEM");
                builder
                    .with_client_auth_cert(certificates(chain), key)
                    .expect("certificate and key belong together")
            }
            _ => builder.with_no_client_auth(),
        };
        tls.alpn_protocols = vec![protocol.to_vec()];
        tls
    }

    /// The same with any bytes as the client's certificates, leaf first.
    pub(crate) fn tls_with_bytes(&self, chain: Vec<Vec<u8>>, protocol: &[u8]) -> ClientConfig {
        let key = rcgen::KeyPair::generate().expect("a key");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key in PKCS #8");
        let key = aws_lc_rs::sign::any_supported_type(&key).expect("a key that can sign");
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        let certified = SingleCertAndKey::from(CertifiedKey::new(chain, key));
        let mut tls = self.trusting().with_client_cert_resolver(Arc::new(certified));
        tls.alpn_protocols = vec![protocol.to_vec()];
        tls
    }

    fn trusting(&self) -> ConfigBuilder<ClientConfig, WantsClientCert> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.authority) {
            roots.add(certificate).expect("the CA is a certificate");
        }
        ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("aws-lc has every version of TLS that rustls knows")
            .with_root_certificates(roots)
    }
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).map(|der| der.expect("certificates are PEM")).collect()
}

/// A kubeconfig holds a file's content, or its path.
fn data(section: &Value, field: &str) -> Option<Vec<u8>> {
    if let Some(encoded) = section[format!("{field}-data")].as_str() {
        return Some(STANDARD.decode(encoded).expect("kubeconfig data is base64"));
    }
    let path = section[field].as_str()?;
    Some(fs::read(path).expect("the kubeconfig names a file that exists"))
}
