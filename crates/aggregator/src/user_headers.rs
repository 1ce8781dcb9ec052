//! Who a request acts as, as headers for an aggregated server: `X-Remote-User` and its companions.

use http::{HeaderMap, HeaderName, HeaderValue};
use meta::User;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// The headers of a user. Err: a name that no header can carry; a request without it would be another
/// user's.
pub(crate) fn user_headers(user: &User) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let mut add = |name: String, text: &str| {
        let unusable = |_| format!("{name}: not a valid header value");
        let value = HeaderValue::from_bytes(text.as_bytes()).map_err(unusable)?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
        headers.append(name, value);
        Ok::<(), String>(())
    };
    add("x-remote-user".to_owned(), &user.name)?;
    if !user.uid.is_empty() {
        add("x-remote-uid".to_owned(), &user.uid)?;
    }
    for group in &user.groups {
        add("x-remote-group".to_owned(), group)?;
    }
    for (key, values) in &user.extra {
        let key = utf8_percent_encode(key, KEY).to_string().to_ascii_lowercase();
        for value in values {
            add(format!("x-remote-extra-{key}"), value)?;
        }
    }
    Ok(headers)
}

/// What client-go escapes in the names of extra fields: all that is not allowed in the name of a
/// header, and `%`.
const KEY: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'%')
    .add(b'(')
    .add(b')')
    .add(b',')
    .add(b'/')
    .add(b':')
    .add(b';')
    .add(b'<')
    .add(b'=')
    .add(b'>')
    .add(b'?')
    .add(b'@')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'{')
    .add(b'}');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_told_whole_or_not_at_all() {
        let user = User {
            name: "jane".into(),
            uid: "7".into(),
            groups: vec!["a".into(), "b".into()],
            extra: vec![("example.org/Foo%".into(), vec!["x".into(), "ü".into()])],
        };
        let headers = user_headers(&user).expect("valid");
        let told: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value.as_bytes())))
            .collect();
        let expected = [
            "x-remote-user=jane",
            "x-remote-uid=7",
            "x-remote-group=a",
            "x-remote-group=b",
            "x-remote-extra-example.org%2ffoo%25=x",
            "x-remote-extra-example.org%2ffoo%25=ü",
        ];
        assert_eq!(told, expected);
        let broken = User { name: "a\r\nX-Remote-Group: system:masters".into(), ..User::default() };
        assert!(user_headers(&broken).is_err());
        let broken = User { groups: vec!["a\nb".into()], ..User::default() };
        assert!(user_headers(&broken).is_err());
    }
}
