//! TLS: what is shown to clients, what is asked of them, and how both follow the files they come from.

mod client;
mod parameters;
mod sni;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;

pub(crate) use self::client::ClientCert;
pub use self::client::{PeerIdentity, Roots, VerifiedCert, verify_chain};
use self::parameters::Parameters;
pub use self::sni::NamedCertKey;
use self::sni::{CertTable, ServingCert};
use crate::Pem;

/// The TLS flags, completed: the certificate files exist.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// `--tls-cert-file`: certificate, then the CAs between it and the root.
    pub cert_file: Pem,
    /// `--tls-private-key-file`
    pub key_file: Pem,
    /// `--tls-sni-cert-key`, in order
    pub sni: Vec<NamedCertKey>,
    /// `--client-ca-file`
    pub client_ca_file: Option<Pem>,
    /// `--requestheader-client-ca-file`
    pub request_header_ca_file: Option<Pem>,
    /// `--tls-min-version`; empty is TLS 1.2.
    pub min_version: String,
    /// `--tls-cipher-suites`; empty is all.
    pub cipher_suites: Vec<String>,
    /// `--tls-curve-preferences`; empty is all.
    pub curve_preferences: Vec<i32>,
    /// `--disable-http2-serving`
    pub disable_http2: bool,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{0}")]
    Flag(String),
    #[error("{}: {error}", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{}: {reason}", path.display())]
    Content { path: PathBuf, reason: String },
    #[error("TLS configuration: {0}")]
    Config(#[from] rustls::Error),
}

/// The server's side of TLS. New connections see the newest files; running ones keep their keys but not their trust.
pub struct Tls {
    parameters: Parameters,
    disable_http2: bool,
    files: Mutex<Files>,
    current: ArcSwap<Current>,
    client_roots: Arc<ArcSwap<Roots>>,
    request_header_roots: Arc<ArcSwap<Roots>>,
}

/// What a new connection needs.
struct Current {
    default: Arc<ServerConfig>,
    /// For clients without SNI that came to an address with a certificate of its own.
    by_address: HashMap<IpAddr, Arc<ServerConfig>>,
}

struct Files {
    serving: PairFile,
    sni: Vec<(PairFile, Vec<String>)>,
    client_ca: Option<File<Roots>>,
    request_header_ca: Option<File<Roots>>,
}

type PairFile = File<ServingCert>;

impl Tls {
    /// Reads all files; fails if one is missing or wrong.
    pub fn new(options: &TlsOptions) -> Result<Arc<Self>, TlsError> {
        let parameters = Parameters::from_flags(
            &options.min_version,
            &options.cipher_suites,
            &options.curve_preferences,
        )?;
        let pair = |cert: Pem, key: Pem| File::load(vec![cert, key], &parse_pair(&parameters));
        let bundle = |pem: &Option<Pem>| {
            pem.as_ref().map(|pem| File::load(vec![pem.clone()], &parse_bundle)).transpose()
        };
        let mut sni = Vec::new();
        for named in &options.sni {
            let (cert, key) = (named.cert_file.clone(), named.key_file.clone());
            sni.push((pair(cert.into(), key.into())?, named.names.clone()));
        }
        let files = Files {
            serving: pair(options.cert_file.clone(), options.key_file.clone())?,
            sni,
            client_ca: bundle(&options.client_ca_file)?,
            request_header_ca: bundle(&options.request_header_ca_file)?,
        };
        let roots = |file: &Option<File<Roots>>| {
            let roots = file.as_ref().map(|file| file.value.clone()).unwrap_or_default();
            Arc::new(ArcSwap::new(roots))
        };
        Ok(Arc::new(Self {
            client_roots: roots(&files.client_ca),
            request_header_roots: roots(&files.request_header_ca),
            current: ArcSwap::from_pointee(build(&parameters, options.disable_http2, &files)?),
            disable_http2: options.disable_http2,
            parameters,
            files: Mutex::new(files),
        }))
    }

