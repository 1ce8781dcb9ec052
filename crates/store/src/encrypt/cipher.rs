//! The ciphers: bytes to bytes. The prefix that identifies them is added in `provider`.

use aes::cipher::{
    Block, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit, KeyIvInit, StreamCipher,
};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::consts::U12;
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{AesGcm, Nonce};
use poly1305::Poly1305;
use salsa20::XSalsa20;

/// A cipher with its key.
pub(crate) enum Cipher {
    /// Nonce (12), ciphertext, tag (16). The storage key is authenticated data, so that a value
    /// cannot be moved to another object.
    Gcm(Gcm),
    /// Initialisation vector (16), ciphertext with PKCS#7 padding. Not authenticated.
    Cbc(Cbc),
    /// Nonce (24), tag (16), ciphertext: NaCl's secretbox.
    Secretbox([u8; 32]),
}

pub(crate) enum Gcm {
    Aes128(Box<AesGcm<Aes128, U12>>),
    Aes192(Box<AesGcm<Aes192, U12>>),
    Aes256(Box<AesGcm<Aes256, U12>>),
}

pub(crate) enum Cbc {
    Aes128(Box<Aes128>),
    Aes192(Box<Aes192>),
    Aes256(Box<Aes256>),
}

const TOO_SHORT: &str = "the stored data was shorter than the required size";
const NO_RANDOM: &str = "unable to read sufficient random bytes";

impl Cipher {
    /// `None`: not a key length of this cipher.
    pub(crate) fn gcm(key: &[u8]) -> Option<Self> {
        Some(Self::Gcm(match key.len() {
            16 => Gcm::Aes128(Box::new(AesGcm::new_from_slice(key).ok()?)),
            24 => Gcm::Aes192(Box::new(AesGcm::new_from_slice(key).ok()?)),
            32 => Gcm::Aes256(Box::new(AesGcm::new_from_slice(key).ok()?)),
            _ => return None,
        }))
    }

    pub(crate) fn cbc(key: &[u8]) -> Option<Self> {
        Some(Self::Cbc(match key.len() {
            16 => Cbc::Aes128(Box::new(Aes128::new_from_slice(key).ok()?)),
            24 => Cbc::Aes192(Box::new(Aes192::new_from_slice(key).ok()?)),
            32 => Cbc::Aes256(Box::new(Aes256::new_from_slice(key).ok()?)),
            _ => return None,
        }))
    }

    pub(crate) fn secretbox(key: &[u8]) -> Option<Self> {
        Some(Self::Secretbox(key.try_into().ok()?))
    }

    /// Appends the encrypted value.
    pub(crate) fn seal(
        &self,
        value: &[u8],
        context: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        match self {
            Self::Gcm(gcm) => {
                let nonce: [u8; 12] = random()?;
                out.extend_from_slice(&nonce);
                out.extend_from_slice(&gcm.seal(nonce, value, context)?);
            }
            Self::Cbc(cbc) => {
                let iv: [u8; BLOCK] = random()?;
                out.extend_from_slice(&iv);
                let start = out.len();
                out.extend_from_slice(value);
                let padding = BLOCK - value.len() % BLOCK;
                out.resize(out.len() + padding, padding as u8);
                cbc.encrypt(iv, &mut out[start..]);
            }
            Self::Secretbox(key) => {
                let nonce: [u8; 24] = random()?;
                out.extend_from_slice(&nonce);
                let start = out.len();
                out.extend_from_slice(&[0; TAG]);
                out.extend_from_slice(value);
                let (mut stream, authenticator) = secretbox(key, nonce);
                stream.apply_keystream(&mut out[start + TAG..]);
                let tag = authenticator.compute_unpadded(&out[start + TAG..]);
                out[start..start + TAG].copy_from_slice(&tag);
            }
        }
        Ok(())
    }

    /// Decrypts a stored value.
    pub(crate) fn open(&self, stored: &[u8], context: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Gcm(gcm) => {
                let (nonce, sealed) = stored.split_first_chunk().ok_or(TOO_SHORT)?;
                gcm.open(*nonce, sealed, context)
            }
            Self::Cbc(cbc) => {
                let (iv, sealed) = stored.split_first_chunk().ok_or(TOO_SHORT)?;
                if sealed.len() % BLOCK != 0 {
                    return Err("the stored data is not a multiple of the block size".into());
                }
                let mut value = sealed.to_vec();
                cbc.decrypt(*iv, &mut value);
                unpad(&mut value)?;
                Ok(value)
            }
            Self::Secretbox(key) => {
                let (nonce, sealed) = stored.split_first_chunk().ok_or(TOO_SHORT)?;
                let (tag, sealed) = sealed.split_first_chunk::<TAG>().ok_or(TOO_SHORT)?;
                let (mut stream, authenticator) = secretbox(key, *nonce);
                let expected = authenticator.compute_unpadded(sealed);
                // Compared in constant time.
                let difference = expected.iter().zip(tag).fold(0, |all, (a, b)| all | (a ^ b));
                if difference != 0 {
                    return Err(NOT_AUTHENTIC.into());
                }
                let mut value = sealed.to_vec();
                stream.apply_keystream(&mut value);
                Ok(value)
            }
        }
    }
}

