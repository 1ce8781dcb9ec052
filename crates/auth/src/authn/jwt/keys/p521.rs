//! The curve P-521, which `ring` does not know.

use p521::ecdsa::{
    Signature, SigningKey, VerifyingKey,
    signature::{Signer as _, Verifier as _},
};

/// A private key with its public half.
pub(super) struct P521Pair(SigningKey);

/// Bytes of a number on this curve.
const NUMBER_BYTES: usize = 66;

impl P521Pair {
    /// From the number of an `ECPrivateKey`, which some write without its leading zeros.
    pub(super) fn new(private: &[u8]) -> Result<Self, String> {
        let unusable = || "the private key cannot be used".to_owned();
        let missing = NUMBER_BYTES.checked_sub(private.len()).ok_or_else(unusable)?;
        let number = [vec![0; missing], private.to_vec()].concat();
        SigningKey::from_slice(&number).map(Self).map_err(|_| unusable())
    }

    /// 4, x, y.
    pub(super) fn point(&self) -> Vec<u8> {
        self.0.verifying_key().to_sec1_point(false).as_bytes().to_vec()
    }

    /// Both numbers of a signature, one after the other.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let signature: Result<Signature, _> = self.0.try_sign(message);
        signature.map(|made| made.to_bytes().to_vec()).map_err(|_| "the key cannot sign".to_owned())
    }
}

/// The number stays out of what people read.
impl std::fmt::Debug for P521Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("P521Pair")
    }
}

/// Whether this key has signed this.
pub(super) fn verify(point: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let (key, signature) = (VerifyingKey::from_sec1_bytes(point), Signature::from_slice(signature));
    matches!((key, signature), (Ok(key), Ok(signature)) if key.verify(message, &signature).is_ok())
}
