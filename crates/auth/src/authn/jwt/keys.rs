//! The keys of tokens, as they come in PEM files: RSA (from 2048 bits) and elliptic curves P-256,
//! P-384 and P-521.

use aws_lc_rs::{
    rand::SystemRandom,
    rsa,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
        ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED, ECDSA_P521_SHA512_FIXED_SIGNING,
        EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _, RSA_PKCS1_2048_8192_SHA256,
        RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PKCS1_SHA256,
        RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
        UnparsedPublicKey, VerificationAlgorithm,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use meta::Value;
use rustls_pki_types::pem::{PemObject as _, SectionKind};
use sha2::{Digest as _, Sha256};

use super::der::{BIT_STRING, INTEGER, OBJECT_ID, OCTET_STRING, Reader, SEQUENCE, TAGGED_0, write};

/// What kind of key it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Rsa,
    P256,
    P384,
    P521,
}

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];

impl Family {
    fn of_curve(curve: &[u8]) -> Result<Self, String> {
        match curve {
            P256 => Ok(Self::P256),
            P384 => Ok(Self::P384),
            P521 => Ok(Self::P521),
            _ => Err("unknown private key curve, must be 256, 384, or 521".to_owned()),
        }
    }

    fn algorithm(self) -> &'static str {
        match self {
            Self::Rsa => "RS256",
            Self::P256 => "ES256",
            Self::P384 => "ES384",
            Self::P521 => "ES512",
        }
    }

    fn verify(self, key: &[u8], message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match self {
            Self::Rsa => &RSA_PKCS1_2048_8192_SHA256,
            Self::P256 => &ECDSA_P256_SHA256_FIXED,
            Self::P384 => &ECDSA_P384_SHA384_FIXED,
            Self::P521 => &ECDSA_P521_SHA512_FIXED,
        };
        UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
    }
}

/// A key that proves who made a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    family: Family,
    id: String,
    /// `RSAPublicKey`, or the point.
    material: Vec<u8>,
}

impl PublicKey {
    /// All keys of a PEM file: public ones, private ones (their public half) and certificates'.
    pub fn all_from_pem(text: &[u8]) -> Result<Vec<Self>, String> {
        let mut keys = Vec::new();
        for (kind, der) in sections(text)? {
            keys.push(match kind {
                SectionKind::PublicKey => Self::from_info(&der)?,
                SectionKind::Certificate => {
                    Self::from_info(info_of_certificate(&der).ok_or("not a certificate")?)?
                }
                _ => match SigningKey::from_der(kind, &der) {
                    Some(key) => key?.public,
                    None => continue,
                },
            });
        }
        if keys.is_empty() {
            return Err("data does not contain any valid RSA or ECDSA public keys".to_owned());
        }
        Ok(keys)
    }

    /// From a `SubjectPublicKeyInfo`, under an id that another program has chosen.
    pub fn from_pkix(id: &str, der: &[u8]) -> Result<Self, String> {
        Ok(Self { id: id.to_owned(), ..Self::from_info(der)? })
    }

    /// From a `SubjectPublicKeyInfo`.
    fn from_info(der: &[u8]) -> Result<Self, String> {
        let (family, material) = read_info(der).ok_or_else(|| "not a public key".to_owned())??;
        Self::new(family, material)
    }

    fn new(family: Family, material: &[u8]) -> Result<Self, String> {
        let key = Self { family, id: String::new(), material: material.to_vec() };
        if family == Family::Rsa {
            let (modulus, _) = key.rsa_parts().ok_or("not an RSA key")?;
            if modulus.len() < RSA_BYTES_MIN {
                return Err("RSA keys of less than 2048 bits are not accepted".to_owned());
            }
        }
        let id = BASE64URL.encode(Sha256::digest(key.info()));
        Ok(Self { id, ..key })
    }

