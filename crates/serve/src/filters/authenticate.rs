//! Authentication: the user that sent the request.

use auth::{
    Authenticator, Credentials,
    authn::{
        RequestHeader, TokenNotes, Unauthenticated, request_header::remove_headers,
        x509::Certificate,
    },
};
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use meta::{ApiError, User};

use crate::{
    connection::Peer,
    tls::VerifiedCert,
    websocket::{ProtocolToken, TokenError},
};

/// The user behind a request. Credentials and the headers of front proxies are taken out of the
/// headers: nothing further down may see or log them, let alone send them on to another server.
pub(crate) async fn authenticate(
    authenticator: &Authenticator,
    headers: &mut HeaderMap,
    peer: &Peer,
    path: &str,
    http2_dos_mitigation: bool,
    notes: &mut TokenNotes,
) -> Result<User, ApiError> {
    let authorization = headers.get(AUTHORIZATION).map(HeaderValue::to_str);
    let unreadable = matches!(authorization, Some(Err(_)));
    let authorization = authorization.and_then(Result::ok);
    // Browsers can give a WebSocket no header but a subprotocol.
    let protocol = ProtocolToken::read(headers);
    let spoken = protocol.as_ref().ok().and_then(Option::as_ref).map(|found| &*found.token);
    let bearer = authorization.and_then(bearer_token).or(spoken);
    let identity = peer.identity();
    // A certificate without a common name names no user, whatever groups it names.
    let verified = identity.verified.as_ref().filter(|cert| !cert.common_name.is_empty());
    let unusable = verified.is_none() && !peer.certificates().is_empty();
    let credential_id = verified.map(VerifiedCert::credential_id).unwrap_or_default();
    let certificate = verified.map(|verified| Certificate {
        common_name: &verified.common_name,
        organizations: &verified.organizations,
        uid: verified.uid.as_deref().unwrap_or_default(),
        credential_id: &credential_id,
    });
    let front = authenticator.request_header.as_ref();
    let front_proxy = front.and_then(|front| proxied_user(front, headers, peer));
    let known = certificate.is_some() || bearer.is_some() || front_proxy.is_some();
    // A credential that cannot be read or verified is a 401, not an anonymous request. Another one that
    // is good makes up for it. Compat: kube-apiserver takes a certificate without a common name, and an
    // Authorization header that is not ASCII, for none.
    let refused = unusable || unreadable || matches!(protocol, Err(TokenError));
    let certificate_error = identity.error.as_deref();
    let user = if refused && !known {
        let why = certificate_error.unwrap_or("a credential cannot be read");
        Err(Unauthenticated(why.to_owned()))
    } else {
        let credentials = Credentials { front_proxy, certificate, certificate_error, bearer, path };
        authenticator.authenticate(credentials, notes).await
    };
    headers.remove(AUTHORIZATION);
    remove_headers(headers, front);
    if let Ok(Some(found)) = protocol {
        found.remove_from(headers);
    }
    let unknown = user.as_ref().map_or(true, |user| user.name == User::ANONYMOUS);
    if http2_dos_mitigation && unknown && peer.tls.as_ref().is_some_and(|tls| tls.http2) {
        // Compat: an HTTP/2 connection without a user is not kept open for a flood of streams. It
        // ends after this request.
        peer.close();
    }
    user.map_err(|Unauthenticated(why)| {
        tracing::warn!(why, "Unable to authenticate the request");
        ApiError::Unauthorized
    })
}

/// The user that a front proxy names in headers; None: the request names none there. The headers of
/// any other client are ignored, and removed.
fn proxied_user(
    front: &RequestHeader,
    headers: &HeaderMap,
    peer: &Peer,
) -> Option<Result<User, String>> {
    if !front.is_in(headers) {
        return None;
    }
    let identity = peer.front_proxy_identity();
    match (&identity.verified, &identity.error) {
        (Some(verified), _) => Some(front.user(&verified.common_name, headers)),
        (None, Some(why)) => Some(Err(why.clone())),
        // Compat: without a certificate the headers are not even wrong.
        (None, None) => None,
    }
}

fn bearer_token(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use auth::authn::{Anonymous, token_file::TokenFile};

    use super::*;
    use crate::tls::{
        Roots,
        testing::{Leaf, TestCa},
    };

    /// The user of a request with this certificate and these headers; an error is a 401.
    async fn user(leaf: Option<(&TestCa, Leaf)>, authorization: &[u8]) -> Result<String, u16> {
        let peer = match leaf {
            None => Peer::detached(([127, 0, 0, 1], 1).into()),
            Some((signer, leaf)) => {
                let roots = Roots::from_pem(signer.pem().as_bytes()).expect("a bundle");
                Peer::with_certificates(vec![signer.sign(&leaf).der], roots)
            }
        };
        let tokens = TokenFile::parse("secret,joe,1").expect("a token file");
        let anonymous = Anonymous { enabled: true, paths: Vec::new() };
        let authenticator =
            Authenticator { tokens: Some(tokens), anonymous, ..Authenticator::default() };
        let mut headers = HeaderMap::new();
        if !authorization.is_empty() {
            let value = HeaderValue::from_bytes(authorization).expect("a header");
            headers.insert(AUTHORIZATION, value);
        }
        let user = authenticate(
            &authenticator,
            &mut headers,
            &peer,
            "/version",
            true,
            &mut TokenNotes::default(),
        )
        .await;
        assert!(headers.is_empty(), "the credential is gone");
        user.map(|user| user.name.to_string()).map_err(|error| error.status().code)
    }

    type Case<'a> = (&'a str, Option<Leaf>, &'a [u8], Result<&'a str, u16>);

    #[tokio::test]
    async fn a_credential_that_is_no_good_is_not_anonymous() {
        let ca = TestCa::new("ca");
        let jane = || Leaf::client("jane", "system:masters");
        let expired = Leaf { not_after: SystemTime::now() - Duration::from_secs(5), ..jane() };
        let nameless = Leaf { subject: jane().subject.split_off(1), ..jane() };
        let token = b"Bearer secret";
        let cases: [Case<'_>; 12] = [
            ("nothing", None, b"", Ok("system:anonymous")),
            ("a certificate", Some(jane()), b"", Ok("jane")),
            ("a certificate and a bad token", Some(jane()), b"Bearer bad", Ok("jane")),
            ("without a common name", Some(nameless), b"", Err(401)),
            ("expired", Some(expired), b"", Err(401)),
            ("for servers", Some(Leaf::server("jane", &[])), b"", Err(401)),
            ("for servers, and a token", Some(Leaf::server("jane", &[])), token, Ok("joe")),
            ("a token", None, token, Ok("joe")),
            ("a bad token", None, b"Bearer bad", Err(401)),
            ("a token that is no text", None, b"Bearer \xff", Err(401)),
            ("another scheme", None, b"Basic c2VjcmV0", Ok("system:anonymous")),
            ("no token", None, b"Bearer ", Ok("system:anonymous")),
        ];
        for (what, leaf, authorization, expected) in cases {
            let user = user(leaf.map(|leaf| (&ca, leaf)), authorization).await;
            assert_eq!(user, expected.map(str::to_owned), "{what}");
        }
    }

    #[test]
    fn a_bearer_token_is_found_whatever_the_case_of_its_scheme() {
        let cases = [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Basic abc", None),
            ("Bearer", None),
            ("Bearer ", None),
        ];
        for (header, expected) in cases {
            assert_eq!(bearer_token(header), expected, "{header}");
        }
    }
}
