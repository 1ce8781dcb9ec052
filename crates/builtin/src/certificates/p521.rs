//! Signatures on the curve P-521, which `ring` does not know.

use p521::ecdsa::{DerSignature, VerifyingKey, signature::hazmat::PrehashVerifier as _};
use ring::digest::{self, Algorithm};

/// The hash of a signature algorithm of ECDSA, by its object identifier.
pub(super) fn hash_of(algorithm: &str) -> Option<&'static Algorithm> {
    match algorithm {
        "1.2.840.10045.4.3.2" => Some(&digest::SHA256),
        "1.2.840.10045.4.3.3" => Some(&digest::SHA384),
        "1.2.840.10045.4.3.4" => Some(&digest::SHA512),
        _ => None,
    }
}

/// Whether this key (a point) has signed this. The signature is in DER.
pub(super) fn is_signed(
    point: &[u8],
    hash: &'static Algorithm,
    text: &[u8],
    signed: &[u8],
) -> bool {
    let (key, signature) = (VerifyingKey::from_sec1_bytes(point), DerSignature::try_from(signed));
    let (Ok(key), Ok(signature)) = (key, signature) else { return false };
    // A hash is a number, which a zero in front doesn't change; SHA-256's would be a byte too short.
    let number = [&[0], digest::digest(hash, text).as_ref()].concat();
    key.verify_prehash(&number, &signature).is_ok()
}
