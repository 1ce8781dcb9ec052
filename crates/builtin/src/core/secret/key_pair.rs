//! Whether a certificate and a private key belong together, in the words of Go's `tls.X509KeyPair`.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use x509_parser::{
    asn1_rs::{Any, Class, Tag},
    oid_registry::{OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519},
    prelude::{FromDer, X509Certificate},
};

use crate::certificates::pem;

/// What is wrong with a pair of PEM texts; None: nothing.
pub(super) fn error(certificate: &[u8], key: &[u8]) -> Option<String> {
    check(certificate, key).err()
}

fn check(certificate: &[u8], key: &[u8]) -> Result<(), String> {
    let certificate = certificate_block(certificate)?;
    let key = key_block(key)?;
    let (_, certificate) = X509Certificate::from_der(&certificate)
        .map_err(|_| "x509: malformed certificate".to_owned())?;
    let key = PublicKey::of_private(&key)?;
    let algorithm = &certificate.public_key().algorithm.algorithm;
    let public = &certificate.public_key().subject_public_key.data;
    let wanted = if *algorithm == OID_PKCS1_RSAENCRYPTION {
        PublicKey::Rsa(integers(public, 0..2).unwrap_or_default())
    } else if *algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY {
        PublicKey::Ecdsa(public.to_vec())
    } else if *algorithm == OID_SIG_ED25519 {
        PublicKey::Ed25519(public.to_vec())
    } else {
        return Err("tls: unknown public key algorithm".to_owned());
    };
    if std::mem::discriminant(&key) != std::mem::discriminant(&wanted) {
        return Err("tls: private key type does not match public key type".to_owned());
    }
    if key == wanted {
        Ok(())
    } else {
        Err("tls: private key does not match public key".to_owned())
    }
}

fn certificate_block(text: &[u8]) -> Result<Vec<u8>, String> {
    let (found, skipped) = first_block(text, |label| label == "CERTIFICATE");
    match (found, skipped.as_slice()) {
        (Some(found), _) => Ok(found),
        (None, []) => Err("tls: failed to find any PEM data in certificate input".to_owned()),
        (None, [one]) if one.ends_with("PRIVATE KEY") => {
            Err("tls: failed to find certificate PEM data in certificate input, but did find a private \
                 key; PEM inputs may have been switched"
                .to_owned())
        }
        (None, others) => Err(format!(
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM \
             blocks of the following types: [{}]",
            others.join(" ")
        )),
    }
}

fn key_block(text: &[u8]) -> Result<Vec<u8>, String> {
    let is_key = |label: &str| label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY");
    let (found, skipped) = first_block(text, is_key);
    match (found, skipped.as_slice()) {
        (Some(found), _) => Ok(found),
        (None, []) => Err("tls: failed to find any PEM data in key input".to_owned()),
        (None, [one]) if one == "CERTIFICATE" => {
            Err("tls: found a certificate rather than a key in the PEM for the private key"
                .to_owned())
        }
        (None, others) => Err(format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after \
             skipping PEM blocks of the following types: [{}]",
            others.join(" ")
        )),
    }
}

/// The first block with a label, and the labels of the others before it.
fn first_block(text: &[u8], wanted: impl Fn(&str) -> bool) -> (Option<Vec<u8>>, Vec<String>) {
    let mut skipped = Vec::new();
    for block in pem::blocks(text) {
        if wanted(&block.label) {
            return (Some(block.contents), skipped);
        }
        skipped.push(block.label);
    }
    (None, skipped)
}