const BLOCK: usize = 16;
const TAG: usize = 16;
const NOT_AUTHENTIC: &str =
    "cipher: message authentication failed (another key was used, or the data was changed)";

/// The key stream for the message; its first 32 bytes are the Poly1305 key.
fn secretbox(key: &[u8; 32], nonce: [u8; 24]) -> (XSalsa20, Poly1305) {
    let mut stream = XSalsa20::new(&(*key).into(), &nonce.into());
    let mut once = [0; 32];
    stream.apply_keystream(&mut once);
    (stream, Poly1305::new(&once.into()))
}

fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| NO_RANDOM)?;
    Ok(bytes)
}

impl Gcm {
    fn seal(&self, nonce: [u8; 12], msg: &[u8], aad: &[u8]) -> Result<Vec<u8>, String> {
        let (nonce, payload) = (Nonce::from(nonce), Payload { msg, aad });
        let sealed = match self {
            Self::Aes128(gcm) => gcm.encrypt(&nonce, payload),
            Self::Aes192(gcm) => gcm.encrypt(&nonce, payload),
            Self::Aes256(gcm) => gcm.encrypt(&nonce, payload),
        };
        sealed.map_err(|_| "AES-GCM cannot encrypt a value of this size".to_owned())
    }

    fn open(&self, nonce: [u8; 12], msg: &[u8], aad: &[u8]) -> Result<Vec<u8>, String> {
        let (nonce, payload) = (Nonce::from(nonce), Payload { msg, aad });
        let opened = match self {
            Self::Aes128(gcm) => gcm.decrypt(&nonce, payload),
            Self::Aes192(gcm) => gcm.decrypt(&nonce, payload),
            Self::Aes256(gcm) => gcm.decrypt(&nonce, payload),
        };
        opened.map_err(|_| NOT_AUTHENTIC.to_owned())
    }
}

impl Cbc {
    fn encrypt(&self, iv: [u8; BLOCK], data: &mut [u8]) {
        match self {
            Self::Aes128(aes) => encrypt_chain(&**aes, iv, data),
            Self::Aes192(aes) => encrypt_chain(&**aes, iv, data),
            Self::Aes256(aes) => encrypt_chain(&**aes, iv, data),
        }
    }

    fn decrypt(&self, iv: [u8; BLOCK], data: &mut [u8]) {
        match self {
            Self::Aes128(aes) => decrypt_chain(&**aes, iv, data),
            Self::Aes192(aes) => decrypt_chain(&**aes, iv, data),
            Self::Aes256(aes) => decrypt_chain(&**aes, iv, data),
        }
    }
}

/// CBC: every block is XORed with the ciphertext of the previous one.
fn encrypt_chain<C: BlockCipherEncrypt>(aes: &C, iv: [u8; BLOCK], data: &mut [u8]) {
    let mut before = iv;
    for block in data.as_chunks_mut::<BLOCK>().0 {
        mix(block, &before);
        let mut out = Block::<C>::default();
        out.copy_from_slice(block);
        aes.encrypt_block(&mut out);
        block.copy_from_slice(&out);
        before = *block;
    }
}

fn decrypt_chain<C: BlockCipherDecrypt>(aes: &C, iv: [u8; BLOCK], data: &mut [u8]) {
    let mut before = iv;
    for block in data.as_chunks_mut::<BLOCK>().0 {
        let sealed = *block;
        let mut out = Block::<C>::default();
        out.copy_from_slice(block);
        aes.decrypt_block(&mut out);
        block.copy_from_slice(&out);
        mix(block, &before);
        before = sealed;
    }
}

fn mix(block: &mut [u8; BLOCK], with: &[u8; BLOCK]) {
    for (byte, with) in block.iter_mut().zip(with) {
        *byte ^= with;
    }
}

/// PKCS#7: each padding byte is the number of padding bytes.
fn unpad(value: &mut Vec<u8>) -> Result<(), String> {
    let padding = value.last().copied().unwrap_or(0);
    let size = value.len().checked_sub(usize::from(padding)).filter(|_| padding != 0);
    let size = size.ok_or("invalid PKCS7 data (empty or not padded)")?;
    if value[size..].iter().any(|byte| *byte != padding) {
        return Err("invalid padding on input".into());
    }
    value.truncate(size);
    Ok(())
}
