//! Where a request goes: what to dial, which name the certificate must have, what the request says.

use http::{Uri, uri::Authority};
use rustls_pki_types::ServerName;

use crate::error::{Error, UrlProblem};

/// A host and a port to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// A name or an IP address, without brackets.
    pub host: String,
    pub port: u16,
}

/// Everything about a URL but its path.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// None: plain HTTP.
    pub(crate) server_name: Option<ServerName<'static>>,
    pub(crate) dial: HostPort,
    /// The host, and the port where the URL has it.
    pub(crate) authority: Authority,
}

impl Origin {
    /// `connect_to` replaces what is dialed, and neither the name that the certificate must have nor
    /// what the request says.
    pub(crate) fn new(
        url: &Uri,
        connect_to: Option<HostPort>,
        server_name: Option<&str>,
    ) -> Result<Self, Error> {
        let problem = |why| Error::Url { url: shown(url), why };
        let default_port = match url.scheme_str() {
            Some("https") => 443,
            Some("http") => 80,
            _ => return Err(problem(UrlProblem::Scheme)),
        };
        let authority = url.authority().ok_or(problem(UrlProblem::NoHost))?.clone();
        if authority.as_str().contains('@') {
            return Err(problem(UrlProblem::UserInfo));
        }
        let host = unbracketed(authority.host()).to_owned();
        if host.is_empty() {
            return Err(problem(UrlProblem::NoHost));
        }
        let server_name = if default_port == 443 {
            let name = server_name.unwrap_or(&host).to_owned();
            Some(ServerName::try_from(name).map_err(|_| problem(UrlProblem::ServerName))?)
        } else {
            None
        };
        let port = authority.port_u16().unwrap_or(default_port);
        let dial = connect_to.unwrap_or(HostPort { host, port });
        Ok(Self { server_name, dial, authority })
    }
}

/// IPv6 addresses have brackets in URLs only.
fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Without what may be a password.
fn shown(url: &Uri) -> String {
    let text = url.to_string();
    match (text.find("://"), url.authority().and_then(|all| all.as_str().rfind('@'))) {
        (Some(scheme), Some(at)) => format!("{}://{}", &text[..scheme], &text[scheme + at + 4..]),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_what_is_dialed_and_which_name_is_expected() {
        let other = HostPort { host: "10.0.0.1".into(), port: 8443 };
        let cases = [
            ("https://a.b/c", None, None, Ok(("a.b", 443, "a.b", "a.b"))),
            ("https://a.b:8443/c", None, None, Ok(("a.b", 8443, "a.b", "a.b:8443"))),
            ("https://[::1]:1/", None, None, Ok(("::1", 1, "::1", "[::1]:1"))),
            ("http://a", None, None, Ok(("a", 80, "", "a"))),
            ("https://a", None, Some("b"), Ok(("a", 443, "b", "a"))),
            (
                "https://a.b.svc:443/c",
                Some(other),
                None,
                Ok(("10.0.0.1", 8443, "a.b.svc", "a.b.svc:443")),
            ),
            ("ftp://a", None, None, Err("URL ftp://a/: the scheme must be https or http")),
            ("/a", None, None, Err("URL /a: the scheme must be https or http")),
            (
                "https://me:hunter2@a/b",
                None,
                None,
                Err("URL https://a/b: user and password in a URL are not supported"),
            ),
            (
                "https://-a/",
                None,
                None,
                Err("URL https://-a/: the host is not a valid TLS server name"),
            ),
        ];
        for (url, connect_to, name, expected) in cases {
            let url: Uri = url.parse().unwrap();
            let got = Origin::new(&url, connect_to, name).map(|origin| {
                let name = origin.server_name.map(|name| name.to_str().into_owned());
                let dial = origin.dial;
                (dial.host, dial.port, name.unwrap_or_default(), origin.authority.to_string())
            });
            let expected = expected
                .map(|(host, port, name, all)| (host.into(), port, name.into(), all.into()))
                .map_err(str::to_owned);
            assert_eq!(got.map_err(|error| error.to_string()), expected);
        }
    }
}