    /// Compat: the hash of the key's `SubjectPublicKeyInfo`, as kube-apiserver names keys.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn algorithm(&self) -> &'static str {
        self.family.algorithm()
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.family.verify(&self.material, message, signature)
    }

    /// By an algorithm of RFC 7518 that the token names: it has to fit the type of the key.
    pub(super) fn verifies_as(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        let verification: &'static dyn VerificationAlgorithm = match (self.family, algorithm) {
            (Family::Rsa, "RS256") => &RSA_PKCS1_2048_8192_SHA256,
            (Family::Rsa, "RS384") => &RSA_PKCS1_2048_8192_SHA384,
            (Family::Rsa, "RS512") => &RSA_PKCS1_2048_8192_SHA512,
            (Family::Rsa, "PS256") => &RSA_PSS_2048_8192_SHA256,
            (Family::Rsa, "PS384") => &RSA_PSS_2048_8192_SHA384,
            (Family::Rsa, "PS512") => &RSA_PSS_2048_8192_SHA512,
            (Family::P256 | Family::P384 | Family::P521, _) if algorithm == self.algorithm() => {
                return self.verifies(message, signature);
            }
            _ => return false,
        };
        UnparsedPublicKey::new(verification, &self.material).verify(message, signature).is_ok()
    }

    /// From a JSON Web Key. None: it is of a type that signs no tokens (or is meant for encryption).
    pub(crate) fn from_jwk(jwk: &Value) -> Option<Self> {
        if jwk.str_at(&["use"]) == "enc" {
            return None;
        }
        let bytes = |name: &str| BASE64URL.decode(jwk.str_at(&[name]).trim_end_matches('=')).ok();
        let key = match jwk.str_at(&["kty"]) {
            "RSA" => {
                let number = |bytes: Vec<u8>| {
                    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                    // A leading zero keeps a number positive.
                    write(
                        INTEGER,
                        &[&[0], &bytes[zeros..]].concat()
                            [usize::from(bytes.get(zeros).is_some_and(|first| *first < 0x80))..],
                    )
                };
                let numbers = [number(bytes("n")?), number(bytes("e")?)].concat();
                Self::new(Family::Rsa, &write(SEQUENCE, &numbers)).ok()?
            }
            "EC" => {
                let (family, length) = match jwk.str_at(&["crv"]) {
                    "P-256" => (Family::P256, 32),
                    "P-384" => (Family::P384, 48),
                    "P-521" => (Family::P521, 66),
                    _ => return None,
                };
                let (x, y) = (bytes("x")?, bytes("y")?);
                if x.len() != length || y.len() != length {
                    return None;
                }
                Self::new(family, &[&[4], x.as_slice(), &y].concat()).ok()?
            }
            _ => return None,
        };
        Some(Self { id: jwk.str_at(&["kid"]).to_owned(), ..key })
    }

    /// The `SubjectPublicKeyInfo`.
    fn info(&self) -> Vec<u8> {
        let null = [0x05, 0x00];
        let algorithm = match self.family {
            Family::Rsa => [write(OBJECT_ID, RSA), null.to_vec()].concat(),
            Family::P256 => [write(OBJECT_ID, EC), write(OBJECT_ID, P256)].concat(),
            Family::P384 => [write(OBJECT_ID, EC), write(OBJECT_ID, P384)].concat(),
            Family::P521 => [write(OBJECT_ID, EC), write(OBJECT_ID, P521)].concat(),
        };
        let bits = [&[0], self.material.as_slice()].concat();
        write(SEQUENCE, &[write(SEQUENCE, &algorithm), write(BIT_STRING, &bits)].concat())
    }

    fn rsa_parts(&self) -> Option<(&[u8], &[u8])> {
        let mut key = Reader(Reader(&self.material).expect(SEQUENCE)?);
        let mut number = || {
            let bytes = key.expect(INTEGER)?;
            Some(&bytes[bytes.iter().take_while(|byte| **byte == 0).count()..])
        };
        Some((number()?, number()?))
    }

    /// As it is published, in the order of the members that clients of kube-apiserver see.
    pub fn to_jwk(&self) -> String {
        let encode = |bytes: &[u8]| BASE64URL.encode(bytes);
        // An id of another program may be any text.
        let id = meta::json::to_string(&Value::from(self.id.as_str()));
        let algorithm = self.algorithm();
        let curve = match self.family {
            Family::Rsa => {
                let (n, e) = self.rsa_parts().unwrap_or_default();
                let (n, e) = (encode(n), encode(e));
                return format!(
                    r#"{{"use":"sig","kty":"RSA","kid":{id},"alg":"{algorithm}","n":"{n}","e":"{e}"}}"#
                );
            }
            Family::P256 => "P-256",
            Family::P384 => "P-384",
            Family::P521 => "P-521",
        };
        // 4, x, y.
        let point = self.material.get(1..).unwrap_or_default();
        let (x, y) = point.split_at(point.len() / 2);
        let (x, y) = (encode(x), encode(y));
        format!(
            r#"{{"use":"sig","kty":"EC","kid":{id},"crv":"{curve}","alg":"{algorithm}","x":"{x}","y":"{y}"}}"#
        )
    }
}

const RSA_BYTES_MIN: usize = 256;

/// A key that makes tokens.
#[derive(Debug)]
pub struct SigningKey {
    pair: Pair,
    public: PublicKey,
}

#[derive(Debug)]
enum Pair {
    Rsa(Box<rsa::KeyPair>),
    Ec(Family, Box<EcdsaKeyPair>),
}

