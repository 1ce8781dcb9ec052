//! Front proxies: a client with a certificate of `--requestheader-client-ca-file` names the user in
//! headers, because it has authenticated the user itself.

use http::{HeaderMap, HeaderName, HeaderValue};
use meta::{Str, User};
use percent_encoding::percent_decode_str;

/// The `--requestheader-*` flags but for the CA, against which the TLS layer verifies.
#[derive(Clone, Debug, Default)]
pub struct RequestHeader {
    /// Common names of front proxies; empty: any certificate of the CA.
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<HeaderName>,
    pub uid_headers: Vec<HeaderName>,
    pub group_headers: Vec<HeaderName>,
    /// In lower case.
    pub extra_prefixes: Vec<String>,
}

impl RequestHeader {
    /// Whether the headers name a user. Only then the certificate has to be looked at.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        first(headers, &self.username_headers).is_some()
    }

    /// The user that the headers name; `common_name` is that of the verified certificate.
    pub fn user(&self, common_name: &str, headers: &HeaderMap) -> Result<User, String> {
        if !self.allowed_names.is_empty()
            && !self.allowed_names.iter().any(|allowed| allowed == common_name)
        {
            return Err(format!("x509: subject with cn={common_name} is not in the allowed list"));
        }
        let name = first(headers, &self.username_headers).ok_or("no header names a user")?;
        let uid = first(headers, &self.uid_headers);
        let mut groups = Vec::new();
        for header in &self.group_headers {
            for value in headers.get_all(header) {
                groups.extend(Some(text(value)?).filter(|group| !group.is_empty()));
            }
        }
        Ok(User {
            name: text(name)?,
            uid: uid.map(text).transpose()?.unwrap_or_default(),
            groups,
            extra: self.extra(headers)?,
        })
    }

    fn extra(&self, headers: &HeaderMap) -> Result<Vec<(Str, Vec<Str>)>, String> {
        let mut extra: Vec<(Str, Vec<Str>)> = Vec::new();
        for prefix in &self.extra_prefixes {
            for (name, value) in headers {
                let Some(key) = name.as_str().strip_prefix(prefix.as_str()) else { continue };
                // Compat: a key that cannot be unescaped is taken as it is.
                let key = match percent_decode_str(key).decode_utf8() {
                    Ok(decoded) if is_escaped(key) => Str::new(decoded),
                    _ => Str::new(key),
                };
                let value = text(value)?;
                match extra.iter_mut().find(|(have, _)| *have == key) {
                    Some((_, values)) => values.push(value),
                    None => extra.push((key, vec![value])),
                }
            }
        }
        extra.sort();
        Ok(extra)
    }

    fn owns(&self, header: &str) -> bool {
        let mut names =
            self.username_headers.iter().chain(&self.uid_headers).chain(&self.group_headers);
        names.any(|name| is_spelled(header, name.as_str()))
            || self.extra_prefixes.iter().any(|prefix| has_prefix(header, prefix))
    }
}

/// Removes the headers of front proxies from a request, its own and those of every other client:
/// further down they would read as an identity that this server vouches for.
pub fn remove_headers(headers: &mut HeaderMap, configured: Option<&RequestHeader>) {
    let is_one = |name: &HeaderName| {
        has_prefix(name.as_str(), STANDARD_PREFIX)
            || configured.is_some_and(|configured| configured.owns(name.as_str()))
    };
    // Nearly all requests have none.
    if !headers.keys().any(is_one) {
        return;
    }
    let found: Vec<HeaderName> = headers.keys().filter(|name| is_one(name)).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

/// Of `X-Remote-User`, `-Group`, `-Uid` and `-Extra-`.
const STANDARD_PREFIX: &str = "x-remote-";

/// Some servers read an underscore as a dash: such a spelling is as dangerous as the right one.
fn has_prefix(header: &str, prefix: &str) -> bool {
    header.len() >= prefix.len() && is_spelled(&header[..prefix.len()], prefix)
}

fn is_spelled(header: &str, name: &str) -> bool {
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
    header.len() == name.len()
        && header.bytes().zip(name.bytes()).all(|(a, b)| dashed(a) == dashed(b))
}

/// Whether every `%` begins an escape.
fn is_escaped(key: &str) -> bool {
    key.split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit))
}

