//! Certificates are signed, approved and attested by users with a right on the signer.

pub mod approval;
pub mod signing;
pub mod subject;
pub mod trust_bundle;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use meta::authorization::Attributes as Asked;
use rustls_pki_types::{CertificateSigningRequestDer, pem::PemObject as _};
use x509_parser::{
    certification_request::X509CertificationRequest, prelude::FromDer as _, x509::X509Name,
};

use crate::{Attributes, Cluster};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";

/// Whether a user has a verb on a signer, by its name or by `domain/*`.
async fn is_authorized_for_signer(
    attributes: &Attributes<'_>,
    cluster: &Cluster,
    verb: &str,
    signer: &str,
) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [signer, &format!("{domain}/*")] {
        let asked = Asked {
            version: "*",
            name,
            ..Asked::of_resource(attributes.user, verb, GROUP, "signers")
        };
        // An authorizer that fails has not allowed it.
        let verdict = cluster.authorizer.authorize(&asked).await;
        if verdict.error.is_none() && verdict.is_allowed() {
            return true;
        }
    }
    false
}

/// Reads the subject of a certificate request: PEM, in base64.
pub(crate) fn with_subject<T>(request: &str, read: impl FnOnce(&X509Name<'_>) -> T) -> Option<T> {
    let pem = STANDARD.decode(request).ok()?;
    let der = CertificateSigningRequestDer::from_pem_slice(&pem).ok()?;
    let (_, request) = X509CertificationRequest::from_der(&der).ok()?;
    Some(read(&request.certification_request_info.subject))
}
