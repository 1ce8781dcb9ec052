//! The envelope behind `k8s:enc:kms:v2:<name>:`, and the derivation of data encryption keys from a
//! seed.

use std::collections::BTreeMap;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use meta::field::quote;
use prost::Message;

use crate::client::Encrypted;

/// A stored value.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EncryptedObject {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) data: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(crate) key_id: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) source: Vec<u8>,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(crate) annotations: BTreeMap<String, Vec<u8>>,
    #[prost(int32, tag = "5")]
    pub(crate) source_type: i32,
}

/// `source` is the encrypted key itself, as written by Kubernetes before 1.29.
pub(crate) const SOURCE_TYPE_KEY: i32 = 0;
/// `source` is an encrypted seed; the first 32 bytes of `data` are the HKDF info from which the key
/// is derived.
pub(crate) const SOURCE_TYPE_SEED: i32 = 1;

const KEY_ID_BYTES_MAX: usize = 1024;
const SOURCE_BYTES_MAX: usize = 1024;
const ANNOTATIONS_BYTES_MAX: usize = 32 * 1024;

impl EncryptedObject {
    pub(crate) fn new(encrypted: &Encrypted, data: Vec<u8>) -> Self {
        Self {
            data,
            key_id: encrypted.key_id.clone(),
            source: encrypted.ciphertext.clone(),
            annotations: encrypted.annotations.clone(),
            source_type: SOURCE_TYPE_SEED,
        }
    }

    pub(crate) fn read(stored: &[u8]) -> Result<Self, String> {
        let object = Self::decode(stored).map_err(|error| error.to_string())?;
        object.validate()?;
        Ok(object)
    }

    /// Compat: the rules and messages of kube-apiserver, which would refuse to read the value
    /// otherwise.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if !matches!(self.source_type, SOURCE_TYPE_KEY | SOURCE_TYPE_SEED) {
            return Err(format!("unknown encryptedDEKSourceType: {}", self.source_type));
        }
        if self.data.is_empty() {
            return Err("encrypted data is empty".to_owned());
        }
        let source = match self.source.len() {
            0 => Some("encrypted DEK source is empty".to_owned()),
            len if len > SOURCE_BYTES_MAX => Some(format!(
                "encrypted DEK source is {len} bytes, which exceeds the max size of \
                 {SOURCE_BYTES_MAX}"
            )),
            _ => None,
        };
        if let Some(why) = source {
            return Err(format!("failed to validate encrypted DEK source: {why}"));
        }
        validate_key_id(&self.key_id).map_err(|why| format!("failed to validate key id: {why}"))?;
        self.validate_annotations().map_err(|why| format!("failed to validate annotations: {why}"))
    }

    fn validate_annotations(&self) -> Result<(), String> {
        let size: usize = self.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        if size > ANNOTATIONS_BYTES_MAX {
            return Err(format!(
                "total size of annotations is {size}, which exceeds the max size of \
                 {ANNOTATIONS_BYTES_MAX}"
            ));
        }
        let qualified = |key: &str| {
            key.contains('.') && meta::names::name_is_dns_subdomain(key, false).is_empty()
        };
        match self.annotations.keys().find(|key| !qualified(key)) {
            Some(key) => Err(format!(
                "annotations: Invalid value: {}: should be a domain with at least two segments \
                 separated by dots",
                quote(key)
            )),
            None => Ok(()),
        }
    }

    /// The key of a decrypted seed in the cache.
    pub(crate) fn seed_id(&self) -> Vec<u8> {
        Self { data: Vec::new(), ..self.clone() }.encode_to_vec()
    }

    pub(crate) fn encrypted(&self) -> Encrypted {
        Encrypted {
            ciphertext: self.source.clone(),
            key_id: self.key_id.clone(),
            annotations: self.annotations.clone(),
        }
    }
}

pub(crate) fn validate_key_id(key_id: &str) -> Result<(), String> {
    match key_id.len() {
        0 => Err("keyID is empty".to_owned()),
        len if len > KEY_ID_BYTES_MAX => {
            Err(format!("keyID is {len} bytes, which exceeds the max size of {KEY_ID_BYTES_MAX}"))
        }
        _ => Ok(()),
    }
}

