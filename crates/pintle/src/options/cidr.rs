//! CIDR ranges such as `10.0.0.0/24`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A CIDR with the host bits of its address cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) network: IpAddr,
    pub(crate) prefix: u8,
}

impl Cidr {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let all_digits = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
        let prefix: u8 = prefix.parse().ok().filter(|_| all_digits)?;
        let bits = bits(address);
        if prefix > bits {
            return None;
        }
        // A shift by all bits would overflow; the result is 0.
        let host_mask = u128::MAX.checked_shr(u32::from(128 - (bits - prefix))).unwrap_or(0);
        Some(Self { network: address_of(number(address) & !host_mask, address), prefix })
    }

    /// The first address after the network's own: that of service default/kubernetes.
    pub(crate) fn first_address(&self) -> IpAddr {
        address_of(number(self.network) | 1, self.network)
    }

    /// Number of host bits: the range has 2 to the power of it addresses.
    fn host_bits(self) -> u8 {
        bits(self.network) - self.prefix
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn address_of(number: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::from_bits(number as u32).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(number).into(),
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

/// Fewer than eight addresses are too few besides the reserved ones.
const HOST_BITS_MIN: u8 = 3;
/// kube-apiserver's fallback, and Pintle's default.
const DEFAULT_RANGE: &str = "10.0.0.0/24";

/// The ranges of `--service-cluster-ip-range`: one, or two of different families.
pub(super) fn service_ranges(flag: &str, errors: &mut Vec<String>) -> Vec<Cidr> {
    let texts: Vec<&str> =
        (if flag.is_empty() { DEFAULT_RANGE } else { flag }).split(',').collect();
    if texts.len() > 2 {
        errors.push("--service-cluster-ip-range must not contain more than two entries".to_owned());
    }
    let mut ranges = Vec::new();
    match Cidr::parse(texts[0]) {
        None => errors.push("service-cluster-ip-range[0] is not a valid cidr".to_owned()),
        Some(range) if range.host_bits() < HOST_BITS_MIN => errors.push(
            "error determining service IP ranges for primary service cidr: the service cluster IP \
             range must be at least 8 IP addresses"
                .to_owned(),
        ),
        Some(range) => ranges.push(range),
    }
    if let Some(second) = texts.get(1) {
        match Cidr::parse(second) {
            None => errors.push("service-cluster-ip-range[1] is not an ip net".to_owned()),
            Some(second) => {
                let same_family =
                    |first: &Cidr| first.network.is_ipv4() == second.network.is_ipv4();
                if ranges.first().is_some_and(same_family) {
                    errors.push(
                        "--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be \
                         of different IP family"
                            .to_owned(),
                    );
                }
                ranges.push(second);
            }
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_printed_without_host_bits() {
        let cases = [
            ("10.0.0.0/24", "10.0.0.0/24 10.0.0.1"),
            ("10.1.2.3/16", "10.1.0.0/16 10.1.0.1"),
            ("10.1.2.3/0", "0.0.0.0/0 0.0.0.1"),
            ("10.1.2.3/32", "10.1.2.3/32 10.1.2.3"),
            ("fd00:1::/108", "fd00:1::/108 fd00:1::1"),
            ("fd00::7/0", "::/0 ::1"),
            ("fd00::7/128", "fd00::7/128 fd00::7"),
        ];
        for (text, expected) in cases {
            let range = Cidr::parse(text).unwrap();
            assert_eq!(format!("{range} {}", range.first_address()), expected, "{text}");
        }
        for text in
            ["", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0/8", "::/129", "a/8", "10.0.0.0/+8"]
        {
            assert_eq!(Cidr::parse(text), None, "{text}");
        }
    }

    #[test]
    fn service_ranges_are_one_or_two_of_different_families() {
        let cases: [(&str, &[&str]); 8] = [
            ("", &[]),
            ("10.0.0.0/24,fd00::/108", &[]),
            ("fd00::/108,10.0.0.0/24", &[]),
            ("x", &["service-cluster-ip-range[0] is not a valid cidr"]),
            ("10.0.0.0/24,x", &["service-cluster-ip-range[1] is not an ip net"]),
            (
                "10.0.0.0/30",
                &[
                    "error determining service IP ranges for primary service cidr: the service cluster IP range must be at least 8 IP addresses",
                ],
            ),
            (
                "10.0.0.0/24,10.1.0.0/24",
                &[
                    "--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family",
                ],
            ),
            (
                "x,fd00::/108,10.0.0.0/24",
                &[
                    "--service-cluster-ip-range must not contain more than two entries",
                    "service-cluster-ip-range[0] is not a valid cidr",
                ],
            ),
        ];
        for (flag, expected) in cases {
            let mut errors = Vec::new();
            service_ranges(flag, &mut errors);
            assert_eq!(errors, expected, "{flag}");
        }
    }
}