impl SigningKey {
    /// The first private key of a PEM file.
    pub fn from_pem(text: &[u8]) -> Result<Self, String> {
        let mut sections = sections(text)?.into_iter();
        let found = sections.find_map(|(kind, der)| Self::from_der(kind, &der));
        found.unwrap_or_else(|| {
            Err("data does not contain a valid RSA or ECDSA private key".to_owned())
        })
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let (random, failed) = (SystemRandom::new(), |_| "the key cannot sign".to_owned());
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(failed)?;
                Ok(signature)
            }
            Pair::Ec(_, pair) => {
                pair.sign(&random, message).map(|signed| signed.as_ref().to_vec()).map_err(failed)
            }
        }
    }

    /// None: not a private key.
    fn from_der(kind: SectionKind, der: &[u8]) -> Option<Result<Self, String>> {
        let made = match kind {
            SectionKind::RsaPrivateKey => rsa::KeyPair::from_der(der).map_err(rejected).map(rsa),
            SectionKind::PrivateKey => from_pkcs8(der),
            SectionKind::EcPrivateKey => from_sec1(der),
            _ => return None,
        };
        Some(made.and_then(|pair| {
            let public = match &pair {
                Pair::Rsa(pair) => PublicKey::new(Family::Rsa, pair.public_key().as_ref()),
                Pair::Ec(family, pair) => PublicKey::new(*family, pair.public_key().as_ref()),
            };
            Ok(Self { pair, public: public? })
        }))
    }
}

fn rsa(pair: rsa::KeyPair) -> Pair {
    Pair::Rsa(Box::new(pair))
}

fn rejected(error: aws_lc_rs::error::KeyRejected) -> String {
    format!("the private key cannot be used: {error}")
}

fn from_pkcs8(der: &[u8]) -> Result<Pair, String> {
    let malformed = || "not a private key".to_owned();
    let mut key = Reader(Reader(der).expect(SEQUENCE).ok_or_else(malformed)?);
    key.expect(INTEGER).ok_or_else(malformed)?;
    let mut algorithm = Reader(key.expect(SEQUENCE).ok_or_else(malformed)?);
    match algorithm.expect(OBJECT_ID) {
        Some(RSA) => rsa::KeyPair::from_pkcs8(der).map_err(rejected).map(rsa),
        Some(EC) => {
            let family = Family::of_curve(algorithm.expect(OBJECT_ID).ok_or_else(malformed)?)?;
            ec_pair(family, der)
        }
        _ => Err("unknown private key type, must be RSA or ECDSA".to_owned()),
    }
}

fn from_sec1(der: &[u8]) -> Result<Pair, String> {
    let curve = sec1_curve(der).ok_or("the key does not name its curve")?;
    ec_pair(Family::of_curve(curve)?, der)
}

/// The curve of an `ECPrivateKey`.
fn sec1_curve(der: &[u8]) -> Option<&[u8]> {
    let mut key = Reader(Reader(der).expect(SEQUENCE)?);
    key.expect(INTEGER)?;
    key.expect(OCTET_STRING)?;
    Reader(key.optional(TAGGED_0)?).expect(OBJECT_ID)
}

/// From PKCS #8 or an `ECPrivateKey`; the public half is computed where it is not there.
fn ec_pair(family: Family, der: &[u8]) -> Result<Pair, String> {
    let algorithm: &'static EcdsaSigningAlgorithm = match family {
        Family::P521 => &ECDSA_P521_SHA512_FIXED_SIGNING,
        Family::P384 => &ECDSA_P384_SHA384_FIXED_SIGNING,
        _ => &ECDSA_P256_SHA256_FIXED_SIGNING,
    };
    let pair = EcdsaKeyPair::from_private_key_der(algorithm, der);
    pair.map(|pair| Pair::Ec(family, Box::new(pair))).map_err(rejected)
}

/// Family and key of a `SubjectPublicKeyInfo`.
fn read_info(der: &[u8]) -> Option<Result<(Family, &[u8]), String>> {
    let mut info = Reader(Reader(der).expect(SEQUENCE)?);
    let mut algorithm = Reader(info.expect(SEQUENCE)?);
    let material = info.expect(BIT_STRING)?.get(1..)?;
    Some(match algorithm.expect(OBJECT_ID)? {
        RSA => Ok((Family::Rsa, material)),
        EC => Family::of_curve(algorithm.expect(OBJECT_ID)?).map(|family| (family, material)),
        _ => Err("unknown public key type, must be RSA or ECDSA".to_owned()),
    })
}

/// The `SubjectPublicKeyInfo` in a certificate.
fn info_of_certificate(der: &[u8]) -> Option<&[u8]> {
    let mut certificate = Reader(Reader(der).expect(SEQUENCE)?);
    let mut body = Reader(certificate.expect(SEQUENCE)?);
    body.optional(TAGGED_0);
    // Serial number, algorithm, issuer, validity, subject.
    for tag in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE] {
        body.expect(tag)?;
    }
    body.element().map(|(_, _, whole)| whole)
}

/// The parts of a PEM file.
fn sections(text: &[u8]) -> Result<Vec<(SectionKind, Vec<u8>)>, String> {
    let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(text);
    sections.collect::<Result<_, _>>().map_err(|error| format!("not a PEM file: {error}"))
}
