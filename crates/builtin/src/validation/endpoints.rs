//! Endpoints and endpoint slices.

use std::net::IpAddr;

use meta::FieldErrors;

use crate::validation::{cursor::Field, ip::parse_sloppy};

/// An address that traffic can be sent to from somewhere else.
pub(crate) fn endpoint_ip(field: &Field<'_>, errors: &mut FieldErrors) {
    let text = field.str();
    let Some(ip) = parse_sloppy(text) else {
        return field.invalid_value(errors, text, "must be a valid IP address");
    };
    if ip.is_unspecified() {
        field.invalid(errors, &format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        field.invalid(errors, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (is_local, is_local_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    if is_local {
        let why = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
        field.invalid(errors, why);
    }
    if is_local_multicast {
        let why = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        field.invalid(errors, why);
    }
}
