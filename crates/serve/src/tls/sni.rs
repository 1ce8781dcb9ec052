//! Which certificate a client is shown: by the name it asks for, else by the address it came to, else the default.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::TlsError;

/// A value of `--tls-sni-cert-key`: `cert.pem,key.pem` or `cert.pem,key.pem:*.example.com,example.com`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCertKey {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
    /// Domain patterns or IP addresses; empty means the names in the certificate.
    pub names: Vec<String>,
}

impl FromStr for NamedCertKey {
    type Err = TlsError;

    fn from_str(value: &str) -> Result<Self, TlsError> {
        let (files, names) = match value.split_once(':') {
            Some((_, names)) if names.trim().is_empty() => {
                return Err(TlsError::Flag("empty names list is not allowed".to_owned()));
            }
            Some((files, names)) => {
                (files, names.split(',').map(|name| name.trim().to_owned()).collect())
            }
            None => (value, Vec::new()),
        };
        let mut files = files.split(',').map(str::trim);
        let (Some(cert), Some(key), None) = (files.next(), files.next(), files.next()) else {
            let message = "expected comma separated certificate and key file paths";
            return Err(TlsError::Flag(message.to_owned()));
        };
        Ok(Self { cert_file: cert.into(), key_file: key.into(), names })
    }
}

/// A certificate with its key and the names written in it.
#[derive(Debug, Clone)]
pub(crate) struct ServingCert {
    key: Arc<CertifiedKey>,
    common_name: Option<String>,
    dns_names: Vec<String>,
}

impl ServingCert {
    /// From PEM; fails if key and certificate do not belong together.
    pub(crate) fn from_pem(
        cert: &[u8],
        key: &[u8],
        provider: &CryptoProvider,
    ) -> Result<Self, String> {
        let chain = CertificateDer::pem_slice_iter(cert)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("certificate is not PEM: {error}"))?;
        let leaf = chain.first().ok_or("no certificate found")?;
        let (_, parsed) = X509Certificate::from_der(leaf)
            .map_err(|error| format!("invalid certificate: {error}"))?;
        let common_names = parsed.subject().iter_common_name();
        let common_name = common_names.filter_map(|name| name.as_str().ok()).last();
        let common_name = common_name.map(str::to_owned);
        let dns_names = dns_names(&parsed);
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| format!("private key is not PEM: {error}"))?;
        let key = CertifiedKey::from_der(chain, key, provider)
            .map_err(|error| format!("certificate and key: {error}"))?;
        Ok(Self { key: Arc::new(key), common_name, dns_names })
    }

    /// The names a client may ask for when the flag gives none. IP addresses are left out: SNI has no addresses.
    fn names(&self) -> impl Iterator<Item = &str> {
        let common_name = self.common_name.as_deref().filter(|name| is_domain(name));
        common_name.into_iter().chain(self.dns_names.iter().map(String::as_str))
    }

    /// Whether a client that asked for `name` would be content with this certificate.
    fn covers(&self, name: &str) -> bool {
        self.dns_names.iter().any(|known| match known.strip_prefix("*.") {
            Some(parent) => name.split_once('.').is_some_and(|(_, rest)| rest == parent),
            None => known == name,
        })
    }

    fn suits(&self, hello: &ClientHello<'_>) -> bool {
        self.key.key.choose_scheme(hello.signature_schemes()).is_some()
    }
}

fn dns_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return Vec::new() };
    let names = extension.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    names.collect()
}

/// A DNS name in lower case, possibly with a leading wildcard label; not an IP address.
fn is_domain(name: &str) -> bool {
    let bare = name.strip_prefix("*.").unwrap_or(name);
    let label = |label: &str| {
        let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = label.as_bytes();
        bytes.first().is_some_and(alphanumeric)
            && bytes.last().is_some_and(alphanumeric)
            && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
    };
    name == "*"
        || (name.parse::<IpAddr>().is_err() && bare.len() <= 253 && bare.split('.').all(label))
}

/// The certificates of the server by the name that selects them.
#[derive(Debug, Clone)]
pub(crate) struct CertTable {
    default: ServingCert,
    /// For clients that give no name, if the address they came to has a certificate of its own.
    nameless: Option<ServingCert>,
    by_name: HashMap<String, ServingCert>,
    /// In the order of the flags: what remains to be tried for a name that nothing selects.
    named: Vec<ServingCert>,
}

impl CertTable {
    /// Exact names beat wildcards, names of the flag beat names of the certificate, earlier flags beat later ones.
    pub(crate) fn new(default: ServingCert, named: Vec<(ServingCert, Vec<String>)>) -> Self {
        let mut by_name = HashMap::new();
        for (cert, _) in named.iter().rev().filter(|(_, explicit)| explicit.is_empty()) {
            for name in cert.names() {
                by_name.insert(name.to_owned(), cert.clone());
            }
        }
        for (cert, explicit) in named.iter().rev() {
            for name in explicit {
                by_name.insert(name.to_ascii_lowercase(), cert.clone());
            }
        }
        let named = named.into_iter().map(|(cert, _)| cert).collect();
        Self { default, nameless: None, by_name, named }
    }

