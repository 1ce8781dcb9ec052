//! The server's own certificates and keys, where the flags give none: made at the first start, kept, and renewed in time.

mod files;
mod sec1;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use self::files::{Batch, make_private_dir, read_optional};
use crate::pem::{MEMORY, Pem};
use crate::tls::{Roots, verify_chain};

/// Where the parts of the PKI are; all of them exist.
#[derive(Debug, Clone)]
pub struct Pki {
    /// Signs serving and client certificates.
    pub ca_cert: Pem,
    pub ca_key: Pem,
    pub serving_cert: Pem,
    pub serving_key: Pem,
    /// Signs the certificates of front proxies, a trust of its own.
    pub front_proxy_ca_cert: Pem,
    pub front_proxy_client_cert: Pem,
    pub front_proxy_client_key: Pem,
    /// Signs service account tokens.
    pub service_account_key: Pem,
    pub service_account_pub: Pem,
    /// A client certificate of the group `system:masters`.
    pub admin_cert: Pem,
    pub admin_key: Pem,
    /// `None` if everything else is in memory.
    admin_kubeconfig: Option<PathBuf>,
    /// The serving certificate was in `--cert-dir` before and is of another CA: it is served as it is.
    pub serving_cert_is_given: bool,
}

/// Where it is kept.
#[derive(Debug, Clone)]
pub struct PkiPaths {
    /// `None`: in memory, until the process ends.
    pub data_dir: Option<PathBuf>,
    /// Of the serving certificate and its key; with the rest, if there is no such place.
    pub cert_dir: Option<PathBuf>,
}

/// The files of new certificates and keys. Without [`write`](Self::write) they are lost.
#[must_use]
pub struct PkiFiles(Batch);

impl PkiFiles {
    /// Whether everything was there already, or is kept in memory.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns when they are on disk.
    pub fn write(self) -> Result<(), PkiError> {
        self.0.commit().map_err(|(path, error)| PkiError::File { path, error })
    }
}

/// The files of the PKI, some of them perhaps below [`MEMORY`].
struct Files {
    dir: PathBuf,
    serving_cert: PathBuf,
    serving_key: PathBuf,
}

impl Files {
    fn new(pki_paths: &PkiPaths) -> Self {
        let dir = match &pki_paths.data_dir {
            Some(data_dir) => data_dir.join("pki"),
            None => PathBuf::from(MEMORY),
        };
        let serving = pki_paths.cert_dir.as_ref().unwrap_or(&dir);
        let (serving_cert, serving_key) =
            (serving.join("apiserver.crt"), serving.join("apiserver.key"));
        Self { dir, serving_cert, serving_key }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// Why the PKI cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{}: {reason}", path.display())]
    Content { path: PathBuf, reason: String },
    #[error("certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
}

impl Pki {
    /// Makes what is missing under `<data_dir>/pki` or in memory, renews what runs out soon or lacks a name, keeps the rest. Keys of
    /// CAs and service accounts are never replaced: others may trust them. Calling it again later renews in place.
    pub fn ensure(
        pki_paths: &PkiPaths,
        names: &ServerNames,
        now: SystemTime,
    ) -> Result<Self, PkiError> {
        let (pki, files) = Self::prepare(pki_paths, names, now)?;
        files.write()?;
        Ok(pki)
    }

