//! Certificates for tests, made on the spot.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls_pki_types::CertificateDer;

/// A certificate and its key in PEM, signed by itself.
pub(crate) fn self_signed(common_name: &str, dns_names: &[&str]) -> (String, String) {
    let names: Vec<_> = dns_names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("valid names");
    params.distinguished_name.push(DnType::CommonName, common_name);
    let key = KeyPair::generate().expect("key");
    (params.self_signed(&key).expect("certificate").pem(), key.serialize_pem())
}

/// A CA that signs whatever a test needs.
pub(crate) struct TestCa(CertifiedIssuer<'static, KeyPair>);

impl TestCa {
    pub(crate) fn new(common_name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().expect("key");
        Self(CertifiedIssuer::self_signed(params, key).expect("certificate"))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn sign(&self, leaf: &Leaf) -> SignedLeaf {
        let names: Vec<_> = leaf.dns_names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("valid names");
        // Without rcgen's common name.
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in &leaf.subject {
            params.distinguished_name.push(kind.clone(), value.as_str());
        }
        params.extended_key_usages = leaf.usages.clone();
        params.use_authority_key_identifier_extension = true;
        params.not_before = leaf.not_before.into();
        params.not_after = leaf.not_after.into();
        if leaf.is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().expect("key");
        let cert = params.signed_by(&key, &self.0).expect("certificate");
        SignedLeaf { der: cert.der().clone(), pem: cert.pem(), key: key.serialize_pem() }
    }
}

/// What to put in a certificate.
pub(crate) struct Leaf {
    pub(crate) subject: Vec<(DnType, String)>,
    pub(crate) dns_names: Vec<&'static str>,
    pub(crate) usages: Vec<ExtendedKeyUsagePurpose>,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    pub(crate) is_ca: bool,
}

impl Leaf {
    /// A client certificate for a user, good for an hour.
    pub(crate) fn client(user: &str, group: &str) -> Self {
        let mut subject = vec![(DnType::CommonName, user.to_owned())];
        if !group.is_empty() {
            subject.push((DnType::OrganizationName, group.to_owned()));
        }
        Self {
            subject,
            dns_names: vec![],
            usages: vec![ExtendedKeyUsagePurpose::ClientAuth],
            not_before: SystemTime::now() - Duration::from_mins(1),
            not_after: SystemTime::now() + Duration::from_hours(1),
            is_ca: false,
        }
    }

    /// A serving certificate, good for an hour.
    pub(crate) fn server(common_name: &str, dns_names: &[&'static str]) -> Self {
        Self {
            dns_names: dns_names.to_vec(),
            usages: vec![ExtendedKeyUsagePurpose::ServerAuth],
            ..Self::client(common_name, "")
        }
    }
}

pub(crate) struct SignedLeaf {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) pem: String,
    pub(crate) key: String,
}
