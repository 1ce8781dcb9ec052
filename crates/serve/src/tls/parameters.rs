//! The TLS flags in Go's words (versions, cipher suites, curves), as what rustls needs.

use rustls::crypto::aws_lc_rs::{
    self,
    kx_group::{SECP256R1, SECP256R1MLKEM768, SECP384R1, X25519, X25519MLKEM768},
};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{NamedGroup, SupportedCipherSuite, SupportedProtocolVersion, version};

use super::TlsError;

/// What a handshake may agree on.
#[derive(Debug, Clone)]
pub(crate) struct Parameters {
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
    pub(crate) provider: CryptoProvider,
}

impl Parameters {
    /// From `--tls-min-version`, `--tls-cipher-suites` and `--tls-curve-preferences`; empty means the default of each.
    pub(crate) fn from_flags(
        min_version: &str,
        cipher_suites: &[String],
        curves: &[i32],
    ) -> Result<Self, TlsError> {
        let provider = CryptoProvider {
            cipher_suites: suites(cipher_suites)?,
            kx_groups: groups(curves)?,
            ..aws_lc_rs::default_provider()
        };
        Ok(Self { versions: versions(min_version)?, provider })
    }
}

fn versions(min_version: &str) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    match min_version {
        // Older versions than 1.2 are not offered by rustls; asking for "at least 1.0" is still met by 1.2.
        "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => {
            Ok(vec![&version::TLS13, &version::TLS12])
        }
        "VersionTLS13" => Ok(vec![&version::TLS13]),
        other => Err(TlsError::Flag(format!(
            "unknown tls version {other:?}; allowed: {}",
            VERSIONS.join(", ")
        ))),
    }
}

const VERSIONS: [&str; 4] = ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];

/// Compat: as in Go the list decides about TLS 1.2 only, and its order about nothing; the suites of TLS 1.3 are always on.
fn suites(names: &[String]) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    if let Some(unknown) = names.iter().find(|name| !SUITES.iter().any(|(known, _)| known == name))
    {
        let allowed = SUITES.map(|(known, _)| known).join(", ");
        return Err(TlsError::Flag(format!(
            "Cipher suite {unknown} not supported or doesn't exist; allowed: {allowed}"
        )));
    }
    let mut suites: Vec<SupportedCipherSuite> = Vec::new();
    for (name, suite) in SUITES {
        let wanted =
            names.is_empty() || suite.tls13().is_some() || names.iter().any(|given| given == name);
        if wanted && !suites.contains(&suite) {
            suites.push(suite);
        }
    }
    Ok(suites)
}