/// A key id may be confidential: logs and errors show its hash.
pub(crate) fn key_id_hash(key_id: &str) -> String {
    if key_id.is_empty() {
        return String::new();
    }
    let hex: String = digest(&SHA256, key_id.as_bytes())
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

/// A data encryption key (DEK), or the seed of many.
pub(crate) enum Dek {
    /// Every value has a key of its own, derived from this seed.
    Seed(Prk),
    /// One key for all values; only used to decrypt.
    Key(Box<LessSafeKey>),
}

pub(crate) const SEED_BYTES: usize = 32;
/// The HKDF info that selects a key of a seed.
const INFO_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
const TOO_SHORT: &str = "the stored data was shorter than the required size";
const NO_RANDOM: &str = "unable to read sufficient random bytes";
const NOT_AUTHENTIC: &str = "cipher: message authentication failed";

impl Dek {
    pub(crate) fn new(source_type: i32, secret: &[u8]) -> Result<Self, String> {
        if source_type == SOURCE_TYPE_SEED {
            if secret.len() < SEED_BYTES {
                return Err(format!(
                    "invalid seed length {} used for key generation",
                    secret.len()
                ));
            }
            return Ok(Self::Seed(Prk::new_less_safe(HKDF_SHA256, secret)));
        }
        let algorithm: &Algorithm = match secret.len() {
            16 => &AES_128_GCM,
            32 => &AES_256_GCM,
            len => return Err(format!("crypto/aes: invalid key size {len}")),
        };
        aes_gcm(algorithm, secret).map(|key| Self::Key(Box::new(key)))
    }

    /// Info, nonce, ciphertext, tag.
    pub(crate) fn seal(&self, value: &[u8], context: &[u8]) -> Result<Vec<u8>, String> {
        let Self::Seed(seed) = self else {
            return Err("values are written with keys of a seed only".to_owned());
        };
        let (mut info, mut nonce) = ([0; INFO_BYTES], [0; NONCE_BYTES]);
        getrandom::fill(&mut info).map_err(|_| NO_RANDOM)?;
        getrandom::fill(&mut nonce).map_err(|_| NO_RANDOM)?;
        let key = derive_key(seed, &info)?;
        let mut sealed = value.to_vec();
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(context),
            &mut sealed,
        )
        .map_err(|_| "AES-GCM cannot encrypt a value of this size".to_owned())?;
        Ok([&info[..], &nonce, &sealed].concat())
    }

    pub(crate) fn open(&self, data: &[u8], context: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Key(key) => open(key, data, context),
            Self::Seed(seed) => {
                let (info, sealed) = data.split_first_chunk::<INFO_BYTES>().ok_or(TOO_SHORT)?;
                open(&derive_key(seed, info)?, sealed, context)
            }
        }
    }
}

fn open(key: &LessSafeKey, data: &[u8], context: &[u8]) -> Result<Vec<u8>, String> {
    let (nonce, sealed) = data.split_first_chunk::<NONCE_BYTES>().ok_or(TOO_SHORT)?;
    let mut value = sealed.to_vec();
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let opened = key.open_in_place(nonce, Aad::from(context), &mut value);
    let len = opened.map_err(|_| NOT_AUTHENTIC)?.len();
    value.truncate(len);
    Ok(value)
}

fn aes_gcm(algorithm: &'static Algorithm, key: &[u8]) -> Result<LessSafeKey, String> {
    let key = UnboundKey::new(algorithm, key).map_err(|_| "not a key of AES-GCM".to_owned())?;
    Ok(LessSafeKey::new(key))
}

