//! `apiserver_*_x509_*`: servers whose certificates Go and rustls do not accept any more, without a subject
//! alternative name or signed with SHA-1. An operator finds there why a webhook fails after an upgrade.

use std::sync::LazyLock;

use prometheus::{IntCounter, Registry};
use rustls_pki_types::{CertificateDer, ServerName};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Which metrics count the certificates of a client's servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertificateMetrics {
    #[default]
    None,
    /// `apiserver_webhooks_x509_*`
    Webhooks,
    /// `apiserver_kube_aggregator_x509_*`
    KubeAggregator,
}

static WEBHOOKS: LazyLock<Counters> = LazyLock::new(|| Counters::new("webhooks"));
static KUBE_AGGREGATOR: LazyLock<Counters> = LazyLock::new(|| Counters::new("kube_aggregator"));

struct Counters {
    missing_san: IntCounter,
    insecure_sha1: IntCounter,
}

impl Counters {
    fn new(subsystem: &str) -> Self {
        let counter = |name: &str, help: &str| {
            let name = format!("apiserver_{subsystem}_x509_{name}_total");
            IntCounter::new(name, help).expect("valid names")
        };
        Self {
            missing_san: counter(
                "missing_san",
                "Connections to servers whose certificate has no subject alternative name.",
            ),
            insecure_sha1: counter(
                "insecure_sha1",
                "Connections to servers whose certificate is signed with SHA-1.",
            ),
        }
    }
}