fn first<'a>(headers: &'a HeaderMap, names: &[HeaderName]) -> Option<&'a HeaderValue> {
    // Compat: of a header that comes twice the first value counts, and an empty one is none.
    names.iter().filter_map(|name| headers.get(name)).find(|value| !value.is_empty())
}

fn text(value: &HeaderValue) -> Result<Str, String> {
    let text = std::str::from_utf8(value.as_bytes());
    text.map(Str::new).map_err(|_| "a header of the front proxy is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front() -> RequestHeader {
        RequestHeader {
            allowed_names: vec!["front-proxy-client".to_owned()],
            username_headers: vec![HeaderName::from_static("x-remote-user")],
            uid_headers: vec![HeaderName::from_static("x-remote-uid")],
            group_headers: vec![HeaderName::from_static("x-remote-group")],
            extra_prefixes: vec!["x-remote-extra-".to_owned(), "x-my-".to_owned()],
        }
    }

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn headers_become_a_user() {
        let headers = headers(&[
            ("X-Remote-User", "jane"),
            ("X-Remote-User", "second"),
            ("X-Remote-Uid", "42"),
            ("X-Remote-Group", "dev"),
            ("X-Remote-Group", ""),
            ("X-Remote-Group", "ops,not-split"),
            ("X-Remote-Extra-Scopes", "a"),
            ("X-Remote-Extra-Scopes", "b"),
            ("X-Remote-Extra-acme.com%2Fproject", "p"),
            ("X-My-bad%zz", "kept"),
        ]);
        let user = front().user("front-proxy-client", &headers).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "42"));
        assert_eq!(user.groups, ["dev", "ops,not-split"]);
        let extra: Vec<(&str, Vec<&str>)> = user
            .extra
            .iter()
            .map(|(key, values)| (key.as_str(), values.iter().map(Str::as_str).collect()))
            .collect();
        let expected =
            [("acme.com/project", vec!["p"]), ("bad%zz", vec!["kept"]), ("scopes", vec!["a", "b"])];
        assert_eq!(extra, expected);
    }

    #[test]
    fn only_an_allowed_name_may_name_a_user() {
        let headers = headers(&[("X-Remote-User", "jane")]);
        let why = front().user("kubelet", &headers).unwrap_err();
        assert_eq!(why, "x509: subject with cn=kubelet is not in the allowed list");
        let any = RequestHeader { allowed_names: Vec::new(), ..front() };
        assert_eq!(any.user("kubelet", &headers).unwrap().name, "jane");
    }

    #[test]
    fn an_empty_name_is_none() {
        assert!(!front().is_in(&headers(&[("X-Remote-User", ""), ("X-Remote-Group", "g")])));
        assert!(front().user("front-proxy-client", &HeaderMap::new()).is_err());
    }

    #[test]
    fn the_headers_are_removed_in_every_spelling_and_count() {
        let mut headers = headers(&[
            ("X-Remote-User", "jane"),
            ("x-remote-user", "again"),
            ("X_Remote_User", "underscores"),
            ("X_REMOTE-GROUP", "mixed"),
            ("X-Remote-Extra-Anything", "x"),
            ("X-Remote_Extra_Scopes", "x"),
            ("X-Remote-Uid", "1"),
            ("x_my_header", "a configured prefix"),
            ("X-Forwarded-For", "stays"),
            ("Accept", "stays"),
        ]);
        remove_headers(&mut headers, Some(&front()));
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "x-forwarded-for"]);
    }

    #[test]
    fn without_a_front_proxy_the_standard_headers_are_removed_all_the_same() {
        let mut headers = headers(&[("X-Remote-User", "jane"), ("X-My-Own", "stays")]);
        remove_headers(&mut headers, None);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-my-own"]);
    }
}
