use rcgen::{DnType, ExtendedKeyUsagePurpose};

use super::*;
use crate::tls::testing::{Leaf, SignedLeaf, TestCa};

const UID_OID: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];
/// The same attribute under rcgen's second name for it: rcgen keeps one value per name.
const ORGANIZATION_OID: &[u64] = &[2, 5, 4, 10];

fn roots(ca: &TestCa) -> Roots {
    Roots::from_pem(ca.pem().as_bytes()).expect("just made")
}

fn with_uid(uid: &str) -> Leaf {
    let mut leaf = Leaf::client("jane", "dev");
    leaf.subject.push((DnType::CustomDnType(UID_OID.to_vec()), uid.to_owned()));
    leaf
}

#[test]
fn a_good_chain_gives_the_user() {
    let ca = TestCa::new("ca");
    let mut leaf = with_uid("1234");
    leaf.subject.push((DnType::CustomDnType(ORGANIZATION_OID.to_vec()), "ops".to_owned()));
    let signed = ca.sign(&leaf);
    let cert = verify_chain(&roots(&ca), &[signed.der], SystemTime::now()).expect("a good chain");
    assert_eq!(cert.common_name, "jane");
    assert_eq!(cert.organizations, ["dev", "ops"]);
    assert_eq!(cert.uid.as_deref(), Some("1234"));
    let id = cert.credential_id();
    assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
}

#[test]
fn bad_certificates_are_refused_with_the_reason() {
    let ca = TestCa::new("ca");
    let other = TestCa::new("other");
    let hour = Duration::from_hours(1);
    let old = Leaf {
        not_before: SystemTime::now() - 2 * hour,
        not_after: SystemTime::now() - hour,
        ..Leaf::client("old", "")
    };
    let early = Leaf { not_before: SystemTime::now() + hour / 2, ..Leaf::client("early", "") };
    let cases = [
        (other.sign(&Leaf::client("stranger", "")), UNKNOWN_AUTHORITY),
        (ca.sign(&old), EXPIRED),
        (ca.sign(&early), EXPIRED),
        (ca.sign(&Leaf::server("server", &[])), WRONG_USAGE),
        (ca.sign(&with_uid("")), "UID cannot be an empty string"),
    ];
    let roots = roots(&ca);
    for (SignedLeaf { der, .. }, expected) in cases {
        let error = verify_chain(&roots, &[der], SystemTime::now()).expect_err(expected);
        assert!(error.starts_with("verifying certificate SN="), "{error}");
        assert!(error.ends_with(&format!(" failed: {expected}")), "{error}");
    }
    let garbage = CertificateDer::from(vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff]);
    assert!(verify_chain(&roots, &[garbage], SystemTime::now()).is_err());
    assert_eq!(verify_chain(&roots, &[], SystemTime::now()).expect_err("empty"), "no certificate");
}

#[test]
fn usages_and_issuers_are_judged() {
    let ca = TestCa::new("ca");
    let any = Leaf { usages: vec![ExtendedKeyUsagePurpose::Any], ..Leaf::client("any", "") };
    let none = Leaf { usages: vec![], ..Leaf::client("none", "") };
    let impostor = ca.sign(&Leaf::client("impostor", ""));
    let cases = [
        ("no usage at all is every usage", vec![ca.sign(&none).der], true),
        ("only a named usage counts", vec![ca.sign(&any).der], false),
        ("a leaf is no CA", vec![TestCa::new("x").sign(&none).der, impostor.der], false),
    ];
    for (what, chain, expected) in cases {
        let verdict = verify_chain(&roots(&ca), &chain, SystemTime::now());
        assert_eq!(verdict.is_ok(), expected, "{what}: {verdict:?}");
    }
}

#[test]
fn a_certificate_in_the_bundle_is_good_itself() {
    let ca = TestCa::new("ca");
    let leaf = ca.sign(&Leaf { is_ca: true, ..Leaf::client("pinned", "") });
    let bundle = Roots::from_pem(leaf.pem.as_bytes()).expect("one certificate");
    let chain = [leaf.der];
    let cert = verify_chain(&bundle, &chain, SystemTime::now()).expect("it is in the bundle");
    assert_eq!(cert.common_name, "pinned");
    let later = SystemTime::now() + Duration::from_hours(2);
    assert!(verify_chain(&bundle, &chain, later).expect_err("expired").ends_with(EXPIRED));
}

