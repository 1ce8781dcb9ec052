//! The real kube-apiserver, set up as Pintle sets itself up, so that the same tests run on both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::json;

use crate::etcd::Part;
use crate::process::directory;

/// What a kube-apiserver needs before it starts: keys, certificates and its administrator's
/// kubeconfig.
pub(crate) struct Peer {
    pub(crate) kubeconfig: PathBuf,
    pki: PathBuf,
    port: u16,
}

impl Peer {
    pub(crate) fn new(data: &Path, port: u16) -> Self {
        let pki = directory(data, "pki");
        let (authority_pem, authority) = certificate_authority();
        fs::write(pki.join("ca.crt"), &authority_pem).expect("a file");
        write_pair(&pki, "apiserver", &serving(&authority));
        let service_accounts = KeyPair::generate().expect("ring makes keys");
        fs::write(pki.join("sa.key"), service_accounts.serialize_pem()).expect("a file");
        fs::write(pki.join("sa.pub"), service_accounts.public_key_pem()).expect("a file");
        let admin = administrator(&authority);
        let kubeconfig = data.join("admin.kubeconfig");
        fs::write(&kubeconfig, administrators_kubeconfig(port, &authority_pem, &admin))
            .expect("a file");
        Self { kubeconfig, pki, port }
    }

    /// With additional flags.
    pub(crate) fn command(&self, program: &Path, etcd: &Part, flags: &[String]) -> Command {
        let file = |name: &str| self.pki.join(name).display().to_string();
        let mut command = Command::new(program);
        command
            .arg(format!("--etcd-servers={}", etcd.etcd.url))
            .arg(format!("--etcd-prefix={}", etcd.prefix))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={}", self.port))
            .arg(format!("--client-ca-file={}", file("ca.crt")))
            .arg(format!("--tls-cert-file={}", file("apiserver.crt")))
            .arg(format!("--tls-private-key-file={}", file("apiserver.key")))
            .arg(format!("--service-account-key-file={}", file("sa.pub")))
            .arg(format!("--service-account-signing-key-file={}", file("sa.key")))
            .arg("--service-account-issuer=https://kubernetes.default.svc.cluster.local")
            .arg("--service-cluster-ip-range=10.0.0.0/24")
            .arg("--authorization-mode=Node,RBAC")
            .arg("--allow-privileged=true")
            // Unset, a server that is asked to end waits a minute for its watches.
            .arg("--shutdown-watch-termination-grace-period=10s")
            // On in Pintle as it is.
            .arg("--enable-admission-plugins=NodeRestriction");
        // A pod needs its namespace's service account, which is made by a controller that runs in another
        // program; Pintle has it inside. Tests of the plugin make the accounts themselves.
        if !flags.iter().any(|flag| flag.contains("ServiceAccount")) {
            command.arg("--disable-admission-plugins=ServiceAccount");
        }
        command.args(flags);
        command
    }
}

impl Peer {
    /// The controllers that Pintle has built in, and no others: none may create pods or replicas that a
    /// test does not expect.
    pub(crate) fn controllers_command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("--root-ca-file={}", self.pki.join("ca.crt").display()))
            .arg(format!(
                "--service-account-private-key-file={}",
                self.pki.join("sa.key").display()
            ))
            .arg("--controllers=namespace-controller,garbage-collector-controller,serviceaccount-controller,root-ca-certificate-publisher-controller,clusterrole-aggregation-controller,serviceaccount-token-controller")
            .arg("--leader-elect=false")
            // It serves nothing that a test asks for.
            .arg("--secure-port=0");
        command
    }
}

/// Writes the CA, server and client certificates of an etcd with TLS.
pub(crate) fn write_etcd_pki(pki: &Path) {
    let (authority_pem, authority) = certificate_authority();
    fs::write(pki.join("ca.crt"), authority_pem).expect("a file");
    write_pair(pki, "server", &serving(&authority));
    write_pair(pki, "client", &administrator(&authority));
}

/// A certificate and its key, both PEM.
struct Pair {
    certificate: String,
    key: String,
}

fn certificate_authority() -> (String, Issuer<'static, KeyPair>) {
    let mut params = params(&[], "pintle-test-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate().expect("ring makes keys");
    let certificate = params.self_signed(&key).expect("the parameters are valid");
    (certificate.pem(), Issuer::new(params, key))
}

fn serving(authority: &Issuer<'_, KeyPair>) -> Pair {
    let mut params = params(&["127.0.0.1", "localhost"], "kube-apiserver", None);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    sign(&params, authority)
}

fn administrator(authority: &Issuer<'_, KeyPair>) -> Pair {
    let mut params = params(&[], "kubernetes-admin", Some("system:masters"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    sign(&params, authority)
}

fn params(names: &[&str], user: &str, group: Option<&str>) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("the names are valid");
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, user);
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    params.distinguished_name = subject;
    params
}

fn sign(params: &CertificateParams, authority: &Issuer<'_, KeyPair>) -> Pair {
    let key = KeyPair::generate().expect("ring makes keys");
    let certificate = params.signed_by(&key, authority).expect("the parameters are valid");
    Pair { certificate: certificate.pem(), key: key.serialize_pem() }
}

fn write_pair(directory: &Path, name: &str, pair: &Pair) {
    fs::write(directory.join(format!("{name}.crt")), &pair.certificate).expect("a file");
    fs::write(directory.join(format!("{name}.key")), &pair.key).expect("a file");
}

/// A kubeconfig is YAML, of which JSON is a part.
fn administrators_kubeconfig(port: u16, authority: &str, admin: &Pair) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "peer", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority-data": STANDARD.encode(authority),
        }}],
        "users": [{"name": "admin", "user": {
            "client-certificate-data": STANDARD.encode(&admin.certificate),
            "client-key-data": STANDARD.encode(&admin.key),
        }}],
        "contexts": [{"name": "admin", "context": {"cluster": "peer", "user": "admin"}}],
        "current-context": "admin",
    })
    .to_string()
}
