//! Authentication: the user that sent the request.

use auth::{
    Authenticator, Credentials,
    authn::{RequestHeader, Unauthenticated, request_header::remove_headers, x509::Certificate},
};
use http::{HeaderMap, header::AUTHORIZATION};
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
) -> Result<User, ApiError> {
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    // Browsers can give a WebSocket no header but a subprotocol.
    let protocol = ProtocolToken::read(headers);
    let spoken = protocol.as_ref().ok().and_then(Option::as_ref).map(|found| &*found.token);
    let bearer = authorization.and_then(bearer_token).or(spoken);
    let identity = peer.identity();
    let verified = identity.verified.as_ref();
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
    let certificate_error = identity.error.as_deref();
    let credentials = Credentials { front_proxy, certificate, certificate_error, bearer, path };
    let user = match protocol {
        // A credential that cannot be read is a 401, not an anonymous request.
        Err(TokenError) if !known => Err(Unauthenticated("unreadable protocol token".to_owned())),
        _ => authenticator.authenticate(credentials).await,
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
    use super::*;

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