    /// Reads the files again; `true` if something changed. A file that became unreadable or wrong is reported and what
    /// was read before stays in use, so that a certificate replaced before its key does not stop the server.
    pub fn reload(&self) -> (bool, Vec<TlsError>) {
        let mut errors = Vec::new();
        let files = &mut *self.files.lock();
        let pair = parse_pair(&self.parameters);
        let mut changed = files.serving.refresh(&pair, &mut errors);
        for (file, _) in &mut files.sni {
            changed |= file.refresh(&pair, &mut errors);
        }
        for (file, roots) in [
            (&mut files.client_ca, &self.client_roots),
            (&mut files.request_header_ca, &self.request_header_roots),
        ] {
            if let Some(file) = file
                && file.refresh(&parse_bundle, &mut errors)
            {
                roots.store(file.value.clone());
                changed = true;
            }
        }
        if changed {
            match build(&self.parameters, self.disable_http2, files) {
                Ok(current) => self.current.store(Arc::new(current)),
                Err(error) => errors.push(error),
            }
        }
        (changed, errors)
    }

    /// Keeps reading the files again, for as long as the returned future is polled. Certificates are replaced by tools
    /// that do not tell, and comparing a few kilobytes is cheaper than watching directories on every kind of volume.
    pub async fn follow_files(self: Arc<Self>, every: Duration) {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let tls = self.clone();
            let Ok((changed, errors)) = tokio::task::spawn_blocking(move || tls.reload()).await
            else {
                tracing::error!("reading the certificates again panicked");
                continue;
            };
            if changed {
                tracing::info!("Reloaded certificates");
            }
            for error in errors {
                tracing::error!(%error, "Failed to reload certificates");
            }
        }
    }

    /// The configuration for a connection that arrived at `local`.
    pub(crate) fn config_for(&self, local: IpAddr) -> Arc<ServerConfig> {
        let current = self.current.load();
        current.by_address.get(&local).unwrap_or(&current.default).clone()
    }

    /// The CAs of client certificates, as of the last reload.
    pub fn client_roots(&self) -> &Arc<ArcSwap<Roots>> {
        &self.client_roots
    }

    pub(crate) fn has_request_header_ca(&self) -> bool {
        self.files.lock().request_header_ca.is_some()
    }

    /// The CAs of front proxies, as of the last reload.
    pub fn request_header_roots(&self) -> &Arc<ArcSwap<Roots>> {
        &self.request_header_roots
    }
}

fn build(parameters: &Parameters, disable_http2: bool, files: &Files) -> Result<Current, TlsError> {
    let bundles = [&files.client_ca, &files.request_header_ca].into_iter().flatten();
    let hints = bundles.flat_map(|file| file.value.subjects()).cloned().collect();
    let provider = Arc::new(parameters.provider.clone());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&parameters.versions)?;
    let builder = if files.client_ca.is_some() || files.request_header_ca.is_some() {
        let verifier = client::AnyClientCert::new(hints, &provider);
        builder.with_client_cert_verifier(Arc::new(verifier))
    } else {
        builder.with_no_client_auth()
    };
    let named = files.sni.iter().map(|(file, names)| (file.value.as_ref().clone(), names.clone()));
    let table = CertTable::new(files.serving.value.as_ref().clone(), named.collect());
    let by_address: Vec<_> = table.by_address().collect();

    let mut config = builder.with_cert_resolver(Arc::new(table));
    config.alpn_protocols = if disable_http2 {
        vec![b"http/1.1".to_vec()]
    } else {
        vec![b"h2".to_vec(), b"http/1.1".to_vec()]
    };
    // Compat: as in Go the server's order counts, not the client's.
    config.ignore_client_order = true;
    // Sessions can be resumed until the next reload, which makes new keys: a session never outlives a replaced CA.
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    config.send_tls13_tickets = 1;
    let by_address = by_address.into_iter().map(|(address, table)| {
        let mut config = config.clone();
        config.cert_resolver = Arc::new(table);
        (address, Arc::new(config))
    });
    Ok(Current { by_address: by_address.collect(), default: Arc::new(config) })
}

/// Something made from the content of one or two files.
struct File<T> {
    paths: Vec<Pem>,
    content: Vec<Vec<u8>>,
    value: Arc<T>,
}

impl<T> File<T> {
    fn load(
        paths: Vec<Pem>,
        parse: &impl Fn(&[Vec<u8>]) -> Result<T, String>,
    ) -> Result<Self, TlsError> {
        let content = read(&paths)?;
        let value = Arc::new(parsed(&paths, &content, parse)?);
        Ok(Self { paths, content, value })
    }

    /// Whether there is a new value.
    fn refresh(
        &mut self,
        parse: &impl Fn(&[Vec<u8>]) -> Result<T, String>,
        errors: &mut Vec<TlsError>,
    ) -> bool {
        let content = match read(&self.paths) {
            Ok(content) if content == self.content => return false,
            Ok(content) => content,
            Err(error) => {
                errors.push(error);
                return false;
            }
        };
        match parsed(&self.paths, &content, parse) {
            Ok(value) => {
                self.content = content;
                self.value = Arc::new(value);
                true
            }
            Err(error) => {
                errors.push(error);
                false
            }
        }
    }
}