    /// Tables for clients that come without a name to an address that has a certificate of its own.
    pub(crate) fn by_address(&self) -> impl Iterator<Item = (IpAddr, Self)> {
        self.by_name.iter().filter_map(|(name, cert)| {
            let address: IpAddr = name.parse().ok()?;
            Some((address, Self { nameless: Some(cert.clone()), ..self.clone() }))
        })
    }

    fn select(&self, name: Option<&str>, suits: impl Fn(&ServingCert) -> bool) -> &ServingCert {
        let mut all = std::iter::once(&self.default).chain(&self.named);
        let Some(name) = name.map(str::to_ascii_lowercase) else {
            let nameless = self.nameless.as_ref().or_else(|| all.find(|cert| suits(cert)));
            return nameless.unwrap_or(&self.default);
        };
        if let Some(cert) = self.by_name.get(&name) {
            return cert;
        }
        let wildcard = name.split_once('.').map_or("*".to_owned(), |(_, rest)| format!("*.{rest}"));
        if let Some(cert) = self.by_name.get(&wildcard) {
            return cert;
        }
        all.find(|cert| cert.covers(&name) && suits(cert)).unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for CertTable {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let cert = self.select(hello.server_name(), |cert| cert.suits(&hello));
        Some(cert.key.clone())
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::ring;

    use super::*;
    use crate::tls::testing::self_signed;

    #[test]
    fn the_flag_is_read_as_kube_apiserver_does() {
        let good = |cert: &str, key: &str, names: &[&str]| {
            let names = names.iter().map(ToString::to_string).collect();
            Ok(NamedCertKey { cert_file: cert.into(), key_file: key.into(), names })
        };
        let bad = |message: &str| Err(message.to_owned());
        let two_files = "expected comma separated certificate and key file paths";
        let cases = [
            ("a.crt,a.key", good("a.crt", "a.key", &[])),
            (
                " a.crt , a.key : *.foo.com , foo.com",
                good("a.crt", "a.key", &["*.foo.com", "foo.com"]),
            ),
            ("a.crt,a.key:10.0.0.1", good("a.crt", "a.key", &["10.0.0.1"])),
            ("a.crt", bad(two_files)),
            ("a.crt,a.key,b", bad(two_files)),
            ("a.crt,a.key:", bad("empty names list is not allowed")),
        ];
        for (value, expected) in cases {
            let parsed = value.parse::<NamedCertKey>().map_err(|error| error.to_string());
            assert_eq!(parsed, expected, "{value}");
        }
    }

    /// Certificates are identified by their common name.
    fn cert(common_name: &str, dns_names: &[&str]) -> ServingCert {
        let (cert, key) = self_signed(common_name, dns_names);
        ServingCert::from_pem(cert.as_bytes(), key.as_bytes(), &ring::default_provider())
            .expect("just made")
    }

    #[test]
    fn names_select_certificates() {
        let explicit = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let table = CertTable::new(
            cert("default", &["localhost"]),
            vec![
                (cert("first.example", &["shared.example"]), vec![]),
                (cert("second", &["shared.example", "*.wild.example"]), vec![]),
                (cert("third", &["unlisted.example"]), explicit(&["SECOND", "*.pin.example"])),
                (cert("exact", &[]), explicit(&["a.wild.example", "10.0.0.1"])),
            ],
        );
        let cases = [
            (None, "default"),
            (Some("localhost"), "default"),
            (Some("unknown.example"), "default"),
            (Some("first.example"), "first.example"),
            (Some("Shared.Example"), "first.example"),
            (Some("second"), "third"),
            (Some("a.wild.example"), "exact"),
            (Some("b.wild.example"), "second"),
            (Some("b.a.wild.example"), "default"),
            (Some("x.pin.example"), "third"),
            (Some("unlisted.example"), "third"),
        ];
        for (name, expected) in cases {
            let selected = table.select(name, |_| true);
            assert_eq!(selected.common_name.as_deref(), Some(expected), "{name:?}");
        }
        let by_address: Vec<_> = table.by_address().collect();
        assert_eq!(by_address.len(), 1);
        assert_eq!(by_address[0].0.to_string(), "10.0.0.1");
        let selected = by_address[0].1.select(None, |_| true);
        assert_eq!(selected.common_name.as_deref(), Some("exact"));
    }

    #[test]
    fn common_names_that_are_no_domains_select_nothing() {
        let cases = [
            ("example.com", true),
            ("*.example.com", true),
            ("*", true),
            ("10.0.0.1", false),
            ("kube-apiserver@1700000000", false),
            ("-a.example", false),
            ("", false),
        ];
        for (name, expected) in cases {
            assert_eq!(is_domain(name), expected, "{name:?}");
        }
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let (cert, _) = self_signed("a", &[]);
        let (_, key) = self_signed("b", &[]);
        let provider = ring::default_provider();
        let error = ServingCert::from_pem(cert.as_bytes(), key.as_bytes(), &provider);
        let error = error.expect_err("the keys differ");
        assert!(error.starts_with("certificate and key: "), "{error}");
        let error = ServingCert::from_pem(b"", key.as_bytes(), &provider);
        assert_eq!(error.expect_err("no certificate"), "no certificate found");
    }
}
