//! URLs, as Go's `net/url` reads the address of a request: absolute, or a path from the root.

use std::collections::BTreeMap;
use std::sync::Arc;

use meta::field::quote;

use super::list_of;
use super::standard::text;
use crate::functions::Functions;
use crate::kubernetes_value::KubernetesValue;
use crate::types::Type;
use crate::value::{Entries, EvalError, EvalResult, Key, Map, NO_SUCH_OVERLOAD, Text, Val, fail};

#[derive(Debug, Default)]
pub struct Url {
    scheme: String,
    opaque: String,
    user: Option<String>,
    host: String,
    raw_path: String,
    path: String,
    query: Option<String>,
    fragment: Option<String>,
}

pub(super) fn declare(f: &mut Functions) {
    use Type::{Bool, String};
    let ty = Type::object("kubernetes.URL");
    let one = [ty.clone()];
    f.global("url", "string_to_url", &[String], ty, |args| {
        let text = text(args)?;
        match Url::parse(text, true).and_then(|_| Url::parse(text, false)) {
            Ok(url) => Ok(Val::kubernetes(KubernetesValue::Url(url))),
            Err(why) => {
                let text = quote(text);
                fail(format!("URL parse error during conversion from string: parse {text}: {why}"))
            }
        }
    });
    f.member("getScheme", "url_get_scheme", &one, String, |args| {
        read(args, |url| url.scheme.clone())
    });
    f.member("getHost", "url_get_host", &one, String, |args| read(args, |url| url.host.clone()));
    f.member("getHostname", "url_get_hostname", &one, String, |args| {
        read(args, |url| {
            let host = split_port(&url.host).0;
            host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host).to_owned()
        })
    });
    f.member("getPort", "url_get_port", &one, String, |args| {
        read(args, |url| split_port(&url.host).1.to_owned())
    });
    f.member("getEscapedPath", "url_get_escaped_path", &one, String, |args| {
        read(args, Url::escaped_path)
    });
    let query = Type::map(String, list_of(String));
    f.member("getQuery", "url_get_query", &one, query, |args| Ok(query_of(url(args)?)));
    f.global("isURL", "is_url_string", &[String], Bool, |args| {
        Ok(Val::Bool(Url::parse(text(args)?, true).is_ok()))
    });
}

fn url<'v>(args: &'v [Val<'_>]) -> Result<&'v Url, EvalError> {
    match args.first() {
        Some(Val::Kubernetes(value)) => match &**value {
            KubernetesValue::Url(url) => Ok(url),
            _ => Err(NO_SUCH_OVERLOAD),
        },
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

fn read<'a>(args: &[Val<'a>], part: fn(&Url) -> String) -> EvalResult<'a> {
    Ok(Val::text(part(url(args)?)))
}

/// Host and port of `host:port`.
fn split_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (name, port),
        _ => (host, ""),
    }
}

fn query_of<'a>(url: &Url) -> Val<'a> {
    let mut map: BTreeMap<Key<'a>, Vec<Val<'a>>> = BTreeMap::new();
    let query = url.query.as_deref().unwrap_or_default();
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Ok(key), Ok(value)) = (unescape(key, true), unescape(value, true)) {
            map.entry(Key::String(Text::Own(key.into()))).or_default().push(Val::text(value));
        }
    }
    let map = map.into_iter().map(|(key, values)| (key, Val::list(values))).collect();
    Val::Map(Map::Own(Arc::new(Entries::new(map))))
}

