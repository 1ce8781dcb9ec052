//! Errors in the words of Go's `net/http`. They end up in messages of the API server's own clients
//! (`conversion webhook for … failed: Post "https://…": context deadline exceeded`), which people
//! search for and tests compare.

use std::io;

use http::Method;
use rustls::{CertificateError, client::VerifierBuilderError};

use crate::error::{ConfigError, DialError, Error};

/// What Go says about a failed call: `Post "https://a/b": dial tcp 127.0.0.1:1: connect: connection
/// refused`.
pub fn url_error(method: &Method, url: &str, why: &str) -> String {
    format!("{} {}: {why}", capitalized(method.as_str()), meta::field::quote(url))
}

/// `POST` as Go writes it here: `Post`.
fn capitalized(method: &str) -> String {
    let (first, rest) = method.split_at(method.len().min(1));
    format!("{first}{}", rest.to_lowercase())
}

/// What Go says after the URL. Where Go has no words for it, ours.
pub fn go_text(error: &Error) -> String {
    match error {
        Error::DeadlineExceeded(_) => "context deadline exceeded".to_owned(),
        Error::Dial(error) => dial_text(error),
        Error::Tls { source, .. } => tls_text(source),
        Error::TlsHandshake { source, .. } => source.to_string(),
        Error::ResponseTooLarge { .. } => "length limit exceeded".to_owned(),
        Error::Config(error) => config_text(error),
        Error::Url { .. }
        | Error::TooManyUpgrades { .. }
        | Error::Redirect { .. }
        | Error::ResponseHeadersTooLarge { .. }
        | Error::TooManyInformationalResponses
        | Error::ContentEncoding { .. }
        | Error::Http(_) => error.to_string(),
    }
}

fn dial_text(error: &DialError) -> String {
    match error {
        DialError::Lookup { host, .. } => format!("dial tcp: lookup {host}: no such host"),
        DialError::Connect { address, source }
            if source.kind() == io::ErrorKind::ConnectionRefused =>
        {
            format!("dial tcp {address}: connect: connection refused")
        }
        DialError::Connect { address, source } => format!("dial tcp {address}: {source}"),
        DialError::Timeout { address } => format!("dial tcp {address}: i/o timeout"),
        DialError::NotAllowed { .. } => error.to_string(),
        DialError::Other { source, .. } => source.to_string(),
    }
}

fn tls_text(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority"
                .to_owned()
        }
        rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            expected,
            presented,
        }) => {
            let why = name_mismatch(&expected.to_str(), presented);
            format!("tls: failed to verify certificate: x509: {why}")
        }
        _ => error.to_string(),
    }
}

/// `presented` has entries such as `DnsName("a.b")` and `IpAddress(127.0.0.1)`.
fn name_mismatch(expected: &str, presented: &[String]) -> String {
    let of = |kind: &str| -> Vec<&str> {
        let own = presented.iter().filter_map(|name| name.strip_prefix(kind));
        own.map(|name| name.trim_matches(['(', ')', '"'])).collect()
    };
    if expected.parse::<std::net::IpAddr>().is_ok() {
        return match of("IpAddress").as_slice() {
            [] => format!(
                "cannot validate certificate for {expected} because it doesn't contain any IP SANs"
            ),
            names => format!("certificate is valid for {}, not {expected}", names.join(", ")),
        };
    }
    match of("DnsName").as_slice() {
        [] => format!("certificate is not valid for any names, but wanted to match {expected}"),
        names => format!("certificate is valid for {}, not {expected}", names.join(", ")),
    }
}

/// Also for a client that cannot be made in the first place.
pub(crate) fn config_text(error: &ConfigError) -> String {
    match error {
        ConfigError::NoCertificates { .. } => {
            format!("unable to load root certificates: {}", VerifierBuilderError::NoRootAnchors)
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Phase;

    #[test]
    fn errors_have_the_words_that_go_has_for_them() {
        let address = "127.0.0.1:1".parse().unwrap();
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let tls = |why| Error::Tls { server_name: "a".into(), source: rustls::Error::from(why) };
        let cases = [
            (Error::DeadlineExceeded(Phase::Dialing), "context deadline exceeded"),
            (
                DialError::Connect { address, source: refused() }.into(),
                "dial tcp 127.0.0.1:1: connect: connection refused",
            ),
            (DialError::Timeout { address }.into(), "dial tcp 127.0.0.1:1: i/o timeout"),
            (
                DialError::Lookup { host: "a.b".into(), source: refused() }.into(),
                "dial tcp: lookup a.b: no such host",
            ),
            (
                tls(CertificateError::UnknownIssuer),
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            ),
        ];
        for (error, expected) in cases {
            assert_eq!(go_text(&error), expected);
        }
        let names = ["DnsName(\"a.b\")".to_owned(), "IpAddress(127.0.0.1)".to_owned()];
        let cases = [
            ("localhost", &names[..], "certificate is valid for a.b, not localhost"),
            ("127.0.0.2", &names[..], "certificate is valid for 127.0.0.1, not 127.0.0.2"),
            (
                "localhost",
                &names[1..],
                "certificate is not valid for any names, but wanted to match localhost",
            ),
            (
                "127.0.0.2",
                &names[..1],
                "cannot validate certificate for 127.0.0.2 because it doesn't contain any IP SANs",
            ),
        ];
        for (expected, presented, why) in cases {
            assert_eq!(name_mismatch(expected, presented), why);
        }
        assert_eq!(url_error(&Method::POST, "https://a", "no"), r#"Post "https://a": no"#);
    }
}
