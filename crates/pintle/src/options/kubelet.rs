//! `--kubelet-*` and `--max-connection-bytes-per-sec`: connections to nodes.

use std::num::NonZeroU64;

use connect::KubeletConfig;

use super::{duration, path};
use crate::flags::Parsed;

#[derive(Clone, Debug)]
pub(crate) struct KubeletOptions {
    pub(crate) config: KubeletConfig,
    pub(crate) bytes_per_second_max: Option<NonZeroU64>,
}

impl KubeletOptions {
    pub(super) fn from_flags(parsed: &Parsed, errors: &mut Vec<String>) -> Self {
        let port = parsed.uint("kubelet-port");
        let port = u16::try_from(port).unwrap_or_else(|_| {
            errors.push(format!("--kubelet-port {port} must be between 0 and 65535, inclusive"));
            0
        });
        let rate = parsed.int("max-connection-bytes-per-sec");
        let certificate = path(parsed, "kubelet-client-certificate");
        Self {
            config: KubeletConfig {
                port,
                preferred_address_types: parsed.texts("kubelet-preferred-address-types"),
                certificate_authority: path(parsed, "kubelet-certificate-authority"),
                client_certificate: certificate.zip(path(parsed, "kubelet-client-key")),
                timeout: duration(parsed, "kubelet-timeout"),
            },
            bytes_per_second_max: u64::try_from(rate).ok().and_then(NonZeroU64::new),
        }
    }
}
