//! A range of addresses that services take theirs from.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressRange {
    network: IpAddr,
    prefix: u8,
    /// The first and last address to hand out.
    first: u128,
    last: u128,
}

impl AddressRange {
    /// `10.0.0.0/24`; None for what is no range.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
        let bits = if address.is_ipv4() { 32 } else { 128 };
        // A range of everything has no use, and its size no number.
        if prefix > bits || prefix == 0 {
            return None;
        }
        let size = 1u128 << (bits - prefix);
        let network = number(address) & !(size - 1);
        // The network's own address is never handed out, nor an IPv4 broadcast address.
        let last = network + size - 1 - u128::from(address.is_ipv4());
        let network_address = address_of(network, address.is_ipv4());
        Some(Self { network: network_address, prefix, first: network + 1, last })
    }

    pub(crate) fn is_ipv4(&self) -> bool {
        self.network.is_ipv4()
    }

    /// What a dry run is shown.
    pub(crate) fn network(&self) -> IpAddr {
        self.network
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.is_ipv4() && (self.first..=self.last).contains(&number(address))
    }

    /// How many addresses can be handed out.
    pub(crate) fn size(&self) -> f64 {
        (self.last + 1).saturating_sub(self.first) as f64
    }

    /// Every address once, beginning somewhere at random. The lower part comes last: it is kept for
    /// clients that choose an address themselves.
    pub(crate) fn candidates(&self, random: u128) -> impl Iterator<Item = IpAddr> + use<> {
        let is_ipv4 = self.is_ipv4();
        let middle = self.first + self.reserved();
        let (first, last) = (self.first, self.last);
        let upper = rotate(middle, last, random);
        let lower = rotate(first, middle.saturating_sub(1), random);
        upper.chain(lower).map(move |number| address_of(number, is_ipv4))
    }

    /// How many addresses are kept for static use.
    fn reserved(&self) -> u128 {
        const MIN: u128 = 16;
        const MAX: u128 = 256;
        // With the network and, in IPv4, the broadcast address.
        let size = self.last - self.first + 2 + u128::from(self.is_ipv4());
        if size <= MIN { 0 } else { (size / 16).clamp(MIN, MAX) }
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

/// `first..=last`, beginning in the middle.
fn rotate(first: u128, last: u128, random: u128) -> impl Iterator<Item = u128> {
    let size = (last + 1).saturating_sub(first);
    let start = first + if size == 0 { 0 } else { random % size };
    let end = if size == 0 { first } else { last + 1 };
    (start..end).chain(first..start)
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn address_of(number: u128, is_ipv4: bool) -> IpAddr {
    if is_ipv4 {
        Ipv4Addr::from_bits(number as u32).into()
    } else {
        Ipv6Addr::from_bits(number).into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_address_comes_once_and_the_static_ones_last() {
        for (text, count, reserved) in [("10.0.0.0/24", 254, 16), ("10.0.0.0/28", 14, 0)] {
            let range = AddressRange::parse(text).unwrap();
            for random in [0, 1, 77, u128::MAX] {
                let all: Vec<IpAddr> = range.candidates(random).collect();
                assert_eq!(all.len(), count, "{text} {random}");
                assert_eq!(all.iter().collect::<HashSet<_>>().len(), count);
                assert!(all.iter().all(|address| range.contains(*address)));
                let low: IpAddr = "10.0.0.1".parse().unwrap();
                let at = all.iter().position(|address| *address == low).unwrap();
                assert!(reserved == 0 || at >= count - reserved, "{text} {random} {at}");
            }
        }
    }

    #[test]
    fn the_edges_of_a_range_are_not_handed_out() {
        let range = AddressRange::parse("10.0.0.9/29").unwrap();
        assert_eq!(range.to_string(), "10.0.0.8/29");
        let cases = [("10.0.0.8", false), ("10.0.0.9", true), ("10.0.0.14", true)];
        for (address, inside) in cases.into_iter().chain([("10.0.0.15", false), ("::1", false)]) {
            assert_eq!(range.contains(address.parse().unwrap()), inside, "{address}");
        }
        let wide = AddressRange::parse("fd00::/108").unwrap();
        assert!(wide.contains("fd00::f:ffff".parse().unwrap()));
        assert_eq!(wide.candidates(5).next(), Some("fd00::106".parse().unwrap()));
        for text in ["10.0.0.0", "10.0.0.0/33", "x/8", "0.0.0.0/0"] {
            assert_eq!(AddressRange::parse(text), None, "{text}");
        }
    }
}
