//! Addresses: IP, CIDR, MAC, mail.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Leading zeros are fine here, and so is an IPv4 address inside an IPv6 one.
pub(super) fn is_ipv4(text: &str) -> bool {
    text.contains('.') && parse_sloppy(text).is_some()
}

pub(super) fn is_ipv6(text: &str) -> bool {
    text.contains(':') && text.parse::<Ipv6Addr>().is_ok()
}

pub(super) fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let max = match parse_sloppy(address) {
        None => return false,
        Some(IpAddr::V4(_)) => 32,
        Some(IpAddr::V6(_)) => 128,
    };
    super::all_digits(bits) && bits.parse::<u32>().is_ok_and(|bits| bits <= max)
}

/// Octets of IPv4 may have leading zeros.
fn parse_sloppy(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        let (head, tail) = text.rsplit_once(':')?;
        if tail.contains('.') {
            let v4 = parse_sloppy_v4(tail)?;
            return format!("{head}:{v4}").parse().ok();
        }
        return text.parse().ok();
    }
    parse_sloppy_v4(text).map(IpAddr::V4)
}

fn parse_sloppy_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next().filter(|part| super::all_digits(part))?;
        *octet = part
            .trim_start_matches('0')
            .parse()
            .or_else(|error| {
                // Nothing but zeros.
                if part.bytes().all(|byte| byte == b'0') { Ok(0) } else { Err(error) }
            })
            .ok()?;
    }
    parts.next().is_none().then_some(Ipv4Addr::from(octets))
}

/// Six, eight or twenty bytes, in pairs of digits or in groups of four.
pub(super) fn is_mac(text: &str) -> bool {
    let separator = match text.as_bytes().get(2) {
        Some(b':') => ':',
        Some(b'-') => '-',
        _ => '.',
    };
    let digits = if separator == '.' { 4 } else { 2 };
    let mut groups = 0;
    for group in text.split(separator) {
        if group.len() != digits || !super::all_hex(group) {
            return false;
        }
        groups += 1;
    }
    matches!(groups * digits / 2, 6 | 8 | 20)
}

/// `local@domain` or `Name <local@domain>`, as Go's `mail.ParseAddress` reads it.
pub(super) fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    if is_address(text) {
        return true;
    }
    let Some(bracketed) = text.strip_suffix('>') else { return false };
    let Some((name, address)) = bracketed.rsplit_once('<') else { return false };
    is_address(address) && is_phrase(name.trim_matches([' ', '\t']))
}

fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    (is_dot_atom(local) || is_quoted(local)) && (is_dot_atom(domain) || is_domain_literal(domain))
}

fn is_phrase(text: &str) -> bool {
    is_quoted(text)
        || text.split([' ', '\t']).all(|word| word.is_empty() || word.chars().all(is_atom_or_dot))
}

fn is_atom_or_dot(c: char) -> bool {
    is_atom(c) || c == '.'
}

fn is_dot_atom(text: &str) -> bool {
    text.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom))
}

fn is_atom(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii()
}

fn is_quoted(text: &str) -> bool {
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let Some(inner) = inner else { return false };
    let mut escaped = false;
    for c in inner.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return false,
            c if c.is_ascii_control() && c != '\t' => return false,
            _ => {}
        }
    }
    !escaped
}

fn is_domain_literal(text: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.is_some_and(|inner| inner.parse::<IpAddr>().is_ok())
}
