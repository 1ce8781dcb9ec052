//! IP addresses and CIDRs, as strictly as Kubernetes reads them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use meta::FieldErrors;

use super::cursor::Field;

/// An address in a field that has always been there: leading zeros and IPv4-mapped addresses are
/// refused unless the old object had them.
pub(crate) fn legacy_ip(field: &Field<'_>, old: &[&str], errors: &mut FieldErrors) {
    let text = field.str();
    let wrong = ip_errors(text);
    // The old ones are searched for a wrong address only, and not for thousands of them.
    if wrong.is_empty() || (!errors.is_full() && old.contains(&text)) {
        return;
    }
    for why in wrong {
        field.invalid_value(errors, text, why);
    }
}

/// An address in its one canonical form.
pub(crate) fn canonical_ip(field: &Field<'_>, errors: &mut FieldErrors) {
    for why in name_is_ip(field.str(), false) {
        field.invalid_value(errors, field.str(), &why);
    }
}

/// Objects that stand for an address are named after it.
pub(crate) fn name_is_ip(name: &str, _prefix: bool) -> Vec<String> {
    let wrong = ip_errors(name);
    if !wrong.is_empty() {
        return wrong.into_iter().map(str::to_owned).collect();
    }
    let canonical = parse_sloppy(name).map(|ip| ip.to_string()).unwrap_or_default();
    if name == canonical {
        return Vec::new();
    }
    vec![format!("must be in canonical form ({})", meta::field::quote(&canonical))]
}

fn ip_errors(text: &str) -> Vec<&'static str> {
    let Some(ip) = parse_sloppy(text) else {
        return vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"];
    };
    if text.parse::<IpAddr>().is_err() && !ip.is_ipv6() {
        return vec!["must not have leading 0s"];
    }
    match ip {
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => {
            vec!["must not be an IPv4-mapped IPv6 address"]
        }
        _ => Vec::new(),
    }
}

/// An address with the length of its network: `10.9.8.7/24`.
pub(crate) fn interface_address(field: &Field<'_>, errors: &mut FieldErrors) {
    let text = field.str();
    let Some(cidr) = parse_cidr(text) else {
        let why = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return field.invalid_value(errors, text, why);
    };
    let (address, bits) = match cidr.address {
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => (IpAddr::V4(ip), cidr.bits.saturating_sub(96)),
            None => (cidr.address, cidr.bits),
        },
        IpAddr::V4(_) => (cidr.address, cidr.bits),
    };
    let canonical = format!("{address}/{bits}");
    if text != canonical {
        let why = format!("must be in canonical form ({})", meta::field::quote(&canonical));
        field.invalid_value(errors, text, &why);
    }
}

/// A CIDR in a field that has always been there.
pub(crate) fn legacy_cidr(field: &Field<'_>, old: &[&str], errors: &mut FieldErrors) {
    let wrong = cidr_errors(field.str());
    if wrong.is_empty() || (!errors.is_full() && old.contains(&field.str())) {
        return;
    }
    for why in wrong {
        field.invalid_value(errors, field.str(), why);
    }
}

/// A CIDR in its one canonical form.
pub(crate) fn canonical_cidr(field: &Field<'_>, errors: &mut FieldErrors) {
    let text = field.str();
    let wrong = cidr_errors(text);
    if wrong.is_empty()
        && let Some(cidr) = parse_cidr(text)
    {
        let canonical = cidr.to_string();
        if text != canonical {
            let why = format!("must be in canonical form ({})", meta::field::quote(&canonical));
            field.invalid_value(errors, text, &why);
        }
    }
    for why in wrong {
        field.invalid_value(errors, text, why);
    }
}

fn cidr_errors(text: &str) -> Vec<&'static str> {
    let Some(cidr) = parse_cidr(text) else {
        return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"];
    };
    let (address, length) = text.split_once('/').unwrap_or_default();
    let is_mapped = matches!(cidr.address, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
    if address.parse::<IpAddr>().is_err() || length.len() > 1 && length.starts_with('0') {
        vec!["must not have leading 0s in IP or prefix length"]
    } else if is_mapped {
        vec!["must not have an IPv4-mapped IPv6 address"]
    } else if cidr.network() != cidr.address {
        vec!["must not have bits set beyond the prefix length"]
    } else {
        Vec::new()
    }
}

/// An address and how many of its bits name the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) bits: u32,
}

impl Cidr {
    /// The address without the bits of the host.
    pub(crate) fn network(self) -> IpAddr {
        match self.address {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or_default();
                Ipv4Addr::from_bits(ip.to_bits() & mask).into()
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or_default();
                Ipv6Addr::from_bits(ip.to_bits() & mask).into()
            }
        }
    }

    pub(crate) fn contains(self, ip: IpAddr) -> bool {
        self.address.is_ipv4() == ip.is_ipv4()
            && Self { address: ip, ..self }.network() == self.network()
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.network(), self.bits)
    }
}

pub(crate) fn parse_cidr(text: &str) -> Option<Cidr> {
    let (address, length) = text.split_once('/')?;
    let address = parse_sloppy(address)?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let bits = length.parse::<u32>().ok().filter(|bits| digits && *bits <= max)?;
    Some(Cidr { address, bits })
}

/// As Go before 1.17: zeros in front of an IPv4 number mean nothing.
pub(crate) fn parse_sloppy(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(ip);
    }
    let mut octets = [0u8; 4];
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() != 4 {
        return None;
    }
    for (octet, part) in octets.iter_mut().zip(parts) {
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    Some(Ipv4Addr::from(octets).into())
}

#[cfg(test)]
mod tests {
    use meta::Value;

    use super::*;

    #[track_caller]
    fn check(rule: fn(&Field<'_>, &mut FieldErrors), text: &str, expected: &str) {
        let (value, mut errors) = (Value::from(text), FieldErrors::default());
        rule(&Field::root(&value), &mut errors);
        let why: Vec<&str> = errors
            .iter()
            .map(|error| error.message.splitn(3, ": ").nth(2).unwrap_or_default())
            .collect();
        assert_eq!(why.join("; "), expected, "{text}");
    }

    #[test]
    fn addresses_and_cidrs_are_read_strictly() {
        let ip = |field: &Field<'_>, errors: &mut FieldErrors| legacy_ip(field, &[], errors);
        let cidr = |field: &Field<'_>, errors: &mut FieldErrors| legacy_cidr(field, &[], errors);
        check(ip, "10.9.8.7", "");
        check(ip, "2001:DB8::0:1", "");
        check(ip, "010.9.8.7", "must not have leading 0s");
        check(ip, "::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address");
        check(ip, "1.2.3", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        check(canonical_ip, "2001:DB8::0:1", "must be in canonical form (\"2001:db8::1\")");
        check(cidr, "10.0.0.0/8", "");
        check(cidr, "10.1.0.0/8", "must not have bits set beyond the prefix length");
        check(
            cidr,
            "10.0.0.0/33",
            "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        );
    }
}