impl Url {
    /// `request`: as the address of a request, which has no fragment and is absolute.
    pub(super) fn parse(text: &str, request: bool) -> Result<Self, String> {
        let mut url = Self::default();
        let mut rest = text;
        if !request && let Some((before, fragment)) = text.split_once('#') {
            url.fragment = Some(unescape(fragment, false)?);
            rest = before;
        }
        if rest.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err("net/url: invalid control character in URL".into());
        }
        if rest.is_empty() && request {
            return Err("empty url".into());
        }
        if rest == "*" {
            url.path = "*".into();
            return Ok(url);
        }
        (url.scheme, rest) = scheme(rest)?;
        if let Some((before, query)) = rest.split_once('?') {
            url.query = Some(query.to_owned());
            rest = before;
        }
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                rest.clone_into(&mut url.opaque);
                return Ok(url);
            }
            if request {
                return Err("invalid URI for request".into());
            }
            if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err("first path segment in URL cannot contain colon".into());
            }
        }
        let authority = !url.scheme.is_empty() || (!request && !rest.starts_with("///"));
        if authority && let Some(after) = rest.strip_prefix("//") {
            let end = after.find('/').unwrap_or(after.len());
            url.authority(&after[..end])?;
            rest = &after[end..];
        }
        rest.clone_into(&mut url.raw_path);
        url.path = unescape(rest, false)?;
        Ok(url)
    }

    fn authority(&mut self, authority: &str) -> Result<(), String> {
        let host = match authority.rsplit_once('@') {
            Some((user, host)) => {
                let valid = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
                if !user.chars().all(valid) {
                    return Err("net/url: invalid userinfo".into());
                }
                unescape(user, false)?;
                self.user = Some(user.to_owned());
                host
            }
            None => authority,
        };
        let port = if host.starts_with('[') {
            let Some(end) = host.rfind(']') else { return Err("missing ']' in host".into()) };
            &host[end + 1..]
        } else {
            host.rfind(':').map_or("", |at| &host[at..])
        };
        let valid_port = match port.strip_prefix(':') {
            Some(digits) => digits.bytes().all(|b| b.is_ascii_digit()),
            None => port.is_empty(),
        };
        if !valid_port {
            return Err(format!("invalid port {} after host", quote(port)));
        }
        for (at, c) in host.char_indices() {
            // A percent sign may only escape what is no ASCII.
            if c == '%' {
                let code = host.get(at + 1..at + 3).and_then(|h| u8::from_str_radix(h, 16).ok());
                let zone = host.starts_with('[');
                match code {
                    Some(code) if code >= 0x80 || zone => {}
                    _ => {
                        let escape = quote(host.get(at..at + 3).unwrap_or(&host[at..]));
                        return Err(format!("invalid URL escape {escape}"));
                    }
                }
            } else if c.is_ascii()
                && !c.is_ascii_alphanumeric()
                && !"-_.~!$&'()*+,;=:[]<>\"".contains(c)
            {
                return Err(format!("invalid character {} in host name", quote(&c.to_string())));
            }
        }
        self.host = unescape(host, false)?;
        Ok(())
    }

    fn escaped_path(&self) -> String {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:@[]/%".contains(c);
        if self.path == "*" || self.raw_path.chars().all(allowed) {
            return if self.path == "*" { "*".into() } else { self.raw_path.clone() };
        }
        let mut escaped = String::new();
        for byte in self.path.bytes() {
            let c = char::from(byte);
            if c.is_ascii_alphanumeric() || "-_.~$&+,/:;=@".contains(c) {
                escaped.push(c);
            } else {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
        escaped
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        if !self.scheme.is_empty() {
            text.push_str(&self.scheme);
            text.push(':');
        }
        if self.opaque.is_empty() {
            if !self.scheme.is_empty() || !self.host.is_empty() || self.user.is_some() {
                if !self.host.is_empty() || !self.path.is_empty() || self.user.is_some() {
                    text.push_str("//");
                }
                if let Some(user) = &self.user {
                    text.push_str(user);
                    text.push('@');
                }
                text.push_str(&self.host);
            }
            text.push_str(&self.escaped_path());
        } else {
            text.push_str(&self.opaque);
        }
        if let Some(query) = &self.query {
            text.push('?');
            text.push_str(query);
        }
        if let Some(fragment) = &self.fragment {
            text.push('#');
            text.push_str(fragment);
        }
        text
    }
}

/// The scheme in lower case, and what follows its colon.
fn scheme(text: &str) -> Result<(String, &str), String> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme".into()),
            ':' => return Ok((text[..at].to_ascii_lowercase(), &text[at + 1..])),
            _ => break,
        }
    }
    Ok((String::new(), text))
}

fn unescape(text: &str, query: bool) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        match byte {
            b'%' => {
                let code = after
                    .get(..2)
                    .and_then(|hex| std::str::from_utf8(hex).ok())
                    .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
                    .and_then(|hex| u8::from_str_radix(hex, 16).ok());
                let Some(code) = code else {
                    let escape = String::from_utf8_lossy(&rest[..rest.len().min(3)]).into_owned();
                    return Err(format!("invalid URL escape {}", quote(&escape)));
                };
                bytes.push(code);
                rest = &after[2..];
            }
            b'+' if query => {
                bytes.push(b' ');
                rest = after;
            }
            byte => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
