//! Authorities of a test's own, and the certificates they sign.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};

pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("ring makes keys");
        let certificate = params.self_signed(&key).expect("the parameters are valid");
        Self { pem: certificate.pem(), issuer: Issuer::new(params, key) }
    }

    /// The authority whose files are in a directory, such as Pintle's own.
    pub fn load(directory: &Path) -> Self {
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).expect("a file");
        let (pem, key) = (read("ca.crt"), read("ca.key"));
        let key = KeyPair::from_pem(&key).expect("a key");
        let issuer = Issuer::from_ca_cert_pem(&pem, key).expect("a CA certificate");
        Self { pem, issuer }
    }

    /// A client certificate: the user and its groups.
    pub fn client(&self, user: &str, groups: &[&str]) -> Pair {
        self.sign(user, groups, |_| {})
    }

    /// A serving certificate for these names and addresses.
    pub fn server(&self, names: &[&str]) -> Pair {
        self.sign(names[0], &[], |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            params.subject_alt_names = names
                .iter()
                .map(|name| match name.parse() {
                    Ok(address) => SanType::IpAddress(address),
                    Err(_) => SanType::DnsName((*name).try_into().expect("a name")),
                })
                .collect();
        })
    }

    /// One that is not good: for servers only.
    pub fn server_only(&self, user: &str) -> Pair {
        self.sign(user, &[], |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        })
    }

    /// One that is valid between these years.
    pub fn valid_between(&self, user: &str, first: i32, last: i32) -> Pair {
        self.sign(user, &[], |params| {
            params.not_before = date_time_ymd(first, 1, 1);
            params.not_after = date_time_ymd(last, 1, 1);
        })
    }

    fn sign(&self, user: &str, groups: &[&str], edit: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut params = params(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        edit(&mut params);
        let key = KeyPair::generate().expect("ring makes keys");
        let certificate = params.signed_by(&key, &self.issuer).expect("the parameters are valid");
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Pair {
    /// Writes `<name>.crt` and `<name>.key`.
    pub fn write(&self, directory: &Path, name: &str) -> [PathBuf; 2] {
        let files = ["crt", "key"].map(|end| directory.join(format!("{name}.{end}")));
        std::fs::write(&files[0], &self.certificate).expect("a file");
        std::fs::write(&files[1], &self.key).expect("a file");
        files
    }
}

fn params(name: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).expect("no names are valid names");
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    for group in groups {
        subject.push(DnType::OrganizationName, *group);
    }
    params.distinguished_name = subject;
    params
}