#[test]
fn an_identity_follows_the_bundle_and_the_clock() {
    let ca = TestCa::new("ca");
    let bundle = Arc::new(ArcSwap::from_pointee(roots(&ca)));
    let client = ClientCert::new(vec![ca.sign(&Leaf::client("jane", "")).der], bundle.clone());
    let now = SystemTime::now();

    let first = client.identity(now);
    assert_eq!(first.verified.as_ref().map(|cert| cert.common_name.as_str()), Some("jane"));
    assert!(Arc::ptr_eq(&first, &client.identity(now)), "verified once");

    bundle.store(Arc::new(roots(&TestCa::new("another"))));
    assert!(client.identity(now).verified.is_none(), "the old CA is gone");
    bundle.store(Arc::new(roots(&ca)));
    assert!(client.identity(now).verified.is_some(), "and back");

    let later = client.identity(now + Duration::from_hours(2));
    assert!(later.error.as_ref().is_some_and(|error| error.ends_with(EXPIRED)), "{later:?}");
    bundle.store(Arc::new(Roots::default()));
    assert!(client.identity(now).verified.is_none(), "an empty bundle verifies no certificate");
}

#[test]
fn a_bundle_without_certificates_is_an_error() {
    for pem in ["", "no pem", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
        assert_eq!(Roots::from_pem(pem.as_bytes()).expect_err(pem), "no CA certificate found");
    }
}

/// Compat: `openssl x509 -req` without extensions makes version 1, which kube-apiserver accepts.
#[test]
fn a_version_1_certificate_counts_if_a_root_has_signed_it() {
    let leaf = CertificateDer::pem_slice_iter(V1_LEAF.as_bytes()).next();
    let chain = [leaf.expect("one certificate").expect("PEM")];
    let bundle = Roots::from_pem(V1_CA.as_bytes()).expect("one certificate");
    let cert = verify_chain(&bundle, &chain, SystemTime::now()).expect("signed by the CA");
    assert_eq!(
        (cert.common_name.as_str(), &cert.organizations[..]),
        ("jane", &["dev".to_owned()][..])
    );
    let later = SystemTime::now() + Duration::from_hours(24 * 365 * 200);
    assert!(verify_chain(&bundle, &chain, later).expect_err("expired").ends_with(EXPIRED));
    // Of the same name, but not the one that has signed it.
    let other = roots(&TestCa::new("ca"));
    let error = verify_chain(&other, &chain, SystemTime::now()).expect_err("another CA");
    assert!(error.ends_with(UNKNOWN_AUTHORITY), "{error}");
    let mut forged = chain[0].to_vec();
    *forged.last_mut().expect("not empty") ^= 1;
    assert!(verify_chain(&bundle, &[forged.into()], SystemTime::now()).is_err());
}

const V1_CA: &str = "-----BEGIN CERTIFICATE-----
MIIBcjCCARegAwIBAgIULQoN8YTsKiBOSp0HxAZL6zwAMXswCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwIBcNMjYxMTE3MTAxMzQwWhgPMjEyNjEwMjQxMDEzNDBa
MA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEgsEI1LVm
7jaVbUoU+Zunu54NGuLCcCYfstTzbiyIgQMPi9HCAhQYH20pJeIgVZI/ELY5dlVy
RW3Be+L9XmPQtqNTMFEwHQYDVR0OBBYEFHMJBThmG6CC6bK3Eta5eRHoBpZOMB8G
A1UdIwQYMBaAFHMJBThmG6CC6bK3Eta5eRHoBpZOMA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDSQAwRgIhAOGXuce+7opCEWXspRn8MF1prxDHEECrpVDGMLKC
3EozAiEA8YYwtVEgvC0HpPsrbQYz/Zgplsx3oQayZbdAxpYYIb8=
-----END CERTIFICATE-----
";
const V1_LEAF: &str = "-----BEGIN CERTIFICATE-----
MIIBJjCBzQIUakBJcFGyBGhAj/EXv43BFom7kCUwCgYIKoZIzj0EAwIwDTELMAkG
A1UEAwwCY2EwIBcNMjYxMTE3MTAxMzQwWhgPMjEyNjEwMjQxMDEzNDBaMB0xDTAL
BgNVBAMMBGphbmUxDDAKBgNVBAoMA2RldjBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABOtZRW10wK2Rv1E2ptht0lNb6piTfgmrB6pZ4Uu264b34SI5vAph8rD9VTz7
mklk0B7P3gHqMdJwCl189s5l4ikwCgYIKoZIzj0EAwIDSAAwRQIgbIEwaB89XiWP
z0wrWoy6iqBHadxvPzUGaehPLpYdkA4CIQD/oPmW90i7wG1dOWlroV1036GOXnCJ
B0c7/bJ/i0y7ow==
-----END CERTIFICATE-----
";
