//! The secure port: certificates, TLS, the listener, and the line that says where it is.

use std::{
    io::Write as _,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use background::Tasks;
use serve::{
    Pem,
    connection::Limits,
    descriptors,
    listener::{Listener, Sharing},
    pki::{Pki, PkiFiles, PkiPaths, ServerNames},
    tls::{NamedCertKey, Tls, TlsOptions},
};

use crate::options::Options;

/// Binds the secure port; nothing is accepted yet.
pub(crate) fn bind(options: &Options) -> Result<Listener, String> {
    let address = SocketAddr::new(options.bind_address, options.secure_port);
    let sharing =
        Sharing { address: options.permit_address_sharing, port: options.permit_port_sharing };
    Listener::bind(address, sharing)
        .map_err(|error| format!("failed to listen on {address}: {error}"))
}

pub(crate) fn limits(options: &Options) -> Limits {
    let limits = Limits::default();
    let files = descriptors::raise_limit();
    let connections_max = descriptors::connections_max(files, limits.connections_max);
    if connections_max < limits.connections_max {
        tracing::info!(connections_max, "the limit of open files bounds the number of connections");
    }
    let streams_max = options.http2_max_streams_per_connection;
    Limits { streams_max, connections_max, ..limits }
}

/// The certificates and keys, and their files, which are not written yet.
pub(crate) fn prepare_pki(options: &Options) -> Result<(Pki, PkiFiles), String> {
    Pki::prepare(&pki_paths(options), &server_names(options), SystemTime::now())
        .map_err(|error| error.to_string())
}

fn pki_paths(options: &Options) -> PkiPaths {
    PkiPaths { data_dir: options.data_dir.clone(), cert_dir: options.cert_dir.clone() }
}

fn server_names(options: &Options) -> ServerNames {
    let own = [options.bind_address, options.advertise_address];
    ServerNames::new(&own, options.kubernetes_service_ip)
}

pub(crate) fn prepare_tls(options: &Options, pki: &Pki) -> Result<Arc<Tls>, String> {
    let (cert_file, key_file) = match &options.serving_cert {
        Some(pair) => (pair.cert_file.clone().into(), pair.key_file.clone().into()),
        None => (pki.serving_cert.clone(), pki.serving_key.clone()),
    };
    let tls = TlsOptions {
        cert_file,
        key_file,
        sni: options.sni_certs.iter().map(sni).collect(),
        client_ca_file: Some(client_ca(options, pki)),
        request_header_ca_file: options
            .authentication
            .request_header
            .as_ref()
            .map(|front| front.client_ca_file.clone().into()),
        min_version: options.tls_min_version.name().to_owned(),
        cipher_suites: options.tls_cipher_suites.iter().map(|name| (*name).to_owned()).collect(),
        curve_preferences: options.tls_key_exchanges.iter().map(|kx| kx.id()).collect(),
        disable_http2: !options.http2,
    };
    Tls::new(&tls).map_err(|error| error.to_string())
}

/// The admin of `admin.kubeconfig` is known by the own CA unless another one is given.
pub(crate) fn client_ca(options: &Options, pki: &Pki) -> Pem {
    let given = options.authentication.client_ca_file.clone();
    given.map_or_else(|| pki.ca_cert.clone(), Pem::from)
}

fn sni(given: &crate::flags::NamedCertKey) -> NamedCertKey {
    NamedCertKey {
        cert_file: given.cert_file.clone().into(),
        key_file: given.key_file.clone().into(),
        names: given.names.clone(),
    }
}

/// Reloads given certificates when their files change, and renews the generated ones.
pub(crate) fn follow_certificates(options: &Options, tls: &Arc<Tls>, tasks: &Tasks) {
    let tls = tls.clone();
    tasks.restarting("tls-files", move || tls.clone().follow_files(RELOAD_INTERVAL));
    if options.data_dir.is_none() {
        // Compat: a certificate that kube-apiserver has made for itself lasts for a year of uptime, too.
        return;
    }
    let (paths, names) = (pki_paths(options), server_names(options));
    tasks.restarting("certificate-renewal", move || {
        Pki::keep_renewed(paths.clone(), names.clone(), RENEWAL_INTERVAL)
    });
}

/// How often certificate files are looked at.
pub(crate) const RELOAD_INTERVAL: Duration = Duration::from_secs(10);
/// How often the generated certificates are looked at: they are renewed months before they run out.
const RENEWAL_INTERVAL: Duration = Duration::from_hours(12);

/// The URL under which this machine reaches the server.
pub(crate) fn url(options: &Options, bound: SocketAddr) -> String {
    let host = if bound.ip().is_unspecified() {
        SocketAddr::new(options.advertise_address, bound.port())
    } else {
        bound
    };
    format!("https://{host}")
}

/// A kubeconfig of the administrator that trusts the certificate which is served.
pub(crate) fn admin_kubeconfig(options: &Options, pki: &Pki, url: &str) -> Result<String, String> {
    let server_ca = server_ca(options, pki)?;
    pki.admin_kubeconfig(url, server_ca.as_deref()).map_err(|error| error.to_string())
}

/// A certificate that was given may be of any CA, so clients trust the certificate itself. None: the own CA.
fn server_ca(options: &Options, pki: &Pki) -> Result<Option<String>, String> {
    let given = options.serving_cert.as_ref().map(|pair| Pem::from(pair.cert_file.clone()));
    let given = given.or_else(|| pki.serving_cert_is_given.then(|| pki.serving_cert.clone()));
    given.map(|pem| pem.read_text().map_err(|error| format!("{pem}: {error}"))).transpose()
}

/// The one line on standard output: where the server is, and what to type.
pub(crate) fn announce(options: &Options, pki: &Pki, bound: SocketAddr) -> Result<(), String> {
    let url = url(options, bound);
    let server_ca = server_ca(options, pki)?;
    let kubeconfig = pki
        .write_admin_kubeconfig(&url, server_ca.as_deref())
        .map_err(|error| error.to_string())?;
    let line = match kubeconfig {
        Some(file) => {
            format!("Ready at {url}; try: kubectl --kubeconfig {} get ns\n", file.display())
        }
        None => format!("Ready at {url}\n"),
    };
    let mut out = std::io::stdout().lock();
    // Standard output may be closed; that is no reason to stop.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    Ok(())
}
