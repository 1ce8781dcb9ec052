//! A bearer token given as a subprotocol: a page in a browser can set no other header of a WebSocket.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, header::SEC_WEBSOCKET_PROTOCOL};

/// The token, and what the client asks for besides.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProtocolToken {
    pub(crate) token: String,
    others: String,
}

/// The client meant to give a token, and did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenError;

impl ProtocolToken {
    pub(crate) fn read(headers: &HeaderMap) -> Result<Option<Self>, TokenError> {
        if !super::asks_for_websocket(headers) {
            return Ok(None);
        }
        let lines = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
        let protocols =
            lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
        let (mut tokens, mut others) = (Vec::new(), Vec::new());
        for protocol in protocols.map(str::trim) {
            match protocol.strip_prefix(PREFIX) {
                Some(encoded) => tokens.push(encoded),
                None => others.push(protocol),
            }
        }
        let [encoded] = tokens[..] else {
            return if tokens.is_empty() { Ok(None) } else { Err(TokenError) };
        };
        let token = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| TokenError)?;
        let token = String::from_utf8(token).map_err(|_| TokenError)?;
        match (token.is_empty(), others.is_empty()) {
            (true, _) => Ok(None),
            // The answer has to name one that it chose, and must not repeat the token.
            (false, true) => Err(TokenError),
            (false, false) => Ok(Some(Self { token, others: others.join(",") })),
        }
    }

    /// Leaves only what is no secret.
    pub(crate) fn remove_from(self, headers: &mut HeaderMap) {
        let others = HeaderValue::from_str(&self.others);
        headers.insert(SEC_WEBSOCKET_PROTOCOL, others.expect("parts of a header that was valid"));
    }
}

const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_needs_a_subprotocol_beside_it() {
        let token = |text: &str| format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(text));
        let cases = [
            (vec!["binary.k8s.io".to_owned()], Ok(None)),
            (
                vec![format!("{}, binary.k8s.io", token("secret"))],
                Ok(Some(("secret", "binary.k8s.io"))),
            ),
            (vec![format!("a, {}", token("secret")), "b".to_owned()], Ok(Some(("secret", "a,b")))),
            (vec![token("secret")], Err(TokenError)),
            (vec![format!("{}, {}, a", token("x"), token("y"))], Err(TokenError)),
            (vec![format!("{PREFIX}!!, a")], Err(TokenError)),
            (vec![format!("{PREFIX}_w, a")], Err(TokenError)),
            (vec![format!("{PREFIX}, a")], Ok(None)),
        ];
        for (lines, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert("upgrade", HeaderValue::from_static("websocket"));
            headers.insert("connection", HeaderValue::from_static("Upgrade"));
            for line in &lines {
                headers.append(SEC_WEBSOCKET_PROTOCOL, line.parse().expect("a valid header"));
            }
            let read = ProtocolToken::read(&headers);
            let shown = match &read {
                Ok(found) => Ok(found.as_ref().map(|found| (&*found.token, &*found.others))),
                Err(error) => Err(*error),
            };
            assert_eq!(shown, expected, "{lines:?}");
            if let Ok(Some(found)) = read {
                found.remove_from(&mut headers);
                let left: Vec<_> = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().collect();
                assert!(left.len() == 1 && !left[0].to_str().unwrap().contains(PREFIX), "{left:?}");
            }
        }
    }

    #[test]
    fn only_a_websocket_gives_its_token_so() {
        let mut headers = HeaderMap::new();
        headers.insert(SEC_WEBSOCKET_PROTOCOL, format!("{PREFIX}eA, a").parse().expect("valid"));
        assert_eq!(ProtocolToken::read(&headers), Ok(None));
    }
}
