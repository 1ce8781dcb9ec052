//! Client certificates: asked for, never required, and verified after the handshake.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use sha2::{Digest, Sha256};
use x509_parser::asn1_rs::ToDer as _;
use x509_parser::oid_registry::{Oid, asn1_rs::oid};
use x509_parser::prelude::{FromDer, ParsedExtension, X509Certificate, X509Version};
use x509_parser::x509::AlgorithmIdentifier;

/// What a client certificate says, once its chain was found good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedCert {
    /// The user name; empty if the certificate has no common name.
    pub common_name: String,
    /// The groups.
    pub organizations: Vec<String>,
    pub uid: Option<String>,
    /// SHA-256 of the certificate.
    pub fingerprint: [u8; 32],
    pub not_after: SystemTime,
}

impl VerifiedCert {
    /// The value of the user's extra `authentication.kubernetes.io/credential-id`.
    pub fn credential_id(&self) -> String {
        format!("X509SHA256={}", hex(&self.fingerprint))
    }
}

/// What is known of a peer from its certificate: nothing at all, a verified identity, or why there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerIdentity {
    pub verified: Option<VerifiedCert>,
    pub error: Option<String>,
}

/// A bundle of CA certificates that client certificates are checked against.
#[derive(Debug, Default)]
pub struct Roots {
    certificates: Vec<CertificateDer<'static>>,
    /// Absent for an empty bundle, which verifies no certificate.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl Roots {
    /// From PEM with at least one certificate.
    pub fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let certificates = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("CA bundle is not PEM: {error}"))?;
        if certificates.is_empty() {
            return Err("no CA certificate found".to_owned());
        }
        let mut store = RootCertStore::empty();
        for (index, certificate) in certificates.iter().enumerate() {
            let added = store.add(certificate.clone());
            added.map_err(|error| format!("CA certificate {index}: {error}"))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider)
            .build()
            .map_err(|error| format!("CA bundle: {error}"))?;
        Ok(Self { certificates, verifier: Some(verifier) })
    }

    /// The subjects, as a hint for clients that have several certificates to choose from.
    pub(crate) fn subjects(&self) -> &[DistinguishedName] {
        self.verifier.as_ref().map_or(&[], |verifier| verifier.root_hint_subjects())
    }
}

/// Checks a chain (leaf first) against a bundle: signatures, validity at `now`, and that it may be used by clients.
pub fn verify_chain(
    roots: &Roots,
    chain: &[CertificateDer<'static>],
    now: SystemTime,
) -> Result<VerifiedCert, String> {
    let (leaf, intermediates) = chain.split_first().ok_or("no certificate")?;
    let (_, parsed) = X509Certificate::from_der(leaf)
        .map_err(|error| format!("x509: malformed certificate: {error}"))?;
    let failed =
        |why: String| format!("verifying certificate {} failed: {why}", identifier(&parsed));
    let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let verifier = roots.verifier.as_ref().ok_or_else(|| failed(UNKNOWN_AUTHORITY.to_owned()))?;
    // Compat: a certificate that is itself in the bundle is good, even a CA; webpki only knows chains that end in one.
    if roots.certificates.contains(leaf) {
        usable(&parsed, since_epoch).map_err(failed)?;
    } else if parsed.version() == X509Version::V1 {
        // Compat: webpki knows version 3 only, Go any.
        signed_by_root(roots, &parsed).map_err(failed)?;
        usable(&parsed, since_epoch).map_err(failed)?;
    } else {
        let now = UnixTime::since_unix_epoch(since_epoch);
        let verified = verifier.verify_client_cert(leaf, intermediates, now);
        verified.map_err(|error| failed(explain(&error)))?;
    }
    let subject = subject(&parsed).map_err(failed)?;
    Ok(VerifiedCert {
        common_name: subject.common_name,
        organizations: subject.organizations,
        uid: subject.uid,
        fingerprint: Sha256::digest(leaf).into(),
        not_after: at(parsed.validity().not_after.timestamp()),
    })
}

/// Checks that a certificate of the bundle has signed this one. Version 1 has no extensions, so that
/// there is nothing that could name a usage or an intermediate.
fn signed_by_root(roots: &Roots, certificate: &X509Certificate<'_>) -> Result<(), String> {
    let signature = certificate.signature_value.as_ref();
    let signed = certificate.tbs_certificate.as_ref();
    let algorithm = algorithm_bytes(&certificate.signature_algorithm);
    let known = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    for root in &roots.certificates {
        let Ok((_, root)) = X509Certificate::from_der(root) else { continue };
        if root.subject().as_raw() != certificate.issuer().as_raw() || !may_sign(&root) {
            continue;
        }
        let key = root.public_key();
        let key_algorithm = algorithm_bytes(&key.algorithm);
        let good = known.all.iter().any(|known| {
            Some(known.signature_alg_id().as_ref()) == algorithm.as_deref()
                && Some(known.public_key_alg_id().as_ref()) == key_algorithm.as_deref()
                && known.verify_signature(&key.subject_public_key.data, signed, signature).is_ok()
        });
        if good {
            return Ok(());
        }
    }
    Err(UNKNOWN_AUTHORITY.to_owned())
}

/// Whether a certificate is a CA's and may sign others.
fn may_sign(root: &X509Certificate<'_>) -> bool {
    let is_ca = root.version() == X509Version::V1 || root.is_ca();
    is_ca && !matches!(root.key_usage(), Ok(Some(usage)) if !usage.value.key_cert_sign())
}

/// The identifier of an algorithm with its parameters, as `AlgorithmIdentifier` without its tag.
fn algorithm_bytes(algorithm: &AlgorithmIdentifier<'_>) -> Option<Vec<u8>> {
    let mut bytes = algorithm.algorithm.to_der_vec().ok()?;
    if let Some(parameters) = &algorithm.parameters {
        bytes.extend(parameters.to_der_vec().ok()?);
    }
    Some(bytes)
}

/// Whether a certificate, however it is trusted, is valid now and for clients.
fn usable(certificate: &X509Certificate<'_>, now: Duration) -> Result<(), String> {
    let validity = certificate.validity();
    let now = now.as_secs() as i64;
    if now < validity.not_before.timestamp() || now > validity.not_after.timestamp() {
        return Err(EXPIRED.to_owned());
    }
    match certificate.extended_key_usage() {
        Ok(None) => Ok(()),
        Ok(Some(usage)) if usage.value.client_auth => Ok(()),
        Ok(Some(_)) => Err(WRONG_USAGE.to_owned()),
        Err(error) => Err(format!("x509: malformed certificate: {error}")),
    }
}

/// The reason in the words operators know from kube-apiserver's log.
fn explain(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(reason) = error else { return error.to_string() };
    match reason {
        CertificateError::UnknownIssuer => UNKNOWN_AUTHORITY.to_owned(),
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => EXPIRED.to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            WRONG_USAGE.to_owned()
        }
        other => format!("x509: {other}"),
    }
}

