//! TLS options: minimum version, cipher suites, key exchanges.
//!
//! Pintle's TLS has only what is considered safe today: versions 1.2 and 1.3, and suites with
//! forward secrecy and authenticated encryption. Names that kube-apiserver knows beyond that are
//! accepted with a warning as long as something usable is left, because hardening guides list them.

use crate::flags::{Parsed, quote};

/// A supported TLS version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsVersion {
    V12,
    V13,
}

impl TlsVersion {
    /// As the flag spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V12 => "VersionTLS12",
            Self::V13 => "VersionTLS13",
        }
    }
}

/// A supported key exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyExchange {
    P256,
    P384,
    X25519,
    P256MlKem768,
    X25519MlKem768,
}

impl KeyExchange {
    /// Its number in the TLS registry, as the flag spells it.
    pub(crate) fn id(self) -> i32 {
        match self {
            Self::P256 => 23,
            Self::P384 => 24,
            Self::X25519 => 29,
            Self::P256MlKem768 => 4587,
            Self::X25519MlKem768 => 4588,
        }
    }
}

/// The flags `--tls-min-version`, `--tls-cipher-suites` and `--tls-curve-preferences`.
pub(super) struct Tls {
    pub(super) min_version: TlsVersion,
    pub(super) cipher_suites: Vec<&'static str>,
    pub(super) key_exchanges: Vec<KeyExchange>,
}

impl Tls {
    pub(super) fn from_flags(
        parsed: &Parsed,
        errors: &mut Vec<String>,
        warnings: &mut Vec<String>,
    ) -> Self {
        let min_version = min_version(&parsed.text("tls-min-version"), errors, warnings);
        Self {
            min_version,
            cipher_suites: cipher_suites(&parsed.texts("tls-cipher-suites"), errors, warnings),
            key_exchanges: key_exchanges(&parsed.int32s("tls-curve-preferences"), errors, warnings),
        }
    }
}

fn min_version(name: &str, errors: &mut Vec<String>, warnings: &mut Vec<String>) -> TlsVersion {
    match name {
        "" | "VersionTLS12" => {}
        "VersionTLS13" => return TlsVersion::V13,
        "VersionTLS10" | "VersionTLS11" => warnings.push(format!(
            "--tls-min-version={name}: TLS 1.2 is the lowest version that Pintle speaks"
        )),
        _ => errors.push(format!("unknown tls version {}", quote(name))),
    }
    TlsVersion::V12
}

/// The supported suites of TLS 1.2.
const SUITES: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];
/// Older names of two of them.
const SUITE_ALIASES: &[(&str, &str)] = &[
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];
/// The suites of TLS 1.3 are always enabled, as in kube-apiserver; naming them has no effect.
const SUITES_13: &[&str] =
    &["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];
/// The suites of kube-apiserver that Pintle does not support: without forward secrecy, or with CBC, RC4
/// or 3DES.
const SUITES_WITHOUT: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

fn cipher_suites(
    names: &[String],
    errors: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> Vec<&'static str> {
    let errors_before = errors.len();
    let mut suites = Vec::new();
    for name in names {
        let alias = SUITE_ALIASES.iter().find(|(old, _)| old == name);
        let name = alias.map_or(name.as_str(), |(_, new)| *new);
        if let Some(suite) = SUITES.iter().find(|suite| **suite == name) {
            suites.push(*suite);
        } else if SUITES_WITHOUT.contains(&name) {
            warnings
                .push(format!("--tls-cipher-suites: Pintle does not offer the weak suite {name}"));
        } else if !SUITES_13.contains(&name) {
            errors.push(format!("Cipher suite {name} not supported or doesn't exist"));
        }
    }
    // An empty list would enable all of them.
    if suites.is_empty() && !names.is_empty() && errors.len() == errors_before {
        errors.push(format!(
            "--tls-cipher-suites names none of the suites that Pintle has for TLS 1.2: {} (for \
             TLS 1.3 only, use --tls-min-version=VersionTLS13)",
            SUITES.join(", ")
        ));
    }
    suites
}

fn key_exchanges(
    ids: &[i32],
    errors: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> Vec<KeyExchange> {
    let errors_before = errors.len();
    let mut exchanges = Vec::new();
    for (i, id) in ids.iter().enumerate() {
        if !(1..=65535).contains(id) {
            errors.push(format!("curve preference {id} is out of range (must be 1-65535)"));
        } else if ids[..i].contains(id) {
            errors.push(format!("duplicate curve preference {id}"));
        } else {
            match id {
                23 => exchanges.push(KeyExchange::P256),
                24 => exchanges.push(KeyExchange::P384),
                29 => exchanges.push(KeyExchange::X25519),
                4587 => exchanges.push(KeyExchange::P256MlKem768),
                4588 => exchanges.push(KeyExchange::X25519MlKem768),
                // P-521 and SecP384r1MLKEM1024, which Go has.
                25 | 4589 => warnings.push(format!(
                    "--tls-curve-preferences: Pintle does not offer key exchange {id}"
                )),
                _ => errors.push(format!("curve preference {id} is not supported")),
            }
        }
    }
    if exchanges.is_empty() && !ids.is_empty() && errors.len() == errors_before {
        errors.push(
            "--tls-curve-preferences names none of 23, 24, 29, 4587 and 4588, which Pintle has"
                .to_owned(),
        );
    }
    exchanges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flags: &[&str]) -> (Tls, Vec<String>, Vec<String>) {
        let parsed = crate::flags::parse(flags.iter().map(|&flag| flag.to_owned())).unwrap();
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let tls = Tls::from_flags(&parsed, &mut errors, &mut warnings);
        (tls, errors, warnings)
    }

    #[test]
    fn what_pintle_has_is_taken_and_the_rest_is_a_warning() {
        let (tls, errors, warnings) = read(&[
            "--tls-min-version=VersionTLS11",
            "--tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
            "--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA",
            "--tls-curve-preferences=4588,29,4589",
        ]);
        assert_eq!(errors, Vec::<String>::new());
        assert_eq!(tls.min_version, TlsVersion::V12);
        assert_eq!(tls.cipher_suites, ["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"]);
        assert_eq!(tls.key_exchanges, [KeyExchange::X25519MlKem768, KeyExchange::X25519]);
        assert_eq!(
            warnings,
            [
                "--tls-min-version=VersionTLS11: TLS 1.2 is the lowest version that Pintle speaks",
                "--tls-cipher-suites: Pintle does not offer the weak suite TLS_RSA_WITH_RC4_128_SHA",
                "--tls-curve-preferences: Pintle does not offer key exchange 4589",
            ]
        );
    }

    #[test]
    fn unknown_names_are_errors() {
        let (_, errors, _) = read(&[
            "--tls-min-version=1.2",
            "--tls-cipher-suites=FOO",
            "--tls-curve-preferences=0,29,29,7",
        ]);
        assert_eq!(
            errors,
            [
                "unknown tls version \"1.2\"",
                "Cipher suite FOO not supported or doesn't exist",
                "curve preference 0 is out of range (must be 1-65535)",
                "duplicate curve preference 29",
                "curve preference 7 is not supported",
            ]
        );
    }

    #[test]
    fn a_list_of_which_nothing_is_left_does_not_become_everything() {
        let (_, errors, _) =
            read(&["--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA", "--tls-curve-preferences=25"]);
        assert_eq!(errors.len(), 2);
        assert!(errors[0].starts_with("--tls-cipher-suites names none of"), "{}", errors[0]);
        assert!(errors[1].starts_with("--tls-curve-preferences names none of"), "{}", errors[1]);
    }
}