#[derive(PartialEq)]
enum PublicKey {
    /// Modulus and exponent.
    Rsa(Vec<Vec<u8>>),
    Ecdsa(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl PublicKey {
    /// From PKCS #1, PKCS #8 or SEC 1.
    fn of_private(der: &[u8]) -> Result<Self, String> {
        // RSA is read here: Go takes keys that are too short for the library.
        if let Some(numbers) = integers(der, 1..3).filter(|_| integers(der, 0..9).is_some()) {
            return Ok(Self::Rsa(numbers));
        }
        if let Some(key) = octets_of_pkcs8(der)
            && let Some(numbers) = integers(key, 1..3).filter(|_| integers(key, 0..9).is_some())
        {
            return Ok(Self::Rsa(numbers));
        }
        if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            return Ok(Self::Ed25519(key.public_key().as_ref().to_vec()));
        }
        for curve in [
            &ECDSA_P256_SHA256_ASN1_SIGNING,
            &ECDSA_P384_SHA384_ASN1_SIGNING,
            &ECDSA_P521_SHA512_ASN1_SIGNING,
        ] {
            let key = EcdsaKeyPair::from_pkcs8(curve, der);
            if let Ok(key) = key.or_else(|_| EcdsaKeyPair::from_private_key_der(curve, der)) {
                return Ok(Self::Ecdsa(key.public_key().as_ref().to_vec()));
            }
        }
        Err("tls: failed to parse private key".to_owned())
    }
}

/// Some members of a sequence that are all integers.
fn integers(der: &[u8], wanted: std::ops::Range<usize>) -> Option<Vec<Vec<u8>>> {
    let members = members(der, wanted.end)?;
    let integers = members.get(wanted)?.iter().map(|member| of_tag(member, Tag::Integer));
    integers.map(|integer| integer.map(<[u8]>::to_vec)).collect()
}

/// The key inside of its envelope.
fn octets_of_pkcs8(der: &[u8]) -> Option<&[u8]> {
    let members = members(der, 3)?;
    of_tag(members.get(1)?, Tag::Sequence)?;
    of_tag(members.get(2)?, Tag::OctetString)
}

/// The first members of a sequence, without what is in them: a client decides how many there are, and how deep.
fn members(der: &[u8], count_max: usize) -> Option<Vec<Any<'_>>> {
    let (_, sequence) = Any::from_der(der).ok()?;
    let mut rest = of_tag(&sequence, Tag::Sequence)?;
    let mut members = Vec::with_capacity(count_max);
    while !rest.is_empty() && members.len() < count_max {
        let (behind, member) = Any::from_der(rest).ok()?;
        members.push(member);
        rest = behind;
    }
    Some(members)
}

fn of_tag<'a>(any: &Any<'a>, tag: Tag) -> Option<&'a [u8]> {
    (any.class() == Class::Universal && any.tag() == tag).then_some(any.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! file {
        ($name:literal) => {
            include_bytes!(concat!("../../../tests/key-pairs/", $name))
        };
    }

    /// A parser that reads the whole of it would take a hundred bytes for two.
    #[test]
    fn of_a_long_sequence_only_the_beginning_is_read() {
        let empty = [&[0x30, 0x83, 0x05, 0x00, 0x00][..], &[0x05, 0x00].repeat(0x28000)].concat();
        let numbers =
            [&[0x30, 0x83, 0x07, 0x80, 0x00][..], &[0x02, 0x01, 0x05].repeat(0x28000)].concat();
        assert_eq!(members(&empty, 9).map(|members| members.len()), Some(9));
        assert!(PublicKey::of_private(&empty).is_err());
        assert!(
            PublicKey::of_private(&numbers)
                .is_ok_and(|key| key == PublicKey::Rsa(vec![vec![5]; 2]))
        );
        let deep = [0x30, 0x80].repeat(10_000);
        assert!(PublicKey::of_private(&deep).is_err());
    }

    #[test]
    fn pairs_are_checked_as_go_checks_them() {
        let other = file!("ec.crt").as_slice();
        let request: &[u8] =
            b"-----BEGIN CERTIFICATE REQUEST-----\nYQ==\n-----END CERTIFICATE REQUEST-----\n";
        let garbage: &[u8] = b"-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n";
        let no_key: &[u8] = b"-----BEGIN PRIVATE KEY-----\nYQ==\n-----END PRIVATE KEY-----\n";
        let cases: [(&[u8], &[u8], &str); 14] = [
            (file!("ec.crt"), file!("ec.key"), ""),
            (file!("ec.crt"), file!("ec1.key"), ""),
            (file!("rsa.crt"), file!("rsa.key"), ""),
            (file!("rsa.crt"), file!("rsa1.key"), ""),
            (file!("ed.crt"), file!("ed.key"), ""),
            (b"", file!("ec.key"), "tls: failed to find any PEM data in certificate input"),
            (
                file!("ec.key"),
                other,
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched",
            ),
            (
                request,
                other,
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [CERTIFICATE REQUEST]",
            ),
            (other, b"x", "tls: failed to find any PEM data in key input"),
            (
                other,
                other,
                "tls: found a certificate rather than a key in the PEM for the private key",
            ),
            (
                other,
                request,
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [CERTIFICATE REQUEST]",
            ),
            (garbage, file!("ec.key"), "x509: malformed certificate"),
            (other, no_key, "tls: failed to parse private key"),
            (other, file!("rsa.key"), "tls: private key type does not match public key type"),
        ];
        for (certificate, key, expected) in cases {
            assert_eq!(error(certificate, key).unwrap_or_default(), expected);
        }
    }
}
