//! Addresses that parse, but that not all programs parse alike.

use std::net::IpAddr;

use meta::field::quote;

use crate::validation::ip::{parse_cidr, parse_sloppy};

/// An address that is not in its usual form.
pub(crate) fn ip(path: &str, text: &str) -> Option<String> {
    let ip = parse_sloppy(text)?;
    let strict = text.parse::<IpAddr>().ok().filter(|ip| !is_mapped(*ip));
    let shown = quote(text);
    match strict {
        None => Some(format!(
            "{path}: non-standard IP address {shown} is invalid: use {}",
            quote(&plain(ip).to_string())
        )),
        Some(IpAddr::V6(strict)) if strict.to_string() != text => Some(format!(
            "{path}: IPv6 address {shown} should be in RFC 5952 canonical format ({})",
            quote(&strict.to_string())
        )),
        Some(_) => None,
    }
}

/// A network that is not in its usual form, or may be meant as an address.
pub(crate) fn cidr(path: &str, text: &str) -> Vec<String> {
    let Some(cidr) = parse_cidr(text) else { return Vec::new() };
    let shown = quote(text);
    let mut texts = Vec::new();
    if cidr.network() != cidr.address {
        let length = if cidr.address.is_ipv4() { 32 } else { 128 };
        texts.push(format!(
            "{path}: CIDR value {shown} is ambiguous in this context (should be {} or {}?)",
            quote(&cidr.to_string()),
            quote(&format!("{}/{length}", cidr.address))
        ));
    }
    let (address, bits) = text.split_once('/').unwrap_or_default();
    let has_zeros = bits.len() > 1 && bits.starts_with('0');
    let strict = address.parse::<IpAddr>().ok().filter(|ip| !is_mapped(*ip) && !has_zeros);
    match strict {
        None => texts.push(format!(
            "{path}: non-standard CIDR value {shown} is invalid: use {}",
            quote(&cidr.to_string())
        )),
        Some(IpAddr::V6(_)) if texts.is_empty() && cidr.to_string() != text => {
            texts.push(format!(
                "{path}: IPv6 CIDR value {shown} should be in RFC 5952 canonical format ({})",
                quote(&cidr.to_string())
            ));
        }
        Some(_) => {}
    }
    texts
}

fn is_mapped(ip: IpAddr) -> bool {
    plain(ip) != ip
}

/// The IPv4 address that an IPv6 address may stand for.
fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}