    /// The same without waiting for the disk: the certificates and keys can be used at once, and their files are
    /// left to the caller.
    pub fn prepare(
        pki_paths: &PkiPaths,
        names: &ServerNames,
        now: SystemTime,
    ) -> Result<(Self, PkiFiles), PkiError> {
        let files = Files::new(pki_paths);
        let on_disk = pki_paths.data_dir.as_ref().map(|_| &files.dir);
        for dir in [on_disk, pki_paths.cert_dir.as_ref()].into_iter().flatten() {
            make_private_dir(dir).map_err(|error| PkiError::File { path: dir.clone(), error })?;
        }
        let mut batch = Batch::default();

        let (ca_cert, ca_key) = (files.at("ca.crt"), files.at("ca.key"));
        let ca = Ca::ensure(&ca_cert, &ca_key, "kubernetes", now, &mut batch)?;
        let (serving_cert, serving_key) = (&files.serving_cert, &files.serving_key);
        let serving_cert_is_given =
            pki_paths.cert_dir.is_some() && is_given(&ca, serving_cert, serving_key, &batch)?;
        if !serving_cert_is_given {
            let serving = Leaf::Server { common_name: "kube-apiserver", names };
            serving.ensure(&ca, serving_cert, serving_key, now, &mut batch)?;
        }
        let (admin_cert, admin_key) = (files.at("admin.crt"), files.at("admin.key"));
        let admin =
            Leaf::Client { common_name: "kubernetes-admin", organization: Some("system:masters") };
        admin.ensure(&ca, &admin_cert, &admin_key, now, &mut batch)?;

        let front_cert = files.at("front-proxy-ca.crt");
        let front_key = files.at("front-proxy-ca.key");
        let front_ca = Ca::ensure(&front_cert, &front_key, "front-proxy-ca", now, &mut batch)?;
        let proxy = Leaf::Client { common_name: "front-proxy-client", organization: None };
        let proxy_cert = files.at("front-proxy-client.crt");
        let proxy_key = files.at("front-proxy-client.key");
        proxy.ensure(&front_ca, &proxy_cert, &proxy_key, now, &mut batch)?;

        let (sa_key, sa_pub) = (files.at("sa.key"), files.at("sa.pub"));
        ensure_service_account_keys(&sa_key, &sa_pub, &mut batch)?;

        let pki = Self {
            ca_cert: batch.pem(ca_cert),
            ca_key: batch.pem(ca_key),
            serving_cert: batch.pem(files.serving_cert),
            serving_key: batch.pem(files.serving_key),
            front_proxy_ca_cert: batch.pem(front_cert),
            front_proxy_client_cert: batch.pem(proxy_cert),
            front_proxy_client_key: batch.pem(proxy_key),
            service_account_key: batch.pem(sa_key),
            service_account_pub: batch.pem(sa_pub),
            admin_cert: batch.pem(admin_cert),
            admin_key: batch.pem(admin_key),
            admin_kubeconfig: pki_paths.data_dir.as_ref().map(|dir| dir.join("admin.kubeconfig")),
            serving_cert_is_given,
        };
        Ok((pki, PkiFiles(batch)))
    }

    /// Calls [`Pki::ensure`] again and again, for as long as it is polled: a server may run for longer than a certificate.
    /// The tasks that watch the files load the new ones.
    pub async fn keep_renewed(pki_paths: PkiPaths, names: ServerNames, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            let (pki_paths, names) = (pki_paths.clone(), names.clone());
            let renewed = tokio::task::spawn_blocking(move || {
                Self::ensure(&pki_paths, &names, SystemTime::now()).map(drop)
            });
            if let Ok(Err(error)) = renewed.await {
                tracing::error!(%error, "Failed to renew certificates");
            }
        }
    }

    /// Whether the generated serving certificate, as it is on disk now, can no longer be used.
    pub fn serving_cert_has_expired(&self, now: SystemTime) -> bool {
        let Ok(pem) = self.serving_cert.read() else { return false };
        let Ok(der) = CertificateDer::from_pem_slice(&pem) else { return false };
        not_after(self.serving_cert.path(), &der).is_ok_and(|not_after| not_after < now)
    }

    /// A kubeconfig of the administrator, complete in itself. `server_ca` is the PEM bundle that vouches for the serving
    /// certificate, the own CA if there is no other.
    pub fn admin_kubeconfig(
        &self,
        server: &str,
        server_ca: Option<&str>,
    ) -> Result<String, PkiError> {
        let read = |pem: &Pem| {
            pem.read_text().map_err(|error| PkiError::File { path: pem.path().to_owned(), error })
        };
        let ca = server_ca.map_or_else(|| read(&self.ca_cert), |ca| Ok(ca.to_owned()))?;
        Ok(kubeconfig(server, &ca, &read(&self.admin_cert)?, &read(&self.admin_key)?))
    }