/// HKDF-Expand without HKDF-Extract: the seed is random already.
fn derive_key(seed: &Prk, info: &[u8; INFO_BYTES]) -> Result<LessSafeKey, String> {
    struct Bytes32;
    impl KeyType for Bytes32 {
        fn len(&self) -> usize {
            32
        }
    }
    let mut key = [0; 32];
    let info: [&[u8]; 1] = [info];
    let filled = seed.expand(&info, Bytes32).and_then(|okm| okm.fill(&mut key));
    filled.map_err(|_| "failed to derive a key from the seed".to_owned())?;
    aes_gcm(&AES_256_GCM, &key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> EncryptedObject {
        EncryptedObject {
            data: vec![1],
            key_id: "key".to_owned(),
            source: vec![2; 60],
            annotations: BTreeMap::from([("version.example.com".to_owned(), vec![3])]),
            source_type: SOURCE_TYPE_SEED,
        }
    }

    #[test]
    fn every_value_has_its_own_key_and_is_bound_to_its_storage_key() {
        let seed = Dek::new(SOURCE_TYPE_SEED, &[7; SEED_BYTES]).expect("a seed");
        let sealed = seed.seal(b"value", b"/registry/a").expect("seals");
        let again = seed.seal(b"value", b"/registry/a").expect("seals");
        assert_eq!(sealed.len(), INFO_BYTES + NONCE_BYTES + 5 + 16);
        assert_ne!(sealed[..INFO_BYTES], again[..INFO_BYTES]);
        assert_eq!(seed.open(&sealed, b"/registry/a").expect("opens"), b"value");
        let other = Dek::new(SOURCE_TYPE_SEED, &[8; SEED_BYTES]).expect("a seed");
        let mut bent = sealed.clone();
        bent[INFO_BYTES + NONCE_BYTES] ^= 1;
        let cases = [
            (&seed, &sealed[..], "/registry/b", NOT_AUTHENTIC),
            (&other, &sealed[..], "/registry/a", NOT_AUTHENTIC),
            (&seed, &bent[..], "/registry/a", NOT_AUTHENTIC),
            (&seed, &sealed[..INFO_BYTES], "/registry/a", TOO_SHORT),
            (&seed, &[], "/registry/a", TOO_SHORT),
        ];
        for (dek, data, place, why) in cases {
            assert_eq!(dek.open(data, place.as_bytes()).expect_err("does not open"), why);
        }
    }

    #[test]
    fn a_key_that_is_not_derived_only_decrypts() {
        let key = Dek::new(SOURCE_TYPE_KEY, &[7; 32]).expect("a key");
        assert!(key.seal(b"value", b"").is_err());
        let nonce = [9; NONCE_BYTES];
        let mut sealed = b"value".to_vec();
        aes_gcm(&AES_256_GCM, &[7; 32])
            .expect("a key")
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(b"/registry/a"),
                &mut sealed,
            )
            .expect("seals");
        let stored = [&nonce[..], &sealed].concat();
        assert_eq!(key.open(&stored, b"/registry/a").expect("opens"), b"value");
        for (source_type, secret) in
            [(SOURCE_TYPE_KEY, 31), (SOURCE_TYPE_KEY, 0), (SOURCE_TYPE_SEED, 31)]
        {
            assert!(Dek::new(source_type, &vec![0; secret]).is_err(), "{source_type} {secret}");
        }
    }

    #[test]
    fn an_envelope_that_kube_apiserver_would_reject_is_rejected() {
        type Change = fn(&mut EncryptedObject);
        let cases: [(Change, &str); 9] = [
            (|_| {}, ""),
            (|it| it.source_type = 2, "unknown encryptedDEKSourceType: 2"),
            (|it| it.data.clear(), "encrypted data is empty"),
            (
                |it| it.source.clear(),
                "failed to validate encrypted DEK source: encrypted DEK source is empty",
            ),
            (
                |it| it.source = vec![0; 1025],
                "failed to validate encrypted DEK source: encrypted DEK source is 1025 bytes, which \
                 exceeds the max size of 1024",
            ),
            (|it| it.key_id.clear(), "failed to validate key id: keyID is empty"),
            (
                |it| it.key_id = "k".repeat(1025),
                "failed to validate key id: keyID is 1025 bytes, which exceeds the max size of 1024",
            ),
            (
                |it| drop(it.annotations.insert("plain".to_owned(), vec![])),
                "failed to validate annotations: annotations: Invalid value: \"plain\": should be a \
                 domain with at least two segments separated by dots",
            ),
            (
                |it| drop(it.annotations.insert("a.b".to_owned(), vec![0; 32 * 1024])),
                "failed to validate annotations: total size of annotations is 32791, which exceeds \
                 the max size of 32768",
            ),
        ];
        for (change, why) in cases {
            let mut object = object();
            change(&mut object);
            let read = EncryptedObject::read(&object.encode_to_vec());
            assert_eq!(read.err().unwrap_or_default(), why);
        }
        assert!(EncryptedObject::read(b"\xff").is_err());
    }

    #[test]
    fn a_seed_is_cached_by_everything_but_the_value() {
        let other_data = EncryptedObject { data: vec![9, 9], ..object() };
        assert_eq!(object().seed_id(), other_data.seed_id());
        let other_key = EncryptedObject { key_id: "other".to_owned(), ..object() };
        assert_ne!(object().seed_id(), other_key.seed_id());
    }
}
