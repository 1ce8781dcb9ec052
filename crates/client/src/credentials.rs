//! The credentials of a call: the `Authorization` header. Client certificates are part of
//! [`Tls`](crate::Tls).

use std::path::{Path, PathBuf};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};

use crate::{
    error::ConfigError,
    reload::{Reloaded, read},
    secret::Secret,
};

#[derive(Clone, Debug, Default)]
pub enum Credentials {
    #[default]
    None,
    Bearer(Secret<String>),
    /// Read again when it changes; surrounding whitespace does not count.
    BearerFile(PathBuf),
    Basic {
        username: String,
        password: Secret<String>,
    },
}

/// The header that credentials become.
pub(crate) struct Authorization(Option<Reloaded<HeaderValue>>);

impl Authorization {
    pub(crate) fn new(credentials: Credentials) -> Result<Self, ConfigError> {
        let fixed = |value: HeaderValue| Reloaded::new(Vec::new(), move || Ok(value.clone()));
        let header = match credentials {
            Credentials::None => return Ok(Self(None)),
            Credentials::Bearer(token) => fixed(bearer(token.expose(), None)?)?,
            Credentials::BearerFile(path) => {
                let from = path.clone();
                Reloaded::new(vec![path], move || bearer_in_file(&from))?
            }
            Credentials::Basic { username, password } => {
                let pair = format!("{username}:{}", password.expose());
                let encoded = codec::base64::encode(pair.as_bytes());
                fixed(sensitive(format!("Basic {encoded}")).expect("base64 is plain text"))?
            }
        };
        Ok(Self(Some(header)))
    }

    /// Compat: a request that has the header already keeps its own, as with client-go.
    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        if let Some(header) = &self.0
            && !headers.contains_key(AUTHORIZATION)
        {
            headers.insert(AUTHORIZATION, HeaderValue::clone(&header.current().1));
        }
    }
}

fn bearer_in_file(path: &Path) -> Result<HeaderValue, ConfigError> {
    let bytes = read(path)?;
    let token = std::str::from_utf8(&bytes)
        .map_err(|_| ConfigError::TokenCharacters { path: Some(path.to_owned()) })?;
    bearer(token.trim(), Some(path))
}

fn bearer(token: &str, path: Option<&Path>) -> Result<HeaderValue, ConfigError> {
    let path = || path.map(Path::to_owned);
    if token.is_empty() {
        return Err(ConfigError::TokenEmpty { path: path() });
    }
    sensitive(format!("Bearer {token}"))
        .ok_or_else(|| ConfigError::TokenCharacters { path: path() })
}

/// Marked, so that neither `Debug` nor the table of HTTP/2's header compression has it.
fn sensitive(text: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(credentials: Credentials) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        Authorization::new(credentials).map_err(|error| error.to_string())?.apply(&mut headers);
        assert!(!format!("{headers:?}").contains("hunter2"));
        let value = headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
        Ok(value.unwrap_or_default())
    }

    #[test]
    fn credentials_become_a_header_that_debug_does_not_show() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let basic = Credentials::Basic { username: "me".into(), password: "hunter2".into() };
        assert!(!format!("{basic:?}").contains("hunter2"));
        let token = Credentials::Bearer("hunter2".into());
        assert!(!format!("{token:?}").contains("hunter2"));
        let empty = file("empty", " \n");
        let cases = [
            (Credentials::None, Ok(String::new())),
            (basic, Ok("Basic bWU6aHVudGVyMg==".to_owned())),
            (token, Ok("Bearer hunter2".to_owned())),
            (Credentials::BearerFile(file("token", "hunter2\n")), Ok("Bearer hunter2".to_owned())),
            (Credentials::Bearer("".into()), Err("the bearer token is empty".to_owned())),
            (
                Credentials::Bearer("hunter2\nhunter2".into()),
                Err("the bearer token cannot be sent in a header".to_owned()),
            ),
            (
                Credentials::BearerFile(empty.clone()),
                Err(format!("the bearer token in {} is empty", empty.display())),
            ),
            (
                Credentials::BearerFile("/nowhere/token".into()),
                Err("/nowhere/token: No such file or directory (os error 2)".to_owned()),
            ),
        ];
        for (credentials, expected) in cases {
            assert_eq!(header(credentials), expected);
        }
    }

    #[test]
    fn a_request_keeps_the_header_that_it_has() {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer own"));
        Authorization::new(Credentials::Bearer("other".into())).unwrap().apply(&mut headers);
        assert_eq!(headers[AUTHORIZATION], "Bearer own");
    }
}
