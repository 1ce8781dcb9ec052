//! Networks: an address and the length of its prefix.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use meta::field::quote;

use super::ip::{IP, ip, is_mapped, parse_ip, why_no_address};
use super::standard::text;
use crate::functions::Functions;
use crate::kubernetes_value::KubernetesValue;
use crate::types::Type;
use crate::value::{EvalError, EvalResult, NO_SUCH_OVERLOAD, Val, fail};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    pub(crate) bits: u8,
}

pub(super) fn declare(f: &mut Functions) {
    use Type::{Bool, Int, String};
    const CIDR: Type = Type::Opaque("net.CIDR");
    f.global("cidr", "string_to_cidr", &[String], CIDR, make);
    f.member("containsIP", "cidr_contains_ip_string", &[CIDR, String], Bool, |args| {
        let prefix = prefix(args, 0)?;
        match args[1].as_str().map(parse_ip) {
            Some(Ok(ip)) => Ok(Val::Bool(prefix.contains(ip))),
            // Compat: the reason why the address is invalid is not reported.
            _ => Err(NO_SUCH_OVERLOAD),
        }
    });
    f.member("containsIP", "cidr_contains_ip_ip", &[CIDR, IP], Bool, |args| {
        Ok(Val::Bool(prefix(args, 0)?.contains(ip(args, 1)?)))
    });
    f.member("containsCIDR", "cidr_contains_cidr_string", &[CIDR, String], Bool, |args| {
        let other = [make(&args[1..])?];
        Ok(Val::Bool(prefix(args, 0)?.contains_prefix(&prefix(&other, 0)?)))
    });
    f.member("containsCIDR", "cidr_contains_cidr", &[CIDR, CIDR], Bool, |args| {
        Ok(Val::Bool(prefix(args, 0)?.contains_prefix(&prefix(args, 1)?)))
    });
    f.member("ip", "cidr_ip", &[CIDR], IP, |args| {
        Ok(Val::kubernetes(KubernetesValue::Ip(prefix(args, 0)?.address)))
    });
    f.member("prefixLength", "cidr_prefix_length", &[CIDR], Int, |args| {
        Ok(Val::Int(i64::from(prefix(args, 0)?.bits)))
    });
    f.member("masked", "cidr_masked", &[CIDR], CIDR, |args| {
        Ok(Val::kubernetes(KubernetesValue::Cidr(prefix(args, 0)?.masked())))
    });
    f.global("isCIDR", "is_cidr", &[String], Bool, |args| {
        Ok(Val::Bool(Prefix::parse(text(args)?).is_ok()))
    });
    f.global("string", "cidr_to_string", &[CIDR], String, |args| {
        Ok(Val::text(prefix(args, 0)?.text()))
    });
}

fn make<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match Prefix::parse(text(args)?) {
        Ok(prefix) => Ok(Val::kubernetes(KubernetesValue::Cidr(prefix))),
        Err(message) => {
            fail(format!("network address parse error during conversion from string: {message}"))
        }
    }
}

fn prefix(args: &[Val<'_>], at: usize) -> Result<Prefix, EvalError> {
    match args.get(at) {
        Some(Val::Kubernetes(value)) => match **value {
            KubernetesValue::Cidr(prefix) => Ok(prefix),
            _ => Err(NO_SUCH_OVERLOAD),
        },
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

impl Prefix {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            let text = quote(text);
            Err(format!(
                "network address parse error during conversion from string: \
                 netip.ParsePrefix({text}): {why}"
            ))
        };
        let Some((address, bits)) = text.rsplit_once('/') else { return wrong("no '/'") };
        let Ok(address) = address.parse::<IpAddr>() else {
            return if address.contains(':') && address.contains('%') {
                wrong("IPv6 zones cannot be present in a prefix")
            } else {
                // Go repeats the parser's own message here.
                let why = why_no_address(address);
                wrong(&why)
            };
        };
        if is_mapped(address) {
            return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
        }
        let digits = bits.bytes().all(|b| b.is_ascii_digit()) && !bits.is_empty();
        if !digits || (bits.len() > 1 && bits.starts_with('0')) {
            return wrong(&format!("bad bits after slash: {}", quote(bits)));
        }
        let width = if address.is_ipv4() { 32 } else { 128 };
        match bits.parse::<u8>() {
            Ok(bits) if bits <= width => Ok(Self { address, bits }),
            _ => wrong("prefix length out of range"),
        }
    }

    pub(crate) fn text(&self) -> String {
        format!("{}/{}", self.address, self.bits)
    }

    fn masked(self) -> Self {
        Self { address: mask(self.address, self.bits), bits: self.bits }
    }

    fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.address.is_ipv4()
            && mask(ip, self.bits) == mask(self.address, self.bits)
    }

    fn contains_prefix(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }
}

fn mask(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => {
            let kept = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & kept))
        }
        IpAddr::V6(v6) => {
            let kept = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & kept))
        }
    }
}
