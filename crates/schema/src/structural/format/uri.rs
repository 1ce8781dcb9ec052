//! Absolute URIs and absolute paths, as Go's `url.ParseRequestURI` reads them.

pub(super) fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((has_scheme, rest)) = split_scheme(text) else { return false };
    let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
    let Some(path) = rest.strip_prefix('/') else {
        // `mailto:x`: whatever follows a scheme.
        return has_scheme;
    };
    let path = match path.strip_prefix('/') {
        Some(authority) if has_scheme => {
            let (authority, path) =
                authority.split_at(authority.find('/').unwrap_or(authority.len()));
            if !is_authority(authority) {
                return false;
            }
            path
        }
        _ => rest,
    };
    escapes_are_whole(path)
}

/// Whether there is a scheme, and what follows it; nothing if the scheme is missing its name.
fn split_scheme(text: &str) -> Option<(bool, &str)> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return None,
            b':' => return Some((true, &text[at + 1..])),
            _ => break,
        }
    }
    Some((false, text))
}

fn is_authority(authority: &str) -> bool {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (user, host),
        None => ("", authority),
    };
    let user_fits =
        user.chars().all(|c| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c));
    user_fits && escapes_are_whole(user) && is_host(host)
}

fn is_host(host: &str) -> bool {
    let port = if let Some(rest) = host.strip_prefix('[') {
        match rest.rsplit_once(']') {
            Some((_, port)) => port,
            None => return false,
        }
    } else {
        host.rfind(':').map_or("", |colon| &host[colon..])
    };
    let port_fits = match port.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    let name = &host[..host.len() - port.len()];
    let plain = |c: char| {
        c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c) || !c.is_ascii()
    };
    port_fits && name.chars().all(plain) && escapes_are_whole(name)
}

fn escapes_are_whole(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}