    /// Writes `<data_dir>/admin.kubeconfig` and says where it is; `None` if there is no data directory. The address is
    /// that of this start.
    pub fn write_admin_kubeconfig(
        &self,
        server: &str,
        server_ca: Option<&str>,
    ) -> Result<Option<PathBuf>, PkiError> {
        let Some(path) = &self.admin_kubeconfig else { return Ok(None) };
        let content = self.admin_kubeconfig(server, server_ca)?;
        let failed = |(path, error)| PkiError::File { path, error };
        if read_optional(path).map_err(|error| failed((path.clone(), error)))?.as_ref()
            != Some(&content)
        {
            let mut batch = Batch::default();
            batch.private(path, content);
            batch.commit().map_err(failed)?;
        }
        Ok(Some(path.clone()))
    }
}

fn kubeconfig(server: &str, ca: &str, cert: &str, key: &str) -> String {
    // Compat: fabric8, the client of most Java programs, takes any key in PKCS #8 for an RSA key.
    let key = sec1::from_pkcs8(key).unwrap_or_else(|| key.to_owned());
    let [ca, cert, key] = [ca, cert, &key].map(|pem| BASE64.encode(pem));
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: pintle
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: kubernetes-admin
  user:
    client-certificate-data: {cert}
    client-key-data: {key}
contexts:
- name: kubernetes-admin@pintle
  context:
    cluster: pintle
    user: kubernetes-admin
current-context: kubernetes-admin@pintle
"
    )
}

/// What clients may call the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerNames {
    pub dns: BTreeSet<String>,
    pub addresses: BTreeSet<IpAddr>,
}

impl ServerNames {
    /// The names every API server has, its own addresses (the bind and the advertise address; unspecified ones say
    /// nothing), and the first address of the service range, which pods use.
    pub fn new(own: &[IpAddr], service: IpAddr) -> Self {
        let mut dns: BTreeSet<String> = SERVICE_NAMES.map(str::to_owned).into();
        dns.extend(hostname());
        let mut addresses = BTreeSet::from([
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
            service,
        ]);
        addresses.extend(own.iter().filter(|address| !address.is_unspecified()));
        Self { dns, addresses }
    }

    fn alt_names(&self) -> Result<Vec<SanType>, PkiError> {
        let mut names = Vec::new();
        for name in &self.dns {
            names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        names.extend(self.addresses.iter().map(|address| SanType::IpAddress(*address)));
        Ok(names)
    }

    fn are_in(&self, certificate: &X509Certificate<'_>) -> bool {
        let Ok(Some(alt_names)) = certificate.subject_alternative_name() else { return false };
        let (mut dns, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        for name in &alt_names.value.general_names {
            match name {
                GeneralName::DNSName(name) => {
                    dns.insert((*name).to_owned());
                }
                GeneralName::IPAddress(bytes) => {
                    let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                    let v6 = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
                    addresses.extend(v4.or(v6));
                }
                _ => {}
            }
        }
        dns.is_superset(&self.dns) && addresses.is_superset(&self.addresses)
    }
}

const SERVICE_NAMES: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// The name of this machine, if it is one that a certificate can carry.
pub fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok())?.trim().to_ascii_lowercase();
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    (!name.is_empty() && name.bytes().all(good)).then_some(name)
}

/// A CA, whether just made or found.
struct Ca {
    cert_path: PathBuf,
    cert: String,
    key_path: PathBuf,
    key: Option<String>,
    not_after: SystemTime,
}

