//! Which headers pass a proxy, and which are its own.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderName, HeaderValue, Uri,
    header::{
        ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS,
        ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, CONNECTION, EXPECT, FORWARDED,
        HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
};

/// They are about one connection.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Removes what is about the client's connection, and what `Connection` says is.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Makes the headers of a request those that the backend gets: the client's without its hop, what this
/// server knows about the hop before, and then the caller's own.
pub(crate) fn prepare_request(
    headers: &mut HeaderMap,
    uri: &Uri,
    client: Option<IpAddr>,
    own: &HeaderMap,
) {
    let asked_host = headers.get(HOST).cloned().or_else(|| {
        // HTTP/2 has it in `:authority`.
        HeaderValue::from_str(uri.authority()?.as_str()).ok()
    });
    remove_hop_by_hop(headers);
    // Our own connection answers the client's `Expect: 100-continue`, and the body is sent to the
    // backend without it: a backend that does not answer in kind would leave the connection in between.
    headers.remove(EXPECT);
    // The URL of the target says it.
    headers.remove(HOST);
    remove_forwarded(headers);
    if let Some(address) = client.and_then(|ip| HeaderValue::from_str(&ip.to_string()).ok()) {
        headers.insert("x-forwarded-for", address);
    }
    if let Some(host) = asked_host {
        headers.insert("x-forwarded-host", host);
    }
    headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
    if let Ok(path) = HeaderValue::from_str(uri.path()) {
        headers.insert("x-forwarded-uri", path);
    }
    for name in own.keys() {
        headers.remove(name);
        for value in own.get_all(name) {
            headers.append(name.clone(), value.clone());
        }
    }
}

/// What a client says about proxies before it cannot be known to be true. Some servers read `X_Real_Ip`
/// like `X-Real-Ip`.
fn remove_forwarded(headers: &mut HeaderMap) {
    let told: Vec<HeaderName> = headers.keys().filter(|name| is_forwarded(name)).cloned().collect();
    for name in told {
        headers.remove(name);
    }
}

fn is_forwarded(name: &HeaderName) -> bool {
    let plain = name.as_str().replace('_', "-");
    name == FORWARDED || plain.starts_with("x-forwarded-") || plain == "x-real-ip"
}

/// Makes the headers of a response those that the client gets. Which origins may read it is this
/// server's to say.
pub(crate) fn prepare_response(headers: &mut HeaderMap) {
    remove_hop_by_hop(headers);
    for name in [
        ACCESS_CONTROL_ALLOW_CREDENTIALS,
        ACCESS_CONTROL_ALLOW_HEADERS,
        ACCESS_CONTROL_ALLOW_METHODS,
        ACCESS_CONTROL_ALLOW_ORIGIN,
    ] {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Sent = &'static [(&'static str, &'static str)];

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, value.parse().expect("a value"));
        }
        headers
    }

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn own_headers_are_set_after_those_of_the_hop_are_gone() {
        let own = headers(&[("x-remote-user", "jane"), ("x-remote-group", "a")]);
        let cases: [(Sent, &[&str]); 6] = [
            (&[("accept", "a/b"), ("cookie", "c=d")], &["accept: a/b", "cookie: c=d"]),
            // C14: a client that wants our headers to be dropped.
            (&[("connection", "X-Remote-User, X-Remote-Group, close")], &[]),
            (
                &[
                    ("connection", "x-mine"),
                    ("connection", " Y-Mine"),
                    ("x-mine", "1"),
                    ("y-mine", "1"),
                ],
                &[],
            ),
            // C13: what the client says about others.
            (
                &[
                    ("x-forwarded-for", "1.2.3.4"),
                    ("x-forwarded-prefix", "/x"),
                    ("forwarded", "for=1.2.3.4"),
                    ("x_forwarded_for", "1.2.3.4"),
                    ("x-real-ip", "1.2.3.4"),
                ],
                &[],
            ),
            (&[("x-remote-user", "root"), ("x-remote-group", "system:masters")], &[]),
            // C15, and what else is between two.
            (
                &[
                    ("expect", "100-continue"),
                    ("te", "trailers"),
                    ("keep-alive", "1"),
                    ("proxy-authorization", "x"),
                    ("proxy-connection", "keep-alive"),
                    ("transfer-encoding", "chunked"),
                    ("upgrade", "h2c"),
                ],
                &[],
            ),
        ];
        for (sent, expected) in cases {
            let mut got = headers(sent);
            got.insert(HOST, HeaderValue::from_static("api:6443"));
            let uri = "/apis/g/v1/x?a=b".parse().expect("a URI");
            prepare_request(&mut got, &uri, Some([127, 0, 0, 9].into()), &own);
            let always = [
                "x-forwarded-for: 127.0.0.9",
                "x-forwarded-host: api:6443",
                "x-forwarded-proto: https",
                "x-forwarded-uri: /apis/g/v1/x",
                "x-remote-group: a",
                "x-remote-user: jane",
            ];
            assert_eq!(shown(&got), [expected, &always].concat(), "{sent:?}");
        }
    }

    #[test]
    fn a_backend_says_nothing_about_the_connection_or_origins() {
        let mut got = headers(&[
            ("connection", "close, x-mine"),
            ("x-mine", "1"),
            ("keep-alive", "1"),
            ("transfer-encoding", "chunked"),
            ("access-control-allow-origin", "*"),
            ("content-type", "a/b"),
        ]);
        prepare_response(&mut got);
        assert_eq!(shown(&got), ["content-type: a/b"]);
    }
}
