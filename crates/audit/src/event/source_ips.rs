//! `sourceIPs`: where a request comes from, as far as headers can be believed.

use std::net::{IpAddr, Ipv4Addr};

use meta::json::write_string;

/// The addresses of `X-Forwarded-For`, `X-Real-Ip` if it is not among them, and the peer's unless it
/// is the last one so far. All but the last can be made up by the client.
pub fn source_ips(
    forwarded_for: Option<&str>,
    real_ip: Option<&str>,
    peer: Option<IpAddr>,
) -> Vec<IpAddr> {
    let forwarded = forwarded_for.unwrap_or_default().split(',');
    let mut found: Vec<IpAddr> = forwarded.filter_map(|part| parse(part.trim())).collect();
    if let Some(ip) = real_ip.and_then(parse)
        && !found.contains(&ip)
    {
        found.push(ip);
    }
    if let Some(ip) = peer.map(|ip| ip.to_canonical())
        && found.last() != Some(&ip)
    {
        found.push(ip);
    }
    found
}

/// Compat: Go's `ParseIPSloppy` takes leading zeros for decimal, and an IPv4 address in IPv6 for
/// the IPv4 address.
fn parse(text: &str) -> Option<IpAddr> {
    if text.len() > ADDRESS_BYTES_MAX {
        return None;
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(ip.to_canonical());
    }
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next().filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets).into())
}

/// The longest spelling of an address, with leading zeros.
const ADDRESS_BYTES_MAX: usize = 64;

pub(super) fn write(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(v4) => {
            out.push(b'"');
            for (at, octet) in v4.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
            }
            out.push(b'"');
        }
        IpAddr::V6(_) => write_string(out, &ip.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `X-Forwarded-For`, `X-Real-Ip`, the peer, and what follows from them.
    type Case = (Option<&'static str>, Option<&'static str>, &'static str, &'static [&'static str]);

    #[test]
    fn addresses_are_collected_as_by_kubernetes() {
        let peer = "127.0.0.1";
        let cases: [Case; 9] = [
            (None, None, peer, &["127.0.0.1"]),
            (Some("1.2.3.4, ::1 , junk"), None, peer, &["1.2.3.4", "::1", "127.0.0.1"]),
            (Some("1.2.3.4"), Some("010.1.1.1"), peer, &["1.2.3.4", "10.1.1.1", "127.0.0.1"]),
            (Some("1.2.3.4,5.6.7.8"), Some("1.2.3.4"), peer, &["1.2.3.4", "5.6.7.8", "127.0.0.1"]),
            (Some("127.0.0.1"), None, peer, &["127.0.0.1"]),
            (Some("127.0.0.1"), Some("1.1.1.1"), peer, &["127.0.0.1", "1.1.1.1", "127.0.0.1"]),
            (Some(""), Some("1.1.1.1.1"), peer, &["127.0.0.1"]),
            (Some("::ffff:1.2.3.4"), Some("256.1.1.1"), peer, &["1.2.3.4", "127.0.0.1"]),
            (None, Some("fe80::1%eth0"), "::1", &["::1"]),
        ];
        for (forwarded, real, peer, expected) in cases {
            let found = source_ips(forwarded, real, Some(peer.parse().unwrap()));
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{forwarded:?} {real:?}");
        }
        let mut out = Vec::new();
        write(&mut out, "10.0.0.255".parse().unwrap());
        write(&mut out, "2001:db8::1".parse().unwrap());
        assert_eq!(out, b"\"10.0.0.255\"\"2001:db8::1\"");
    }
}