impl Ca {
    /// A key without a certificate gets one; a certificate without its key is fine while nothing has to be signed.
    fn ensure(
        cert_path: &Path,
        key_path: &Path,
        common_name: &str,
        now: SystemTime,
        batch: &mut Batch,
    ) -> Result<Self, PkiError> {
        let key = load(batch, key_path)?;
        if let Some(cert) = load(batch, cert_path)? {
            let der = certificate(cert_path, &cert)?;
            let not_after = not_after(cert_path, &der)?;
            if not_after < now {
                let reason = "the CA has expired; move the directory away to make a new one";
                return Err(content(cert_path, reason));
            }
            let (cert_path, key_path) = (cert_path.to_owned(), key_path.to_owned());
            return Ok(Self { cert_path, cert, key_path, key, not_after });
        }
        let key_pair = match &key {
            Some(key) => parse_key(key_path, key)?,
            None => new_key()?,
        };
        let not_after = now + CA_LIFETIME;
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        params.not_before = (now - CLOCK_SKEW).into();
        params.not_after = not_after.into();
        let cert = params.self_signed(&key_pair)?.pem();
        let key_pem = key.clone().unwrap_or_else(|| key_pair.serialize_pem());
        if key.is_none() {
            batch.private(key_path, key_pem.clone());
        }
        batch.public(cert_path, cert.clone());
        let (cert_path, key_path) = (cert_path.to_owned(), key_path.to_owned());
        Ok(Self { cert_path, cert, key_path, key: Some(key_pem), not_after })
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, PkiError> {
        let key = self.key.as_ref().ok_or_else(|| {
            content(&self.key_path, "missing, and a certificate has to be signed with it")
        })?;
        let key_pair = parse_key(&self.key_path, key)?;
        let der = certificate(&self.cert_path, &self.cert)?;
        if !pair_matches(&der, key) {
            return Err(content(&self.key_path, "does not belong to the CA certificate"));
        }
        Ok(Issuer::from_ca_cert_der(&der, key_pair)?)
    }
}

/// What a certificate is for.
enum Leaf<'a> {
    Server { common_name: &'a str, names: &'a ServerNames },
    Client { common_name: &'a str, organization: Option<&'a str> },
}

impl Leaf<'_> {
    /// Keeps the pair that is there if it will be good for a while, else makes a new one.
    fn ensure(
        &self,
        ca: &Ca,
        cert_path: &Path,
        key_path: &Path,
        now: SystemTime,
        batch: &mut Batch,
    ) -> Result<(), PkiError> {
        if let (Some(cert), Some(key)) = (load(batch, cert_path)?, load(batch, key_path)?)
            && self.is_good(ca, &cert, &key, now + RENEW_BEFORE)
        {
            return Ok(());
        }
        let key_pair = new_key()?;
        let params = self.params(now, ca.not_after)?;
        let cert = params.signed_by(&key_pair, &ca.issuer()?)?;
        batch.private(key_path, key_pair.serialize_pem());
        let mut chain = cert.pem();
        if matches!(self, Self::Server { .. }) && ca.cert_path.starts_with(MEMORY) {
            // Compat: as in kube-apiserver's `--cert-dir`, the CA follows, so that a client can trust the file. It is
            // nowhere else.
            chain.push_str(&ca.cert);
        }
        batch.public(cert_path, chain);
        Ok(())
    }

    fn is_good(&self, ca: &Ca, cert: &str, key: &str, at: SystemTime) -> bool {
        let Ok(der) = CertificateDer::from_pem_slice(cert.as_bytes()) else { return false };
        if !pair_matches(&der, key) {
            return false;
        }
        let Ok(roots) = Roots::from_pem(ca.cert.as_bytes()) else { return false };
        match self {
            Self::Client { common_name, organization } => verify_chain(&roots, &[der], at)
                .is_ok_and(|found| {
                    found.common_name == *common_name
                        && found.organizations.first().map(String::as_str) == *organization
                }),
            Self::Server { names, .. } => {
                let Ok((_, parsed)) = X509Certificate::from_der(&der) else { return false };
                names.are_in(&parsed) && serves(&ca.cert, &der, at)
            }
        }
    }

    fn params(
        &self,
        now: SystemTime,
        ca_not_after: SystemTime,
    ) -> Result<CertificateParams, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.not_before = (now - CLOCK_SKEW).into();
        params.not_after = (now + LEAF_LIFETIME).min(ca_not_after).into();
        match self {
            Self::Server { common_name, names } => {
                params.distinguished_name.push(DnType::CommonName, *common_name);
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                params.subject_alt_names = names.alt_names()?;
            }
            Self::Client { common_name, organization } => {
                if let Some(organization) = organization {
                    params.distinguished_name.push(DnType::OrganizationName, *organization);
                }
                params.distinguished_name.push(DnType::CommonName, *common_name);
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            }
        }
        Ok(params)
    }
}