const UNKNOWN_AUTHORITY: &str = "x509: certificate signed by unknown authority";
const EXPIRED: &str = "x509: certificate has expired or is not yet valid";
const WRONG_USAGE: &str = "x509: certificate specifies an incompatible key usage";

struct Subject {
    common_name: String,
    organizations: Vec<String>,
    uid: Option<String>,
}

fn subject(certificate: &X509Certificate<'_>) -> Result<Subject, String> {
    let name = certificate.subject();
    // Compat: of several common names the last one counts, as in Go.
    let common_name = name.iter_common_name().filter_map(|value| value.as_str().ok()).last();
    let organizations = name.iter_organization().filter_map(|value| value.as_str().ok());
    let uids = name
        .iter_by_oid(&UID)
        .map(|value| value.as_str().map_err(|_| "unable to parse UID into a string".to_owned()))
        .collect::<Result<Vec<_>, _>>()?;
    let uid = match uids[..] {
        [] => None,
        [""] => return Err("UID cannot be an empty string".to_owned()),
        [uid] => Some(uid.to_owned()),
        _ => return Err(format!("expected 1 UID, but found multiple: {uids:?}")),
    };
    Ok(Subject {
        common_name: common_name.unwrap_or_default().to_owned(),
        organizations: organizations.map(str::to_owned).collect(),
        uid,
    })
}

/// Kubernetes' own attribute for the UID of a user.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// Serial number and key ids: enough to find the certificate, nothing that is secret.
fn identifier(certificate: &X509Certificate<'_>) -> String {
    let (mut subject_key, mut authority_key) = (String::new(), String::new());
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => subject_key = colon_hex(id.0),
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                authority_key =
                    id.key_identifier.as_ref().map_or(String::new(), |id| colon_hex(id.0));
            }
            _ => {}
        }
    }
    format!("SN={}, SKID={subject_key}, AKID={authority_key}", certificate.serial)
}

fn colon_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
        text
    })
}

fn at(timestamp: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(timestamp).unwrap_or_default())
}

/// The certificates a client showed, verified again whenever the result could change: the bundle was replaced, or time
/// went by. A connection may outlive both its certificate and its CA.
pub(crate) struct ClientCert {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    roots: Arc<ArcSwap<Roots>>,
    verified: ArcSwapOption<CachedVerification>,
}

struct CachedVerification {
    roots: Arc<Roots>,
    until: SystemTime,
    identity: Arc<PeerIdentity>,
}

impl ClientCert {
    pub(crate) fn new(chain: Vec<CertificateDer<'static>>, roots: Arc<ArcSwap<Roots>>) -> Self {
        Self { chain, roots, verified: ArcSwapOption::empty() }
    }

    pub(crate) fn identity(&self, now: SystemTime) -> Arc<PeerIdentity> {
        let roots = self.roots.load();
        if let Some(verified) = &*self.verified.load()
            && Arc::ptr_eq(&verified.roots, &roots)
            && now < verified.until
        {
            return verified.identity.clone();
        }
        let (identity, until) = match verify_chain(&roots, &self.chain, now) {
            Ok(cert) => {
                let until = cert.not_after.min(now + VERIFICATION_MAX_AGE);
                (PeerIdentity { verified: Some(cert), error: None }, until)
            }
            Err(error) => {
                (PeerIdentity { verified: None, error: Some(error) }, now + VERIFICATION_MAX_AGE)
            }
        };
        let identity = Arc::new(identity);
        let verified =
            CachedVerification { roots: roots.clone(), until, identity: identity.clone() };
        self.verified.store(Some(Arc::new(verified)));
        identity
    }
}

/// An intermediate may run out before its leaf, and a certificate may become valid: look again after this long.
const VERIFICATION_MAX_AGE: Duration = Duration::from_secs(10);

/// Takes any client certificate: the handshake only proves that the client has its key. Whether it counts is decided per
/// request, so that a client with a stale certificate and a good token is served.
#[derive(Debug)]
pub(crate) struct AnyClientCert {
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyClientCert {
    pub(crate) fn new(hints: Vec<DistinguishedName>, provider: &CryptoProvider) -> Self {
        Self { hints, algorithms: provider.signature_verification_algorithms }
    }
}

impl ClientCertVerifier for AnyClientCert {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
