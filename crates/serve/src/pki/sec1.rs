//! A P-256 key as `EC PRIVATE KEY` (SEC 1), the way kubeadm and client-go write keys.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
/// `[0]` and `[1]` of `ECPrivateKey`: the curve and the public key.
const PARAMETERS: u8 = 0xa0;
const PUBLIC_KEY: u8 = 0xa1;
/// id-ecPublicKey with prime256v1, as the content of an `AlgorithmIdentifier`.
const EC_PUBLIC_KEY: &[u8] = &[0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const PRIME256V1: &[u8] = &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];

/// The same key. `None` if it is not a P-256 key in PKCS #8.
pub(super) fn from_pkcs8(pem: &str) -> Option<String> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (info, _) = element(key.secret_pkcs8_der(), SEQUENCE)?;
    let (_version, rest) = element(info, INTEGER)?;
    let (algorithm, rest) = element(rest, SEQUENCE)?;
    if algorithm != [EC_PUBLIC_KEY, PRIME256V1].concat() {
        return None;
    }
    let (wrapped, _) = element(rest, OCTET_STRING)?;
    let (inner, _) = element(wrapped, SEQUENCE)?;
    let (version, rest) = element(inner, INTEGER)?;
    let (secret, rest) = element(rest, OCTET_STRING)?;
    let rest = element(rest, PARAMETERS).map_or(rest, |(_, rest)| rest);
    // PKCS #8 names the curve outside; here it has to be inside.
    let mut content = [written(INTEGER, version), written(OCTET_STRING, secret)].concat();
    content.extend(written(PARAMETERS, PRIME256V1));
    if let Some((public, _)) = element(rest, PUBLIC_KEY) {
        content.extend(written(PUBLIC_KEY, public));
    }
    let base64 = BASE64.encode(written(SEQUENCE, &content));
    let lines: Vec<&str> =
        base64.as_bytes().chunks(64).filter_map(|line| str::from_utf8(line).ok()).collect();
    let lines = lines.join("\n");
    Some(format!("-----BEGIN EC PRIVATE KEY-----\n{lines}\n-----END EC PRIVATE KEY-----\n"))
}

/// The content of a DER element with this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, length], rest) = der.split_first_chunk::<2>()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81 => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        // Keys of this curve are shorter than 256 bytes.
        _ => return None,
    };
    (found == tag).then(|| rest.split_at_checked(length)).flatten()
}

/// `content` is shorter than 128 bytes, as all elements of a P-256 key are.
fn written(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("keys of P-256 are short");
    [&[tag, length], content].concat()
}

#[cfg(test)]
mod tests {
    use rcgen::{
        KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData,
    };
    use rustls::crypto::aws_lc_rs::sign::any_supported_type;
    use rustls_pki_types::PrivateKeyDer;

    use super::*;

    #[test]
    fn the_key_stays_the_same() {
        for _ in 0..20 {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
            let pem = from_pkcs8(&key.serialize_pem()).expect("is converted");
            let read = PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("is PEM");
            assert!(matches!(read, PrivateKeyDer::Sec1(_)), "{pem}");
            let signer = any_supported_type(&read).expect("a usable key");
            let public = signer.public_key().expect("is known");
            assert_eq!(public.as_ref(), key.subject_public_key_info());
        }
    }

    #[test]
    fn other_keys_are_left_as_they_are() {
        for algorithm in [&PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
            let key = KeyPair::generate_for(algorithm).expect("a key");
            assert_eq!(from_pkcs8(&key.serialize_pem()), None);
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        let sec1 = from_pkcs8(&key.serialize_pem()).expect("is converted");
        for pem in [
            sec1.as_str(),
            "",
            "no pem",
            "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n",
        ] {
            assert_eq!(from_pkcs8(pem), None, "{pem}");
        }
    }
}
