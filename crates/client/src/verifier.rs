//! Which certificates a server may have: those that a given root has signed, and given ones
//! themselves. The latter is common (a webhook that signs its own), fine for Go, and refused by
//! webpki where the certificate says that it is an authority.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    },
    server::ParsedCertificate,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{certificate_metrics::CertificateMetrics, error::ConfigError};

#[derive(Debug)]
pub(crate) struct RootsVerifier {
    given: Vec<CertificateDer<'static>>,
    /// None: there are no roots, so nothing is trusted.
    signed: Option<Arc<WebPkiServerVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
    metrics: CertificateMetrics,
}

impl RootsVerifier {
    /// Err: there are certificates, and none of them can be read.
    pub(crate) fn new(
        given: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
        metrics: CertificateMetrics,
    ) -> Result<Self, ConfigError> {
        let algorithms = provider.signature_verification_algorithms;
        if given.is_empty() {
            return Ok(Self { given, signed: None, algorithms, metrics });
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(given.iter().cloned());
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let signed = signed.map_err(|source| ConfigError::Roots { source })?;
        Ok(Self { given, signed: Some(signed), algorithms, metrics })
    }

    /// The very certificate that is trusted, for this server and at this time.
    fn is_given(
        &self,
        certificate: &CertificateDer<'_>,
        server: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<bool, Error> {
        if !self.given.iter().any(|given| given.as_ref() == certificate.as_ref()) {
            return Ok(false);
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, server)?;
        let (_, parsed) = X509Certificate::from_der(certificate.as_ref())
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let validity = parsed.validity();
        if now > validity.not_after.timestamp() {
            return Err(Error::InvalidCertificate(CertificateError::Expired));
        }
        if now < validity.not_before.timestamp() {
            return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
        }
        Ok(true)
    }

    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.is_given(end_entity, server, now)? {
            return Ok(ServerCertVerified::assertion());
        }
        let Some(signed) = &self.signed else {
            return Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        };
        signed.verify_server_cert(end_entity, intermediates, server, ocsp, now)
    }
}

impl ServerCertVerifier for RootsVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.verify(end_entity, intermediates, server, ocsp, now);
        self.metrics.count(end_entity, intermediates, server, verified.is_ok());
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Accepts every certificate. The server still has to prove that it holds the certificate's key,
/// which costs nothing and keeps the handshake well-formed.
#[derive(Debug)]
pub(crate) struct InsecureVerifier(WebPkiSupportedAlgorithms, CertificateMetrics);

impl InsecureVerifier {
    pub(crate) fn new(provider: &CryptoProvider, metrics: CertificateMetrics) -> Self {
        Self(provider.signature_verification_algorithms, metrics)
    }
}

impl ServerCertVerifier for InsecureVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.1.count(end_entity, intermediates, server, true);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
