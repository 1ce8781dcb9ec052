//! Why a call has failed, as variants that callers can match on. No variant ever holds a token, a
//! password or a private key.

use std::{fmt, io, net::SocketAddr, path::PathBuf};

use http::StatusCode;
use rustls_pki_types::pem;

/// Why a call has failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("URL {url}: {why}")]
    Url { url: String, why: UrlProblem },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("deadline exceeded while {0}")]
    DeadlineExceeded(Phase),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("{connections_max} connections to {host} are upgraded, which is the limit")]
    TooManyUpgrades { host: String, connections_max: usize },
    /// The certificate of the server, or its TLS, is not acceptable.
    #[error("TLS with {server_name}: {source}")]
    Tls { server_name: String, source: rustls::Error },
    /// The connection failed during the TLS handshake.
    #[error("TLS handshake with {server_name}: {source}")]
    TlsHandshake { server_name: String, source: io::Error },
    /// No caller follows redirects: a server that is trusted with a request must not be able to
    /// send it, or the credentials with it, to another one.
    #[error("{status} redirects to {location}, which is not followed")]
    Redirect { status: StatusCode, location: String },
    #[error("the response is larger than {bytes_max} bytes")]
    ResponseTooLarge { bytes_max: usize },
    #[error("the headers of the response are larger than {bytes_max} bytes")]
    ResponseHeadersTooLarge { bytes_max: usize },
    #[error("the server sends informational responses and no other")]
    TooManyInformationalResponses,
    /// The request said that only `identity` is acceptable.
    #[error("the response has the unrequested Content-Encoding {encoding:?}")]
    ContentEncoding { encoding: String },
    /// The connection failed, or what came back was not HTTP.
    #[error("{0}")]
    Http(#[source] hyper::Error),
}

/// What a call was doing when its deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// As many connections are in use as the limits allow.
    WaitingForConnection,
    Dialing,
    TlsHandshake,
    /// The request is being sent, or the server has not answered yet.
    WaitingForResponse,
    ReadingBody,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WaitingForConnection => "waiting for a free connection",
            Self::Dialing => "dialing",
            Self::TlsHandshake => "waiting for the TLS handshake",
            Self::WaitingForResponse => "waiting for the response",
            Self::ReadingBody => "reading the body of the response",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlProblem {
    #[error("it cannot be parsed")]
    Syntax,
    #[error("the scheme must be https or http")]
    Scheme,
    #[error("it has no host")]
    NoHost,
    #[error("the host is not a valid TLS server name")]
    ServerName,
    /// They would be shown wherever the URL is.
    #[error("user and password in a URL are not supported")]
    UserInfo,
}

/// Why there is no connection to a host.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("lookup of {host}: {source}")]
    Lookup { host: String, source: io::Error },
    /// Of several addresses, the last one that was tried.
    #[error("connect to {address}: {source}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("connect to {address}: no answer within the connect timeout")]
    Timeout { address: SocketAddr },
    /// A [`Dial`](crate::Dial) that does not connect to every address.
    #[error("address not allowed")]
    NotAllowed { host: String },
    /// For implementations of [`Dial`](crate::Dial) that go another way.
    #[error("dial {host}:{port}: {source}")]
    Other { host: String, port: u16, source: Box<dyn std::error::Error + Send + Sync> },
}

/// Why a client cannot be made from its configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{from}: no certificate could be parsed")]
    NoCertificates { from: PemOrigin },
    #[error("unable to load root certificates: {source}")]
    Roots { source: rustls::client::VerifierBuilderError },
    #[error("client certificate, {from}: {source}")]
    ClientCertificate { from: PemOrigin, source: pem::Error },
    #[error("client key, {from}: {source}")]
    ClientKey { from: PemOrigin, source: pem::Error },
    /// The most common cause: they do not belong together.
    #[error("client certificate, {certificate}, with client key, {key}: {source}")]
    ClientIdentity { certificate: PemOrigin, key: PemOrigin, source: rustls::Error },
    #[error("{name:?} is not a valid TLS server name")]
    ServerName { name: String },
    #[error("the bearer token{} cannot be sent in a header", in_file(.path.as_ref()))]
    TokenCharacters { path: Option<PathBuf> },
    #[error("the bearer token{} is empty", in_file(.path.as_ref()))]
    TokenEmpty { path: Option<PathBuf> },
    #[error(transparent)]
    Tls(rustls::Error),
}

fn in_file(path: Option<&PathBuf>) -> String {
    path.map(|path| format!(" in {}", path.display())).unwrap_or_default()
}

/// Where PEM was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PemOrigin {
    Inline,
    File(PathBuf),
}

impl fmt::Display for PemOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline => f.write_str("inline data"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}
