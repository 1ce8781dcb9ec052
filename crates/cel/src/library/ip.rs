//! IP addresses.

use std::net::IpAddr;

use meta::field::quote;

use super::standard::text;
use crate::functions::Functions;
use crate::kubernetes_value::KubernetesValue;
use crate::types::Type;
use crate::value::{EvalError, EvalResult, NO_SUCH_OVERLOAD, Val, fail};

pub(super) const IP: Type = Type::Opaque("net.IP");

pub(super) fn declare(f: &mut Functions) {
    use Type::{Bool, Int, String};
    f.global("ip", "string_to_ip", &[String], IP, |args| match parse_ip(text(args)?) {
        Ok(ip) => Ok(Val::kubernetes(KubernetesValue::Ip(ip))),
        Err(message) => fail(message),
    });
    f.member("family", "ip_family", &[IP], Int, |args| {
        Ok(Val::Int(if ip(args, 0)?.is_ipv4() { 4 } else { 6 }))
    });
    f.global("ip.isCanonical", "ip_is_canonical", &[String], Bool, |args| {
        let text = text(args)?;
        match parse_ip(text) {
            Ok(ip) => Ok(Val::Bool(ip.to_string() == text)),
            Err(message) => fail(message),
        }
    });
    f.member("isUnspecified", "ip_is_unspecified", &[IP], Bool, |args| {
        test(args, |ip| ip.is_unspecified())
    });
    f.member("isLoopback", "ip_is_loopback", &[IP], Bool, |args| test(args, |ip| ip.is_loopback()));
    f.member("isLinkLocalMulticast", "ip_is_link_local_multicast", &[IP], Bool, |args| {
        test(args, link_local_multicast)
    });
    f.member("isLinkLocalUnicast", "ip_is_link_local_unicast", &[IP], Bool, |args| {
        test(args, link_local_unicast)
    });
    f.member("isGlobalUnicast", "ip_is_global_unicast", &[IP], Bool, |args| {
        test(args, |ip| {
            let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
            !(broadcast
                || ip.is_unspecified()
                || ip.is_loopback()
                || ip.is_multicast()
                || link_local_unicast(ip))
        })
    });
    f.global("isIP", "is_ip", &[String], Bool, |args| Ok(Val::Bool(parse_ip(text(args)?).is_ok())));
    f.global("string", "ip_to_string", &[IP], String, |args| {
        Ok(Val::text(ip(args, 0)?.to_string()))
    });
}

pub(super) fn ip(args: &[Val<'_>], at: usize) -> Result<IpAddr, EvalError> {
    match args.get(at) {
        Some(Val::Kubernetes(value)) => match **value {
            KubernetesValue::Ip(ip) => Ok(ip),
            _ => Err(NO_SUCH_OVERLOAD),
        },
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

fn test<'a>(args: &[Val<'a>], test: fn(IpAddr) -> bool) -> EvalResult<'a> {
    Ok(Val::Bool(test(ip(args, 0)?)))
}

fn link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// An address without zone that is not an IPv4-mapped IPv6 address.
pub(super) fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let quoted = quote(text);
    let bare = match text.split_once('%') {
        Some((address, zone)) if address.contains(':') && !zone.is_empty() => {
            if address.parse::<IpAddr>().is_ok() {
                return Err(format!("IP address {quoted} with zone value is not allowed"));
            }
            address
        }
        _ => text,
    };
    let Ok(ip) = bare.parse::<IpAddr>() else {
        let why = why_no_address(text);
        return Err(format!(
            "IP Address {quoted} parse error during conversion from string: {why}"
        ));
    };
    if is_mapped(ip) {
        return Err(format!("IPv4-mapped IPv6 address {quoted} is not allowed"));
    }
    Ok(ip)
}

pub(super) fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// Go's error messages for common invalid addresses.
pub(super) fn why_no_address(text: &str) -> String {
    let quoted = quote(text);
    let parse = |why: &str| format!("ParseAddr({quoted}): {why}");
    for c in text.chars() {
        match c {
            '.' => return why_no_v4(text, &parse),
            ':' => return why_no_v6(text, &parse),
            '%' => return parse("missing IPv6 address"),
            _ => {}
        }
    }
    parse("unable to parse IP")
}

fn why_no_v4(text: &str, parse: &dyn Fn(&str) -> String) -> String {
    let (mut fields, mut value, mut digits) = (0, 0u32, 0);
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return parse("IPv4 field has octet with leading zero");
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return parse("IPv4 field has value >255");
                }
            }
            b'.' => {
                let rest = meta::field::quote(&text[at..]);
                if at == 0 || at == bytes.len() - 1 || bytes[at - 1] == b'.' {
                    return parse(&format!("IPv4 field must have at least one digit (at {rest})"));
                }
                if fields == 3 {
                    return parse("IPv4 address too long");
                }
                fields += 1;
                (value, digits) = (0, 0);
            }
            _ => {
                let rest = meta::field::quote(&text[at..]);
                return parse(&format!("unexpected character (at {rest})"));
            }
        }
    }
    parse("IPv4 address too short")
}

fn why_no_v6(text: &str, parse: &dyn Fn(&str) -> String) -> String {
    let address = text.split('%').next().unwrap_or_default();
    if let Some(at) = address.find(|c: char| !c.is_ascii_hexdigit() && c != ':' && c != '.') {
        let rest = quote(&address[at..]);
        return parse(&format!(
            "each colon-separated field must have at least one digit (at {rest})"
        ));
    }
    let groups = address.split(':').filter(|group| !group.is_empty()).count();
    if groups > 8 {
        return parse("trailing garbage after address");
    }
    if !address.contains("::") && groups < 8 {
        return parse("address string too short");
    }
    if address.split(':').any(|group| group.len() > 4 && !group.contains('.')) {
        return parse("IPv6 field has value >=2^16");
    }
    parse("multiple :: in address")
}
