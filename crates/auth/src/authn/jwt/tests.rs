use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use meta::value;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};

use super::*;

fn new_key(algorithm: &'static rcgen::SignatureAlgorithm) -> (SigningKey, String) {
    let pair = KeyPair::generate_for(algorithm).unwrap();
    let key = SigningKey::from_pem(pair.serialize_pem().as_bytes()).unwrap();
    (key, pair.public_key_pem())
}

#[test]
fn what_a_key_signs_its_public_half_verifies() {
    for (algorithm, name) in
        [(&PKCS_ECDSA_P256_SHA256, "ES256"), (&PKCS_ECDSA_P384_SHA384, "ES384")]
    {
        let (key, public) = new_key(algorithm);
        let public = PublicKey::all_from_pem(public.as_bytes()).unwrap();
        assert_eq!(public[0].id(), key.public().id());
        assert_eq!(public[0].algorithm(), name);
        let claims = value!({"iss": "me", "n": 1});
        let token = key.token(&claims).unwrap();
        assert_eq!(Unverified::parse(&token).unwrap().verify(&public), Ok(claims));
        let (other, _) = new_key(algorithm);
        let of_other = Unverified::parse(&token).unwrap().verify(&[other.public().clone()]);
        assert_eq!(of_other, Err("invalid signature, no keys found".to_owned()));
    }
}

/// Key and token made with openssl.
#[test]
fn keys_on_the_largest_curve_sign_and_verify() {
    let key = SigningKey::from_pem(include_bytes!("testdata/p521.pem")).unwrap();
    let pkcs8 = SigningKey::from_pem(include_bytes!("testdata/p521.pkcs8.pem")).unwrap();
    let public = PublicKey::all_from_pem(include_bytes!("testdata/p521.pub.pem")).unwrap();
    assert_eq!(public[0].id(), "B5qosV_qXh8iXYSxJpBRQrKJVZ9a06zEOkzbgmLChcs");
    assert_eq!(public[0].algorithm(), "ES512");
    let jwk = public[0].to_jwk();
    assert!(jwk.contains(r#""crv":"P-521","alg":"ES512","x":"AMxRrd517Hgcc8Q7Cg9w"#), "{jwk}");
    let foreign = include_str!("testdata/p521.jwt").trim();
    let claims = value!({"iss": "me"});
    assert_eq!(Unverified::parse(foreign).unwrap().verify(&public), Ok(claims.clone()));
    for key in [key, pkcs8] {
        assert_eq!(key.public().id(), public[0].id());
        let token = key.token(&claims).unwrap();
        assert_eq!(Unverified::parse(&token).unwrap().verify(&public), Ok(claims.clone()));
        let (head, signature) = token.rsplit_once('.').unwrap();
        let mut bytes = BASE64URL.decode(signature).unwrap();
        assert_eq!(bytes.len(), 132);
        bytes[40] ^= 1;
        let forged = format!("{head}.{}", BASE64URL.encode(bytes));
        assert!(Unverified::parse(&forged).unwrap().verify(&public).is_err());
    }
}

#[test]
fn forged_tokens_are_not_believed() {
    let (key, public) = new_key(&PKCS_ECDSA_P256_SHA256);
    let keys = PublicKey::all_from_pem(public.as_bytes()).unwrap();
    let token = key.token(&value!({"iss": "me", "sub": "a"})).unwrap();
    let parts: Vec<&str> = token.split('.').collect();
    let encode = |text: &str| BASE64URL.encode(text);
    let none = encode(r#"{"alg":"none"}"#);
    let hmac = encode(r#"{"alg":"HS256"}"#);
    let other = encode(r#"{"iss":"me","sub":"b"}"#);
    let cases = [
        format!("{none}.{}.", parts[1]),
        format!("{none}.{}.{}", parts[1], parts[2]),
        format!("{hmac}.{}.{}", parts[1], parts[2]),
        format!("{}.{other}.{}", parts[0], parts[2]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}.{}", parts[0], parts[1], encode("short")),
    ];
    for token in cases {
        let believed = Unverified::parse(&token).is_some_and(|token| token.verify(&keys).is_ok());
        assert!(!believed, "{token}");
    }
}

#[test]
fn what_is_not_a_token_is_seen_at_once() {
    let encode = |text: &str| BASE64URL.encode(text);
    let twice = format!("{}.{}.e30", encode(r#"{"alg":"ES256","alg":"none"}"#), encode("{}"));
    let critical = format!("{}.{}.e30", encode(r#"{"alg":"ES256","crit":["x"]}"#), encode("{}"));
    let cases = [
        String::new(),
        "abc".to_owned(),
        "a.b".to_owned(),
        "e30.e30".to_owned(),
        "e30.e30.e30.e30".to_owned(),
        "e30.e30.e30.e30.e30".to_owned(),
        "e30.e30.!!".to_owned(),
        "W10.e30.e30".to_owned(),
        ".".repeat(500_000),
        "e30.".to_owned() + &"A".repeat(900_000) + ".e30",
        twice,
        critical,
    ];
    for token in cases {
        assert!(Unverified::parse(&token).is_none(), "{token:.40}");
    }
}

/// Made with openssl: `ecparam -genkey` and `genrsa`.
#[test]
fn keys_come_in_several_forms() {
    let (key, public) = new_key(&PKCS_ECDSA_P256_SHA256);
    assert!(PublicKey::all_from_pem(b"").is_err());
    assert!(
        PublicKey::all_from_pem(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
            .is_err()
    );
    assert!(SigningKey::from_pem(public.as_bytes()).is_err());
    let twice = format!("{public}{public}");
    assert_eq!(PublicKey::all_from_pem(twice.as_bytes()).unwrap().len(), 2);
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["x".to_owned()]).unwrap();
    let pem = certificate.self_signed(&pair).unwrap().pem();
    let of_certificate = PublicKey::all_from_pem(pem.as_bytes()).unwrap();
    let of_private = PublicKey::all_from_pem(pair.serialize_pem().as_bytes()).unwrap();
    assert_eq!(of_certificate[0].id(), of_private[0].id());
    assert!(key.public().to_jwk().starts_with(r#"{"use":"sig","kty":"EC","kid":""#));
}