fn read(paths: &[Pem]) -> Result<Vec<Vec<u8>>, TlsError> {
    let read = |pem: &Pem| {
        pem.read().map_err(|error| TlsError::Read { path: pem.path().to_owned(), error })
    };
    paths.iter().map(read).collect()
}

fn parsed<T>(
    paths: &[Pem],
    content: &[Vec<u8>],
    parse: &impl Fn(&[Vec<u8>]) -> Result<T, String>,
) -> Result<T, TlsError> {
    let path = || paths[0].path().to_owned();
    parse(content).map_err(|reason| TlsError::Content { path: path(), reason })
}

fn parse_pair(parameters: &Parameters) -> impl Fn(&[Vec<u8>]) -> Result<ServingCert, String> {
    |content| ServingCert::from_pem(&content[0], &content[1], &parameters.provider)
}

fn parse_bundle(content: &[Vec<u8>]) -> Result<Roots, String> {
    Roots::from_pem(&content[0])
}

#[cfg(test)]
mod tests {
    use super::testing::{Leaf, TestCa, self_signed};
    use super::*;

    struct Dir(tempfile::TempDir);

    impl Dir {
        fn write(&self, name: &str, content: &str) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::write(&path, content).expect("temporary files can be written");
            path
        }

        fn options(&self) -> TlsOptions {
            let (cert, key) = self_signed("default", &["localhost"]);
            TlsOptions {
                cert_file: self.write("tls.crt", &cert).into(),
                key_file: self.write("tls.key", &key).into(),
                ..TlsOptions::default()
            }
        }
    }

    fn dir() -> Dir {
        Dir(tempfile::tempdir().expect("temporary directory"))
    }

    #[test]
    fn missing_and_wrong_files_are_named() {
        let dir = dir();
        let good = dir.options();
        let bad_ca = dir.write("bad.crt", "nothing");
        let cases = [
            (TlsOptions { cert_file: "absent.crt".into(), ..good.clone() }, "absent.crt: "),
            (
                TlsOptions { client_ca_file: Some(bad_ca.into()), ..good.clone() },
                "no CA certificate",
            ),
            (TlsOptions { cipher_suites: vec!["X".to_owned()], ..good.clone() }, "Cipher suite X"),
        ];
        for (options, expected) in cases {
            let Err(error) = Tls::new(&options) else { panic!("{expected} is accepted") };
            assert!(error.to_string().contains(expected), "{error}");
        }
        assert!(Tls::new(&good).is_ok());
    }

    #[test]
    fn reload_takes_what_is_good_and_keeps_the_rest() {
        let dir = dir();
        let ca = TestCa::new("old");
        let ca_file = dir.write("ca.crt", &ca.pem());
        let options = TlsOptions { client_ca_file: Some(ca_file.into()), ..dir.options() };
        let tls = Tls::new(&options).expect("good files");
        let before = tls.config_for(IpAddr::from([127, 0, 0, 1]));
        let verified = |ca: &TestCa| {
            let chain = [ca.sign(&Leaf::client("jane", "")).der];
            verify_chain(&tls.client_roots().load(), &chain, std::time::SystemTime::now()).is_ok()
        };

        let (changed, errors) = tls.reload();
        assert!(!changed && errors.is_empty(), "nothing happened");

        // The certificate is replaced before its key: a moment in which they do not match.
        let (cert, key) = self_signed("new", &["localhost"]);
        dir.write("tls.crt", &cert);
        let new_ca = TestCa::new("new");
        dir.write("ca.crt", &new_ca.pem());
        let (changed, errors) = tls.reload();
        assert!(changed, "the CA is new");
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(verified(&new_ca) && !verified(&ca));

        dir.write("tls.key", &key);
        let (changed, errors) = tls.reload();
        assert!(changed && errors.is_empty(), "{errors:?}");
        let after = tls.config_for(IpAddr::from([127, 0, 0, 1]));
        assert!(!Arc::ptr_eq(&before, &after));

        std::fs::remove_file(dir.0.path().join("ca.crt")).expect("it is there");
        let (changed, errors) = tls.reload();
        assert!(!changed && errors.len() == 1);
        assert!(verified(&new_ca), "the bundle read last stays");
    }
}