/// Go's names, in Go's order of preference: AES-128 before AES-256, which takes four more rounds for every block. The two without `_SHA256` are older names that kube-apiserver still takes.
const SUITES: [(&str, SupportedCipherSuite); 11] = {
    use rustls::crypto::aws_lc_rs::cipher_suite as suite;
    [
        ("TLS_AES_128_GCM_SHA256", suite::TLS13_AES_128_GCM_SHA256),
        ("TLS_AES_256_GCM_SHA384", suite::TLS13_AES_256_GCM_SHA384),
        ("TLS_CHACHA20_POLY1305_SHA256", suite::TLS13_CHACHA20_POLY1305_SHA256),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
            suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
        (
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
            suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        (
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
    ]
};

/// Compat: the order of the flag is ignored, as Go does.
fn groups(curves: &[i32]) -> Result<Vec<&'static dyn SupportedKxGroup>, TlsError> {
    for (index, id) in curves.iter().enumerate() {
        if curves[..index].contains(id) {
            return Err(TlsError::Flag(format!("duplicate curve preference {id}")));
        }
        if !ALL_GROUPS.iter().any(|group| curve_id(group.name()) == *id) {
            let allowed: Vec<_> = ALL_GROUPS
                .iter()
                .map(|group| format!("{} ({:?})", curve_id(group.name()), group.name()))
                .collect();
            return Err(TlsError::Flag(format!(
                "curve preference {id} is not supported; allowed: {}",
                allowed.join(", ")
            )));
        }
    }
    let chosen = ALL_GROUPS
        .iter()
        .copied()
        .filter(|group| curves.is_empty() || curves.contains(&curve_id(group.name())));
    Ok(chosen.collect())
}

/// In Go's order of preference. Go has two more, which rustls has not: SecP384r1MLKEM1024 and P-521.
static ALL_GROUPS: [&dyn SupportedKxGroup; 5] =
    [X25519MLKEM768, SECP256R1MLKEM768, X25519, SECP256R1, SECP384R1];

/// Go's `CurveID` is the number of the IANA registry, as rustls has it.
fn curve_id(group: NamedGroup) -> i32 {
    i32::from(u16::from(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(min_version: &str, suites: &[&str], curves: &[i32]) -> String {
        let suites: Vec<_> = suites.iter().map(ToString::to_string).collect();
        match Parameters::from_flags(min_version, &suites, curves) {
            Err(error) => error.to_string(),
            Ok(parameters) => format!(
                "{} versions, {} suites, curves {:?}",
                parameters.versions.len(),
                parameters.provider.cipher_suites.len(),
                parameters
                    .provider
                    .kx_groups
                    .iter()
                    .map(|g| curve_id(g.name()))
                    .collect::<Vec<_>>(),
            ),
        }
    }

    #[test]
    fn the_cheaper_suite_is_preferred_whatever_the_order_of_the_flag() {
        let names =
            ["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"];
        for names in [&names[..], &[]] {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let suites: Vec<_> =
                suites(&names).unwrap().iter().map(SupportedCipherSuite::suite).collect();
            let place = |wanted| suites.iter().position(|suite| *suite == wanted).unwrap();
            assert_eq!(place(rustls::CipherSuite::TLS13_AES_128_GCM_SHA256), 0);
            assert!(
                place(rustls::CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256)
                    < place(rustls::CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384)
            );
        }
    }

    #[test]
    fn flags_choose_versions_suites_and_curves() {
        let rsa = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        let cases: [(&str, &[&str], &[i32], &str); 7] = [
            ("", &[], &[], "2 versions, 9 suites, curves [4588, 4587, 29, 23, 24]"),
            ("VersionTLS10", &[], &[], "2 versions, 9 suites, curves [4588, 4587, 29, 23, 24]"),
            ("VersionTLS13", &[], &[], "1 versions, 9 suites, curves [4588, 4587, 29, 23, 24]"),
            ("", &[rsa, rsa], &[], "2 versions, 4 suites, curves [4588, 4587, 29, 23, 24]"),
            (
                "",
                &["TLS_AES_128_GCM_SHA256"],
                &[],
                "2 versions, 3 suites, curves [4588, 4587, 29, 23, 24]",
            ),
            (
                "",
                &["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"],
                &[24, 23],
                "2 versions, 4 suites, curves [23, 24]",
            ),
            ("", &[], &[29, 29], "duplicate curve preference 29"),
        ];
        for (version, suites, curves, expected) in cases {
            assert_eq!(describe(version, suites, curves), expected);
        }
    }

    /// Version, suites, curves; how the error begins and what it mentions.
    type Case<'a> = (&'a str, &'a [&'a str], &'a [i32], &'a str, &'a str);

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        let cases: [Case<'_>; 4] = [
            ("VersionTLS14", &[], &[], "unknown tls version \"VersionTLS14\"", "VersionTLS13"),
            (
                "",
                &["TLS_RSA_WITH_AES_128_CBC_SHA"],
                &[],
                "Cipher suite TLS_RSA_WITH_AES_128_CBC_SHA not supported or doesn't exist",
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            ),
            ("", &[], &[25], "curve preference 25 is not supported", "24 (secp384r1)"),
            ("", &[], &[-1], "curve preference -1 is not supported", "29 (X25519)"),
        ];
        for (version, suites, curves, start, mentioned) in cases {
            let error = describe(version, suites, curves);
            assert!(error.starts_with(start), "{error}");
            assert!(error.contains(mentioned), "{error}");
        }
    }
}