pub(crate) fn register(registry: &Registry) -> Result<(), String> {
    for counters in [&*WEBHOOKS, &*KUBE_AGGREGATOR] {
        for counter in [&counters.missing_san, &counters.insecure_sha1] {
            registry.register(Box::new(counter.clone())).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

impl CertificateMetrics {
    /// Counts what a server presented. `is_trusted`: the connection is made, because it is not verified or
    /// because nothing is wrong with it. Otherwise a missing name counts if the common name would have been right, as
    /// in Go.
    pub(crate) fn count(
        self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        is_trusted: bool,
    ) {
        let counters = match self {
            Self::None => return,
            Self::Webhooks => &*WEBHOOKS,
            Self::KubeAggregator => &*KUBE_AGGREGATOR,
        };
        let server = server.to_str();
        if let Some(leaf) = parsed(end_entity)
            && !has_alternative_names(&leaf)
            && (is_trusted || has_common_name(&leaf, &server))
        {
            counters.missing_san.inc();
            tracing::info!(%server, "missing-san.invalid-cert.kubernetes.io: invalid certificate: relies on a common name");
        }
        let mut chain = [end_entity].into_iter().chain(intermediates);
        if chain.any(|certificate| parsed(certificate).is_some_and(|one| is_signed_with_sha1(&one)))
        {
            counters.insecure_sha1.inc();
            tracing::info!(%server, "insecure-sha1.invalid-cert.kubernetes.io: invalid certificate: signed with SHA-1");
        }
    }
}

fn parsed<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(certificate.as_ref()).ok().map(|(_, parsed)| parsed)
}

fn has_alternative_names(certificate: &X509Certificate<'_>) -> bool {
    certificate.extensions().iter().any(|own| own.oid.to_id_string() == SUBJECT_ALT_NAME)
}

fn has_common_name(certificate: &X509Certificate<'_>, name: &str) -> bool {
    let names = certificate.subject().iter_common_name();
    names.filter_map(|own| own.as_str().ok()).any(|own| own.eq_ignore_ascii_case(name))
}

/// A root signs itself, which proves nothing either way.
fn is_signed_with_sha1(certificate: &X509Certificate<'_>) -> bool {
    let algorithm = certificate.signature_algorithm.algorithm.to_id_string();
    [SHA1_WITH_RSA, ECDSA_WITH_SHA1].contains(&algorithm.as_str())
        && certificate.issuer().as_raw() != certificate.subject().as_raw()
}

const SUBJECT_ALT_NAME: &str = "2.5.29.17";
const SHA1_WITH_RSA: &str = "1.2.840.113549.1.1.5";
const ECDSA_WITH_SHA1: &str = "1.2.840.10045.4.1";

#[cfg(test)]
mod tests {
    use rustls_pki_types::pem::PemObject as _;

    use super::*;

    /// Signed by the root below, with ECDSA and SHA-1; its names are `hook.ns.svc`.
    const LEAF: &str = "MIIBfzCCASagAwIBAgIUYbJAyxPNwcFQgaMNMv58EHHgwMEwCQYHKoZIzj0EATANMQswCQYDVQQDDAJjYTAgFw0yNjEx \
         MTcxOTUyNDdaGA8yMTI2MTAyNDE5NTI0N1owFjEUMBIGA1UEAwwLaG9vay5ucy5zdmMwWTATBgcqhkjOPQIBBggqhkjO \
         PQMBBwNCAATjXfeZaziGgeYbIwpb2hCpGCMkgcTm3duCi6fSA0JNFfrBzZyiXvy0nnCugZaAGd7ToZ1Hg/+/GtxaMdAG \
         iMnto1owWDAWBgNVHREEDzANggtob29rLm5zLnN2YzAdBgNVHQ4EFgQUcQfdQLMeKDqdecwNRUGQr8vaNYgwHwYDVR0j \
         BBgwFoAUUldUs9JQoiW48/7U7lbClzzwb68wCQYHKoZIzj0EAQNIADBFAiBeo6NAiXdWIQTOhOlqrRhItkzQItonXHBM \
         3yjcGoMfqQIhALys9CKzBsVAcHZMIXYCLeoByU/PhQIKFYqI8QUmCAxM";
    /// Signed by itself, with ECDSA and SHA-1.
    const ROOT: &str = "MIIBbjCCARagAwIBAgIUXOc7v1eJ+lGcgLIErmhG4CKK5EkwCQYHKoZIzj0EATANMQswCQYDVQQDDAJjYTAgFw0yNjEx \
         MTcxOTUyNDdaGA8yMTI2MTAyNDE5NTI0N1owDTELMAkGA1UEAwwCY2EwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAS8 \
         Fs0SjsKP2gwIlbIymDxjd8ED7r5gefY5b2Hozd7ShrDWEYuWADSbPMMQyTM4MtX9rv3Grbaa4mZYiX/5XLspo1MwUTAd \
         BgNVHQ4EFgQUUldUs9JQoiW48/7U7lbClzzwb68wHwYDVR0jBBgwFoAUUldUs9JQoiW48/7U7lbClzzwb68wDwYDVR0T \
         AQH/BAUwAwEB/zAJBgcqhkjOPQQBA0cAMEQCIEEkNO84yuPXykL59JE9mVpO9vsQJw7/zFKl4QMdcLn1AiAg6C/k8nhM \
         3UiOOU8/ge+1N6Hk/jF8wbs1FAiM4F7yyQ==";

    fn der(base64: &str) -> CertificateDer<'static> {
        let base64 = base64.replace(char::is_whitespace, "");
        let pem = format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n");
        CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
    }

    fn common_name(name: &str) -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("valid parameters").der().clone()
    }

    #[test]
    fn missing_names_and_sha1_are_counted_where_they_end_a_connection_or_are_put_up_with() {
        let name = ServerName::try_from("hook.ns.svc").expect("a name");
        let (leaf, root, own) = (der(LEAF), der(ROOT), common_name("Hook.ns.svc"));
        let other = common_name("other.ns.svc");
        // Certificate, intermediates, whether it is trusted; missing names and SHA-1 so far.
        let cases: [(&CertificateDer<'_>, &[CertificateDer<'_>], bool, u64, u64); 6] = [
            (&leaf, &[], false, 0, 1),
            (&leaf, std::slice::from_ref(&root), true, 0, 2),
            (&root, &[], false, 0, 2),
            (&own, &[], false, 1, 2),
            (&other, &[], false, 1, 2),
            (&other, std::slice::from_ref(&leaf), true, 2, 3),
        ];
        let counters = &*KUBE_AGGREGATOR;
        for (at, (leaf, chain, is_trusted, missing, sha1)) in cases.into_iter().enumerate() {
            CertificateMetrics::KubeAggregator.count(leaf, chain, &name, is_trusted);
            CertificateMetrics::None.count(leaf, chain, &name, is_trusted);
            let counted = (counters.missing_san.get(), counters.insecure_sha1.get());
            assert_eq!(counted, (missing, sha1), "case {at}");
        }
    }
}