/// Whether there is a pair that this CA has not issued. Compat: kube-apiserver serves the pair that it finds, and
/// envtest puts one there.
fn is_given(ca: &Ca, cert_path: &Path, key_path: &Path, batch: &Batch) -> Result<bool, PkiError> {
    let (Some(cert), Some(_)) = (load(batch, cert_path)?, load(batch, key_path)?) else {
        return Ok(false);
    };
    let der = certificate(cert_path, &cert)?;
    // Valid at its own end: only the issuer counts.
    let at = not_after(cert_path, &der)?;
    Ok(!serves(&ca.cert, &der, at))
}

/// Lifetimes as kubeadm has them.
const CA_LIFETIME: Duration = Duration::from_hours(10 * 365 * 24);
const LEAF_LIFETIME: Duration = Duration::from_hours(365 * 24);
/// A certificate with less time left is replaced at the next chance.
const RENEW_BEFORE: Duration = Duration::from_hours(30 * 24);
/// Clients whose clock is a little behind must not think that the certificate is from the future.
const CLOCK_SKEW: Duration = Duration::from_mins(5);

/// Whether a client that trusts this CA would accept the server at `at`.
fn serves(ca: &str, leaf: &CertificateDer<'_>, at: SystemTime) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    let Ok(ca) = CertificateDer::from_pem_slice(ca.as_bytes()) else { return false };
    if roots.add(ca).is_err() {
        return false;
    }
    let provider = aws_lc_rs::default_provider().into();
    let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build()
    else {
        return false;
    };
    let localhost = ServerName::try_from("localhost").expect("a valid name");
    let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = UnixTime::since_unix_epoch(since_epoch);
    verifier.verify_server_cert(leaf, &[], &localhost, &[], at).is_ok()
}

fn pair_matches(cert: &CertificateDer<'_>, key: &str) -> bool {
    let Ok(key) = PrivateKeyDer::from_pem_slice(key.as_bytes()) else { return false };
    CertifiedKey::from_der(vec![cert.clone().into_owned()], key, &aws_lc_rs::default_provider())
        .is_ok()
}

/// ECDSA P-256, as for certificates: ring makes no RSA keys, and Kubernetes takes both.
fn ensure_service_account_keys(
    key_path: &Path,
    pub_path: &Path,
    batch: &mut Batch,
) -> Result<(), PkiError> {
    match (load(batch, key_path)?, load(batch, pub_path)?) {
        (Some(_), Some(_)) => {}
        (Some(key), None) => batch.public(pub_path, parse_key(key_path, &key)?.public_key_pem()),
        (None, Some(_)) => {
            let reason = "missing, but its public key is there: tokens cannot be signed";
            return Err(content(key_path, reason));
        }
        (None, None) => {
            let key = new_key()?;
            batch.private(key_path, key.serialize_pem());
            batch.public(pub_path, key.public_key_pem());
        }
    }
    Ok(())
}

fn new_key() -> Result<KeyPair, PkiError> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

fn parse_key(path: &Path, pem: &str) -> Result<KeyPair, PkiError> {
    KeyPair::from_pem(pem).map_err(|error| {
        content(path, &format!("not a usable private key (PKCS #8 is needed): {error}"))
    })
}

fn certificate(path: &Path, pem: &str) -> Result<CertificateDer<'static>, PkiError> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| content(path, &format!("not a certificate: {error}")))
}

fn not_after(path: &Path, der: &CertificateDer<'_>) -> Result<SystemTime, PkiError> {
    let (_, parsed) = X509Certificate::from_der(der)
        .map_err(|error| content(path, &format!("not a certificate: {error}")))?;
    let seconds = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or_default();
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

fn load(batch: &Batch, path: &Path) -> Result<Option<String>, PkiError> {
    batch.load(path).map_err(|error| PkiError::File { path: path.to_owned(), error })
}

fn content(path: &Path, reason: &str) -> PkiError {
    PkiError::Content { path: path.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests;
